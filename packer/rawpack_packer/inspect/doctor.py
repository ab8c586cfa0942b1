"""Finds out what this machine and this installation provide, and what rawpack uses of it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any

import rawpack
from rawpack import native
from rawpack.errors import RawpackError
from rawpack.jpeg import choice
from rawpack.jpeg.decoder import JpegDecoder
from rawpack.system import machine
from rawpack_packer.sources import KINDS
from rawpack_packer.text import Block, Rows, Shown, plain, size

_NONE = "none: "
"""Before the reason why no decoder is used."""
_FRAMEWORKS = ("torch", "lightning", "accelerate", "jax", "keras", "tensorflow", "mxnet")
"""What batches can be handed to. Those that are not installed are not spoken of, except for the first."""
_LABELS = {
    "cpus": "usable CPUs",
    "cpus_of_machine": "all CPUs",
    "cpu": "CPU",
    "cpu_quota": "CPU quota",
    "memory_limit_bytes": "memory limit",
    "available_memory_bytes": "free memory",
    "shm_free_bytes": "free in /dev/shm",
    "os": "system",
    "python": "Python",
}


class Examined(Shown, dict[str, Any]):
    """What was found out."""

    def in_words(self) -> list[Block]:
        facts = [(_LABELS.get(name, name), _shown(name, value)) for name, value in self["machine"].items()]
        override = self["jpeg"]["RAWPACK_JPEG"]
        blocks = [
            Block(f"rawpack {self['rawpack']}"),
            Block("machine", [*facts, ("GPU", ", ".join(self["gpu"]) or "none found")]),
            Block("jpeg decoders" + (f" (RAWPACK_JPEG={override})" if override else ""), _decoders(**self["jpeg"])),
            Block("native core", [_core(self["native"]["used"])]),
            Block("packages", [(name, version or "NOT INSTALLED") for name, version in self["packages"].items()]),
            Block("frameworks", [(name, version or "not installed") for name, version in self["frameworks"].items()]),
            Block("extras", [(name, _extra(name, packages)) for name, packages in self["extras"].items()]),
            Block("sources", [(name, _source(kind)) for name, kind in self["sources"].items()]),
        ]
        first, *others = [Block(plain(block.head), [(n, plain(value)) for n, value in block.rows]) for block in blocks]
        return [first, *(block for block in others if block.rows)]


def _decoders(used: str, decoders: list[dict[str, Any]], **_: Any) -> Rows:
    rows, missing = [], "does not work" if used.startswith(_NONE) else "not needed"
    for decoder in decoders:
        works = "works" if decoder["works"] else f"{missing}: {decoder['why_not']}"
        is_used = ", used" if decoder["name"] == used else ""
        rows.append((decoder["name"], f"{decoder['version'] or ''} {works}{is_used}".strip()))
    return [*rows, ("", used)] if used.startswith(_NONE) else rows


def _core(used: str) -> tuple[str, str]:
    if used.startswith("off: "):
        return "not used", f"{used.removeprefix('off: ')}; NumPy makes the same pixels, more slowly"
    return "used", used


def _extra(name: str, packages: Mapping[str, str | None]) -> str:
    if all(packages.values()):
        return ", ".join(f"{package} {version}" for package, version in packages.items())
    return f"not installed: pip install 'rawpack[{name}]'"


def _source(kind: dict[str, Any]) -> str:
    """What a kind of source reads, and what it lacks."""
    if kind["extra_installed"]:
        return str(kind["reads"])
    only = f"for {kind['extra_for']}: " if kind["extra_for"] else ""
    return f"{kind['reads']} ({only}pip install 'rawpack[{kind['extra']}]')"


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "unknown" if name != "cpu_quota" else "none"
    return size(value) if name.endswith("_bytes") else str(value)


def examine() -> Examined:
    """JPEG decoders and which one is used, the native core, the machine, packages and extras with their versions, kinds
    of sources and what they lack, GPUs."""
    try:
        chosen = choice.decoder().name
    except RawpackError as error:
        chosen = f"{_NONE}{error}"
    extras = _requirements()
    return Examined(
        {
            "rawpack": rawpack.__version__,
            "machine": machine.describe(),
            "jpeg": {
                "used": chosen,
                "RAWPACK_JPEG": os.environ.get("RAWPACK_JPEG"),
                "decoders": [_decoder(name, choice.open_backend(name)) for name in choice.BACKENDS],
            },
            "native": {
                "used": native.state(),
                "RAWPACK_NATIVE": os.environ.get("RAWPACK_NATIVE"),
                "library": str(native.LIBRARY),
            },
            "packages": extras.pop("", {}),
            "frameworks": {
                name: version for name in _FRAMEWORKS if (version := _version(name)) or name == _FRAMEWORKS[0]
            },
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
    )


def _decoder(name: str, opened: JpegDecoder | str) -> dict[str, Any]:
    """opened: the decoder, or why it does not work."""
    if isinstance(opened, str):
        return {"name": name, "version": None, "works": False, "why_not": opened}
    return {"name": name, "version": opened.package_version, "works": True, "why_not": None}


def _requirements() -> dict[str, dict[str, str | None]]:
    """Extra -> package -> version, None if it is not installed; "" has what rawpack always needs. Without the extra for
    developers; empty if rawpack runs without being installed."""
    extras: dict[str, dict[str, str | None]] = {}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for line in importlib.metadata.requires("rawpack") or []:
            package, extra = re.match(r"[\w.-]+", line), re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", line)
            if package and (extra is None or extra[1] != "test"):
                extras.setdefault(extra[1] if extra else "", {})[package[0]] = _version(package[0])
    return extras


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
    # What is wrong, such as with the driver, is on its standard output too.
    return [line for line in map(str.strip, listed.stdout.splitlines()) if line.startswith(("GPU ", "MIG "))]
