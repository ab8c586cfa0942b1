"""The `rawpack` command: pack stores, inspect and check them, and make others of them. What it does, for Python:

`pack`, `pack_splits` and `append` fill stores; `convert`, `merge` and `subset` make one of stores; `export` writes a
store's samples as files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawpack_packer.api import append, convert, export, merge, pack, pack_splits, subset

__all__ = ["append", "convert", "export", "merge", "pack", "pack_splits", "subset"]


if not TYPE_CHECKING:  # who checks types knows all names

    def __getattr__(name: str) -> Any:
        """A function, loaded when it is first asked for: it brings OpenCV, HDF5 and LMDB with it."""
        if name in __all__:
            from rawpack_packer import api

            return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
