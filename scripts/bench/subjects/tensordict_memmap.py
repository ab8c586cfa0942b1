"""tensordict's memory-mapped tensors, indexed by whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import data
from contract import Epoch, Pixels, Settings, consume


class TensordictMemmap:
    """One index operation a batch, in this process."""

    needs: tuple[str, ...] = ("torch", "tensordict")

    def prepare(self, settings: Settings) -> None:
        import torch
        from tensordict import TensorDict

        data.make_array(settings)
        folder = _folder(settings)
        if not folder.exists():
            images = torch.from_numpy(np.load(data.array_path(settings)))
            TensorDict({"image": images}, batch_size=[len(images)]).memmap(str(folder))

    def open(self, settings: Settings) -> None:
        from tensordict import TensorDict

        self._settings = settings
        self._rows = TensorDict.load_memmap(str(_folder(settings)))

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches(), self._settings.consumer)

    def _batches(self) -> Iterator[Pixels]:
        import torch

        for rows in torch.randperm(len(self._rows)).split(self._settings.batch):
            images: Pixels = self._rows[rows]["image"].numpy()
            yield images


def _folder(settings: Settings) -> Path:
    return data.array_path(settings).with_suffix(".tensordict")
