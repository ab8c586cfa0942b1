"""Batches as a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rawpack.epoch.epochs import Epochs
from rawpack.epoch.making import BatchField
from rawpack.errors import UsageError
from rawpack.integrations.adapter import Chosen, Form, imported, inputs_and_labels


def tf_dataset(
    batches: Epochs, x: Chosen | None = None, y: Chosen | None = None, sample_weight: str | None = None
) -> Any:
    tf = imported("tensorflow", "batches.tf_data() needs TensorFlow: pip install tensorflow-cpu")
    described, start = batches.making.described(), batches.next_start()
    form: Form = dict
    fields = list(described)
    if x is not None:
        form, fields = inputs_and_labels(batches, x, y, sample_weight)
    elif y is not None or sample_weight is not None:
        raise UsageError("y= and sample_weight= need x=, the field of the inputs")
    rows = start.split.batch_size if start.split.drop_last else None
    specs = {}
    for name in fields:
        field = described[name]
        if field.axes is None:
            cure = 'pass ragged="pad" or a length to batches(), or ' if field.kind == "ragged" else ""
            cure = f"choose one by OneText({name!r}) in transform=, or " if field.kind == "text" else cure
            what = "texts" if field.kind == "text" else "arrays of different lengths"
            raise UsageError(f"{name!r} is a list of {what} in a batch: {cure}leave it out with fields=")
        dtype = tf.string if field.kind == "text" else tf.as_dtype(field.dtype)
        specs[name] = tf.TensorSpec((rows, *field.axes), dtype, name=name)

    def epoch() -> Iterator[Any]:
        for batch in batches:
            yield form({name: _value(described[name], batch[name]) for name in specs})

    dataset = tf.data.Dataset.from_generator(epoch, output_signature=form(specs))
    if start.position or not batches.foreseeable:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(len(start)))


def _value(field: BatchField, value: Any) -> Any:
    """Texts as an array, which TensorFlow converts faster than a list."""
    return np.array(value, dtype=object) if field.kind == "text" else value
