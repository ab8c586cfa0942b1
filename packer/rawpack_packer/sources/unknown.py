"""What to do with a path that is no source by its name or its contents."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.arrays import is_arrays
from rawpack_packer.sources.folder import INSTEAD
from rawpack_packer.sources.listing.lines import SUFFIXES
from rawpack_packer.text import plain

_INSTEAD: dict[str, Collection[str]] = {
    "archives of this kind are not read: unpack it first, then give its folder; tar and zip are":
        (".7z", ".rar", ".cab", ".iso", ".cpio", ".lz", ".lzma"),
    **INSTEAD,
    "an .idx lists what another file holds: give the .rec or .tar next to it":
        (".idx",),
}  # fmt: skip
"""What to do instead of giving a file that is not read -> endings of such files."""
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_LOOKED_AT = 100
"""Files of a folder without images that show what is in it."""


def unknown(shown: str, suffix: str, kinds: Collection[str]) -> str:
    """The error for a file of no known kind. kinds: those that can be named."""
    if suffix in _COMPRESSED:
        return f"{shown}: if it is a compressed tar archive, add {opt.kind('archive')}; decompress it otherwise"
    for instead, suffixes in _INSTEAD.items():
        if suffix in suffixes:
            return f"{shown}: {instead}"
    return (
        f"{shown} is no source by its name or its contents. A source is a folder of images or videos; a video; a "
        f"listing ({', '.join(sorted(SUFFIXES))}); COCO's .json; Ultralytics' .yaml; arrays (.npy, .npz, IDX, .h5); an "
        "LMDB; an archive (.tar, .zip, .tar.gz, .tar.bz2); Parquet; a .rec; or a store. If it is one, name its kind: "
        f"{opt.kind('|'.join(kinds))}"
    )


def refuse_arrays(folder: Path) -> None:
    """Raise UsageError where a folder without images holds arrays, which are packed by naming a file."""
    try:
        files = [file for file in sorted(folder.iterdir())[:_LOOKED_AT] if file.is_file() and is_arrays(file)]
    except OSError:
        return
    # Of images rather than of labels, by their names.
    first = next((file for file in files if "image" in file.name or "idx3" in file.name), next(iter(files), None))
    if first is not None:
        where = plain(os.fspath(folder))
        raise UsageError(
            f"no image in {where}: it holds arrays; give one of its files, such as {plain(os.fspath(first))}"
        )
