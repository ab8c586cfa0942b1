"""Batches as torch tensors: on the CPU over the same memory, on a GPU copied in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rawpack.checks import one_of, whole_number
from rawpack.epoch.dataloader import Unprepared
from rawpack.epoch.epochs import Epochs
from rawpack.epoch.misuse import refuse
from rawpack.errors import UsageError
from rawpack.integrations.adapter import Form, flat, imported, tuples
from rawpack.integrations.cuda import CudaCopies, Tensors, TorchRuntime
from rawpack.integrations.placed import Copies, PlacedBatches, PlacedIterator
from rawpack.transforms.plan import cut_tails
from rawpack.transforms.values import Tail
from rawpack.words import INDEX
from rawpack.workers.besides import EncodedFiles

FLOATS = ("float16", "bfloat16", "float32", "float64")


def torch_batches(
    batches: Epochs,
    device: Any = None,
    channels: str = "first",
    dtype: Any = None,
    depth: int = 2,
    as_tuple: Sequence[str] | None = None,
    *,
    form: Form | None = None,
    runtime: TorchRuntime | None = None,
    kind: type[TorchBatches] | None = None,
) -> TorchBatches:
    """What `Batches.torch` returns, with its arguments. form: of a batch, instead of `as_tuple`. runtime: how batches
    are copied instead of by torch's CUDA, for tests. kind: what to make, a class that derives from TorchBatches."""
    torch = imported("torch", "batches.torch() needs PyTorch: pip install torch, or see pytorch.org")
    one_of("channels", channels, "first", "last")
    depth, target = whole_number("depth", depth, 1), _device(torch, device)
    image_dtype = _image_dtype(torch, dtype)
    tails = dict[str, Tail]()
    if target.type == "cuda" or runtime is not None:
        if runtime is None:
            runtime = TorchRuntime(torch, target)
        if batches.settings.pipeline is not None:
            pipelines, each = zip(*(cut_tails(one) for one in batches.settings.pipelines if one), strict=True)
            if all(one == each[0] for one in each):
                tails = each[0]
                if tails:
                    # Who calls this in the loop gets the next epoch, as where there are no such steps.
                    batches = batches.with_settings(pipelines=pipelines, together=True)
    described = batches.making.described()
    tupled, shown = tuples(batches, as_tuple)
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
        own_dtype = image_dtype if field.kind == "image" and not field.exact else None
        if own_dtype is None and field.dtype == "uint16" and name not in tails:
            own_dtype = torch.int32  # torch's uint16 has hardly an operation
        converters[name] = _Converter(torch, tail, first, own_dtype)

    def convert(tensors: Tensors) -> Tensors:
        return {name: converters[name](tensor) for name, tensor in tensors.items()}

    copies: Copies
    if runtime is not None:
        batches.held = 1 + depth
        copies = CudaCopies(runtime, convert)
    else:
        copies, depth = _PlainCopies(torch, target, convert), 0
    if lists := {name for name in converters if described[name].listed}:
        copies = _ListCopies(copies, lists)
    return (kind or TorchBatches)(batches, copies, depth, tupled or form, f"{target}, channels {channels}{shown}")


def tensordict_batches(batches: Epochs, device: Any, channels: str, dtype: Any, depth: int) -> TorchBatches:
    tensordict = imported("tensordict", "batches.tensordict() needs tensordict and PyTorch: pip install tensordict")

    def form(batch: Mapping[str, Any]) -> Any:
        values = {
            name: tensordict.NonTensorStack(*one) if isinstance(one, list | EncodedFiles) else one
            for name, one in batch.items()
        }
        return tensordict.TensorDict(values, [len(batch[INDEX])])

    return torch_batches(batches, device, channels, dtype, depth, form=form)


class _PlainCopies(Copies):
    """Tensors over the same memory on the CPU; on other devices, copies that are made at once."""

    def __init__(self, torch: Any, device: Any, convert: Callable[[Tensors], Tensors]) -> None:
        super().__init__()
        self._torch, self._device, self._convert = torch, device, convert
        self.shares_memory = device.type == "cpu"

    def begin(self, arrays: Mapping[str, NDArray[Any]]) -> Tensors:
        tensors = {name: self._torch.from_numpy(array) for name, array in arrays.items()}
        if self._device.type != "cpu":
            tensors = {name: tensor.to(self._device) for name, tensor in tensors.items()}
        return self._convert(tensors)


class _ListCopies(Copies):
    """Copies that also take lists of arrays: as one array for each field, which is divided on the device."""

    def __init__(self, copies: Copies, lists: Iterable[str]) -> None:
        super().__init__()
        self._copies, self.lists = copies, frozenset(lists)
        self.counts, self.shares_memory, self.close = copies.counts, copies.shares_memory, copies.close  # type: ignore[method-assign]

    def begin(self, arrays: Mapping[str, Any]) -> Any:
        parts = {name: list(flat(values)) for name, values in arrays.items() if name in self.lists}
        joined = {name: np.concatenate(values) for name, values in parts.items()}
        return self._copies.begin({**arrays, **joined}), {name: arrays[name] for name in parts}

    def finish(self, begun: Any) -> Tensors:
        copying, lists = begun
        tensors = self._copies.finish(copying)
        for name, values in lists.items():
            divided = iter(tensors[name].split([len(array) for array in flat(values)]))
            tensors[name] = [
                next(divided) if isinstance(value, np.ndarray) else [next(divided) for _ in value] for value in values
            ]
        return tensors


class _Converter:
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


class EpochSetter:
    """What trainers look for as `loader.batch_sampler`, and as its sampler, to set the epoch."""

    def __init__(self, batches: TorchBatches) -> None:
        self._batches, self.batch_size = batches, batches.batch_size

    @property
    def sampler(self) -> EpochSetter:
        """This, where Lightning looks for it."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self._batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[NoReturn]:
        raise UsageError(
            "batches come from the loader: no DataLoader can be made of its dataset and batch_sampler; to begin within "
            "an epoch, pass load_state_dict() a state"
        )


class TorchBatches(Unprepared, PlacedBatches):
    """Batches of one reader as tensors: each iterator is the next epoch, as with `Batches`.

    On the CPU, tensors share the memory of the batch, which is yours for as long as you hold any of them or a view of
    one; on other devices they are copies. This is no `DataLoader`, so that trainers do not wrap it and shard it again.
    """

    def __getitem__(self, index: Any) -> NoReturn:
        raise UsageError(
            "batches of tensors are iterated, not indexed, and take the place of a DataLoader of torch: write "
            "`for batch in batches.torch()`; where a DataLoader must stay, DataLoader(batches, batch_size=None, "
            "num_workers=0), with torch imported before batches()"
        )

    @property
    def batch_sampler(self) -> EpochSetter:
        """Lightning sets the epoch by its sampler, and expects it of what has a `sampler`."""
        return EpochSetter(self)

    def _begun(self, iterator: PlacedIterator) -> None:
        refuse("epoch", self)
        super()._begun(iterator)


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
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in FLOATS:
        raise UsageError(f"dtype={dtype!r} must be one of {', '.join(map(repr, FLOATS))}, or torch's of that name")
    return getattr(torch, name)
