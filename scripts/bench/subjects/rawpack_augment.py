"""rawpack's reader with a transform in its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import data
from contract import Epoch, Pixels, Settings, consume
from rawpack import Workers

What = Literal["crops", "crops, scaled", "half", "normalize", "flip and normalize"]
SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class RawpackAugment:
    """Random resized crops and flips, random crops of half the side, or normalising to float32 (C, H, W), also with
    flips."""

    needs: tuple[str, ...] = ()

    def __init__(self, form: str, what: What) -> None:
        self._form, self._what = form, what

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, self._form)

    def open(self, settings: Settings) -> None:
        from rawpack import Reader

        self._consumer = settings.consumer
        self._batches = Reader(data.store_path(settings, self._form)).batches(
            settings.batch,
            shuffle=True,
            workers=Workers(settings.workers, backend="process"),
            transform=steps(self._what, settings),
        )

    def epoch(self, n: int) -> Epoch:
        self._batches.set_epoch(n)
        return consume(self._images(), self._consumer)

    def _images(self) -> Iterator[Pixels]:
        for batch in self._batches:
            image = batch["image"]
            # The consumer looks at rows and columns of (n, H, W, C); bytes are enough to see that something came.
            yield image.view("uint8").transpose(0, 2, 3, 1) if "normalize" in self._what else image


def side_of(settings: Settings) -> int:
    """The side of the crops: 224 pixels, or what --quick leaves of it."""
    return min(SIDE, settings.shape[0] - 8)


def channels_of(settings: Settings) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel."""
    return MEAN[: settings.shape[2]], STD[: settings.shape[2]]


def steps(what: What, settings: Settings) -> list[Any]:
    """The transform. `interpolation="area"` is what FFCV does: OpenCV's INTER_AREA."""
    from rawpack.transforms import Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, ToCHW

    if what == "half":
        return [RandomCrop(settings.shape[0] // 2)]
    if "normalize" in what:
        flips = [RandomHorizontalFlip()] if "flip" in what else []
        return [*flips, Normalize(*channels_of(settings)), ToCHW()]
    side = side_of(settings)
    scaled = 1.0 if what == "crops, scaled" else None
    return [RandomResizedCrop(side, interpolation="area", scaled_decode=scaled), RandomHorizontalFlip()]
