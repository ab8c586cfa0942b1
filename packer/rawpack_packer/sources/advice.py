"""What to do with a file or folder that no kind of source reads: the page that packs it, or what to give instead."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from rawpack.errors import RawpackError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.folder import NoImageError
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.named_files import natural
from rawpack_packer.text import plain

_PAGE = "docs/how-to/what-is-not-read.md"
_INSTEAD = {
    "archives of this kind are not read: unpack it first, then give its folder; tar and zip are":
        (".7z", ".rar", ".cab", ".iso", ".cpio", ".lz", ".lzma"),
    "an .idx lists what another file contains: give the .rec or .tar next to it":
        (".idx",),
    "an index.json lists it: give the folder that has both":
        (".mds",),
    f"see {_PAGE}#arrays-in-files-of-their-own":
        (".npy", ".npz", ".h5", ".hdf5", ".dcm", ".nii", ".exr", ".bin"),
    f"a pickle can run code when it is read, so rawpack does not read it: see {_PAGE}#pickles":
        (".pkl", ".pickle", ".joblib", ".pt", ".pth"),
    f"it is MATLAB's: see {_PAGE}#matlab":
        (".mat",),
    f"it is FFCV's: see {_PAGE}#ffcv":
        (".beton",),
    "if it is a compressed tar archive, add {archive}; decompress it otherwise":
        (".gz", ".bz2", ".xz", ".zst"),
}  # fmt: skip
"""What to do with files that are not read -> their suffixes."""
_CIFAR = re.compile(r"cifar-(10|100)-(python|binary|batches-py|batches-bin)(\.tar\.gz)?")
_LOOKED_AT = 100


def refuse_file(file: Listing, kinds: Collection[str]) -> None:
    """Raise UsageError for a file of no known kind. kinds: those that can be named."""
    from rawpack_packer.sources.listing.lines import SUFFIXES

    where = plain(os.fspath(file))
    if instead := _instead(file.path.suffix.lower()):
        raise UsageError(f"{where}: {instead.format(archive=opt.kind('archive'))}")
    raise UsageError(
        f"cannot tell what kind of source {where} is. A source is a folder of images or videos; a video; a "
        f"listing ({', '.join(sorted(SUFFIXES))}); COCO's .json; Ultralytics' .yaml; arrays (.npy, .npz, IDX, .h5); an "
        "LMDB; an archive (.tar, .zip, .tar.gz, .tar.bz2); Parquet; a .rec; TFRecord; or a store. If it is one, name "
        f"its kind: {opt.kind('|'.join(kinds))}"
    )


def cifar_error(path: Path) -> UsageError | None:
    """The error for a folder or archive of CIFAR-10 or CIFAR-100, or a split in it; None for others."""
    for whole in (path, path.parent):
        if match := _CIFAR.fullmatch(whole.name):
            name, folder = f"CIFAR{match[1]}", plain(os.path.relpath(whole.parent))
            return UsageError(
                f"{plain(os.fspath(whole))} is read by torchvision and not by rawpack: in Python, "
                f"rawpack.pack(torchvision.datasets.{name}({folder!r}, download=True), 'store/') packs its training "
                "images, and with train=False its test images"
            )
    return None


def refuse_folder(folder: Listing, none: NoImageError) -> None:
    """Raise UsageError for a folder without images, if anything is known of what it contains."""
    from rawpack_packer.sources.array_files import ARRAYS, HDF5, files_in

    if error := cifar_error(folder.path):
        raise error
    where, folders = plain(os.fspath(folder)), [name for name, is_dir in folder.names.items() if is_dir]
    for inner in [folder / name for name in sorted(folders)[:_LOOKED_AT]]:
        if files_in(inner, ARRAYS) or files_in(inner, HDF5):
            shown = plain(str(inner.path))
            raise UsageError(f"no image in {where}: it contains a folder of arrays; give that: {shown}")
    for suffix in sorted(none.suffixes, key=none.suffixes.__getitem__, reverse=True):
        names = [name for name, is_dir in folder.names.items() if not is_dir and name.lower().endswith(suffix or "\0")]
        files = [os.path.join(os.fspath(folder), name) for name in sorted(names, key=natural)]  # noqa: PTH118
        if len(files) > 1 and (kind := _kind_of(files[0])):
            raise UsageError(f"no image in {where}: {none.what}, each of kind {kind}: {one_by_one(files)}")
        instead = _instead(suffix)
        if suffix == ".mds" and (index := folder / "index.json").is_file:
            instead = f"{plain(str(index.path))} is not MDS's, which has 'shards': copy that of these files"
        if instead and "{archive}" not in instead:
            raise UsageError(f"no image in {where}: {none.what}: {instead}")


def one_by_one(files: Sequence[str]) -> str:
    """The commands that pack several files of which each is a source."""
    first, second = (plain(shlex.quote(file)) for file in files[:2])
    others = f"`rawpack append {second} store/` adds {'each of the others' if len(files) > 2 else 'the other'}"
    return f"`rawpack pack {first} store/` packs the first, and {others}"


def _kind_of(file: str) -> str:
    """The kind of source that a file with several samples is; "" where it is none, or may be one image."""
    from rawpack_packer.sources.registry import open_source

    with suppress(RawpackError, OSError):
        source = open_source(file, divided=True)
        return source.info.kind if len(source) > 1 and (source.info.fields or not file.endswith(".npy")) else ""
    return ""


def _instead(suffix: str) -> str:
    return next((instead for instead, suffixes in _INSTEAD.items() if suffix in suffixes), "")
