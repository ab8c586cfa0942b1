"""Batches for Keras 3: a `PyDataset` whose batches are asked for in order."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rawpack.batching.bookmark import Handed, is_count
from rawpack.batching.feed import Feed
from rawpack.batching.iterator import Batch, BatchIterator
from rawpack.batching.options import names
from rawpack.batching.steps import EpochStart
from rawpack.errors import MissingExtraError, UsageError
from rawpack.order.keys import whole_number

if TYPE_CHECKING:
    from pathlib import Path

    from rawpack.faces.keras_checkpoint import KerasCheckpoint

Chosen = str | Sequence[str] | Mapping[str, str]
"""A field; or several: a tuple of them, or a dict with names of its own -> field."""
_HELD = 3
"""Keras sends two batches to a device in advance under JAX, and trains on one."""


def keras_batches(batches: Feed, x: Chosen, y: Chosen | None = None, sample_weight: str | None = None) -> Any:
    """What `Batches.keras` returns, with its arguments."""
    keras = import_keras()
    form, fields = keras_form(batches, x, y, sample_weight)
    described = batches.described()
    for name in fields:
        if described[name].dtype is None:
            cure = ', or pass ragged="pad" or a length to batches()' if described[name].kind == "ragged" else ""
            raise UsageError(f"{name!r} is a list in a batch, which Keras does not take: name other fields{cure}")
        # It makes the signature of all batches of the first two.
        if None in (described[name].axes or ()) and keras.backend.backend() == "tensorflow":
            raise UsageError(
                f"the shape of {name!r} differs from batch to batch, and Keras with TensorFlow expects that of the "
                "first ones: pass batches.tf_data(), with the same arguments, to fit()"
            )
    kind = type(KerasBatches.__name__, (KerasBatches, keras.utils.PyDataset), {})
    check = None
    if keras.backend.backend() == "jax":
        import jax

        from rawpack.faces.jax import NarrowedFields

        check = NarrowedFields(jax, batches).check
    return kind(batches, form, fields, check)


def keras_form(
    batches: Feed, x: Chosen, y: Chosen | None, sample_weight: str | None
) -> tuple[Callable[[Mapping[str, Any]], tuple[Any, ...]], list[str]]:
    """What makes (x,), (x, y) or (x, y, sample_weight) of values by their names, and the fields that it takes."""
    if sample_weight is not None and y is None:
        raise UsageError(f"sample_weight={sample_weight!r} needs y=, the field that it weights")
    given = {"x": x, "y": y, "sample_weight": sample_weight}
    chosen = [_checked(batches, name, value) for name, value in given.items() if value is not None or name == "x"]

    def form(values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_picked(values, one) for one in chosen)

    return form, list(dict.fromkeys(field for one in chosen for field in _fields(one)))


def import_keras() -> Any:
    """Keras 3. Raises MissingExtraError without it."""
    try:
        import keras
    except ImportError as error:
        why = "" if isinstance(error, ModuleNotFoundError) and error.name == "keras" else f" ({error})"
        raise MissingExtraError(
            f"batches.keras() needs Keras 3 and one of its backends: pip install keras jax{why}"
        ) from error
    if not hasattr(keras.utils, "PyDataset"):
        raise MissingExtraError(f"batches.keras() needs Keras 3, this is {keras.__version__}: pip install -U keras")
    return keras


class KerasBatches:
    """Batches of one reader as a `keras.utils.PyDataset`, for `fit`, `evaluate` and `predict`.

    `data[k]` is batch k of the current epoch. Batches are asked for in order; batch 0 may be asked for again, as Keras
    does when it has looked at the first ones. `fit` asks in order: its `shuffle=` is switched off, because the samples
    are shuffled already.

    An epoch is over when Keras ends one (`on_epoch_end`) in which all batches were asked for. One thread may ask at a
    time. Arrays are yours for as long as you hold them.
    """

    def __init__(
        self,
        batches: Feed,
        form: Callable[[Mapping[str, Any]], tuple[Any, ...]],
        fields: Sequence[str],
        check: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Made by `Batches.keras`, which derives a class from this one and `PyDataset`. form: makes Keras's structure
        of the fields. check: raises what is wrong with the arrays of a batch."""
        super().__init__()
        batches.held = max(batches.held, _HELD)
        # Keras holds batches for longer than a limit on slots expects.
        self._copied = batches.settings.max_held is not None
        self._batches, self._form, self._fields, self._check = batches, form, tuple(fields), check
        self._handed = Handed()
        self._lock = threading.RLock()
        self._stream: BatchIterator | None = None
        self._next = 0
        """The batch that the stream hands over next."""
        self._begin()

    def _begin(self) -> None:
        """The current epoch is the one that the batches have as their next one."""
        self._start = self._batches.next_start()
        self._count, self._left = len(self._batches), len(self._start)
        """Batches in the epoch, from its start; and from where it begins: after a resume, its rest."""
        self._end_stream()
        self.asked = 0
        """How many batches of the current epoch were asked for, since batch 0 was."""
        self._all = False
        """Whether all were, once."""
        self.watched = False
        """Whether a checkpoint counts the batches of this epoch."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._fields)}; {self._batches!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "batches own workers and memory, and read with several workers already: leave Keras's workers at 1"
        )

    def __len__(self) -> int:
        """The number of batches in the current epoch, from its start also where it was resumed in the middle."""
        return self._count

    @property
    def num_batches(self) -> int:
        """As `len`, which Keras asks for before the first epoch. When it begins an epoch that a checkpoint resumes in
        the middle: the number that is left, after which it ends the epoch."""
        return self._left if self.watched and not self.asked else len(self)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Batch `index` of the current epoch as (x,), (x, y) or (x, y, sample_weight), of numpy arrays (n, ...).

        After a resume, batches count from where the epoch was resumed. Raises IndexError after the last one, UsageError
        for one that is not the next, and what the reader raises.
        """
        with self._lock:
            number = operator.index(index)
            if not 0 <= number < self._left:
                raise IndexError(
                    f"epoch {self._start.epoch} has no batch {number}: there are {self._left} from where it begins; to "
                    "resume fit() in the middle of an epoch, use the callback of checkpoint()"
                )
            if number not in (0, self.asked):
                raise UsageError(
                    f"batch {number} was asked for instead of batch {self.asked}: batches come in order. Pass "
                    "shuffle=False and no steps_per_epoch= to fit(), and give evaluate() and predict() within an epoch "
                    "a dataset of their own"
                )
            batch = self._batch(number)
            self.asked = number + 1
            self._all |= self.asked == self._left
        arrays = {name: batch[name] for name in self._fields}
        if self._copied:
            arrays = {name: np.array(array) for name, array in arrays.items()}
        self._handed.note(arrays.values(), (self._start, self._start.reached(number + 1)))
        if self._check is not None:
            self._check(arrays)
        return self._form(arrays)

    @property
    def workers(self) -> int:
        """1: threads or processes of Keras would only ask for several batches at once."""
        _keep_order(sys._getframe(1).f_locals.get("self"), self)
        return 1

    @workers.setter
    def workers(self, value: int) -> None:
        raise UsageError(f"workers={value} of Keras: pass workers= to Reader.batches(), whose workers read and decode")

    @property
    def use_multiprocessing(self) -> bool:
        """False, see `workers`."""
        return False

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        raise UsageError(f"use_multiprocessing={value}: pass workers= to Reader.batches(), whose workers are processes")

    def on_epoch_end(self) -> None:
        """Called by Keras: the next epoch comes, if all batches of the current one were asked for.

        Keras also calls this before it begins, and after it has looked at the first batches.
        """
        with self._lock:
            if self.watched:
                self.watched = False
            elif self._all:
                count = len(self)
                # Ended first, so that its workers are free for the epoch that comes.
                self._end_stream()
                self._batches.set_epoch(self._start.epoch + 1)
                self._begin()
                if len(self) != count:
                    raise UsageError(
                        f"epoch {self._start.epoch} has {len(self)} batches, the one before it {count}: Keras counts "
                        "them once, so a sampler must give the same number in each epoch"
                    )

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` is the current one: from its start, or from the position that was loaded for this epoch."""
        epoch = whole_number("epoch", epoch, 0)
        with self._lock:
            self._end_stream()
            if epoch == self._start.epoch:
                self._batches.load_state_dict(self.state_in(self._start, 0))
            else:
                self._batches.set_epoch(epoch)
            self._begin()

    def state_dict(self, after: Any = None) -> dict[str, Any]:
        """The state to resume from with `load_state_dict`: see `Batches.state_dict`.

        after: the batch that was trained on last, of the arrays that it came with, or how many batches of the current
            epoch were, counted from where it begins. None: all that Keras has asked for, which it does in advance.
        """
        if after is None:
            return self.state_in(self._start, self.asked)
        if is_count(after):
            return self.state_in(self._start, int(after))
        return self._batches.state_at(*self._handed.place(_arrays(after)))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The current epoch is that of `state`, and its batch 0 the next one. Raises UsageError where the state belongs
        to another order. A checkpoint does this itself."""
        with self._lock:
            self._batches.load_state_dict(state)
            self._handed.clear()
            self._begin()

    def checkpoint(self, folder: str | Path, every: int | None = 1000) -> KerasCheckpoint:
        """A callback for `fit(callbacks=[...])`, which saves model and position to a folder, and resumes from it.

        every: save after this many batches, besides at the end of each epoch; None: at these only. Pass
        `initial_epoch=checkpoint.initial_epoch` to `fit`, too.
        """
        from rawpack.faces.keras_checkpoint import keras_checkpoint

        return keras_checkpoint(self, folder, every)

    def stats(self) -> dict[str, Any]:
        """As `Batches.stats`, without the batches that were asked for out of order."""
        return self._batches.stats()

    def watch(self) -> EpochStart:
        """Called by a checkpoint, when `fit` begins an epoch. Returns where it begins."""
        with self._lock:
            self.watched, self.asked = True, 0
            return self._start

    def state_in(self, start: EpochStart, batches: int) -> dict[str, Any]:
        """Called by a checkpoint: the state after these batches of an epoch that begins at `start`."""
        reached = start.reached(whole_number("after", batches, 0, len(start)))
        return self._batches.state_dict() | start.state(reached)

    def _batch(self, number: int) -> Batch:
        if self._stream is None or number != self._next:
            self._end_stream()
            self._batches.move_to(self.state_in(self._start, number))
            self._stream, self._next = iter(self._batches), number
        stream, self._stream = self._stream, None
        batch = next(stream)
        self._stream, self._next = stream, number + 1
        if self._next == self._left:
            # It gives its workers back, and has them begin the next epoch.
            next(stream, None)
            self._stream = None
        return batch

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _keep_order(adapter: Any, data: KerasBatches) -> None:
    """Switch off that Keras asks for the batches of a shuffled set in another order, by its own random numbers.

    `fit` shuffles by default. Samples would still be right, but none could be read in advance, and the order of a run
    could not be had again. What `fit` makes of `shuffle=` is only known to the object that asks for `workers`. If Keras
    changes that, batches come in its order.
    """
    if getattr(adapter, "py_dataset", None) is data and getattr(adapter, "shuffle", None) is True:
        adapter.shuffle = False


def _arrays(batch: Any) -> Iterator[Any]:
    """The arrays of a batch as Keras gets it."""
    if isinstance(batch, tuple | list | Mapping):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _arrays(value)
    else:
        yield batch


def _checked(batches: Feed, parameter: str, chosen: Any) -> Chosen:
    """What was chosen as str, tuple or dict. UsageError for a field that no batch has."""
    described = batches.described()
    if isinstance(chosen, Mapping):
        chosen = {str(key): field for key, field in chosen.items()}
    elif not isinstance(chosen, str):
        chosen = tuple(names(parameter, chosen))
    for field in _fields(chosen):
        if not isinstance(field, str) or field not in described:
            raise UsageError(f"{parameter}: there is no field {field!r} in a batch, only {', '.join(described)}")
    if not chosen:
        raise UsageError(f"{parameter}={chosen!r} names no field")
    return chosen  # type: ignore[no-any-return]


def _fields(chosen: Chosen) -> list[str]:
    if isinstance(chosen, str):
        return [chosen]
    return list(chosen.values() if isinstance(chosen, Mapping) else chosen)


def _picked(values: Mapping[str, Any], chosen: Chosen) -> Any:
    if isinstance(chosen, str):
        return values[chosen]
    if isinstance(chosen, Mapping):
        return {key: values[field] for key, field in chosen.items()}
    return tuple(values[field] for field in chosen)
