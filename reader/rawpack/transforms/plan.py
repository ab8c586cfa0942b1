"""A list of steps, fitted to the fields of a store.

Shapes and dtypes are known before the first sample is made, so slots can be. Four things save work:

- a step whose result has the shape and dtype of the slot's array gets that memory;
- if a crop comes first, nothing else of a sample is read and decoded (`CropStep`);
- steps that change each byte by itself become one table of 256 entries (`values.ByTable`);
- steps at the end of the list that are `vectorized` take several small samples in one call (`images.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from rawpack.disk.manifest import Field, Range, main_image
from rawpack.errors import UsageError
from rawpack.store.stores import Stores
from rawpack.system.user import did_you_mean
from rawpack.transforms import instead
from rawpack.transforms.crops import CenterCrop
from rawpack.transforms.displacements import Checks
from rawpack.transforms.fields import is_unsaid, looks_like
from rawpack.transforms.functions import Lambda, made_as, refuse_misplaced
from rawpack.transforms.images import IMAGE, MASK, PIXELS, Size
from rawpack.transforms.pipeline import Pipeline
from rawpack.transforms.resizing import Fit, Resize
from rawpack.transforms.step import Array, BatchStep, Spec, Step, named
from rawpack.transforms.together import LOOKED_AT, Sizes, field_plans, flat, sizes_at
from rawpack.transforms.values import Tail, tail_of
from rawpack.transforms.views import Views

_AS_THEY_ARE = (CenterCrop, Fit, Resize)
"""Steps that leave images as they are if they have the size that is asked for."""
Transform = Sequence[Step | BatchStep | Callable[[Array], Any]]


def plan_pipeline(
    transform: Transform,
    fields: Mapping[str, Field],
    chosen: Sequence[str],
    before: Sequence[Step] = (),
    frames: Mapping[str, int | None] = {},
    classes: int | None = None,
    alike: Mapping[str, Field] = {},
    sizes: Mapping[str, Sizes] = {},
    ranges: Mapping[str, Range] = {},
    *,
    open_end: bool = False,
) -> Pipeline:
    """Fit a transform to the chosen fields of a store.

    before: steps that come first. frames: how many a sample has, by field; None where it has one value. Steps work on
    frames, batch steps on whole clips. classes: how many the store names. alike: the chosen fields that look like
    images, see `look_alikes`. sizes: see `stored_sizes`. ranges: see `stored_ranges`.
    open_end: a function of whole samples comes next, which gets all fields, in any size.

    Raises UsageError if steps and fields do not fit, or if samples of different shapes would come out.
    """
    steps = [*before, *as_steps(transform)]
    singles = [step for step in steps if isinstance(step, Step)]
    batch_steps = [step for step in steps if isinstance(step, BatchStep)]
    if steps[: len(singles)] != singles:
        raise UsageError(f"{batch_steps[0]!r} works on whole batches: put it after all steps that work on samples")
    _check_refused(steps, fields, chosen)
    for step in flat(singles[len(before) :]):
        for name in named(step) or ():
            if name not in chosen:
                hint = did_you_mean(name, chosen)
                raise UsageError(f"{step!r}: the batch has no field {name!r}, only {', '.join(chosen)}{hint}")
            if fields[name].kind not in (*PIXELS, "number"):
                raise UsageError(f"{step!r}: {name!r} is {fields[name].kind}, which workers do not transform")
    main = main_image(fields)
    together = [name for name in chosen if name == main or (fields[name].kind == MASK and main in chosen)]
    exact = any(fields[name].exact for name in chosen)
    displaced = Checks(fields, main, [one for step in singles if isinstance(step, Views) for one in step.steps])

    def check(name: str, step: Step, spec: Spec, made: Spec) -> None:
        if exact and fields[name].kind == IMAGE and not fields[name].exact:
            _check_masks(step, spec, made)
        if moves_pixels(step, spec, made):
            if step.fields is not None and name in together:
                _check_left(step, name, together)
            if alike:
                refuse(step, name, alike)
            displaced.see(name, step)

    made_of = field_plans(singles, fields, chosen, sizes, frames, check, ranges)
    whole = {name: plan for name, plan in made_of.items() if name in chosen}
    pairs = displaced.pairs(made_of)
    for name in (name for pair in pairs for name in pair):
        whole[name] = replace(whole[name], paired=True)
    plans = {name: plan for name, plan in whole.items() if plan.steps}
    results = {name: plan.sample_result for name, plan in plans.items()}
    specs = {name: plan.sample_result for name, plan in whole.items() if fields[name].in_slot}
    for i, batch_step in enumerate(batch_steps):
        if alike and batch_step.refuses:
            refuse(batch_step, "image", alike)
        told = {
            name: replace(spec, kind=fields[name].kind, classes=classes if name == "label" else None)
            for name, spec in specs.items()
        }
        batch_steps[i] = fitted = batch_step.fitted(told)
        made = dict(fitted.makes(told))
        if unknown := set(made) - set(specs):
            raise UsageError(
                f"{batch_step!r} makes {', '.join(map(repr, sorted(unknown)))}: a step cannot add fields to the "
                f"batch; it can replace {', '.join(specs)}"
            )
        specs.update(made)
        results.update(made)
    for name, spec in specs.items():
        if not (spec.fixed or open_end):
            raise UsageError(
                f"the samples of {name!r} come out of the transform in different sizes, {spec.shape}, so they cannot "
                "form a batch: end with a size, as CenterCrop(224), Resize((224, 224)) or RandomResizedCrop(224) do"
            )
    # What a batch step replaces, and what a function of whole samples gets, is first made in memory of its own.
    if batch_steps or open_end:
        plans |= {name: whole[name] for name in (specs if open_end else results) if name not in plans}
    return Pipeline(plans, tuple(batch_steps), results, pairs)


def cut_tails(pipeline: Pipeline) -> tuple[Pipeline | None, dict[str, Tail]]:
    """The same without the last steps of images that are plain arithmetic, which another device can do faster; and
    these, by field.

    Batch steps come after them, so that with any of those nothing is cut. The pipeline is None where nothing is left of
    it.
    """
    plans, results, tails = dict(pipeline.plans), dict(pipeline.results), dict[str, Tail]()
    for name, plan in pipeline.plans.items():
        tail = tail_of(plan.steps[-1], plan.result) if plan.field.kind == "image" and plan.steps else None
        if tail is None or pipeline.batch_steps or pipeline.samples is not None:
            continue
        plans[name] = cut = replace(
            plan,
            steps=plan.steps[:-1],
            numbers=plan.numbers[:-1],
            specs=plan.specs[:-1],
            shares=plan.shares[:-1],
        )
        if not cut.steps:
            del plans[name]
        tails[name], results[name] = tail, cut.sample_result
    return (replace(pipeline, plans=plans, results=results) if plans or pipeline.batch_steps else None), tails


def as_steps(transform: Transform) -> list[Step | BatchStep]:
    """The steps of a transform; functions become steps. Raises UsageError for anything else."""
    if isinstance(transform, Iterator):
        transform = list(transform)
    instead.check(transform)
    if callable(transform) and not isinstance(transform, Step | BatchStep):
        if not isinstance(transform, type):
            refuse_misplaced(transform)
        name = getattr(transform, "__name__", type(transform).__name__)
        name = made_as(transform) if isinstance(transform, type) else name if name.isidentifier() else "f"
        raise UsageError(f"transform= must be a list of steps: pass [{name}]")
    if isinstance(transform, Step | BatchStep) or not hasattr(transform, "__iter__"):
        raise UsageError(f"transform={transform!r} must be a list of steps, such as [{transform!r}]")
    steps = list[Step | BatchStep]()
    for one in [transform] if isinstance(transform, str) else transform:
        if isinstance(one, str):
            example = "pass objects, such as [rawpack.transforms.RandomResizedCrop(224)]"
            raise UsageError(f"transform= has the text {one!r}: {example}")
        refuse_misplaced(one)
        if (not callable(one) and not isinstance(one, Step | BatchStep)) or isinstance(one, type):
            raise UsageError(
                f"{one!r} in transform= is not a step: pass an object of rawpack.transforms, or a function"
            )
        steps.append(one if isinstance(one, Step | BatchStep) else Lambda(one))
    return steps


def _check_refused(steps: Sequence[Step | BatchStep], fields: Mapping[str, Field], chosen: Sequence[str]) -> None:
    for name in chosen:
        what = "masks" if fields[name].exact else "boxes" if fields[name].moves else ""
        for step in steps:
            if what in step.refuses:
                raise UsageError(
                    f"{step!r} cannot change {what} with their images, and the batch has {name!r}: leave that out with "
                    "fields=, or leave the step out"
                )


def _check_masks(step: Step, spec: Spec, made: Spec) -> None:
    resized = "HWC" in (spec.layout, made.layout) and made.layout != "CHW" and len(made.shape) == 3
    if (
        resized
        and made.shape[:2] != spec.shape[:2]
        and named(step) is None
        and type(step).apply_mask is Step.apply_mask
    ):
        raise UsageError(
            f"{step!r} changes the size of images, {spec.shape} to {made.shape}, and leaves masks as they are: write "
            "it as a Step with a method apply_mask(), name its field with field=, or leave masks out with fields="
        )


def _check_left(step: Step, moved: str, together: Sequence[str]) -> None:
    """Raise UsageError where a step is for one of an image and its masks only."""
    left = [name for name in together if name not in (named(step) or ())]
    if left:
        raise UsageError(
            f"{step!r} moves the pixels of {moved!r}, and would leave {left[0]!r} behind, which belongs to it: name "
            "that in fields= of the step too, or leave it out with fields= of batches()"
        )


# ---------------------------------------------------------------------------------------------- left behind
#
# A field of numbers that has the height and width of its image may be a second image, a map of depths, or a matrix that
# happens to have this size. A store does not say which, unless the field was packed as a mask, which moves with the
# image, or as `array`, which is no image.


def look_alikes(library: Stores, chosen: Sequence[str]) -> dict[str, Field]:
    """Those of the chosen fields that look like images."""
    suspects = {
        name: field
        for store in library.stores
        for name, field in store.fields.items()
        if name in chosen and is_unsaid(field)
    }
    if not suspects or not len(library):
        return {}
    pixels = [name for name in chosen if library.fields[name].kind in PIXELS and len(library.fields[name].shape) == 3]
    sizes = {size for name in pixels for size in _one_size(library, name)}
    return {name: field for name, field in suspects.items() if any(looks_like(field, size) for size in sizes)}


def _one_size(library: Stores, name: str) -> set[Size]:
    """The (height, width) of an image or mask; where a manifest says that they differ, that of some samples, if they
    agree; else none."""
    found = set(sizes_at(library, name, 1 if library.fields[name].uniform else LOOKED_AT))
    return found if len(found) == 1 else set()


def moves_pixels(step: Step, spec: Spec, made: Spec) -> bool:
    """Whether a step moves pixels: it changes the size of images, or takes masks or boxes along, or cannot."""
    if spec.layout != "HWC" or made.layout == "CHW" or len(made.shape) != 3:
        return False
    if made.shape[:2] != spec.shape[:2]:
        return True
    if isinstance(step, _AS_THEY_ARE) and made.fixed:
        return False
    of_masks = type(step).apply_mask is not Step.apply_mask
    return of_masks or type(step).move is not Step.move or bool(step.refuses)


def refuse(step: Step | BatchStep, image: str, alike: Mapping[str, Field]) -> NoReturn:
    """Raise UsageError for a step that moves the pixels of `image`."""
    name, field = next(iter(alike.items()))
    raise UsageError(
        f"{step!r} moves the pixels of {image!r}, and {name!r}, {field.dtype} {field.shape}, has the same height and "
        "width but would stay as it is: leave it out with fields=, or pack it again, as "
        f"fields={{{name!r}: 'mask'}} if it must move with its image (masks are (height, width) or (height, width, "
        f"channels), and resized to the nearest pixel), as 'flow' or 'disparity' if its values are distances in "
        f"pixels, or as fields={{{name!r}: 'array'}} if it is no image"
    )
