"""What makes a test that hangs or crashes fail alone: all other tests of the run take place, also those of its file.

When a test's time is up, pytest-timeout raises an exception in it. If that does not end the test, which may loop in C
or catch everything, its process ends `timeout_grace` seconds later, as in a crash, and pytest-xdist starts another one
for the rest of the file. This is a plugin of pytest; tests/conftest.py names it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

_LIMITS = pytest.StashKey[Any]()
_FAILED = pytest.StashKey[bool]()
_STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """From the exception to the end of the process: time for what a test does on its way out."""
    parser.addini("timeout_grace", "Seconds that a test has to end after its timeout", default="60")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real stderr: while a test runs, what is written to descriptor 2 is captured, and lost in a crash."""
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Set the second limit beside the first. It is watched by a thread in C, which needs no interpreter."""
    item.stash[_LIMITS] = settings
    seconds = settings.timeout + float(item.config.getini("timeout_grace"))
    faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[_STDERR])


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer() -> None:
    faulthandler.cancel_dump_traceback_later()


def pytest_exception_interact(node: pytest.Collector | pytest.Item) -> None:
    node.stash[_FAILED] = True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Set both limits again where a test has failed, which cancels them: what ends its fixtures may hang as well."""
    if item.stash.get(_FAILED, False):
        if _LIMITS in item.stash:
            item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[_LIMITS])
        # Warnings of what it left open would be errors of the next test.
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        gc.collect()
    yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files, as `--dist loadfile` does, but survive crashes."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        """pytest-xdist 3.8 gives a test that crashed to the next process too, and waits for ever for a process that it
        gave an empty file, or a single test, which a process begins only when it knows what comes next."""

        def _split_scope(self, nodeid: str) -> str:
            """The tests of each cluster, which mostly wait for it, are a file of their own."""
            file, _, test = nodeid.partition("::")
            cluster = next((name for name in ("dask", "ray") if name in test), "")
            return f"{file} {cluster}" if file.endswith("/test_engines.py") else file

        def remove_node(self, node: Any) -> str | None:
            """Give the rest of a process's files to others; the test that it was in, if any, counts as done."""
            files = self.assigned_work[node]
            open_ = [(file, test) for file, tests in files.items() for test, done in tests.items() if not done]
            if open_:
                file, test = open_[0]
                files[file][test] = True
            for file in [file for file, tests in files.items() if all(tests.values())]:
                del files[file]
            super().remove_node(node)
            return open_[0][1] if open_ else None

        def _reschedule(self, node: Any) -> None:
            """Give a process files until it has three tests or there are no more, once it knows the tests."""
            while node in self.registered_collections and not node.shutting_down:
                super()._reschedule(node)
                if self._pending_of(self.assigned_work[node]) > 2:
                    return

    return Files(config, log)
