"""A transform, fitted to the fields of a store by `plan.py`: it makes one sample after another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.tables import Codec
from rawpack.errors import UsageError
from rawpack.store.concatenated import ConcatenatedStore
from rawpack.system.times import Times
from rawpack.transforms.randomness import Random, Seeds, batch_random, randoms_of
from rawpack.transforms.step import Array, BatchStep, CropStep, Spec, Step

MASK = "mask"
PIXELS = ("image", MASK)
"""The kinds of fields that a step without `field` is applied to, with the same random numbers."""
_MANY_BYTES = 1 << 18
"""Of the samples that go through the last steps in one call: they stay in the processor's cache."""
Check = Callable[[str, int], None]
_Numbered = tuple[int, Random]
"""The position of a sample, and its random numbers."""
_RandomOf = Callable[[NDArray[np.int64]], Iterator[_Numbered]]
_Made = tuple[list[_Numbered], Array, Array]
"""Some samples; what has been made of them, (n, *shape); and the memory for the result, which that may be already."""


@dataclass(frozen=True)
class FieldPlan:
    """What is done to one field."""

    steps: tuple[Step, ...]
    numbers: tuple[int, ...]
    """The number of each step in the whole transform, under which what it draws is kept."""
    specs: tuple[Spec, ...]
    """Before the first step, and after each; for clips, those of one frame."""
    kind: str
    """Of the field."""
    codec: Codec
    frames: int | None = None
    """The length of clips; None if samples are single images, and for fields of which a clip has one value."""

    @property
    def result(self) -> Spec:
        """What comes out; of clips, of one frame."""
        return self.specs[-1]

    @property
    def fits(self) -> tuple[bool, ...]:
        """Of each step: whether it makes the shape and dtype of `result`, and may be handed the memory for that."""
        result = self.result.shape, self.result.dtype
        return tuple((made.shape, made.dtype) == result for made in self.specs[1:])

    @property
    def alone(self) -> int:
        """How many steps are applied to one sample at a time. Those after them take several (`Step.apply_many`)."""
        k, least = len(self.steps), 1 if self.steps and isinstance(self.steps[0], CropStep) else 0
        while k > least and self.kind != MASK and self.steps[k - 1].takes_many():
            k -= 1
        return k

    @property
    def many(self) -> int:
        """How many samples those take in one call."""
        given = self.specs[self.alone]
        if self.alone == len(self.steps) or not given.fixed:
            return 1
        return max(1, _MANY_BYTES // max(1, np.dtype(given.dtype).itemsize * math.prod(n or 0 for n in given.shape)))

    @property
    def sample_result(self) -> Spec:
        """What comes out of a sample, all frames together."""
        return with_frames(self.result, self.frames)


@dataclass(frozen=True)
class Pipeline:
    """A transform for the chosen fields of a store. Any number of threads may use one; it travels by cloudpickle."""

    plans: dict[str, FieldPlan]
    """For the fields that are not just copied."""
    batch_steps: tuple[BatchStep, ...] = ()
    results: dict[str, Spec] = field(default_factory=dict)
    """What comes out in the end, for fields whose shape or dtype is not the store's."""

    @property
    def whole_batches(self) -> bool:
        """Whether a batch must be made by one worker."""
        return bool(self.batch_steps)

    def target(self, name: str, view: Array) -> Array:
        """Where the samples of a field are made: the slot's array, unless a batch step changes their shape or dtype."""
        if not self.batch_steps or name not in self.plans:
            return view
        result = self.plans[name].sample_result
        if view.shape[1:] == result.shape and view.dtype == result.dtype:
            return view
        return np.empty((len(view), *(n or 0 for n in result.shape)), result.dtype)

    def fill(
        self,
        library: ConcatenatedStore,
        rows: NDArray[np.int64],
        outs: Mapping[str, Array],
        seeds: Seeds,
        times: Times,
        check: Check | None,
        clips: NDArray[np.int64] | None = None,
    ) -> None:
        """Make the fields in `plans` of these samples.

        rows: (n,), or (n, frames) for clips. outs: (n, *shape) for each field; for clips (n * frames, *shape), except
        for fields of which a clip has one value. seeds: see `Seeds`. check: called with field and row before a sample
        is read. clips: (n,), their numbers.
        """
        random, each = partial(_for_rows, seeds, rows if clips is None else clips), rows.reshape(-1)
        pixels = [name for name, plan in self.plans.items() if plan.kind in PIXELS]
        for name, plan in self.plans.items():
            if plan.kind not in PIXELS:
                its = each if plan.frames or clips is None else rows[:, 0]
                _fill_numbers(library, name, plan, its, outs[name], random, times)
        if not pixels:
            return
        if len(pixels) == 1 and clips is None:
            # The common case: no other field needs what is drawn.
            name, plan = pixels[0], self.plans[pixels[0]]
            _fill_pixels(library, name, plan, rows, outs[name], random, times, check, None, None)
            return
        drawn: list[dict[int, Any]] = [{} for _ in rows]
        sizes: list[tuple[int, ...]] = []
        for name in pixels:
            plan = self.plans[name]
            _fill_pixels(library, name, plan, each, outs[name], random, times, check, drawn, sizes)

    def finish(self, batch: dict[str, Array], outs: dict[str, Array], seeds: Seeds, times: Times) -> None:
        """Apply the batch steps. batch: the samples; outs: the slot's arrays, for the result."""
        began = time.perf_counter()
        given = ("index", "clip") if batch["index"].ndim == 2 else ("index",)
        random = batch_random(*seeds[:2], batch[given[-1]])
        made = dict(batch)
        for step in self.batch_steps:
            changed = step.apply(made, random)
            unknown = set(changed) - set(outs) | (set(given) & set(changed))
            if unknown:
                raise UsageError(f"{step!r} returned {', '.join(map(repr, sorted(unknown)))}: not in the batch")
            made.update(changed)
        for name, out in outs.items():
            if made[name] is not out:
                _put(made[name], out, "the batch steps", name)
        times.transforming += time.perf_counter() - began


def sides(shape: tuple[int, ...], layout: str) -> tuple[int, int]:
    """(height, width) of an array; of one that is not an image, the lengths of its first two axes."""
    height, width = (*(shape[1:] if layout == "CHW" else shape), 1, 1)[:2]
    return height, width


def with_frames(spec: Spec, frames: int | None) -> Spec:
    """A whole sample whose frames have `spec`."""
    return spec if frames is None else replace(spec, shape=(frames, *spec.shape))


def _for_rows(seeds: Seeds, samples: NDArray[np.int64], rows: NDArray[np.int64]) -> Iterator[tuple[int, Random]]:
    """For each row, the position of its sample and that sample's random numbers: one object for all frames of a
    clip."""
    frames = len(rows) // max(1, len(samples))
    numbers = enumerate(randoms_of(seeds, samples))
    return numbers if frames == 1 else chain.from_iterable(repeat(one, frames) for one in numbers)


def _fill_pixels(
    library: ConcatenatedStore,
    name: str,
    plan: FieldPlan,
    rows: NDArray[np.int64],
    outs: Array,
    random_of: _RandomOf,
    times: Times,
    check: Check | None,
    drawn: list[dict[int, Any]] | None,
    sizes: list[tuple[int, ...]] | None,
) -> None:
    """Make the samples of one field. rows: of all frames. drawn: for each sample, step number -> what was drawn; used
    and added to. sizes: the size of each sample, that of its first field and frame."""
    spent, given = Times(), plan.specs[plan.alone]
    state = library, name, plan, rows, outs, random_of, spent
    steps = list(zip(plan.numbers, plan.steps, plan.fits, plan.specs[:-1], strict=True))[plan.alone :]
    memory: Array = np.empty((min(plan.many, len(rows)), *(n or 0 for n in given.shape)), given.dtype)
    if len(memory) == 1:
        made = _made_alone(*state, check, drawn, sizes)
    elif plan.alone == 0 and check is None and drawn is None and library.fields[name].uniform:
        made = _read_many(*state, memory)
    else:
        made = _collected(_made_alone(*state, check, drawn, sizes), memory, outs)
    for numbered, images, out in made:
        began = time.perf_counter()
        for number, step, fits, before in steps:
            places = _all_drawn(step, number, numbered, images.shape[1:], before.layout, drawn)
            images = step.apply_many(images, places, out if fits else None)
        if images is not out:
            one = len(out) == 1
            _put(images[0] if one else images, out[0] if one else out, plan, name)
        spent.transforming += time.perf_counter() - began
    if not plan.codec.in_place or plan.codec.planar:
        spent.decoding, spent.reading = spent.reading, 0.0
    times.add(spent)


def _read_many(
    library: ConcatenatedStore,
    name: str,
    plan: FieldPlan,
    rows: NDArray[np.int64],
    outs: Array,
    random_of: _RandomOf,
    spent: Times,
    memory: Array,
) -> Iterator[_Made]:
    """The samples as they are stored, as many at a time as `memory` holds."""
    numbered = random_of(rows) if any(map(_draws, plan.steps)) else repeat((0, Random(0)))
    for start in range(0, len(rows), len(memory)):
        part = slice(start, start + len(memory))
        began, its, out = time.perf_counter(), rows[part], outs[part]
        library.read_into(name, its, memory[: len(its)])
        spent.reading += time.perf_counter() - began
        yield list(islice(numbered, len(its))), memory[: len(its)], out


def _collected(made: Iterator[_Made], memory: Array, outs: Array) -> Iterator[_Made]:
    """Samples that were made one by one, as many at a time as `memory` holds. One that is not as declared stays
    alone."""
    some, end = list[_Numbered](), 0
    for numbered, images, out in made:
        alike = images.shape[1:] == memory.shape[1:] and images.dtype == memory.dtype
        if some and not (alike and len(some) < len(memory)):
            yield some, memory[: len(some)], outs[end - len(some) : end]
            some = []
        if alike:
            memory[len(some)] = images[0]
            some += numbered
        else:
            yield numbered, images, out
        end += 1
    if some:
        yield some, memory[: len(some)], outs[end - len(some) : end]


def _made_alone(
    library: ConcatenatedStore,
    name: str,
    plan: FieldPlan,
    rows: NDArray[np.int64],
    outs: Array,
    random_of: _RandomOf,
    spent: Times,
    check: Check | None,
    drawn: list[dict[int, Any]] | None,
    sizes: list[tuple[int, ...]] | None,
) -> Iterator[_Made]:
    """The samples after the steps that take one at a time."""
    clock, alone = time.perf_counter, plan.alone
    crop = plan.steps[0] if plan.steps and isinstance(plan.steps[0], CropStep) else None
    first = 1 if crop is not None else 0
    mask, all_fit = plan.kind == MASK, plan.fits
    later = [
        (number, step.draw, step.apply_mask if mask else step.apply, fits, given.layout)
        for number, step, fits, given in zip(plan.numbers, plan.steps, all_fit, plan.specs[:-1], strict=True)
    ][first:alone]
    if crop is not None:
        crop_number, crop_fits = plan.numbers[0], all_fit[0]
        scales = plan.codec.scales and not mask
        finish = crop.finish_mask if mask else crop.finish
    samples = zip(library.located(name, rows), random_of(rows), rows.tolist(), strict=True)
    for n, ((reader, row), (i, random), sample) in enumerate(samples):
        began, its = clock(), outs[n : n + 1]
        out = its[0, ...]
        if check is not None:
            check(name, sample)
        known = None if drawn is None else drawn[i]
        if sizes is not None:
            same_size(sizes, i, reader.shape(row), name)
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
        yield [(i, random)], its if image is out else np.asarray(image)[None], its


def _all_drawn(
    step: Step,
    number: int,
    numbered: list[_Numbered],
    shape: tuple[int, ...],
    layout: str,
    drawn: list[dict[int, Any]] | None,
) -> list[Any]:
    """What a step draws for samples of one shape."""
    if not _draws(step):
        return [None] * len(numbered)
    if drawn is None:
        height, width = sides(shape, layout)
        return [step.draw(random, height, width) for _, random in numbered]
    return [_drawn(step.draw, number, random, shape, layout, drawn[i]) for i, random in numbered]


def _draws(step: Step) -> bool:
    return type(step).draw is not Step.draw


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


def shapes_of(library: ConcatenatedStore, name: str, rows: NDArray[np.int64]) -> list[tuple[int, ...]]:
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


def _fill_numbers(
    library: ConcatenatedStore,
    name: str,
    plan: FieldPlan,
    rows: NDArray[np.int64],
    outs: Array,
    random_of: _RandomOf,
    times: Times,
) -> None:
    """Make the samples of a number field, such as labels."""
    began = time.perf_counter()
    stored = library.fields[name]
    values: Array = np.empty((len(rows), *(n or 0 for n in stored.shape)), stored.dtype)
    library.read_into(name, rows, values)
    read = time.perf_counter()
    if all(step.vectorized and not _draws(step) for step in plan.steps):
        for step in plan.steps:
            values = step.apply_many(values, [None] * len(values))
        _put(values, outs, plan, name)
    else:
        drawn, last = list[Any](), -1
        for value, (i, random), out in zip(values, random_of(rows), _each(outs), strict=True):
            made = np.asarray(value)
            if i != last:
                drawn, last = [step.draw(random, 1, 1) for step in plan.steps], i
            for step, place in zip(plan.steps, drawn, strict=True):
                made = np.asarray(step.apply(made, place))
            _put(made, out, plan, name)
    times.reading += read - began
    times.transforming += time.perf_counter() - read


def _each(outs: Array) -> Iterator[Array]:
    """A view of each sample, also if that has no axes: numpy's own iteration would give copies then."""
    return (outs[i, ...] for i in range(len(outs)))


def _put(made: Array, out: Array, plan: FieldPlan | str, name: str) -> None:
    """Copy a result into `out`. Raises UsageError if its shape or dtype is not the declared one."""
    shape, dtype = np.shape(made), getattr(made, "dtype", None)
    if shape != out.shape or dtype != out.dtype:
        by = plan if isinstance(plan, str) else ", ".join(map(repr, plan.steps))
        raise UsageError(
            f"{by} made {dtype} {shape} of {name!r}, where {out.dtype} {out.shape} was expected: declare the result of "
            "a function with shape= and dtype=, that of a step of your own with makes()"
        )
    np.copyto(out, made)
