"""Plans that the native core runs as a whole: for a slice of a batch, one call makes the result from the mapped rows.
If images have to be decoded, each is made by one call right after that, while it is in the processor's cache.

These are, in this order: one crop or one resize (a crop of fixed size may follow it), flips, changes of color, and
steps on values as a table. Planes become RGB on the way, row by row. Everything else is done step by step
(`images.py`), with the same pixels, and the core resizes, converts or recolors one image at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rawpack import native
from rawpack.errors import DamagedStoreError
from rawpack.native.calls import IMAGE, LONGEST_RESULT, LONGEST_SOURCE, MOST_FACTOR, Resampling
from rawpack.pixels.geometry import covering
from rawpack.store.stores import InMapping
from rawpack.transforms.color import ColorJitter, factors_of
from rawpack.transforms.crops import CenterCrop, CropBox, RandomCrop, RandomResizedCrop
from rawpack.transforms.flips import RandomHorizontalFlip, RandomVerticalFlip
from rawpack.transforms.randomness import Random, Randoms
from rawpack.transforms.resizing import BILINEAR, Fit, Resize
from rawpack.transforms.step import Array, Box, Drawn, Spec, Step
from rawpack.transforms.values import ByTable, ToCHW

if TYPE_CHECKING:
    from rawpack.transforms.pipeline import FieldPlan, Pipeline

_CHANNELS = (1, 3)
_MOST_TABLE_BYTES = 4
"""The core's tables have values of at most so many bytes."""
_FLIPS: dict[type[Step], int] = {RandomHorizontalFlip: 1, RandomVerticalFlip: 2}
"""Step -> its bit in `flips` of `calls.IMAGE`."""


class Decoded(NamedTuple):
    """Samples that are read one by one, as some of them must be decoded."""

    sizes: NDArray[np.int32]
    """(n, 2): height and width of each, as stored."""
    read: Callable[[int, Box | None, int], Array]
    """Of sample i the part in this box, (h, w, channels), reduced by this scale if its codec can decode it so."""


@dataclass(frozen=True)
class Fused:
    resize: RandomResizedCrop | Resize | Fit | None
    crop: CenterCrop | RandomCrop | None
    """After `resize`, or the first step."""
    flips: tuple[int, ...]
    colors: ColorJitter | None
    table: ByTable | None
    planar: bool

    def takes(self, sizes: NDArray[np.int32], result: tuple[int, ...]) -> bool:
        """Whether the core takes images of these sizes (n, 2), and the steps as they are now: their attributes may
        change between epochs. result: (n, *shape) of what they are to make."""
        if not len(sizes) or sizes.max() > LONGEST_SOURCE:
            return False
        if getattr(self.resize, "interpolation", "bilinear") not in BILINEAR:
            return False
        if self.colors is not None and self.colors.strongest > MOST_FACTOR:
            return False
        last, height_width = self.crop or self.resize, result[2:] if self.planar else result[1:3]
        if last is not None:
            made = last.draw(Random(0), *sizes[0].tolist()) if isinstance(last, Resize) else last.size
            if made != height_width:
                return False  # step by step, that is an error
        if self.resize is None or isinstance(self.resize, RandomResizedCrop):
            return True
        # The longer side of what these make follows from the shorter one.
        longest = np.max(self.resize.size) * (sizes.max(axis=1) / sizes.min(axis=1)).max()
        return bool(longest < LONGEST_SOURCE)

    def fill(self, plan: FieldPlan, source: InMapping | Decoded, out: Array, randoms: Randoms) -> None:
        images: Array = np.zeros(len(out), IMAGE)
        if isinstance(source, InMapping):
            images["pixels"], images["end"] = source.addresses, source.ends
            images["height"], images["width"] = source.sizes.T
            images["planes"] = source.planar
            images["stride"] = images["width"].astype(np.int64) * (1 if source.planar else plan.field.shape[2] or 1)
        images["box"][:, 2:] = images["scaled"] = source.sizes
        sizes, k = source.sizes, 0
        if self.resize is not None:
            sizes, k = self._resize(images, _drawn(plan, 0, sizes, randoms)), 1
        if self.crop is not None:
            self._crop(images, _drawn(plan, k, sizes, randoms))
            k += 1
        for bit in self.flips:
            images["flips"] ^= np.where(_drawn(plan, k, sizes, randoms), bit, 0).astype(np.int32)
            k += 1
        changes = None if self.colors is None else factors_of(list(_drawn(plan, k, sizes, randoms)))
        fill = 0 if self.crop is None else int(self.crop.fill)
        antialias = getattr(self.resize, "antialias", True)
        tables, lines = (None, None) if self.table is None else (self.table.tables, self.table.line)

        resampling = Resampling(
            images, out, planar=self.planar, antialias=antialias, fill=fill, tables=tables, lines=lines, changes=changes
        )
        if isinstance(source, InMapping):
            resampling.make()
            return
        crop, channels = plan.crop, plan.field.shape[2]
        boxes = map(tuple, images["box"].tolist()) if crop is not None else [None] * len(images)
        reduction = crop.reduction if crop is not None else None
        for i, box in enumerate(boxes):
            part = source.read(i, box, 1 if reduction is None else reduction(box))
            if part.dtype != np.uint8 or part.shape[2:] != (channels,):
                raise DamagedStoreError(f"an image is {part.dtype} {part.shape}, not of {channels} channels of bytes")
            resampling.make_of(i, part if part.strides[1:] == (channels, 1) else np.ascontiguousarray(part))
            del part  # so that the next has the same memory, which is in the processor's cache

    def _resize(self, images: Array, drawn: Drawn) -> NDArray[np.int32]:
        """Note what the first step drew. Returns the sizes (n, 2) that it makes."""
        if isinstance(self.resize, RandomResizedCrop):
            images["box"] = drawn
            images["scaled"] = self.resize.size
        elif isinstance(self.resize, Fit):
            stored = list(map(tuple, images["scaled"].tolist()))
            made_of = {size: covering(size, self.resize.size, 1) for size in set(stored)}
            images["scaled"] = [made_of[size][0] for size in stored]
            images["at"] = [made_of[size][1][:2] for size in stored]
        else:
            images["scaled"] = drawn
        made: NDArray[np.int32] = images["scaled"]
        return made

    def _crop(self, images: Array, drawn: Iterable[CropBox]) -> None:
        places = np.array([(*one.box, *one.at) for one in drawn], np.int32)
        if self.resize is None:
            images["box"] = places[:, :4]
            images["scaled"] = places[:, 2:4]
            images["at"] = -places[:, 4:]
        else:
            images["at"] = places[:, :2] - places[:, 4:]


def fused(plan: FieldPlan) -> Fused | None:
    """How the core runs a plan; None where it does not, or not as a whole."""
    field, before, steps = plan.field, plan.specs[0], list(plan.steps)
    if plan.frames is not None or field.exact or field.kind != "image":
        return None
    if any(share.times != 1 for share in plan.shares):
        return None
    if before.dtype != "uint8" or len(before.shape) != 3 or before.shape[2] not in _CHANNELS:
        return None
    if not plan.result.fixed or max((n or 0 for n in plan.result.shape), default=0) > LONGEST_RESULT:
        return None

    def take(*kinds: type[Step]) -> Any:
        return steps.pop(0) if steps and type(steps[0]) in kinds else None

    resize = take(RandomResizedCrop, Resize, Fit)
    if getattr(resize, "interpolation", "bilinear") not in BILINEAR:
        return None
    crop = None if isinstance(resize, Fit) else take(CenterCrop, RandomCrop)
    flips = []
    while (flip := take(*_FLIPS)) is not None:
        flips.append(_FLIPS[type(flip)])
    colors, table = take(ColorJitter), take(ByTable)
    planar = table.planar if table is not None else take(ToCHW) is not None
    if steps or (table is not None and table.tables.itemsize > _MOST_TABLE_BYTES):
        return None
    if not (field.codec.in_place or resize or flips or table or planar):
        return None  # to copy a part of what was decoded, NumPy is faster
    return Fused(resize, crop, tuple(flips), colors, table, planar)


def _drawn(plan: FieldPlan, k: int, sizes: NDArray[np.int32], randoms: Randoms) -> Drawn:
    """What step k draws for images of these sizes, (n, 2)."""
    draw_many = plan.drawing[k]
    if draw_many is None:
        return [None] * len(sizes)
    height, width = sizes[0].tolist()
    if (sizes == sizes[0]).all():
        return draw_many(randoms, height, width)
    step = plan.shares[k].step
    return [step.draw(random, *size) for random, size in zip(randoms.each, sizes.tolist(), strict=True)]


def all_fused(pipeline: Pipeline) -> bool:
    """Whether the core, where it is in use, makes all images of a slice in one call."""
    alone = len(pipeline.pixels) == 1 and pipeline.samples is None
    return alone and pipeline.plans[pipeline.pixels[0]].fused is not None


def resizes(pipeline: Pipeline) -> bool:
    return bool(_resized(pipeline))


def _resized(pipeline: Pipeline) -> list[Spec]:
    """The images that are resized bilinearly, as they are before that."""
    from rawpack.transforms.views import FieldViews

    plans = [plan for plan in pipeline.plans.values() if not plan.field.exact]
    plans += [step.plan for plan in plans for step in plan.steps if isinstance(step, FieldViews)]
    kinds = RandomResizedCrop, Resize, Fit
    return [
        spec
        for plan in plans
        for step, spec in zip(plan.steps, plan.specs, strict=False)
        if isinstance(step, kinds) and getattr(step, "interpolation", "bilinear") in BILINEAR
    ]


def native_share(pipeline: Pipeline) -> str:
    """How much of a transform the core does: "all", "part" or "none". Warns where it would, and is not there."""
    one_by_one = any(spec.dtype == "uint8" and spec.shape[-1] in _CHANNELS for spec in _resized(pipeline))
    one_by_one |= any(isinstance(step, ColorJitter) for plan in pipeline.plans.values() for step in plan.steps)
    share = "all" if all_fused(pipeline) else "part" if one_by_one else "none"
    return share if share == "none" or native.library() is not None else "none"
