"""`rawpack doctor`: what this machine and this installation have, and what rawpack makes of it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
from typing import Any

import click

import rawpack
from rawpack import jpeg
from rawpack.errors import RawpackError
from rawpack.system import machine
from rawpack_packer import text

EITHER = {"opencv-python-headless": "opencv-python"}
"""Package -> another that serves as well."""
_NONE = "none: "


@click.command(short_help="Show what this machine and installation have.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(as_json: bool) -> None:
    """Show the JPEG decoders and which one is used, CPUs and quota, memory, /dev/shm, versions and GPU."""
    about = examine()
    click.echo(json.dumps(about, indent=1) if as_json else as_text(about))


def examine() -> dict[str, Any]:
    """All that `rawpack doctor` says, for a program."""
    try:
        chosen = jpeg.decoder().name
    except RawpackError as error:
        chosen = f"{_NONE}{error}"
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


def as_text(about: dict[str, Any]) -> str:
    """The same for a person."""
    facts = [(name.replace("_", " "), _shown(name, value)) for name, value in about["machine"].items()]
    decoders = []
    for one in about["jpeg"]["decoders"]:
        works = "works" if one["works"] else f"does not work: {one['why_not']}"
        used = ", used" if one["name"] == about["jpeg"]["used"] else ""
        decoders.append((one["name"], text.plain(f"{one['version'] or ''} {works}{used}".strip())))
    override = about["jpeg"]["RAWPACK_JPEG"]
    if about["jpeg"]["used"].startswith(_NONE):
        decoders.append(("", text.plain(about["jpeg"]["used"])))
    elif not all(one["works"] for one in about["jpeg"]["decoders"]):
        decoders.append(("", f"{about['jpeg']['used']} does all; nothing is missing"))
    extras = [
        (extra, ", ".join(f"{name} {version or '(not installed)'}" for name, version in found.items()))
        for extra, found in about["extras"].items()
    ]
    return "\n\n".join(
        [
            f"rawpack {about['rawpack']}",
            "machine\n" + text.table([*facts, ("gpu", ", ".join(about["gpu"]) or "none found")]),
            "jpeg decoders"
            + (f" (RAWPACK_JPEG={text.plain(override)})" if override else "")
            + "\n"
            + text.table(decoders),
            "packages\n"
            + text.table([(name, version or "NOT INSTALLED") for name, version in about["packages"].items()]),
            *(["extras\n" + text.table(extras)] if extras else []),
        ]
    )


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "unknown" if name != "cpu_quota" else "none"
    return text.size(value) if name.endswith("_bytes") else text.plain(str(value))


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
    for name in (package, EITHER.get(package)):
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
