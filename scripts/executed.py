"""Run tests in forks of this process, and note which lines of the product each test executes.

A fork has pytest and what the tests build on, so that a few tests begin at once; it imports the product itself. Lines
that only other processes execute, such as workers, are not seen.
"""

from __future__ import annotations

import ast
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
import pytest
from rooms import ROOT

TEST_S = 60
"""Seconds for one test where nothing else runs: some faults make a wait endless."""
_TOOL = 3
"""The number of this tool among those that watch an interpreter: 3 and 4 are anybody's."""
_BEFORE = ("numpy", "PIL.Image", "cv2", "h5py", "lmdb", "simplejpeg", "xxhash", "cloudpickle", "click", "tqdm",
           "psutil", "pytest.__main__")  # fmt: skip
"""What forks need not import again. Plugins of pytest cannot be among them."""


class Test(msgspec.Struct, frozen=True):
    """A test that passes: its name for pytest, seconds, and for each file of the product, from the checkout's root on,
    the lines that it executes, as the bits of a hexadecimal number. Those of fixtures that it shares are among them."""

    name: str
    seconds: float
    lines: dict[str, str]

    def executes(self, path: str, lines: range | None = None) -> bool:
        """Whether it executes one of the lines of the file. None: any line of a function in it."""
        mask = int(self.lines.get(path, "0"), 16)
        return bool(mask if lines is None else any(mask >> line & 1 for line in lines))


def reached(source: bytes, line: int) -> range | None:
    """The lines, from 1 on, of the innermost statement that a line belongs to, without the statements in it; None where
    that is executed when the module is imported."""
    tree, best, inside = ast.parse(source), range(line, line + 1), False
    size = len(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or 0
        if node.lineno <= line <= last and last - node.lineno < size:
            best, size = range(node.lineno, last + 1), last - node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = inside or last < line <= (node.end_lineno or 0)
    return best if inside else None


def forked(checkout: Path, files: list[str], plugin: Recorder | Chosen, limit: float) -> bytes | None:
    """What a plugin notes of a run of pytest on a checkout; None where it finds no end in so many seconds, or longer on
    a machine that does other things."""
    for name in _BEFORE:
        importlib.import_module(name)
    answer = checkout.parent / "answer"
    answer.write_bytes(b"")
    child = os.fork()
    if not child:
        try:
            os.setpgid(0, 0)
            _run(checkout, files, plugin, answer)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    with suppress(OSError):  # whichever of both is first
        os.setpgid(child, child)
    end, ended = time.monotonic() + limit * _patience(), 0
    try:
        while not ended and time.monotonic() < end:
            time.sleep(0.02)
            ended = os.waitpid(child, os.WNOHANG)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and the processes that it has left
    if not ended:
        os.waitpid(child, 0)
    return answer.read_bytes() if ended else None


def _patience() -> float:
    """How many times longer than alone something may take now."""
    return max(1, os.getloadavg()[0] / (os.cpu_count() or 1))


def _run(checkout: Path, files: list[str], plugin: Recorder | Chosen, answer: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(checkout)
    output = os.open(checkout.parent / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # The checkout's own scripts and packages, as `python -m pytest` in it would find them.
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{ROOT}{os.sep}scripts"):
            del sys.modules[name]
    sys.modules["__main__"] = sys.modules["pytest.__main__"]
    sys.path[:] = [str(checkout), *(path for path in sys.path if not path.startswith(str(ROOT / "scripts")))]
    sys.dont_write_bytecode = False
    os.environ |= environment(checkout)
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout",
        str(TEST_S * _patience()),
        "--tb",
        "short",
        "--rootdir",
        str(checkout),
    ]
    words += ["--basetemp", str(checkout.parent / "tests"), "-m", "not soak and not heavy"]
    pytest.main([*words, *(["-x"] if isinstance(plugin, Chosen) else []), *files], plugins=[plugin])
    product = sys.modules.get("rawpack")
    assert product is None or str(product.__file__).startswith(str(checkout)), product
    answer.write_bytes(msgspec.json.encode(plugin.noted()))


def environment(checkout: Path) -> dict[str, str]:
    """That of tests of a checkout. An editable install comes later on the path."""
    return {
        "PYTHONPATH": f"{checkout / 'reader'}{os.pathsep}{checkout / 'packer'}",
        "PYTHONDONTWRITEBYTECODE": "",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }


class Chosen:
    """Runs some tests alone, those of quick files first, and notes the first that fails."""

    def __init__(self, tests: list[Test]) -> None:
        self._names = {test.name for test in tests}
        self._costs: dict[str, float] = defaultdict(float)
        for test in tests:
            self._costs[test.name.partition("::")[0]] += test.seconds
        self._failed = ""
        self._ran = 0

    def noted(self) -> tuple[str, int]:
        return self._failed, self._ran

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._names]
        items.sort(key=lambda item: self._costs[item.nodeid.partition("::")[0]])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._ran += report.when == "call"
        self._failed = self._failed or (report.nodeid if report.failed else "")


class Recorder:
    """Notes which lines each test executes, in this process."""

    def __init__(self, checkout: Path) -> None:
        self._roots = (f"{checkout}{os.sep}reader{os.sep}", f"{checkout}{os.sep}packer{os.sep}")
        self._start = len(str(checkout)) + 1
        self._is_ours: dict[str, bool] = {}
        self._lines: set[tuple[str, int]] = set()
        self._shared: dict[pytest.FixtureDef[Any], set[tuple[str, int]]] = {}
        self._shared_s = 0.0
        self._tests: dict[str, Test] = {}
        self._failed: set[str] = set()
        self._skipped: set[str] = set()

    def noted(self) -> tuple[list[Test], list[str]]:
        """Tests that pass, and those that fail."""
        left_out = self._failed | self._skipped
        return [test for name, test in self._tests.items() if name not in left_out], sorted(self._failed)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            (self._failed if report.failed else self._skipped).add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began, self._shared_s, self._lines = time.perf_counter(), 0.0, set()
        self._watch(True)
        try:
            return (yield)
        finally:
            self._watch(False)
            seconds = time.perf_counter() - began - self._shared_s
            for fixtures in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
                self._lines.update(*(self._shared.get(fixture, ()) for fixture in fixtures))
            masks: dict[str, int] = defaultdict(int)
            for path, line in self._lines:
                masks[path[self._start :]] |= 1 << line
            self._tests[item.nodeid] = Test(item.nodeid, seconds, {path: f"{mask:x}" for path, mask in masks.items()})

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        began, shared_s, outer, self._lines = time.perf_counter(), self._shared_s, self._lines, set()
        self._see_again()
        try:
            return (yield)
        finally:
            self._see_again()
            self._shared_s = shared_s + time.perf_counter() - began
            self._shared[fixturedef] = self._shared.get(fixturedef, set()) | self._lines
            self._lines |= outer

    def _watch(self, on: bool) -> None:
        """Note lines from now on, or no more. From Python 3.12 on, each is noted once a test, which costs next to
        nothing; before, a trace function makes tests several times slower."""
        if sys.version_info >= (3, 12):
            if on:
                sys.monitoring.use_tool_id(_TOOL, "rawpack")
                sys.monitoring.register_callback(_TOOL, sys.monitoring.events.LINE, self._reached)
                sys.monitoring.set_events(_TOOL, sys.monitoring.events.LINE)
                self._see_again()
            else:
                sys.monitoring.set_events(_TOOL, 0)
                sys.monitoring.free_tool_id(_TOOL)
        else:
            threading.settrace(self._call if on else None)
            sys.settrace(self._call if on else None)

    def _see_again(self) -> None:
        """Lines that were noted are noted once more."""
        if sys.version_info >= (3, 12):
            sys.monitoring.restart_events()

    def _reached(self, code: CodeType, line: int) -> object:
        if self._is_noted(code):
            self._lines.add((code.co_filename, line))
        if sys.version_info >= (3, 12):
            return sys.monitoring.DISABLE
        return None

    def _is_noted(self, code: CodeType) -> bool:
        path = code.co_filename
        ours = self._is_ours.get(path)
        if ours is None:
            ours = self._is_ours[path] = path.startswith(self._roots)
        # What the import of a module executes, it executes once for all tests.
        return ours and code.co_name != "<module>"

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if self._is_noted(frame.f_code) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line
