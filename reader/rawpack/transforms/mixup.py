"""MixUp and CutMix: each sample is mixed with the one before it in the batch, and so are their labels, as vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from typing import Any, Self

import numpy as np

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.system.user import did_you_mean
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, BatchStep, Shape, Spec, Step

_MIXABLE = ("uint8", "uint16", "int16", "float16", "float32", "float64")


class OneHot(Step):
    """A class number becomes a vector of zeros with a 1 at that index: () becomes (num_classes,), and (4,) becomes
    (4, num_classes)."""

    vectorized = True

    def __init__(self, num_classes: int, field: str = "label", dtype: Any = "float32") -> None:
        """num_classes: the length of the vectors. field: the class numbers. dtype: of the result."""
        self.num_classes = whole_number("num_classes", num_classes, 1)
        self.field, self.dtype = field, np.dtype(dtype).name

    def makes(self, spec: Spec) -> Spec:
        if np.dtype(spec.dtype).kind not in "ui" or spec.layout:
            raise UsageError(f"{self!r} needs whole numbers, but {self.field!r} is {spec.dtype} {spec.shape}")
        return Spec((*spec.shape, self.num_classes), self.dtype)

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        if image.size and not (image.min() >= 0 and image.max() < self.num_classes):
            bad = image[(image < 0) | (image >= self.num_classes)].flat[0]
            raise UsageError(f"{self.field} {bad} is not one of {self.num_classes} classes")
        vectors: Array = (image[..., None] == np.arange(self.num_classes)).astype(self.dtype)
        return vectors


class _PairMixing(BatchStep):
    """What MixUp and CutMix share: partners, labels, and the random share.

    A sample's partner is the one before it in the batch; that of the first sample is the last one.
    """

    random = True

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None, field: str | None = "label") -> None:
        """alpha: each sample's own share is drawn from Beta(alpha, alpha), once for the whole batch. num_classes: class
        numbers become float32 vectors of that length; None for the number of classes of the store. field: the labels,
        class numbers or vectors of floats such as `OneHot` makes; None to mix images only."""
        if not 0 < alpha < math.inf:
            raise UsageError(f"alpha={alpha!r} must be a number above 0")
        self.alpha = alpha
        self.num_classes = None if num_classes is None else whole_number("num_classes", num_classes, 1)
        self.field = field
        self._pixels: Mapping[str, str] = {}
        self._one_hot: OneHot | None = None

    def fitted(self, specs: Mapping[str, Spec]) -> Self:
        fitted = copy(self)
        fitted._pixels = {name: spec.layout for name, spec in specs.items() if spec.kind in ("image", "mask")}
        if not fitted._pixels:
            raise UsageError(f"{self!r}: the batch has no images, only {', '.join(specs)}")
        if self.field is not None:
            fitted._one_hot = self._encoder(self.field, specs)
        return fitted

    def makes(self, specs: Mapping[str, Spec]) -> Mapping[str, Spec]:
        if self.field is None or self._one_hot is None:
            return {}
        return {self.field: self._one_hot.makes(specs[self.field])}

    def _encoder(self, field: str, specs: Mapping[str, Spec]) -> OneHot | None:
        """What makes vectors of the labels; None where they are vectors already."""
        if field not in specs:
            raise UsageError(
                f"{self!r}: the batch has no field {field!r}, only {', '.join(specs)}: name the labels with "
                f"field=, or pass field=None to mix images only{did_you_mean(field, specs)}"
            )
        label = specs[field]
        kind = np.dtype(label.dtype).kind
        if kind in "ui" and label.shape == ():
            classes = self.num_classes or label.classes
            if classes is None:
                raise UsageError(f"{self!r}: the store names no classes: pass num_classes=")
            return OneHot(classes, field)
        if kind != "f" or not label.shape:
            raise UsageError(
                f"{self!r} mixes one class number a sample, or vectors of floats, and {field!r} is {label.dtype} "
                f"{label.shape}: put OneHot(...) before it"
            )
        if self.num_classes not in (None, label.shape[-1]):
            raise UsageError(
                f"{self!r}: {field!r} is already a vector of length {label.shape[-1]}: leave out num_classes="
            )
        return None

    def apply(self, batch: dict[str, Array], random: Random) -> Mapping[str, Array]:
        mixed = dict[str, Array]()
        for name in self._pixels:
            images = batch[name]
            mixed[name] = images if images.flags.writeable and images.flags.c_contiguous else images.copy()
        share = self._mix(mixed, random.generator().beta(self.alpha, self.alpha), random)
        if self.field is not None:
            labels = batch[self.field]
            vectors = labels if self._one_hot is None else self._one_hot.apply(labels, None)
            mixed[self.field] = (share * vectors + (1 - share) * np.roll(vectors, 1, axis=0)).astype(vectors.dtype)
        return mixed

    def _mix(self, pixels: Mapping[str, Array], share: float, random: Random) -> float:
        """Mix images in place, by field, where each is to keep about this share of itself. Returns the exact share."""
        raise NotImplementedError


class MixUp(_PairMixing):
    """Each image becomes a weighted mean of itself and the image before it in the batch, and its label likewise.

    Whole numbers are rounded to the nearest. Masks and boxes are refused.
    """

    refuses = ("masks", "boxes")

    def fitted(self, specs: Mapping[str, Spec]) -> Self:
        fitted = super().fitted(specs)
        for name in fitted._pixels:
            if specs[name].dtype not in _MIXABLE:
                raise UsageError(f"{self!r} mixes {', '.join(_MIXABLE)}, and {name!r} is {specs[name].dtype}")
        return fitted

    def _mix(self, pixels: Mapping[str, Array], share: float, random: Random) -> float:
        for images in pixels.values():
            _mean_of_pairs(images, share)
        return share


class CutMix(_PairMixing):
    """A box of each image, the same for the whole batch, is replaced by that of the image before it in the batch.

    Labels are mixed by area. Masks are cut like their images; boxes are refused.
    """

    refuses = ("boxes",)

    def fitted(self, specs: Mapping[str, Spec]) -> Self:
        fitted = super().fitted(specs)
        sizes = dict[str, Shape]()
        for name, layout in fitted._pixels.items():
            shape = specs[name].shape
            if not layout:
                raise UsageError(f"{self!r} cuts images, and {name!r} is {specs[name].dtype} {shape}")
            sizes[name] = shape[-2:] if layout == "CHW" else shape[-3:-1]
        if len(set(sizes.values())) > 1:
            shown = ", ".join(f"{name!r} is {height}x{width}" for name, (height, width) in sizes.items())
            raise UsageError(f"{self!r} cuts one box out of all images of a sample, which must have one size: {shown}")
        return fitted

    def _mix(self, pixels: Mapping[str, Array], share: float, random: Random) -> float:
        views = [np.moveaxis(one, -3, -1) if self._pixels[name] == "CHW" else one for name, one in pixels.items()]
        height, width = views[0].shape[-3:-1]
        x, y = random.integer(width), random.integer(height)
        half_width, half_height = (int(math.sqrt(1 - share) / 2 * side) for side in (width, height))
        rows = slice(max(y - half_height, 0), min(y + half_height, height))
        columns = slice(max(x - half_width, 0), min(x + half_width, width))
        for images in views:
            box = images[..., rows, columns, :]
            box[...] = np.roll(box, 1, axis=0)
        area = (rows.stop - rows.start) * (columns.stop - columns.start)
        exact: float = 1 - area / (height * width)
        return exact


def _mean_of_pairs(images: Array, share: float) -> None:
    """Mix each image (n, ...) with the one before it, in place."""
    import cv2

    rows = images.reshape(len(images), 1, -1)
    last = rows[-1].copy()
    # Backward, so that each partner is still unmixed.
    for i in range(len(rows) - 1, -1, -1):
        partner = rows[i - 1] if i else last
        if images.dtype == np.float16:
            rows[i] = share * rows[i].astype(np.float32) + (1 - share) * partner.astype(np.float32)
        else:
            cv2.addWeighted(rows[i], share, partner, 1 - share, 0, dst=rows[i])
