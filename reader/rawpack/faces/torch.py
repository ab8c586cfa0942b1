"""Batches as torch tensors: on the CPU over the same memory, on a GPU copied in advance."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.batching.batches import Batches
from rawpack.batching.iterator import Batch, BatchIterator
from rawpack.batching.options import names, one_of
from rawpack.errors import MissingExtraError, UsageError
from rawpack.faces.cuda import CudaCopies, CudaRuntime, Tensors, TorchRuntime
from rawpack.order.keys import whole_number
from rawpack.transforms.plan import cut_tails
from rawpack.transforms.values import Tail

TensorBatch = dict[str, Any] | tuple[Any, ...]
"""Tensors, and lists where the numpy batch has lists."""
FLOATS = ("float16", "bfloat16", "float32", "float64")


def torch_batches(
    batches: Batches,
    device: Any = None,
    channels: str = "first",
    dtype: Any = None,
    depth: int = 2,
    as_tuple: Sequence[str] | None = None,
    *,
    runtime: CudaRuntime | None = None,
) -> TorchBatches:
    """What `Batches.torch` returns, with its arguments. runtime: how batches are copied instead of by torch's CUDA, for
    tests."""
    torch = _torch()
    one_of("channels", channels, "first", "last")
    depth, target = whole_number("depth", depth, 1), _device(torch, device)
    image_dtype = _image_dtype(torch, dtype)
    tails = dict[str, Tail]()
    if target.type == "cuda" or runtime is not None:
        if runtime is None:
            runtime = TorchRuntime(torch, target)
        if batches.options.pipeline is not None:
            pipeline, tails = cut_tails(batches.options.pipeline)
            batches = batches.with_pipeline(pipeline) if tails else batches
    described = batches.described()
    if as_tuple is not None:
        as_tuple = tuple(names("as_tuple", as_tuple))
        for name in as_tuple:
            if name not in described:
                raise UsageError(f"as_tuple: there is no field {name!r} in a batch, only {', '.join(described)}")
    converters = {}
    for name, field in described.items():
        if field.dtype is None:
            continue
        try:
            torch.from_numpy(np.empty(0, field.dtype))
        except TypeError as error:
            raise UsageError(
                f"{name!r} is {field.dtype}, which torch does not have; leave it out with fields="
            ) from error
        tail = tails.get(name)
        first = field.channels_last and (channels == "first" or (tail is not None and tail.planes))
        converters[name] = _Converter(torch, tail, first, image_dtype if field.kind == "image" else None)
    copies: BatchCopies
    if runtime is not None:
        # With a limit on slots, a batch must leave its slot before the next one needs it.
        limited = batches.options.max_slots is not None
        batches.held = 1 if limited else 1 + depth
        copies = CudaCopies(runtime, partial(_converted, converters), register=not limited)
    else:
        copies, depth = _PlainCopies(torch, target, partial(_converted, converters)), 0
    return TorchBatches(batches, copies, depth, as_tuple, f"{target}, channels {channels}")


class BatchCopies(Protocol):
    """How the arrays of a batch become tensors on a device."""

    counts: dict[str, int]
    """What `TorchBatches.stats` adds."""

    def begin(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Begin to make the tensors."""

    def finish(self, begun: Any) -> Tensors:
        """The tensors of a batch, to be handed over."""

    def close(self) -> None:
        """Let go of everything."""


class _PlainCopies:
    """Tensors over the same memory on the CPU; on other devices, copies that are made at once."""

    def __init__(self, torch: Any, device: Any, convert: Callable[[Tensors], Tensors]) -> None:
        self._torch, self._device, self._convert = torch, device, convert
        self.counts = dict[str, int]()

    def begin(self, arrays: Mapping[str, NDArray[Any]]) -> Tensors:
        tensors = {name: self._torch.from_numpy(array) for name, array in arrays.items()}
        if self._device.type != "cpu":
            tensors = {name: tensor.to(self._device) for name, tensor in tensors.items()}
        return self._convert(tensors)

    def finish(self, begun: Tensors) -> Tensors:
        return begun

    def close(self) -> None:
        pass


class _Converter:
    """What is done to one field on its device."""

    def __init__(self, torch: Any, tail: Tail | None, channels_first: bool, dtype: Any) -> None:
        """tail: the end of the transform, where that is done here. dtype: of the result; None leaves it."""
        self._torch, self._tail, self._channels_first, self._dtype = torch, tail, channels_first, dtype
        self._factors: tuple[Any, Any] | None = None

    def __call__(self, tensor: Any) -> Any:
        dtype = self._dtype
        if self._tail is not None and self._tail.scale is not None:
            scale, shift = self._factors or self._factors_on(tensor.device)
            tensor = self._torch.mul(tensor, scale).add_(shift)
            dtype = dtype or getattr(self._torch, self._tail.dtype)
        if dtype is not None:
            tensor = tensor.to(dtype)
        return tensor.movedim(-1, -3) if self._channels_first else tensor

    def _factors_on(self, device: Any) -> tuple[Any, Any]:
        assert self._tail is not None
        dtype = self._torch.float64 if self._tail.dtype == "float64" else self._torch.float32
        scale, shift = (
            self._torch.tensor(values, dtype=dtype, device=device) for values in (self._tail.scale, self._tail.shift)
        )
        self._factors = scale, shift
        return scale, shift


def _converted(converters: Mapping[str, _Converter], tensors: Tensors) -> Tensors:
    return {name: converters[name](tensor) for name, tensor in tensors.items()}


class EpochSetter:
    """What trainers look for as `loader.sampler`, to set the epoch, and as `loader.batch_sampler`."""

    def __init__(self, batches: TorchBatches, batch_size: int) -> None:
        self._batches, self.batch_size = batches, batch_size

    def set_epoch(self, epoch: int) -> None:
        """As `TorchBatches.set_epoch`."""
        self._batches.set_epoch(epoch)


class TorchBatches(Iterable[TensorBatch]):
    """Batches of one reader as tensors: each iterator is the next epoch, as with `Batches`.

    An iterator takes its epoch, and starts workers, at its first `next()`. It is used by one thread at a time. On the
    CPU, tensors share the memory of the batch, which is yours for as long as you hold any of them or a view of one; on
    other devices they are copies. This is no `DataLoader`, so that trainers do not wrap it and shard it again.
    """

    def __init__(
        self, batches: Batches, copies: BatchCopies, depth: int, as_tuple: tuple[str, ...] | None, title: str
    ) -> None:
        """Made by `Batches.torch`. depth: how many batches are begun in advance. title: the device and the order of
        channels, to be shown."""
        self._batches, self._copies, self._depth = batches, copies, depth
        self._as_tuple, self._title = as_tuple, title
        self._latest: weakref.ref[TorchIterator] | None = None
        self._state: dict[str, Any] | None = None
        """Where the caller is; None where it is where the numpy batches are."""
        weakref.finalize(self, copies.close).atexit = False

    def __repr__(self) -> str:
        fields = "" if self._as_tuple is None else f", tuples ({', '.join(self._as_tuple)})"
        return f"{type(self).__name__}({self._title}{fields}; {self._batches!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError("batches own workers and memory: pickle the reader instead, and call batches() there")

    def __len__(self) -> int:
        """The number of batches that this rank gets in the epoch that comes next, from its start."""
        return len(self._batches)

    def __iter__(self) -> TorchIterator:
        return TorchIterator(self, self._batches, self._copies, self._depth, self._as_tuple)

    @property
    def sampler(self) -> EpochSetter:
        """For trainers that call `loader.sampler.set_epoch(n)`."""
        return EpochSetter(self, self._batches.options.batch_size)

    # Lightning expects that what has one of them has the other.
    batch_sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` comes next: from its start, or from the position that was loaded for this epoch."""
        self._batches.set_epoch(epoch)
        self._state = self._batches.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Where the caller of the latest iterator is, for `load_state_dict`: plain values that JSON can hold.

        Batches that are being copied in advance do not count. States of `Batches` and of this object are the same.
        """
        return self._batches.state_dict() if self._state is None else dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The iterator that begins next resumes where `state` was taken. Raises UsageError where it belongs to another
        order."""
        self._batches.load_state_dict(state)
        self._state = self._batches.state_dict()

    def stats(self) -> dict[str, Any]:
        """As `Batches.stats`. On CUDA also `registered_slots`, the slots that CUDA reads directly, and
        `staged_batches`, the batches that went through other memory first."""
        return self._batches.stats() | self._copies.counts

    def close(self) -> None:
        """End the latest iterator, wait for copies, and give memory back to CUDA. Another `iter()` may follow."""
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            latest.close()
        self._copies.close()

    def begun(self, iterator: TorchIterator) -> None:
        """Called by an iterator at its first `next()`."""
        # Until it has handed over a batch: that more may have been prepared must not count.
        self._state = self.state_dict()
        self._latest = weakref.ref(iterator)

    def handed_over(self, iterator: TorchIterator, state: dict[str, Any] | None) -> None:
        """Called by an iterator that has handed over a batch. state: after it; None where the numpy batches have it."""
        if self._latest is not None and self._latest() is iterator:
            self._state = state


@dataclass(frozen=True)
class _BegunBatch:
    """A batch on its way to the caller."""

    copying: Any
    batch: Batch
    """Arrays as None: what holds a slot is not held here."""
    state: dict[str, Any] | None
    """After it; None where it is that of the numpy batches."""


class TorchIterator(Iterator[TensorBatch]):
    """One pass over one epoch."""

    def __init__(
        self,
        owner: TorchBatches,
        batches: Batches,
        copies: BatchCopies,
        depth: int,
        as_tuple: tuple[str, ...] | None,
    ) -> None:
        self._owner, self._batches, self._copies, self._depth = owner, batches, copies, depth
        self._as_tuple = as_tuple
        self._source: BatchIterator | None = None
        self._begun: deque[_BegunBatch] = deque()
        self._handed = 0
        self._ended = False
        """Whether no more batches are begun."""
        self._failure: Exception | None = None
        """What to raise after the batches that are begun."""

    def __next__(self) -> TensorBatch:
        if self._source is None and not self._ended:
            self._owner.begun(self)
            self._source = iter(self._batches)
        # The first batches are handed over as soon as they are there; those in advance become more from step to step.
        while not self._ended and len(self._begun) <= min(self._depth, self._handed):
            self._begin()
        if not self._begun:
            failure, self._failure = self._failure, None
            raise StopIteration if failure is None else failure
        begun = self._begun.popleft()
        batch = begun.batch | self._copies.finish(begun.copying)
        self._handed += 1
        self._owner.handed_over(self, begun.state)
        return batch if self._as_tuple is None else tuple(batch[name] for name in self._as_tuple)

    def close(self) -> None:
        """End the iteration early."""
        self._ended = True
        self._begun.clear()
        if self._source is not None:
            self._source.close()

    def _begin(self) -> None:
        """Begin the next batch; what fails is raised in its place."""
        assert self._source is not None
        try:
            batch = next(self._source)
            # With nothing in advance, the caller is where the numpy batches are.
            state = self._batches.state_dict() if self._depth else None
            arrays = {name: value for name, value in batch.items() if isinstance(value, np.ndarray)}
            copying = self._copies.begin(arrays)
        except StopIteration:
            self._ended = True
        except Exception as error:
            self._ended, self._failure = True, error
            self._source.close()
        else:
            self._begun.append(_BegunBatch(copying, batch | dict.fromkeys(arrays), state))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("batches.torch() needs PyTorch: pip install torch, or see pytorch.org") from None
    return torch


def _device(torch: Any, device: Any) -> Any:
    """The `torch.device`, with an index for CUDA. UsageError where there is no such device."""
    try:
        target = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):
        raise UsageError(f"device={device!r} must be a device of torch, such as 'cpu', 'cuda' or 'cuda:1'") from None
    if target.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device={device!r}: torch finds no GPU here (torch.cuda.is_available() is False)")
    try:
        empty = torch.empty(0, device=target)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"device={device!r}: torch cannot use it here: {error}") from error
    return empty.device


def _image_dtype(torch: Any, dtype: Any) -> Any:
    """The `torch.dtype`; None for None."""
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in FLOATS:
        raise UsageError(f"dtype={dtype!r} must be one of {', '.join(map(repr, FLOATS))}, or torch's of that name")
    return getattr(torch, name)
