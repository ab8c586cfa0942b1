"""Trains with gradient accumulation, alone or with DDP, saves a checkpoint after each optimizer step, and resumes.

STORE JOURNAL CHECKPOINT EPOCHS [--kill-after STEPS] [--loader KIND]: each rank kills itself after so many optimizer
steps, in the middle of the next accumulation. KIND is a loader of torchdata, "stateful" or "nodes".
"""

import argparse
import os
import signal
from pathlib import Path

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from trained import Journal

from rawpack import Reader
from rawpack.transforms import Normalize, RandomHorizontalFlip

ACCUMULATE = 3

parser = argparse.ArgumentParser()
for name in ("store", "journal", "checkpoint"):
    parser.add_argument(name, type=Path)
parser.add_argument("epochs", type=int)
parser.add_argument("--kill-after", type=int)
parser.add_argument("--loader")
asked = parser.parse_args()

ranks = int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    distributed.init_process_group("gloo")
rank = distributed.get_rank() if ranks > 1 else 0
journal, seen = Journal(asked.journal, rank), Journal(asked.journal / "seen", rank)

fields = ["image", "label", "number"]
batches = Reader(asked.store).batches(
    2,
    shuffle=True,
    workers=0 if asked.loader else 2,
    fields=fields,
    transform=[RandomHorizontalFlip(), Normalize((0.4,) * 3, (0.25,) * 3)],
    ranks="auto",
)
if asked.loader == "stateful":
    from torchdata.stateful_dataloader import StatefulDataLoader

    tensors_of = lambda batch: [torch.as_tensor(batch[name]) for name in fields]  # noqa: E731
    loader = StatefulDataLoader(batches, batch_size=None, collate_fn=tensors_of)
elif asked.loader == "nodes":
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper

    source = IterableWrapper(batches.torch(as_tuple=fields))
    loader = Loader(ParallelMapper(source, list, num_workers=2, snapshot_frequency=3))
else:
    loader = batches.torch(depth=2, as_tuple=fields)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
trained = DistributedDataParallel(model) if ranks > 1 else model
optimizer = torch.optim.Adam(model.parameters(), 0.003)
first = 0
if asked.checkpoint.exists():
    checkpoint = torch.load(asked.checkpoint)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    loader.load_state_dict(checkpoint["loader"])
    first = checkpoint["epoch"]

steps, accumulated = 0, []


def step(epoch):
    """Let the accumulated gradients count, and save all there is to resume from."""
    global steps
    optimizer.step()
    optimizer.zero_grad()
    journal.trained(epoch, accumulated)
    accumulated.clear()
    steps += 1
    if rank == 0:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save(states | {"epoch": epoch}, asked.checkpoint.with_suffix(".new"))
        asked.checkpoint.with_suffix(".new").replace(asked.checkpoint)


for epoch in range(first, asked.epochs):
    losses = []
    for number, (images, labels, numbers) in enumerate(loader, 1):
        loss = cross_entropy(trained(images), labels)
        (loss / ACCUMULATE).backward()
        losses.append(loss.item())
        accumulated += numbers.tolist()
        seen.trained(epoch, numbers)
        if steps == asked.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if number % ACCUMULATE == 0:
            step(epoch)
    if accumulated:
        step(epoch)
    print(sum(losses) / len(losses))
if distributed.is_initialized():
    distributed.destroy_process_group()
