"""Evaluates in several ranks, with the field `valid`: by plain torch, by Accelerate and by Lightning, in turn.

STORE JOURNAL SIZE: each way writes what it counted to a journal of its own, and rank 0 prints the sums.
"""

import json
import os
import sys
from contextlib import suppress
from datetime import timedelta

import lightning
import torch
from accelerate import Accelerator
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from trained import Journal

from rawpack import Reader, UsageError

store, folder, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, world = distributed.get_rank(), distributed.get_world_size()
batches = Reader(store).batches(size, fields=["number"], workers=0, ranks="auto")
steps = {}
if not rank:  # alone in a group, as who evaluates or saves on one rank only
    with suppress(UsageError):
        next(iter(Reader(store).batches(size, workers=0)))
        raise AssertionError("the rank was guessed")


def count(way, batch):
    """Write down what counts, and return its sum and number."""
    numbers = batch["number"][batch["valid"]]
    Journal(f"{folder}/{way}", rank).trained(0, numbers)
    steps[way] = steps.get(way, 0) + 1
    return torch.tensor([int(numbers.sum()), len(numbers)])


class Doubles(torch.nn.Module):
    """With BatchNorm, whose buffers DistributedDataParallel sends to all ranks in each call."""

    def __init__(self):
        super().__init__()
        self.norm, self.weight = torch.nn.BatchNorm1d(1), torch.nn.Parameter(torch.ones(1))

    def forward(self, numbers):
        return self.norm(numbers[:, None].float()) * self.weight


class Evaluation(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.counts = Doubles(), torch.zeros(2, dtype=torch.int64)

    def validation_step(self, batch, batch_idx):
        self.net(batch["number"])
        counted = count("lightning", batch)
        self.counts += counted
        self.log("counted", counted[1].float(), reduce_fx="sum", sync_dist=True, sync_dist_group=None)

    def configure_optimizers(self):
        return None


found = {}

# Plain torch: each forward pass waits for all ranks.
net = DistributedDataParallel(Doubles()).eval()
counts = torch.zeros(2, dtype=torch.int64)
for batch in batches.torch():
    with torch.no_grad():
        net(batch["number"])
    distributed.barrier()
    counts += count("torch", batch)
distributed.all_reduce(counts)
found["torch"] = counts.tolist()

# Accelerate: gather waits for all ranks, and wants equal shapes.
accelerator = Accelerator(cpu=True)
kept = []
batches.set_epoch(0)
for batch in batches.accelerate(accelerator):
    count("accelerate", batch)
    numbers, valid = accelerator.gather((batch["number"], batch["valid"]))
    kept += numbers[valid].tolist()
found["accelerate"] = [sum(kept), len(kept)]

# Lightning: validation_step logs with sync_dist, which waits for all ranks.
batches.set_epoch(0)
options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(devices=world, strategy="ddp" if world > 1 else "auto", **options)
model = Evaluation()
trainer.validate(model, batches.torch(), verbose=False)
counts = model.counts.clone()
distributed.all_reduce(counts)
found["lightning"] = counts.tolist()
found["logged"] = float(trainer.callback_metrics["counted"])
print(json.dumps({"found": found, "steps": steps}))
distributed.destroy_process_group()
os._exit(0)  # gloo's threads may abort a process that ends with them
