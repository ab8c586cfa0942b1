#!/usr/bin/env python3
"""Say why the last commit cannot be released yet, and exit with 1. `scripts/release` asks this first.

    scripts/release_ready.py [--dry-run] [FOLDER]

--dry-run only warns of what is known on the day of the release: public addresses, and the date in the changelog.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from make_addresses import home_of, written

ROOT = Path(__file__).resolve().parents[1]
LINKS = ("Source", "Documentation", "Issues", "Changelog")
"""The entries of `[project.urls]` that the package index shows."""


OTHER_VERSIONS = {
    "reader/rawpack/__init__.py": r'^__version__ = "(.*)"$',
    "CITATION.cff": r'^version: "?([^"\n]*)"?$',
}
"""Files that have the version besides pyproject.toml -> where."""


class Reason(NamedTuple):
    """Why there can be no release, and how that is cured."""

    text: str
    known_on_the_day: bool = False
    """Whether a dry run may do without."""


def reasons(root: Path) -> list[Reason]:
    """All of them, those that are cured first in front. root: a checkout."""
    return [*_addresses(root), *_versions(root), *_tree(root)]


def _addresses(root: Path) -> list[Reason]:
    urls = _project(root).get("urls", {})
    found = []
    missing = [name for name in LINKS if not str(urls.get(name, "")).startswith("https://")]
    if missing:
        found.append(f"pyproject.toml: [project.urls] has no https:// address for {', '.join(missing)}")
    security = root / ".github" / "SECURITY.md"
    contact = re.search(r"^Contact: (https://\S+|\S+@\S+\.\S+)$", _text(security), re.MULTILINE)
    if contact is None:
        found.append(f"{security.relative_to(root)}: no line `Contact: ` with an https:// or e-mail address")
    if not re.search(r"^repository-code: \"?https://", _text(root / "CITATION.cff"), re.MULTILINE):
        found.append("CITATION.cff: no line `repository-code: ` with an https:// address")
    if not home_of(root).startswith("https://"):
        found.append(
            "pyproject.toml: home of [tool.rawpack] has no https:// address; then run scripts/make_addresses.py"
        )
    elif stale := [path.name for path, old, new in written(root) if new != old]:
        found.append(f"{', '.join(stale)}: not as home of [tool.rawpack] says; run scripts/make_addresses.py")
    return [Reason(text, known_on_the_day=True) for text in found]


def _versions(root: Path) -> list[Reason]:
    version = _project(root)["version"]
    found = []
    heading = re.search(rf"^## \[{re.escape(version)}\] - (.*)$", _text(root / "CHANGELOG.md"), re.MULTILINE)
    if heading is None:
        found.append(
            Reason(f"CHANGELOG.md: no heading `## [{version}] - YYYY-MM-DD`, and pyproject.toml has {version}")
        )
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1]):
        why = f"CHANGELOG.md: {version} has `{heading[1]}` where its date belongs"
        found.append(Reason(why, known_on_the_day=True))
    for name, pattern in OTHER_VERSIONS.items():
        there = re.search(pattern, _text(root / name), re.MULTILINE)
        if there is None or there[1] != version:
            other = there[1] if there else "missing"
            found.append(Reason(f"{name}: version {other}, and pyproject.toml has {version}"))
    tagged = _git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/v{version}^{{commit}}").strip()
    if tagged and tagged != _git(root, "rev-parse", "HEAD").strip():
        why = f"git: the tag v{version} is another commit, {tagged[:12]}; raise the version in pyproject.toml"
        found.append(Reason(why))
    return found


def _tree(root: Path) -> list[Reason]:
    changed = _git(root, "status", "--porcelain").splitlines()
    if not changed:
        return []
    return [Reason(f"git: {len(changed)} files are not as committed, such as {changed[0][3:]}; commit or remove them")]


def _project(root: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(_text(root / "pyproject.toml"))["project"]
    return project


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def _git(root: Path, *command: str) -> str:
    return subprocess.run(["git", "-C", root, *command], stdout=subprocess.PIPE, encoding="utf-8", check=False).stdout


def main() -> None:
    dry = "--dry-run" in sys.argv[1:]
    folders = [Path(argument) for argument in sys.argv[1:] if argument != "--dry-run"]
    fatal = False
    for reason in reasons(folders[0] if folders else ROOT):
        forgiven = dry and reason.known_on_the_day
        fatal |= not forgiven
        print(f"{'before the release' if forgiven else 'not ready'}: {reason.text}", file=sys.stderr)
    sys.exit(int(fatal))


if __name__ == "__main__":
    main()
