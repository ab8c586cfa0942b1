"""How steps fit the fields of a batch, and the images of a sample to each other: a step is drawn once for all of them.

Steps are fitted one after the other to all fields. Where images differ in size, what a step draws is in the pixels of
the smallest one; the others must be a whole number of times as large, and so are their crops and sizes then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from msgspec import UNSET

from rawpack.disk.manifest import Field, Range, joined, main_image
from rawpack.errors import UsageError
from rawpack.store.stores import Stores
from rawpack.transforms.fields import range_of
from rawpack.transforms.functions import Lambda
from rawpack.transforms.images import IMAGE, PIXELS, Share, Size, misfit, sides
from rawpack.transforms.pipeline import FieldPlan
from rawpack.transforms.step import Spec, Step, is_own, named, needs_size
from rawpack.transforms.values import ByTable, ConvertImageDtype, Normalize, by_tables
from rawpack.transforms.views import FieldViews, Views

LOOKED_AT = 16
"""Samples whose images are looked at, where images differ in size."""
_ASKED = 64
"""Samples whose values are looked at, where a store has no ranges."""
Sizes = Sequence[Size]
"""Of the images of a few samples, the same for each field; one size where all are alike."""
Check = Callable[[str, Step, Spec, Spec], None]


def concerns(step: Step, name: str, stored: Field) -> bool:
    names = named(step)
    return stored.kind in PIXELS and len(stored.shape) == 3 if names is None else name in names


def flat(steps: Sequence[Step]) -> Iterator[Step]:
    """All steps, also those of views."""
    for step in steps:
        yield step
        yield from step.steps if isinstance(step, Views) else ()


def spec_of(stored: Field) -> Spec:
    """A field as the store holds it."""
    layout = "HWC" if stored.kind in PIXELS and len(stored.shape) == 3 else ""
    return Spec(stored.shape, stored.dtype, layout)  # type: ignore[arg-type]


def stored_sizes(library: Stores, chosen: Iterable[str]) -> dict[str, Sizes]:
    """The sizes of a few samples' images where a batch has several images, and these differ from sample to sample."""
    fields, chosen = library.fields, list(chosen)
    if any(fields[name].moves for name in chosen):
        chosen = list(dict.fromkeys((*chosen, main_image(fields))))
    pixels = [name for name in chosen if fields[name].kind in PIXELS and len(fields[name].shape) == 3]
    if sum(fields[name].kind == IMAGE for name in pixels) < 2 or not len(library):
        return {}
    return {name: sizes_at(library, name, LOOKED_AT) for name in pixels if not fields[name].uniform}


def sizes_at(library: Stores, name: str, count: int) -> list[Size]:
    """The (height, width) of some samples of a field of images, evenly spread."""
    found = list[Size]()
    for row in np.linspace(0, len(library) - 1, count, dtype=np.int64).tolist():
        store, at = library.locate(row)
        shape = store.fields[name].shape
        if not store.fields[name].uniform:
            shape = store.columns.piece(f"{name}.shape", at, 1)[0].tolist()
        found.append((int(shape[0] or 0), int(shape[1] or 0)))
    return found


def stored_ranges(library: Stores, chosen: Iterable[str], steps: Sequence[Any]) -> dict[str, Range]:
    """The ranges of the chosen fields that any of these steps scales: as noted while packing, or else of a few
    samples."""
    scaling = [step for step in flat(steps) if isinstance(step, ConvertImageDtype | Normalize)]
    fields = {name: library.fields[name] for name in chosen if library.fields[name].ranged}
    names = [name for name, stored in fields.items() if any(concerns(step, name, stored) for step in scaling)]
    if not names or not len(library):
        return {}
    noted = [store.manifest.ranges for store in library.stores if len(store)]
    ranges = [{name: own[name] for name in names if name in own} for own in noted if own is not UNSET]
    if UNSET in noted:
        count = min(_ASKED, len(library))
        # Behind a URL, only the first shard is fetched for this.
        last = count - 1 if library.fetcher is not None else len(library) - 1
        for row in np.linspace(0, last, count, dtype=np.int64).tolist():
            own = {name: range_of(library.value(name, row, verify=False)) for name in names}
            ranges.append({name: ends for name, ends in own.items() if ends is not None})
    return joined(ranges)


def field_plans(
    steps: Sequence[Step],
    fields: Mapping[str, Field],
    chosen: Sequence[str],
    sizes: Mapping[str, Sizes] = {},
    frames: Mapping[str, int | None] = {},
    check: Check = lambda *_: None,
    ranges: Mapping[str, Range] = {},
) -> dict[str, FieldPlan]:
    """What steps do to the chosen fields, in the order in which these are drawn for: the image first, which so gets the
    same random numbers whatever is beside it. If boxes are chosen, the image that they belong to is always among them.

    sizes: see `stored_sizes`. frames: as of `plan_pipeline`. check: gets the name of a field, each step that is
    applied to it, and its samples before and after that. ranges: see `stored_ranges`. Raises UsageError where steps and
    fields do not fit.
    """
    main, order = main_image(fields), list(fields)
    names = sorted(chosen, key=lambda name: (name != main, order.index(name)))
    if main and main not in names and any(fields[name].moves for name in names):
        names.append(main)
    specs = {name: replace(spec_of(fields[name]), seen=ranges.get(name)) for name in names}
    drafts = {name: _Draft(fields[name], [spec], sizes.get(name)) for name, spec in specs.items()}
    _Fitting(main, frozenset(chosen), check).fit(steps, drafts)
    return {name: draft.plan(frames.get(name)) for name, draft in drafts.items()}


@dataclass
class _Draft:
    stored: Field
    specs: list[Spec]
    """Before the first step, and after each."""
    sizes: Sizes | None
    """After the last step; None where they are not known."""
    sure: bool = True
    """Whether that is what the steps say of themselves, and no function that may make another size than it says."""
    steps: list[Step] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec = self.specs[-1]
        if spec.fixed and self.stored.kind in PIXELS:
            self.sizes = [sides(tuple(n or 0 for n in spec.shape), spec.layout)]

    def made_by(self, step: Step, spec: Spec) -> Spec:
        made = step.makes_mask(spec) if self.stored.exact else step.makes(spec)
        # What users' steps pass on says nothing about the values that they make.
        return made if is_own(type(step)) else replace(made, within=None, seen=None)

    def add(self, number: int, step: Step, share: Share, made: Spec) -> None:
        if self.stored.kind in PIXELS:
            self.sizes = self._sizes(step, made)
        self.sure = self.sure and not isinstance(step, Lambda) and is_own(type(step))
        self.specs.append(made)
        self.steps.append(step)
        self.numbers.append(number)
        self.shares.append(share)

    def _sizes(self, step: Step, made: Spec) -> Sizes | None:
        shapes = [made.shape]
        if not made.fixed and self.sizes is not None and self.specs[-1].layout == "HWC":
            shapes = [self.made_by(step, self.specs[-1].sized(*size)).shape for size in self.sizes]
        known = [tuple(n for n in shape if n is not None) for shape in shapes]
        return [sides(one, made.layout) for one in known] if None not in {n for s in shapes for n in s} else None

    def plan(self, frames: int | None) -> FieldPlan:
        """The plan, with steps on bytes as tables."""
        tabled = self.steps if self.stored.exact else by_tables(self.steps, self.specs)
        at = [0, *accumulate(len(step.steps) if isinstance(step, ByTable) else 1 for step in tabled)]
        firsts = list(zip(tabled, at, strict=False))
        numbers = tuple(self.numbers[k] for _, k in firsts)
        shares = tuple(Share(step) if isinstance(step, ByTable) else self.shares[k] for step, k in firsts)
        return FieldPlan(tuple(tabled), numbers, tuple(self.specs[k] for k in at), self.stored, frames, shares)


@dataclass(frozen=True)
class _Fitting:
    main: str
    chosen: frozenset[str]
    check: Check

    def fit(self, steps: Sequence[Step], drafts: Mapping[str, _Draft]) -> None:
        """Add all steps to the plans of the fields that they are applied to."""
        for number, step in enumerate(steps):
            its = {name: draft for name, draft in drafts.items() if concerns(step, name, draft.stored)}
            for draft in its.values():
                if draft.steps and isinstance(draft.steps[-1], FieldViews):
                    raise UsageError(
                        f"{step!r} comes after {draft.steps[-1]!r}: put it at the end of the steps of that"
                    )
            if isinstance(step, Views):
                self._view(number, step, its)
                continue
            its, plain = self._colored(step, its)
            for name, (own, share) in self._shared(step, its).items():
                draft = its[name]
                own, spec = own.plain() or own if name in plain else own, draft.specs[-1]
                made = draft.made_by(own, spec)
                self.check(name, step, spec, made)
                fitted = own.fitted(spec)
                draft.add(number, fitted, replace(share, step=fitted) if share.times == 1 else share, made)

    def _colored(self, step: Step, its: dict[str, _Draft]) -> tuple[dict[str, _Draft], set[str]]:
        """The fields that a step is applied to, beside images of colors; and those of them that get what is `plain`."""
        images = {name: one.stored for name, one in its.items() if one.stored.kind == IMAGE and name in self.chosen}
        colors = {name for name, one in images.items() if (one.dtype, one.shape[-1], one.exact) == ("uint8", 3, False)}
        if named(step) is not None or not colors or len(images) < 2:
            return its, set()
        plain = {name for name, one in images.items() if name not in colors and not one.exact}
        kept = step.plain() is not None
        return {name: one for name, one in its.items() if kept or name not in plain}, plain

    def _shared(self, step: Step, its: Mapping[str, _Draft]) -> dict[str, tuple[Step, Share]]:
        """The step for each field that it changes, and how it is drawn there."""
        takes = named(step) is not None or type(step).apply_mask is not Step.apply_mask
        changed = {name: one for name, one in its.items() if takes or not one.stored.exact}
        if not self.chosen & set(changed):
            changed = dict(its)  # masks alone get the random numbers that they would get beside their image
        checked = needs_size(step)
        pixels = {name: one.sizes for name, one in changed.items() if one.stored.kind in PIXELS} if checked else {}
        smallest, times = multiples(step, pixels)
        # Whether samples must be looked at.
        checked = checked and not all(changed[name].sure and changed[name].specs[-1].fixed for name in pixels)
        lead = self.main if self.main in pixels else next(iter(pixels), "")
        try:
            base = step if times.get(lead, 1) == 1 else step.scaled(Fraction(1, times[lead]))
            return {
                name: (
                    base.scaled(Fraction(times[name])) if times.get(name, 1) > 1 else base,
                    Share(base, times.get(name, 1), smallest, checked and name in pixels),
                )
                for name in changed
            }
        except UsageError as error:
            name = max(times, key=lambda name: times[name])
            raise UsageError(f"{name!r} is {times[name]} times as large as {smallest!r}: {error}") from None

    def _view(self, number: int, views: Views, its: Mapping[str, _Draft]) -> None:
        inner = {name: _Draft(one.stored, [one.specs[-1]], one.sizes, one.sure) for name, one in its.items()}
        self.fit(views.steps, inner)
        for name, draft in inner.items():
            made = draft.specs[-1]
            step = FieldViews(views, draft.plan(None), name)
            # Steps before the first that needs sizes to fit must not have changed them.
            first = next((k for k, share in enumerate(draft.shares) if share.checked), None)
            same = first is not None and draft.specs[first].shape == draft.specs[0].shape
            share = replace(draft.shares[first], step=step) if same and first is not None else Share(step)
            its[name].add(number, step, share, replace(made, shape=(views.n, *made.shape)))


def multiples(step: Step, sizes: Mapping[str, Sizes | None]) -> tuple[str, dict[str, int]]:
    """The field of the smallest images, and how many times as large the others are. Where sizes are not known, they are
    taken to be the same, and looked at when samples are read.

    Raises UsageError where they are no whole number of times as large.
    """
    known = {name: one for name, one in sizes.items() if one is not None}
    if len(known) < max(2, len(sizes)):
        return "", dict.fromkeys(sizes, 1)
    smallest = min(known, key=lambda name: known[name][0])
    count, times = max(map(len, known.values())), dict[str, int]()
    for name, own in known.items():
        for k in range(count):
            (height, width), (low, narrow) = (one[k % len(one)] for one in (own, known[smallest]))
            ratio = times.setdefault(name, height // max(low, 1))
            if (height, width) != (low * ratio, narrow * ratio):
                raise UsageError(misfit(step, repr(name), (height, width), f"{smallest!r} {low}x{narrow}"))
    return smallest, times
