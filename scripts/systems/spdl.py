"""SPDL: threads of a pipeline over JPEG files; decoding, cropping and scaling by the system's FFmpeg."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from systems.images import Source, random_box
from systems.job import Job
from systems.recipe import normalized

NAME = "spdl"


def pack(source: Source, folder: Path, job: Job) -> None:
    for i, data in source.samples():
        (folder / f"{i:07}.jpg").write_bytes(data)


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    files = sorted(map(str, folder.glob("*.jpg")))
    side, margin = job.side, (job.shape[0] - job.side) // 2
    kind = np.float32 if job.floats else np.uint8
    centre = f"format=pix_fmts=rgb24,crop={side}:{side}:{margin}:{margin}:exact=1"

    def load(rows: list[int]) -> Any:
        if job.crop == "centre":
            options: Any = {"width": None, "height": None, "pix_fmt": None, "filter_desc": centre}
            frames = spdl.io.load_image_batch([files[row] for row in rows], **options)
            return spdl.io.to_numpy(frames), np.array(rows)
        images = np.empty((len(rows), 3, side, side) if job.floats else (len(rows), side, side, 3), kind)
        for k, row in enumerate(rows):
            top, left, height, width = random_box(*job.shape[:2])
            box = f"format=pix_fmts=rgb24,crop={width}:{height}:{left}:{top}:exact=1,scale={side}:{side}:flags=area"
            if np.random.random() < 0.5:
                box += ",hflip"
            buffer = spdl.io.load_image(files[row], filter_desc=box)
            image = spdl.io.to_numpy(buffer)
            images[k] = normalized(image) if job.floats else image
        return images, np.array(rows)

    def epoch(number: int) -> Iterator[Any]:
        order = np.random.default_rng(number).permutation(len(files)).tolist()
        runs = [order[k : k + job.batch] for k in range(0, len(order), job.batch)]
        builder = PipelineBuilder().add_source(runs).pipe(load, concurrency=job.workers, output_order="completion")
        pipeline = builder.add_sink(3).build(num_threads=job.workers)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)

    return epoch
