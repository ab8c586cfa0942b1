"""Child processes that tests hand on to each other: to start one takes longer than most of what tests have it do.

A test that is about processes has its own: see `pytest.mark.own_processes`.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import reading

from rawpack.system import template
from rawpack.system.child import Child
from rawpack.system.template import Template
from rawpack.workers import worker
from rawpack_packer.isolated import IsolatedCalls

_KEPT = 2
"""Templates, each of which has loaded what its workers need."""


def _surroundings() -> tuple[Any, ...]:
    """What a child has from the moment when it starts."""
    try:
        folder = Path.cwd()
        state = folder.stat()
    except OSError:
        return (object(),)
    variables = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    limits = [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE)]
    mask = os.umask(0)
    os.umask(mask)
    return (
        os.getpid(),
        folder,
        state.st_dev,
        state.st_ino,
        tuple(sorted(variables.items())),
        tuple(sys.path),
        *limits,
        mask,
    )


_loaded: tuple[tuple[str, ...], bool, bool] = ((), False, False)


def _widened(prepare: Callable[[], None]) -> Callable[[], None]:
    """What loads all that templates of readers have loaded so far, whichever formats and steps a test has: so one
    template serves the workers of all tests, after a few."""
    global _loaded
    if not isinstance(prepare, partial) or prepare.func is not worker._load:
        return prepare
    references, opencv, transforms = prepare.args
    if not all(reference.startswith("rawpack.") for reference in references):
        return prepare  # of a package that only this test has
    _loaded = tuple(sorted({*_loaded[0], *references})), _loaded[1] or opencv, _loaded[2] or transforms
    return partial(worker._load, *_loaded)


class KeptChildren:
    """Templates of workers, and a child of `IsolatedCalls`, that nobody uses for the moment."""

    def __init__(self) -> None:
        self._templates = OrderedDict[tuple[Any, ...], template._Running]()
        self._child: tuple[tuple[Any, ...], Child] | None = None
        self.keeps = True

    def close(self) -> None:
        """End them all."""
        for running in self._templates.values():
            running.child.kill()
        self._templates.clear()
        if self._child is not None:
            self._child[1].kill()
            self._child = None

    @contextmanager
    def nothing(self) -> Iterator[None]:
        """End them all, and keep none meanwhile."""
        self.close()
        kept, self.keeps = self.keeps, False
        try:
            yield
        finally:
            self.keeps = kept

    def take_template(self, key: tuple[Any, ...], start: Callable[[], template._Running]) -> template._Running:
        running = self._templates.pop(key, None)
        if running is None:
            return start()
        if running.lives():
            return running
        running.child.kill()
        return start()

    def keep_template(self, key: tuple[Any, ...], running: template._Running) -> None:
        """Keep one whose workers have all ended."""
        if running.gone or not self.keeps or key in self._templates:
            running.child.kill()
            return
        self._templates[key] = running
        if len(self._templates) > _KEPT:
            self._templates.popitem(last=False)[1].child.kill()

    def take_child(self) -> Child | None:
        kept, self._child = self._child, None
        if kept is None:
            return None
        key, child = kept
        if key == _surroundings() and not child.channel.readable(0):
            return child
        child.kill()
        return None

    def keep_child(self, key: tuple[Any, ...], child: Child) -> None:
        if self._child is not None or not self.keeps:
            child.kill()
        else:
            self._child = key, child


class _KeptTemplate(Template):
    """A `Template` whose process, once all of its workers have ended, another one takes over."""

    kept: KeptChildren

    def __init__(self, prepare: Callable[[], None]) -> None:
        super().__init__(_widened(prepare) if self.kept.keeps else prepare)
        self._key: tuple[Any, ...] = ()
        self._forked: list[template.ForkedProcess] = []

    def launch(self, ends: Any, channel: Any) -> Any:
        if self._running is None and not self._useless:
            self._key = (*_surroundings(), pickle.dumps(self._prepare))
            running = self.kept.take_template(self._key, lambda: template._Running(self._prepare))
            if running.is_ready():
                self._running = running
            else:
                running.child.kill()
        process = super().launch(ends, channel)
        if isinstance(process, template.ForkedProcess):
            self._forked.append(process)
        return process

    def close(self) -> None:
        running, self._running = self._running, None
        forked, self._forked = self._forked, []
        if running is None:
            return
        if all(process.returncode is not None for process in forked if process._running is running):
            self.kept.keep_template(self._key, running)
        else:
            running.child.kill()


class _KeptCalls(IsolatedCalls):
    """`IsolatedCalls` whose process another one takes over, unless a call ended it. Not for `verify`, which remembers
    the store, and wants a new process after damage."""

    kept: KeptChildren
    _started: tuple[Any, ...] = ()
    _whole = False
    """Whether the process may go on to others."""

    def _call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._child is None:
            self._started = _surroundings()
            self._child = self.kept.take_child()
        self._whole = False
        answer = super()._call(function, *args, **kwargs)
        self._whole = True
        return answer

    def close(self) -> None:
        child, whole, self._whole = self._child, self._whole, False
        if child is None or not whole:
            super().close()
            return
        self._child = None
        self.kept.keep_child(self._started, child)


@contextmanager
def kept_children() -> Iterator[KeptChildren]:
    """Have all pools and isolated calls of this process hand on what they start."""
    from rawpack.system import pool
    from rawpack_packer.job import estimate
    from rawpack_packer.sources.hdf5 import file
    from rawpack_packer.sources.lmdb import look

    kept = _KeptTemplate.kept = _KeptCalls.kept = KeptChildren()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Template", _KeptTemplate)
        patch.setattr(reading, "keep_nothing", kept.nothing)
        for module in (estimate, look, file):
            patch.setattr(module, "IsolatedCalls", _KeptCalls)
        try:
            yield kept
        finally:
            kept.close()
