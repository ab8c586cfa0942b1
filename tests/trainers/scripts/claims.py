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


def train(loader):
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
    found.update(batches=batches, steps=steps, weight=weight)


def refusal(ask):
    """The words of the error, where there is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ask()
        except UsageError as error:
            return str(error)
    return "nothing was refused"


marked = reader.batches(4, **ranks, **options).accelerate(accelerator)
found["untouched"] = accelerator.prepare(marked) is marked
plain = reader.batches(4, **ranks, **options)
found["unprepared"] = [refusal(lambda one=one: accelerator.prepare(one)) for one in (plain.torch(), plain)]
found["read"] = [marked.dataset is reader, marked.batch_size, marked.drop_last, marked.num_workers, marked.sampler]
train(marked)

# Accelerate knows the ranks; who reads beside it must say them.
own = reader.batches(4, **options).accelerate(accelerator)
found["own"] = [batch["number"][batch["valid"]].tolist() for batch in own]
found["alone"] = refusal(lambda: next(iter(reader.batches(4, **options))))
found["refused"] = [
    refusal(lambda given=given: reader.batches(4, ranks=given, **options).accelerate(accelerator))
    for given in ((0, 1), (1 - accelerator.process_index, 2))
]

(folder / f"found-{accelerator.process_index}.json").write_text(json.dumps(found))
accelerator.end_training()

if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()  # gloo's threads may abort a process that ends with them
