"""Numbers of bytes as people write them."""

from __future__ import annotations

import re

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_BYTES = re.compile(r"\s*(?P<number>\d{1,18}(\.\d{1,18})?)\s*(?P<unit>([kmgt]i?)?)b?\s*", re.IGNORECASE | re.ASCII)


def byte_count(value: object) -> int | None:
    """The bytes that 200_000_000_000, "200GB" or "1.5 TiB" means; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _BYTES.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    unit = match["unit"].lower()
    return int(float(match["number"]) * (1024 if unit.endswith("i") else 1000) ** _UNITS[unit[:1]])
