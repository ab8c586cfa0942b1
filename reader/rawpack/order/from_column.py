"""The base of orders by a column of the reader, for `Reader.batches(sampler=)`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.errors import UsageError
from rawpack.order.base import Order
from rawpack.order.keys import whole_number

Column = NDArray[Any]
"""A value for each sample, (n,)."""


class FromColumn(Order):
    """An order that depends on a column, such as the label of each sample. Users make one without samples.

    by: the name of a field, or an array with one value for each sample of the reader.
    """

    repeats = True

    def __init__(self, by: str | ArrayLike) -> None:
        self._by = by

    @abstractmethod
    def _set(self, column: Column, seed: int, batch_size: int) -> None:
        """Become the order of the samples that have these values."""

    def order(self, column_of: Callable[[str], ArrayLike], n: int, seed: int, batch_size: int) -> Self:
        """The same for `n` samples. column_of: gives a column by its name. Raises UsageError where it does not fit."""
        column = np.asarray(column_of(self._by) if isinstance(self._by, str) else self._by)
        if column.shape != (n,):
            raise UsageError(
                f"{self.what} must have one value for each of the {n} samples, not values of shape {column.shape}"
            )
        order = copy(self)
        order._set(column, whole_number("seed", seed), batch_size)
        return order

    @property
    def what(self) -> str:
        """The column, as an error names it."""
        return f"{type(self).__name__}({repr(self._by) if isinstance(self._by, str) else 'array'})"
