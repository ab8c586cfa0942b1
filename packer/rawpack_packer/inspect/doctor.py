"""Finds out what this machine and this installation provide, and what rawpack uses of it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import subprocess
from typing import Any

import rawpack
from rawpack import jpeg
from rawpack.errors import RawpackError
from rawpack.system import machine
from rawpack_packer.sources import KINDS

NONE = "none: "
"""Before the reason why no decoder is used."""


def examine() -> dict[str, Any]:
    """JPEG decoders and which one is used, the machine, packages and extras with their versions, kinds of sources and
    what they lack, GPUs."""
    try:
        chosen = jpeg.decoder().name
    except RawpackError as error:
        chosen = f"{NONE}{error}"
    extras, regions = _requirements(), jpeg.survey_regions()
    return {
        "rawpack": rawpack.__version__,
        "machine": machine.describe(),
        "jpeg": {
            "used": chosen,
            "RAWPACK_JPEG": os.environ.get("RAWPACK_JPEG"),
            "decoders": [
                {"name": one.name, "version": one.version, "works": one.works, "why_not": one.why_not}
                for one in jpeg.survey()
            ],
            "regions": {
                "name": regions.name,
                "version": regions.version,
                "works": regions.works,
                "used": regions.chosen,
                "why_not": regions.why_not,
            },
        },
        "packages": extras.pop("", {}),
        "extras": extras,
        "sources": {
            name: {
                "reads": kind.reads,
                "extra": kind.extra or None,
                "extra_for": kind.extra_for or None,
                "extra_installed": all(extras.get(kind.extra, {}).values()),
                "urls": kind.remote,
            }
            for name, kind in sorted(KINDS.items())
        },
        "gpu": _gpu(),
    }


def _requirements() -> dict[str, dict[str, str | None]]:
    """Extra -> package -> version, None if it is not installed; "" has what rawpack always needs. Without the extra for
    developers; empty if rawpack runs without being installed."""
    found: dict[str, dict[str, str | None]] = {}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for line in importlib.metadata.requires("rawpack") or []:
            package, extra = re.match(r"[\w.-]+", line), re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", line)
            if package and (extra is None or extra[1] != "test"):
                found.setdefault(extra[1] if extra else "", {})[package[0]] = _version(package[0])
    return found


def _version(package: str) -> str | None:
    # opencv-python serves as well as its variant without windows.
    for name in dict.fromkeys((package, package.removesuffix("-headless"))):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def _gpu() -> list[str]:
    """NVIDIA GPUs, as nvidia-smi names them."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()]
