"""Runs a training script, writes down which samples it is handed, and may kill it.

    watched.py SCRIPT FOLDER LIMIT

Batches in random order are for training: they are in FOLDER/train; others are in FOLDER/eval. The process ends at once,
without any cleanup, when the script asks for training batch LIMIT + 1: it has then trained on all that it was handed.
"""

import os
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from trained import Journal

from rawpack.integrations.torch import TorchBatches

script, folder, limit = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
journals = {}
for kind in ("train", "eval"):
    (folder / kind).mkdir(parents=True, exist_ok=True)
    journals[kind] = Journal(folder / kind, int(os.environ.get("RANK", "0")))
handed = 0
plain = TorchBatches.__iter__


def watched(batches: TorchBatches) -> Iterator[Any]:
    global handed
    kind = "eval" if "sequential" in repr(batches) else "train"
    source = plain(batches)
    while True:
        if kind == "train" and handed == limit:
            time.sleep(1)  # the other process may still be in the same step
            os._exit(0)
        batch = next(source, None)
        if batch is None:
            return
        handed += kind == "train"
        state = batches.state_dict()
        journals[kind].trained(state["epoch"] - (state["position"] == 0), batch["index"])
        yield batch


TorchBatches.__iter__ = watched  # type: ignore[assignment,method-assign]
sys.argv = [script]
runpy.run_path(script, run_name="__main__")

if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()  # gloo's threads may abort a process that ends with them
