"""Times and decimals, which no number of a store is, as text: by one rule for all sources."""

from __future__ import annotations

import re
from datetime import date, time, timedelta
from decimal import Decimal

import numpy as np

TextOnly = date | time | timedelta | np.datetime64 | np.timedelta64 | Decimal
"""Values that are stored as text, where text is asked for. pandas' own are among them."""
_FRACTION = re.compile(r"\.(\d*?)0*(?=[+\-Z]|$)")
_NANO = 10**9


def plain_text(value: TextOnly) -> str:
    """A time as ISO 8601 has it, with as many digits as it needs, such as 2026-11-28T08:15:00.5; a duration in seconds,
    such as PT90.5S; a decimal as Python writes it; nothing for a time that is missing."""
    if isinstance(value, Decimal):
        return str(value)
    if type(value).__name__ == "NaTType" or (isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value)):
        return ""
    if isinstance(value, timedelta | np.timedelta64):
        return _duration(value)
    text = str(value) if isinstance(value, np.datetime64) else value.isoformat()
    return _FRACTION.sub(lambda found: found[1] and f".{found[1]}", text)


def _duration(value: timedelta | np.timedelta64) -> str:
    unit, step = np.datetime_data(value.dtype) if isinstance(value, np.timedelta64) else ("", 1)
    item = value.item() if isinstance(value, np.timedelta64) else value
    if isinstance(item, timedelta):
        whole = (item.days * 86400 + item.seconds) * _NANO
        number = whole + item.microseconds * 1000 + getattr(item, "nanoseconds", 0)
    elif unit == "ns" and item is not None:
        number = int(item) * step
    else:  # months, which have no length
        return str(value)
    seconds, rest = divmod(abs(number), _NANO)
    digits = f".{rest:09}".rstrip("0") if rest else ""
    return f"{'-' * (number < 0)}PT{seconds}{digits}S"
