"""The `rawpack` command: pack, inspect and check stores. `pack`, `pack_splits` and `append` are that for Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawpack_packer.api import append, pack, pack_splits

__all__ = ["append", "pack", "pack_splits"]


def __getattr__(name: str) -> Any:
    """A function, loaded when it is first asked for: it brings OpenCV, HDF5 and LMDB with it."""
    if name in __all__:
        import rawpack_packer.api

        return getattr(rawpack_packer.api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
