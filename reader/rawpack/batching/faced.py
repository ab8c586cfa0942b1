"""The methods of `Batches` that give the same batches to other frameworks. `rawpack.faces` has what they return, and
is loaded when one of them is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

if TYPE_CHECKING:
    from rawpack.batching.batches import Batches
    from rawpack.faces.data_iter import DataIter, Names
    from rawpack.faces.jax import JaxBatches
    from rawpack.faces.keras import Chosen
    from rawpack.faces.queue import BatchQueue
    from rawpack.faces.torch import TorchBatches


def torch(
    batches: Batches,
    device: Any = None,
    channels: Literal["first", "last"] = "first",
    dtype: Any = None,
    depth: int = 2,
    as_tuple: Sequence[str] | None = None,
) -> TorchBatches:
    """The same batches as tensors: an object to loop over in a training script, with a position of its own.

    device: "cpu" (also None), "cuda", "cuda:1", or any other device of torch. On the CPU, tensors share the memory
        of the batch. To CUDA, batches are copied while you work on earlier ones, and the last steps of `transform`
        that only scale values, such as Normalize and ToCHW, are done there.
    channels: "first": images and masks (n, H, W, C) become (n, C, H, W), and clips (n, T, H, W, C) become
        (n, T, C, H, W), as views: torch's channels_last. "last" leaves them.
    dtype: what images are converted to, on the device and without scaling: "float32", "float16", "bfloat16",
        "float64", or torch's own. None leaves them.
    depth: batches that are copied to CUDA in advance, 1 or more. Elsewhere nothing is copied in advance.
    as_tuple: names of fields: each batch is then a tuple of these instead of a dict.

    Texts, and ragged fields as lists, stay what they are in the batch. Raises MissingExtraError without torch, and
    UsageError for arguments that make no sense.
    """
    from rawpack.faces.torch import torch_batches

    return torch_batches(batches, device, channels, dtype, depth, as_tuple)


def tensordict(
    batches: Batches,
    device: Any = None,
    channels: Literal["first", "last"] = "first",
    dtype: Any = None,
    depth: int = 2,
) -> TorchBatches:
    """As `torch`, but each batch is a `TensorDict` with batch_size [n].

    Texts, and ragged fields as lists, are a `NonTensorStack` with one entry per sample. Raises MissingExtraError
    without tensordict.
    """
    from rawpack.faces.tensordict import tensordict_batches

    return tensordict_batches(batches, device, channels, dtype, depth)


def jax(batches: Batches, sharding: Any = None, depth: int = 2, as_tuple: Sequence[str] | None = None) -> JaxBatches:
    """The same batches as arrays of JAX: an object to loop over in a training script, with a position of its own.

    sharding: a `jax.sharding.Sharding` or a `jax.Device`; None: JAX's default device. Where it is over the devices
        of several processes, each of them reads its own rank, and a batch is that of all ranks together: pass
        `rank=` and `world_size=` to `Reader.batches`.
    depth: batches whose copies are begun in advance, 1 or more. On the CPU nothing is copied, nor in advance.
    as_tuple: names of fields: each batch is then a tuple of these instead of a dict.

    Texts, and ragged fields as lists, stay what they are in the batch. Raises MissingExtraError without JAX, and
    UsageError for arguments that make no sense, and for batches that the sharding does not divide.
    """
    from rawpack.faces.jax import jax_batches

    return jax_batches(batches, sharding, depth, as_tuple)


def data_iter(
    batches: Batches, data: Names = "image", label: Names = "label", place: Callable[[NDArray[Any]], Any] | None = None
) -> DataIter:
    """The same batches by the protocol of MXNet's `DataIter`, for `Module.fit` and loops like it.

    data, label: the field, which MXNet gets as "data" and "softmax_label", or a dict: MXNet's name -> field. None:
        there are none.
    place: makes MXNet's arrays, such as `lambda array: mx.nd.array(array, ctx=mx.gpu(0))`; None leaves numpy's.

    Images and masks become (n, C, H, W), clips (n, T, C, H, W). All batches have `batch_size` rows. Raises
    UsageError for fields that have no fixed shape.
    """
    from rawpack.faces.data_iter import DataIter

    return DataIter(batches, data, label, place)


def queue(batches: Batches, depth: int = 8, epochs: int | None = None) -> BatchQueue:
    """A queue that a thread fills with up to `depth` batches from now on, and that any number of threads take from.

    epochs: how many, from the one that comes next; None: epoch after epoch, until `close()`.

    Batches are those of the numpy batches, and `state_dict(after=batch)` knows them. Load a state before. Raises
    UsageError where `max_slots` is not larger than `depth`.
    """
    from rawpack.faces.queue import BatchQueue

    return BatchQueue(batches, depth, epochs)


def keras(batches: Batches, x: Chosen = "image", y: Chosen | None = None, sample_weight: str | None = None) -> Any:
    """The same batches as a `keras.utils.PyDataset` of Keras 3, under any of its backends: for `fit`, `evaluate` and
    `predict`. See `rawpack.faces.keras.KerasBatches` for its methods.

    x, y: the field of inputs, or of labels; several as a list, of which Keras gets a tuple, or as a dict: Keras's name
        -> field. Without y, batches have inputs only.
    sample_weight: a field with a number for each sample, which weights its loss.

    Batches are numpy arrays; images stay (n, H, W, C). Raises MissingExtraError without Keras 3, and UsageError for
    fields that no batch has, or that are lists: texts, and ragged fields without `ragged="pad"` or a length. Under JAX,
    numbers that JAX would cut are a UsageError; under TensorFlow, so are shapes that differ from batch to batch: use
    `tf_data` then.
    """
    from rawpack.faces.keras import keras_batches

    return keras_batches(batches, x, y, sample_weight)


def tf_data(
    batches: Batches, x: Chosen | None = None, y: Chosen | None = None, sample_weight: str | None = None
) -> Any:
    """The same batches as a `tf.data.Dataset`, whose signature is made of the fields. Each iteration is the next epoch,
    also those of `repeat()`.

    x, y, sample_weight: as in `keras`. Without x, an element is a dict of all fields.

    Axis 0 has the batch's size where all batches have the same, else None. Texts are `tf.string`. The number of batches
    is known, except after a resume in the middle of an epoch and with a sampler that draws. Load a state before.
    Raises MissingExtraError without TensorFlow, and UsageError for fields that no batch has, or that are lists: ragged
    fields without `ragged="pad"` or a length.
    """
    from rawpack.faces.tf_data import tf_dataset

    return tf_dataset(batches, x, y, sample_weight)
