"""Batches for Keras 3: a `PyDataset` whose batches are asked for in order."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rawpack.epoch.bookmark import Place
from rawpack.epoch.epochs import Epochs
from rawpack.epoch.iterator import BatchIterator
from rawpack.epoch.misuse import refuse
from rawpack.errors import MissingExtraError, UsageError
from rawpack.integrations.adapter import Adapter, Chosen, Form, imported, inputs_and_labels
from rawpack.integrations.jax import NarrowedFields
from rawpack.integrations.keras_checkpoint import KerasCheckpoint, keras_checkpoint
from rawpack.order.steps import EpochStart

_HELD = 3
"""Keras sends two batches to a device in advance under JAX, and trains on one."""


def keras_batches(feed: Epochs, x: Chosen, y: Chosen | None = None, sample_weight: str | None = None) -> Any:
    """What `Batches.keras` returns, with its arguments."""
    keras = imported("keras", "batches.keras() needs Keras 3 and one of its backends: pip install keras jax")
    if not hasattr(keras.utils, "PyDataset"):
        raise MissingExtraError(f"batches.keras() needs Keras 3, this is {keras.__version__}: pip install -U keras")
    form, fields = inputs_and_labels(feed, x, y, sample_weight)
    described = feed.making.described()
    for name in fields:
        if described[name].listed:
            cure = ', or pass ragged="pad" or a length to batches()' if described[name].kind == "ragged" else ""
            raise UsageError(f"{name!r} is a list in a batch, which Keras does not take: name other fields{cure}")
        # It makes the signature of all batches of the first two.
        if None in (described[name].axes or ()) and keras.backend.backend() == "tensorflow":
            raise UsageError(
                f"the shape of {name!r} differs from batch to batch, and Keras with TensorFlow expects that of the "
                "first ones: pass batches.tf_data(), with the same arguments, to fit()"
            )
    if keras.backend.backend() == "jax":
        import jax

        form = NarrowedFields(jax, feed).checked(form)
    return type(KerasBatches.__name__, (KerasBatches, keras.utils.PyDataset), {})(feed, form, fields)


class KerasBatches(Adapter):
    """Batches of one reader as a `keras.utils.PyDataset`, for `fit`, `evaluate` and `predict`.

    `data[k]` is batch k of the current epoch. Batches are asked for in order; batch 0 may be asked for again, as Keras
    does when it has looked at the first ones. An epoch is over when Keras ends one in which all batches were asked for.
    One thread may ask at a time. Arrays are yours for as long as you hold them.
    """

    def __init__(self, feed: Epochs, form: Form, fields: Sequence[str]) -> None:
        """Made by `Batches.keras`, which derives a class from this one and `PyDataset`. form: makes Keras's structure
        of the fields."""
        super().__init__(feed, ", ".join(fields))
        feed.held = max(feed.held, _HELD)
        self._form, self._fields, self._lock = form, tuple(fields), threading.RLock()
        self._stream: BatchIterator | None = None  # its next batch is the one after those that were asked for
        self._begin(feed.next_start())

    def _begin(self, start: EpochStart) -> None:
        """The current epoch is this one, of which nothing was asked for."""
        self._end_stream()
        self._start, self._count, self._asked = start, len(self._feed), 0
        """Where it begins; its batches, from its start; how many were asked for, since batch 0 was."""
        self._resumes = False  # whether Keras gets only what is left of the epoch, as a checkpoint has said

    def __reduce__(self) -> NoReturn:
        raise UsageError("batches own workers, and read with several already: leave Keras's workers at 1")

    def __len__(self) -> int:
        """The number of batches in the current epoch, from its start also where it was resumed in the middle."""
        return self._count

    @property
    def num_batches(self) -> int:
        """As `len`, which Keras asks for before the first epoch. When it begins an epoch that a checkpoint resumes in
        the middle: the number that is left, after which it ends the epoch."""
        return len(self._start) if self._resumes and not self._asked else len(self)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Batch `index` of the current epoch, from where it was resumed, as (x,), (x, y) or (x, y, sample_weight), of
        numpy arrays (n, ...). Raises IndexError after the last one, UsageError for one that is not the next, and what
        the reader raises."""
        with self._lock:
            number, left = operator.index(index), len(self._start)
            if not 0 <= number < left:
                raise IndexError(
                    f"epoch {self._start.epoch} has no batch {number}: there are {left} from where it begins; to "
                    "resume fit() in the middle of an epoch, use the callback of checkpoint()"
                )
            if number not in (0, self._asked):
                raise UsageError(
                    f"batch {number} was asked for instead of batch {self._asked}: batches come in order. Write "
                    "fit(data, shuffle=False), as reader.batches(shuffle=True) shuffles the samples, without "
                    "steps_per_epoch=; and give evaluate() and predict() within an epoch a dataset of their own"
                )
            if self._stream is None or number != self._asked:
                self._end_stream()
                self._feed.move_to(self._state_in(self._start, number))
                self._stream = iter(self._feed)
            stream, self._stream = self._stream, None  # an error ends it
            batch = next(stream)
            self._asked = number + 1
            if self._asked < left:
                self._stream = stream
            else:
                next(stream, None)  # it gives its workers back, and has them begin the next epoch
        arrays = {name: batch[name] for name in self._fields}
        self._handed.note(arrays.values(), (self._start, self._start.reached(number + 1)))
        return self._form(arrays)  # type: ignore[no-any-return]

    def on_epoch_begin(self) -> None:
        """Called by Keras. UsageError where a callback of Keras has restored a model, and nobody has said where
        these batches begin."""
        if not self._feed.choices and not self._start.position and not self._resumes:
            refuse("epoch of fit", self)

    def _epoch(self) -> Iterator[Any]:
        while self._asked < len(self._start):
            yield self[self._asked]
        self.set_epoch(self._start.epoch + 1)

    def on_epoch_end(self) -> None:
        """Called by Keras, also before it begins and after it has looked at the first batches: if all batches of the
        current epoch were asked for, the next one comes."""
        with self._lock:
            self._resumes, count = False, len(self)
            if self._asked < len(self._start):
                return
            self.set_epoch(self._start.epoch + 1)
            if len(self) != count:
                raise UsageError(
                    f"epoch {self._start.epoch} has {len(self)} batches, the one before it {count}: Keras counts them "
                    "once, so a sampler must give the same number in each epoch"
                )

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` is the current one: from its start, or from the position that was loaded for this epoch."""
        with self._lock:
            self._end_stream()  # so that its workers are free for the epoch that comes
            super().set_epoch(epoch)
            self._begin(self._start if epoch == self._start.epoch else self._feed.next_start())

    def _state_in(self, start: EpochStart, batches: int) -> dict[str, Any]:
        """The state after these batches of an epoch that begins at `start`."""
        return self._feed.state_at(*self._feed.counted_from((start, start.position), batches))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The current epoch is that of `state`, and its batch 0 the next one. Raises UsageError where the state belongs
        to another order. A checkpoint does this itself."""
        with self._lock:
            super().load_state_dict(state)
            self._begin(self._feed.next_start())

    def checkpoint(self, folder: str | Path, every: int | None = 1000) -> KerasCheckpoint:
        """A callback for `fit(callbacks=[...])`, which saves model and position to a folder, and resumes from it.

        every: save after this many batches, besides at the end of each epoch; None: at these only. Pass
        `initial_epoch=checkpoint.initial_epoch` to `fit`, too.
        """
        return keras_checkpoint(self, folder, every)

    def _reached(self) -> Place:
        """After all that Keras has asked for, which it does in advance."""
        return self._start, self._start.reached(self._asked)

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def _refuse(self, value: object) -> NoReturn:
        raise UsageError(f"Keras's workers and use_multiprocessing cannot be {value!r}: pass workers= to batches()")

    workers = property(lambda self: 1, _refuse)
    use_multiprocessing = property(lambda self: False, _refuse)
