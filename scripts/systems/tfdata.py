"""tf.data: TFRecord shards, interleaved, then a shuffle buffer."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from systems.images import Source
from systems.job import Job
from systems.recipe import LEVELS

NAME = "tensorflow-cpu"
_SHARDS, _BUFFER = 8, 1000


def pack(source: Source, folder: Path, job: Job) -> None:
    writers = [tf.io.TFRecordWriter(str(folder / f"{k}.tfrecord")) for k in range(_SHARDS)]
    for i, sample in source.samples():
        data = sample.tobytes() if job.kind == "raw" else sample
        feature = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
            "index": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        writers[i % _SHARDS].write(example.SerializeToString())
    for writer in writers:
        writer.close()


def pipeline(folder: Path, job: Job) -> Any:
    fields = {"image": tf.io.FixedLenFeature([], tf.string), "index": tf.io.FixedLenFeature([], tf.int64)}

    side = job.side
    mean, std = map(tf.constant, LEVELS)

    def sample(record: Any) -> Any:
        found = tf.io.parse_single_example(record, fields)
        data = found["image"]
        raw = job.kind == "raw"
        if raw:
            image = tf.reshape(tf.io.decode_raw(data, tf.uint8), job.shape)
            if not job.floats:
                return image, found["index"]
        shape = tf.constant(job.shape) if raw else tf.io.extract_jpeg_shape(data)
        if job.crop == "random":
            begin, size, _ = tf.image.sample_distorted_bounding_box(
                shape,
                tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
                min_object_covered=0,
                area_range=(0.08, 1.0),
                aspect_ratio_range=(3 / 4, 4 / 3),
            )
            if raw:
                image = tf.slice(image, begin, size)
            else:
                box = tf.stack([begin[0], begin[1], size[0], size[1]])
                image = tf.image.decode_and_crop_jpeg(data, box, channels=3)
            image = tf.image.resize(image, (side, side))
            if job.floats:
                image = (tf.image.random_flip_left_right(image) - mean) / std
                return tf.ensure_shape(tf.transpose(image, (2, 0, 1)), (3, side, side)), found["index"]
            return tf.image.random_flip_left_right(tf.cast(image, tf.uint8)), found["index"]
        box = tf.stack([(shape[0] - side) // 2, (shape[1] - side) // 2, side, side])
        image = tf.image.decode_and_crop_jpeg(data, box, channels=3)
        return tf.ensure_shape(image, (side, side, 3)), found["index"]

    auto = tf.data.AUTOTUNE
    # To resume, both processes need the same order.
    any_order = {"num_parallel_calls": auto, "deterministic": job.action.startswith("resume")}
    shards = tf.data.Dataset.from_tensor_slices(sorted(map(str, folder.glob("*.tfrecord"))))
    records = shards.shuffle(_SHARDS, seed=1).interleave(tf.data.TFRecordDataset, cycle_length=4, **any_order)
    if job.endless:
        records = records.repeat()
    batches = records.shuffle(_BUFFER, seed=1).map(sample, **any_order).batch(job.batch).prefetch(auto)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.workers
    return batches.with_options(options)


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    batches = pipeline(folder, job)
    if not job.endless:
        return lambda number: batches.as_numpy_iterator()
    stream, count = batches.as_numpy_iterator(), len(Source(job)) // job.batch
    return lambda number: itertools.islice(stream, count)


def resume(folder: Path, job: Job, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    batches = iter(pipeline(folder, job))
    checkpoint = tf.train.Checkpoint(batches=batches)
    if state is not None:
        checkpoint.read(state)
    return batches, lambda: checkpoint.write(job.state + "-tf")
