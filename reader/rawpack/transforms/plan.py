"""A list of steps, fitted to the fields of a store.

Shapes and dtypes are known before the first sample is made, so slots can be. Four things save work:

- a step whose result has the shape and dtype of the slot's array gets that memory;
- if a crop comes first, nothing else of a sample is read and decoded (`CropStep`);
- steps that change each byte by itself become one table of 256 entries (`values.ByTable`);
- steps at the end of the list that are `vectorized` take several small samples in one call (`images.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.transforms.functions import Lambda
from rawpack.transforms.images import MASK, PIXELS
from rawpack.transforms.left_behind import check_batch_step, check_step
from rawpack.transforms.pipeline import FieldPlan, Pipeline, with_frames
from rawpack.transforms.step import Array, BatchStep, Spec, Step
from rawpack.transforms.values import ByTable, Tail, by_tables, tail_of

_PACKAGE = __name__.partition(".")[0]
Transform = Sequence[Step | BatchStep | Callable[[Array], Any]]


def plan_pipeline(
    transform: Transform,
    fields: Mapping[str, Field],
    chosen: Sequence[str],
    before: Sequence[Step] = (),
    frames: int | None = None,
    once: Sequence[str] = (),
    classes: int | None = None,
    alike: Mapping[str, Field] | None = None,
) -> Pipeline:
    """Fit a transform to the chosen fields of a store.

    before: steps that come first. frames: the length of clips; None if samples are single images. Steps work on frames,
    batch steps on whole clips. once: fields of which a clip has one value. classes: how many the store names. alike:
    the chosen fields that look like images, see `left_behind`.

    Raises UsageError if steps and fields do not fit, or if samples of different shapes would come out.
    """
    steps = [*before, *as_steps(transform)]
    singles = [step for step in steps if isinstance(step, Step)]
    batch_steps = [step for step in steps if isinstance(step, BatchStep)]
    if steps[: len(singles)] != singles:
        raise UsageError(f"{batch_steps[0]!r} works on whole batches: put it after all steps that work on samples")
    _check_refused(steps, fields, chosen)
    for step in singles:
        if step.field is not None and step.field not in chosen:
            raise UsageError(f"{step!r}: the batch has no field {step.field!r}, only {', '.join(chosen)}")
        if step.field is not None and fields[step.field].kind not in (*PIXELS, "number"):
            raise UsageError(f"{step!r}: {step.field!r} is {fields[step.field].kind}, which workers do not transform")
    plans, masks = {}, any(fields[name].kind == MASK for name in chosen)
    for name in chosen:
        numbered = [(n, step) for n, step in enumerate(singles) if concerns(step, name, fields[name])]
        if numbered:
            check = partial(check_step, image=name, alike=alike or {})
            plans[name] = _field_plan(numbered, fields[name], None if name in once else frames, masks, check)
    results = {name: one.sample_result for name, one in plans.items()}
    specs = {
        name: results.get(name) or with_frames(spec_of(fields[name]), None if name in once else frames)
        for name in chosen
        if fields[name].in_slot
    }
    for i, batch_step in enumerate(batch_steps):
        check_batch_step(batch_step, alike or {})
        told = {
            name: replace(spec, kind=fields[name].kind, classes=classes if name == "label" else None)
            for name, spec in specs.items()
        }
        batch_steps[i] = fitted = batch_step.fitted(told)
        made = dict(fitted.makes(told))
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
    # What a batch step replaces is first made in memory of its own.
    if batch_steps:
        for name in specs:
            if name not in plans and name in results:
                plans[name] = _field_plan([], fields[name], None if name in once else frames)
    return Pipeline(plans, tuple(batch_steps), results)


def cut_tails(pipeline: Pipeline) -> tuple[Pipeline | None, dict[str, Tail]]:
    """The same without the last steps of images that are plain arithmetic, which another device can do faster; and
    these, by field.

    Batch steps come after them, so that with any of those nothing is cut. The pipeline is None where nothing is left of
    it.
    """
    plans, results, tails = dict(pipeline.plans), dict(pipeline.results), dict[str, Tail]()
    for name, plan in pipeline.plans.items():
        tail = tail_of(plan.steps[-1], plan.result) if plan.kind == "image" and plan.steps else None
        if tail is None or pipeline.batch_steps:
            continue
        plans[name] = cut = replace(plan, steps=plan.steps[:-1], numbers=plan.numbers[:-1], specs=plan.specs[:-1])
        if not cut.steps:
            del plans[name]
        tails[name], results[name] = tail, cut.sample_result
    return (replace(pipeline, plans=plans, results=results) if plans or pipeline.batch_steps else None), tails


def spec_of(stored: Field) -> Spec:
    """A field as the store holds it."""
    layout = "HWC" if stored.kind in PIXELS and len(stored.shape) == 3 else ""
    return Spec(stored.shape, stored.dtype, layout)  # type: ignore[arg-type]


def as_steps(transform: Transform) -> list[Step | BatchStep]:
    """The steps of a transform; functions become steps. Raises UsageError for anything else."""
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


def _field_plan(
    numbered: list[tuple[int, Step]],
    stored: Field,
    frames: int | None,
    masks: bool = False,
    check: Callable[[Step, Spec, Spec], None] = lambda *_: None,
) -> FieldPlan:
    """masks: whether the batch has any. check: gets each step, and the samples before and after it."""
    specs, steps = [spec_of(stored)], list[Step]()
    kind: str = stored.kind
    for _, step in numbered:
        made = step.makes_mask(specs[-1]) if kind == MASK else step.makes(specs[-1])
        if not type(step).__module__.startswith(f"{_PACKAGE}."):
            # What users' steps pass on says nothing about the values that they make.
            made = replace(made, within=None)
        if masks and kind == "image":
            _check_masks(step, specs[-1], made)
        check(step, specs[-1], made)
        steps.append(step.fitted(specs[-1]))
        specs.append(made)
    tabled = steps if kind == MASK else by_tables(steps, specs)
    numbers, kept, at = list[int](), specs[:1], 0
    for step in tabled:
        numbers.append(numbered[at][0])
        at += len(step.steps) if isinstance(step, ByTable) else 1
        kept.append(specs[at])
    return FieldPlan(tuple(tabled), tuple(numbers), tuple(kept), kind, stored.codec, frames)


def _check_refused(steps: Sequence[Step | BatchStep], fields: Mapping[str, Field], chosen: Sequence[str]) -> None:
    for name in chosen:
        what = "masks" if fields[name].kind == MASK else "boxes" if fields[name].moves else ""
        for step in steps:
            if what in step.refuses:
                raise UsageError(
                    f"{step!r} cannot change {what} with their images, and the batch has {name!r}: leave that out with "
                    "fields=, or leave the step out"
                )


def _check_masks(step: Step, spec: Spec, made: Spec) -> None:
    resized = "HWC" in (spec.layout, made.layout) and made.layout != "CHW" and len(made.shape) == 3
    if resized and made.shape[:2] != spec.shape[:2] and step.field is None and type(step).apply_mask is Step.apply_mask:
        raise UsageError(
            f"{step!r} changes the size of images, {spec.shape} to {made.shape}, and leaves masks as they are: write "
            "it as a Step with a method apply_mask(), name its field with field=, or leave masks out with fields="
        )
