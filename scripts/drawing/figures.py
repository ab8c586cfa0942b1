"""Figures from the rows of a result: medians, ranges, ratios, and the order of the systems."""

from __future__ import annotations

import statistics
from typing import Any

Row = dict[str, Any]
Result = dict[str, Any]
WAYS = {
    ("raw", "centre"): "raw, 224 px",
    ("jpeg", "centre"): "JPEG, 256 px, center crop 224",
    ("jpeg", "random"): "JPEG, 256 px, random-resized-crop 224 and flip",
}
KINDS = {"raw": "raw", "jpeg": "JPEG"}


def ordered(rows: list[Row]) -> list[Row]:
    """One row for each system, fastest first."""
    good = [row for row in rows if "images_per_s" in row]
    one = {row["system"]: row for row in good}
    return sorted(one.values(), key=lambda row: -middle(good, row["system"], "images_per_s"))


def values(rows: list[Row], system: str, quantity: str) -> list[float]:
    return [row[quantity] for row in rows if row["system"] == system and quantity in row]


def middle(rows: list[Row], system: str, quantity: str) -> float:
    return statistics.median(values(rows, system, quantity))


def median(rows: list[Row], row: Row, quantity: str, shape: str, times: float = 1.0) -> str:
    found = values(rows, row["system"], quantity)
    return shape.format(statistics.median(found) * times) if found else ""


def spread(rows: list[Row], row: Row, quantity: str) -> str:
    """The median, and the range if there was more than one round."""
    found = values(rows, row["system"], quantity)
    text = f"{statistics.median(found):,.0f}"
    return text if len(found) == 1 else f"{text} ({min(found):,.0f} to {max(found):,.0f})"


def ratio(rows: list[Row], row: Row, *, limit: bool) -> str:
    """The median over the rounds of the ratio to the bare limit, or to rawpack's fastest format."""
    others: dict[Any, float] = {}
    for other in rows:
        if "images_per_s" in other and (other.get("limit", False) if limit else is_own(other)):
            key = other["group"], other["round"]
            others[key] = max(others.get(key, 0.0), other["images_per_s"])
    found = [
        one["images_per_s"] / others[one["group"], one["round"]]
        for one in rows
        if one["system"] == row["system"] and "images_per_s" in one and (one["group"], one["round"]) in others
    ]
    if not found and others:
        found = [middle(rows, row["system"], "images_per_s") / statistics.median(others.values())]
    return f"{statistics.median(found):.2f}" if found else ""


def is_own(row: Row) -> bool:
    return bool(row["system"].startswith("rawpack"))
