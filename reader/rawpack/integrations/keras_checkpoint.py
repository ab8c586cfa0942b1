"""A callback of Keras that saves model and position together, and resumes from them in the middle of an epoch."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.system.user import expanded

if TYPE_CHECKING:
    from rawpack.integrations.keras import KerasBatches
    from rawpack.order.steps import EpochStart

_POINTER = "checkpoint.json"
_VERSION = 1
_WEIGHTS = ("a.weights.h5", "b.weights.h5")
"""Written in turn: the pointer always names one that is complete."""
_SHORTER_EPOCH = "Your input ran out of data"
"""What Keras warns of where an epoch has fewer batches than it counted: the rest of one that was resumed has."""


def keras_checkpoint(data: KerasBatches, folder: str | Path, every: int | None) -> KerasCheckpoint:
    """What `KerasBatches.checkpoint` returns, with its arguments."""
    path = Path(expanded(folder))
    every = None if every is None else whole_number("every", every, 1)
    import keras

    kind = type(KerasCheckpoint.__name__, (KerasCheckpoint, keras.callbacks.Callback), {})
    made: KerasCheckpoint = kind(data, path, every, keras)
    return made


class KerasCheckpoint:
    """Saves weights, the optimizer's variables, and the position after the batch that was trained on last.

    When `fit` begins, it loads what the folder has, if anything. If several ranks train, rank 0 saves, and all load.
    """

    model: Any
    params: dict[str, Any]

    def __init__(self, data: KerasBatches, folder: Path, every: int | None, keras: Any) -> None:
        """Made by `KerasBatches.checkpoint`, which derives a class from this one and `keras.callbacks.Callback`."""
        super().__init__()
        self._data, self._folder, self._every, self._keras = data, folder, every, keras
        self._expected: int | None = None
        """The epoch that `fit` must begin with, where a checkpoint was loaded."""
        self._start: EpochStart | None = None
        """Where the current epoch begins."""
        self._epoch = 0
        """Its number in `fit`."""
        self._kept: list[tuple[Any, NDArray[Any]]] = []
        """Variables and what they were, where a step was begun for which there is no batch."""
        self._trained = self._unsaved = 0
        """Batches of this epoch that were trained on; and since the last save."""

    @property
    def initial_epoch(self) -> int:
        """The argument of `fit`: the epoch that was saved last, if it is not over, or the one after it; 0 without."""
        return int(self._saved().get("epoch", 0))

    def on_train_begin(self, logs: Any = None) -> None:
        """Load the checkpoint, if there is one."""
        saved, self._unsaved = self._saved(), 0
        self._expected = saved.get("epoch")
        if not saved:
            return
        if not self.model.built:
            raise UsageError(
                f"{self._folder} has a checkpoint, and the model has no weights yet to load it into: build the model "
                "before fit(), with a keras.Input or model.build()"
            )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self.model.load_weights(str(self._folder / saved["weights"]))
        for variable, seed in zip(self._seeds(), saved["seeds"], strict=True):
            variable.assign(np.array(seed, variable.dtype))
        self._data.load_state_dict(saved["state"])
        if saved["state"].get("position"):
            warnings.filterwarnings("ignore", _SHORTER_EPOCH, UserWarning)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin to count batches. Raises UsageError where they could not be counted, and for the wrong epoch."""
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
        assert self._start is not None
        if batch == len(self._start) and self._keras.backend.backend() == "tensorflow":
            variables = (*self.model.variables, *self.model.optimizer.variables)
            self._kept = [(variable, np.array(self._numpy(variable))) for variable in variables]

    def on_test_begin(self, logs: Any = None) -> None:
        """Undo that part of a step."""
        for variable, value in self._kept:
            variable.assign(value)
        self._kept = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save, if it is time."""
        assert self._start is not None
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
        """Save what is now, and return the state of the dataset."""
        assert self._start is not None
        self._unsaved = 0
        state = self._data._state_in(self._start, self._trained)
        if self._start.split.rank == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            weights = _WEIGHTS[self._saved().get("weights") == _WEIGHTS[0]]
            self.model.save_weights(str(self._folder / weights), overwrite=True)
            over = self._trained == len(self._start)
            saved = {"version": _VERSION, "weights": weights, "epoch": self._epoch + over, "state": state}
            self._point_to(saved | {"seeds": [self._numpy(seed).tolist() for seed in self._seeds()]})
        return state

    def _numpy(self, variable: Any) -> NDArray[Any]:
        return np.asarray(self._keras.ops.convert_to_numpy(variable))

    def _seeds(self) -> list[Any]:
        """The variables of the model that its file of weights does not have: the seeds of dropout and the like."""
        in_file = {id(weight) for weight in self.model.weights}
        return [variable for variable in self.model.variables if id(variable) not in in_file]

    def _point_to(self, saved: dict[str, Any]) -> None:
        """Write the pointer, once the weights are on the disk; all of it or nothing, also if the power fails."""
        pointer, new = self._folder / _POINTER, self._folder / f"{_POINTER}.new"
        new.write_text(json.dumps(saved), "utf-8")
        for path in (self._folder / saved["weights"], new):
            _sync(path)
        new.replace(pointer)
        _sync(self._folder)

    def _saved(self) -> dict[str, Any]:
        """What the pointer says; empty if there is none. UsageError where it cannot be one."""
        path = self._folder / _POINTER
        try:
            saved = json.loads(path.read_bytes())
            known = saved["version"] == _VERSION and saved["weights"] in _WEIGHTS and isinstance(saved["state"], dict)
            known = known and isinstance(saved["seeds"], list)
            whole_number("epoch", saved["epoch"], 0)
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a checkpoint ({error!r}): use another folder") from error
        if not known:
            raise UsageError(f"{path} is not a checkpoint of this version of rawpack: use another folder")
        return dict(saved)


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
