"""Trains with DistributedDataParallel from torch's DataLoader, with two workers.

STORE JOURNAL EPOCHS "batches" or "dataset": what the DataLoader is around.
"""

import sys

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset
from trained import Journal

from rawpack import Reader
from rawpack.transforms import Normalize, ToCHW

store, journal_folder, epochs, kind = sys.argv[1:]
distributed.init_process_group("gloo")
journal = Journal(journal_folder, distributed.get_rank())
options = {"shuffle": True, "ranks": "auto", "workers": 0, "fields": ["image", "label", "number"]}
transform = [Normalize((0.4,) * 3, (0.25,) * 3), ToCHW()]


class Photos(IterableDataset):
    """Opens the store in each worker of the DataLoader."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        batches = Reader(store).batches(4, transform=transform, **options)
        batches.set_epoch(self.epoch)
        return iter(batches)


dataset = Photos() if kind == "dataset" else Reader(store).batches(4, transform=transform, **options)
loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), 0.003)
for epoch in range(int(epochs)):
    dataset.set_epoch(epoch)
    losses = []
    for batch in loader:
        loss = cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        journal.trained(epoch, batch["number"])
    print(sum(losses) / len(losses))
distributed.destroy_process_group()
