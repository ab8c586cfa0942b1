"""What the tests of random draws share."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rawpack.transforms import Step
from rawpack.transforms.randomness import randoms_of


def tries(many: int) -> int:
    """How often something random is tried: so often in a long run of the tests, else a quarter of it."""
    return many if os.environ.get("RAWPACK_SOAK") else many // 4


def same_distribution(ours: ArrayLike, theirs: ArrayLike) -> bool:
    """The two-sample test of Kolmogorov and Smirnov, at a level that a right sampler fails once in 10**6 runs."""
    samples = [np.sort(np.asarray(one)) for one in (ours, theirs)]
    both = np.sort(np.concatenate(samples))
    first, second = (np.searchsorted(one, both, side="right") / len(one) for one in samples)
    allowed = math.sqrt(-math.log(1e-6 / 2) / 2 * (1 / len(samples[0]) + 1 / len(samples[1])))
    return bool(np.abs(first - second).max() < allowed)


def draws(step: Step, height: int, width: int, count: int) -> list[Any]:
    """What a step draws for so many samples."""
    return [step.draw(random, height, width) for random in randoms_of((1, 2, -1), np.arange(count))]
