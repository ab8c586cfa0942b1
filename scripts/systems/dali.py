"""NVIDIA DALI on the CPU: files for JPEG, tar shards with an index for raw; shuffled by a buffer."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from systems.images import Source
from systems.job import Job
from systems.recipe import LEVELS

NAME = "nvidia-dali-cuda130"
_SHARD, _BUFFER = 256, 1024
AREA, ASPECT = [0.08, 1.0], [3 / 4, 4 / 3]


def pack(source: Source, folder: Path, job: Job) -> None:
    if job.kind == "jpeg":
        with (folder / "list.txt").open("w") as listing:
            for i, data in source.samples():
                (folder / f"{i:07}.jpg").write_bytes(data)
                listing.write(f"{i:07}.jpg {i}\n")
        return
    tar, lines = None, list[str]()
    for i, image in source.samples():
        if i % _SHARD == 0:
            close(tar, lines)
            tar, lines = tarfile.open(folder / f"{i // _SHARD:05}.tar", "w"), []  # noqa: SIM115, closed by close()
        assert tar is not None
        line = []
        for suffix, data in (("bin", image.tobytes()), ("cls", np.int32(i).tobytes())):
            member = tarfile.TarInfo(f"{i:07}.{suffix}")
            member.size = len(data)
            line.append(f"{suffix} {tar.offset + tarfile.BLOCKSIZE} {len(data)} {member.name}")
            tar.addfile(member, io.BytesIO(data))
        lines.append(" ".join(line))
    close(tar, lines)


def close(tar: tarfile.TarFile | None, lines: list[str]) -> None:
    """Finish a shard, and write the index that DALI's own tool would make for it."""
    if tar is not None:
        tar.close()
        Path(str(tar.name)).with_suffix(".idx").write_text("\n".join([f"v1.2 {len(lines)}", *lines, ""]))


def steps(folder: Path, job: Job) -> Any:
    if job.kind == "raw":
        shards = sorted(map(str, folder.glob("*.tar")))
        image, number = fn.readers.webdataset(
            paths=shards,
            index_paths=[shard.removesuffix("tar") + "idx" for shard in shards],
            ext=["bin", "cls"],
            dtypes=[types.UINT8, types.INT32],
            random_shuffle=True,
            initial_fill=_BUFFER,
            name="reader",
        )
        image = fn.reshape(image, shape=list(job.shape), layout="HWC")
        if not job.floats:
            return image, number
        image = fn.random_resized_crop(image, size=job.side, random_area=AREA, random_aspect_ratio=ASPECT)
        return flipped_floats(image), number
    data, number = fn.readers.file(
        file_root=str(folder),
        file_list=str(folder / "list.txt"),
        random_shuffle=True,
        initial_fill=_BUFFER,
        name="reader",
    )
    if job.crop == "random":
        image = fn.decoders.image_random_crop(
            data, device="cpu", output_type=types.RGB, random_area=AREA, random_aspect_ratio=ASPECT
        )
        image = fn.resize(image, resize_x=job.side, resize_y=job.side)
        if job.floats:
            return flipped_floats(image), number
        return fn.flip(image, horizontal=fn.random.coin_flip()), number
    # Decoding and cropping in one operator, as DALI's documentation advises.
    return fn.decoders.image_crop(
        data, device="cpu", output_type=types.RGB, crop=(job.side, job.side), crop_pos_x=0.5, crop_pos_y=0.5,
        rounding="truncate",
    ), number  # fmt: skip


def flipped_floats(image: Any) -> Any:
    """Flipped by chance, and normalized."""
    mean, std = map(list, LEVELS)
    mirror = fn.random.coin_flip()
    return fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std, mirror=mirror)


def open_pipeline(folder: Path, job: Job, **options: Any) -> Any:
    pipeline = pipeline_def(steps)(
        folder, job, batch_size=job.batch, num_threads=job.workers, device_id=None, prefetch_queue_depth=2, **options
    )
    pipeline.build()
    return pipeline


def batches_of(pipeline: Any, batches: int) -> Iterator[tuple[Any, Any]]:
    for _ in range(batches):
        image, number = pipeline.run()
        yield image.as_array(), number.as_array().reshape(-1)


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    pipeline = open_pipeline(folder, job)
    count = pipeline.epoch_size("reader") // job.batch
    return lambda number: batches_of(pipeline, count)


def resume(folder: Path, job: Job, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    pipeline = open_pipeline(folder, job, enable_checkpointing=True, checkpoint=state)
    left = pipeline.epoch_size("reader") // job.batch - (0 if state is None else job.take)
    return batches_of(pipeline, left), pipeline.checkpoint
