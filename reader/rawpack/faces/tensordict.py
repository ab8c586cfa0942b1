"""Batches of the face for torch as objects of tensordict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rawpack.epoch.feed import Feed
from rawpack.faces.fields import Form, imported
from rawpack.faces.torch import TorchBatches, torch_batches
from rawpack.store.stores import INDEX
from rawpack.workers.besides import EncodedFiles


def tensordict_batches(batches: Feed, device: Any, channels: str, dtype: Any, depth: int) -> TorchBatches:
    """What `Batches.tensordict` returns, with its arguments."""
    return torch_batches(batches, device, channels, dtype, depth, form=_form())


def _form() -> Form:
    tensordict = imported("tensordict", "batches.tensordict() needs tensordict and PyTorch: pip install tensordict")

    def form(batch: Mapping[str, Any]) -> Any:
        values = {
            name: tensordict.NonTensorStack(*one) if isinstance(one, list | EncodedFiles) else one
            for name, one in batch.items()
        }
        return tensordict.TensorDict(values, [len(batch[INDEX])])

    return form
