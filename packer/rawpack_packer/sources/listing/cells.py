"""What a cell of a CSV or TSV file holds."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LONG = 1000
"""Digits that are no number any more: Python itself refuses to read some thousands."""
_decode = msgspec.json.Decoder().decode


def of_cell(cell: str) -> Any:
    """What a cell holds: None where it is empty, a bool, int or float, a list, or the text itself.

    Digits after a leading zero are text: they name something.
    """
    if _INT.fullmatch(cell):
        return int(cell) if len(cell) < _LONG else cell
    text = cell.strip()
    if not text:
        return None
    if text[0] == "[" and text[-1] == "]":
        return _of_list(text, cell)
    if _FLOAT.fullmatch(text) and not _LEADING_ZERO.match(text):
        return float(text)
    return _BOOLS.get(text, cell)


def _of_list(text: str, cell: str) -> Any:
    """A list as JSON has it, or the cell where it is none. Python's own parser, which is slower, knows NaN."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return cell
