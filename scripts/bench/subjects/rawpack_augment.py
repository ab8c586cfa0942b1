"""rawpack's reader with a transform in its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import data
from contract import Epoch, Pixels, Settings, consume

What = Literal["crops", "crops, scaled", "half", "normalise"]
SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class RawpackAugment:
    """Random resized crops and flips, random crops of half the side, or normalising to float32 (C, H, W)."""

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
            workers=settings.workers,
            backend="process",
            transform=steps(self._what, settings.shape[0] // 2 if self._what == "half" else side_of(settings)),
        )

    def epoch(self, n: int) -> Epoch:
        self._batches.set_epoch(n)
        return consume(self._images(), self._consumer)

    def _images(self) -> Iterator[Pixels]:
        for batch in self._batches:
            image = batch["image"]
            # The consumer looks at rows and columns of (n, H, W, C); bytes are enough to see that something came.
            yield image.view("uint8").transpose(0, 2, 3, 1) if self._what == "normalise" else image


def side_of(settings: Settings) -> int:
    """The side of the crops: 224 pixels, or what --quick leaves of it."""
    return min(SIDE, settings.shape[0] - 8)


def steps(what: What, side: int) -> list[Any]:
    """The transform. `interpolation="area"` is what FFCV does: OpenCV's INTER_AREA."""
    from rawpack.transforms import Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, ToCHW

    if what == "half":
        return [RandomCrop(side)]
    if what == "normalise":
        return [Normalize(MEAN, STD), ToCHW()]
    scaled = 1.0 if what == "crops, scaled" else None
    return [RandomResizedCrop(side, interpolation="area", scaled_decode=scaled), RandomHorizontalFlip()]
