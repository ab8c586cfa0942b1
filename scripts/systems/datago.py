"""datago: a folder of JPEG files, read and decoded by its threads; whole images come one by one."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datago import DatagoClient, initialize_logging

from systems.dataloader import stacked
from systems.images import Source
from systems.job import Job
from systems.recipe import transform

NAME = "datago"
_BUFFERED = 256
"""Samples that are read ahead, as in its own benchmark."""
initialize_logging("error")


def pack(source: Source, folder: Path, job: Job) -> None:
    for i, data in source.samples():
        (folder / f"{i:07}.jpg").write_bytes(data)


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    """It resizes, but crops no center and draws no crops: that is done here, where its images come."""
    os.environ["DATAGO_MAX_TASKS"] = str(max(1, job.workers))
    settings = {
        "source_type": "file",
        "source_config": {"root_path": str(folder), "random_sampling": True, "rank": 0, "world_size": 1},
        "prefetch_buffer_size": _BUFFERED,
        "samples_buffer_size": _BUFFERED,
        "limit": len(list(folder.glob("*.jpg"))),
    }
    client, margin = DatagoClient(json.dumps(settings)), (job.shape[0] - job.side) // 2

    def sample(found: dict[str, Any]) -> tuple[Any, int]:
        image = np.asarray(found["image"])
        number = int(Path(found["id"].strip('"')).stem)
        if job.floats:
            import torch

            return transform(job.side)(torch.from_numpy(image).permute(2, 0, 1)), number
        return image[margin : margin + job.side, margin : margin + job.side], number

    def epoch(number: int) -> Iterator[Any]:
        client.start()
        try:
            samples = iter(client.get_sample_auto_convert, None)
            while batch := [sample(found) for found in itertools.islice(samples, job.batch)]:
                yield stacked(batch)
        finally:
            client.stop()

    return epoch
