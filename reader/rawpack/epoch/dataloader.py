"""torch's DataLoader: `Batches` as its iterable dataset, without workers of its own, and what to write instead of its
attributes. torch is never imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn, Self

from rawpack.epoch.misuse import refuse
from rawpack.errors import UsageError


def register(kind: type) -> None:
    """Have a DataLoader take objects of this class for iterable datasets, if torch is imported."""
    dataset: Any = getattr(_module(), "IterableDataset", None)
    if hasattr(dataset, "register"):
        dataset.register(kind)


def not_indexed() -> UsageError:
    """The error for whoever indexes batches, as a DataLoader does that does not know that they are iterable."""
    return UsageError(
        "batches are iterated, not indexed; for a DataLoader of torch import torch before you call batches(), and pass "
        "it that result with batch_size=None, or pass it the reader itself"
    )


def check_no_worker() -> None:
    """Raise UsageError in a worker of a DataLoader: it has copies of the batches, and would read all of them."""
    asked = getattr(_module(), "get_worker_info", None)
    if asked is not None and asked() is not None:
        raise UsageError(
            "batches are read in a worker of a DataLoader, but have workers of their own: write "
            "DataLoader(batches, batch_size=None, num_workers=0), or leave out the DataLoader; "
            "reader.batches(workers=...) says how many"
        )


_ATTRIBUTES = (
    ("labels targets", 'reader.column("label")', 'batch["label"]'),
    ("image images data", 'reader[i]["image"]', 'batch["image"]'),
    ("shape dtype", 'reader.fields["image"].{name}', 'batch["image"].{name}'),
    ("samples imgs", 'reader[i], or all of reader.column("key") and reader.column("label")', ""),
    ("transform transforms target_transform", "reader.batches(..., transform=[...])", ""),
    ("map", "reader.batches(..., transform=[...])", ""),
    ("filter", 'reader.select(where="label == 3")', "reader.select(...).batches(...)"),
    ("shuffle", "reader.batches(..., shuffle=True)", ""),
    ("to cuda", 'reader.batches(...).torch("cuda")', 'batches.torch("cuda")'),
)
"""Attributes that users of torch and of datasets type, and what to write for those of a reader, and of batches; "" for
the same."""


def _attribute(of_reader: bool, owner: object, name: str) -> NoReturn:
    """The `__getattr__` of a class: raise AttributeError, with what to write where the table has it, so that `hasattr`
    is False."""
    for names, reader, batches in _ATTRIBUTES:
        if name in names.split():
            line = (reader if of_reader or not batches else batches).format(name=name)
            raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}: write {line}")
    object.__getattribute__(owner, name)  # Python's own words, or the AttributeError of a property
    raise AssertionError(name)


def attribute_of_reader(reader: object, name: str) -> NoReturn:
    _attribute(True, reader, name)


def attribute_of_batches(batches: object, name: str) -> NoReturn:
    _attribute(False, batches, name)


class Unprepared:
    """The base of batches for torch. Accelerate's `prepare` is refused: it would return them as they are, without
    knowing which batch is the last of an epoch."""

    _preparable = False

    if not TYPE_CHECKING:  # type checkers know all names
        __getattr__ = attribute_of_batches

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> type[Self]:
        # All that `prepare` does with an object of a class that it does not know is isinstance(), which asks for this.
        if not self._preparable:
            refuse("class", self)
        return type(self)


def _module() -> Any:
    return sys.modules.get("torch.utils.data")
