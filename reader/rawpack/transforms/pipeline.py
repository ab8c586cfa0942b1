"""A transform, fitted to the fields of a store by `plan.py`: it makes the samples of a batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.samples.field_rows import OWN_ROWS, FieldRows
from rawpack.store.stores import Stores
from rawpack.system.times import Times
from rawpack.transforms.displacements import by_step, plan_flips, swap
from rawpack.transforms.fused import Fused, fused
from rawpack.transforms.images import PIXELS, Check, ImageFiller, Known, Share, draws_at_random, put
from rawpack.transforms.randomness import Randoms, Seeds, batch_random, randoms_of
from rawpack.transforms.step import Array, BatchStep, CropStep, Drawn, Spec, Step, agrees, draws, guarded
from rawpack.words import CLIP, INDEX, ROWS

if TYPE_CHECKING:
    from rawpack.transforms.sample_plan import SamplePlan

_MANY_BYTES, _FEWEST = 1 << 19, 8
"""Of the samples that go through the last steps in one call: they stay in the processor's cache. Collecting fewer than
these does not pay."""


@dataclass(frozen=True)
class FieldPlan:
    steps: tuple[Step, ...]
    numbers: tuple[int, ...]
    """The number of each step in the whole transform, under which what it draws is kept."""
    specs: tuple[Spec, ...]
    """Before the first step, and after each; for clips, those of one frame."""
    field: Field
    frames: int | None = None
    """How many a sample has; None where it has one value."""
    shares: tuple[Share, ...] = ()
    """How each step is drawn where the sample has other images."""
    paired: bool = False
    """Whether it is of a stereo pair, whose images change places where they are mirrored."""

    def __getstate__(self) -> dict[str, Any]:
        # Without what was computed from these: the pickle of a plan that was used is that of one that was not.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def result(self) -> Spec:
        return self.specs[-1]

    @cached_property
    def crop(self) -> CropStep | None:
        if not self.steps or not isinstance(self.steps[0], CropStep) or self.field.displacement is not msgspec.UNSET:
            return None
        return self.steps[0]

    def applied(self, k: int) -> Callable[..., Array]:
        """What makes one sample by step k."""
        step = self.steps[k]
        apply = guarded(step, step.apply_mask if self.field.exact else step.apply)
        if self.field.displacement is msgspec.UNSET or self.specs[k].layout != "HWC":
            return apply
        return by_step(step, apply, self.field, self.paired)

    @cached_property
    def drawing(self) -> tuple[Callable[[Randoms, int, int], Drawn] | None, ...]:
        """What draws for several samples, for each step: its `draw_many`, but not where a derived class overrides only
        `draw`; None where it draws nothing."""
        return tuple(
            (share.step.draw_many if agrees(share.step, "draw_many", "draw") else partial(Step.draw_many, share.step))
            if draws(share.step)
            else None
            for share in self.shares
        )

    @cached_property
    def fused(self) -> Fused | None:
        """How the native core makes the samples of a slice in one call, where it can."""
        return fused(self)

    @cached_property
    def fits(self) -> tuple[bool, ...]:
        """Of each step: whether it makes the shape and dtype of `result`, and may be handed the memory for that."""
        result = self.result.shape, self.result.dtype
        return tuple(self.result.fixed and (made.shape, made.dtype) == result for made in self.specs[1:])

    @cached_property
    def alone(self) -> int:
        """How many steps are applied to one sample at a time. Those after them take several (`Step.apply_many`)."""
        k, least = len(self.steps), 0 if self.crop is None else 1
        while k > least and not self.field.exact:
            step = self.steps[k - 1]
            if not (step.vectorized and agrees(step, "vectorized", "apply")):
                break
            k -= 1
        return k

    @cached_property
    def many(self) -> int:
        """How many samples those take in one call."""
        given = self.specs[self.alone]
        if self.alone == len(self.steps) or not given.fixed:
            return 1
        many = _MANY_BYTES // max(1, np.dtype(given.dtype).itemsize * math.prod(n or 0 for n in given.shape))
        return many if many >= _FEWEST else 1

    @property
    def sample_result(self) -> Spec:
        """What comes out of a sample, all frames together."""
        return self.result if self.frames is None else replace(self.result, shape=(self.frames, *self.result.shape))


@dataclass(frozen=True)
class Pipeline:
    """A transform for the chosen fields of a store. Any number of threads may use one; it travels by cloudpickle."""

    plans: dict[str, FieldPlan]
    """For the fields that are not just copied."""
    batch_steps: tuple[BatchStep, ...]
    """With any, a batch must be made by one worker."""
    results: dict[str, Spec]
    """What comes out in the end, for fields whose shape or dtype is not the store's."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Images that change places where they are mirrored, as those of a stereo pair."""
    samples: SamplePlan | None = None
    """With functions of whole samples: what makes all fields, of which `plans` is only the beginning."""

    @cached_property
    def pixels(self) -> tuple[str, ...]:
        """Those of images and masks, in the order in which they are drawn for."""
        return tuple(name for name, plan in self.plans.items() if plan.field.kind in PIXELS)

    @property
    def steps(self) -> list[Step | BatchStep]:
        drawing = [share.step for plan in self.plans.values() for share in plan.shares]
        whole = [] if self.samples is None else self.samples.steps
        return [*(step for plan in self.plans.values() for step in plan.steps), *drawing, *whole, *self.batch_steps]

    @property
    def random(self) -> bool:
        """Whether it uses random numbers, so that epochs differ."""
        steps = (step for plan in self.plans.values() for step in plan.steps)
        if self.samples is not None and self.samples.random:
            return True
        return any(step.random for step in self.batch_steps) or any(map(draws_at_random, steps))

    @property
    def takes_many(self) -> bool:
        """Whether every step takes several samples at a time, of whichever batches."""
        return not (self.batch_steps or self.samples) and all(plan.alone == 0 for plan in self.plans.values())

    def target(self, name: str, view: Array) -> Array:
        """Where the samples of a field are made: the slot's array, unless a batch step changes their shape or dtype."""
        made = self.plans if self.samples is None else self.samples.made
        if not self.batch_steps or name not in made:
            return view
        result = self.plans[name].sample_result if self.samples is None else self.samples.made[name]
        if view.shape[1:] == result.shape and view.dtype == result.dtype:
            return view
        return np.empty((len(view), *(n or 0 for n in result.shape)), result.dtype)

    def fill(
        self,
        library: Stores,
        rows: NDArray[np.int64],
        outs: Mapping[str, Array],
        seeds: Seeds,
        times: Times,
        check: Check | None,
        clips: NDArray[np.int64] | None = None,
        field_rows: FieldRows = OWN_ROWS,
    ) -> None:
        """Make the fields in `plans` of these samples.

        rows: (n,), or (n, frames) for clips. outs: (n, *shape) for each field, or (n * frames, *shape). seeds: see
        `Seeds`. check: called with field and row before a sample is read. clips: (n,), their numbers. field_rows: which
        rows each field is read from.
        """
        samples = rows if clips is None else clips
        for name, plan in self.plans.items():
            if name not in self.pixels:
                its = field_rows.of(name, rows)
                _fill_numbers(library, name, plan, its, outs[name], randoms_of(seeds, samples), times)
        alone = len(self.pixels) == 1 and not field_rows.framed(self.pixels[0])
        # Where boxes are read without their image, a larger image is cropped as if that image were read, too.
        alone = alone and all(share.times == 1 for share in self.plans[self.pixels[0]].shares)
        known: dict[int, Known] | None = None if alone else {}
        for name in self.pixels:
            plan, randoms = self.plans[name], randoms_of(seeds, samples, "" if name == self.pixels[0] else name)
            its = field_rows.of(name, rows)
            ImageFiller(library, name, plan, its, outs[name], randoms, check, known).fill(times)
        if self.pairs and known is not None:
            swap(self.pairs, plan_flips(self.plans[self.pairs[0][0]]), known, outs)

    def finish(self, batch: dict[str, Array], outs: dict[str, Array], seeds: Seeds, times: Times) -> None:
        """Apply the batch steps. batch: the samples; outs: the slot's arrays, for the result."""
        began = time.perf_counter()
        made = dict(batch)
        rows, outs = made.pop(ROWS), {name: out for name, out in outs.items() if name != ROWS}
        given = (INDEX, CLIP) if rows.ndim == 2 else (INDEX,)
        random = batch_random(*seeds[:2], batch[CLIP] if rows.ndim == 2 else rows)
        for step in self.batch_steps:
            before = dict(made)
            # A function may return the batch that it got, whose index it did not replace.
            changed = {name: new for name, new in step.apply(made, random).items() if new is not before.get(name)}
            unknown = set(changed) - set(outs) | (set(given) & set(changed))
            if unknown:
                raise UsageError(
                    f"{step!r} returned {', '.join(map(repr, sorted(unknown)))}: a step cannot add fields to the "
                    f"batch; it can replace {', '.join(name for name in outs if name not in given)}"
                )
            made.update(changed)
        for name, out in outs.items():
            if made[name] is not out:
                put(made[name], out, "the batch steps", name)
        times.transforming += time.perf_counter() - began


def _fill_numbers(
    library: Stores, name: str, plan: FieldPlan, rows: NDArray[np.int64], outs: Array, randoms: Randoms, times: Times
) -> None:
    began = time.perf_counter()
    values: Array = np.empty((len(rows), *(n or 0 for n in plan.field.shape)), plan.field.dtype)
    library.read_into(name, rows, values)
    read = time.perf_counter()
    if all(step.vectorized and not draws(step) for step in plan.steps):
        for step in plan.steps:
            values = guarded(step, step.apply_many)(values, [None] * len(values))
        put(values, outs, plan, name)
    else:
        drawn, frames = list[Any](), len(rows) // max(1, len(randoms))
        applied = [guarded(step, step.apply) for step in plan.steps]
        for n, value in enumerate(values):
            made = np.asarray(value)
            if n % frames == 0:
                drawn = [step.draw(randoms.each[n // frames], 1, 1) for step in plan.steps]
            for apply, place in zip(applied, drawn, strict=True):
                made = np.asarray(apply(made, place))
            put(made, outs[n, ...], plan, name)
    times.reading += read - began
    times.transforming += time.perf_counter() - read
