#!/usr/bin/env python3
"""Run the tests, and show what each file, test and fixture costs: seconds, and where they go.

    .venv/bin/python scripts/measure_tests.py                      all that scripts/test runs, then the tables
    .venv/bin/python scripts/measure_tests.py tests/reader -n 0    pytest's own arguments
    .venv/bin/python scripts/measure_tests.py --show build/costs   the tables of a run before

Run it on a machine that nobody else uses. Processor time depends less on that than seconds do. It is a plugin of
pytest, too, which appends a line for each test and fixture to files in the folder that TEST_COSTS names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
COSTS = ("wall", "own", "children", "pythons", "others", "packed")
"""Seconds by the clock; of processor time, in the process of the tests and in its children; interpreters and other
programs that were started; stores that were packed in the process of the tests."""
_FIXTURE_S = 0.02
"""Faster fixtures are not noted."""
_SHOWN = 30
_counts = {"pythons": 0, "others": 0, "packed": 0}


# ---------------------------------------------------------------------------------------------- the plugin


def pytest_configure(config: pytest.Config) -> None:
    from rawpack_packer.job.job import Job

    def started(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            program = arguments[0] or (arguments[1] if isinstance(arguments[1], str) else arguments[1][0])
            is_python = os.path.basename(os.fsdecode(program)).startswith(("python", "rawpack"))  # noqa: PTH119
            _counts["pythons" if is_python else "others"] += 1

    def packed(job: Job, *arguments: Any, **options: Any) -> Any:
        _counts["packed"] += 1
        return run(job, *arguments, **options)

    run, Job.run = Job.run, packed  # type: ignore[method-assign, assignment]
    sys.addaudithook(started)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = _now()
    result = yield
    _note("test", item.nodeid, before)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    before = _now()
    try:
        return (yield)
    finally:
        if time.perf_counter() - before[0] > _FIXTURE_S:
            _note("fixture", f"{fixturedef.baseid}::{fixturedef.argname}", before)


def _now() -> tuple[float, ...]:
    spent = os.times()
    children = spent.children_user + spent.children_system
    return time.perf_counter(), spent.user + spent.system, children, *_counts.values()


def _note(kind: str, name: str, before: tuple[float, ...]) -> None:
    costs = {cost: round(after - was, 3) for cost, was, after in zip(COSTS, before, _now(), strict=True)}
    with (Path(os.environ["TEST_COSTS"]) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"kind": kind, "name": name, "at": time.time(), **costs}) + "\n")


# ---------------------------------------------------------------------------------------------- the tables


def show(folder: Path) -> None:
    """Print the tables of a run."""
    lines = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    tests = [line for line in lines if line["kind"] == "test"]
    if not tests:
        sys.exit(f"{folder} has no costs of tests")
    whole = max(line["at"] for line in lines) - min(line["at"] - line["wall"] for line in lines)
    spent, cores = sum(map(_processor, tests)), os.cpu_count() or 1
    print(
        f"{len(tests):,} tests in {whole:.0f} s: {spent:.0f} s of processor time, {spent / whole / cores:.0%} of it all"
    )
    _print("all tests", _sums(tests, lambda line: "all"))
    _print("files", _sums(tests, lambda line: line["name"].partition("::")[0]))
    _print("tests", _sums(tests, lambda line: line["name"]))
    _print("fixtures", _sums((line for line in lines if line["kind"] == "fixture"), lambda line: line["name"]))


def _processor(line: dict[str, Any]) -> float:
    return float(line["own"] + line["children"])


def _sums(lines: Iterable[dict[str, Any]], name: Any) -> dict[str, dict[str, Any]]:
    sums: dict[str, dict[str, Any]] = defaultdict(lambda: dict.fromkeys(COSTS, 0))
    for line in lines:
        for cost in COSTS:
            sums[name(line)][cost] += line[cost]
    return sums


def _print(title: str, sums: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title:90}" + "".join(f"{cost:>9}" for cost in COSTS))
    for name, costs in sorted(sums.items(), key=lambda item: -_processor(item[1]))[:_SHOWN]:
        print(
            f"{name.removeprefix('tests/')[:89]:90}"
            + "".join(f"{costs[cost]:9,.1f}" for cost in COSTS[:3])
            + "".join(f"{costs[cost]:9,}" for cost in COSTS[3:])
        )


def main() -> None:
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__)
    elif words[:1] == ["--show"]:
        show(Path(words[1]))
    else:
        folder = ROOT / "build" / f"costs-{time.strftime('%Y%m%d-%H%M%S')}"
        folder.mkdir(parents=True)
        path = os.pathsep.join([str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-p", "measure_tests", "-n", "4", "--dist", "loadfile"]
        command += ["--no-loadscope-reorder", "-p", "no:cacheprovider", *words]
        own = {"TEST_COSTS": str(folder), "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}  # as scripts/test
        code = subprocess.run(command, cwd=ROOT, env=os.environ | own, check=False).returncode
        show(folder)
        sys.exit(code)


if __name__ == "__main__":
    main()
