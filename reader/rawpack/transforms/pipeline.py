"""A list of steps, fitted to the fields of a store, and run on sample after sample.

What the steps make is known before the first sample, and so is the slot. Three things save work:

- a step whose result has the shape and dtype of the slot is handed the slot's memory;
- a crop that comes first is all that is read and decoded of a sample (`CropStep`);
- steps that change bytes one by one are done for all 256 of them beforehand (`values.ByTable`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.disk.tables import Codec
from rawpack.errors import UsageError
from rawpack.store.concatenated import ConcatenatedStore
from rawpack.system.times import Times
from rawpack.transforms.functions import Lambda
from rawpack.transforms.randomness import Random, batch_random, randoms
from rawpack.transforms.step import Array, BatchStep, CropStep, Spec, Step
from rawpack.transforms.values import ByTable, by_tables

MASK = "mask"
PIXELS = ("image", MASK)
"""The kinds of fields that a step without a field is applied to, with what was drawn once for all of them."""
Transform = Sequence[Step | BatchStep | Callable[[Array], Any]]
Check = Callable[[str, int], None]


@dataclass(frozen=True)
class FieldPlan:
    """What is done to one field."""

    steps: tuple[Step, ...]
    numbers: tuple[int, ...]
    """Of each step, in the whole transform: what was drawn for a step is found by its number."""
    fits: tuple[bool, ...]
    """Of each step: whether its result has the shape and dtype of `made`, so that it may lie where that is wanted."""
    made: Spec
    """What comes out; of clips, of one frame."""
    kind: str
    """Of the field."""
    codec: Codec
    frames: int | None = None
    """Of a clip; None where samples are no clips, and of what a clip has once."""

    @property
    def whole(self) -> Spec:
        """What comes out of a whole sample."""
        return _whole(self.made, self.frames)


@dataclass(frozen=True)
class Pipeline:
    """A transform for the chosen fields of a store. Any number of threads may use one; it travels by cloudpickle."""

    lines: dict[str, FieldPlan]
    """Those fields that are more than copied."""
    batch_steps: tuple[BatchStep, ...] = ()
    makes: dict[str, Spec] = field(default_factory=dict)
    """What comes out in the end, of the fields whose shape or dtype is not the store's."""

    @property
    def whole_batches(self) -> bool:
        """Whether a batch must be made by one worker."""
        return bool(self.batch_steps)

    def spec(self, name: str, stored: Field) -> Spec:
        """What a batch holds of a field."""
        return self.makes.get(name) or spec_of(stored)

    def room(self, name: str, view: Array) -> Array:
        """Where the samples of a field are made: the slot's array, unless a batch step changes their shape or dtype."""
        if not self.batch_steps or name not in self.lines:
            return view
        made = self.lines[name].whole
        if view.shape[1:] == made.shape and view.dtype == made.dtype:
            return view
        return np.empty((len(view), *(n or 0 for n in made.shape)), made.dtype)

    def fill(
        self,
        library: ConcatenatedStore,
        rows: NDArray[np.int64],
        outs: Mapping[str, Array],
        seeds: tuple[int, int],
        times: Times,
        check: Check | None,
        clips: NDArray[np.int64] | None = None,
    ) -> None:
        """Make these samples of all of `lines`. rows: (n,), or of clips (n, frames). outs: (n, *shape) for each; of
        clips (n * frames, *shape), but for what a clip has once. seeds: (seed, epoch). check: called with field and row
        before a sample is read. clips: (n,), their numbers."""
        random, each = _Randoms(*seeds, rows if clips is None else clips), rows.reshape(-1)
        pixels = [name for name, line in self.lines.items() if line.kind in PIXELS]
        for name, line in self.lines.items():
            if line.kind not in PIXELS:
                its = each if line.frames or clips is None else rows[:, 0]
                _fill_numbers(library, name, line, its, outs[name], random, times)
        if not pixels:
            return
        if len(pixels) == 1 and clips is None:
            # The common case, without the notes of what was drawn.
            name, line = pixels[0], self.lines[pixels[0]]
            _fill_pixels(library, name, line, rows, outs[name], random, times, check, None, None)
            return
        drawn: list[dict[int, Any]] = [{} for _ in rows]
        sizes: list[tuple[int, ...]] = []
        for name in pixels:
            line = self.lines[name]
            _fill_pixels(library, name, line, each, outs[name], random, times, check, drawn, sizes)

    def finish(self, batch: dict[str, Array], outs: dict[str, Array], seeds: tuple[int, int], times: Times) -> None:
        """Do the batch steps. batch: where samples are; outs: the slot's arrays, where they end."""
        began = time.perf_counter()
        given = ("index", "clip") if batch["index"].ndim == 2 else ("index",)
        random = batch_random(*seeds, batch[given[-1]])
        made = dict(batch)
        for step in self.batch_steps:
            changed = step.apply(made, random)
            unknown = set(changed) - set(outs) | (set(given) & set(changed))
            if unknown:
                raise UsageError(f"{step!r} returned {', '.join(map(repr, sorted(unknown)))}, which a batch has not")
            made.update(changed)
        for name, out in outs.items():
            if made[name] is not out:
                _put(made[name], out, "the batch steps", name)
        times.transforming += time.perf_counter() - began


def plan(
    transform: Transform,
    fields: Mapping[str, Field],
    chosen: Sequence[str],
    before: Sequence[Step] = (),
    frames: int | None = None,
    once: Sequence[str] = (),
) -> Pipeline:
    """Fit a transform to the chosen fields of a store. before: steps that come first. frames: where samples are clips;
    once: fields that a clip has one value of. Steps work on frames, those on batches on whole clips.

    Raises UsageError where steps and fields do not fit, or where samples of different shapes would come out.
    """
    steps = [*before, *as_steps(transform)]
    singles = [step for step in steps if isinstance(step, Step)]
    batch_steps = tuple(step for step in steps if isinstance(step, BatchStep))
    if steps[: len(singles)] != singles:
        first = next(step for step in steps if isinstance(step, BatchStep))
        raise UsageError(f"{first!r} works on whole batches: put it after all steps that work on samples")
    for step in singles:
        if step.field is not None and step.field not in chosen:
            raise UsageError(f"{step!r}: the batch has no field {step.field!r}, only {', '.join(chosen)}")
        if step.field is not None and fields[step.field].kind not in (*PIXELS, "number"):
            raise UsageError(f"{step!r}: {step.field!r} is {fields[step.field].kind}, which workers do not transform")
    lines, masks = {}, any(fields[name].kind == MASK for name in chosen)
    for name in chosen:
        mine = [(n, step) for n, step in enumerate(singles) if concerns(step, name, fields[name])]
        if mine:
            lines[name] = _line(mine, fields[name], None if name in once else frames, masks)
    makes = {name: line.whole for name, line in lines.items()}
    specs = {
        name: makes.get(name) or _whole(spec_of(fields[name]), None if name in once else frames)
        for name in chosen
        if fields[name].in_slot
    }
    for whole in batch_steps:
        made = dict(whole.makes(specs))
        if unknown := set(made) - set(specs):
            raise UsageError(f"{whole!r} makes {', '.join(map(repr, sorted(unknown)))}: a step makes no new fields")
        specs.update(made)
        makes.update(made)
    for name, spec in specs.items():
        if not spec.fixed:
            raise UsageError(
                f"the samples of {name!r} come out of the transform in different sizes, {spec.shape}, so they make no "
                "batch: end with a size, as CenterCrop(224), Resize((224, 224)) or RandomResizedCrop(224) do"
            )
    # A batch step may change any field: what it replaces is made in a place of its own.
    if batch_steps:
        for name in specs:
            if name not in lines and name in makes:
                lines[name] = _line([], fields[name], None if name in once else frames)
    return Pipeline(lines, batch_steps, makes)


def spec_of(stored: Field) -> Spec:
    """What a store holds of a field."""
    layout = "HWC" if stored.kind in PIXELS and len(stored.shape) == 3 else ""
    return Spec(stored.shape, stored.dtype, layout)  # type: ignore[arg-type]


def as_steps(transform: Transform) -> list[Step | BatchStep]:
    """The steps of a transform, functions as steps. UsageError for what is none."""
    if callable(transform) or isinstance(transform, Step | BatchStep):
        raise UsageError(f"transform={transform!r}: a list of steps, [{transform!r}]")
    steps = list[Step | BatchStep]()
    for one in transform:
        if isinstance(one, Step | BatchStep):
            steps.append(one)
        elif callable(one) and not isinstance(one, type):
            steps.append(Lambda(one))
        else:
            raise UsageError(f"{one!r} in transform= is no step: an instance of rawpack.transforms, or a function")
    return steps


def concerns(step: Step, name: str, stored: Field) -> bool:
    """Whether a step is applied to a field."""
    return step.field == name or (step.field is None and stored.kind in PIXELS and len(stored.shape) == 3)


def _whole(spec: Spec, frames: int | None) -> Spec:
    """What a whole sample has, where a frame of it has `spec`."""
    return spec if frames is None else replace(spec, shape=(frames, *spec.shape))


def _line(numbered: list[tuple[int, Step]], stored: Field, frames: int | None, masks: bool = False) -> FieldPlan:
    """masks: whether the batch has any."""
    specs, steps = [spec_of(stored)], list[Step]()
    kind: str = stored.kind
    for _, step in numbered:
        made = step.makes_mask(specs[-1]) if kind == MASK else step.makes(specs[-1])
        if masks and kind == "image":
            _check_masks(step, specs[-1], made)
        steps.append(step.fitted(specs[-1]))
        specs.append(made)
    tabled = steps if kind == MASK else by_tables(steps, specs)
    numbers, fits, at = list[int](), list[bool](), 0
    for step in tabled:
        numbers.append(numbered[at][0])
        at += len(step.steps) if isinstance(step, ByTable) else 1
        fits.append((specs[at].shape, specs[at].dtype) == (specs[-1].shape, specs[-1].dtype))
    return FieldPlan(tuple(tabled), tuple(numbers), tuple(fits), specs[-1], kind, stored.codec, frames)


def _check_masks(step: Step, spec: Spec, made: Spec) -> None:
    resized = "HWC" in (spec.layout, made.layout) and made.layout != "CHW" and len(made.shape) == 3
    if resized and made.shape[:2] != spec.shape[:2] and step.field is None and type(step).apply_mask is Step.apply_mask:
        raise UsageError(
            f"{step!r} changes the size of images, {spec.shape} to {made.shape}, and leaves masks as they are: write "
            "it as a Step with a method apply_mask(), name its field with field=, or leave masks out with fields="
        )


class _Randoms:
    """The random numbers of some samples, each for as many rows as a sample has."""

    def __init__(self, seed: int, epoch: int, samples: NDArray[np.int64]) -> None:
        self._asked = seed, epoch, samples

    def of(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, Random]]:
        """For each row the position of its sample, and that sample's random numbers: the same object for all frames of
        a clip."""
        frames = len(rows) // max(1, len(self._asked[2]))
        numbers = enumerate(randoms(*self._asked))
        return numbers if frames == 1 else chain.from_iterable(repeat(one, frames) for one in numbers)


def _fill_pixels(
    library: ConcatenatedStore,
    name: str,
    line: FieldPlan,
    rows: NDArray[np.int64],
    outs: Array,
    numbers: _Randoms,
    times: Times,
    check: Check | None,
    drawn: list[dict[int, Any]] | None,
    sizes: list[tuple[int, ...]] | None,
) -> None:
    """Make the samples of one field. rows: of all frames. drawn: of each sample, what was drawn for which step, used
    and added to; sizes: of the samples, as their first field and frame has it."""
    clock = time.perf_counter
    reading = transforming = 0.0
    crop = line.steps[0] if line.steps and isinstance(line.steps[0], CropStep) else None
    first = 1 if crop is not None else 0
    mask = line.kind == MASK
    later = [
        (number, step.draw, step.apply_mask if mask else step.apply, fits)
        for number, step, fits in zip(line.numbers[first:], line.steps[first:], line.fits[first:], strict=True)
    ]
    if crop is not None:
        crop_number, crop_fits = line.numbers[0], line.fits[0]
        scales = line.codec.scales and not mask
        finish = crop.finish_mask if mask else crop.finish
    samples = zip(library.located(name, rows), numbers.of(rows), _each(outs), rows.tolist(), strict=True)
    for (reader, row), (i, random), out, sample in samples:
        began = clock()
        if check is not None:
            check(name, sample)
        known = None if drawn is None else drawn[i]
        if sizes is not None:
            _same_size(sizes, i, reader.shape(row), name)
        if crop is not None:
            height, width = reader.shape(row)[:2]
            place = _drawn(crop.draw, crop_number, random, height, width, known)
            part = reader.read(row, crop.box(place), crop.reduction(place) if scales else 1)
            read = clock()
            image = finish(part, place, out if crop_fits else None)
        else:
            image = reader.read(row)
            read = clock()
        for number, draw, apply, fits in later:
            shape = image.shape
            place = _drawn(draw, number, random, shape[0], shape[1] if len(shape) > 1 else 1, known)
            image = apply(image, place, out if fits else None)
        if image is not out:
            _put(image, out, line, name)
        reading += read - began
        transforming += clock() - read
    if line.codec.in_place and not line.codec.planar:
        times.reading += reading
    else:
        times.decoding += reading
    times.transforming += transforming


def _drawn(
    draw: Callable[[Random, int, int], Any],
    number: int,
    random: Random,
    height: int,
    width: int,
    known: dict[int, Any] | None,
) -> Any:
    if known is None:
        return draw(random, height, width)
    if number not in known:
        known[number] = draw(random, height, width)
    return known[number]


def _same_size(sizes: list[tuple[int, ...]], i: int, shape: tuple[int, ...], name: str) -> None:
    if len(sizes) <= i:
        sizes.append(shape[:2])
    elif sizes[i] != shape[:2]:
        raise UsageError(
            f"{name!r} is {shape[0]}x{shape[1]} and another image of the sample {sizes[i][0]}x{sizes[i][1]} (height x "
            "width): only what has one size moves together; leave one out with fields=, or pack frames with --size"
        )


def _fill_numbers(
    library: ConcatenatedStore,
    name: str,
    line: FieldPlan,
    rows: NDArray[np.int64],
    outs: Array,
    numbers: _Randoms,
    times: Times,
) -> None:
    """Make the samples of a number field: labels and the like."""
    began = time.perf_counter()
    stored = library.fields[name]
    values: Array = np.empty((len(rows), *(n or 0 for n in stored.shape)), stored.dtype)
    library.read_into(name, rows, values)
    read = time.perf_counter()
    if all(step.vectorised for step in line.steps):
        for step in line.steps:
            values = step.apply(values, None)
        _put(values, outs, line, name)
    else:
        drawn, last = list[Any](), -1
        for value, (i, random), out in zip(values, numbers.of(rows), _each(outs), strict=True):
            made = np.asarray(value)
            if i != last:
                drawn, last = [step.draw(random, 1, 1) for step in line.steps], i
            for step, place in zip(line.steps, drawn, strict=True):
                made = np.asarray(step.apply(made, place))
            _put(made, out, line, name)
    times.reading += read - began
    times.transforming += time.perf_counter() - read


def _each(outs: Array) -> Iterator[Array]:
    """The array of each sample, also where that has no axes: numpy's own iteration would give copies there."""
    return (outs[i, ...] for i in range(len(outs)))


def _put(made: Array, out: Array, line: FieldPlan | str, name: str) -> None:
    """Copy a result to its place. UsageError where it is not what was announced."""
    shape, dtype = np.shape(made), getattr(made, "dtype", None)
    if shape != out.shape or dtype != out.dtype:
        by = line if isinstance(line, str) else ", ".join(map(repr, line.steps))
        raise UsageError(
            f"{by} made {dtype} {shape} of {name!r}, where {out.dtype} {out.shape} was announced: a function says what "
            "it makes with shape= and dtype=, a step of your own with makes()"
        )
    np.copyto(out, made)
