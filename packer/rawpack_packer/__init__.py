"""The `rawpack` command packs stores, inspects and checks them, and makes new stores from them. The same in Python:

`pack`, `pack_splits` and `append` fill stores; `convert`, `merge` and `subset` make a store from stores; `export`
writes samples as files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawpack_packer.api import append, convert, export, merge, pack, pack_splits, relabel, subset

__all__ = ["append", "convert", "export", "merge", "pack", "pack_splits", "relabel", "subset"]


if not TYPE_CHECKING:  # type checkers know all names

    def __getattr__(name: str) -> Any:
        """A function, loaded when it is first asked for: it brings OpenCV, HDF5 and LMDB with it."""
        if name in __all__:
            from rawpack_packer import api

            return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
