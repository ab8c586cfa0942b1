"""What a public host reads of the checkout: workflows, templates, how to cite and how to report; the hook of git."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rooms import ROOT

yaml = pytest.importorskip("yaml")
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def loaded(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def steps() -> list[dict[str, Any]]:
    return [step for path in WORKFLOWS for job in loaded(path)["jobs"].values() for step in job["steps"]]


def test_workflows_call_the_scripts_that_everybody_calls() -> None:
    """Nothing is decided in a workflow: its commands start files of the checkout, which exist, or install something."""
    commands = [line.strip() for step in steps() for line in step.get("run", "").splitlines()]
    assert commands.count(".ci/run") == 2
    called = [word for command in commands for word in command.split() if word.startswith(("scripts/", ".ci/"))]
    assert {"scripts/bench/calls.py", "scripts/bench/run.py", "scripts/build_wheels", ".ci/run"} == set(called)
    assert all((ROOT / name).is_file() for name in called)
    others = [one for one in commands if not re.search(r"(?:^|python )(?:scripts|\.ci)/", one)]
    assert [one for one in others if not re.match(r"brew install|echo|sudo apt-get|python -m pip install", one)] == []


def test_actions_are_named_by_commit() -> None:
    """Only those of the host itself, each at one commit, with its version beside it: a tag may be moved to other code.
    What they may do is read, and the token that a checkout uses is not left on the disk for what runs after it."""
    written = "\n".join(path.read_text("utf-8") for path in WORKFLOWS)
    named = re.findall(r"^ *-? *uses: (.*)$", written, re.MULTILINE)
    assert len(named) == len([step for step in steps() if "uses" in step]) > 0
    assert [name for name in named if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", name)] == []
    commits = {(name.partition("@")[0], name.partition("@")[2]) for name in named}
    assert len(commits) == len(dict(commits)), "one action at two commits"
    checkouts = [step for step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert [step.get("with", {}).get("persist-credentials") for step in checkouts] == [False] * len(checkouts)
    assert {path.name: loaded(path)["permissions"] for path in WORKFLOWS} == {
        path.name: {"contents": "read"} for path in WORKFLOWS
    }


def test_the_matrix_has_the_pythons_that_are_promised() -> None:
    """Those of the classifiers in pyproject.toml. What nobody has run is called untested where its result is shown."""
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    jobs = loaded(GITHUB / "workflows" / "ci.yml")["jobs"]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == promised
    assert set(jobs["macos"]["strategy"]["matrix"]["python"]) <= set(promised)
    assert "(untested)" in jobs["macos"]["name"]
