"""A worker process of the reader: the code that runs in it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from rawpack.disk.tables import resolve
from rawpack.errors import RawpackError
from rawpack.store.shard_files import InMemory, Memory
from rawpack.store.store import Store
from rawpack.store.stores import Stores
from rawpack.system.channel import Channel, Heartbeat
from rawpack.system.memory import keep_freed_memory, map_descriptor
from rawpack.workers.fill import BatchFiller, Task, Views, WorkSpec, serve
from rawpack.workers.slots import SlotLayout


def main(channel: Channel, heartbeat: Heartbeat, spec: WorkSpec, descriptors: list[int]) -> None:
    """Serve until the parent is gone. descriptors: of preloaded shards, if any."""
    files = list(spec.files)
    if spec.memory is not None:
        memory = Memory(descriptors[0], *spec.memory)
        files = [InMemory(one, memory) for one in files]
    library = Stores([Store(*one) for one in zip(files, spec.manifests, strict=True)], spec.groups)
    filler = BatchFiller(spec, library)
    if filler.uses_opencv:
        # OpenCV's threads would multiply with the workers.
        import cv2

        cv2.setNumThreads(1)
    if not filler.only_copies:
        keep_freed_memory()
    serve(channel, filler, SlotMap(spec.layout).views_of, heartbeat)


def preparation(spec: WorkSpec, filler: BatchFiller) -> Callable[[], None]:
    """What the template of such workers runs: it loads what `main` will use, but nothing of the user's or of other
    packages. filler: one by the same spec."""
    steps = [name for name in [*sys.modules] if name.startswith("rawpack.transforms.")]  # another thread may import
    return partial(_load, filler.references, filler.uses_opencv, steps if spec.pipelines[0] is not None else [])


def _load(references: tuple[str, ...], opencv: bool, steps: list[str]) -> None:
    for reference in references:
        resolve(reference)
    if "rawpack.jpeg" in sys.modules:
        from rawpack.jpeg.choice import decoder

        with contextlib.suppress(RawpackError):  # the worker raises it again
            decoder()
    if opencv:
        import cv2  # noqa: F401
    for module in steps:
        import_module(module)


class SlotMap:
    def __init__(self, layout: SlotLayout) -> None:
        self._layout = layout
        self._slots: dict[int, Any] = {}

    def views_of(self, task: Task, descriptors: list[int]) -> Views:
        """The arrays of the task's slot, mapped at its first use."""
        for number in task.forget:
            self._slots.pop(number, None)
        if not descriptors:
            return self._layout.views(self._slots[task.slot], task.rows, task.bucket)
        memory = map_descriptor(descriptors[0], task.size, writable=True)
        os.close(descriptors[0])
        if task.keep:
            self._slots[task.slot] = memory
        return self._layout.views(memory, task.rows, task.bucket)
