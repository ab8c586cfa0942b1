"""The base of samplers that look at a column of the reader, for `Reader.batches(sampler=)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.errors import UsageError
from rawpack.order.base import Order

Column = NDArray[Any]
"""A value for each sample, (n,)."""


class FromColumn(ABC):
    """A sampler whose order depends on a column, such as the label of each sample.

    by: the name of a field, or an array with one value for each sample of the reader.
    """

    def __init__(self, by: str | ArrayLike) -> None:
        self._by = by

    @abstractmethod
    def _order(self, column: Column, seed: int, batch_size: int) -> Order:
        """The order of the samples that have these values."""

    def order(self, column_of: Callable[[str], ArrayLike], n: int, seed: int, batch_size: int) -> Order:
        """The order of `n` samples. column_of: gives a column by its name. Raises UsageError where it does not fit."""
        column = np.asarray(column_of(self._by) if isinstance(self._by, str) else self._by)
        if column.shape != (n,):
            raise UsageError(
                f"{self.what} must have one value for each of the {n} samples, not values of shape {column.shape}"
            )
        return self._order(column, seed, batch_size)

    @property
    def what(self) -> str:
        """The column, as an error names it."""
        return f"{type(self).__name__}({repr(self._by) if isinstance(self._by, str) else 'array'})"
