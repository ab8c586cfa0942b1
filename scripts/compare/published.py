#!/usr/bin/env python3
"""Repeat the measurements of six published reports: their own methods, and rawpack's three formats.

    scripts/compare/published.py 4                      one of them; `all` for all six
    scripts/compare/published.py 4 --quick              tiny data, to check that it works; the figures mean nothing
    scripts/compare/published.py all --data ~/photos --videos ~/videos --json out.json
    scripts/compare/published.py draw --json out.json                  the tables as text
    scripts/compare/published.py draw --json out.json --page docs/explanation/published.md

| number | report |
|---|---|
| 1 | a reader for MXNet with 128 processes |
| 2 | a queue of video clips with 1, 10 and 30 producers |
| 3 | a Keras generator instead of all images in memory |
| 4 | five ways to hold a data set |
| 5 | a loader of 1080p images |
| 6 | FFCV's table |

Each method runs in a fresh process, in turn with the others, round by round. Its environment is made from
`requirements/` when it is first needed; with --here, all methods run in this Python, and those whose packages are
missing are left out. Results are written to the JSON file as soon as they are measured. If the file has results of a
method already, these stay until all rounds of the method are measured again. Quick results never replace full ones. To
share your results, send that file.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import environments
from published_parts import drawing
from published_parts.contract import Method, Part, Task

_HERE = Path(__file__).resolve().parent
NAMES = ("reader_128", "video_queue", "keras_generator", "five_ways", "full_hd", "ffcv_table")
_WORK = _HERE.parents[1] / "build" / "compare"
_CHILD = _HERE / "published_parts" / "child.py"


def main() -> None:
    asked = arguments()
    if asked.what == "draw":
        results = json.loads(asked.json.read_text())["parts"]
        if asked.page:
            drawing.draw(parts(), results, asked.page)
        else:
            for part in parts():
                if str(part.number) in results:
                    print(f"\n## {part.number}. {part.title}\n\n{drawing.as_text(part, results[str(part.number)])}")
            print(f"\n{drawing.versions(results)}")
        return
    asked_for = [part for part in parts() if asked.what in ("all", str(part.number))]
    check(asked_for, asked)
    failed = False
    for part in asked_for:
        if chosen(part, asked):
            failed |= run(part, asked)
    sys.exit(failed)


def check(asked_for: Sequence[Part], asked: argparse.Namespace) -> None:
    """Exit, before anything is measured, if --only chooses no method, or if toy figures would replace full ones."""
    labels = [method.label for part in asked_for for method in part.methods]
    for text in asked.only or ():
        if not any(text in label for label in labels):
            sys.exit(f"--only {text}: no method has this in its name. The methods are:\n  " + "\n  ".join(labels))
    if asked.quick and not asked.prepare and asked.json and asked.json.exists():
        known = json.loads(asked.json.read_text())["parts"]
        full = [str(part.number) for part in asked_for if not known.get(str(part.number), {"quick": True})["quick"]]
        if full:
            sys.exit(
                f"{asked.json} has full results of part {', '.join(full)}, which --quick would replace by figures that "
                "mean nothing: name another file"
            )


def chosen(part: Part, asked: argparse.Namespace) -> list[Method]:
    """The methods of the part that --only chooses: all without it."""
    return [method for method in part.methods if not asked.only or any(text in method.label for text in asked.only)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=[*"123456", "all", "draw"])
    parser.add_argument("--data", type=Path, help="folder of JPEG photographs [generated ones]")
    parser.add_argument("--videos", type=Path, help="folder of videos [generated ones]")
    parser.add_argument(
        "--work", type=Path, default=_WORK, help="folder for data, stores and environments [build/compare]"
    )
    parser.add_argument("--home", type=Path, help="folder of the environments [WORK/environments]")
    parser.add_argument("--here", action="store_true", help="use this Python instead of environments")
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="the Python of an environment"
    )
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="only methods whose names contain this; repeatable"
    )
    parser.add_argument("--rounds", type=int, help="[3, or as many as the part sets]")
    parser.add_argument("--prepare", action="store_true", help="only make the data, the stores and the environments")
    parser.add_argument("--more", action="store_true", help="add rounds to those in the JSON file")
    parser.add_argument("--quick", action="store_true", help="tiny data, one round")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--page", type=Path, help="with draw: write the tables between the markers of this page")
    asked = parser.parse_args()
    if asked.what == "draw" and not asked.json:
        parser.error("draw needs --json FILE")
    return asked


@cache
def parts() -> tuple[Part, ...]:
    return tuple(importlib.import_module(f"published_parts.{name}").PART for name in NAMES)


def run(part: Part, asked: argparse.Namespace) -> bool:
    """Measure a part, print its tables, and keep its results. Returns whether a method failed."""
    print(f"\n## {part.number}. {part.title}\n", flush=True)
    photos, videos = (str(folder.resolve()) if folder else "" for folder in (asked.data, asked.videos))
    task = Task(work=str(asked.work.resolve()), photos=photos, videos=videos, quick=asked.quick)
    python = Pythons(asked)
    methods = chosen(part, asked)
    (about,) = child(python("published-torch"), "prepare", part, task)
    result: dict[str, Any] = {
        **about, "quick": asked.quick, "date": f"{datetime.date.today():%Y-%m-%d}", "rows": [], "left_out": {},
    }  # fmt: skip
    if found_commit := commit():
        result["versions"]["rawpack at commit"] = found_commit
    left_out = result["left_out"]
    rounds = 1 if asked.quick else asked.rounds or part.rounds
    wanted = {method.label: min(rounds, method.most_rounds) for method in methods}
    complete: set[str] = set()
    for number in range(rounds):
        left = [method for method in methods if method.label not in left_out and number < method.most_rounds]
        for together in by_environment(left) if asked.quick or asked.prepare else [[method] for method in left]:
            for found in measure(together, part, task, python, prepare_only=asked.prepare):
                label = found["label"]
                if why := found.get("left_out"):
                    left_out[label] = why
                    print(f"left out: {label}: {why}", file=sys.stderr, flush=True)
                    continue
                values = ", ".join(f"{name} {value:.4g}" for name, value in found["values"].items())
                print(f"round {number + 1}: {label}: {values}", file=sys.stderr, flush=True)
                result["versions"] = both(result["versions"], found.pop("versions"))
                result["rows"].append({"round": number, **found})
                if number + 1 == wanted[label]:
                    complete.add(label)
                keep(part, result, asked, complete)
        if asked.prepare:
            return False
    whole = keep(part, result, asked, {row["label"] for row in result["rows"]})
    print(drawing.as_text(part, whole), flush=True)
    return any(why.startswith("failed") for why in left_out.values())


def commit() -> str:
    """The commit of this checkout, which is the rawpack that is measured; "" outside of one."""
    command = ["git", "-C", str(_HERE), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def both(versions: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """The versions of several environments: where they differ, "1.0 and 2.0"."""
    each = {
        name: [version for found in (versions, more) if name in found for version in found[name].split(" and ")]
        for name in versions | more
    }
    return {name: " and ".join(dict.fromkeys(found)) for name, found in each.items()}


def by_environment(methods: list[Method]) -> list[list[Method]]:
    """The methods grouped by environment."""
    names = list(dict.fromkeys(method.environment for method in methods))
    return [[method for method in methods if method.environment == name] for name in names]


class Pythons:
    """The Python of each environment, made when it is first asked for."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._here, self._home = asked.here, asked.home or asked.work / "environments"
        self._known = {name: Path(path) for name, _, path in (one.partition("=") for one in asked.python)}

    def __call__(self, name: str) -> Path:
        """Raises EnvironmentFailedError."""
        if self._here:
            return Path(sys.executable)
        if name not in self._known:
            print(f"environment {name}", file=sys.stderr, flush=True)
            self._known[name] = environments.make(name, self._home)
        return self._known[name]


def measure(
    methods: list[Method], part: Part, task: Task, python: Pythons, *, prepare_only: bool
) -> Iterator[dict[str, Any]]:
    """Measure these methods, which have the same environment, in one fresh process: a result for each."""
    labels = [method.label for method in methods]
    try:
        path = python(methods[0].environment)
        if not prepare_only:
            yield from child(path, "measure", part, task, *labels)
    except environments.EnvironmentFailedError as error:
        for label in labels:
            yield {"label": label, "left_out": str(error).strip().splitlines()[0]}
    except subprocess.CalledProcessError as error:
        for label in labels:
            yield {"label": label, "left_out": f"failed: the process ended with {error.returncode}"}


def child(python: Path, action: str, part: Part, task: Task, *labels: str) -> list[dict[str, Any]]:
    """Run a step in a fresh process. Returns the lines of JSON that it printed."""
    command = [str(python), str(_CHILD), action, part.name, json.dumps(vars(task)), *labels]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode and action == "prepare":
        sys.exit(f"{part.title}: could not make the data, see above")
    done.check_returncode()
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def keep(part: Part, result: dict[str, Any], asked: argparse.Namespace, complete: set[str]) -> dict[str, Any]:
    """Write the results so far to the file, next to those of other methods. Returns all it then has of this part.

    What the file had of a method stays until the method is `complete`: an interrupted run loses no older results."""
    if not asked.json:
        return result
    known: dict[str, Any] = (
        json.loads(asked.json.read_text()) if asked.json.exists() else {"made_by": "published.py", "parts": {}}
    )
    before = _BEFORE.setdefault(part.number, known["parts"].get(str(part.number)))
    whole = result
    if before and before["quick"] == result["quick"]:
        old = before["rows"] if asked.more else [row for row in before["rows"] if row["label"] not in complete]
        waiting = set() if asked.more else {row["label"] for row in old}
        rows = old + [row for row in result["rows"] if row["label"] not in waiting]
        measured = {row["label"] for row in rows}
        left_out = {
            label: why for label, why in (before["left_out"] | result["left_out"]).items() if label not in measured
        }
        versions = both(before["versions"], result["versions"]) if waiting or asked.more else result["versions"]
        whole = result | {"rows": rows, "left_out": left_out, "versions": versions}
    known["parts"][str(part.number)] = whole
    partial = asked.json.with_name(f"partial-{os.getpid()}-{asked.json.name}")
    partial.write_text(json.dumps(known, indent=1) + "\n")
    partial.replace(asked.json)
    return whole


_BEFORE: dict[int, Any] = {}
"""What the file had of each part before this run."""


if __name__ == "__main__":
    main()
