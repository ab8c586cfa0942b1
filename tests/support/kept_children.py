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
from threading import RLock
from typing import Any

import nursery
import pytest
import reading

from rawpack.system import template
from rawpack.system.channel import Channel
from rawpack.system.child import Child, Ends, Process
from rawpack.system.template import Template
from rawpack.workers import worker

_KEPT = 4
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


class KeptChildren:
    """Templates of workers that nobody uses for the moment, and the nursery."""

    def __init__(self) -> None:
        self._templates = OrderedDict[tuple[Any, ...], template._Running]()
        self.nursery = _Nursery()
        self.keeps = True

    def close(self) -> None:
        """End them all, but for a nursery whose children are used."""
        for running in self._templates.values():
            running.child.kill()
        self._templates.clear()
        self.nursery.close()

    def pids(self) -> set[int]:
        """The processes that are kept."""
        nursery = self.nursery.running
        kept = [*self._templates.values(), *([nursery] if nursery is not None else [])]
        return {running.child.process.pid for running in kept}

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


class _KeptTemplate(Template):
    """A `Template` whose process, once all of its workers have ended, another one takes over."""

    kept: KeptChildren

    def __init__(self, prepare: Callable[[], None]) -> None:
        super().__init__(prepare)
        self._key: tuple[Any, ...] = ()
        self._forked: list[template.ForkedProcess] = []

    def launch(self, ends: Any, channel: Any) -> Any:
        if self._running is None and not self._useless:
            prepare = self._prepare
            # One serves the workers of all readers, whatever they read.
            if self.kept.keeps and isinstance(prepare, partial) and prepare.func is worker._load:
                prepare = nursery.load_readers
            self._key = (*_surroundings(), pickle.dumps(prepare))
            running = self.kept.take_template(self._key, lambda: template._Running(prepare))
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


class _Nursery:
    """Forks the children that are started without a template: a process that has loaded what they need. See
    `Launcher`. A child in other surroundings is started as a plain process; after three with the same, the nursery
    moves there: all pages of the documentation run in the same."""

    def __init__(self) -> None:
        self.running: _SharedTemplate | None = None
        self._forked: list[template.ForkedProcess] = []
        self._key = _surroundings()
        self._last, self._times = self._key, 0
        self._lock = RLock()

    def launch(self, ends: Ends, channel: Channel) -> Process | None:
        with self._lock:
            last, self._last = self._last, _surroundings()
            self._times = self._times + 1 if self._last == last else 1
            if self._key != self._last:
                if self._times > 3:
                    self.close()
                if self._times <= 3 or self.running is not None:
                    return None
                self._key = self._last
            if self.running is not None and not self.running.lives():
                self.close(also_used=True)
            if self.running is None:
                self.running = _SharedTemplate(nursery.load)
                self.running.is_ready()
            process = self.running.fork(ends, channel)
            self._forked += [process] if process is not None else []
            return process

    def close(self, *, also_used: bool = False) -> None:
        """End it, and with it its children; not while one of them is used, unless that is said."""
        with self._lock:
            self._forked = [process for process in self._forked if process.returncode is None]
            if self.running is not None and (also_used or not self._forked):
                self.running.child.kill()
                self.running = None


class _SharedProcess(template.ForkedProcess):
    """One that several threads may end: isolated calls are ended by the thread that makes them and by another one."""

    _running: _SharedTemplate

    def kill(self) -> None:
        with self._running.lock:
            super().kill()

    def wait(self, timeout: float) -> int:
        with self._running.lock:
            return super().wait(timeout)


class _SharedTemplate(template._Running):
    """One that several threads may ask."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        self.lock = RLock()
        super().__init__(prepare)

    def lives(self) -> bool:
        with self.lock:
            return super().lives()

    def fork(self, ends: Ends, channel: Channel) -> template.ForkedProcess | None:
        process = super().fork(ends, channel)
        return None if process is None else _SharedProcess(self, process.pid, channel)

    def _ask(self, *order: Any, descriptors: tuple[int, ...] = (), timeout: float) -> Any:
        with self.lock:
            return super()._ask(*order, descriptors=descriptors, timeout=timeout)


@contextmanager
def kept_children() -> Iterator[KeptChildren]:
    """Have all pools of this process hand on their templates, and fork all other children from the nursery."""
    from rawpack.system import pool

    kept = _KeptTemplate.kept = KeptChildren()
    start = Child.__init__

    def start_forked(child: Child, *args: Any, **how: Any) -> None:
        if kept.keeps and how.get("launcher") is None and not how.get("single"):
            how["launcher"] = kept.nursery
        start(child, *args, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Template", _KeptTemplate)
        patch.setattr(Child, "__init__", start_forked)
        patch.setattr(reading, "kept", kept.pids)
        try:
            yield kept
        finally:
            kept.close()
            kept.nursery.close(also_used=True)
