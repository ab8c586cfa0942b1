"""Batches of the face for torch as objects of tensordict."""

from __future__ import annotations

from typing import Any

from rawpack.batching.encoded import EncodedFiles
from rawpack.batching.feed import Feed
from rawpack.batching.iterator import Batch
from rawpack.errors import MissingExtraError
from rawpack.faces.placed import Form
from rawpack.faces.torch import TorchBatches, torch_batches
from rawpack.store.stores import INDEX


def tensordict_batches(batches: Feed, device: Any, channels: str, dtype: Any, depth: int) -> TorchBatches:
    """What `Batches.tensordict` returns, with its arguments."""
    return torch_batches(batches, device, channels, dtype, depth, form=_form())


def _form() -> Form:
    try:
        from tensordict import NonTensorStack, TensorDict
    except ImportError:
        raise MissingExtraError("batches.tensordict() needs tensordict and PyTorch: pip install tensordict") from None

    def form(batch: Batch) -> Any:
        values = {
            name: NonTensorStack(*one) if isinstance(one, list | EncodedFiles) else one for name, one in batch.items()
        }
        return TensorDict(values, [len(batch[INDEX])])

    return form
