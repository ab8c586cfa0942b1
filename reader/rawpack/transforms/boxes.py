"""The boxes of a batch, and what follows them: moved like their images.

Boxes are not in slots, so the process that hands a batch over moves them. It draws again what a worker drew for their
image: random numbers are a pure function of seed, epoch and sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, main_image
from rawpack.errors import DamagedStoreError, UsageError
from rawpack.store.stores import Stores
from rawpack.transforms.followers import BOXES, Window, cut, follow, misfit, moved
from rawpack.transforms.images import PIXELS, shapes_of, sides
from rawpack.transforms.pipeline import FieldPlan
from rawpack.transforms.plan import Transform, as_steps
from rawpack.transforms.randomness import Random, Seeds, randoms_of
from rawpack.transforms.step import Array, Move, Spec, Step
from rawpack.transforms.together import Sizes, field_plans


@dataclass(frozen=True)
class BoxMover:
    """Moves the boxes of samples, and what follows them, as a transform moves their images. Any number of threads may
    use one."""

    plans: Mapping[str, FieldPlan]
    """Of images and masks, in the order in which workers draw for them; the boxes belong to the last."""

    def __call__(
        self,
        library: Stores,
        rows: NDArray[np.int64],
        values: Mapping[str, Sequence[Array]],
        seeds: Seeds,
        clips: NDArray[np.int64] | None = None,
        first_rows: Callable[[str], NDArray[np.int64]] | None = None,
    ) -> dict[str, list[Array]]:
        """The values of some samples, by field, in the pixels of a batch's images: new arrays of the same dtype, with
        fewer rows if boxes are left out. seeds: see `Seeds`. clips: if rows are the frames of clips, the numbers of
        the clips, whose frames all move alike. first_rows: if boxes may be of other rows than their images, those of
        the first frame of each sample's image.

        Raises UsageError if a frame with boxes has another size than its sample's image, which was drawn for.
        """
        samples = rows if clips is None else clips
        frames = len(rows) // max(1, len(samples))
        drawn: list[dict[int, Any]] = [{} for _ in samples]
        for k, (name, plan) in enumerate(self.plans.items()):
            shapes = shapes_of(library, name, rows)
            firsts = rows if first_rows is None else first_rows(name)
            if not library.fields[name].uniform and not np.array_equal(firsts, rows):
                _check_sizes(name, rows, shapes, shapes_of(library, name, firsts), frames)
            remaining = iter(shapes)
            ways = [
                _way(plan, random, known, shape)
                for random, known in zip(randoms_of(seeds, samples, name if k else ""), drawn, strict=True)
                for shape in islice(remaining, frames)
            ]
        made: dict[str, list[Array]] = {name: [] for name in values}
        for name, given in values.items():
            field = library.fields[name]
            boxes = given if field.is_boxes else values.get(BOXES) or library.columns.ragged(BOXES, rows)
            for one, around, (move, window) in zip(given, boxes, ways, strict=True):
                corners, kept = cut(moved(around[:, :4].astype(np.float64), move), window)
                if field.is_boxes:
                    new = one[kept]
                    new[:, :4] = corners[kept]
                elif problem := misfit(one, field, len(around)):
                    raise DamagedStoreError(f"{name}: {problem}")
                else:
                    new = follow(name, one, field, kept, move, window)
                made[name].append(new)
        return made


def mover_for(
    transform: Transform | None,
    fields: Mapping[str, Field],
    chosen: Sequence[str],
    before: Sequence[Step] = (),
    sizes: Mapping[str, Sizes] = {},
) -> BoxMover | None:
    """What moves the chosen boxes of a store, and what follows them; None if none were chosen. before: steps that come
    first. sizes: see `stored_sizes`.

    Raises UsageError if a step changes the size of images and does not say where their points go.
    """
    if not any(fields[name].moves for name in chosen):
        return None
    image = main_image(fields)
    singles = [step for step in (*before, *as_steps(transform or [])) if isinstance(step, Step)]

    def check(name: str, step: Step, spec: Spec, made: Spec) -> None:
        if name == image:
            _check_still(step, spec, made)

    # The order of `Pipeline.fill`. If the batch does not have the image, boxes move as if it had.
    made = field_plans(singles, fields, chosen, sizes, check=check)
    pixels = [name for name in made if fields[name].kind in PIXELS]
    plans = {name: made[name] for name in pixels[: pixels.index(image) + 1]}
    return BoxMover(plans) if plans[image].steps else None


def _check_sizes(
    name: str, rows: NDArray[np.int64], shapes: list[tuple[int, ...]], firsts: list[tuple[int, ...]], frames: int
) -> None:
    for n, (row, shape) in enumerate(zip(rows.tolist(), shapes, strict=True)):
        image = firsts[n // frames]
        if shape[:2] != image[:2]:
            raise UsageError(
                f"the boxes of sample {row} are of an image {name!r} of {shape[0]}x{shape[1]}, and its batch shows one "
                f"of {image[0]}x{image[1]} (height x width): pack frames with --size, or give boxes the offsets of "
                f"{name!r}"
            )


def _check_still(step: Step, spec: Spec, made: Spec) -> None:
    says_where = type(step).move is not Step.move or "HWC" not in (spec.layout, made.layout)
    if not says_where and made.layout != "CHW" and made.shape[:2] != spec.shape[:2]:
        raise UsageError(
            f"{step!r} changes the size of images, {spec.shape} to {made.shape}, and does not say where their boxes "
            "go: write it as a Step with a method move(), or leave boxes out with fields="
        )


def _way(plan: FieldPlan, random: Random, known: dict[int, Any], shape: tuple[int, ...]) -> tuple[Move, Window]:
    """Where all steps together move the points of an image of that shape, and what is then still visible of it.

    known: step number -> what was drawn; used and added to.
    """
    whole, window = Move(), (0.0, 0.0, float(shape[1]), float(shape[0]))
    steps = zip(plan.numbers, plan.steps, plan.shares, plan.specs, plan.specs[1:], strict=False)
    for number, step, share, spec, made in steps:
        height, width = sides(shape, spec.layout)
        if number not in known:
            known[number] = share.step.draw(random, height // share.times, width // share.times)
        makes = step.makes_mask if plan.field.exact else step.makes
        exact = made if made.fixed else makes(replace(spec, shape=shape))
        after = tuple(n or 0 for n in exact.shape)
        if spec.layout == "HWC":
            move = step.move(share.step.magnified(known[number], share.times), height, width)
            if made.layout == "HWC" and (move != Move() or after != shape):
                whole = Move(
                    whole.scale_y * move.scale_y, whole.shift_y * move.scale_y + move.shift_y,
                    whole.scale_x * move.scale_x, whole.shift_x * move.scale_x + move.shift_x,
                )  # fmt: skip
                corners = moved(np.array([window]), move)
                ends = (0.0, 0.0, float(after[1]), float(after[0]))
                left, top, right, bottom = cut(corners, ends)[0][0].tolist()
                window = (left, top, right, bottom)
        shape = after
    return whole, window
