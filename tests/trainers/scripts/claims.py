"""What docs/how-to/train-with-accelerate.md says of Accelerate, tried out: claims.py FOLDER, in two processes."""

import json
import sys
import warnings
from pathlib import Path

import torch
from accelerate import Accelerator

from rawpack import Reader, UsageError

folder = Path(sys.argv[1])
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


marked = reader.batches(4, **ranks, **options).accelerate(accelerator)
plain = reader.batches(4, **ranks, **options).torch()
found["untouched"], found["unprepared"] = accelerator.prepare(marked) is marked, []
for unmarked in (plain, reader.batches(4, **ranks, **options)):
    try:
        accelerator.prepare(unmarked)
    except UsageError as error:
        found["unprepared"].append(str(error))
found["read"] = [marked.dataset is reader, marked.batch_size, marked.drop_last, marked.num_workers, marked.sampler]
try:
    next(iter(accelerator.skip_first_batches(marked, 1)))
except (UsageError, ValueError) as error:  # the latter is PyTorch's, of options that Accelerate gives it
    found["skipped"] = str(error)
train("marked", marked)
train("plain", plain)

found["refused"] = []
# Accelerate knows the ranks; who reads beside it must say them.
own = reader.batches(4, **options).accelerate(accelerator)
found["own"] = [batch["number"][batch["valid"]].tolist() for batch in own]
try:
    next(iter(reader.batches(4, **options)))
except UsageError as error:
    found["alone"] = str(error)

for given in ((0, 1), (1 - accelerator.process_index, 2)):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            reader.batches(4, ranks=given, **options).accelerate(accelerator)
        except UsageError as error:
            found["refused"].append(str(error))

(folder / f"found-{accelerator.process_index}.json").write_text(json.dumps(found))
accelerator.end_training()

if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()  # gloo's threads may abort a process that ends with them
