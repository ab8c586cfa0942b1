"""Keras's `fit` over batches that were not told where to begin: what is wrong there is said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rawpack.errors import UsageError
from rawpack.system.user import warn_once

if TYPE_CHECKING:
    from rawpack.integrations.keras import KerasBatches

_LINE = "pass callbacks=[checkpoint] with checkpoint = batches.checkpoint(folder), which saves model and position"


def begin_as_fit_does(data: KerasBatches) -> None:
    """Called when Keras begins an epoch of these batches. If that is a `fit` that resumes, and nobody has said where
    the batches begin:

    - `BackupAndRestore` that saves at the end of each epoch: they begin with the epoch of `fit`;
    - `BackupAndRestore` that saves within epochs, and has restored something: UsageError, as the samples of the epoch
      would be trained on again; where it has not, a warning;
    - an optimizer that has made steps: a warning.
    """
    if not data._untouched or (found := _in_fit()) is None:
        return
    model, callbacks, epoch = found
    if any(type(one).__name__ == "KerasCheckpoint" for one in callbacks):
        return
    steps = _steps(model)
    backup = next((one for one in callbacks if _is_backup(one)), None)
    if backup is not None and backup.save_freq == "epoch":
        # Its last save was at the end of an epoch, and `fit` begins with the next one.
        if epoch and steps:
            data.set_epoch(epoch)
    elif backup is not None and steps:
        raise UsageError(
            f"BackupAndRestore has restored a model that was saved in epoch {epoch}, but not the position in it: its "
            f"batches would be trained on again. Instead of it, {_LINE}; or call batches.set_epoch({epoch}) before "
            "fit() if the epoch should begin again"
        )
    elif backup is not None:
        warn_once(
            "BackupAndRestore",
            f"BackupAndRestore(save_freq={backup.save_freq!r}) does not save the position within an epoch, so a run "
            f"that it resumes is refused. Instead of it, {_LINE}",
        )
    elif steps:
        warn_once(
            f"fit of a model after {steps} steps",
            f"the optimizer of this model has made {steps} steps, and these batches begin with epoch 0. "
            f"To resume exactly, {_LINE}; or call batches.load_state_dict(state) or batches.set_epoch(n) before fit(), "
            "with n = 0 if this is another training",
        )


def _in_fit() -> tuple[Any, list[Any], int] | None:
    """The model, the callbacks and the epoch of the `fit` that asks for batches in this thread, if any."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("evaluate", "predict"):
            return None
        if frame.f_code.co_name == "fit":
            names = frame.f_locals
            callbacks = getattr(names.get("callbacks"), "callbacks", None)
            if isinstance(names.get("epoch"), int) and callbacks is not None:
                return names["self"], list(callbacks), names["epoch"]
        frame = frame.f_back
    return None


def _steps(model: Any) -> int:
    """How many steps the model's optimizer has made."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not optimizer.built:
        return 0
    keras = sys.modules["keras"]
    return int(keras.ops.convert_to_numpy(optimizer.iterations))


def _is_backup(callback: Any) -> bool:
    return any(kind.__name__ == "BackupAndRestore" for kind in type(callback).__mro__)
