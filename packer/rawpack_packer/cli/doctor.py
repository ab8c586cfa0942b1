"""`rawpack doctor`: what this machine and this installation have, and what rawpack makes of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
from typing import Any

import click

import rawpack
from rawpack import jpeg, machine
from rawpack.errors import RawpackError
from rawpack_packer import show

PACKAGES = (
    "numpy", "opencv-python-headless", "opencv-python", "simplejpeg", "PyTurboJPEG", "lmdb", "h5py", "msgspec",
    "xxhash", "cloudpickle", "click", "tqdm",
)  # fmt: skip


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
        chosen = f"none: {error}"
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
        "packages": {name: _version(name) for name in PACKAGES if _version(name)},
        "gpu": _gpu(),
    }


def as_text(about: dict[str, Any]) -> str:
    """The same for a person."""
    facts = [(name.replace("_", " "), _shown(name, value)) for name, value in about["machine"].items()]
    decoders = []
    for one in about["jpeg"]["decoders"]:
        works = "works" if one["works"] else f"does not work: {one['why_not']}"
        used = ", used" if one["name"] == about["jpeg"]["used"] else ""
        decoders.append((one["name"], show.plain(f"{one['version'] or ''} {works}{used}".strip())))
    override = about["jpeg"]["RAWPACK_JPEG"]
    return "\n\n".join(
        [
            f"rawpack {about['rawpack']}",
            "machine\n" + show.table([*facts, ("gpu", ", ".join(about["gpu"]) or "none found")]),
            "jpeg decoders"
            + (f" (RAWPACK_JPEG={show.plain(override)})" if override else "")
            + "\n"
            + show.table(decoders),
            "packages\n" + show.table(list(about["packages"].items())),
        ]
    )


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "unknown" if name != "cpu_quota" else "none"
    return show.size(value) if name.endswith("_bytes") else show.plain(str(value))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
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
