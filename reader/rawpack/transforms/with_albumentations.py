"""Transforms of Albumentations as a step, by what the store says of its fields. This module never imports it."""

from __future__ import annotations

import copy
import os
import random as python_random
import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn, Self

import msgspec
import numpy as np

from rawpack.disk.manifest import Field, main_image
from rawpack.errors import UsageError
from rawpack.transforms.followers import BOXES, leave
from rawpack.transforms.images import IMAGE, PIXELS
from rawpack.transforms.randomness import Random
from rawpack.transforms.samples import Makes, Sample, SampleLambda, parameters_of, size_of_image
from rawpack.transforms.step import Array

_POINTS = ("keypoints", "polygons")
_PROBE = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
"""Offsets of three points that show whether an image was mirrored."""
_CENTER = 0.5
"""Where the center of the first pixel is: for the points of Albumentations it is at 0, but not for its boxes."""


class Albumentations(SampleLambda):
    """A Compose of Albumentations, called in the workers with images, masks, boxes and points of one sample.

    Its random numbers depend on the seed, the epoch and the sample alone. Boxes that it leaves out take with them what
    belongs to them.
    """

    function: Any
    _own: threading.local
    _targets: dict[str, tuple[str, str]]

    def __init__(self, compose: Any, *, makes: Makes | None = None) -> None:
        """compose: a Compose of Albumentations, version 2 or later, or of AlbumentationsX. makes: as of
        `SampleLambda`."""
        usable = callable(compose) and not isinstance(compose, type)
        taken = [parameter.name for parameter in parameters_of(type(compose).__call__)] if usable else []
        self._by_call = "invocation_seed" in taken
        if not usable or not (self._by_call or hasattr(compose, "set_random_state")):
            raise UsageError(
                f"Albumentations({compose!r:.100}) needs an object of albumentations.Compose, version 2 or later"
            )
        self._set(compose, "second", makes)

    def for_fields(self, fields: Mapping[str, Field], framed: Collection[str]) -> Self:
        self._check_points(fields)
        made = self._copy_for(fields)
        made._own, made._targets = threading.local(), self._targets_of(fields, framed)
        return made

    def _targets_of(self, fields: Mapping[str, Field], framed: Collection[str]) -> dict[str, tuple[str, str]]:
        """Field -> the keyword for it, and what kind of target it is."""
        main, targets = main_image(fields), dict[str, tuple[str, str]]()
        for name in sorted(fields, key=lambda name: name != main):
            field = fields[name]
            if field.kind not in PIXELS or len(field.shape) != 3:
                continue
            if field.displacement is not msgspec.UNSET:
                self._refuse(f"cannot move {name!r}, whose values are distances: leave it out with fields=")
            kind = "image" if field.kind == IMAGE and not field.exact else "mask"
            key = f"{kind}s" if name in framed else kind
            again = sum(key == other for _, other in targets.values())
            if name in framed and again:
                self._refuse(f"takes images and masks of clips of one field each: leave {name!r} out with fields=")
            targets[name] = f"{key}{again or ''}", key
        if not any(kind in ("image", "images") for _, kind in targets.values()):
            self._refuse("needs an image (height, width, channels): name it in fields=, and put ToCHW after it")
        return targets

    def _check_points(self, fields: Mapping[str, Field]) -> None:
        processors = getattr(self.function, "processors", {})
        for name, field in fields.items():
            if not field.moves:
                continue
            if BOXES not in fields:
                self._refuse(f"needs the boxes that {name!r} belongs to: name {BOXES!r} in fields= too")
            if field.is_boxes and _format(_params(processors, "bboxes")) != "pascal_voc":
                self._refuse(
                    f"has to move {name!r}, which are left, top, right, bottom in pixels: pass Compose(..., "
                    'bbox_params=BboxParams("pascal_voc")), or leave boxes out with fields='
                )
            points = _params(processors, "keypoints")
            if field.follows in _POINTS and (_format(points) != "xy" or points.remove_invisible):
                self._refuse(
                    f'has to move {name!r}: pass Compose(..., keypoint_params=KeypointParams("xy", '
                    f"remove_invisible=False)), or leave {name!r} out with fields="
                )

    def _refuse(self, why: str) -> NoReturn:
        raise UsageError(f"{self!r} {why}")

    def call(self, sample: Sample, random: Random) -> Mapping[str, Any]:
        generator, compose = random.generator(), getattr(self._own, "compose", None)
        if compose is None:
            # One for each thread, as drawing changes it.
            self._own.compose = compose = copy.deepcopy(self.function)
            compose.add_targets({key: kind for key, kind in self._targets.values() if key != kind})
        arguments = {key: sample[name] for name, (key, _) in self._targets.items()}
        name = next(iter(self._targets))
        channels, boxes = sample[name].shape[-1], sample.get(BOXES)
        followers = [other for other, field in self._fields.items() if field.follows in _POINTS]
        points = {other: sample[other].reshape(-1, sample[other].shape[-1]) for other in followers}
        if boxes is not None:
            arguments["bboxes"] = np.column_stack([boxes[:, :4], np.arange(len(boxes))]).astype(np.float64)
            arguments |= {label: sample.get(label, boxes[:, -1]) for label in _labels(compose, "bboxes")}
        if points:
            height, width = size_of_image(sample[name], channels)
            probe = np.add(_PROBE, (width / 2, height / 2))
            every = np.concatenate([probe, *(values[:, :2] for values in points.values())])
            arguments["keypoints"] = every.astype(np.float64) - _CENTER
            arguments |= {label: np.zeros(len(every)) for label in _labels(compose, "keypoints")}
        if self._by_call:
            arguments["invocation_seed"] = int(generator.integers(1 << 32))
        else:
            compose.set_random_state(generator, python_random.Random(int(generator.integers(1 << 63))))
        result = compose(**arguments)
        made = {name: _like(result[key], sample[name]) for name, (key, _) in self._targets.items()}
        if boxes is not None:
            height, width = size_of_image(made[name], channels)
            moved = np.asarray(result.get("keypoints", ()), np.float64).reshape(-1, 2) + _CENTER
            mirrored = len(moved) > 2 and bool(np.linalg.det(moved[1:3] - moved[0]) < 0)
            ends = np.cumsum([len(_PROBE), *map(len, points.values())])
            its = {name: moved[start:end] for name, (start, end) in zip(points, pairwise(ends), strict=True)}
            rows = np.asarray(result["bboxes"], np.float64).reshape(-1, 5)
            made |= leave(sample, self._fields, rows, (0.0, 0.0, width, height), its, mirrored)
        return made

    def __getstate__(self) -> dict[str, Any]:
        import cloudpickle

        state = {name: value for name, value in vars(self).items() if name != "_own"}
        return state | {"function": cloudpickle.dumps(self.function)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import cloudpickle

        # Else, each worker that imports it asks a server for newer versions.
        os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
        vars(self).update(state, function=cloudpickle.loads(state["function"]), _own=threading.local())

    def __repr__(self) -> str:
        return f"Albumentations({type(self.function).__name__}(...))"


def _params(processors: Mapping[str, Any], name: str) -> Any:
    """What a Compose was told about boxes or keypoints; None where it was told nothing."""
    return getattr(processors.get(name), "params", None)


def _format(params: Any) -> str:
    """The format of boxes or keypoints that a Compose expects; AlbumentationsX has another name for it."""
    return str(getattr(params, "format", getattr(params, "coord_format", "")))


def _labels(compose: Any, name: str) -> Sequence[str]:
    """The names of the labels that a Compose expects for each box or point."""
    return getattr(_params(compose.processors, name), "label_fields", None) or ()


def _like(value: Any, before: Array) -> Array:
    """An image with an axis of channels, as it had before."""
    made = np.asarray(value)
    return made if made.ndim == before.ndim else made[..., None]
