"""Measurements of stores on this machine, and the recommendation of one."""

from __future__ import annotations

from rawpack_packer.tune.bench import as_dict as bench_dict
from rawpack_packer.tune.bench import as_text as bench_text
from rawpack_packer.tune.measure.rounds import ROUNDS, Schedule
from rawpack_packer.tune.measure.steps import parse_side, parse_steps
from rawpack_packer.tune.plan.request import plan_request
from rawpack_packer.tune.plan.text import about
from rawpack_packer.tune.plan.text import as_text as plan_text

__all__ = [
    "ROUNDS",
    "Schedule",
    "about",
    "bench_dict",
    "bench_text",
    "parse_side",
    "parse_steps",
    "plan_request",
    "plan_text",
]
