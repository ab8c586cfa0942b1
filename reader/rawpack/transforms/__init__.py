"""Transforms: what workers do to samples on their way into a batch.

    from rawpack.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop, ToCHW

    reader.batches(256, transform=[RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std), ToCHW()])

| file | holds |
|---|---|
| `step.py` | the contract: what a step is |
| `crops.py`, `resizing.py`, `flips.py`, `color.py` | steps on pixels |
| `values.py`, `labels.py` | dtypes, normalizing, axes; labels as vectors |
| `functions.py` | functions of the user's own |
| `randomness.py` | the random numbers of a sample |
| `plan.py` | a list of steps, fitted to the fields of a store |
| `pipeline.py` | what that gives, run on sample after sample |
"""

from __future__ import annotations

from rawpack.transforms.color import ColorJitter
from rawpack.transforms.crops import CenterCrop, RandomCrop, RandomResizedCrop
from rawpack.transforms.flips import RandomHorizontalFlip, RandomVerticalFlip
from rawpack.transforms.functions import BatchLambda, Lambda
from rawpack.transforms.labels import OneHot
from rawpack.transforms.randomness import Random
from rawpack.transforms.resizing import Fit, Resize
from rawpack.transforms.step import BatchStep, CropStep, Move, Spec, Step
from rawpack.transforms.values import ConvertImageDtype, Normalize, ToCHW

__all__ = [
    "BatchLambda",
    "BatchStep",
    "CenterCrop",
    "ColorJitter",
    "ConvertImageDtype",
    "CropStep",
    "Fit",
    "Lambda",
    "Move",
    "Normalize",
    "OneHot",
    "Random",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "Spec",
    "Step",
    "ToCHW",
]
