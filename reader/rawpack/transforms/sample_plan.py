"""A transform with functions of whole samples, fitted to the fields of a store: steps on single fields before each of
these, between them and after the last, and the functions themselves.

Workers read a few samples, with boxes and texts, into memory of their own. What differs in length comes out in an array
of the batch that has room for the longest sample, with the length of each next to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, main_image
from rawpack.errors import UsageError
from rawpack.samples.field_rows import FieldRows
from rawpack.samples.sample_set import SampleSet
from rawpack.store.stores import Stores
from rawpack.system.times import Times
from rawpack.system.user import count
from rawpack.transforms.boxes import BoxMover, mover_for
from rawpack.transforms.functions import layout_of
from rawpack.transforms.images import PIXELS, Check, put
from rawpack.transforms.pipeline import Pipeline
from rawpack.transforms.plan import moves_pixels, plan_pipeline
from rawpack.transforms.randomness import Random, Seeds, randoms_of
from rawpack.transforms.samples import Sample, SampleLambda, called, check_shape
from rawpack.transforms.step import Array, BatchStep, Shape, Spec, Step
from rawpack.transforms.texts import OneText
from rawpack.transforms.views import Views, made_by
from rawpack.words import CLIP, INDEX, LENGTH, STORE, STORE_ROW, VALID

Clips = NDArray[np.int64] | None
"""The numbers of clips, (n,); None where samples are not clips."""
Ragged = Callable[..., Mapping[str, Any]]
"""Gives fields by rows, seeds and clips."""
Read = Callable[[NDArray[np.int64], Seeds, Clips], list[Sample]]
_AT_ONCE = 8
"""Samples that are read before functions are called with them."""
_KEYS = 1 << 53


@dataclass(frozen=True)
class SampleStage:
    """One function, and the steps on single fields after it."""

    step: SampleLambda
    fields: Mapping[str, Field]
    made: Mapping[str, Spec]
    """After it: of each field but texts."""
    later: Pipeline

    def apply(self, sample: Sample, random: Random) -> Sample:
        """A sample after the function and the steps. Raises UsageError where it is not as declared."""
        key = random.integer(_KEYS)
        after = called(self.step, sample, random, self.fields, main_image(self.fields))
        for name, spec in self.made.items():
            if name not in after:
                raise UsageError(f"{self.step!r} made no {name!r}, which makes= or the first sample had")
            check_shape(self.step, name, after[name], spec.shape, spec.dtype)
        if unknown := [name for name in after if name not in self.made and name not in self.fields]:
            names = ", ".join(f"{name!r}: ({after[name].shape}, {after[name].dtype.name!r})" for name in unknown)
            raise UsageError(f"{self.step!r} adds {unknown[0]!r}, not known before: declare it, as makes={{{names}}}")
        return self.stepped(after, key)

    def stepped(self, sample: Sample, key: int) -> Sample:
        """A sample after the steps that follow the function."""
        for name, plan in self.later.plans.items():
            if plan.frames is None:
                sample[name] = made_by(plan, name, sample[name], key, 0)
            else:
                sample[name] = np.stack([made_by(plan, name, frame, key, 0) for frame in sample[name]])
        return sample


@dataclass(frozen=True)
class SamplePlan:
    """What workers do to samples as a whole."""

    first: Pipeline
    """The steps before the first function."""
    stages: tuple[SampleStage, ...]
    ragged: Mapping[str, int]
    """The ragged fields, and how many rows there is room for."""
    made: Mapping[str, Spec]
    """What comes out, before steps on batches: of each field of the batch that workers make."""
    lists: tuple[str, ...]
    """The texts and ragged fields that functions get."""
    mover: BoxMover | None
    """What moves boxes in the steps before the first function."""
    texts: Mapping[str, OneText]

    @property
    def steps(self) -> list[Step | BatchStep]:
        """All steps and functions after the first of these."""
        return [step for stage in self.stages for step in (stage.step, *stage.later.steps)]

    @property
    def random(self) -> bool:
        return any(stage.step.random or stage.later.random for stage in self.stages)

    def fill(
        self, read: Read, rows: NDArray[np.int64], outs: Mapping[str, Array], seeds: Seeds, clips: Clips, times: Times
    ) -> None:
        """Make all fields of these samples. read: see `reads`. outs: (n, *shape) for each; the other arguments are as
        of `Pipeline.fill`."""
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            own = (*seeds[:2], seeds[2] + start if seeds[2] >= 0 else seeds[2])
            its = None if clips is None else clips[part]
            samples = read(rows[part], own, its)
            began = time.perf_counter()
            for number, stage in enumerate(self.stages):
                randoms = randoms_of(own, rows[part] if its is None else its, f"sample {number}")
                samples = [stage.apply(sample, random) for sample, random in zip(samples, randoms, strict=True)]
            for i, sample in enumerate(samples, start):
                self._put(sample, outs, i)
            times.transforming += time.perf_counter() - began

    def reads(
        self, library: Stores, field_rows: FieldRows, ragged: Ragged, times: Times, check: Check | None = None
    ) -> Read:
        """What reads samples as they are before the first function, in memory that is theirs. ragged: gives texts and
        ragged fields as lists, moved by the steps before that function; the other arguments are as of
        `Pipeline.fill`."""
        return partial(self._read, library, field_rows, ragged, times, check)

    def _read(
        self, library: Stores, field_rows: FieldRows, ragged: Ragged, times: Times, check: Check | None,
        rows: NDArray[np.int64], seeds: Seeds, clips: Clips,
    ) -> list[Sample]:  # fmt: skip
        memory, n = dict[str, Array](), len(rows)
        for name, plan in self.first.plans.items():
            spec, rows_of_field = plan.result, n * (plan.frames or 1)
            shape = (rows_of_field, *(length or 0 for length in spec.shape)) if spec.fixed else (rows_of_field,)
            memory[name] = np.empty(shape, spec.dtype if spec.fixed else object)
        self.first.fill(library, rows, memory, seeds, times, check, clips, field_rows)
        columns: dict[str, Any] = {}
        for name, values in memory.items():
            frames = self.first.plans[name].frames
            if frames is not None:
                values = values.reshape(n, frames, *values.shape[1:])
            columns[name] = values if frames is None else [np.stack([*clip]) for clip in values]
        columns |= ragged(rows, seeds, clips) if self.lists else {}
        return [{name: column[i] for name, column in columns.items()} for i in range(n)]

    def _put(self, sample: Sample, outs: Mapping[str, Array], i: int) -> None:
        step = self.stages[-1].step
        for name, room in self.ragged.items():
            values, out = sample[name], outs[name][i]
            if len(values) > room:
                raise UsageError(
                    f"{step!r} made {count(len(values), 'row')} of {name!r}, and there is room for {room}: declare the "
                    f"most that it makes, with makes={{{name!r}: ({values.shape}, {values.dtype.name!r})}}, or a "
                    "longer ragged="
                )
            out[: len(values)], out[len(values) :] = values, 0
            outs[LENGTH.format(name)][i] = len(values)
        for name, out in outs.items():
            if name not in self.ragged and name in sample:
                put(sample[name], out[i, ...], repr(step), name)


def plan_samples(
    samples: SampleSet,
    transform: Sequence[Step | BatchStep],
    chosen: Sequence[str],
    before: Sequence[Step],
    length: int,
    room: int | str,
    seed: int,
    texts: Mapping[str, OneText],
    reader_of: Callable[..., Ragged],
    **context: Any,
) -> Pipeline:
    """Fit a transform with functions of whole samples. length: which of the lengths of clips. room: `ragged` of
    `Reader.batches`. reader_of: makes what reads texts and ragged fields, as `RaggedFields` does. context: `alike`,
    `sizes`, `ranges` and `classes` of `plan_pipeline`.

    Where a function does not declare what it makes, it is called with the first sample. Raises UsageError where steps
    and fields do not fit.
    """
    library, (parts, functions) = samples.library, _split(transform)
    frames = {name: samples.frames(name, length) for name in chosen}
    lists = tuple(name for name in chosen if not library.fields[name].in_slot)
    framed = {name for name, length in frames.items() if length is not None}
    _check_lists(functions[0], lists, library.fields, chosen, framed)
    first = plan_pipeline(parts[0], library.fields, chosen, before, frames, open_end=True, **context)
    mover = mover_for(parts[0], library.fields, chosen, before, context["sizes"])
    plan = SamplePlan(first, (), {}, {}, lists, mover, texts)
    fields = {name: library.fields[name] for name in lists}
    most = {name: library.columns.longest(name) for name in lists if fields[name].kind == "ragged"}
    made = {name: first.plans[name].sample_result for name in chosen if name not in lists}
    made |= {name: Spec(tuple(fields[name].shape), fields[name].dtype) for name in most}
    sample, stages = None, list[SampleStage]()
    if any(function.makes_of is None for function in functions):
        read = plan.reads(library, samples.field_rows, reader_of(lists, "list", (mover,)), Times())
        rows, numbers = _first_rows(samples, length)
        if len(rows):  # there may be no clip of this length
            sample = read(rows, (seed, 0, -1), numbers)[0]
    for number, (function, steps) in enumerate(zip(functions, parts[1:], strict=True)):
        before_it = fields | {name: _field(library.fields.get(name), made[name], frames.get(name)) for name in made}
        step = function.for_fields(before_it, {name for name in made if frames.get(name)})
        random = randoms_of((seed, 0, -1), np.zeros(1, np.int64), f"sample {number}").each[0]
        key, declared = random.integer(_KEYS), dict(step.makes_of or {})
        if sample is not None:
            shapes = {name: np.shape(sample[name]) for name in made}
            sample = _tried(step, sample, random, before_it)
            if step.makes_of is None:
                declared = {
                    name: _seen(sample[name], made.get(name), shapes.get(name)) for name in sample if name not in lists
                }
        for name, (shape, dtype) in declared.items():
            if name not in made:
                _check_name(step, name, library)
            if name in most:
                most[name], shape = shape[0] or most[name], (None, *shape[1:])
            if name not in made or len(shape) != len(made[name].shape):
                frames[name] = None
            made[name] = Spec(shape, dtype, layout_of(made.get(name), shape))
        frames = {name: made[name].shape[0] if frames[name] else None for name in made}
        after = fields | {name: _field(library.fields.get(name), made[name], frames[name]) for name in made}
        later = plan_pipeline(
            steps, after, [*after], (), frames, context["classes"], open_end=function is not functions[-1]
        )
        _check_later(step, later, after)
        stages.append(SampleStage(step, before_it, dict(made), later))
        sample = None if sample is None else stages[-1].stepped(sample, key)
        made |= {name: plan.sample_result for name, plan in later.plans.items()}
    for name in most:
        most[name] = max(1, most[name]) if isinstance(room, str) else room
        made |= {
            name: replace(made[name], shape=(most[name], *made[name].shape[1:])),
            LENGTH.format(name): Spec((), "int64"),
        }
    plan = replace(plan, stages=tuple(stages), ragged=most, made=made)
    return replace(first, batch_steps=later.batch_steps, results=made | later.results, samples=plan)


def _check_lists(
    step: SampleLambda, lists: Sequence[str], fields: Mapping[str, Field], chosen: Sequence[str], framed: set[str]
) -> None:
    for name in lists:
        if name in framed or (framed and fields[name].moves):
            raise UsageError(f"{step!r} gets no {fields[name].kind} fields of clips: leave {name!r} out with fields=")
        if fields[name].moves and main_image(fields) not in chosen:
            raise UsageError(f"{step!r} needs the image of {name!r}: name {main_image(fields)!r} in fields= too")


def _seen(value: Array, before: Spec | None, shape: tuple[int, ...] | None) -> tuple[Shape, str]:
    """Shape and dtype that a function makes, as of the one sample that it was tried on. before, shape: of the same
    field before it. An axis that differs between samples, and has the same length as before, still differs."""
    if before is None or shape is None or len(shape) != value.ndim:
        return value.shape, value.dtype.name
    axes = zip(value.shape, shape, before.shape, strict=True)
    return tuple(None if any_length is None and n == m else n for n, m, any_length in axes), value.dtype.name


def _split(transform: Sequence[Step | BatchStep]) -> tuple[list[list[Step | BatchStep]], list[SampleLambda]]:
    """The steps before, between and after functions of whole samples, and these."""
    parts, functions = [list[Step | BatchStep]()], list[SampleLambda]()
    for step in transform:
        if isinstance(step, SampleLambda):
            if earlier := [other for other in parts[-1] if isinstance(other, Views | BatchStep)]:
                raise UsageError(f"{step!r} comes after {earlier[0]!r}: put it before, where samples are still whole")
            functions.append(step)
            parts.append([])
        else:
            parts[-1].append(step)
    return parts, functions


def _first_rows(samples: SampleSet, length: int) -> tuple[NDArray[np.int64], Clips]:
    """The row of the first sample, (1,); of clips, the rows of the first of this length, (1, n), and its number."""
    if samples.clips is None:
        return samples.numbers(np.arange(1)), None
    numbers = samples.numbers(np.flatnonzero(samples.clips.buckets(samples.selection) == length)[:1])
    return samples.clips.rows(numbers, 0, 0), numbers


def _tried(step: SampleLambda, sample: Sample, random: Random, fields: Mapping[str, Field]) -> Sample:
    """What the function makes of the first sample. Raises UsageError where it fails."""
    try:
        return called(step, sample, random, fields, main_image(fields))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{step!r} failed for the first sample, on which it is tried: {type(error).__name__}: {error}; with makes= "
            "it is not tried"
        ) from error


def _field(stored: Field | None, spec: Spec, frames: int | None) -> Field:
    """A field as steps after a function see it. frames: of a clip, which are its first axis."""
    shape = spec.shape if frames is None else spec.shape[1:]
    base = Field(kind="number", dtype=spec.dtype, array=True) if stored is None else stored
    number = base.kind in PIXELS and len(shape) == 3 and spec.layout != "HWC"
    return msgspec.structs.replace(
        base, kind="number" if number else base.kind, dtype=spec.dtype, shape=shape, encoding="raw"
    )


def _check_name(step: SampleLambda, name: str, library: Stores) -> None:
    """Raise UsageError for the name of a new field that means something else."""
    if name in library.fields:
        raise UsageError(f"{step!r} adds {name!r}, which the store has: name it in fields=, or add it by another name")
    if name in (INDEX, CLIP, VALID, STORE, STORE_ROW) or name.endswith(LENGTH.format("")):
        raise UsageError(f"{step!r} adds {name!r}, a name that batches use for something else: choose another")


def _check_later(step: SampleLambda, later: Pipeline, fields: Mapping[str, Field]) -> None:
    """Raise UsageError for steps after a function that would have to move boxes, or to swap the images of a pair."""
    boxes = next((name for name, field in fields.items() if field.moves), None)
    for name, plan in later.plans.items():
        for mover, spec, made in zip(plan.steps, plan.specs, plan.specs[1:], strict=False):
            if (boxes or later.pairs) and moves_pixels(mover, spec, made):
                raise UsageError(
                    f"{mover!r} moves the pixels of {name!r} after {step!r}, where {boxes or 'the other image'!r} "
                    "cannot follow: put it before the function, or do it in the function"
                )
