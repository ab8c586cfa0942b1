"""The `rawpack` command packs stores, inspects and checks them, and makes new stores from them. The same in Python:

`pack`, `pack_splits` and `append` fill stores; `convert`, `merge` and `subset` make a store from stores; `export`
writes samples as files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack_packer.lazy import on_first_use

if TYPE_CHECKING:
    from rawpack_packer.api import append, convert, export, merge, pack, pack_splits, relabel, subset

__all__ = ["append", "convert", "export", "merge", "pack", "pack_splits", "relabel", "subset"]

if not TYPE_CHECKING:  # type checkers see the imports above
    # `api` brings OpenCV, HDF5 and LMDB with it.
    __getattr__, __dir__ = on_first_use(__name__, dict.fromkeys(__all__, "api"))
