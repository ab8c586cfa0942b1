"""`python -m rawpack` is the `rawpack` command."""

if __name__ == "__main__":
    from rawpack_packer.cli import main

    main()
