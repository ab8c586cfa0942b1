"""Batches for Keras 3: a `PyDataset` whose batches are asked for in order, and a callback that saves model and position
together, and resumes from them in the middle of an epoch."""

from __future__ import annotations

import operator
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.checks import whole_number
from rawpack.epoch.bookmark import Place
from rawpack.epoch.epochs import Epochs
from rawpack.epoch.misuse import refuse
from rawpack.errors import MissingExtraError, UsageError
from rawpack.integrations.adapter import Adapter, Chosen, Form, imported, inputs_and_labels
from rawpack.integrations.jax import NarrowedFields
from rawpack.order.steps import EpochStart
from rawpack.system.user import expanded

_POINTER = "checkpoint.json"
_WEIGHTS: tuple[Literal["a.weights.h5"], Literal["b.weights.h5"]] = ("a.weights.h5", "b.weights.h5")
"""Written in turn: the pointer always names one that is complete."""
_SHORTER_EPOCH = "Your input ran out of data"
"""What Keras warns of where an epoch has fewer batches than it counted: the rest of one that was resumed has."""
_HELD = 3
"""Keras sends two batches to a device in advance under JAX, and trains on one."""


def keras_batches(feed: Epochs, x: Chosen, y: Chosen | None = None, sample_weight: str | None = None) -> Any:
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
        self._begin(feed.next_start())

    def _begin(self, start: EpochStart) -> None:
        """The current epoch is this one, of which nothing was asked for."""
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
            if self._iterator is None or number != self._asked:
                self._end()
                self._feed.move_to(self._state_in(self._start, number))
                self._iterator = iter(self._feed)
            iterator, self._iterator = self._iterator, None  # an error ends it
            batch = next(iterator)
            self._asked = number + 1
            if self._asked < left:
                self._iterator = iterator
            else:
                next(iterator, None)  # it gives its workers back, and has them begin the next epoch
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
        path, every = Path(expanded(folder)), None if every is None else whole_number("every", every, 1)
        keras = import_module("keras")
        kind = type(KerasCheckpoint.__name__, (KerasCheckpoint, keras.callbacks.Callback), {})
        return kind(self, path, every, keras)  # type: ignore[no-any-return]

    def _reached(self) -> Place:
        """After all that Keras has asked for, which it does in advance."""
        return self._start, self._start.reached(self._asked)

    def _refuse(self, value: object) -> NoReturn:
        raise UsageError(f"Keras's workers and use_multiprocessing cannot be {value!r}: pass workers= to batches()")

    workers = property(lambda self: 1, _refuse)
    use_multiprocessing = property(lambda self: False, _refuse)


class _Saved(msgspec.Struct):
    """What the pointer says."""

    weights: Literal["a.weights.h5", "b.weights.h5"]
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    state: dict[str, Any]
    seeds: list[Any]
    version: Literal[1] = 1


class KerasCheckpoint:
    """Saves weights, the optimizer's variables, and the position after the batch that was trained on last.

    When `fit` begins, it loads what the folder has, if anything. If several ranks train, rank 0 saves, and all load.
    """

    model: Any
    params: dict[str, Any]

    def __init__(self, data: KerasBatches, folder: Path, every: int | None, keras: Any) -> None:
        super().__init__()
        self._data, self._folder, self._every, self._keras = data, folder, every, keras
        self._expected: int | None = None
        """The epoch that `fit` must begin with, where a checkpoint was loaded."""
        self._kept: list[tuple[Any, NDArray[Any]]] = []
        """Variables and what they were, where a step was begun for which there is no batch."""
        self._unsaved = 0
        """Batches that were trained on since the last save."""

    @property
    def initial_epoch(self) -> int:
        """The argument of `fit`: the epoch that was saved last, if it is not over, or the one after it; 0 without."""
        saved = self._saved()
        return 0 if saved is None else saved.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        saved, self._expected, self._unsaved = self._saved(), None, 0
        if saved is None:
            return
        if not self.model.built:
            raise UsageError(
                f"{self._folder} has a checkpoint, and the model has no weights yet to load it into: build the model "
                "before fit(), with a keras.Input or model.build()"
            )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self.model.load_weights(str(self._folder / saved.weights))
        for variable, seed in zip(self._seeds(), saved.seeds, strict=True):
            variable.assign(np.array(seed, variable.dtype))
        self._data.load_state_dict(saved.state)
        self._expected = saved.epoch
        if saved.state.get("position"):
            warnings.filterwarnings("ignore", _SHORTER_EPOCH, UserWarning)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        data, model, steps = self._data, self.model, self.params.get("steps")
        if self._expected not in (None, epoch):
            raise UsageError(
                f"fit() begins with epoch {epoch}, but {self._folder} was saved in epoch {self._expected}: pass "
                "initial_epoch=checkpoint.initial_epoch to fit(), or use another folder"
            )
        if steps != len(data):
            raise UsageError(
                f"an epoch of fit() has {steps} steps, but one of the checkpoint's dataset has {len(data)} batches: "
                "pass that dataset to fit(), and no steps_per_epoch="
            )
        if len(data) % model.steps_per_execution:
            raise UsageError(
                f"steps_per_execution={model.steps_per_execution} does not divide the {len(data)} batches of an epoch, "
                "as it must with a checkpoint: Keras would not say how many of the last ones were trained on"
            )
        self._expected, self._epoch, self._trained = None, epoch, 0
        self._start, data._resumes = data._start, True

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Keep all variables before TensorFlow finds that no batch is left: it has done part of a step by then."""
        if batch == len(self._start) and self._keras.backend.backend() == "tensorflow":
            variables = (*self.model.variables, *self.model.optimizer.variables)
            self._kept = [(variable, np.array(self._numpy(variable))) for variable in variables]

    def on_test_begin(self, logs: Any = None) -> None:
        for variable, value in self._kept:
            variable.assign(value)
        self._kept = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._unsaved += batch + 1 - self._trained
        self._trained = batch + 1
        if self._data._start is not self._start:
            raise UsageError(
                "the checkpoint's dataset was used for something else in the middle of an epoch of fit(): give "
                "evaluate() and predict() a dataset of their own"
            )
        # The end of an epoch is saved after its validation.
        if self._every is not None and self._unsaved >= self._every and self._trained < len(self._start):
            self._save()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save, also where something else has ended the epoch before its last batch."""
        self.on_test_begin()
        self._data.load_state_dict(self._save())

    def _save(self) -> dict[str, Any]:
        self._unsaved, state = 0, self._data._state_in(self._start, self._trained)
        if self._start.split.rank == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            before, over = self._saved(), self._trained == len(self._start)
            weights = _WEIGHTS[before is not None and before.weights == _WEIGHTS[0]]
            self.model.save_weights(str(self._folder / weights), overwrite=True)
            seeds = [self._numpy(seed).tolist() for seed in self._seeds()]
            pointer, new = self._folder / _POINTER, self._folder / f"{_POINTER}.new"
            new.write_bytes(msgspec.json.encode(_Saved(weights, self._epoch + over, state, seeds)))
            # Once the weights are on the disk; all of it or nothing, also if the power fails.
            for path in (self._folder / weights, new):
                _sync(path)
            new.replace(pointer)
            _sync(self._folder)
        return state

    def _numpy(self, variable: Any) -> NDArray[Any]:
        return np.asarray(self._keras.ops.convert_to_numpy(variable))

    def _seeds(self) -> list[Any]:
        """The variables of the model that its file of weights does not have: the seeds of dropout and the like."""
        in_file = {id(weight) for weight in self.model.weights}
        return [variable for variable in self.model.variables if id(variable) not in in_file]

    def _saved(self) -> _Saved | None:
        """What the pointer says; None where it is missing. UsageError where it cannot be one."""
        path = self._folder / _POINTER
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Saved)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"{path} is not a checkpoint of this version of rawpack ({error}): use another folder"
            ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
