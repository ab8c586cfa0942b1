"""rawpack's reader: batches of a store under all conditions, single samples, and how long it takes to start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import data
from contract import Epoch, Pixels, Settings, Subject, consume
from rawpack import Workers

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SIDE = 224
_BATCHES_OF_ZEROS = 20
_SAMPLES = 4096
"""In one epoch of single samples."""
What = Literal[
    "", "center", "center crop", "crops", "crops, scaled", "half", "normalize", "flip and normalize",
    "bilinear crops", "bilinear crops, normalize", "Albumentations",
]  # fmt: skip
_THREADS_TOO = ("", "center", "bilinear crops", "bilinear crops, normalize")
"""What the reader may choose to do in threads."""


class Store(Subject):
    """`Reader.batches` as a user calls it: shuffled, all fields but text."""

    def __init__(
        self, form: str, what: What = "", *, stored: int | None = None, shuffle: Literal["block"] | bool = True,
        cold: bool = False, needs: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """what: a transform in the workers, which are processes, but for `_THREADS_TOO`. stored: the side of the images
        in the store, if it is another than that of the table. cold: from the disk."""
        self._form, self._what, self._stored, self._shuffle, self._cold = form, what, stored, shuffle, cold
        self.needs = needs

    def prepare(self, settings: Settings) -> None:
        data.make_store(self._at_size(settings), self._form)

    def open(self, settings: Settings) -> None:
        from rawpack import Reader

        self.settings, path = settings, data.store_path(self._at_size(settings), self._form)
        if self._cold:
            data.drop(data.shard_files(path))
        backend = settings.backend
        if self._what not in _THREADS_TOO and settings.workers != 0:
            backend = "process"
        self._batches = Reader(path).batches(
            settings.batch,
            shuffle=self._shuffle,
            workers=Workers(settings.workers, backend=backend),
            transform=steps(self._what, settings),
        )

    def epoch(self, n: int) -> Epoch:
        if not self._cold:
            self._batches.set_epoch(n)
        return consume(self._images(), self.settings.consumer, self.settings.step_s)

    def _images(self) -> Iterator[Pixels]:
        for batch in self._batches:
            yield as_bytes(batch["image"])

    def _at_size(self, settings: Settings) -> Settings:
        return settings if self._stored is None else replace(settings, shape=(self._stored, self._stored, 3))


def as_bytes(images: NDArray[Any]) -> Pixels:
    """Floats (n, C, H, W) as bytes: the consumer looks at rows and columns of (n, H, W, C), and sees that something
    came."""
    if images.dtype == np.uint8:
        return images
    if images.strides[-1] == images.itemsize:
        return images.view(np.uint8).transpose(0, 2, 3, 1)
    return images.transpose(0, 2, 3, 1).view(np.uint8)  # the channels are last in memory


def side_of(settings: Settings) -> int:
    """The side of random crops: 224 pixels, or what --quick leaves of it."""
    return min(_SIDE, settings.shape[0] - 8)


def channels_of(settings: Settings) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel."""
    return MEAN[: settings.shape[2]], STD[: settings.shape[2]]


def steps(what: What, settings: Settings) -> list[Any] | None:
    """The transform. `crops` are resized as by FFCV, with OpenCV's INTER_AREA; `bilinear crops` as by default."""
    from rawpack.transforms import CenterCrop, Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, ToCHW

    if not what:
        return None
    if what == "center":
        return [CenterCrop(settings.shape[:2])]
    if what == "center crop":
        return [CenterCrop(side_of(settings))]
    if what == "half":
        return [RandomCrop(settings.shape[0] // 2)]
    if what == "Albumentations":
        return [albumentations_step(side_of(settings))]
    if "bilinear" in what or "normalize" in what:
        first = [RandomResizedCrop(side_of(settings))] if "crops" in what else []
        flips = [RandomHorizontalFlip()] if "crops" in what or "flip" in what else []
        last = [Normalize(*channels_of(settings)), ToCHW()] if "normalize" in what else []
        return [*first, *flips, *last]
    scaled = 1.0 if what == "crops, scaled" else None
    crop = RandomResizedCrop(side_of(settings), interpolation="area", scaled_decode=scaled)
    return [crop, RandomHorizontalFlip()]


def albumentations_step(side: int) -> Any:
    """Albumentations' crop and flip as they are by default, in a step of ours that hands on the store's own memory."""
    import albumentations as library

    from rawpack.transforms import Lambda

    class Crops(Lambda):
        def apply(self, image: Any, drawn: Any, out: Any = None) -> Any:
            return self.lambd(image)

    transform = library.Compose([library.RandomResizedCrop(size=(side, side)), library.HorizontalFlip(p=0.5)])
    return Crops(lambda image: transform(image=image)["image"], shape=(side, side, 3))


class Zeros(Subject):
    """The first batches of a shuffled epoch of a sparse store of very many samples."""

    def __init__(self, form: str) -> None:
        self._form = form

    def prepare(self, settings: Settings) -> None:
        data.make_zeros(settings, self._form)

    def open(self, settings: Settings) -> None:
        from rawpack import Reader

        self.settings, self._reader = settings, Reader(data.zeros_path(settings, self._form))
        if len(self._reader) < settings.samples:
            raise ValueError(f"{len(self._reader)} samples in place of {settings.samples}")

    def epoch(self, n: int) -> Epoch:
        workers = Workers(self.settings.workers, backend=self.settings.backend)
        # They are kept, with their workers, to be measured.
        self._batches = self._reader.batches(self.settings.batch, shuffle=True, workers=workers)
        self._batches.set_epoch(n)
        return consume((batch["image"] for batch in islice(self._batches, _BATCHES_OF_ZEROS)), "none")


class Single(Subject):
    """Random samples of the memmap store in this process, one after another or a batch at a time."""

    def __init__(self, how: Callable[[Settings], Callable[[Any], object]], batch: int = 1) -> None:
        """how: given the settings, returns what reads one sample by its row, or several by theirs."""
        self._how, self._batch = how, batch

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "memmap")

    def open(self, settings: Settings) -> None:
        self._read = self._how(settings)
        self._samples = sum(map(len, data.shards(settings)))

    def epoch(self, n: int) -> Epoch:
        rows = np.random.default_rng(n).integers(0, self._samples, _SAMPLES)
        chosen = rows.tolist() if self._batch == 1 else rows.reshape(-1, self._batch)
        began = time.perf_counter()
        for one in chosen:
            self._read(one)
        return Epoch(_SAMPLES, time.perf_counter() - began)


def by_numpy(settings: Settings) -> Callable[[Any], Any]:
    """A new array of a row of the shard that it is in."""
    shards = data.shards(settings)
    size = len(shards[0])
    return lambda row: np.array(shards[row // size][row % size])


def by_reader(settings: Settings) -> Callable[[Any], Any]:
    """All fields of samples, as `Reader[...]` gives them."""
    from rawpack import Reader

    return Reader(data.store_path(settings, "memmap")).__getitem__


def by_batches(settings: Settings) -> Callable[[Any], Any]:
    """As many samples, all fields of them, as a batch that this process makes; which ones is up to the order."""
    from rawpack import Reader

    reader = Reader(data.store_path(settings, "memmap"))
    batches = reader.batches(
        min(settings.batch, len(reader)), shuffle=True, workers=0, fields=list(reader.fields), drop_last=True
    )

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            yield from batches

    read = endless()
    return lambda rows: next(read)


class ReaderStart(Subject):
    """From `Reader(...)`, with rawpack imported, to the first batch."""

    def __init__(self) -> None:
        import rawpack

        self._reader = rawpack.Reader

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "lmdb")

    def open(self, settings: Settings) -> None:
        began = time.perf_counter()
        batches = self._reader(data.store_path(settings, "lmdb")).batches(
            settings.batch, shuffle=True, workers=Workers(settings.workers, backend="process")
        )
        self._iterator = iter(batches)
        images = len(next(self._iterator)["index"])
        self._epoch = Epoch(images, time.perf_counter() - began, 0.0)

    def epoch(self, n: int) -> Epoch:
        """What `open` took. The workers are kept, so that their memory is measured."""
        return self._epoch
