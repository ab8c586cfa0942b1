"""`python -m rawpack_packer` is the `rawpack` command."""

from rawpack_packer.cli import main

main()
