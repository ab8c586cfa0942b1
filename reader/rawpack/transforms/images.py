"""Fills the images or masks of one field: its first steps take one sample at a time, its last ones several."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.store.stores import Stores
from rawpack.system.times import Times
from rawpack.transforms.randomness import Random, Randoms
from rawpack.transforms.step import Array, CropStep, Drawn, Step

if TYPE_CHECKING:
    from rawpack.transforms.pipeline import FieldPlan

MASK = "mask"
PIXELS = ("image", MASK)
"""The kinds of fields that a step without `field` is applied to, with the same random numbers."""
_SIDE = 4096
"""Of an image that is only imagined: no crop is larger."""
Check = Callable[[str, int], None]
_Made = tuple[slice, Array, Array]
"""Which samples; what has been made of them, (n, *shape); and the memory for the result, which may hold that
already."""


@dataclass(frozen=True)
class ImageFiller:
    """Makes the samples of one field, once."""

    library: Stores
    name: str
    """Of the field."""
    plan: FieldPlan
    rows: NDArray[np.int64]
    """Of all frames."""
    outs: Array
    randoms: Randoms
    check: Check | None
    known: list[dict[int, Any]] | None = None
    """Where samples have several images, for each of them: step number -> what was drawn; used and added to."""
    sizes: list[tuple[int, ...]] | None = None
    """The size of each sample, that of its first field and frame."""
    _spent: Times = field(default_factory=Times)

    def fill(self, times: Times) -> None:
        """Make them all, and add to `times` what that took."""
        plan, spent, codec = self.plan, self._spent, self.plan.field.codec
        steps = list(zip(plan.numbers, plan.steps, plan.drawing, plan.fits, plan.specs[:-1], strict=True))[plan.alone :]
        for part, images, out in self._made():
            began, randoms = time.perf_counter(), self.randoms[part] if self.known is None else self.randoms
            for number, step, draw_many, fits, given in steps:
                if draw_many is None:
                    places: Drawn = [None] * len(images)
                elif self.known is None:
                    places = draw_many(randoms, *sides(images.shape[1:], given.layout))
                else:
                    shape = images.shape[1:]
                    places = [self._drawn(n, number, step, shape, given.layout) for n in range(part.start, part.stop)]
                images = step.apply_many(images, places, out if fits else None)
            if images is not out:
                one = len(out) == 1
                put(images[0] if one else images, out[0, ...] if one else out, plan, self.name)
            spent.transforming += time.perf_counter() - began
        if not codec.in_place or codec.planar:
            spent.decoding, spent.reading = spent.reading, 0.0
        times.add(spent)

    def _made(self) -> Iterator[_Made]:
        """The samples before the steps that take several."""
        many, given = min(self.plan.many, len(self.rows)), self.plan.specs[self.plan.alone]
        if many <= 1:
            return self._one_by_one()
        memory: Array = np.empty((many, *(n or 0 for n in given.shape)), given.dtype)
        as_stored = self.plan.alone == 0 and self.plan.field.uniform
        if as_stored and self.check is None and self.known is None:
            return self._read_many(memory)
        return self._collected(memory)

    def _read_many(self, memory: Array) -> Iterator[_Made]:
        """Samples as they are stored, as many at a time as `memory` holds."""
        for start in range(0, len(self.rows), len(memory)):
            part, began = slice(start, start + len(memory)), time.perf_counter()
            rows = self.rows[part]
            images = memory[: len(rows)]
            self.library.read_into(self.name, rows, images)
            self._spent.reading += time.perf_counter() - began
            yield part, images, self.outs[part]

    def _collected(self, memory: Array) -> Iterator[_Made]:
        """Samples made one by one, as many at a time as `memory` holds. One that is not as declared stays alone."""
        start = end = 0
        """Which samples are in `memory`."""
        for part, images, out in self._one_by_one():
            alike = images.shape[1:] == memory.shape[1:] and images.dtype == memory.dtype
            if start < end and not (alike and end - start < len(memory)):
                yield slice(start, end), memory[: end - start], self.outs[start:end]
                start = end
            if alike:
                memory[end - start] = images[0]
            else:
                yield part, images, out
                start = part.stop
            end = part.stop
        if start < end:
            yield slice(start, end), memory[: end - start], self.outs[start:end]

    def _one_by_one(self) -> Iterator[_Made]:
        """Each sample after the steps that take one at a time."""
        clock, plan, spent, crop, rows = time.perf_counter, self.plan, self._spent, self.plan.crop, self.rows
        mask, layouts = plan.field.kind == MASK, [given.layout for given in plan.specs]
        applied = [step.apply_mask if mask else step.apply for step in plan.steps]
        later = list(zip(plan.numbers, plan.steps, plan.drawing, applied, plan.fits, layouts[:-1], strict=True))
        later = later[0 if crop is None else 1 : plan.alone]
        shapes = shapes_of(self.library, self.name, rows) if crop is not None or self.sizes is not None else []
        if self.sizes is not None:
            for n, shape in enumerate(shapes):
                same_size(self.sizes, n // self._frames, shape, self.name)
        places: Iterable[Any] = repeat(None, len(rows))
        if crop is not None:
            places, box, scale, last = self._crops(crop, shapes), None, 1, self
            finish, scales = crop.finish_mask if mask else crop.finish, plan.field.codec.scales and not mask
        samples = zip(self.library.located(self.name, rows), places, rows.tolist(), strict=True)
        for n, ((reader, row), place, sample) in enumerate(samples):
            began, outs = clock(), self.outs[n : n + 1]
            out = outs[0, ...]
            if self.check is not None:
                self.check(self.name, sample)
            if crop is not None:
                if place is not last:
                    box, scale, last = crop.box(place), crop.reduction(place) if scales else 1, place
                part = reader.read(row, box, scale)
                read = clock()
                image = finish(part, place, out if plan.fits[0] else None)
            else:
                image = reader.read(row)
                read = clock()
            for number, step, draw_many, apply, fits, layout in later:
                drawn = None if draw_many is None else self._drawn(n, number, step, image.shape, layout)
                image = apply(image, drawn, out if fits else None)
            spent.reading += read - began
            spent.transforming += clock() - read
            yield slice(n, n + 1), outs if image is out else np.asarray(image)[None], outs

    def _crops(self, crop: CropStep, shapes: Sequence[tuple[int, ...]]) -> Drawn:
        """What the crop that comes first draws for each frame."""
        number, draw_many = self.plan.numbers[0], self.plan.drawing[0]
        if draw_many is None:
            return [None] * len(shapes)
        if self.known is None and self.plan.field.uniform:
            return draw_many(self.randoms, *shapes[0][:2])
        return [self._drawn(n, number, crop, shape, "HWC") for n, shape in enumerate(shapes)]

    def _drawn(self, n: int, number: int, step: Step, shape: tuple[int, ...], layout: str) -> Any:
        """What a step draws for frame n, an array of that shape."""
        i = n // self._frames
        known = {} if self.known is None else self.known[i]
        if number not in known:
            known[number] = step.draw(self.randoms.each[i], *sides(shape, layout))
        return known[number]

    @cached_property
    def _frames(self) -> int:
        """Of a sample."""
        return len(self.rows) // max(1, len(self.randoms))


def draws_at_random(step: Step) -> bool:
    """Whether what a step draws depends on random numbers. That of CenterCrop depends only on the size."""
    random = Random(0)
    try:
        step.draw(random, _SIDE, _SIDE)
    except Exception:
        return True  # such as for an image of that size
    return random.random() != Random(0).random()


def sides(shape: tuple[int, ...], layout: str) -> tuple[int, int]:
    """(height, width) of an array; of one that is not an image, the lengths of its first two axes."""
    height, width = (*(shape[1:] if layout == "CHW" else shape), 1, 1)[:2]
    return height, width


def shapes_of(library: Stores, name: str, rows: NDArray[np.int64]) -> list[tuple[int, ...]]:
    """The shape of each sample's image, as it is stored."""
    stored = library.fields[name]
    if stored.uniform:
        return [tuple(n or 0 for n in stored.shape)] * len(rows)
    return [reader.shape(row) for reader, row in library.located(name, rows)]


def same_size(sizes: list[tuple[int, ...]], i: int, shape: tuple[int, ...], name: str) -> None:
    """Note the size of sample i. Raises UsageError if its other images have another one."""
    if len(sizes) <= i:
        sizes.append(shape[:2])
    elif sizes[i] != shape[:2]:
        raise UsageError(
            f"{name!r} is {shape[0]}x{shape[1]} and another image of the sample {sizes[i][0]}x{sizes[i][1]} (height x "
            "width): all images of a sample must have one size; leave one out with fields=, or pack frames with --size"
        )


def put(made: Array, out: Array, plan: FieldPlan | str, name: str) -> None:
    """Copy a result into `out`. Raises UsageError if its shape or dtype is not the declared one."""
    shape, dtype = np.shape(made), getattr(made, "dtype", None)
    if shape != out.shape or dtype != out.dtype:
        by = plan if isinstance(plan, str) else ", ".join(map(repr, plan.steps))
        raise UsageError(
            f"{by} made {dtype} {shape} of {name!r}, where {out.dtype} {out.shape} was expected: declare the result of "
            "a function with shape= and dtype=, that of a step of your own with makes()"
        )
    np.copyto(out, made)
