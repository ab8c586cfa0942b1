"""Labels as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from rawpack.errors import UsageError
from rawpack.transforms.step import Array, Spec, Step


class OneHot(Step):
    """A class number becomes a vector of zeros with a 1 at that index: () becomes (num_classes,), and (4,) becomes
    (4, num_classes)."""

    vectorized = True

    def __init__(self, num_classes: int, field: str = "label", dtype: Any = "float32") -> None:
        """num_classes: the length of the vectors. field: the class numbers. dtype: of the result."""
        if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer) or num_classes < 1:
            raise UsageError(f"num_classes={num_classes!r} must be a whole number of at least 1")
        self.num_classes, self.field, self.dtype = int(num_classes), field, np.dtype(dtype).name

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
