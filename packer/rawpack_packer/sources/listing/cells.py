"""What a cell of a CSV or TSV file holds."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

_INT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LONG = 1000
"""Digits that are no number any more: Python itself refuses to read some thousands."""
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class Beyond:
    """A number that is larger than any float64."""

    text: str
    """As it is written."""

    def __repr__(self) -> str:
        return self.text


def of_cell(cell: str) -> Any:
    """What a cell holds: None where it is empty, a bool, int, float or Beyond, a list, or the text itself.

    Digits after a leading zero are text: they name something.
    """
    text = cell.strip()
    if _INT.fullmatch(text):
        return int(text) if len(text) < _LONG else cell
    if not text:
        return None
    if text[0] == "[" and text[-1] == "]":
        return _of_list(text, cell)
    if _FLOAT.fullmatch(text) and not _LEADING_ZERO.match(text):
        return of_float(text)
    return _BOOLS.get(text, cell)


def of_float(text: str) -> float | Beyond:
    """What is written as a float; infinite only where it says so itself."""
    value = float(text)
    return Beyond(text) if math.isinf(value) and "n" not in text.lower() else value


def _of_list(text: str, cell: str) -> Any:
    """A list as JSON has it, or the cell where it is none. Python's own parser, which is slower, knows NaN."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(text, parse_float=of_float)
        except (ValueError, RecursionError):
            return cell
