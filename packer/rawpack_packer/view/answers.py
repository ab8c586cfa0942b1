"""What the page asks for, and the answers: JSON about stores, and pictures. No question names a path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Semaphore
from typing import Any

import numpy as np

from rawpack import look
from rawpack.errors import RawpackError, UsageError
from rawpack_packer.text import speaking_python
from rawpack_packer.tune.candidates import parse_side
from rawpack_packer.view import drawn
from rawpack_packer.view.looked_at import LookedAt, Question
from rawpack_packer.view.training import NoSuchBatchError, Training, TrainingLoop

_AT_ONCE = 4
"""Answers that are made at the same time; others wait."""
_ENDING_S = 5
_MOST_TILES, _MOST_SIDE, _MOST_CLIPS = 500, 1024, 60
_LABELS = {"batch": "batch size", "number": "batch", "world": "the number of ranks", "per_video": "per video"}
"""What the page calls words of questions that have another name there."""
_KEYWORD = re.compile(r"\b(image_size|frames|stride|step|per_video|short)=(?=([\w'\"({])?)")


@contextmanager
def _naming_controls() -> Iterator[None]:
    """Messages name what was typed as the page does: `image size 8`, not `image_size=8`."""
    try:
        yield
    except UsageError as error:
        said = _KEYWORD.sub(lambda found: found[1].replace("_", " ") + " " * bool(found[2]), str(error))
        raise UsageError(said) from None


class Query:
    """The words of a question. All getters raise UsageError for what does not fit."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words

    def text(self, name: str) -> str:
        return self._words.get(name, "")

    def whole(self, name: str, otherwise: int | None = None, least: int = 0, most: int = (1 << 63) - 1) -> int:
        word, label = self._words.get(name, ""), _LABELS.get(name, name)
        if not word and otherwise is not None:
            return otherwise
        try:
            value = int(word)
        except ValueError:
            raise UsageError(f"{label} must be a whole number, not {word!r:.40}") from None
        if not least <= value <= most:
            raise UsageError(f"{label} must be from {least:,} to {most:,}, not {value:,}")
        return value

    def flag(self, name: str) -> bool:
        return self._words.get(name) == "1"


@dataclass(frozen=True)
class Answer:
    """The body of an answer."""

    kind: str
    data: bytes
    lasts: bool = False
    """Whether it stays the same for ever."""


class Answers:
    """Answers questions about these stores. Several threads may ask."""

    def __init__(self, stores: Sequence[LookedAt]) -> None:
        self._stores, self._training = list(stores), Training()
        self._turns, self._ended = Semaphore(_AT_ONCE), False
        self._of: dict[str, Callable[[Query], Answer]] = {
            "/api/stores": lambda asked: _json([store.about() for store in self._stores]),
            "/api/rows": self._rows,
            "/api/sample": lambda asked: _json(self._store(asked).sample(self._row(asked))),
            "/api/columns": lambda asked: _json(self._store(asked).columns(self._row(asked))),
            "/api/clips": self._clips,
            "/api/same": lambda asked: _json(self._same(asked)[-1]),
            "/api/pair": self._pair,
            "/api/rejects": lambda asked: _json(self._store(asked).rejects()),
            "/api/found": lambda asked: _json(self._store(asked).found()),
            "/api/frames": lambda asked: _json(self._store(asked).frames(self._row(asked))),
            "/api/changed": lambda asked: _json(self._store(asked).changed()),
            "/image": self._image,
            "/mask": self._mask,
            "/difference": self._difference,
        }
        self._of_batches = {"/api/batch": self._batch, "/batch-image": self._batch_image}
        """These may wait for a batch that is being made, and take a turn only afterwards."""

    def answer(self, path: str, words: Mapping[str, str]) -> Answer | None:
        """None where there is no such question. Raises RawpackError for what cannot be answered."""
        with speaking_python():
            if path in self._of_batches:
                return self._of_batches[path](Query(words))
            if path not in self._of:
                return None
            with self._turn():
                return self._of[path](Query(words))

    def close(self) -> None:
        """Make no more answers, and wait for those that are being made: a process that ends meanwhile may crash."""
        self._ended = True
        taken = [self._turns.acquire(timeout=_ENDING_S) for _ in range(_AT_ONCE)]
        self._training.close(_ENDING_S)
        for _ in range(sum(taken)):
            self._turns.release()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._turns:
            if self._ended:
                raise UsageError("rawpack view has ended")
            yield

    def _store(self, asked: Query, name: str = "store") -> LookedAt:
        return self._stores[asked.whole(name, 0, most=len(self._stores) - 1)]

    def _row(self, asked: Query, name: str = "row", store: LookedAt | None = None) -> int:
        samples = len((store or self._store(asked)).reader)
        if not samples:
            raise UsageError("the store has no samples")
        return asked.whole(name, most=samples - 1)

    def _rows(self, asked: Query) -> Answer:
        store = self._store(asked)
        question = Question(
            asked.text("where"), asked.text("key"), asked.text("sort"), asked.flag("descending"), asked.whole("seed", 0)
        )
        rows, start = store.rows(question), asked.whole("start", 0)
        some = rows[start : start + asked.whole("count", 100, most=_MOST_TILES)]
        value = question.sort if question.sort in store.numbers else ""
        return _json({"count": len(rows), "tiles": store.tiles(some, value) if len(some) else []})

    @_naming_controls()
    def _clips(self, asked: Query) -> Answer:
        most = {"stride": 10_000, "step": 1_000_000, "per_video": 1000}
        given = {name: asked.whole(name, 0, 1, most[name]) for name in most} | {"short": asked.text("short")}
        return _json(
            self._store(asked).clips(
                asked.whole("frames", 8, 1, 512), {name: value for name, value in given.items() if value},
                asked.whole("start", 0), asked.whole("count", 12, 1, _MOST_CLIPS),
            )
        )  # fmt: skip

    def _same(self, asked: Query) -> tuple[LookedAt, LookedAt, int, int | None]:
        """A store, another one, a row of the first, and the row in the other of the sample with the same key."""
        one, other, row = self._store(asked), self._store(asked, "other"), self._row(asked)
        return one, other, row, one.same(other, row)

    def _pair(self, asked: Query) -> Answer:
        """Where the sample with the same key is in another store, and how far its first image is from this one's."""
        one, other, row, there = self._same(asked)
        if there is None:
            return _json({"row": None})
        here, found = (_pixels(store, at, store.images[0]) for store, at in ((one, row), (other, there)))
        alike = here.shape == found.shape
        compared = alike and here.dtype == found.dtype == np.uint8
        return _json({
            "row": there, "alike": alike, "compared": compared, "equal": bool(np.array_equal(here, found)),
            "psnr": drawn.psnr(here, found) if compared else None,
            "sizes": [drawn.size_of(image) for image in (here, found)],
            "bytes": [sum(place.bytes for place in look(store.reader).where_is(at).values())
                      for store, at in ((one, row), (other, there))],
        })  # fmt: skip

    def _image(self, asked: Query) -> Answer:
        store, row = self._store(asked), self._row(asked)
        image = _pixels(store, row, asked.text("field") or store.images[0])
        side = asked.whole("side", 0, most=_MOST_SIDE)
        return Answer(*(drawn.thumbnail(image, side) if side else drawn.png(image)), lasts=True)

    def _mask(self, asked: Query) -> Answer:
        store, row = self._store(asked), self._row(asked)
        return Answer(*drawn.mask_layer(_pixels(store, row, asked.text("field"), "mask")), lasts=True)

    @_naming_controls()
    def _batch(self, asked: Query) -> Answer:
        try:
            return _json(self._training.batch(self._store(asked), _loop(asked))[1])
        except NoSuchBatchError as beyond:
            return _json({"batches": beyond.batches, "beyond": str(beyond)})

    def _batch_image(self, asked: Query) -> Answer:
        store, k = self._store(asked), asked.whole("k", most=1 << 16)
        image = self._training.image(store, _loop(asked), asked.text("field") or store.images[0], k)
        with self._turn():
            return Answer(*drawn.png(image), lasts=True)

    def _difference(self, asked: Query) -> Answer:
        one, other = self._store(asked), self._store(asked, "other")
        rows = self._row(asked), self._row(asked, "there", other)
        here, there = (_pixels(store, row, store.images[0]) for store, row in zip((one, other), rows, strict=True))
        if here.shape != there.shape or not here.dtype == there.dtype == np.uint8:
            raise UsageError(
                f"only uint8 images of one shape are compared, not {here.dtype} {here.shape} and {there.dtype} "
                f"{there.shape}"
            )
        return Answer(*drawn.difference(here, there, asked.whole("gain", 8, 1, 255)), lasts=True)


def _pixels(store: LookedAt, row: int, name: str, kind: str = "image") -> Any:
    """One image or mask of a sample."""
    known = store.reader.fields.get(name)
    if known is None or known.kind != kind:
        raise UsageError(f"there is no {kind} {name!r:.60} in the store")
    return store.pixels(row, name)


def _loop(asked: Query) -> TrainingLoop:
    size = asked.text("size")
    with speaking_python(False):  # the page takes HEIGHTxWIDTH, as the command does
        side = parse_side(size, "image size {}".format) if size else None
    return TrainingLoop(
        asked.text("steps"), side, asked.whole("batch", 32, 1, 4096), asked.flag("shuffle"),
        asked.whole("seed", 0), asked.whole("epoch", 0), asked.whole("number", 0), asked.whole("rank", 0),
        asked.whole("world", 1, 1, 1 << 16),
    )  # fmt: skip


def _json(value: Any) -> Answer:
    return Answer("application/json", json.dumps(value, allow_nan=False).encode("utf-8", "replace"))


def error_of(error: Exception) -> tuple[int, str]:
    """The status of an answer to a question that failed, and what the page says."""
    if isinstance(error, UsageError):
        return 400, str(error)
    if isinstance(error, RawpackError):
        return 422, str(error)
    return 500, f"{type(error).__name__}: {error}"
