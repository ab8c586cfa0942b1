"""A list of steps, fitted to the fields of a store.

What the steps make is known before the first sample, and so is the slot. Three things save work:

- a step whose result has the shape and dtype of the slot is handed the slot's memory;
- a crop that comes first is all that is read and decoded of a sample (`CropStep`);
- steps that change bytes one by one are done for all 256 of them beforehand (`values.ByTable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.transforms.functions import Lambda
from rawpack.transforms.pipeline import MASK, PIXELS, FieldPlan, Pipeline, with_frames
from rawpack.transforms.step import Array, BatchStep, Spec, Step
from rawpack.transforms.values import ByTable, by_tables

Transform = Sequence[Step | BatchStep | Callable[[Array], Any]]


def plan_pipeline(
    transform: Transform,
    fields: Mapping[str, Field],
    chosen: Sequence[str],
    before: Sequence[Step] = (),
    frames: int | None = None,
    once: Sequence[str] = (),
) -> Pipeline:
    """Fit a transform to the chosen fields of a store. before: steps that come first. frames: where samples are clips;
    once: fields that a clip has one value of. Steps work on frames, batch steps on whole clips.

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
    plans, masks = {}, any(fields[name].kind == MASK for name in chosen)
    for name in chosen:
        numbered = [(n, step) for n, step in enumerate(singles) if concerns(step, name, fields[name])]
        if numbered:
            plans[name] = _field_plan(numbered, fields[name], None if name in once else frames, masks)
    results = {name: one.sample_result for name, one in plans.items()}
    specs = {
        name: results.get(name) or with_frames(spec_of(fields[name]), None if name in once else frames)
        for name in chosen
        if fields[name].in_slot
    }
    for batch_step in batch_steps:
        made = dict(batch_step.makes(specs))
        if unknown := set(made) - set(specs):
            raise UsageError(
                f"{batch_step!r} makes {', '.join(map(repr, sorted(unknown)))}: a step cannot make new fields"
            )
        specs.update(made)
        results.update(made)
    for name, spec in specs.items():
        if not spec.fixed:
            raise UsageError(
                f"the samples of {name!r} come out of the transform in different sizes, {spec.shape}, so they cannot "
                "form a batch: end with a size, as CenterCrop(224), Resize((224, 224)) or RandomResizedCrop(224) do"
            )
    # A batch step may change any field: what it replaces is made in memory of its own.
    if batch_steps:
        for name in specs:
            if name not in plans and name in results:
                plans[name] = _field_plan([], fields[name], None if name in once else frames)
    return Pipeline(plans, batch_steps, results)


def spec_of(stored: Field) -> Spec:
    """What a store holds of a field."""
    layout = "HWC" if stored.kind in PIXELS and len(stored.shape) == 3 else ""
    return Spec(stored.shape, stored.dtype, layout)  # type: ignore[arg-type]


def as_steps(transform: Transform) -> list[Step | BatchStep]:
    """The steps of a transform, functions as steps. Raises UsageError for anything else."""
    if isinstance(transform, str):
        raise UsageError(_is_text(transform))
    if callable(transform) and not isinstance(transform, Step | BatchStep):
        name = getattr(transform, "__name__", type(transform).__name__)
        raise UsageError(f"transform= must be a list of steps: pass {f'[{name}]' if name.isidentifier() else '[f]'}")
    if isinstance(transform, Step | BatchStep) or not hasattr(transform, "__iter__"):
        raise UsageError(f"transform={transform!r} must be a list of steps, such as [{transform!r}]")
    steps = list[Step | BatchStep]()
    for one in transform:
        if isinstance(one, Step | BatchStep):
            steps.append(one)
        elif callable(one) and not isinstance(one, type):
            steps.append(Lambda(one))
        elif isinstance(one, str):
            raise UsageError(_is_text(one))
        else:
            raise UsageError(
                f"{one!r} in transform= is not a step: pass an object of rawpack.transforms, or a function"
            )
    return steps


def _is_text(text: str) -> str:
    return f"transform= has the text {text!r}: pass objects, such as [rawpack.transforms.RandomResizedCrop(224)]"


def concerns(step: Step, name: str, stored: Field) -> bool:
    """Whether a step is applied to a field."""
    return step.field == name or (step.field is None and stored.kind in PIXELS and len(stored.shape) == 3)


def _field_plan(numbered: list[tuple[int, Step]], stored: Field, frames: int | None, masks: bool = False) -> FieldPlan:
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
