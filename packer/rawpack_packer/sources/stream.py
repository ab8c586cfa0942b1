"""Streams, which can only be read from their beginning and may have no length: taken in one pass into files, of which a
`Spooled` is the dataset.

    FOLDER/samples      one sample after another, in msgpack: `_encoded`
    FOLDER/index        of each, where it ends in `samples`, and its checksum
    FOLDER/whole        once all samples are there: how they were taken

Samples are on the disk before the index has them, so whatever the index has after a kill is right. A run that goes on
reads the stream from its beginning again, and compares checksums with those in the index.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from msgspec.msgpack import Ext
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError, RawpackError, UsageError
from rawpack.system import writing
from rawpack_packer.images.npy import array_of
from rawpack_packer.images.with_pillow import is_pillow
from rawpack_packer.options import opt
from rawpack_packer.sources.dataset_forms import Names, as_dict, as_image
from rawpack_packer.sources.fields import Boxes, as_array
from rawpack_packer.sources.table.choose import LABEL, number_labels
from rawpack_packer.text import again, count, plain, storable

_SAMPLES, _INDEX, _WHOLE = "samples", "index", "whole"
_ENTRY = np.dtype([("end", "<i8"), ("sum", "<i8")])
_SYNC_BYTES, _SYNC_S = 1 << 26, 1.0
"""Samples are synced after so many bytes, or so long: a kill loses no more."""
_COMPARED = 16
"""Samples of a stream that are compared with those that were taken before, where these are all."""
_MOST_NOTE = 1 << 26
_MOST_CLASSES = 100_000
_ARRAY, _PICTURE, _PATH, _BOXES, _NONE = 1, 2, 3, 4, 5
"""What msgpack does not have: arrays, PIL images, paths, boxes, and samples that could not be taken."""


class Taken(msgspec.Struct, frozen=True):
    """How the samples of a stream were taken, and what was found."""

    how: str
    samples: int
    classes: list[str] | None
    """The labels that are texts, sorted."""


@dataclass(frozen=True)
class Spooled:
    """The samples of a stream as a dataset, which reads them from the files that they were taken into."""

    folder: Path
    count: int
    classes: Sequence[str] | None = None
    """The names of classes: see `Dataset`."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> dict[str, Any]:
        """Raises DecodeError for what could not be taken, PackError where the files are not as they were written."""
        try:
            with (self.folder / _INDEX).open("rb") as index, (self.folder / _SAMPLES).open("rb") as samples:
                index.seek(max(i - 1, 0) * _ENTRY.itemsize)
                (start, _), (end, sum) = ((0, 0), *np.fromfile(index, _ENTRY, 2 if i else 1).tolist())[-2:]
                samples.seek(start)
                data = samples.read(end - start)
        except (OSError, ValueError) as error:
            raise PackError(f"sample {i:,} of the stream, kept in {self.folder}, cannot be read: {error}") from error
        if _sum(data) != sum:
            raise PackError(f"{self.folder / _SAMPLES} was changed: {opt.restart} reads the stream again")
        sample: dict[str, Any] = msgspec.msgpack.decode(data, ext_hook=_value)
        return sample

    def states(self) -> NDArray[np.int64]:
        """(n, 2): the bytes that each sample takes, and their checksum."""
        entries = _entries(self.folder)
        return np.stack([np.diff(entries["end"], prepend=0), entries["sum"]], axis=1)


@dataclass(frozen=True)
class StreamOptions:
    """How a stream is taken."""

    called: str
    """What messages call it."""
    names: Names | None
    """See `as_dict`."""
    limit: int | None
    """How many samples are taken at most."""
    packed: NDArray[np.int64] | None
    """The states of samples that a finished store was packed from, which these must be."""
    restart: bool
    """Whether what was taken before goes."""
    classes: Sequence[str] | None
    """The names of classes that the stream itself has."""

    def differs(self, what: str) -> UsageError:
        """The error for a stream that is not the one that was begun."""
        before = "that a finished store was packed from" if self.packed is not None else "that an earlier run began"
        return UsageError(
            f"the {self.called} is not the one {before}: {what}. Pass the same from its beginning, in the same order: "
            "what is shuffled or augmented needs a fixed seed; or name another destination. "
            f"{opt.restart} deletes what is there and begins again"
        )


def is_stream(source: Any, *, here: bool) -> bool:
    """Whether samples of a source must be taken before they are packed, since it can only be iterated. here: whether
    this process alone packs, which can iterate over what has a length again and again."""
    if isinstance(source, str | bytes | bytearray | Mapping | io.IOBase | type) or not hasattr(source, "__iter__"):
        return False
    torch_data = sys.modules.get("torch.utils.data")  # its IterableDataset inherits a __getitem__ that only raises
    if hasattr(source, "__next__") or (torch_data is not None and isinstance(source, torch_data.IterableDataset)):
        return True
    try:
        len(source)
    except TypeError:  # also of a tf.data.Dataset that does not know its own
        return True
    except Exception:  # whoever opens it says why
        return False
    return not here and not hasattr(source, "__getitem__")


def begin(stream: Iterable[Any], how: StreamOptions, check: Callable[[Any], object]) -> Iterator[Any]:
    """The samples of a stream. check: raises UsageError where the first one cannot be packed. Raises UsageError too
    where there is none."""
    if inspect.isgenerator(stream) and inspect.getgeneratorstate(stream) == inspect.GEN_CLOSED:
        raise UsageError(f"the {how.called} was read to its end before: pass one that begins anew")
    samples = _named(stream, how)
    first = list(islice(samples, 1))
    if not first:
        raise UsageError(f"the {how.called} gives no samples: if it was read before, pass one that begins anew")
    check(first[0])
    return chain(first, samples)


def _named(stream: Iterable[Any], how: StreamOptions) -> Iterator[Any]:
    """The samples, with an error that says which of them the stream could not give."""
    given = 0
    try:
        for sample in islice(stream, how.limit):
            yield sample
            given += 1
    except (RawpackError, MemoryError):
        raise
    except Exception as error:
        raise PackError(
            f"the {how.called} stopped at sample {given:,}: {plain(f'{type(error).__name__}: {error}')}; once that is "
            f"fixed, {again()} with a new one continues"
        ) from error


def take(samples: Iterator[Any], folder: Path, how: StreamOptions, seen: Callable[[int], object]) -> Spooled:
    """All samples of a stream in a folder, which this process has alone; if an earlier run began that, the rest; if it
    ended that, the first ones are compared.

    seen: called with how many were read so far. Raises UsageError where the stream is not the one that was begun,
    PackError where it raises, OSError where the disk is full.
    """
    if how.restart:
        for name in (_WHOLE, _INDEX, _SAMPLES):
            (folder / name).unlink(missing_ok=True)
    try:
        whole = msgspec.msgpack.decode(writing.read(folder / _WHOLE, _MOST_NOTE), type=Taken)
    except (OSError, RawpackError, msgspec.DecodeError):
        whole = None
    if whole is None or len(_entries(folder)) != whole.samples:
        labels = set[str]()
        with _Adding(folder) as spool:  # what an earlier run has not; the rest is compared
            known = _entries(folder)["sum"] if how.packed is None else how.packed[:, 1]
            for i, data, label in _compared(samples, known, how):
                if i >= spool.count:
                    spool.add(data)
                if isinstance(label, str) and label and len(labels) <= _MOST_CLASSES:
                    labels.add(label)
                seen(i + 1)
        few = 0 < len(labels) <= _MOST_CLASSES
        classes = [*(number_labels([*labels], where=how.called).names or ())] if few else None
        whole, temporary = Taken(repr((how.names, how.limit)), spool.count, classes), folder / f"{_WHOLE}.tmp"
        with writing.create(temporary) as file:
            file.write(msgspec.msgpack.encode(whole))
            file.flush()
            os.fsync(file.fileno())
        writing.replace(temporary, folder / _WHOLE)
    elif whole.how != repr((how.names, how.limit)):
        raise how.differs("names= or limit= are others")
    else:
        first = _entries(folder)["sum"][:_COMPARED]
        for _ in _compared(islice(samples, len(first)), first, how):
            pass
    return Spooled(folder, whole.samples, how.classes or whole.classes)


def _compared(samples: Iterator[Any], known: NDArray[np.int64], how: StreamOptions) -> Iterator[tuple[int, bytes, Any]]:
    """Number, bytes and label of each sample. known: the checksums of the first ones, or of those of a finished store.
    Raises UsageError where they differ."""
    i = -1
    for i, sample in enumerate(samples):
        data, label = _encoded(sample, how.names)
        if i < len(known) and known[i] != _sum(data):
            raise how.differs(f"sample {i:,}, counted from 0, is another one")
        if i == len(known) and how.packed is not None:
            raise how.differs(f"that ended after {count(i, 'sample')}")
        yield i, data, label
    if i + 1 < len(known):
        raise how.differs(f"it ended after {count(i + 1, 'sample')}, and that had {len(known):,} or more")


class _Adding:
    """The files, while samples are added."""

    def __init__(self, folder: Path) -> None:
        entries = _entries(folder)
        self.count = len(entries)
        self._end = int(entries["end"][-1]) if self.count else 0
        self._new, self._unsynced, self._synced = list[tuple[int, int]](), 0, time.monotonic()
        # What the last run had not synced goes.
        self._samples, self._index = (writing.reopen(folder / name, "ab") for name in (_SAMPLES, _INDEX))
        self._samples.truncate(self._end)
        self._index.truncate(entries.nbytes)

    def __enter__(self) -> _Adding:
        return self

    def __exit__(self, *_: object) -> None:
        with self._samples, self._index:
            self._sync()

    def add(self, data: bytes) -> None:
        self._samples.write(data)
        self._end += len(data)
        self.count += 1
        self._new.append((self._end, _sum(data)))
        self._unsynced += len(data)
        if self._unsynced >= _SYNC_BYTES or time.monotonic() - self._synced >= _SYNC_S:
            self._sync()

    def _sync(self) -> None:
        """Have the index name all samples."""
        if self._new:
            self._samples.flush()
            os.fsync(self._samples.fileno())
            self._index.write(np.array(self._new, _ENTRY).tobytes())
            self._index.flush()
            os.fsync(self._index.fileno())
        self._new, self._unsynced, self._synced = [], 0, time.monotonic()


def _entries(folder: Path) -> NDArray[Any]:
    """What the index has of samples that are there."""
    try:
        with writing.reopen(folder / _INDEX) as index, writing.reopen(folder / _SAMPLES) as samples:
            entries, size = np.fromfile(index, _ENTRY), os.fstat(samples.fileno()).st_size
    except FileNotFoundError:
        return np.empty(0, _ENTRY)
    return entries[: int(np.searchsorted(entries["end"], size, "right"))]


def _sum(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data) - (1 << 63)


# ---------------------------------------------------------------------------------------------- one sample


def _encoded(sample: Any, names: Names | None) -> tuple[bytes, Any]:
    """A sample in msgpack, with a file in place of its path, which may be gone soon; and its label. In place of one
    that cannot be packed, the reason."""
    try:
        fields = as_dict(sample, names)
        if isinstance(image := fields.get("image"), str | os.PathLike):
            with suppress(DecodeError):  # it is rejected when it is packed
                fields["image"] = as_image(image)
        values = {name: _beside(value) for name, value in fields.items()}
        return msgspec.msgpack.encode(values, enc_hook=_beside), fields.get(LABEL)
    except DecodeError as error:
        why = error.reason, error.detail
    except MemoryError:
        raise
    except Exception as error:  # such as of a PIL image whose file is cut short
        why = "source_error", f"{type(error).__name__}: {error}"
    said = msgspec.msgpack.encode((why[0], storable(why[1])))
    return msgspec.msgpack.encode({"": Ext(_NONE, said)}), None


def _beside(value: Any) -> Any:
    """A value as msgpack takes it."""
    if value is None or type(value) in (str, bytes, bool, int, float, list, tuple, dict, Ext):
        return value
    if isinstance(value, str | bytes | bytearray):
        return str(value) if isinstance(value, str) else bytes(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, os.PathLike):
        return Ext(_PATH, os.fsencode(value))
    if is_pillow(value):
        value.load()
        palette, info, opened = value.palette, value.info, value.format is not None
        colors = None if palette is None else (palette.mode, bytes(value.im.getpalette(palette.mode, palette.mode)))
        clear, exif = info.get("transparency"), info.get("exif")
        exif = exif if isinstance(exif, bytes) else None  # all that its pixels depend on: see `pixels_of`
        parts = value.mode, value.size, value.tobytes(), colors, clear, exif, opened
        return Ext(_PICTURE, msgspec.msgpack.encode(parts))
    if isinstance(value, Boxes):
        return Ext(_BOXES, msgspec.msgpack.encode((value.form, value.rows, value.size), enc_hook=_beside))
    array = as_array(value)
    if array is None:
        raise DecodeError("bad_field", f"a value is {plain(type(value).__name__)}, no number, text or array")
    file = io.BytesIO()
    np.lib.format.write_array(file, array, (1, 0), allow_pickle=False)
    return Ext(_ARRAY, file.getvalue())


def _value(code: int, data: memoryview) -> Any:
    if code == _ARRAY:
        array = array_of(bytes(data))
        return array if array.ndim else array[()]  # a number, also in a list of others
    if code == _PICTURE:
        from PIL import Image

        mode, length, pixels, colors, clear, exif, opened = msgspec.msgpack.decode(data)
        image = Image.frombytes(mode, tuple(length), pixels)
        if colors is not None:
            image.putpalette(colors[1], colors[0])
        info = {"transparency": tuple(clear) if isinstance(clear, list) else clear, "exif": exif}
        image.info = {name: value for name, value in info.items() if value is not None}
        image.format = "PNG" if opened else None  # whether it is turned by its EXIF
        return image
    if code == _BOXES:
        form, rows, size = msgspec.msgpack.decode(data, ext_hook=_value)
        return Boxes(rows, form, None if size is None else tuple(size))
    if code == _PATH:
        return Path(os.fsdecode(bytes(data)))
    raise DecodeError(*msgspec.msgpack.decode(data, type=tuple[str, str]))
