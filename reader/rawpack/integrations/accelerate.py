"""Batches for Accelerate: tensors that also say which batch is the last one of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rawpack.epoch.epochs import Epochs
from rawpack.errors import UsageError
from rawpack.integrations.adapter import Form, imported
from rawpack.integrations.torch import TorchBatches, torch_batches
from rawpack.integrations.versions import hook, warn_if_untested


def accelerated_batches(feed: Epochs, accelerator: Any, **options: Any) -> AcceleratedBatches:
    """What `Batches.accelerate` returns. options: of `Batches.torch`."""
    for name in ("process_index", "num_processes", "device"):
        if not hasattr(accelerator, name):
            raise UsageError(f"accelerator={accelerator!r} must be an Accelerator of accelerate: it has no {name}")
    ranks = int(accelerator.process_index), int(accelerator.num_processes)
    return state_keeping_batches(feed, accelerator.device, ranks, "Accelerate", **options)


def state_keeping_batches(
    feed: Epochs,
    device: Any,
    ranks: tuple[int, int],
    trainer: str,
    *,
    kind: type[AcceleratedBatches] | None = None,
    named: Form | None = None,
    **options: Any,
) -> AcceleratedBatches:
    """Tensors for a trainer that is built on Accelerate.

    ranks: the process and the number of processes, as the trainer counts them: of the batches too, where `ranks=` was
    left out. Raises UsageError where those of the batches are others. kind: of what is returned. named: makes what the
    trainer gets of a batch.
    """
    module = imported("accelerate.data_loader", "this needs Accelerate and PyTorch: pip install accelerate")
    state = imported("accelerate.state", "this needs Accelerate and PyTorch: pip install accelerate")
    warn_if_untested("accelerate")
    for name in ("begin", "end"):
        hook("accelerate", module.DataLoaderStateMixin, name)
    for name in ("_add_dataloader", "_remove_dataloader"):
        hook("accelerate", state.GradientState, name, "dataloader")
    kind = kind or AcceleratedBatches
    mixed = type(kind.__name__, (kind, module.DataLoaderStateMixin), {})
    made: AcceleratedBatches = torch_batches(feed.with_ranks(*ranks), device, **options, kind=mixed)  # type: ignore[assignment]
    made._follow(state.GradientState(), ranks, trainer, named)
    return made


class AcceleratedBatches(TorchBatches):
    """Batches as tensors, which tell Accelerate which one is the last of an epoch, and how many of its samples are no
    repetitions: for `accumulate`, `gather_for_metrics`, and `register_for_checkpointing`.

    What `Batches.accelerate` returns derives from this class and Accelerate's `DataLoaderStateMixin`.
    """

    _preparable = True
    end_of_dataloader: bool
    remainder: int
    gradient_state: Any

    def _follow(self, gradient_state: Any, ranks: tuple[int, int], trainer: str, named: Form | None) -> None:
        self.gradient_state, self._ranks, self._trainer, self._named = gradient_state, ranks, trainer, named
        self._drop_last = self.drop_last
        self._check_ranks()

    @property
    def total_batch_size(self) -> int:
        """Samples in a step of all ranks."""
        split = self._feed.next_start().split
        return split.batch_size * split.world_size

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # a generator, which ends what it has begun
        self._check_ranks()
        source = super().__iter__()
        self.begin()  # type: ignore[attr-defined] # of DataLoaderStateMixin
        try:
            for batch in source:
                start, position = self._reached()
                if not self._drop_last:
                    # Accelerate counts from the beginning of an epoch, also where it was resumed with other ranks.
                    self.remainder = (start.split.length - start.position) % self.total_batch_size
                self.end_of_dataloader = not start.split.count(position)
                yield batch if self._named is None else self._named(batch)
        finally:
            self.end()  # type: ignore[attr-defined] # of DataLoaderStateMixin

    def _check_ranks(self) -> None:
        split = self._feed.next_start().split
        if (split.rank, split.world_size) == self._ranks:
            return
        rank, processes = self._ranks
        if processes == 1:
            cure = f"{self._trainer} was not started for several processes (on CPUs: ACCELERATE_USE_CPU=true)"
        else:
            cure = 'pass ranks="auto" to batches()'
        raise UsageError(
            f"these batches are those of rank {split.rank} of {split.world_size}, but for {self._trainer} this is "
            f"process {rank} of {processes}: {cure}, or else samples are read twice or never"
        )
