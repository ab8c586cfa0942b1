"""Batches of every rank of torch's process group, with one seed and with several: STORE FOLDER."""

import json
import sys
from pathlib import Path

from torch import distributed

from rawpack import Reader, UsageError

store, folder = sys.argv[1], Path(sys.argv[2])
reader, found = Reader(store), {}
distributed.init_process_group("gloo")
rank = distributed.get_rank()
for name, seed in (("one seed", 7), ("several seeds", rank)):
    batches = reader.batches(4, shuffle=True, ranks="auto", workers=0, fields=["number"], seed=seed)
    try:
        found[name] = [number for batch in batches for number in batch["number"].tolist()]
    except UsageError as error:
        found[name] = str(error)
    if rank == 0:  # which the other ranks never ask for
        next(iter(reader.batches(5, shuffle=True, ranks="auto", workers=0)))
distributed.barrier()
distributed.destroy_process_group()
(folder / f"found-{rank}.json").write_text(json.dumps(found))
