"""Fills the images or masks of one field: its first steps take one sample at a time, its last ones several."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.store.stores import Stores
from rawpack.system.times import Times
from rawpack.transforms.randomness import Random, Randoms
from rawpack.transforms.step import Array, CropStep, Drawn, Step, agrees

if TYPE_CHECKING:
    from rawpack.transforms.pipeline import FieldPlan

MASK = "mask"
PIXELS = ("image", MASK)
"""The kinds of fields that a step without `field` is applied to, with the same random numbers."""
_SIDE = 4096
"""Of an image that is only imagined: no crop is larger."""
Check = Callable[[str, int], None]
_Numbered = list[tuple[int, Random]]
"""For some samples the position of each, and its random numbers."""
_Made = tuple[_Numbered | Randoms, Array, Array]
"""The random numbers of some samples; what has been made of them, (n, *shape); and the memory for the result, which may
hold that already."""


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
    drawn: list[dict[int, Any]] | None = None
    """For each sample, step number -> what was drawn; used and added to."""
    sizes: list[tuple[int, ...]] | None = None
    """The size of each sample, that of its first field and frame."""
    _spent: Times = field(default_factory=Times)

    def fill(self, times: Times) -> None:
        """Make them all, and add to `times` what that took."""
        plan, spent = self.plan, self._spent
        steps = list(zip(plan.numbers, plan.steps, plan.fits, plan.specs[:-1], strict=True))[plan.alone :]
        for numbered, images, out in self._made():
            began = time.perf_counter()
            for number, step, fits, given in steps:
                places = self._all_drawn(step, number, numbered, sides(images.shape[1:], given.layout))
                images = step.apply_many(images, places, out if fits else None)
            if images is not out:
                one = len(out) == 1
                put(images[0] if one else images, out[0, ...] if one else out, plan, self.name)
            spent.transforming += time.perf_counter() - began
        if not plan.codec.in_place or plan.codec.planar:
            spent.decoding, spent.reading = spent.reading, 0.0
        times.add(spent)

    def _made(self) -> Iterator[_Made]:
        """The samples before the steps that take several."""
        many, given = min(self.plan.many, len(self.rows)), self.plan.specs[self.plan.alone]
        if many <= 1:
            return self._one_by_one()
        memory: Array = np.empty((many, *(n or 0 for n in given.shape)), given.dtype)
        as_stored = self.plan.alone == 0 and self.library.fields[self.name].uniform
        if as_stored and self.check is None and self.drawn is None:
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
            yield self.randoms[part], images, self.outs[part]

    def _collected(self, memory: Array) -> Iterator[_Made]:
        """Samples made one by one, as many at a time as `memory` holds. One that is not as declared stays alone."""
        some, end = _Numbered(), 0
        for numbered, images, out in self._one_by_one():
            alike = images.shape[1:] == memory.shape[1:] and images.dtype == memory.dtype
            if some and not (alike and len(some) < len(memory)):
                yield some, memory[: len(some)], self.outs[end - len(some) : end]
                some = []
            if alike:
                memory[len(some)] = images[0]
                some += numbered
            else:
                yield numbered, images, out
            end += 1
        if some:
            yield some, memory[: len(some)], self.outs[end - len(some) : end]

    def _one_by_one(self) -> Iterator[tuple[_Numbered, Array, Array]]:
        """Each sample after the steps that take one at a time."""
        clock, plan, spent, drawn, sizes = time.perf_counter, self.plan, self._spent, self.drawn, self.sizes
        crop = plan.steps[0] if plan.steps and isinstance(plan.steps[0], CropStep) else None
        first = 1 if crop is not None else 0
        mask, all_fit = plan.kind == MASK, plan.fits
        later = [
            (number, step.draw, step.apply_mask if mask else step.apply, fits, given.layout)
            for number, step, fits, given in zip(plan.numbers, plan.steps, all_fit, plan.specs[:-1], strict=True)
        ][first : plan.alone]
        if crop is not None:
            crop_number, crop_fits = plan.numbers[0], all_fit[0]
            scales = plan.codec.scales and not mask
            finish = crop.finish_mask if mask else crop.finish
        rows = self.rows
        located, numbered = self.library.located(self.name, rows), self.randoms.of_rows(len(rows))
        samples = zip(located, numbered, rows.tolist(), strict=True)
        for n, ((reader, row), (i, random), sample) in enumerate(samples):
            began, outs = clock(), self.outs[n : n + 1]
            out = outs[0, ...]
            if self.check is not None:
                self.check(self.name, sample)
            known = None if drawn is None else drawn[i]
            if sizes is not None:
                same_size(sizes, i, reader.shape(row), self.name)
            if crop is not None:
                place = _drawn(crop.draw, crop_number, random, reader.shape(row), "HWC", known)
                part = reader.read(row, crop.box(place), crop.reduction(place) if scales else 1)
                read = clock()
                image = finish(part, place, out if crop_fits else None)
            else:
                image = reader.read(row)
                read = clock()
            for number, draw, apply, fits, layout in later:
                place = _drawn(draw, number, random, image.shape, layout, known)
                image = apply(image, place, out if fits else None)
            spent.reading += read - began
            spent.transforming += clock() - read
            yield [(i, random)], outs if image is out else np.asarray(image)[None], outs

    def _all_drawn(self, step: Step, number: int, numbered: _Numbered | Randoms, size: tuple[int, int]) -> Drawn:
        """What a step draws for some samples of one size."""
        if not draws(step):
            return [None] * len(numbered)
        if isinstance(numbered, Randoms):
            draw_many = step.draw_many if agrees(step, "draw_many", "draw") else partial(Step.draw_many, step)
            return draw_many(numbered, *size)
        if self.drawn is None:
            return [step.draw(random, *size) for _, random in numbered]
        return [_drawn(step.draw, number, random, size, "", self.drawn[i]) for i, random in numbered]


def draws(step: Step) -> bool:
    """Whether a step draws anything."""
    return getattr(step.draw, "__func__", None) is not Step.draw


def draws_at_random(step: Step) -> bool:
    """Whether what a step draws depends on random numbers. That of CenterCrop depends only on the size."""
    if not draws(step):
        return False
    noted = _Noted(0)
    try:
        step.draw(noted, _SIDE, _SIDE)
    except Exception:
        return True  # such as for an image of that size
    return noted.used


class _Noted(Random):
    """Random numbers that say whether one was drawn."""

    used = False

    def __init__(self, key: int) -> None:
        super().__init__(key)
        draw = self.random

        def random() -> float:
            self.used = True
            return draw()

        self.random = random


def sides(shape: tuple[int, ...], layout: str) -> tuple[int, int]:
    """(height, width) of an array; of one that is not an image, the lengths of its first two axes."""
    height, width = (*(shape[1:] if layout == "CHW" else shape), 1, 1)[:2]
    return height, width


def _drawn(
    draw: Callable[[Random, int, int], Any],
    number: int,
    random: Random,
    shape: tuple[int, ...],
    layout: str,
    known: dict[int, Any] | None,
) -> Any:
    if known is None:
        return draw(random, *sides(shape, layout))
    if number not in known:
        known[number] = draw(random, *sides(shape, layout))
    return known[number]


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
