"""Batches as arrays of JAX: on one device, on several by a sharding, or on those of several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.checks import whole_number
from rawpack.epoch.epochs import Epochs
from rawpack.errors import UsageError
from rawpack.integrations.adapter import Form, flat, imported, tuples
from rawpack.integrations.placed import Copies, PlacedBatches, PlacedIterator
from rawpack.order.steps import EpochStart

_CURE = "drop_last=True to batches(), which leaves out a smaller last batch"


def jax_batches(
    batches: Epochs, sharding: Any = None, depth: int = 2, as_tuple: Sequence[str] | None = None
) -> JaxBatches:
    jax = imported("jax", "batches.jax() needs JAX: pip install jax, or see docs.jax.dev")
    form, shown = tuples(batches, as_tuple)
    depth = whole_number("depth", depth, 1)
    if not (sharding is None or isinstance(sharding, jax.Device | jax.sharding.Sharding)):
        raise UsageError(
            f"sharding={sharding!r} must be a jax.sharding.Sharding, such as NamedSharding(mesh, "
            'PartitionSpec("data")), or a jax.Device'
        )
    spans = isinstance(sharding, jax.sharding.Sharding) and not sharding.is_fully_addressable
    if spans:
        _check_processes(batches)
    copies = _JaxCopies(jax, sharding, batches, spans)
    if "cpu" in copies.platforms:
        depth = 0  # nothing is copied
    if depth:
        batches.held = 1 + depth
    title = f"{'jax default device' if sharding is None else sharding}{shown}"
    return JaxBatches(batches, copies, depth, form, title)


class JaxBatches(PlacedBatches):
    """Batches of one reader as arrays of JAX: each iterator is the next epoch, as with `Batches`.

    On the CPU, arrays share the memory of the batch wherever JAX allows it. That memory is not reused while JAX has any
    of them.
    """

    _copies: _JaxCopies

    def _begun(self, iterator: PlacedIterator) -> None:
        """As in every adapter; UsageError where the last batch of the epoch cannot be sharded."""
        self._copies.check_last(self._feed.next_start())
        super()._begun(iterator)


class NarrowedFields:
    """Fields of whole numbers that JAX makes narrower, without an error for numbers that no longer fit."""

    def __init__(self, jax: Any, batches: Epochs) -> None:
        self._jax = jax
        self._wide = {name for name, field in batches.making.described().items() if field.dtype in ("int64", "uint64")}

    def checked(self, form: Form) -> Form:
        """A form that raises what `check` does."""

        def formed(arrays: Mapping[str, Any]) -> Any:
            self.check(arrays)
            return form(arrays)

        return formed

    def check(self, arrays: Mapping[str, Any]) -> None:
        """Raise UsageError for a number that JAX would cut."""
        for name in self._wide & arrays.keys():
            array = arrays[name] if isinstance(arrays[name], np.ndarray) else np.concatenate([*flat(arrays[name])])
            # Asked again for each batch: the mode may be changed, and may be that of a thread.
            limits = np.iinfo(np.dtype(self._jax.dtypes.canonicalize_dtype(array.dtype)))
            if array.size and limits.bits < 64 and (array.min() < limits.min or array.max() > limits.max):
                raise UsageError(
                    f"{name!r} has numbers that JAX would cut to {limits.dtype}: call "
                    'jax.config.update("jax_enable_x64", True), or leave it out with fields='
                )


class _JaxCopies(Copies):
    def __init__(self, jax: Any, sharding: Any, batches: Epochs, spans: bool) -> None:
        """spans: whether other processes have some of the devices."""
        super().__init__()
        self._jax, self._sharding, self._batches, self._spans = jax, sharding, batches, spans
        devices = getattr(sharding, "device_set", None) or jax.device_put(np.empty(0), sharding).devices()
        self.platforms = {device.platform for device in devices}
        self.shares_memory = "cpu" in self.platforms
        self._narrowed = NarrowedFields(jax, batches)
        if len(devices) == 1 and not spans:
            described = batches.making.described().items()
            self.lists = frozenset(name for name, field in described if field.listed and field.dtype is not None)
        rows = batches.next_start().split.batch_size
        self._check(rows, "the batches", "choose another batch_size=, or leave it out with fields=")

    def begin(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        self._narrowed.check(arrays)
        if not self._spans:
            return dict(self._jax.device_put(dict(arrays), self._sharding))
        return {name: self._global(array) for name, array in arrays.items()}

    def check_last(self, start: EpochStart) -> None:
        """Raise UsageError where a short batch of an epoch cannot be sharded, before its first one is read."""
        where = "a bucket" if len(self._batches.settings.pipelines) > 1 else f"epoch {start.epoch}"
        for rows in start.split.lengths(start.position):
            self._check(rows, f"the last batch of {where}", f"pass {_CURE}")

    def _check(self, rows: int, words: str, cure: str) -> None:
        """Raise UsageError where batches of this many rows cannot be sharded. words: which batches."""
        if not isinstance(self._sharding, self._jax.sharding.Sharding):
            return
        ranks = self._batches.next_start().split.world_size if self._spans else 1
        every = rows * ranks
        shape: tuple[int, ...] = ()
        for name, field in self._batches.making.described().items():
            if field.shape is None:
                continue
            shape = (every, *field.shape)
            try:
                self._sharding.shard_shape(shape)
            except (IndexError, ValueError) as error:
                why = str(error).splitlines()[0]
                raise UsageError(f"the sharding does not fit {words}, for {name!r} {shape}: {cure} ({why})") from error
        if ranks > 1:
            placed = self._sharding.addressable_devices_indices_map(shape)
            here = sum(len(range(*part)) for part in {indices[0].indices(every) for indices in placed.values()})
            if here != rows:
                raise UsageError(
                    f"this process has {here} of the {every} rows that {ranks} ranks read, not {rows}: the processes "
                    "must share the sharding's data axis as the ranks share an epoch; pass ranks= of "
                    "that axis"
                )

    def _global(self, array: NDArray[Any]) -> Any:
        """The rows of all ranks as one array, of which this process has its own."""
        ranks = self._batches.next_start().split.world_size
        shape = (len(array) * ranks, *array.shape[1:])
        return self._jax.make_array_from_process_local_data(self._sharding, array, shape)


def _check_processes(batches: Epochs) -> None:
    """Raise UsageError where batches of several processes may have different shapes."""
    split = batches.next_start().split
    if split.last == "keep" and not split.drop_last:
        raise UsageError(
            'last="keep" gives some ranks fewer samples in the last step, and the sharding is over several '
            f'processes: pass Ranks(..., last="pad"), or {_CURE}'
        )
    padded = [name for name, field in batches.making.described().items() if field.kind == "ragged" and not field.listed]
    if padded and batches.settings.ragged == "pad":
        raise UsageError(
            f'ragged="pad" pads {padded[0]!r} to the longest of each batch, which differs between processes: pass a '
            "number, the length to pad to"
        )
