"""Trains from a loader of torchdata around batches, and saves a checkpoint after each step.

STORE JOURNAL CHECKPOINT EPOCHS LOADER [STEPS]: with the latter, it ends without warning after so many steps.
"""

import os
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torchdata.nodes import IterableWrapper, Loader, ParallelMapper, Prefetcher
from torchdata.stateful_dataloader import StatefulDataLoader
from trained import Journal

from rawpack import Reader
from rawpack.transforms import Normalize, ToCHW

store, journal_folder, path, epochs, kind, *kill_after = sys.argv[1:]
journal, checkpoint = Journal(journal_folder, 0), Path(path)


def weighted(batch):
    """What is done in threads of torchdata."""
    return batch | {"image": batch["image"] * 1.0}


# The nodes have threads of their own.
transform = [Normalize((0.4,) * 3, (0.25,) * 3), ToCHW()]
batches = Reader(store).batches(4, shuffle=True, workers=0, fields=["image", "label", "number"], transform=transform)
tensors = batches.torch()
loaders = {
    "stateful": lambda: StatefulDataLoader(batches, batch_size=None, num_workers=0),
    "nodes": lambda: Loader(IterableWrapper(tensors)),
    "prefetcher": lambda: Loader(Prefetcher(IterableWrapper(tensors), prefetch_factor=3)),
    "mapper": lambda: Loader(ParallelMapper(IterableWrapper(tensors), weighted, num_workers=2, snapshot_frequency=3)),
}
loader = loaders[kind]()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), 0.003)
first, steps = 0, 0
if checkpoint.exists():
    saved = torch.load(checkpoint)
    first = saved["epoch"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])

for epoch in range(first, int(epochs)):
    losses = []
    for batch in loader:
        loss = cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        journal.trained(epoch, batch["number"])
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save(states | {"epoch": epoch}, checkpoint)
        steps += 1
        if kill_after and steps == int(kill_after[0]):
            os._exit(7)
    print(sum(losses) / len(losses))
