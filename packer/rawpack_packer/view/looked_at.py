"""One store, or one split of several, as the page shows it. All of it comes from its `Reader`."""

from __future__ import annotations

import math
import os
import re
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack import Reader, look
from rawpack.disk.manifest import NAME as MANIFEST
from rawpack.errors import UsageError
from rawpack.remote.url import is_url, shown
from rawpack.samples.looking import StoreInfo
from rawpack_packer.inspect.contact_sheet import class_name
from rawpack_packer.inspect.curation import Curation, curation_of
from rawpack_packer.text import plain

Rows = NDArray[np.int64]
_KEPT = 8
"""Orders of rows that are kept: those of the last questions."""
_MOST_VALUES, _MOST_LETTERS = 64, 100_000
"""How many values of an array, and letters of a text, are written out."""
_MOST_PIXELS = 1 << 27
"""Pixels of an image that is shown: 128 million."""
_MOST_BYTES = 1 << 30
"""Bytes of all images and masks of a sample, which are read together."""
_MOST_REJECTS, _MOST_LEAKS = 2000, 100
_NOT_SORTED = {"phash", "one_color"}
"""Numbers whose order shows nothing: near hashes differ in any bit, and most images have the same area of one color."""
_FRAME_KEY = re.compile(r"(.+)#\d+")
_quiet = Lock()
"""`catch_warnings` is for one thread at a time."""
_MOST_DRAWN, _MOST_OF_TILE = 20_000, 200
"""Boxes, points of polygons, and sets of keypoints that are drawn."""


@dataclass(frozen=True)
class Question:
    """Which samples to show, and in what order."""

    where: str = ""
    key: str = ""
    sort: str = ""
    """A number field; "random"; or "" for the order of the store."""
    descending: bool = False
    seed: int = 0


@dataclass
class LookedAt:
    """A store, or a split."""

    name: str
    """Of the split; of a store, that of its folder."""
    path: str
    reader: Reader
    said: str
    """The reader in Python."""
    stored: Rows | None = None
    """The rows in the store of these samples; None for all of them in its order."""
    _opened: tuple[int, ...] | None = None
    """What its manifest was, see `_written`."""

    @classmethod
    def open(cls, name: str, path: str | os.PathLike[str], **options: Any) -> LookedAt:
        """The store in a folder or behind a URL. options: of `Reader`."""
        where = shown(str(path)) if is_url(path) else os.fspath(path)
        opened = _written(where)
        said = where if is_url(path) else str(Path(where).absolute())
        return cls(name, where, Reader(path, **options), f"rawpack.Reader({said!r})", _opened=opened)

    @classmethod
    def of(cls, reader: Reader) -> LookedAt:
        """The samples of a reader of one store, all or some of them. Raises UsageError for other readers."""
        stores = reader.stores if isinstance(reader, Reader) else ()
        if len(stores) != 1 or stores[0].fields != reader.fields:  # clips have others
            raise UsageError(f"view() shows a store, or a reader of one store's samples, not {reader!r:.200}")
        path, rows = stores[0].path, reader.column("store_row")
        is_whole = len(rows) == stores[0].samples and bool((rows[:-1] < rows[1:]).all())
        name = path.rstrip("/").rpartition("/")[2] or path
        return cls(name, path, reader, "reader", None if is_whole else rows, _written(path))

    @cached_property
    def version(self) -> str:
        """What is shown of these samples may be kept for ever under an address that has this."""
        return self.store.digest if self.stored is None else f"{self.store.digest}-{secrets.token_hex(4)}"

    @cached_property
    def store(self) -> StoreInfo:
        """What is known of the store, which has these samples and perhaps others."""
        return self.reader.stores[0]

    @cached_property
    def curation(self) -> Curation | None:
        """Duplicates and extremes; None where the store was packed without measures."""
        return curation_of(self.reader)

    def changed(self) -> str:
        """What has become of the store's folder since it was opened, in words; "" where it is as it was."""
        if is_url(self.path) or (now := _written(self.path)) == self._opened:
            return ""
        path = plain(self.path)
        if now is None:
            return f"{path} was removed, or is out of reach: what is not in memory cannot be shown."
        return f"{path} has changed since it was opened. This page shows it as it was: start rawpack view again."

    def numbers_of(self, rows: NDArray[np.int64]) -> Rows:
        """The numbers here of samples by their rows in the store; any shape."""
        if self.stored is None:
            return rows
        order = np.argsort(self.stored, kind="stable")
        return order[np.searchsorted(self.stored, rows, sorter=order)]

    @property
    def images(self) -> list[str]:
        """The image fields, the first one first."""
        return self._of_kind("image")

    @property
    def numbers(self) -> list[str]:
        """The fields that samples can be sorted by."""
        numbers = (name for name in self._of_kind("number") if self.reader.fields[name].shape == ())
        return [name for name in numbers if name not in _NOT_SORTED]

    def _of_kind(self, kind: str) -> list[str]:
        return [name for name, one in self.reader.fields.items() if one.kind == kind]

    def about(self) -> dict[str, Any]:
        """What the page shows around the samples."""
        fields, reader = self.reader.fields, self.reader
        return {
            "name": plain(self.name),
            "path": plain(self.path),
            "samples": len(reader),
            "format": self.store.format,
            "bytes": self.store.bytes,
            "digest": self.store.digest,
            "version": self.version,
            "images": self.images,
            "boxes": [name for name, one in fields.items() if one.is_boxes],
            "numbers": self.numbers,
            "classes": self._classes(),
            "keys": "key" in fields,
            "video": "video" in fields,
            "remote": is_url(self.path),
            "measured": self.stored is None and {"phash", "sharpness"} <= {*fields},
            "rejects": self.store.rejects,
        }

    def _classes(self) -> list[tuple[str, int | None]]:
        """Names of classes, with how many samples each has, where samples have a label; those without one last."""
        names = [plain(name) for name in self.reader.classes or ()]
        if not names or "label" not in self.reader.fields:
            return [(name, None) for name in names]
        labels = self.reader.column("label")
        known = labels[(labels >= 0) & (labels < len(names))]
        counts = np.bincount(known, minlength=len(names)).tolist()
        without = len(labels) - len(known)
        return [*zip(names, counts, strict=False), *([("", without)] if without else [])]

    @cached_property
    def rows(self) -> Callable[[Question], Rows]:
        """The numbers of the samples that a question means, in its order; the last answers are kept. Raises UsageError
        for a condition that does not fit the store."""
        return lru_cache(_KEPT)(self._found)

    def _found(self, asked: Question) -> Rows:
        rows = look(self.reader).find(asked.where.strip() or None, key=asked.key or None)
        if asked.sort == "random":
            rows = rows[np.random.default_rng(asked.seed).permutation(len(rows))]
        elif asked.sort:
            if asked.sort not in self.numbers:
                raise UsageError(f"samples cannot be sorted by {asked.sort!r}: it is no number field")
            values = self.reader.column(asked.sort)[rows]
            without = values != values  # NaN, which has no place in an order: last, whatever the order is
            order = np.argsort(values, kind="stable")
            order = order[::-1] if asked.descending else order
            order = np.concatenate([order[~without[order]], order[without[order]]])
            sorted_rows: Rows = rows[order]
            return sorted_rows
        return rows[::-1] if asked.descending else rows

    def tiles(self, rows: Rows, value: str = "") -> list[dict[str, Any]]:
        """What the grid shows of these samples, besides their pictures. value: the number field that it shows, too."""
        some, fields = self.reader.select(rows), self.reader.fields
        keys = some.column("key") if "key" in fields else [""] * len(rows)
        labels = some.column("label") if "label" in fields else [None] * len(rows)
        boxes = {name: some.column(name) for name, one in fields.items() if one.is_boxes}
        values = some.column(value) if value else [None] * len(rows)
        sizes = look(some).shapes(self.images[0])[:, :2].tolist() if boxes and self.images else [[]] * len(rows)
        return [
            {
                "row": row,
                "key": key,
                "label": self._class(label),
                "layers": list(self.layers({name: found[k] for name, found in boxes.items()}, _MOST_OF_TILE)),
                "shape": sizes[k],
                "value": "" if not value else f"{value} {values[k]!s}",
            }
            for k, (row, key, label) in enumerate(zip(rows.tolist(), keys, labels, strict=True))
        ]

    def check_size(self, row: int) -> None:
        """Raise UsageError where the images and masks of a sample are too large for a page, before they are read."""
        some, size = self.reader.select([row]), 0
        for name, one in self.reader.fields.items():
            if one.kind in ("image", "mask"):
                shape = look(some).shapes(name)[0].tolist()
                size += math.prod(shape) * np.dtype(one.dtype).itemsize
                if shape[0] * shape[1] > _MOST_PIXELS or size > _MOST_BYTES:
                    raise UsageError(
                        f"sample {row}: {name!r} has {shape[0]} x {shape[1]} pixels, too many for a page: read it by "
                        f"reader[{row}]"
                    )

    def pixels(self, row: int, name: str) -> NDArray[Any]:
        """An image or mask. Raises as `check_size`."""
        self.check_size(row)
        return np.asarray(self.reader[row][name])

    def sample(self, row: int) -> dict[str, Any]:
        """All of a sample but its pixels, which are checked against their checksums."""
        self.check_size(row)
        sample, images, masks = self.reader[row], self.images, self._of_kind("mask")
        size = {name: sample[name].shape[:2] for name in (*images, *masks)}
        return self.columns(row) | {
            "images": [{"name": name, "height": size[name][0], "width": size[name][1]} for name in images],
            "masks": {mask: [name for name in images if size[name] == size[mask]] or images[:1] for mask in masks},
            "damaged": [plain(name) for name in look(self.reader).damaged(row)],
        }

    def columns(self, row: int) -> dict[str, Any]:
        """What is known of a sample without reading its pixels."""
        some, fields = self.reader.select([row]), self.reader.fields
        sample = {name: some.column(name)[0] for name, one in fields.items() if one.kind not in ("image", "mask")}
        values = {name: self._in_words(name, value) for name, value in sample.items()}
        key = sample.get("key", "")
        if "video" in values and (named := _FRAME_KEY.fullmatch(key)):
            values["video"] += f" ({plain(named[1])})"
        return {
            "row": row,
            "key": key,
            "label": self._class(sample.get("label")),
            "values": values,
            "layers": list(self.layers(sample)),
            "stored": {
                name: {"file": plain(place.file.name), "offset": place.offset, "bytes": place.bytes}
                for name, place in look(self.reader).where_is(row).items()
            },
            "line": ("" if self.said == "reader" else "import rawpack\n\n") + f"sample = {self.said}[{row}]",
        }

    def frames(self, row: int) -> dict[str, Any] | None:
        """The frames of the video that a sample is from: the first and the last row, and the time of each in seconds.
        None for what is no video, and where other samples are between its frames."""
        if "video" not in self.reader.fields:
            return None
        some = self.reader.select([row])
        frames = look(self.reader).find(f"video == {int(some.column('video')[0])}")
        if len(frames) != frames[-1] - frames[0] + 1:
            return None
        times = self.reader.column("pts_seconds")[frames].tolist() if "pts_seconds" in self.reader.fields else None
        return {"first": int(frames[0]), "last": int(frames[-1]), "times": times}

    def layers(self, sample: Mapping[str, Any], most: int = _MOST_DRAWN) -> Iterator[dict[str, Any]]:
        """Boxes, polygons and keypoints of a sample, in pixels of its first image, at most so many of each, and without
        those that have no place; boxes and polygons with the numbers of their classes, 0 where they have none. sample:
        as the reader gives it, or the values of one sample of a batch."""
        classes, fields = self.reader.classes or (), self.reader.fields
        boxes = [np.asarray(sample[name]) for name, one in fields.items() if one.is_boxes and name in sample]
        owners = [int(row[4]) if len(row) > 4 else 0 for row in boxes[0]] if boxes else []  # of polygons
        for name, one in fields.items():
            if name not in sample or not one.moves:
                continue
            values = np.asarray(sample[name], np.float64)
            values = values[np.isfinite(values).all(axis=tuple(range(1, values.ndim)))][:most]
            if one.is_boxes:
                numbers = [int(row[4]) for row in values] if values.shape[1] > 4 else [0] * len(values)
                named = classes and values.shape[1] > 4
                names = [plain(class_name(classes, number)) if named else "" for number in numbers]
                shapes = {"items": values[:, :4].tolist(), "labels": names, "classes": numbers}
                yield {"name": name, "kind": "boxes"} | shapes
            elif one.follows == "polygons":
                outlines = [*_outlines(values)]
                numbers = [owners[box] if 0 <= box < len(owners) else 0 for box, _ in outlines]
                items = [outline for _, outline in outlines]
                yield {"name": name, "kind": "polygons", "items": items, "classes": numbers}
            elif one.follows == "keypoints":
                yield {"name": name, "kind": "keypoints", "items": values.tolist()}

    def clips(self, frames: int, given: Mapping[str, Any], start: int, count: int) -> dict[str, Any]:
        """Clips start <= k < start + count of `reader.clips(frames, **given)`: the rows of each. Raises UsageError as
        that does, and for an old store whose own field has the name of these rows."""
        if "store_row" in self.reader.fields:
            raise UsageError("clips cannot be shown: a field of this store has the name 'store_row'")
        with _quiet, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of videos that are left out: the page says how many
            clips = self.reader.clips(frames, **given)
        some = clips.select(np.arange(start, min(start + count, len(clips))))
        batch = (
            next(iter(some.batches(max(1, len(some)), fields=["store_row"], workers=0)), None) if len(some) else None
        )
        rows = [] if batch is None else self.numbers_of(batch["store_row"]).tolist()
        words = [str(frames), *(f"{name}={value!r}" for name, value in given.items())]
        firsts = self.tiles(np.array([clip[0] for clip in rows], np.int64)) if rows else []
        found = [one | {"rows": clip} for clip, one in zip(rows, firsts, strict=True)]
        line = f"{self.said}.clips({', '.join(words)})"
        return {"count": len(clips), "clips": found, "left_out": look(clips).left_out, "line": line}

    def rejects(self) -> list[dict[str, str]]:
        """The first rejects, as words."""
        found = self.reader.rejects[:_MOST_REJECTS]
        return [{name: plain(str(value)) for name, value in one.items()} for one in found]

    def found(self) -> dict[str, Any]:
        """Near duplicates, leaks and extremes, by rows."""
        if (curation := self.curation) is None:
            return {"groups": [], "leaks": [], "extremes": []}
        return {
            "groups": [self.tiles(np.array(group[:24])) for group in curation.groups[:100]],
            "leaks": [
                {"tile": self.tiles(np.array([leak.row]))[0], "split": plain(leak.split), "other": leak.other}
                for leak in curation.leaks[:_MOST_LEAKS]
            ],
            "extremes": [
                {"title": one.title, "tiles": self.tiles(np.array(one.rows), one.field)} for one in curation.extremes
            ],
        }

    def same(self, other: LookedAt, row: int) -> int | None:
        """The row in another store of the sample with the same key; None where it has none."""
        key = self.reader.select([row]).column("key")[0]
        near = [row] if row < len(other.reader) else []
        for candidate in (*near, *look(other.reader).find(key=key).tolist()):
            if other.reader.select([candidate]).column("key")[0] == key:
                return int(candidate)
        return None

    def _class(self, label: Any) -> str | None:
        """The name of a sample's class; None where the store has no classes."""
        names = self.reader.classes
        return plain(class_name(names, int(label))) if names and label is not None and np.ndim(label) == 0 else None

    def _in_words(self, name: str, value: Any) -> str:
        """A value, written out; a class by its name too."""
        if isinstance(value, list):  # of texts
            value = "\n".join(value)
        if isinstance(value, str):
            return "\n".join(map(plain, value[:_MOST_LETTERS].split("\n"))) + "..." * (len(value) > _MOST_LETTERS)
        array = np.asarray(value)
        if name == "label" and (named := self._class(value)) is not None:
            return f"{int(array)} ({named})"
        if array.ndim == 0:
            return str(array[()])  # all digits that tell it from others of its type
        # Places in an image are read as pixels; of other numbers, all digits that tell them from others are shown.
        places: Any = {"float_kind": lambda number: f"{number:.2f}".rstrip("0").rstrip(".")}
        form = {"formatter": places} if name in self.reader.fields and self.reader.fields[name].moves else {}
        words = np.array2string(array, threshold=_MOST_VALUES, floatmode="unique", separator=", ", **form)
        return f"{array.dtype} {array.shape}\n{words}"


def _written(path: str) -> tuple[int, ...] | None:
    """What changes when a store in a folder is written to; None where there is none."""
    try:
        status = (Path(path) / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _outlines(points: NDArray[np.float64]) -> Iterator[tuple[int, list[list[float]]]]:
    """The outlines of polygons (n, 4): x, y, box, part; each after the number of its box."""
    if not len(points):
        return
    cuts = np.flatnonzero((np.diff(points[:, 2]) != 0) | (np.diff(points[:, 3]) != 0)) + 1
    for outline in np.split(points[:, :3], cuts):
        yield int(outline[0, 2]), outline[:, :2].tolist()
