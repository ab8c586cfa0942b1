"""What all targets share: their contract, their options, and how the images of a sample become files."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.disk.splits import is_split_name, read_splits
from rawpack.errors import DamagedStoreError, PackError, UsageError
from rawpack.pixels import png
from rawpack.system import machine
from rawpack_packer.destination import files
from rawpack_packer.destination.layout import WORK
from rawpack_packer.destination.rejects import Reject
from rawpack_packer.exporting.names import CLASSES
from rawpack_packer.job.options import RunOptions
from rawpack_packer.options.naming import opt
from rawpack_packer.options.values import parse_bytes
from rawpack_packer.sources import Item, StoreSource
from rawpack_packer.sources.compatible_stores import IMAGE
from rawpack_packer.sources.fields import Boxes

_SPLIT = "train"
_AHEAD = 4
"""Blocks per worker that are submitted at a time."""
Block = TypeVar("Block")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ExportOptions:
    """See `api.export`. The defaults apply to every target."""

    numbered: bool = False
    shard_size: int | str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if self.split is not None and not is_split_name(self.split):
            raise UsageError(f"{opt.split(repr(self.split))}: must be a name such as train or val")
        _ = self.shard_bytes

    @property
    def shard_bytes(self) -> int | None:
        return None if self.shard_size is None else parse_bytes(opt.shard_size, str(self.shard_size))

    @property
    def given(self) -> dict[str, bool]:
        """Option, as a user writes it -> whether it was given."""
        return {
            "numbered": self.numbered,
            "shard_size": self.shard_size is not None,
            "split": self.split is not None,
        }

    def split_of(self, store: Path) -> str:
        """The name of the split that a store is: as given, else that of its set, else train."""
        if self.split is not None:
            return self.split
        try:
            found = read_splits(store.parent)
        except DamagedStoreError:
            return _SPLIT
        return store.name if found is not None and store.name in found.splits else _SPLIT


@dataclass
class Written:
    """What a run wrote, and the samples that are damaged."""

    files: int = 0
    bytes: int = 0
    rejects: list[Reject] = field(default_factory=list)


class ExportTarget(Protocol):
    """How the samples of a store are written into a folder. One is made for each store and folder."""

    @property
    def about(self) -> Mapping[str, Any]:
        """What must be the same for a run to resume another; a part of `note`."""

    @property
    def suffixes(self) -> Mapping[str, str]:
        """Image and each mask -> extension of its files."""

    def check(self) -> None:
        """Raise UsageError where the store cannot be exported in this way."""

    def need_bytes(self, sizes: Sequence[int]) -> int:
        """About how many bytes a sample takes on the disk. sizes: of its files."""

    def write(self, how: RunOptions) -> Written:
        """Write all missing files; end early if more samples are damaged than `how` allows. The folder and its WORK
        exist, and WORK has no file named *.tmp."""

    def finish(self, rejects: Sequence[Reject]) -> None:
        """Write what describes all files; all of them are on the disk."""

    def files(self, samples: int) -> int:
        """The number of files of this many samples."""

    def note(self, rejects: Sequence[Reject]) -> Mapping[str, Any]:
        """The contents of `export.json`."""


def suffix_of(field: Field) -> str:
    """The extension of an image or mask field's files: ".jpg", ".png", or ".npy" for what PNG cannot hold."""
    return field.codec.suffix or (".png" if png.holds(field.shape, field.dtype) else ".npy")


def suffixes_of(fields: Mapping[str, Field]) -> dict[str, str]:
    """Image and each mask -> extension of its files."""
    return {name: suffix_of(field) for name, field in fields.items() if field.in_shards}


def contents(item: Item, suffixes: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Image and masks of a sample, by name, each as the bytes of a file with its suffix: JPEG files as they are stored,
    pixels as PNG, other arrays as .npy."""
    for name, suffix in suffixes.items():
        value = item.image if name == IMAGE else item.fields[name]
        yield name, value if isinstance(value, bytes) else _file(np.asarray(value), suffix)


def plain_value(value: Any) -> Any:
    """A field of a sample as JSON has it."""
    return value if isinstance(value, str) else np.asarray(value.rows if isinstance(value, Boxes) else value).tolist()


def write_classes(folder: Path, source: StoreSource) -> None:
    """Write `classes.txt` where there are classes."""
    if classes_file(source):
        text = "".join(f"{name}\n" for name in source.info.classes or ())
        files.write_whole(folder / CLASSES, text.encode(), folder / WORK / f"{CLASSES}.tmp")


def classes_file(source: StoreSource) -> bool:
    """Whether there are classes and their names can be lines of a file."""
    names = source.info.classes or ()
    return bool(names) and all(name and name == name.strip() and len(name.splitlines()) == 1 for name in names)


def _file(image: NDArray[np.generic], suffix: str) -> bytes:
    if suffix == ".png":
        return _png(image)
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(image), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _png(image: NDArray[np.generic]) -> bytes:
    """A PNG file of an image (H, W, 1 or 3), uint8 or uint16."""
    bgr = image[..., ::-1] if image.shape[2] == 3 else image
    done, file = cv2.imencode(".png", np.ascontiguousarray(bgr))  # type: ignore[arg-type, unused-ignore]
    if not done:
        raise PackError(f"OpenCV could not write a PNG of {image.shape[1]}x{image.shape[0]} pixels")
    return file.tobytes()


def in_order(
    work: Callable[[Block], Result], blocks: Iterable[Block], how: RunOptions
) -> Generator[Result, None, None]:
    """The result of each block, in their order; threads work ahead. No further block begins once it is closed."""
    workers = max(1, machine.cpus() if how.workers is None else how.workers)
    waiting, left = deque[Future[Result]](), iter(blocks)
    with _pool(workers) as pool:
        while True:
            while len(waiting) < workers * _AHEAD and (block := next(left, None)) is not None:
                waiting.append(pool.submit(work, block))
            if not waiting:
                return
            yield waiting.popleft().result()


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that begin no further block once the `with` block has ended."""
    pool = ThreadPoolExecutor(workers, "export")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
