"""Images whose values are distances in their own pixels: a flow, or the disparity of a stereo pair. A step that moves
pixels changes these values too, by what its `move` says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rawpack.disk.manifest import Field
from rawpack.errors import DecodeError, UsageError
from rawpack.system.user import warn
from rawpack.transforms.crops import CenterCrop, RandomCrop
from rawpack.transforms.fields import DISPARITY, displaced, may_be_flow
from rawpack.transforms.flips import RandomHorizontalFlip
from rawpack.transforms.images import IMAGE, PIXELS, Known
from rawpack.transforms.step import Array, Step, moves

if TYPE_CHECKING:
    from rawpack.transforms.pipeline import FieldPlan

_STAY = (CenterCrop, RandomCrop)
"""Steps that move no pixel relative to another."""


def by_step(step: Step, apply: Callable[..., Array], field: Field, pair: bool) -> Callable[..., Array]:
    """What makes one sample of a field of displacements: `apply`, a method of the step that moves their places, and
    then their values. pair: whether pictures that are mirrored change places."""
    return partial(_by_step, step, apply, field, pair)


def _by_step(
    step: Step,
    apply: Callable[..., Array],
    field: Field,
    pair: bool,
    image: Array,
    drawn: Any,
    out: Array | None = None,
) -> Array:
    move = step.move(drawn, image.shape[0], image.shape[1])
    if move.scale_x < 0 and field.displacement == DISPARITY and not pair:
        raise UsageError(_mirrored(step, "a disparity"))
    try:
        return displaced(apply(image, drawn, out), field, move.scale_y, move.scale_x)
    except DecodeError as error:
        raise UsageError(f"{step!r}: {error.detail}") from error


def _mirrored(step: Step, name: str) -> str:
    return (
        f"{step!r} mirrors {name}, whose values are distances to the other picture of a pair, so the two pictures must "
        "change places: that needs both pictures and the disparity of each in the batch, of one size, with the same "
        "steps from the flip on, outside Views, and no other images, masks or boxes. Name other images in fields= of "
        "the step, or leave the step out"
    )


@dataclass
class Checks:
    """What is looked at while steps are fitted to fields, and what is said of it."""

    fields: Mapping[str, Field]
    main: str
    in_views: Sequence[Step]
    mirrored: dict[str, list[Step]] = field(default_factory=dict)
    """Disparities, and the steps that mirror them."""
    undeclared: dict[str, Step] = field(default_factory=dict)
    """Further images that look like a flow, and the first step that would change it."""

    def see(self, name: str, step: Step) -> None:
        """Look at a step that moves pixels of an image. Raises UsageError where it does not say where to."""
        field = self.fields[name]
        if field.kind != IMAGE or not moves(step) or isinstance(step, _STAY):
            return
        if name != self.main and may_be_flow(field):
            self.undeclared.setdefault(name, step)
        if field.displacement is msgspec.UNSET:
            return
        if type(step).move is Step.move:
            raise UsageError(
                f"{step!r} moves pixels, and does not say where to, so the values of {name!r} cannot follow, which is "
                f"{field.displacement}: give it a method move(), or name the fields of the step with fields="
            )
        if field.displacement == DISPARITY and isinstance(step, RandomHorizontalFlip) and step.p > 0:
            if any(one is step for one in self.in_views):
                raise UsageError(_mirrored(step, repr(name)))
            self.mirrored.setdefault(name, []).append(step)

    def pairs(self, plans: Mapping[str, FieldPlan]) -> tuple[tuple[str, str], ...]:
        """The images that change places where a flip mirrors them: the pictures, and their disparities. Warns of
        undeclared ones. Raises UsageError where there is no such pair."""
        for name, step in self.undeclared.items():
            warn(
                f"{name!r}, {self.fields[name].dtype} with two channels, looks like a flow: {step!r} moves its pixels "
                f"and leaves its values as they are. Pack it with fields={{{name!r}: 'flow'}} if they are distances "
                "in pixels"
            )
        if not self.mirrored:
            return ()
        pixels = [name for name in plans if self.fields[name].kind in PIXELS or self.fields[name].moves]
        pairs = [tuple(names) for _, names in groupby(sorted(pixels, key=self._role), self._role)]
        name, steps = next(iter(self.mirrored.items()))
        numbers = {one: _from_flip(plan) for one, plan in plans.items()}
        alike = all(
            len(pair) == 2 and self.fields[pair[0]] == self.fields[pair[1]] and len({numbers[one] for one in pair}) == 1
            for pair in pairs
        ) and all(plans[pair[0]].result == plans[pair[-1]].result for pair in pairs)
        flips = {plan_flips(plans[one]) for one in pixels}
        if len(pairs) != 2 or not alike or len(flips) != 1:
            raise UsageError(_mirrored(steps[0], repr(name)))
        return tuple((pair[0], pair[1]) for pair in pairs)

    def _role(self, name: str) -> str:
        field = self.fields[name]
        return field.kind if field.displacement is msgspec.UNSET else field.displacement


def plan_flips(plan: FieldPlan) -> tuple[int, ...]:
    steps = zip(plan.numbers, plan.steps, strict=True)
    return tuple(number for number, step in steps if isinstance(step, RandomHorizontalFlip))


def _from_flip(plan: FieldPlan) -> tuple[int, ...]:
    first = min(plan_flips(plan), default=None)
    return () if first is None else plan.numbers[plan.numbers.index(first) :]


def swap(
    pairs: Iterable[tuple[str, str]], flips: Sequence[int], known: Mapping[int, Known], outs: Mapping[str, Array]
) -> None:
    """Let the images of pairs change places in the samples that were mirrored. flips: the numbers of the steps that
    mirror. outs: by field, (n, *shape), or of clips (n * frames, *shape)."""
    drawn = np.array([known[number].drawn for number in flips], np.bool_)
    mirrored: Array = np.logical_xor.reduce(drawn, axis=0)
    for one, other in pairs:
        rows = np.repeat(mirrored, len(outs[one]) // max(1, len(mirrored)))
        outs[one][rows], outs[other][rows] = outs[other][rows], outs[one][rows]
