"""Batches of every rank of torch's process groups, with one seed and with several: STORE FOLDER."""

import json
import sys
from pathlib import Path

from torch import distributed

from rawpack import Reader, UsageError

store, folder = sys.argv[1], Path(sys.argv[2])
reader, found = Reader(store), {}


def read(name, **options):
    batches = reader.batches(4, shuffle=True, ranks="auto", workers=0, fields=["number"], **options)
    try:
        found[name] = [number for batch in batches for number in batch["number"].tolist()]
    except UsageError as error:
        found[name] = str(error)
    found.setdefault("lines", []).append(batches.stats()["ranks"])


distributed.init_process_group("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()
read("one seed", seed=7)
if rank == 0:  # which the other ranks never ask for
    next(iter(reader.batches(5, shuffle=True, ranks="auto", workers=0)))
distributed.new_group([0, 1])
read("several seeds", seed=rank)
distributed.barrier()
distributed.destroy_process_group()

distributed.init_process_group("gloo", init_method=(folder / "group").as_uri(), rank=rank, world_size=world)
read("another group", seed=8)
read("several seeds in a file", seed=rank)
distributed.barrier()
distributed.destroy_process_group()
(folder / f"found-{rank}.json").write_text(json.dumps(found))
