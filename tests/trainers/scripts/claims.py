"""What docs/how-to/train-with-accelerate.md says of Accelerate, tried out: claims.py FOLDER, in two processes."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

from rawpack import Reader

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
from store_loader import StoreLoader  # noqa: E402

accelerator = Accelerator(gradient_accumulation_steps=2)
ranks = {"ranks": (accelerator.process_index, accelerator.num_processes)}
reader, found = Reader(folder / "store"), {}
options = {"shuffle": True, "seed": 0, "fields": ["number"], "workers": 0}


def train(kind, loader):
    """A weight that learns to be 0: which batches it saw, how many steps it made, what it is in the end."""
    model = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.step, batches, steps = 0, [], 0
    for _ in range(3):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward((model(batch["number"][:, None].double() / 36) ** 2).mean())
                optimizer.step()
                optimizer.zero_grad()
            steps += accelerator.sync_gradients
            batches.append(batch["number"].tolist())
    weight = next(model.parameters()).item()
    found.update({f"{kind}_batches": batches, f"{kind}_steps": steps, f"{kind}_weight": weight})


marked, plain = StoreLoader(accelerator, reader, 4, **options), reader.batches(4, **ranks, **options).torch()
found["untouched"] = accelerator.prepare(marked, plain) == (marked, plain)
train("marked", marked)
train("plain", plain)

counts, found["kept_numbers"] = torch.zeros(2, dtype=torch.long), []
for batch in StoreLoader(accelerator, Reader(folder / "odd"), 4, last="keep", fields=["number"], workers=0):
    found["kept_numbers"] += batch["number"].tolist()
    counts += torch.stack([batch["number"].sum(), torch.tensor(len(batch["number"]))])
found["kept"] = accelerator.reduce(counts, "sum").tolist()

again = torch.utils.data.DataLoader(reader.batches(4, **ranks, **options), batch_size=None)
found["dispatched"] = []
for batch in accelerator.prepare(again):
    found["dispatched"] += batch["number"].tolist()

(folder / f"found-{accelerator.process_index}.json").write_text(json.dumps(found))
accelerator.end_training()

if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()  # gloo's threads may abort a process that ends with them
