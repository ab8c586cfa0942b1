"""The `rawpack` command: pack, inspect and check stores. `pack` is what it does, for Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawpack_packer.api import pack

__all__ = ["pack"]


def __getattr__(name: str) -> Any:
    """`pack`, loaded when it is first asked for: it brings OpenCV, HDF5 and LMDB with it."""
    if name == "pack":
        from rawpack_packer.api import pack

        return pack
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
