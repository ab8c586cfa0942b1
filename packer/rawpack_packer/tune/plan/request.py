"""What a user asked `rawpack plan`, from the words of the command line."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rawpack.errors import UsageError
from rawpack.order.keys import whole_number
from rawpack.system import machine
from rawpack_packer.options import RECIPE, SOURCE
from rawpack_packer.options.naming import opt
from rawpack_packer.options.values import JPEG_TABLES, parse_bytes
from rawpack_packer.recipe.recipe import FORMATS
from rawpack_packer.tune.measure.rounds import worker_counts
from rawpack_packer.tune.measure.steps import parse_side, parse_steps
from rawpack_packer.tune.plan.candidates import candidates
from rawpack_packer.tune.plan.planned import PlanRequest
from rawpack_packer.tune.plan.recommend import Goals

_TRIED = {one.name: one.tried[0] for one in RECIPE if one.tried}
"""Keywords that take several values -> the options that do."""


def plan_request(
    source: str,
    *,
    about: Mapping[str, Any],
    target: float | None = None,
    disk: str | None = None,
    memory: str | None = None,
    formats: Sequence[str] = (),
    sizes: Sequence[str] = (),
    qualities: Sequence[str] = (),
    colors: Sequence[str] = (),
    compressions: Sequence[str] = (),
    jpeg_tables: Sequence[str] = (),
    workers: Sequence[int] = (),
    image_size: str | int | tuple[int, int] | None = None,
    transforms: Sequence[Any] = (),
    budget: str = "60s",
    **others: Any,
) -> PlanRequest:
    """The options of the command, checked. about: those of the source. others: those that need no parsing."""
    return PlanRequest(
        source=source,
        candidates=candidates(
            formats or FORMATS,
            sizes or ("256",),
            qualities or ("75", "90", "95"),
            colors or ("rgb",),
            compressions or ("none",),
            jpeg_tables or JPEG_TABLES[:1],
        ),
        workers=sorted(set(workers)) or worker_counts(machine.cpus()),
        goals=Goals(target, None if disk is None else parse_bytes(opt.disk, disk)),
        memory=None if memory is None else parse_bytes(opt.memory, memory),
        budget=_seconds(budget),
        image_size=parse_side(image_size),
        transform=parse_steps(transforms),
        source_options=_words(about),
        **others,
    )


def request_of(source: str, about: Mapping[str, Any], keywords: Mapping[str, Any]) -> PlanRequest:
    """The keywords of `rawpack.plan`, checked. about: those of the source."""
    given = {name: value for name, value in keywords.items() if value is not None}
    tried: dict[str, Any] = {
        options: [written(one) for one in listed(given.pop(name))] for name, options in _TRIED.items() if name in given
    }
    for name in ("disk", "memory", "budget"):
        if name in given:
            given[name] = str(given[name])
    if "target" in given and not _is_positive(given["target"]):
        raise UsageError(f"target={given['target']!r} must be a number above 0")
    for name, least in (("batch", 1), ("seed", None)):
        if name in given:
            given[name] = whole_number(name, given[name], least)
    if "tmp" in given:
        given["tmp"] = os.fspath(given["tmp"])
    given["workers"] = [whole_number("workers", one, 1) for one in listed(given.get("workers"))]
    return plan_request(source, about=about, transforms=listed(given.pop("transform", None)), **tried, **given)


def listed(value: Any) -> list[Any]:
    """The values of a keyword that takes one or several; a tuple is one size."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | range) else [value]


def written(value: Any) -> str:
    """A value as the command takes it: (224, 160) is "224x160"."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _seconds(written: str) -> float:
    """`--budget`: seconds of "60s", "90", "5min", "1h"."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*(s|min|m|h)?", written.strip())
    seconds = float(match[1]) * {"h": 3600, "min": 60, "m": 60}.get(match[2] or "s", 1) if match else 0.0
    if not seconds:
        raise UsageError(f"{opt.budget(repr(written))}: a time such as 45s, 5min or 1h")
    return seconds


def _words(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command line that describe the source so."""
    words, flags = list[str](), {one.name: one.flag for one in SOURCE}
    for name, value in about.items():
        option = flags[name]
        if isinstance(value, bool):
            words += [option] if value else []
            continue
        if isinstance(value, Mapping):
            value = [f"{key}:{written(one)}" for key, one in value.items()]
        for one in value if isinstance(value, tuple | list) else () if value is None else (value,):
            words += [option, str(one)]
    return tuple(words)
