"""Fills the images or masks of one field: its first steps take one sample at a time, its last ones several."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rawpack import native
from rawpack.errors import UsageError
from rawpack.store.stores import InMapping, Stores
from rawpack.system.times import Times
from rawpack.transforms.randomness import Random, Randoms
from rawpack.transforms.step import Array, Box, Drawn, Step, guarded

if TYPE_CHECKING:
    from rawpack.transforms.fused import Decoded, Fused
    from rawpack.transforms.pipeline import FieldPlan

IMAGE, MASK = "image", "mask"
PIXELS = (IMAGE, MASK)
"""The kinds of fields that a step without `field` is applied to, with the same random numbers."""
_SIDE = 4096
"""Of an image that is only imagined: no crop is larger."""
Size = tuple[int, int]
Check = Callable[[str, int], None]
_Made = tuple[slice, Array, Array]
"""Which samples; what has been made of them, (n, *shape); and the memory for the result, which may hold that
already."""


@dataclass(frozen=True)
class Share:
    """How a step is drawn for a field whose sample has other images."""

    step: Step
    """What draws, in the pixels of the smallest of them."""
    times: int = 1
    """How many times as large this one is."""
    beside: str = ""
    checked: bool = False


@dataclass
class Known:
    """What a step drew for samples, in their order: once for all of their images and frames."""

    name: str
    times: int
    drawn: list[Any] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    """Of the smallest image of each."""


@dataclass(frozen=True)
class ImageFiller:
    library: Stores
    name: str
    plan: FieldPlan
    rows: NDArray[np.int64]
    outs: Array
    randoms: Randoms
    check: Check | None
    known: dict[int, Known] | None = None
    """Where samples have several images: step number -> what was drawn; used and added to."""
    _spent: Times = field(default_factory=Times)

    def fill(self, times: Times) -> None:
        """Make them all, and add to `times` what that took."""
        plan, spent, codec = self.plan, self._spent, self.plan.field.codec
        fused = plan.fused if self.known is None and native.library() is not None else None
        if fused is not None:
            in_place = self.library.in_place(self.name)
            source = self.library.in_mapping(self.name, self.rows) if in_place else self._decoded()
            if fused.takes(source.sizes, self.outs.shape):
                self._fill_at_once(fused, source, times)
                return
        applied = [guarded(step, step.apply_many) for step in plan.steps]
        steps = list(zip(applied, plan.drawing, plan.fits, plan.specs[:-1], strict=True))[plan.alone :]
        for part, images, out in self._made():
            began, one = time.perf_counter(), len(out) == 1
            randoms = self.randoms if self._frames > 1 or one else self.randoms[part]
            for k, (apply, draw_many, fits, given) in enumerate(steps, plan.alone):
                if draw_many is None:
                    places: Drawn = [None] * len(images)
                elif len(images) == 1:  # for one, `draw` takes a tenth of the time
                    places = [self._drawn(part.start, k, images.shape[1:])]
                elif self.known is None:
                    places = draw_many(randoms, *sides(images.shape[1:], given.layout))
                else:
                    places = self._shared(k, part, images.shape[1:], randoms)
                images = apply(images, places, out if fits else None)
            if images is not out:
                put(images[0] if one else images, out[0, ...] if one else out, plan, self.name)
            spent.transforming += time.perf_counter() - began
        if not codec.in_place or codec.planar:
            spent.decoding, spent.reading = spent.reading, 0.0
        times.add(spent)

    def _fill_at_once(self, fused: Fused, source: InMapping | Decoded, times: Times) -> None:
        """By one call of the native core, or by one for some samples at a time."""
        began = time.perf_counter()
        if self.check is not None and isinstance(source, InMapping):
            for row in self.rows.tolist():
                self.check(self.name, row)
        fused.fill(self.plan, source, self.outs, self.randoms)
        decoding = self._spent.decoding
        times.decoding += decoding
        times.transforming += time.perf_counter() - began - decoding

    def _decoded(self) -> Decoded:
        """What `Fused` reads samples from that are not stored as they are read."""
        from rawpack.transforms.fused import Decoded

        located, spent, clock = self.library.located(self.name, self.rows), self._spent, time.perf_counter
        sizes = [shape[:2] for shape in shapes_of(self.library, self.name, self.rows)]

        def read(i: int, box: Box | None, scale: int) -> Array:
            sample = int(self.rows[i])
            if self.check is not None:
                self.check(self.name, sample)  # right before, so that what is inflated for it is at hand
            began, (reader, row) = clock(), located[i]
            part = reader.read(row, box, self._allowed(scale, sample))
            spent.decoding += clock() - began
            return part

        return Decoded(np.array(sizes, np.int32).reshape(-1, 2), read)

    def _allowed(self, scale: int, row: int) -> int:
        """`scale` for a sample that may be decoded at a reduced scale; 1 for those that another store holds in full."""
        return scale if scale > 1 and self.library.scales(self.name, row) else 1

    def _made(self) -> Iterator[_Made]:
        """The samples before the steps that take several."""
        many, given = min(self.plan.many, len(self.rows)), self.plan.specs[self.plan.alone]
        if many <= 1:
            return self._one_by_one()
        memory: Array = np.empty((many, *(n or 0 for n in given.shape)), given.dtype)
        if self.plan.alone == 0 and self.plan.field.uniform and self.check is None:
            return self._read_many(memory)
        return self._collected(memory)

    def _read_many(self, memory: Array) -> Iterator[_Made]:
        """Samples as they are stored, as many at a time as `memory` holds."""
        for start in range(0, len(self.rows), len(memory)):
            part, began = slice(start, start + len(memory)), time.perf_counter()
            rows = self.rows[part]
            images = memory[: len(rows)]
            self.library.read_into(self.name, rows, images)
            self._spent.reading += time.perf_counter() - began
            yield part, images, self.outs[part]

    def _collected(self, memory: Array) -> Iterator[_Made]:
        """Samples made one by one, as many at a time as `memory` holds. One that is not as declared stays alone."""
        start = end = 0
        """Which samples are in `memory`."""
        for part, images, out in self._one_by_one():
            alike = images.shape[1:] == memory.shape[1:] and images.dtype == memory.dtype
            if start < end and not (alike and end - start < len(memory)):
                yield slice(start, end), memory[: end - start], self.outs[start:end]
                start = end
            if alike:
                memory[end - start] = images[0]
            else:
                yield part, images, out
                start = part.stop
            end = part.stop
        if start < end:
            yield slice(start, end), memory[: end - start], self.outs[start:end]

    def _one_by_one(self) -> Iterator[_Made]:
        """Each sample after the steps that take one at a time."""
        clock, plan, spent, crop, rows = time.perf_counter, self.plan, self._spent, self.plan.crop, self.rows
        exact = plan.field.exact
        applied = [plan.applied(k) for k in range(len(plan.steps))]
        # Where samples have several images, the sizes of these are looked at also where nothing is drawn.
        drawing = [
            draw_many is not None or (self.known is not None and share.checked)
            for draw_many, share in zip(plan.drawing, plan.shares, strict=True)
        ]
        later = list(zip(range(len(plan.steps)), drawing, applied, plan.fits, strict=True))
        later = later[0 if crop is None else 1 : plan.alone]
        places: Iterable[Any] = repeat(None, len(rows))
        if crop is not None:
            places, box, scale, last = self._crops(drawing[0]), None, 1, self
            finish = guarded(crop, crop.finish_mask if exact else crop.finish)
        samples = zip(self.library.located(self.name, rows), places, rows.tolist(), strict=True)
        for n, ((reader, row), place, sample) in enumerate(samples):
            began, outs = clock(), self.outs[n : n + 1]
            out = outs[0, ...]
            if self.check is not None:
                self.check(self.name, sample)
            if crop is not None:
                if place is not last:
                    box, scale, last = crop.box(place), 1 if exact else crop.reduction(place), place
                part = reader.read(row, box, self._allowed(scale, sample))
                read = clock()
                image = finish(part, place, out if plan.fits[0] else None)
            else:
                image = reader.read(row)
                read = clock()
            for k, draws, apply, fits in later:
                drawn = self._drawn(n, k, image.shape) if draws else None
                image = apply(image, drawn, out if fits else None)
            spent.reading += read - began
            spent.transforming += clock() - read
            yield slice(n, n + 1), outs if image is out else np.asarray(image)[None], outs

    def _crops(self, draws: bool) -> Drawn:
        """What the crop that comes first draws for each frame."""
        if not draws or not len(self.rows):
            return [None] * len(self.rows)
        shapes, draw_many = shapes_of(self.library, self.name, self.rows), self.plan.drawing[0]
        if self.plan.field.uniform and self._frames == 1 and draw_many is not None:
            if self.known is None:
                return draw_many(self.randoms, *shapes[0][:2])
            return self._shared(0, slice(0, len(shapes)), shapes[0], self.randoms)
        return [self._drawn(n, 0, shape) for n, shape in enumerate(shapes)]

    def _drawn(self, n: int, k: int, shape: tuple[int, ...]) -> Any:
        """What step k draws for frame n, an array of that shape; or drew for another image or frame of the sample."""
        share, layout = self.plan.shares[k], self.plan.specs[k].layout
        if self.known is None:
            return share.step.draw(self.randoms.each[n], *sides(shape, layout))
        i, known, size = n // self._frames, self._known(k), self._size(k, n, shape)
        if i == len(known.drawn):
            known.drawn.append(share.step.draw(self.randoms.each[i], *size))
            known.sizes.append(size)
        elif share.checked and known.sizes[i] != size:
            self._refuse(k, n, shape)
        return known.drawn[i] if share.times == 1 else share.step.magnified(known.drawn[i], share.times)

    def _shared(self, k: int, part: slice, shape: tuple[int, ...], randoms: Randoms) -> Drawn:
        """The same for several frames of one shape. randoms: those of their samples, where these are no clips."""
        if self._frames > 1:
            return [self._drawn(n, k, shape) for n in range(part.start, part.stop)]
        share, known, draw_many = self.plan.shares[k], self._known(k), self.plan.drawing[k]
        size = self._size(k, part.start, shape)
        sizes = [size] * (part.stop - part.start)
        if part.start == len(known.drawn) and draw_many is not None:
            known.drawn.extend(draw_many(randoms, *size))
            known.sizes += sizes
        elif share.checked and known.sizes[part] != sizes:
            self._refuse(k, next(n for n in range(part.start, part.stop) if known.sizes[n] != size), shape)
        drawn = known.drawn[part]
        return drawn if share.times == 1 else [share.step.magnified(one, share.times) for one in drawn]

    def _known(self, k: int) -> Known:
        assert self.known is not None
        number = self.plan.numbers[k]
        if number not in self.known:
            self.known[number] = Known(self.name, self.plan.shares[k].times)
        return self.known[number]

    def _size(self, k: int, n: int, shape: tuple[int, ...]) -> Size:
        """Of the smallest image of the sample of frame n, which has this shape before step k."""
        times, (height, width) = self.plan.shares[k].times, sides(shape, self.plan.specs[k].layout)
        if times == 1:
            return height, width
        if height % times or width % times:
            self._refuse(k, n, shape)
        return height // times, width // times

    def _refuse(self, k: int, n: int, shape: tuple[int, ...]) -> NoReturn:
        """Raise UsageError for frame n, whose size does not fit to what was drawn."""
        known, share, i = self._known(k), self.plan.shares[k], n // self._frames
        size, other, where = sides(shape, self.plan.specs[k].layout), "", f"of sample {self.rows[n]}"
        if i >= len(known.sizes):
            other = f"{share.beside!r}, of which it should be {share.times} times the size,"
        elif known.name != self.name:
            other = f"{known.name!r} {known.sizes[i][0] * known.times}x{known.sizes[i][1] * known.times}"
        else:
            raise UsageError(
                f"{self.name!r} {where} is {size[0]}x{size[1]} and another frame of its clip "
                f"{known.sizes[i][0]}x{known.sizes[i][1]} (height x width): pack frames with --size"
            )
        raise UsageError(misfit(share.step, f"{self.name!r} {where}", size, other))

    @cached_property
    def _frames(self) -> int:
        return len(self.rows) // max(1, len(self.randoms))


def draws_at_random(step: Step) -> bool:
    """Whether what a step draws depends on random numbers. That of CenterCrop depends only on the size."""
    random = Random(0)
    try:
        step.draw(random, _SIDE, _SIDE)
    except Exception:
        return True  # such as for an image of that size
    return random.random() != Random(0).random()


def sides(shape: tuple[int, ...], layout: str) -> tuple[int, int]:
    """(height, width) of an array; of one that is not an image, the lengths of its first two axes."""
    height, width = (*(shape[1:] if layout == "CHW" else shape), 1, 1)[:2]
    return height, width


def shapes_of(library: Stores, name: str, rows: NDArray[np.int64]) -> list[tuple[int, ...]]:
    """The shape of each sample's image, as it is stored."""
    stored = library.fields[name]
    if stored.uniform:
        return [tuple(n or 0 for n in stored.shape)] * len(rows)
    return [reader.shape(row) for reader, row in library.located(name, rows)]


def misfit(step: Step, name: str, size: Size, other: str) -> str:
    """What to say where images that a step moves together are of sizes that do not fit. name, size: of one; other: the
    other, with its size."""
    return (
        f"{name} is {size[0]}x{size[1]} and {other} (height x width): {step!r} is drawn once for all images of a "
        "sample, so they must have one size, or be a whole number of times as large as the smallest, the same in all "
        "samples: name those that it is for with fields= of the step, resize them with image_size= by field, or leave "
        "one out with fields= of batches()"
    )


def same_size(sizes: list[tuple[int, ...]], i: int, shape: tuple[int, ...], name: str) -> None:
    """Note the size of sample i. Raises UsageError if its other images have another one."""
    if len(sizes) <= i:
        sizes.append(shape[:2])
    elif sizes[i] != shape[:2]:
        raise UsageError(
            f"{name!r} is {shape[0]}x{shape[1]} and another image of the sample {sizes[i][0]}x{sizes[i][1]} (height x "
            "width): images that are cropped before they are decoded must have one size; leave one out with fields="
        )


def put(made: Array, out: Array, plan: FieldPlan | str, name: str) -> None:
    """Copy a result into `out`, or put a copy into an array of objects, where sizes differ. Raises UsageError if its
    shape or dtype is not the declared one."""
    if out.dtype == object:
        out[()] = np.array(made)
        return
    shape, dtype = np.shape(made), getattr(made, "dtype", None)
    if shape != out.shape or dtype != out.dtype:
        by = plan if isinstance(plan, str) else ", ".join(map(repr, plan.steps))
        raise UsageError(
            f"{by} made {dtype} {shape} of {name!r}, where {out.dtype} {out.shape} was expected: declare the result of "
            "a function with shape= and dtype=, that of a step of your own with makes()"
        )
    np.copyto(out, made)
