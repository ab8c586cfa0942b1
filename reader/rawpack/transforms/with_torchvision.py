"""Transforms of torchvision, version 2, as a step. Imported with torch where it is used."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any, Self

import numpy as np
from msgspec import UNSET

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.transforms.followers import BOXES, leave
from rawpack.transforms.images import PIXELS
from rawpack.transforms.randomness import Random
from rawpack.transforms.samples import Makes, Sample, SampleLambda

_DRAWING = threading.Lock()
"""torch has one generator for all threads of a process."""


class Torchvision(SampleLambda):
    """A transform of torchvision.transforms.v2, called in the workers with images, masks and boxes of one sample.

    It gets tensors (C, H, W), and what it makes of them is (H, W, C) again. Boxes that SanitizeBoundingBoxes leaves out
    take with them what belongs to them. In one process, one thread at a time runs it.
    """

    def __init__(self, transform: Any, *, makes: Makes | None = None) -> None:
        """transform: an object, or a v2.Compose of several. makes: as of `SampleLambda`."""
        super().__init__(transform, makes=makes)
        self._takes = "second"

    def for_fields(self, fields: Mapping[str, Field], framed: Collection[str]) -> Self:
        for name, field in fields.items():
            if field.displacement is not UNSET or field.follows in ("keypoints", "polygons"):
                raise UsageError(f"{self!r} cannot move {name!r}: leave it out with fields=, or use Albumentations")
        return self._copy_for(fields)

    def call(self, sample: Sample, random: Random) -> Mapping[str, Any]:
        import torch
        from torchvision import tv_tensors

        inputs, size = dict[str, Any](), (0, 0)
        for name, field in self._fields.items():
            if field.kind in PIXELS and len(field.shape) == 3:
                kind = tv_tensors.Mask if field.exact else tv_tensors.Image
                inputs[name] = kind(torch.from_numpy(np.moveaxis(sample[name], -1, -3).copy()))
                size = sample[name].shape[-3:-1]
        if BOXES in sample:
            corners, numbers = torch.from_numpy(sample[BOXES][:, :4].copy()), torch.arange(len(sample[BOXES]))
            boxes = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=size)
            inputs |= {BOXES: boxes, "labels": numbers}
        with _DRAWING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.integer(1 << 53))
            result: Any = self.function(inputs)
        made = {name: np.moveaxis(result[name].numpy(), -3, -1) for name in inputs if name not in (BOXES, "labels")}
        if BOXES in sample:
            height, width = result[BOXES].canvas_size
            rows = np.column_stack([result[BOXES].numpy(), result["labels"].numpy()])
            made |= leave(sample, self._fields, rows, (0.0, 0.0, width, height))
        return made

    def __repr__(self) -> str:
        return f"Torchvision({type(self.function).__name__}(...))"
