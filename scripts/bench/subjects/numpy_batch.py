"""numpy alone on whole batches of small images, in one process: flips, mean and deviation, channels first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from contract import Pixels
from subjects.rawpack_augment import channels_of
from subjects.take_loop import TakeLoop


class NumpyBatch(TakeLoop):
    """The loop of `TakeLoop`, with a few calls for all images of a batch."""

    def _batches(self, n: int) -> Iterator[Pixels]:
        random, size = np.random.default_rng(n), self._settings.batch
        mean, std = (np.array(one, np.float32) for one in channels_of(self._settings))
        scale, shift = np.float32(1 / 255) / std, -mean / std
        if len(scale) == 1:
            scale, shift = scale[0], shift[0]
        rows = random.permutation(len(self._images))
        for start in range(0, len(rows), size):
            images = self._images.take(rows[start : start + size], axis=0)
            flipped = random.random(len(images)) < 0.5
            images[flipped] = images[flipped, :, ::-1]
            made = images * scale
            made += shift
            planes = np.ascontiguousarray(made.transpose(0, 3, 1, 2))
            yield planes.view("uint8").transpose(0, 2, 3, 1)
