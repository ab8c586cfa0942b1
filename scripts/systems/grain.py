"""Grain over one ArrayRecord file, with worker processes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grain.python as grain
import numpy as np
from absl import flags
from array_record.python.array_record_module import ArrayRecordWriter

from systems.images import Source
from systems.job import Job
from systems.recipe import delivered_by_opencv

NAME = "grain"
# Its worker processes read absl's flags, which must be parsed before.
flags.FLAGS(["compare"], known_only=True)


def pack(source: Source, folder: Path, job: Job) -> None:
    writer = ArrayRecordWriter(str(folder / "images.array_record"), "group_size:1,uncompressed")
    for i, sample in source.samples():
        writer.write(struct.pack("<q", i) + (sample.tobytes() if job.kind == "raw" else sample))
    writer.close()


class Decode(grain.MapTransform):  # type: ignore[misc]
    """Turns a record into an image and its number."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def map(self, record: bytes) -> Any:
        number = np.int64(struct.unpack_from("<q", record)[0])
        if self.job.kind == "raw":
            stored: Any = np.frombuffer(record, np.uint8, offset=8).reshape(self.job.shape)
        else:
            stored = record[8:]
        return delivered_by_opencv(stored, self.job), number


def loader(folder: Path, job: Job, seed: int, epochs: int | None) -> Any:
    records = grain.ArrayRecordDataSource(str(folder / "images.array_record"))
    sampler = grain.IndexSampler(
        num_records=len(records), shuffle=True, seed=seed, num_epochs=epochs, shard_options=grain.NoSharding()
    )
    return grain.DataLoader(
        data_source=records,
        sampler=sampler,
        worker_count=job.workers,
        worker_buffer_size=2,
        # Without threads in the workers, as Grain's documentation advises for records in memory.
        read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
        operations=[Decode(job), grain.Batch(job.batch)],
    )


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    if not job.endless:
        return lambda number: loader(folder, job, number, 1)
    # One endless iterator, as in Grain's documentation, so that workers stay.
    batches = iter(loader(folder, job, 1, None))
    count = len(grain.ArrayRecordDataSource(str(folder / "images.array_record"))) // job.batch
    return lambda number: (next(batches) for _ in range(count))


def resume(folder: Path, job: Job, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    batches = iter(loader(folder, job, 1, 1))
    if state is not None:
        batches.set_state(state)
    return batches, batches.get_state
