"""What `image_size=` asks of a store: one size, or buckets, of which each image has the best; for all images of a
sample, or by field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.checks import size_of
from rawpack.choose.options import Buckets, Options, by_field
from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.pixels.aspects import Size, Sizes, best_sizes, choose_sizes
from rawpack.samples.sample_set import SampleSet
from rawpack.system.user import count

_MOST_PIXELS = 1 << 28
"""More are no size to train with, and have too many sizes to choose from."""


class Bucket(msgspec.Struct, frozen=True):
    """One size of batches."""

    size: tuple[int, int]
    """(height, width)."""
    samples: int
    """How many of the reader's samples are in it."""
    lost: float
    """The share of their pixels that is cut away."""
    enlarged: int
    """How many of them are smaller than they come."""


class FoundBuckets(Sequence[Bucket]):
    """All buckets of some batches. `str()` of them is a table."""

    def __init__(self, images: Sizes, sizes: Sequence[Size]) -> None:
        """images: the size of each sample."""
        self.of, lost, enlarged = best_sizes(images, sizes)
        """The bucket of each sample, uint8 (n,)."""
        pixels = images.astype(np.int64).prod(axis=1)

        def per_bucket(values: NDArray[Any]) -> NDArray[Any]:
            return np.bincount(self.of, values, len(sizes))

        gone, whole = per_bucket(lost * pixels), per_bucket(pixels)
        figures = zip(
            sizes, np.bincount(self.of, minlength=len(sizes)).tolist(), (gone / np.maximum(whole, 1)).tolist(),
            per_bucket(enlarged).astype(int).tolist(), strict=True,
        )  # fmt: skip
        self._buckets = tuple(Bucket(*one) for one in figures)
        self.lost = float(gone.sum() / whole.sum())
        """The share of all pixels that is cut away."""

    def __getitem__(self, index: Any) -> Any:
        return self._buckets[index]

    def __len__(self) -> int:
        return len(self._buckets)

    def __repr__(self) -> str:
        shown = "; ".join(f"{_shown(one.size)}: {count(one.samples, 'sample')}, {one.lost:.1%} lost" for one in self)
        return f"{type(self).__name__}({shown}; {self.lost:.1%} of all pixels lost)"

    def __str__(self) -> str:
        every = ("all", sum(one.samples for one in self), self.lost, sum(one.enlarged for one in self))
        rows = [*((_shown(one.size), one.samples, one.lost, one.enlarged) for one in self), every]
        lines = [f"{size:>11}{samples:>12}{lost:>12.1%}{enlarged:>12}" for size, samples, lost, enlarged in rows]
        return "\n".join([f"{'size':>11}{'samples':>12}{'pixels lost':>12}{'enlarged':>12}", *lines])

    @property
    def sizes(self) -> list[Size]:
        """(height, width) of each."""
        return [one.size for one in self]

    @property
    def identity(self) -> str:
        """Identifies the buckets and what is in them: part of a state."""
        return f"{' '.join(_shown(size) for size in self.sizes)} {xxhash.xxh3_64_hexdigest(self.of.data)}"


class Asked(msgspec.Struct, frozen=True):
    """What `image_size=` asks."""

    size: Size | None = None
    """Of the main image, and by it of the images that are not in `others`; None where there is none, or are buckets."""
    buckets: FoundBuckets | None = None
    """Of the main image."""
    others: Mapping[str, Size] | None = None
    """The sizes of other images, where sizes are by field: then those without one stay as they are."""

    @property
    def sizes(self) -> list[Size | None]:
        """That of the main image, in each kind of batches."""
        return [self.size] if self.buckets is None else [*self.buckets.sizes]

    def resized(self, size: Size | None, main: str, fields: Mapping[str, Field]) -> dict[tuple[str, ...] | None, Size]:
        """Which images and masks come in which size; None: all. size: of `sizes`. main: the main image."""
        if self.others is None:
            return {} if size is None else {None: size}
        # Masks follow their image.
        its = tuple(name for name, field in fields.items() if name == main or field.kind == "mask")
        return {**({} if size is None else {its: size}), **{(name,): one for name, one in self.others.items()}}


def asked_sizes(samples: SampleSet, options: Options, main: str) -> Asked:
    """What `image_size=` asks. main: the field that buckets go by."""
    asked, fields = options.image_size, samples.library.fields
    images = [name for name, field in fields.items() if field.kind == "image"]
    if asked is None:
        return Asked()
    if not images and isinstance(asked, Mapping | Buckets):
        what = "Buckets are for images" if isinstance(asked, Buckets) else "image_size= is by field"
        raise UsageError(f"{what}, and the store has none: leave out image_size=")
    others: Mapping[str, Size] | None = None
    if isinstance(asked, Mapping):
        named = {name: one for name, one in by_field("image_size", asked, images, None).items() if one is not None}
        asked = named.pop(main, None)
        if wrong := [name for name, one in named.items() if isinstance(one, Buckets)]:
            raise UsageError(f"image_size= has Buckets for {wrong[0]!r}: they are for {main!r}, pass a size for others")
        others = {name: size_of(one, "image_size") for name, one in named.items()} if len(images) > 1 else None
    if not isinstance(asked, Buckets):
        return Asked(None if asked is None else size_of(asked, "image_size"), None, others)
    if len(samples.lengths) > 1:
        raise UsageError("Buckets are for clips of one length: leave them out, or call clips() with one number")
    return Asked(None, _find_buckets(samples, main, asked), others)


def _find_buckets(samples: SampleSet, name: str, asked: Buckets) -> FoundBuckets:
    """The buckets of samples by their images, of clips by those of their first frames. name: the field of images."""
    field = samples.library.fields[name]
    if len(field.shape) != 3:
        raise UsageError(f"Buckets are for images (height, width, channels), and {name!r} is {field.shape}")
    if field.uniform:
        raise UsageError(
            f"all images of the store are {field.shape[0]}x{field.shape[1]}, so one size is best: pass a size as "
            "image_size=, or leave it out; stores that were packed with --size keep have images of many sizes"
        )
    images, rows = samples.library.shapes(name)[:, :2], samples.rows
    images = images if rows is None else images[rows]
    if not isinstance(asked.sizes, str):
        return FoundBuckets(images, [size_of(one, "sizes") for one in asked.sizes])
    if asked.area is None:
        area = float(np.median(images.astype(np.int64).prod(axis=1)))
    else:
        area = math.prod(size_of(asked.area, "area"))
    if area > _MOST_PIXELS:
        raise UsageError(f"{asked}: {area:.0f} pixels are too many for one image: pass a smaller area=")
    return FoundBuckets(images, choose_sizes(images, float(area)))


def _shown(size: Size) -> str:
    return f"{size[0]}x{size[1]}"
