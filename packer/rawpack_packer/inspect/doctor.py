"""What this machine and this installation have, and what rawpack makes of it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
from typing import Any

import rawpack
from rawpack import jpeg
from rawpack.errors import RawpackError
from rawpack.system import machine

_EITHER = {"opencv-python-headless": "opencv-python"}
"""Package -> another that serves as well."""
NONE = "none: "
"""Before the reason why no decoder is used."""


def examine() -> dict[str, Any]:
    """JPEG decoders and which one is used, the machine, packages and extras with their versions, GPUs."""
    try:
        chosen = jpeg.decoder().name
    except RawpackError as error:
        chosen = f"{NONE}{error}"
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
        },
        "packages": {name: _version(name) for name in _required()},
        "extras": {extra: {name: _version(name) for name in names} for extra, names in _extras().items()},
        "gpu": _gpu(),
    }


def _required() -> list[str]:
    """The packages that rawpack itself needs, as its own metadata name them."""
    return [name for name, extra in _requirements() if extra is None]


def _extras() -> dict[str, list[str]]:
    """Extra -> the packages that it brings, but for those of developers."""
    extras: dict[str, list[str]] = {}
    for name, extra in _requirements():
        if extra is not None and extra != "test":
            extras.setdefault(extra, []).append(name)
    return extras


def _requirements() -> list[tuple[str, str | None]]:
    """Package and extra of every requirement; nothing where rawpack runs without being installed."""
    try:
        lines = importlib.metadata.requires("rawpack") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", line)
        if package:
            found.append((package[0], extra[1] if extra else None))
    return found


def _version(package: str) -> str | None:
    for name in (package, _EITHER.get(package)):
        if name is not None:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(name)
    return None


def _gpu() -> list[str]:
    """NVIDIA GPUs, as their driver's own tool names them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        asked = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in asked.stdout.splitlines() if line.strip()]
