"""Several views of each image, made with independent random numbers: for contrastive learning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.order.keys import WORD, mix
from rawpack.transforms import instead
from rawpack.transforms.functions import Lambda, refuse_misplaced
from rawpack.transforms.images import put, sides
from rawpack.transforms.pipeline import FieldPlan
from rawpack.transforms.randomness import Random
from rawpack.transforms.samples import SampleLambda
from rawpack.transforms.step import Array, BatchStep, Step, draws, read_only

_KEYS = 1 << 53


class Views(Step):
    """Each image `n` times, by the same steps with independent random numbers: (n, H, W, C) for each sample.

    The image is read and decoded once. View k of all images and masks of a sample has the same random numbers. It comes
    after all other steps on images; those of a batch, such as MixUp, may follow. Boxes are refused.
    """

    refuses = ("boxes",)

    def __init__(
        self, n: int, steps: Sequence[Step | Callable[[Array], Any]], *, fields: Sequence[str] | None = None
    ) -> None:
        """n: how many. steps: what is done to each, steps and functions as in a transform. fields: the images and
        masks; None for all."""
        self.n = whole_number("n", n, 1)
        if isinstance(steps, Iterator):
            steps = list(steps)
        instead.check(steps)
        listed = isinstance(steps, Iterable) and not isinstance(steps, str) and not callable(steps)
        for one in steps if listed else ():
            refuse_misplaced(one)
            if isinstance(one, SampleLambda):
                raise UsageError(f"{one!r} works on whole samples: put it before Views, into the transform itself")
        if not listed or not all(map(callable_or_step, steps)):
            raise UsageError(
                f"Views({n}, {steps!r}) needs a list of steps on samples, such as [RandomResizedCrop(224)]"
            )
        self.steps = [one if isinstance(one, Step) else Lambda(one) for one in steps]
        self.only(fields)


def callable_or_step(one: object) -> bool:
    """Whether it may be a step of views."""
    return not isinstance(one, type | BatchStep | Views) and (isinstance(one, Step) or callable(one))


class FieldViews(Step):
    """`Views`, fitted to one field: what is drawn is a key, of which each step of each view has random numbers of its
    own, so that what one field skips shifts nothing of another's."""

    def __init__(self, views: Views, plan: FieldPlan, name: str) -> None:
        self.views, self.plan, self._name = views, plan, name

    def __repr__(self) -> str:
        return repr(self.views)

    def draw(self, random: Random, height: int, width: int) -> int:
        return random.integer(_KEYS)

    def apply(self, image: Array, drawn: int, out: Array | None = None) -> Array:
        plan, image = self.plan, read_only(image)  # each view begins with it
        if out is None:
            out = np.empty((self.views.n, *(n or 0 for n in plan.result.shape)), plan.result.dtype)
        for view in range(self.views.n):
            memory = out[view, ...]
            made = made_by(plan, self._name, image, drawn, view, memory)
            if made is not memory:
                put(made, memory, plan, self._name)
        return out

    def apply_mask(self, mask: Array, drawn: int, out: Array | None = None) -> Array:
        return self.apply(mask, drawn, out)


def made_by(plan: FieldPlan, name: str, image: Array, key: int, view: int, out: Array | None = None) -> Array:
    """What a plan makes of an array of the field `name` in memory. key: what its random numbers depend on, with the
    number of the view. out: memory of the result's shape and dtype, or None; the result may be elsewhere."""
    for k in range(len(plan.steps)):
        drawn = _drawn(plan, name, key, view, k, image)
        image = np.asarray(plan.applied(k)(image, drawn, out if plan.fits[k] else None))
    return image


def _drawn(plan: FieldPlan, name: str, key: int, view: int, k: int, image: Array) -> Any:
    share = plan.shares[k]
    if not draws(share.step):
        return None
    given = plan.specs[k]
    if share.checked and share.beside and given.fixed and image.shape != given.shape:
        raise UsageError(
            f"{name!r} is {image.shape} before {share.step!r}, where {given.shape} was expected: declare the "
            "result of a function with shape=, so that other images of the sample can move with it"
        )
    height, width = sides(image.shape, given.layout)
    random = Random(mix((mix(key) + (view << 32) + plan.numbers[k]) & WORD))
    place = share.step.draw(random, height // share.times, width // share.times)
    return place if share.times == 1 else share.step.magnified(place, share.times)
