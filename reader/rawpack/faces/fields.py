"""What faces share: the framework, which fields of a batch it gets, and in which form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from operator import itemgetter
from typing import Any

from rawpack.choose.options import names
from rawpack.epoch.feed import Feed
from rawpack.errors import MissingExtraError, UsageError

Chosen = str | Sequence[str] | Mapping[str, str]
"""A field; or several: a tuple of them, or a dict with names of its own -> field."""
Form = Callable[[Mapping[str, Any]], Any]
"""What the caller gets for the fields of a batch."""


def imported(name: str, needs: str) -> Any:
    """A framework's module. Raises MissingExtraError without it. needs: what to install."""
    try:
        return import_module(name)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name
        raise MissingExtraError(needs if missing else f"{needs} ({error})") from error


def check_fields(feed: Feed, parameter: str, fields: Iterable[Any]) -> None:
    """Raise UsageError for a field that no batch has."""
    described = feed.making.described()
    for field in fields:
        if not isinstance(field, str) or field not in described:
            raise UsageError(f"{parameter}: there is no field {field!r} in a batch, only {', '.join(described)}")


def tuples(feed: Feed, as_tuple: Sequence[str] | None) -> tuple[Form | None, str]:
    """The form of batches as tuples of these fields, and words to show it; (None, "") for dicts. UsageError for a field
    that no batch has."""
    if as_tuple is None:
        return None, ""
    form, fields = _picked(feed, "as_tuple", names("as_tuple", as_tuple))
    return form, f", tuples ({', '.join(fields)})"


def inputs_and_labels(
    feed: Feed, x: Chosen, y: Chosen | None, sample_weight: str | None
) -> tuple[Callable[[Mapping[str, Any]], tuple[Any, ...]], list[str]]:
    """What makes Keras's (x,), (x, y) or (x, y, sample_weight) of a batch, and the fields that it takes. UsageError
    where that makes no sense."""
    if sample_weight is not None and y is None:
        raise UsageError(f"sample_weight={sample_weight!r} needs y=, the field that it weights")
    given = {"x": x, "y": y, "sample_weight": sample_weight}
    parts = [_picked(feed, name, value) for name, value in given.items() if value is not None or name == "x"]
    fields = list(dict.fromkeys(field for _, chosen in parts for field in chosen))
    return lambda batch: tuple(form(batch) for form, _ in parts), fields


def _picked(feed: Feed, parameter: str, chosen: Any) -> tuple[Form, list[str]]:
    """What picks these fields of a batch, and the fields."""
    if isinstance(chosen, str):
        fields = [chosen]
    else:
        fields = list(chosen.values()) if isinstance(chosen, Mapping) else names(parameter, chosen)
    check_fields(feed, parameter, fields)
    if not fields:
        raise UsageError(f"{parameter}={chosen!r} names no field")
    if isinstance(chosen, str):
        return itemgetter(chosen), fields
    if isinstance(chosen, Mapping):
        shown = list(map(str, chosen))
        return lambda batch: {name: batch[field] for name, field in zip(shown, fields, strict=True)}, fields
    return lambda batch: tuple(batch[field] for field in fields), fields
