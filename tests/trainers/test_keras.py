"""Keras 3 trains from a store, under the backend that KERAS_BACKEND names; here JAX.

Users can rely on this: with `fit(data, shuffle=False)`, every sample is trained on once an epoch, in the order of the
batches; without, `fit` says so; and a run that was killed resumes to the very weights of one that was not. A layer of
the model counts what it was trained on, so that it does not matter what Keras asks for in advance.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture
from running import pack
from trained import numbered_store, run_script
from ways import way

import rawpack_packer
from rawpack import Reader, UsageError

BACKEND = os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
keras = pytest.importorskip("keras", reason="Keras is not installed")
if keras.backend.backend() != BACKEND:
    pytest.skip("Keras was imported before, with another backend", allow_module_level=True)

from trainers.scripts.keras_run import BATCH, EVERY, SAMPLES, make_data, make_model, weights_of  # noqa: E402

SCRIPT = Path(__file__).parent / "scripts" / "keras_run.py"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-with-keras.md"
STEPS = -(-SAMPLES // BATCH)
"""Batches in an epoch."""
SAVED = 17
"""Steps of the killed run that its last checkpoint counts."""


pytestmark = [
    # Keras's own, of numpy 2 and of TensorFlow.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::Warning:tensorflow"),
]


class Calls(keras.callbacks.Callback):
    """Calls a function with the number of steps that were done."""

    def __init__(self, after_step: Callable[[int], object]) -> None:
        super().__init__()
        self.after_step, self.steps = after_step, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        self.after_step(self.steps)


class StoppedError(Exception):
    """A step was the last one."""


def fit(model: Any, data: Any, epochs: int, *callbacks: Any, **options: Any) -> Any:
    """Train in the order of the batches."""
    return model.fit(data, epochs=epochs, callbacks=callbacks, **{"shuffle": False, "verbose": 0} | options)


def stopped(model: Any, data: Any, last: int, *callbacks: Any) -> None:
    """Train for three epochs, but for an error after some steps."""

    def stop(steps: int) -> None:
        if steps == last:
            raise StoppedError

    with pytest.raises(StoppedError):
        fit(model, data, 3, *callbacks, Calls(stop))


def counts(model: Any) -> list[int]:
    """How often each sample was trained on."""
    return [int(n) for n in keras.ops.convert_to_numpy(model.get_layer("seen").counts)]


def same(model: Any, weights: list[Any]) -> bool:
    return all(np.array_equal(*pair) for pair in zip(weights_of(model), weights, strict=True))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", SAMPLES)


@pytest.fixture(scope="module")
def whole(store: Path) -> list[Any]:
    """The weights after three epochs of `fit`."""
    model = make_model()
    history = fit(model, make_data(store), 3).history
    assert history["loss"][2] < 0.8 * history["loss"][0]
    assert counts(model) == [3] * SAMPLES
    return weights_of(model)


def test_fit_is_a_loop_over_the_batches(store: Path, whole: list[Any]) -> None:
    """`fit` trains on the batches of a plain loop in their order."""
    model = make_model()
    batches = make_data(store)._feed
    for _ in range(3):
        for batch in batches:
            model.train_on_batch({name: batch[name] for name in ("image", "number")}, batch["label"])
    assert same(model, whole)


def test_epochs_continue_after_fit(store: Path, whole: list[Any]) -> None:
    """Another `fit` trains on the next epoch, whatever was evaluated in between; after an error, an epoch begins
    again."""
    model, data = make_model(), make_data(store)
    fit(model, data, 1)
    others = make_data(store, shuffle=False)
    model.evaluate(others, verbose=0)
    assert model.predict(others, verbose=0).shape == (SAMPLES, 4)
    fit(model, data, 3, initial_epoch=1, validation_data=others)
    assert same(model, whole)
    stopped(model, data, 5)
    before = counts(model)
    assert sum(before) == 3 * SAMPLES + 5 * BATCH
    fit(model, data, 1)
    assert np.subtract(counts(model), before).tolist() == [1] * SAMPLES
    assert data.state_dict(after=0)["epoch"] == 4


@way("Keras", "`data.checkpoint(folder)`", "to the sample, and to the same weights")
def test_a_killed_run_resumes(store: Path, tmp_path: Path, whole: list[Any]) -> None:
    """A process with workers that ends on the spot in the middle of an epoch is continued by another to the same
    weights, although Keras validates, and may stop early. What the kill left half written is not read, a run that is
    over trains no more, and a model without weights is refused."""
    run_script(SCRIPT, store, tmp_path, code=7, KERAS_BACKEND=BACKEND)
    [unused] = {"a.weights.h5", "b.weights.h5"} - {json.loads((tmp_path / "checkpoint.json").read_text())["weights"]}
    (tmp_path / unused).write_bytes(b"half")
    for first, left in ((SAVED // STEPS, 3 * STEPS - SAVED), (3, 0)):
        model, data, steps = make_model(), make_data(store), Calls(lambda _: None)
        checkpoint = data.checkpoint(tmp_path, EVERY)
        assert checkpoint.initial_epoch == first
        early = keras.callbacks.EarlyStopping(patience=9)
        options = {"initial_epoch": first, "validation_data": make_data(store, shuffle=False)}
        history = fit(model, data, 3, early, checkpoint, steps, **options)
        assert (steps.steps, history.epoch) == (left, [*range(first, 3)])
        assert same(model, whole)
    unbuilt = keras.Sequential([keras.layers.Dense(4)])
    unbuilt.compile("sgd", "mse")
    checkpoint.set_model(unbuilt)
    with pytest.raises(UsageError, match="build the model before fit"):
        checkpoint.on_train_begin()


def test_a_run_that_stops_early_resumes(store: Path, tmp_path: Path, whole: list[Any]) -> None:
    """Where a callback ends `fit` in the middle of an epoch, by `stop_training`, the rest of it comes next; also in the
    same process with the same objects, twice."""
    model, data = make_model(), make_data(store)
    checkpoint = data.checkpoint(tmp_path, every=None)
    for steps in (4, 13):
        ends = Calls(lambda done, last=steps: setattr(model, "stop_training", done == last))
        fit(model, data, 3, checkpoint, ends, initial_epoch=checkpoint.initial_epoch)
    assert json.loads((tmp_path / "checkpoint.json").read_text())["state"]["position"] == 4 * BATCH
    fit(model, data, 3, checkpoint, initial_epoch=checkpoint.initial_epoch)
    assert same(model, whole)


# ---------------------------------------------------------------------------------------------- BackupAndRestore


def backed_up(folder: Path, save_freq: Any) -> Any:
    return keras.callbacks.BackupAndRestore(str(folder), save_freq=save_freq, delete_checkpoint=False)


@way(
    "Keras",
    "`BackupAndRestore`, and `LambdaCallback` with `data.set_epoch`",
    "the epoch again, in its own order; without the `LambdaCallback`, an error",
)
def test_backup_and_restore_after_each_epoch(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Keras's own BackupAndRestore as it is by default, a run that was stopped in epoch 1 does not train on epoch
    0 in its place: it is an error with the line to write, by which it begins epoch 1 again, in its own order: to the
    weights of one that was not stopped, dropout aside, whose seeds BackupAndRestore does not save."""
    monkeypatch.setattr(keras.layers, "Dropout", lambda *_, **__: keras.layers.Identity())
    undisturbed = make_model()
    fit(undisturbed, make_data(store), 2)
    stopped(make_model(), make_data(store), STEPS + 5, backed_up(tmp_path, "epoch"))
    model, data = make_model(), make_data(store)
    with pytest.raises(UsageError, match="to begin epoch 1 again, pass besides it") as refused:
        fit(model, data, 2, backed_up(tmp_path, "epoch"))
    _, _, line = str(refused.value).rpartition("pass besides it ")
    model, data = make_model(), make_data(store)
    history = fit(model, data, 2, backed_up(tmp_path, "epoch"), eval(line, {"keras": keras, "data": data}))
    assert history.epoch == [1]
    assert same(model, weights_of(undisturbed))


@way("Keras", "`BackupAndRestore(save_freq=5)`", "a warning at the start, and an error instead of the epoch again")
def test_backup_and_restore_within_an_epoch(store: Path, tmp_path: Path) -> None:
    """With save_freq=5, BackupAndRestore would train on the first samples of the epoch again: a run says so when it
    begins, and one that was restored ends before its first step, with the line to write."""
    model = make_model()
    with pytest.warns(UserWarning, match=r"does not save the position.*checkpoint\(folder\)"):
        stopped(model, make_data(store), STEPS + 9, backed_up(tmp_path, 5))
    trained = sum(counts(model))
    model, data = make_model(), make_data(store)
    with pytest.raises(UsageError, match=r"saved in epoch 1, but not the position.*data\.checkpoint\(folder\)"):
        fit(model, data, 3, backed_up(tmp_path, 5))
    assert 0 < sum(counts(model)) < trained
    data.set_epoch(1)  # the user means it
    fit(model, data, 2, backed_up(tmp_path, 5))


@way("Keras", "weights loaded by hand, batches that were not told where to begin", "a warning")
def test_an_optimizer_that_has_made_steps_meets_fresh_batches(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that were loaded by hand may mean a run that resumes: one warning says how, and how to say that it is
    another training. Nothing is said of the same batches in another `fit`, of evaluations, and where a place was
    named."""
    monkeypatch.setattr("rawpack.system.user.warned", set())
    model, data, named = make_model(), make_data(store), make_data(store)
    named.set_epoch(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        for known in (data, data, named):
            fit(model, known, 1, validation_data=make_data(store, shuffle=False))
    assert [str(one.message) for one in caught if "optimizer of this model" in str(one.message)] == []
    with pytest.warns(UserWarning, match=rf"has made {3 * STEPS} steps, and these batches begin with epoch 0") as told:
        fit(model, make_data(store), 1)
    assert sum("optimizer of this model" in str(one.message) for one in told) == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        # Keras's default. Whatever it draws, it does not begin with batches 0 to 12 in their order.
        ("shuffled", r"was asked for instead of batch .* Write fit\(data, shuffle=False\)"),
        ("steps", "pass that dataset to fit"),
        ("epoch", "fit.. begins with epoch 0, but .* was saved in epoch 1: pass initial_epoch="),
        ("evaluated", "give evaluate.* a dataset of their own"),
        ("damaged", "checkpoint.json is not a checkpoint"),
    ],
)
def test_what_a_checkpoint_cannot_count_is_refused(store: Path, tmp_path: Path, wrong: str, words: str) -> None:
    """With the cure, before a wrong position is saved."""
    model, data = make_model(), make_data(store)
    callbacks = [data.checkpoint(tmp_path, every=2)]
    if wrong == "epoch":
        fit(model, data, 1, *callbacks)
    elif wrong == "evaluated":
        # As `evaluate` uses it; JAX's own state does not survive an `evaluate` here.
        callbacks += [Calls(lambda steps: steps == 3 and (data.on_epoch_end(), list(data), data.on_epoch_end()))]
    elif wrong == "damaged":
        (tmp_path / "checkpoint.json").write_text('{"version": 2}')
    options = {"shuffled": {"shuffle": True}, "steps": {"steps_per_epoch": 5}}.get(wrong, {})
    with pytest.raises(Exception, match=words):
        fit(model, data, 2, *callbacks, **options)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no such thing under PyTorch")
def test_several_steps_in_one_execution(store: Path, tmp_path: Path) -> None:
    """Where they divide the batches, they are counted, and a run resumes; else they are refused."""
    models = [make_model(steps_per_execution=3) for _ in range(2)]
    data, again = (make_data(store, fields=["image", "number", "label"], drop_last=True) for _ in models)
    stopped(models[0], data, 2, data.checkpoint(tmp_path, every=3))
    state = json.loads((tmp_path / "checkpoint.json").read_text())["state"]
    assert (state["epoch"], state["position"]) == (0, 6 * BATCH)
    fit(models[1], again, 2, again.checkpoint(tmp_path))
    seen = sorted(counts(models[1]))
    assert (sum(seen), seen[0] >= 0, seen[-1]) == (2 * 12 * BATCH, True, 2)
    uneven = make_data(store)
    with pytest.raises(Exception, match="steps_per_execution=3 does not divide the 13 batches"):
        fit(models[1], uneven, 2, uneven.checkpoint(tmp_path / "uneven"))


def test_lists_are_refused_by_name(tmp_path: Path) -> None:
    """Boxes that are not padded; padded ones are arrays where shapes may differ; and numbers that JAX would cut."""
    samples = [{"image": picture(8, 8, i), "boxes": np.ones((i, 5), np.float32), "id": i + (1 << 40)} for i in range(4)]
    rawpack_packer.pack(samples, tmp_path / "store", fields={"boxes": "float32[?,5]"}, workers=0, format="memmap")
    reader, names = Reader(tmp_path / "store"), ["image", "boxes", "id"]
    batches = reader.batches(4, fields=names, workers=0)
    with pytest.raises(UsageError, match=r"'boxes' is a list.* or pass ragged=\"pad\" or a length to batches\(\)"):
        batches.keras(x=["image", "boxes"])
    padded = reader.batches(4, fields=names, workers=0, ragged="pad")
    if BACKEND == "tensorflow":
        with pytest.raises(UsageError, match=r"shape of 'boxes' differs from batch to batch.* batches.tf_data\(\)"):
            padded.keras(y="boxes")
    else:
        assert padded.keras(y="boxes")[0][1].shape == (4, 3, 5)
    data = batches.keras(y="id")
    if BACKEND == "jax":
        with pytest.raises(UsageError, match="'id' has numbers that JAX would cut to int32"):
            data[0]
    else:
        assert data[0][1].tolist() == [i + (1 << 40) for i in range(4)]


def test_the_page_does_what_it_says(photos_here: None) -> None:
    """Every block trains, resumes and reads as the page says; those of tf.data where TensorFlow is installed."""
    text = PAGE.read_text("utf-8")
    assert "rawpack pack --quiet --size 64 --holdout val=0.25 photos/ sets/" in text
    pack(Path("photos/"), Path("sets/"), "--size", 64, "--holdout", "val=0.25")
    blocks = re.findall(r"^```python needs=(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == text.count("```python")
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for needs, block in blocks:
        if find_spec(needs) is not None:
            exec(compile(block, str(PAGE), "exec"), namespace)
