"""Trains with DistributedDataParallel and evaluates after each epoch: STORE JOURNAL EPOCHS [drop_last]."""

import json
import sys

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from trained import Journal

from rawpack import Ranks, Reader
from rawpack.transforms import Normalize

store, journal_folder, epochs, *flags = sys.argv[1:]
distributed.init_process_group("gloo")
rank = distributed.get_rank()
journal, evaluated = Journal(journal_folder, rank), Journal(f"{journal_folder}/evaluated", rank)

fields = ["image", "label", "number"]
options = {"ranks": "auto", "fields": fields, "transform": [Normalize((0.4,) * 3, (0.25,) * 3)]}
batches = Reader(store).batches(4, shuffle=True, seed=5, drop_last="drop_last" in flags, workers=1, **options)
loader = batches.torch(as_tuple=fields)
options["ranks"] = Ranks("auto", last="keep")
evaluation = Reader(store).batches(4, workers=0, **options).torch(as_tuple=fields)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), 0.003)
losses = []
for epoch in range(int(epochs)):
    model.train()
    total, steps = torch.zeros(1), 0
    for images, labels, numbers in loader:
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        journal.trained(epoch, numbers)
        total, steps = total + loss.detach(), steps + 1
    losses.append(total.item() / steps)

    model.eval()
    # Not `model`: it may send buffers from rank to rank, for which a rank without a batch would be missing.
    counts, sizes = torch.zeros(2, dtype=torch.int64), []
    with torch.no_grad():
        for images, labels, numbers in evaluation:
            right = model.module(images).argmax(1) == labels
            counts += torch.tensor([right.sum(), len(right)])
            evaluated.trained(epoch, numbers)
            sizes.append(len(right))
    distributed.all_reduce(counts)

print(json.dumps({"losses": losses, "counts": counts.tolist(), "evaluated": sizes}))
distributed.destroy_process_group()
