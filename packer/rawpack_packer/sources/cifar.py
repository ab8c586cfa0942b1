"""CIFAR-10 and CIFAR-100 as a source: the folders and archives of their authors, in the Python or binary version."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import reading
from rawpack_packer.sources.archives.tar import BadArchiveError, tar_members
from rawpack_packer.sources.base import Rows, Scanning, SourceInfo, unseen
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import read_file
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.pickles import BadPickleError, read_pickle
from rawpack_packer.sources.table.choose import number_labels
from rawpack_packer.sources.table.columns import Numbers, RowNumbers
from rawpack_packer.sources.table.source import TableSource
from rawpack_packer.text import listed, plain

TRAIN, TEST = "train", "test"
_CHANNELS, _SIDE = 3, 32
_PIXELS = _CHANNELS * _SIDE * _SIDE
_MOST_BYTES = 1 << 29
"""Of one file. The largest of the originals has 155 MB."""
_ARCHIVE = re.compile(r"cifar-(100|10)-(python|binary)\.tar\.gz")
State = tuple[int, int]


@dataclass(frozen=True)
class _CifarFiles:
    """The files of one version."""

    names: tuple[str, ...]
    """Files with the names of classes: those of the labels first."""
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: tuple[str, ...]
    """Fields, in the order of the bytes in a binary file."""
    binary: bool

    def files(self, split: str | None) -> tuple[str, ...]:
        """The files with images of a split, or of both."""
        return {TRAIN: self.train, TEST: self.test}.get(split or "", self.train + self.test)


_LAYOUTS = {
    ("10", "python"): _CifarFiles(
        ("batches.meta",), tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",), ("label",), False
    ),
    ("10", "binary"): _CifarFiles(
        ("batches.meta.txt",), tuple(f"data_batch_{i}.bin" for i in range(1, 6)), ("test_batch.bin",), ("label",), True
    ),
    ("100", "python"): _CifarFiles(("meta",), ("train",), ("test",), ("coarse_label", "label"), False),
    ("100", "binary"): _CifarFiles(
        ("fine_label_names.txt", "coarse_label_names.txt"),
        ("train.bin",),
        ("test.bin",),
        ("coarse_label", "label"),
        True,
    ),
}
_LABELS = {"label": (b"labels", b"fine_labels"), "coarse_label": (b"coarse_labels",)}
"""Field -> its names in pickles."""
_CLASSES = (b"label_names", b"fine_label_names")


class CifarSource(TableSource):
    """CIFAR-10 or CIFAR-100 as a `Source`. Everything is read into memory, 3 kB an image.

    `label` is the class; in CIFAR-100 the fine one, and `coarse_label` the coarse one. Pickles are read without running
    them, see `pickles.py`.
    """

    def __init__(self, path: str | os.PathLike[str], /, *, progress: Scanning = unseen) -> None:
        """path: the folder `cifar-10-batches-py`, `cifar-10-batches-bin`, `cifar-100-python` or `cifar-100-binary`; the
        `.tar.gz` of one; or either with `/train` or `/test`. progress: called with the number of images so far.

        Raises UsageError where it is none of them, or a file is missing or damaged.
        """
        where = Path(path).absolute()
        root = plain(os.fsencode(where))
        found = _find(where)
        if found is None:
            raise UsageError(
                f"{root} is not CIFAR: give the folder cifar-10-batches-py, cifar-10-batches-bin, "
                "cifar-100-python or cifar-100-binary, or its .tar.gz"
            )
        base, layout, split = found
        files = _read_files(base, [*layout.names, *layout.files(split)])
        states = [state for _, state in files.values()]
        images, columns = list[NDArray[np.uint8]](), {name: list[Rows]() for name in sorted(layout.labels)[::-1]}
        count = 0
        for name in layout.files(split):
            data = files.pop(name)[0]
            pixels, labels = (_binary if layout.binary else _pickled)(data, layout, f"{root}: {name}")
            images.append(pixels)
            for field, values in labels.items():
                columns[field].append(values)
            count += len(pixels)
            progress(count)
        fields = {name: np.concatenate(values) for name, values in columns.items()}
        classes = _class_names(files[layout.names[0]][0], layout, f"{root}: {layout.names[0]}")
        named = number_labels(fields["label"], where=root, known=classes)
        info = SourceInfo(
            kind="cifar",
            root=root,
            paths=(str(base),),
            fields={name: FieldKind("int64") for name in fields},
            image=ImageKind("uint8", (_SIDE, _SIDE, _CHANNELS)),
            numbered=True,
        )
        super().__init__(
            info,
            RowNumbers(range(count)),
            Numbers(np.concatenate(images)),
            {name: Numbers(values) for name, values in fields.items()},
            np.array(states, np.int64),
            labels=named,
        )


def is_cifar(listing: Listing) -> bool:
    """Whether a path is one of CIFAR's folders or archives, or a split of one."""
    return _find(listing.path) is not None


def splits_of(listing: Listing) -> list[str]:
    """Both splits, where a path holds them and does not name one."""
    found = _find(listing.path)
    return [TRAIN, TEST] if found is not None and found[2] is None else []


def _find(path: Path) -> tuple[Path, _CifarFiles, str | None] | None:
    """The folder or archive, its files, and the split that a path names; None for the path of anything else."""
    for base, split in ((path, None), (path.parent, path.name)):
        if split not in (None, TRAIN, TEST):
            continue
        match = _ARCHIVE.fullmatch(base.name)
        if match and os.path.isfile(base):  # noqa: PTH113 - False where nothing can be looked into
            return base, _LAYOUTS[match[1], match[2]], split
        for layout in _LAYOUTS.values():
            known = (*layout.names, layout.train[0])
            if all(os.path.isfile(base / name) for name in known):  # noqa: PTH113
                return base, layout, split
    return None


def _read_files(base: Path, names: Sequence[str]) -> dict[str, tuple[bytes, State]]:
    """Name -> contents and state of these files of a folder or an archive. Raises UsageError."""
    where = plain(os.fsencode(base))
    try:
        with reading(where):
            if base.is_dir():
                found = {name: _of_folder(base / name) for name in names if (base / name).is_file()}
            else:
                stat = base.stat()
                state = stat.st_size, stat.st_mtime_ns
                found = {name: (data, state) for name, data in _of_archive(base, names).items()}
    except (BadArchiveError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"{where} is not an intact .tar.gz: {error}; download it again") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise UsageError(f"{where} has no {listed(missing, 5)}: download it again")
    return found


def _of_folder(file: Path) -> tuple[bytes, State]:
    stat = file.stat()
    state = stat.st_size, stat.st_mtime_ns
    _check_size(file.name, stat.st_size)
    return read_file(str(file), file.name, state), state


def _of_archive(file: Path, names: Sequence[str]) -> dict[str, bytes]:
    found = {}
    with gzip.open(file) as archive:

        def read(offset: int, size: int) -> bytes:
            archive.seek(offset)  # onwards, as the members are
            return archive.read(size)

        # To the end, where gzip has its checksum.
        for member in tar_members(read):
            name = PurePosixPath(os.fsdecode(member.name)).name
            if member.kind == "file" and name in names and name not in found:
                _check_size(name, member.size)
                found[name] = read(member.offset, member.size)
    return found


def _check_size(name: str, size: int) -> None:
    if size > _MOST_BYTES:
        raise DecodeError("too_large", f"{name} has {size:,} bytes, which no file of CIFAR has")


def _binary(data: bytes, layout: _CifarFiles, where: str) -> tuple[NDArray[np.uint8], dict[str, Rows]]:
    """Images (n, 32, 32, 3) and labels: each image comes after one byte for each of its labels."""
    row = len(layout.labels) + _PIXELS
    if not data or len(data) % row:
        raise UsageError(f"{where} has {len(data):,} bytes, which is no multiple of {row:,}: download it again")
    rows = np.frombuffer(data, np.uint8).reshape(-1, row)
    labels = {name: rows[:, i].astype(np.int64) for i, name in enumerate(layout.labels)}
    return _pixels(rows[:, len(layout.labels) :]), labels


def _pickled(data: bytes, layout: _CifarFiles, where: str) -> tuple[NDArray[np.uint8], dict[str, Rows]]:
    batch = _dict_of(data, where)
    pixels = batch.get(b"data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise UsageError(f"{where} has no images as `data`, uint8 (n, {_PIXELS}): download it again")
    labels = {}
    for field in layout.labels:
        values = next((batch[name] for name in _LABELS[field] if name in batch), None)
        if not isinstance(values, list) or len(values) != len(pixels) or any(type(one) is not int for one in values):
            raise UsageError(f"{where} does not have a {field} for each of its {len(pixels):,} images")
        if any(not 0 <= one < 1 << 31 for one in values):
            raise UsageError(f"{where} has labels that number no class")
        labels[field] = np.array(values, np.int64)
    return _pixels(pixels), labels


def _pixels(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of red, green and blue planes as images (n, 32, 32, 3)."""
    images = planes.reshape(-1, _CHANNELS, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)


def _class_names(data: bytes, layout: _CifarFiles, where: str) -> tuple[str, ...]:
    if layout.binary:
        names: Any = data.split()
    else:
        about = _dict_of(data, where)
        names = next((about[name] for name in _CLASSES if name in about), None)
    if not isinstance(names, list) or not names or not all(isinstance(name, str | bytes) for name in names):
        raise UsageError(f"{where} has no names of classes: download it again")
    texts = tuple(plain(name) for name in names)
    if len(set(texts)) < len(texts):
        raise UsageError(f"{where} has two classes of the same name: download it again")
    return texts


def _dict_of(data: bytes, where: str) -> dict[bytes, Any]:
    """The dict that a pickle holds, with names as bytes, whichever Python wrote it."""
    try:
        value = read_pickle(data)
    except BadPickleError as error:
        raise UsageError(f"{where} is not read as a pickle: {error}; download it again") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where} is a pickle without a dict: download it again")
    return {name.encode() if isinstance(name, str) else name: one for name, one in value.items()}
