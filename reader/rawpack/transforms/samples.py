"""A step that calls a function of the whole sample: with its images, masks, boxes, labels and texts in one dict."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter
from typing import Any, Self

import numpy as np

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.transforms.followers import BOXES, misfit
from rawpack.transforms.functions import refuse_albumentations
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, Shape, Step

Sample = dict[str, Any]
"""Arrays of one sample by field; boxes and what follows them as (n, ...), texts as str or lists of these."""
Makes = Mapping[str, tuple[Sequence[int | None], Any]]
"""Field -> the shape of one sample, with None where samples differ, and its dtype."""
_TOLERANCE = 0.01
"""Pixels by which boxes may reach beyond their image: of rounding."""


class SampleLambda(Step):
    """A function of one whole sample, called in the workers.

    It gets a dict of copies of the sample's fields, by name, and may change them in place. It returns a dict of those
    that it replaces or adds, or None. A function whose second parameter is required, or is called `generator`, also
    gets a `numpy.random.Generator`, which depends on the seed, the epoch and the sample alone.
    """

    def __init__(self, function: Callable[..., Mapping[str, Any] | None], *, makes: Makes | None = None) -> None:
        """makes: field -> (shape of one sample, dtype), for each field that it adds, or whose shape or dtype it
        changes; None in a shape where samples differ. Without it, the function is tried on one sample."""
        refuse_albumentations(function)
        if not callable(function):
            raise UsageError(f"SampleLambda({function!r}) needs a function of a dict, the fields of one sample")
        self._set(function, _takes_generator(function), makes)

    def _set(self, function: Callable[..., Mapping[str, Any] | None], takes: str, makes: Makes | None) -> None:
        self.function, self._takes, self._fields = function, takes, dict[str, Field]()
        self.makes_of: dict[str, tuple[Shape, str]] | None = None
        """Field -> shape and dtype; None where the function is tried."""
        if makes is not None:
            self.makes_of = {name: (tuple(shape), np.dtype(dtype).name) for name, (shape, dtype) in makes.items()}

    @property
    def random(self) -> bool:
        """Whether it gets random numbers, so that epochs differ."""
        return bool(self._takes)

    def for_fields(self, fields: Mapping[str, Field], framed: Collection[str]) -> Self:
        """The step to use on samples with these fields: itself, or a copy made for them. framed: the fields of which a
        sample has several frames."""
        return self

    def _copy_for(self, fields: Mapping[str, Field]) -> Self:
        made = object.__new__(type(self))
        vars(made).update(vars(self), _fields=dict(fields))
        return made

    def call(self, sample: Sample, random: Random) -> Mapping[str, Any] | None:
        """What the function returns for a sample."""
        if self._takes == "generator":
            return self.function(sample, generator=random.generator())
        return self.function(sample, random.generator()) if self._takes else self.function(sample)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self.function, '__qualname__', repr(self.function))})"


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Empty for functions that do not say it."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _takes_generator(function: Callable[..., Any]) -> str:
    """How a function takes random numbers: as its "second" argument, as `generator=`, or, empty, not at all."""
    parameters = parameters_of(function)
    by_place = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    second = [parameter for parameter in parameters if parameter.kind in by_place][1:2]
    if second and (second[0].default is Parameter.empty or second[0].name == "generator"):
        return "second"
    by_name = (parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY)
    return "generator" if "generator" in by_name else ""


def called(step: SampleLambda, sample: Sample, random: Random, fields: Mapping[str, Field], image: str) -> Sample:
    """A sample after a function was called with it, which may change it in place. fields: of the store, with the
    shapes that they have here. image: the field that boxes belong to.

    Raises UsageError for what no batch can have, and where boxes and their image no longer belong together.
    """
    texts = {name: sample[name] for name in sample if name in fields and fields[name].kind == "text"}
    dtypes = {name: value.dtype for name, value in sample.items() if name not in texts}
    channels = {
        name: sample[name].shape[-1]
        for name, field in fields.items()
        if name in sample and field.in_shards and len(field.shape) == 3
    }
    sizes = {name: size_of_image(sample[name], channels[name]) for name in channels}
    boxes = np.array(sample[BOXES]) if BOXES in sample else None
    names, returned = set(sample), step.call(sample, random)
    if returned is not None and not isinstance(returned, Mapping):
        raise UsageError(
            f"{step!r} returned {type(returned).__name__}: return a dict of the fields that it replaces or adds, or "
            "None if it changed the sample in place"
        )
    after: Sample = {**sample, **(returned or {})}
    if names - set(after):
        raise UsageError(
            f"{step!r} took {', '.join(map(repr, sorted(names - set(after))))} out: a batch has all fields"
        )
    for name, value in after.items():
        if name in texts:
            if value != texts[name]:
                raise UsageError(f"{step!r} changed {name!r}: texts can be read, and not changed")
            continue
        after[name] = _array(step, name, value, dtypes.get(name), fields.get(name))
    made = {name: size_of_image(after[name], channels[name]) for name in channels}
    moved = [name for name in sizes if made[name] not in ((0, 0), sizes[name])]
    left = [name for name in sizes if made[name] == sizes[name] and any(sizes[name] == sizes[other] for other in moved)]
    kept = [name for name in left if name not in (returned or {})]
    if boxes is not None and image in moved and BOXES not in (returned or {}) and len(boxes):
        kept += [BOXES] if np.array_equal(boxes, after[BOXES]) else []
    if kept:
        raise UsageError(
            f"{step!r} changed the size of {moved[0]!r} and left {kept[0]!r} as it was: change both; or return "
            f"{kept[0]!r} too, if it stays as it is"
        )
    if boxes is not None and any(made.get(image, ())) and (image in moved or not np.array_equal(boxes, after[BOXES])):
        _check_boxes(step, after[BOXES], *made[image])
    for name, field in fields.items():
        if BOXES in after and field.moves and not field.is_boxes and name in after:
            problem = misfit(after[name], field, len(after[BOXES]))
            if problem:
                raise UsageError(f"{step!r} made {name!r} and {BOXES!r} that do not fit: {problem}")
    return after


def size_of_image(image: Array, channels: int) -> tuple[int, int]:
    """(height, width) of an image, or of the frames of a clip, with its channels last or first; zeros for others."""
    if image.ndim < 3 or channels not in (image.shape[-1], image.shape[-3]):
        return 0, 0
    height, width = image.shape[-3:-1] if image.shape[-1] == channels else image.shape[-2:]
    return height, width


def _array(step: SampleLambda, name: Any, value: Any, dtype: Any, field: Field | None) -> Array:
    """What a function made of a field, as an array. dtype: before it, if there was any."""
    own = isinstance(value, np.ndarray | np.generic)
    ragged = field is not None and field.kind == "ragged"
    made = np.asarray(value, dtype if ragged or (not own and dtype is not None) else None)
    if not isinstance(name, str) or made.dtype.kind not in "biufc":
        raise UsageError(f"{step!r} made {made.dtype} of {name!r}: a function can return numbers, as arrays")
    if ragged and not made.size:
        made = made.reshape(0, *(n or 0 for n in field.shape[1:]))  # type: ignore[union-attr]
    # OpenCV, in a later step, would ignore the byte order.
    return made if made.dtype.isnative else made.astype(made.dtype.newbyteorder("="))


def _check_boxes(step: SampleLambda, boxes: Array, height: int, width: int) -> None:
    """Raise UsageError for boxes that are not within an image of this size."""
    left, top, right, bottom = boxes[:, :4].T
    good = (left >= -_TOLERANCE) & (left <= right) & (right <= width + _TOLERANCE)
    good &= (top >= -_TOLERANCE) & (top <= bottom) & (bottom <= height + _TOLERANCE)
    if not good.all():
        at = int(np.flatnonzero(~good)[0])
        raise UsageError(
            f"{step!r} made an image of {height}x{width} (height x width), and box {at} of {len(boxes)} is "
            f"{boxes[at, :4].tolist()} (left, top, right, bottom), not within it: move boxes with their image, and cut "
            "them to it"
        )


def check_shape(step: SampleLambda, name: str, made: Array, shape: Shape, dtype: str) -> None:
    """Raise UsageError, with what to write, where a function makes something else of a field than expected."""
    both = list(zip(shape, made.shape, strict=False))
    if made.ndim == len(shape) and made.dtype == dtype and all(n in (None, m) for n, m in both):
        return
    open_shape = tuple(m if n == m else None for n, m in both) if made.ndim == len(shape) else made.shape
    raise UsageError(
        f"{step!r} made {made.dtype} {made.shape} of {name!r}, where {dtype} {shape} was expected: declare what it "
        f"makes, with makes={{{name!r}: ({open_shape}, {made.dtype.name!r})}}, with None where samples differ, and put "
        "a step that makes one size after it; or make one shape and dtype of all samples"
    )
