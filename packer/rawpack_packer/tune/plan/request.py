"""What a user asked `rawpack plan`, from the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rawpack.errors import UsageError
from rawpack.system import machine
from rawpack_packer.recipe.recipe import FORMATS, parse_bytes
from rawpack_packer.tune.measure.rounds import worker_counts
from rawpack_packer.tune.measure.steps import parse_side, parse_steps
from rawpack_packer.tune.plan.candidates import candidates
from rawpack_packer.tune.plan.planned import PlanRequest
from rawpack_packer.tune.plan.recommend import Goals


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
    workers: Sequence[int] = (),
    image_size: str | None = None,
    transforms: Sequence[str] = (),
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
        ),
        workers=sorted(set(workers)) or worker_counts(machine.cpus()),
        goals=Goals(target, None if disk is None else parse_bytes("--disk", disk)),
        memory=None if memory is None else parse_bytes("--memory", memory),
        budget=_seconds(budget),
        image_size=parse_side(image_size),
        transform=parse_steps(transforms),
        source_options=_words(about),
        **others,
    )


def _seconds(written: str) -> float:
    """`--budget`: seconds of "60s", "90", "5min", "1h"."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*(s|min|m|h)?", written.strip())
    seconds = float(match[1]) * {"h": 3600, "min": 60, "m": 60}.get(match[2] or "s", 1) if match else 0.0
    if not seconds:
        raise UsageError(f"--budget {written!r}: a time such as 45s, 5min or 1h")
    return seconds


def _words(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command line that describe the source so."""
    names = {"kind": "source", "fields": "field"}
    words = list[str]()
    for name, value in about.items():
        option = f"--{names.get(name, name).replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] if value else []
            continue
        for one in value if isinstance(value, tuple) else () if value is None else (value,):
            words += [option, str(one)]
    return tuple(words)
