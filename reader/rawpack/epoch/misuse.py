"""Trainers that would use batches in a way that loses samples or reads them twice: they get an error, and nothing else
is changed. They are recognized by what calls, and none is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rawpack.errors import UsageError
from rawpack.system.user import warn_once


class Misuse(msgspec.Struct, frozen=True):
    """What must not be asked of batches by a function of these modules."""

    asked: str
    modules: tuple[str, ...]
    problem: Callable[[Mapping[str, Any], Any], str | None]
    """(local variables of that function, the batches) -> what to say; None where nothing is wrong."""
    error: type[Exception] = UsageError
    function: str = ""
    """Only of functions that have this in their names."""


def refuse(asked: str, batches: object) -> None:
    """Raise the error, or issue the warning, of `TABLE` where a function that is running here has asked for this."""
    rows = [row for row in TABLE if row.asked == asked and any(name in sys.modules for name in row.modules)]
    frame: Any = sys._getframe(1) if rows else None
    while frame is not None:
        for row in rows:
            if frame.f_globals.get("__name__") not in row.modules or row.function not in frame.f_code.co_name:
                continue
            if (problem := row.problem(frame.f_locals, batches)) is None:
                continue
            if not issubclass(row.error, Warning):
                raise row.error(problem)
            warn_once(problem, problem)
        frame = frame.f_back


def _has(names: Mapping[str, Any], batches: Any) -> bool:
    return any(value is batches for value in names.values())


def _collated(names: Mapping[str, Any], batches: Any) -> str | None:
    """torch's DataLoader has an `auto_collation` with any `batch_size` but None."""
    if names.get("dataset") is not batches or not names.get("auto_collation"):
        return None
    return (
        "DataLoader(batches) makes batches of batches, as its batch_size is 1 by default: write "
        "DataLoader(batches, batch_size=None, num_workers=0), or `for batch in batches.torch()` without a "
        "DataLoader; batches(...) has the batch size"
    )


def _shared_again(names: Mapping[str, Any], batches: Any) -> str | None:
    kind = type(names.get("self")).__name__
    if kind not in ("DataLoaderDispatcher", "IterableDatasetShard"):
        return None
    return (
        f"these batches are one rank's, and Accelerate's {kind} would divide them between the processes again, so that "
        'most samples are never read: leave out the DataLoader, and use batches(..., ranks="auto").accelerate('
        "accelerator)"
    )


def _made_again(names: Mapping[str, Any], batches: Any) -> str | None:
    """Lightning makes another DataLoader of what has a dataset, to turn shuffling off."""
    return f"a {type(batches).__name__} cannot be made again of its dataset" if _has(names, batches) else None


def _unprepared(names: Mapping[str, Any], batches: Any) -> str | None:
    """Accelerate's `prepare` would return batches as they are."""
    if not _has(names, batches):
        return None
    return (
        "Accelerate does not learn from these batches which one is the last of an epoch, so accumulated "
        "gradients would wait for the next epoch or be lost: pass batches.accelerate(accelerator) to prepare()"
    )


def _not_resumed(names: Mapping[str, Any], loader: Any) -> str | None:
    """Lightning gives loaders the positions of a checkpoint when it sets them up, which may be before it reads that."""
    loop = names.get("self")
    states = getattr(loop, "_combined_loader_states_to_load", ())
    loaders = getattr(getattr(loop, "_combined_loader", None), "flattened", ())
    start = loader._feed.next_start()
    stateful = [each for each in loaders if hasattr(each, "load_state_dict")]
    for each, state in zip(stateful, states, strict=False):
        if each is loader and state["epoch"] == start.epoch and state["position"] != start.position:
            return (
                f"Lightning did not resume at position {state['position']} of epoch {start.epoch}, as "
                "trainer.estimated_stepping_batches was read before the checkpoint: compute it as trainer.max_epochs * "
                "-(-len(loader) // trainer.accumulate_grad_batches) instead, or call loader.load_state_dict() yourself"
            )
    return None


_LINE = "pass callbacks=[data.checkpoint(folder)], which saves model and position"


def _restored(names: Mapping[str, Any], data: Any) -> str | None:
    """Keras's BackupAndRestore knows the epoch, and batches are not told of it."""
    fit = _fit(names, data)
    if fit is None or fit[0] is None or not fit[1]:
        return None
    epoch = names["epoch"]
    return (
        f"BackupAndRestore has restored a model that was saved in epoch {epoch}, but not the position in it, and these "
        f"batches begin with epoch 0. Instead of it, {_LINE}; or, to begin epoch {epoch} again, pass besides it "
        "keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: data.set_epoch(epoch))"
    )


def _may_resume(names: Mapping[str, Any], data: Any) -> str | None:
    fit = _fit(names, data)
    if fit is None:
        return None
    backup, steps = fit
    if backup is not None and backup.save_freq != "epoch":
        return (
            f"BackupAndRestore(save_freq={backup.save_freq!r}) does not save the position within an epoch, so a run "
            f"that it resumes is refused. Instead of it, {_LINE}"
        )
    if backup is None and steps:
        return (
            f"the optimizer of this model has made {steps} steps, and these batches begin with epoch 0. To resume "
            f"exactly, {_LINE}; or call data.load_state_dict(state) or data.set_epoch(n) before fit(), with n = 0 if "
            "this is another training"
        )
    return None


def _fit(names: Mapping[str, Any], data: Any) -> tuple[Any, int] | None:
    """The BackupAndRestore of a `fit` over this data, and the steps that its optimizer has made."""
    callbacks = getattr(names.get("callbacks"), "callbacks", None)
    if names.get("x") is not data or callbacks is None or "epoch" not in names:
        return None
    by_kind = {kind.__name__: callback for callback in callbacks for kind in type(callback).__mro__}
    if "KerasCheckpoint" in by_kind:
        return None
    optimizer, steps = getattr(names["self"], "optimizer", None), 0
    if optimizer is not None and optimizer.built:
        steps = int(sys.modules["keras"].ops.convert_to_numpy(optimizer.iterations))
    return by_kind.get("BackupAndRestore"), steps


_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
_KERAS = tuple(f"keras.src.backend.{backend}.trainer" for backend in ("jax", "tensorflow", "torch"))

TABLE = (
    Misuse("iterator", ("torch.utils.data._utils.fetch",), _collated),
    Misuse("rank", ("accelerate.data_loader",), _shared_again),
    Misuse("class", ("accelerate.accelerator",), _unprepared, function="prepare"),
    Misuse(
        "dataset",
        tuple(f"{name}.trainer.connectors.data_connector" for name in _LIGHTNING),
        _made_again,
        AttributeError,
    ),
    Misuse("epoch", tuple(f"{name}.loops.fit_loop" for name in _LIGHTNING), _not_resumed),
    Misuse("epoch of fit", _KERAS, _restored),
    Misuse("epoch of fit", _KERAS, _may_resume, UserWarning),
)
"""By what is asked: an iterator, of batches; the epoch of one rank; their class, by isinstance(); the attribute
`dataset`; to begin an epoch, of tensors; the same, of Keras's batches."""
