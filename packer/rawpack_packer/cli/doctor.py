"""`rawpack doctor`: shows what this machine and this installation provide, and what rawpack uses of it."""

from __future__ import annotations

import json
from typing import Any

import click

from rawpack_packer import api, text
from rawpack_packer.cli.command import Subcommand
from rawpack_packer.cli.options import json_option

_NONE = "none: "
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


@click.command(cls=Subcommand)
@json_option
def doctor(as_json: bool) -> None:
    """Show this machine's CPUs, memory, JPEG decoders and packages, and what can be packed with them.

    \b
    Example:
      rawpack doctor
    """
    about = api.doctor()
    click.echo(json.dumps(about, indent=1) if as_json else _as_text(about))


def _as_text(about: dict[str, Any]) -> str:
    """The same for a person."""
    facts = [(_LABELS.get(name, name), _shown(name, value)) for name, value in about["machine"].items()]
    used, override = about["jpeg"]["used"], about["jpeg"]["RAWPACK_JPEG"]
    decoders, missing = [], "does not work" if used.startswith(_NONE) else "not needed"
    for one in about["jpeg"]["decoders"]:
        works = "works" if one["works"] else f"{missing}: {one['why_not']}"
        is_used = ", used" if one["name"] == used else ""
        decoders.append((one["name"], text.plain(f"{one['version'] or ''} {works}{is_used}".strip())))
    regions = about["jpeg"]["regions"]
    if regions["works"]:
        use = "used for small boxes" if regions["used"] else "not used"
        decoders.append((regions["name"], text.plain(f"{regions['version']} works, {use}")))
    elif not regions["why_not"].startswith("ModuleNotFoundError"):
        decoders.append((regions["name"], text.plain(f"does not work: {regions['why_not']}")))
    if used.startswith(_NONE):
        decoders.append(("", text.plain(used)))
    blocks = {
        "machine": [*facts, ("GPU", ", ".join(about["gpu"]) or "none found")],
        "jpeg decoders" + (f" (RAWPACK_JPEG={text.plain(override)})" if override else ""): decoders,
        "packages": [(name, version or "NOT INSTALLED") for name, version in about["packages"].items()],
        "extras": [
            (extra, ", ".join(f"{name} {version}" for name, version in found.items()))
            if all(found.values())
            else (extra, f"not installed: pip install 'rawpack[{extra}]'")
            for extra, found in about["extras"].items()
        ],
        "sources": [(name, _source(one)) for name, one in about["sources"].items()],
    }
    shown = [f"{name}\n{text.table(rows)}" for name, rows in blocks.items() if rows]
    return "\n\n".join([f"rawpack {about['rawpack']}", *shown])


def _source(about: dict[str, Any]) -> str:
    """What a kind of source reads, and what it lacks."""
    if about["extra_installed"]:
        return str(about["reads"])
    only = f"for {about['extra_for']}: " if about["extra_for"] else ""
    return f"{about['reads']} ({only}pip install 'rawpack[{about['extra']}]')"


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "unknown" if name != "cpu_quota" else "none"
    return text.size(value) if name.endswith("_bytes") else text.plain(str(value))
