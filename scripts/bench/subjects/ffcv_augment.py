"""FFCV with its own random resized crops and flips, over the images of the stores: raw, or JPEG of quality 90."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import data
from contract import Epoch, Settings, consume
from subjects import ffcv_files
from subjects.rawpack_augment import side_of


class FfcvAugment:
    """`RandomResizedCropRGBImageDecoder` and `RandomHorizontalFlip`."""

    needs: tuple[str, ...] = ffcv_files.NEEDS

    def __init__(self, *, jpeg: bool) -> None:
        self._jpeg = jpeg

    def prepare(self, settings: Settings) -> None:
        data.make_array(settings)
        path = self._path(settings)
        if not path.exists():
            array = np.load(data.array_path(settings), mmap_mode="r")
            ffcv_files.write(path, ffcv_files.Images(len(array), array.__getitem__), jpeg=self._jpeg)

    def open(self, settings: Settings) -> None:
        from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
        from ffcv.transforms import RandomHorizontalFlip

        self._consumer, side = settings.consumer, side_of(settings)
        steps = [RandomResizedCropRGBImageDecoder((side, side)), RandomHorizontalFlip()]
        self._batches = ffcv_files.Batches(self._path(settings), settings, steps)

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches, self._consumer)

    def _path(self, settings: Settings) -> Path:
        return data.array_path(settings).with_suffix(".jpg.beton" if self._jpeg else ".raw.beton")
