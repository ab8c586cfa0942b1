"""`Reader.batches()`: what a training loop goes over, in numpy and as other frameworks want it.

`rawpack.integrations` has what the methods for other frameworks return, and is loaded when one of them is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from numpy.typing import NDArray

from rawpack.epoch import dataloader
from rawpack.epoch.epochs import Epochs
from rawpack.epoch.iterator import BatchIterator
from rawpack.epoch.loader import Loader
from rawpack.epoch.misuse import refuse
from rawpack.system.user import suggests
from rawpack.workers.source import Batch

if TYPE_CHECKING:
    from rawpack.choose.buckets import FoundBuckets
    from rawpack.integrations.accelerate import AcceleratedBatches
    from rawpack.integrations.adapter import Chosen
    from rawpack.integrations.data_iter import DataIter, Names
    from rawpack.integrations.jax import JaxBatches
    from rawpack.integrations.queue import BatchQueue
    from rawpack.integrations.torch import TorchBatches


class Batches(dataloader.Unprepared, Loader, Iterable[Batch]):
    """Batches of one reader: each iterator is the next epoch, from 0 on, or from n on after `set_epoch(n)`. It takes
    its epoch, and starts workers, at its first `next()`.

    Iterators are independent: nested loops work, and so do two at a time. Workers and slots are kept from epoch to
    epoch and end with this object.
    """

    def __init__(self, feed: Epochs) -> None:
        self._feed = feed
        dataloader.register(Batches)

    def __iter__(self) -> BatchIterator:
        refuse("iterator", self)
        return iter(self._feed)

    def __getitem__(self, index: object) -> NoReturn:
        raise dataloader.not_indexed()

    def __repr__(self) -> str:
        return repr(self._feed)

    def _repr_html_(self) -> str:
        """For notebooks: the options and fields, with thumbnails of a few samples as they are stored."""
        from rawpack.epoch.notebook import html_of

        return html_of(f"Batches: {self._feed.title()}", *self._feed.shown())

    @property
    def buckets(self) -> FoundBuckets | None:
        """The sizes of batches, the samples of each, and how many of their pixels are lost; None without `Buckets`."""
        return self._feed.settings.buckets

    @suggests()
    def state_dict(self, after: Mapping[str, Any] | int | None = None) -> dict[str, Any]:
        """The state to resume from with `load_state_dict`: plain values that JSON can hold.

        after: the batch that was trained on last, or how many batches of the latest iterator were, counted from where
            it began. None: all that the latest iterator has handed over. Where batches are queued before the step that
            trains on them, these may be more than were trained on. A batch counts in the epoch that it is from. It must
            have the `index` array that was handed over; a dict around it may be another one.

        The position counts the samples that all ranks have handed to their callers, not what workers have prepared.
        The rest of the epoch is the same with other workers, another format of the same set, or another world size.
        Once an iterator is at its end, the state is that of the next epoch, also where last="keep" left other ranks
        more than one batch: until they are done, rank 0 has the state to save, and so has any rank by `after`.

        Raises UsageError for a batch that these batches did not hand over since the last `load_state_dict`, and for
        more batches than the epoch has.
        """
        return self._feed.state_dict(after)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The iterator that begins next resumes where `state` was taken. Raises UsageError where it belongs to another
        order."""
        self._feed.load_state_dict(state)

    def stats(self) -> dict[str, Any]:
        """Where the time goes, over all iterators so far: samples/s, bytes/s, the share of time that the loop waited,
        the seconds that workers spent reading, decoding and transforming, how many batches are held, and a verdict in
        words."""
        return self._feed.stats()

    def close(self) -> None:
        """End the workers, and the iterators that use them. Arrays that were handed out stay valid; to read on is a
        UsageError."""
        self._feed.close()

    def torch(
        self,
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
            "float64", or torch's own. None leaves them, but uint16, of any field, becomes int32: torch's own uint16 has
            hardly an operation. Further images that are no pictures, such as depths, are not converted.
        depth: batches that are copied to CUDA in advance, 1 or more. Elsewhere nothing is copied in advance.
        as_tuple: names of fields: each batch is then a tuple of these instead of a dict.

        Ragged fields as lists are lists of tensors, on the device too. Texts stay what they are in the batch. Raises
        MissingExtraError without torch, and UsageError for arguments that make no sense.
        """
        from rawpack.integrations.torch import torch_batches

        return torch_batches(self._feed, device, channels, dtype, depth, as_tuple)

    def tensordict(
        self,
        device: Any = None,
        channels: Literal["first", "last"] = "first",
        dtype: Any = None,
        depth: int = 2,
    ) -> TorchBatches:
        """As `torch`, but each batch is a `TensorDict` with batch_size [n].

        Texts, and ragged fields as lists of tensors, are a `NonTensorStack` with one entry per sample. Raises
        MissingExtraError without tensordict.
        """
        from rawpack.integrations.torch import tensordict_batches

        return tensordict_batches(self._feed, device, channels, dtype, depth)

    def accelerate(
        self,
        accelerator: Any,
        channels: Literal["first", "last"] = "first",
        dtype: Any = None,
        depth: int = 2,
        as_tuple: Sequence[str] | None = None,
    ) -> AcceleratedBatches:
        """As `torch`, on the device of an `Accelerator`, for its `accumulate`, `gather_for_metrics`, and
        `register_for_checkpointing`: the batches also say which one is the last of an epoch.

        `prepare` leaves them alone: they are shared between the processes by `ranks="auto"` of `Reader.batches`. Raises
        MissingExtraError without Accelerate, or with one that lacks what this builds on, and UsageError for batches
        that are not those of the accelerator's process.
        """
        from rawpack.integrations.accelerate import accelerated_batches

        options = {"channels": channels, "dtype": dtype, "depth": depth, "as_tuple": as_tuple}
        return accelerated_batches(self._feed, accelerator, **options)

    def jax(self, sharding: Any = None, depth: int = 2, as_tuple: Sequence[str] | None = None) -> JaxBatches:
        """The same batches as arrays of JAX: an object to loop over in a training script, with a position of its own.

        sharding: a `jax.sharding.Sharding` or a `jax.Device`; None: JAX's default device. Where it is over the devices
            of several processes, each of them reads its own rank, and a batch is that of all ranks together: pass
            `ranks=` to `Reader.batches`.
        depth: batches whose copies are begun in advance, 1 or more. On the CPU nothing is copied, nor in advance.
        as_tuple: names of fields: each batch is then a tuple of these instead of a dict.

        Ragged fields as lists are lists of arrays on the device; over several devices they stay lists of numpy arrays.
        Texts stay what they are in the batch. Raises MissingExtraError without JAX, and UsageError for arguments that
        make no sense, and for batches that the sharding does not divide.
        """
        from rawpack.integrations.jax import jax_batches

        return jax_batches(self._feed, sharding, depth, as_tuple)

    def data_iter(
        self, data: Names = "image", label: Names = "label", place: Callable[[NDArray[Any]], Any] | None = None
    ) -> DataIter:
        """The same batches by the protocol of MXNet's `DataIter`, for `Module.fit` and loops like it.

        data, label: the field, which MXNet gets as "data" and "softmax_label", or a dict: MXNet's name -> field. None:
            there are none.
        place: makes MXNet's arrays, such as `lambda array: mx.nd.array(array, ctx=mx.gpu(0))`; None leaves numpy's.

        Images and masks become (n, C, H, W), clips (n, T, C, H, W). All batches have `batch_size` rows. Raises
        UsageError for fields that have no fixed shape.
        """
        from rawpack.integrations.data_iter import DataIter

        return DataIter(self._feed, data, label, place)

    def queue(self, depth: int = 8, epochs: int | None = None) -> BatchQueue:
        """A queue that a thread fills with up to `depth` batches from now on, and that any number of threads take from.

        epochs: how many, from the one that comes next; None: epoch after epoch, until `close()`.

        Batches are those of the numpy batches, and `state_dict(after=batch)` knows them. Call `load_state_dict` before
        this, or that of the queue.
        """
        from rawpack.integrations.queue import BatchQueue

        return BatchQueue(self._feed, depth, epochs)

    def keras(self, x: Chosen = "image", y: Chosen | None = None, sample_weight: str | None = None) -> Any:
        """The same batches as a `keras.utils.PyDataset` of Keras 3, under any of its backends: for `fit`, `evaluate`
        and `predict`. See `rawpack.integrations.keras.KerasBatches` for its methods.

        x, y: the field of inputs, or of labels; several as a list, of which Keras gets a tuple, or as a dict: Keras's
            name -> field. Without y, batches have inputs only.
        sample_weight: a field with a number for each sample, which weights its loss.

        Batches are numpy arrays; images stay (n, H, W, C). Raises MissingExtraError without Keras 3, and UsageError
        for fields that no batch has, or that are lists: texts, and ragged fields without `ragged="pad"` or a length.
        Under JAX, numbers that JAX would cut are a UsageError; under TensorFlow, so are shapes that differ from batch
        to batch: use `tf_data` then.
        """
        from rawpack.integrations.keras import keras_batches

        return keras_batches(self._feed, x, y, sample_weight)

    def tf_data(self, x: Chosen | None = None, y: Chosen | None = None, sample_weight: str | None = None) -> Any:
        """The same batches as a `tf.data.Dataset`, whose signature is made of the fields. Each iteration is the next
        epoch, also those of `repeat()`.

        x, y, sample_weight: as in `keras`. Without x, an element is a dict of all fields.

        Axis 0 has the batch's size where all batches have the same, else None. Texts are `tf.string`. The number of
        batches is known, except after a resume in the middle of an epoch and with a sampler that draws. Load a state
        before. Raises MissingExtraError without TensorFlow, and UsageError for fields that no batch has, or that are
        lists: ragged fields without `ragged="pad"` or a length.
        """
        from rawpack.integrations.tf_data import tf_dataset

        return tf_dataset(self._feed, x, y, sample_weight)
