"""torch's DataLoader: `Batches` as its iterable dataset, which of its workers this is, and what to write instead of its
attributes. torch is never imported."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Self

from rawpack.errors import UsageError
from rawpack.system.memory import anonymous_file

_ENTRY = 8
_ENTRIES = 512
_COUNT = struct.Struct("<q")
_LOOP = struct.Struct("<qqqqqq")
_LOOPS = 100


class SharedCounts:
    """A count from 0 to 255 for each digest, which this process shares with all that are forked from it: a DataLoader
    starts new workers for each epoch. An entry may be lost to another digest, and is then 0. There is no lock."""

    def __init__(self) -> None:
        # Its one page of memory is taken when something is written.
        self._table = mmap.mmap(-1, _ENTRY * _ENTRIES)

    def __getitem__(self, digest: str) -> int:
        at, check = self._entry(digest)
        return self._table[at] if self._table[at + 1 : at + _ENTRY] == check else 0

    def __setitem__(self, digest: str, count: int) -> None:
        at, check = self._entry(digest)
        self._table[at : at + _ENTRY] = bytes([min(count, 255)]) + check

    @staticmethod
    def _entry(digest: str) -> tuple[int, bytes]:
        """Where its entry is, and what tells it from others."""
        value = bytes.fromhex(digest)
        return int.from_bytes(value[:4]) % _ENTRIES * _ENTRY, value[-(_ENTRY - 1) :]


class Loops:
    """The loops of DataLoaders over the same batches: which epoch the workers of each took. Each loop has new workers,
    with copies of the batches, and shares this with all of them, so that it is the next epoch, as any other loop is.

    The latest loops are kept. Where torch was not imported, nothing is.
    """

    def __init__(self) -> None:
        self._memory = None
        if _module() is not None:
            self._memory = mmap.mmap(-1, _COUNT.size + _LOOPS * _LOOP.size)
            _lock_file()  # before workers are forked

    def latest(self, era: int) -> tuple[int, int] | None:
        """The epoch that the workers of this process took last, and the position in it where they began; -1 where they
        were told by states of their own. None where they took none since `era` began, a number that counts where the
        user or the process itself chose the epoch."""
        if self._memory is None:
            return None
        with _locked():
            return next((place for _, place in self._entries(os.getpid(), era)), None)

    def join(self, era: int, place: tuple[int, int], *, chosen: bool, loaded: bool) -> tuple[int, int]:
        """Called in a worker that begins an epoch: the (epoch, position) where it does. era: of its parent, when it was
        started. place: where it would begin by itself; chosen: and does; loaded: as a state of its own says."""
        if self._memory is None or (loop := loop_here()) is None:
            return place
        with _locked():
            known = list(self._entries(os.getppid(), era))
            if known and not chosen:
                latest = known[0][1]
                epoch, position = next((place for other, place in known if loop.is_(other)), (latest[0] + 1, 0))
                place = epoch, max(0, position)
            noted = (place[0], -1) if loaded else place
            if not known or not loop.is_(known[0][0]) or known[0][1] != noted:
                (count,) = _COUNT.unpack_from(self._memory)
                entry = os.getppid(), era, loop.seed, loop.first, *noted
                _LOOP.pack_into(self._memory, _COUNT.size + count % _LOOPS * _LOOP.size, *entry)
                _COUNT.pack_into(self._memory, 0, count + 1)
        return place

    def _entries(self, process: int, era: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """The loops of one process in an era, (seed, first), and where they began, the latest first."""
        assert self._memory is not None
        (count,) = _COUNT.unpack_from(self._memory)
        for number in range(count - 1, max(-1, count - 1 - _LOOPS), -1):
            at = _COUNT.size + number % _LOOPS * _LOOP.size
            of, when, seed, first, epoch, position = _LOOP.unpack_from(self._memory, at)
            if (of, when) == (process, era):
                yield (seed, first), (epoch, position)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Alone among this process, and all that share its `Loops`. A process that is killed lets go."""
    import fcntl

    descriptor = _lock_file()
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


@cache
def _lock_file() -> int:
    return anonymous_file(1)


def register(kind: type) -> None:
    """Have a DataLoader take objects of this class for iterable datasets, if torch is imported."""
    dataset: Any = getattr(_module(), "IterableDataset", None)
    if hasattr(dataset, "register"):
        dataset.register(kind)


_FETCHER = "torch.utils.data._utils.fetch"
"""torch's module that reads from a dataset, in the process of a DataLoader and in its workers."""


def check_collation() -> None:
    """Called by `__iter__`: raise UsageError where its caller is a DataLoader that makes batches of what it gets, as it
    does with any `batch_size` but None."""
    caller = sys._getframe(1).f_back  # None where a thread of C asks
    if caller and caller.f_globals.get("__name__") == _FETCHER and caller.f_locals.get("auto_collation"):
        raise UsageError(
            "DataLoader(batches) makes batches of batches, as its batch_size is 1 by default: write "
            "DataLoader(batches, batch_size=None, num_workers=0), or `for batch in batches.torch()` without a "
            "DataLoader; batches(...) has the batch size"
        )


def not_indexed() -> UsageError:
    """The error for whoever indexes batches, as a DataLoader does that does not know that they are iterable."""
    return UsageError(
        "batches are iterated, not indexed; for a DataLoader of torch import torch before you call batches(), and pass "
        "it that result with batch_size=None, or pass it the reader itself"
    )


def worker_here() -> tuple[int, int] | None:
    """Which of how many workers of a DataLoader this process is; None where it is none."""
    asked = getattr(_module(), "get_worker_info", None)
    info = None if asked is None else asked()
    return None if info is None else (int(info.id), int(info.num_workers))


@dataclass(frozen=True)
class Loop:
    """Which loop over a DataLoader this worker is of."""

    seed: int
    """Of all workers of the loop. A StatefulDataLoader that resumes has that of an earlier loop."""
    first: int
    """The number of the loop's first worker among the processes that its parent started, by those that this one has."""
    workers: int

    def is_(self, other: tuple[int, int]) -> bool:
        """Whether it is the loop with this seed and first worker. A thread of the parent may have started another
        process between two workers."""
        seed, first = other
        return seed == self.seed and abs(first - self.first) < self.workers


def loop_here() -> Loop | None:
    """The loop that this process is a worker of; None where it is none."""
    asked = getattr(_module(), "get_worker_info", None)
    info = None if asked is None else asked()
    if info is None:
        return None
    number = getattr(multiprocessing.current_process(), "_identity", ()) or (int(info.id),)
    seed = int(getattr(info, "seed", info.id)) - int(info.id)
    return Loop(seed & (1 << 63) - 1, number[-1] - int(info.id), int(info.num_workers))


_SHARDERS = {"accelerate.data_loader": ("DataLoaderDispatcher", "IterableDatasetShard")}
"""Module -> its classes that divide what a dataset gives between processes. Around a DataLoader that each process has,
their frames are there in its workers too, which are forked from within them."""


def sharded_by() -> str | None:
    """The class of a trainer that is reading here, to divide the batches between its processes; None where none is."""
    if not any(name in sys.modules for name in _SHARDERS):
        return None
    frame: Any = sys._getframe(1)
    while frame is not None:
        names = _SHARDERS.get(frame.f_globals.get("__name__", ""), ())
        if names and frame.f_code.co_name == "__iter__":
            kind = type(frame.f_locals.get("self")).__name__
            if kind in names:
                return f"Accelerate's {kind}"
        frame = frame.f_back
    return None


_ATTRIBUTES = (
    ("labels targets", 'reader.column("label")', 'batch["label"]'),
    ("image images data", 'reader[i]["image"]', 'batch["image"]'),
    ("shape dtype", 'reader.fields["image"].{name}', 'batch["image"].{name}'),
    ("samples imgs", 'reader[i], or all of reader.column("key") and reader.column("label")', ""),
    ("transform transforms target_transform", "reader.batches(..., transform=[...])", ""),
    ("to cuda", 'reader.batches(...).torch("cuda")', 'batches.torch("cuda")'),
)
"""Attributes that users of torch type, and what to write for those of a reader, and of batches; "" for the same."""


def _attribute(of_reader: bool, owner: object, name: str) -> NoReturn:
    """The `__getattr__` of a class: raise AttributeError, with what to write where the table has it, so that `hasattr`
    is False."""
    for names, reader, batches in _ATTRIBUTES:
        if name in names.split():
            line = (reader if of_reader or not batches else batches).format(name=name)
            raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}: write {line}")
    object.__getattribute__(owner, name)  # Python's own words, or the AttributeError of a property
    raise AssertionError(name)


def attribute_of_reader(reader: object, name: str) -> NoReturn:
    """`Reader.__getattr__`."""
    _attribute(True, reader, name)


def attribute_of_batches(batches: object, name: str) -> NoReturn:
    """`Unprepared.__getattr__`."""
    _attribute(False, batches, name)


class Unprepared:
    """The base of batches for torch. Accelerate's `prepare` is refused: it would return them as they are, without
    knowing which batch is the last of an epoch."""

    _preparable = False

    if not TYPE_CHECKING:  # type checkers know all names
        __getattr__ = attribute_of_batches

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> type[Self]:
        # All that `prepare` does with an object of a class that it does not know is isinstance(), which asks for this.
        caller = sys._getframe().f_back  # None where a thread of C asks
        module, name = (caller.f_globals.get("__name__"), caller.f_code.co_name) if caller else (None, "")
        prepares = module == "accelerate.accelerator" and "prepare" in name
        if prepares and not self._preparable:
            raise UsageError(
                "Accelerate does not learn from these batches which one is the last of an epoch, so accumulated "
                "gradients would wait for the next epoch or be lost: pass batches.accelerate(accelerator) to prepare()"
            )
        return type(self)


def _module() -> Any:
    return sys.modules.get("torch.utils.data")
