"""The steps of a transform as worker processes got them, and whether they were changed since."""

from __future__ import annotations

import io
import pickle
import random
import types
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np

from rawpack.errors import UsageError
from rawpack.system.user import warn
from rawpack.transforms.pipeline import Pipeline

_MOST_BYTES = 1 << 20
"""The largest pickle that is made for comparison in each epoch. Larger steps are compared by their attributes."""
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
_PLAIN = (bool, int, float, str, bytes)


def packed(pipelines: Sequence[Pipeline | None]) -> bytes:
    """A transform as it is sent to worker processes. Raises UsageError where it cannot be."""
    try:
        return cloudpickle.dumps(tuple(pipelines))  # type: ignore[no-any-return]
    except Exception as error:
        raise UsageError(
            f"the transform cannot be sent to worker processes: {type(error).__name__}: {error}; functions must not "
            'hold open files, locks and the like; or pass workers=Workers(backend="thread") or workers=0'
        ) from error


class _Pipelines(tuple[Pipeline | None, ...]):
    """Pipelines that reach every worker as they were when the first one started: a worker that replaces another one
    must not make other batches."""

    packed: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.packed,)


class SentSteps:
    """The steps that the workers of one pool got."""

    def __init__(self, pipelines: Sequence[Pipeline | None]) -> None:
        self.pipelines = tuple(pipelines)
        data = packed(pipelines)
        if len(data) <= _MOST_BYTES:
            self.pipelines = _Pipelines(pipelines)
            self.pipelines.packed = data
        every = [step for pipeline in pipelines if pipeline is not None for step in pipeline.steps]
        self._steps = {id(step): (step, _SentStep(step)) for step in every}

    def changed(self, warned: set[int]) -> bool:
        """Whether the caller has changed a step since. Warns of each step that cannot be compared, once: `warned` gets
        its id."""
        return any(look.differs(step, warned) for step, look in self._steps.values())


class _SentStep:
    def __init__(self, step: Any) -> None:
        self._pickle = _pickled(step)
        self._settings = _pickled(step, state=False)
        self._attributes = _attributes(step) if self._pickle is None else []

    def differs(self, step: Any, warned: set[int]) -> bool:
        if self._pickle is None:
            now = _attributes(step)
            return len(now) != len(self._attributes) or not all(map(_same, now, self._attributes))
        try:
            if _pickled(step) == self._pickle:
                return False
            settings = _pickled(step, state=False)
            if settings != self._settings and settings == _pickled(step, state=False):
                return True
            why = "its pickle differs each time, as that of a random generator that is used"
            cure = "take random numbers from draw(), or leave what differs out of __getstate__()"
        except Exception as error:
            why = f"it cannot be pickled anymore ({type(error).__name__}: {error})"
            cure = "leave what cannot be pickled out of __getstate__()"
        if id(step) not in warned:
            warned.add(id(step))
            warn(
                f"{step!r:.200}: {why}, so rawpack cannot tell whether you change it between two epochs, and worker "
                f'processes keep it as they got it: {cure}; or pass workers=Workers(backend="thread")',
                UserWarning,
            )
        return False


class _Limited(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > _MOST_BYTES:
            raise OverflowError
        return super().write(data)


class _SettingsPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what a user sets, so without the state of random generators."""

    def reducer_override(self, obj: Any) -> Any:
        return (type(obj), ()) if isinstance(obj, _GENERATORS) else super().reducer_override(obj)


def _pickled(step: Any, *, state: bool = True) -> bytes | None:
    """The pickle of a step, for comparison only; None where it is large. state: with that of random generators."""
    file = _Limited()
    try:
        (cloudpickle.Pickler if state else _SettingsPickler)(file).dump(step)
    except OverflowError:
        return None
    return file.getvalue()


def _attributes(step: Any) -> list[Any]:
    """A step, its attributes, and theirs; for functions, the variables that they use from outside."""
    values, level = [step], [step]
    for _ in range(2):
        level = [inner for value in level for inner in _inside(value)]
        values += level
    return values


def _inside(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        names = (value.__globals__.get(name) for name in value.__code__.co_names)
        cells = (cell for cell in value.__closure__ or () if cell != types.CellType())  # those with a value
        return [*(cell.cell_contents for cell in cells), *names]
    return [] if isinstance(value, type | types.ModuleType) else list(getattr(value, "__dict__", {}).values())


def _same(now: Any, before: Any) -> bool:
    return now is before or (type(now) is type(before) and isinstance(now, _PLAIN) and now == before)
