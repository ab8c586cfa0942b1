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

from rawpack import Buckets, Reader, UsageError

BACKEND = os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
keras = pytest.importorskip("keras", reason="Keras is not installed")
if keras.backend.backend() != BACKEND:
    pytest.skip("Keras was imported before, with another backend", allow_module_level=True)

from trainers.scripts.keras_run import BATCH, SAMPLES, make_data, make_model, weights_of  # noqa: E402

SCRIPT = Path(__file__).parent / "scripts" / "keras_run.py"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-with-keras.md"
STEPS = -(-SAMPLES // BATCH)
"""Batches in an epoch."""


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


def stop_after(count: int) -> Calls:
    """Ends `fit` with an error after some steps."""

    def stop(steps: int) -> None:
        if steps == count:
            raise StoppedError

    return Calls(stop)


def counts(model: Any) -> list[int]:
    """How often each sample was trained on."""
    return [int(n) for n in keras.ops.convert_to_numpy(model.get_layer("seen").counts)]


def same(mine: list[Any], others: list[Any]) -> bool:
    return len(mine) == len(others) and all(np.array_equal(*pair) for pair in zip(mine, others, strict=True))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", SAMPLES)


@pytest.fixture(scope="module")
def whole(store: Path) -> list[Any]:
    """The weights after three epochs of `fit`."""
    model = make_model()
    data = make_data(store)
    history = model.fit(data, shuffle=False, epochs=3, verbose=0).history
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
    assert same(weights_of(model), whole)


def test_epochs_continue_after_fit(store: Path, whole: list[Any]) -> None:
    """Another `fit` trains on the next epoch, whatever was evaluated in between; with an unfinished one, or with an
    error in the middle, an epoch begins again."""
    model, data = make_model(), make_data(store)
    model.fit(data, shuffle=False, epochs=1, verbose=0)
    others = make_data(store, shuffle=False)
    model.evaluate(others, verbose=0)
    assert model.predict(others, verbose=0).shape == (SAMPLES, 4)
    model.fit(data, shuffle=False, epochs=3, initial_epoch=1, validation_data=others, verbose=0)
    assert same(weights_of(model), whole)
    with pytest.raises(StoppedError):
        model.fit(data, shuffle=False, epochs=1, callbacks=[stop_after(5)], verbose=0)
    assert sum(counts(model)) == 3 * SAMPLES + 5 * BATCH
    before = counts(model)
    model.fit(data, shuffle=False, epochs=1, verbose=0)
    assert np.subtract(counts(model), before).tolist() == [1] * SAMPLES
    assert data.state_dict(after=0)["epoch"] == 4


@pytest.mark.parametrize(
    ("steps", "every", "saved"),
    [(18, 4, 17), pytest.param(13, 5, 10, marks=pytest.mark.soak), pytest.param(16, None, 13, marks=pytest.mark.soak)],
)
def test_a_stopped_run_resumes(
    store: Path, tmp_path: Path, whole: list[Any], steps: int, every: int | None, saved: int
) -> None:
    """In the middle of an epoch, before its end is saved, and where only ends are saved: to the same weights, although
    Keras validates, and may stop early."""
    model, data = make_model(), make_data(store)
    with pytest.raises(StoppedError):
        model.fit(
            data, shuffle=False, epochs=3, callbacks=[data.checkpoint(tmp_path, every), stop_after(steps)], verbose=0
        )
    model, data, left = make_model(), make_data(store), Calls(lambda _: None)
    checkpoint = data.checkpoint(tmp_path, every)
    assert checkpoint.initial_epoch == saved // STEPS
    history = model.fit(
        data, shuffle=False, epochs=3, initial_epoch=checkpoint.initial_epoch, verbose=0,
        validation_data=make_data(store, shuffle=False),
        callbacks=[keras.callbacks.EarlyStopping(patience=9), checkpoint, left],
    )  # fmt: skip
    assert left.steps == 3 * STEPS - saved
    assert history.epoch == list(range(saved // STEPS, 3))
    assert counts(model) == [3] * SAMPLES
    assert same(weights_of(model), whole)
    # A run that is over is loaded, and nothing more is done.
    model, data = make_model(), make_data(store)
    checkpoint = data.checkpoint(tmp_path, every)
    model.fit(data, shuffle=False, epochs=3, initial_epoch=checkpoint.initial_epoch, callbacks=[checkpoint], verbose=0)
    assert same(weights_of(model), whole)


def test_a_run_that_stops_early_resumes(store: Path, tmp_path: Path, whole: list[Any]) -> None:
    """Where a callback ends `fit` in the middle of an epoch, by `stop_training`, the rest of it comes next; also in the
    same process with the same objects, twice."""
    model, data = make_model(), make_data(store)
    checkpoint = data.checkpoint(tmp_path, every=None)
    for steps in (4, 13):
        callbacks = [checkpoint, Calls(lambda done, last=steps: setattr(model, "stop_training", done == last))]
        model.fit(data, shuffle=False, epochs=3, initial_epoch=checkpoint.initial_epoch, callbacks=callbacks, verbose=0)
    assert json.loads((tmp_path / "checkpoint.json").read_text())["state"]["position"] == 4 * BATCH
    model.fit(data, shuffle=False, epochs=3, initial_epoch=checkpoint.initial_epoch, callbacks=[checkpoint], verbose=0)
    assert counts(model) == [3] * SAMPLES
    assert same(weights_of(model), whole)


@way(
    "Keras",
    "`data.checkpoint(folder)`",
    "to the sample, and to the same weights",
)
def test_a_killed_run_resumes(store: Path, tmp_path: Path) -> None:
    """Two processes with workers, of which the first ends on the spot in the middle of epoch 1, train as one does; what
    the kill left half written is not read."""
    run_script(SCRIPT, store, tmp_path, 2, "checkpoint", STEPS + 5, code=7, KERAS_BACKEND=BACKEND)
    [unused] = {"a.weights.h5", "b.weights.h5"} - {
        json.loads((tmp_path / "checkpoint/checkpoint.json").read_text())["weights"]
    }
    (tmp_path / "checkpoint" / unused).write_bytes(b"half")
    printed = run_script(SCRIPT, store, tmp_path, 2, "checkpoint", KERAS_BACKEND=BACKEND)[0]
    assert printed.splitlines()[-1].startswith("1 ")
    model = make_model()
    model.fit(make_data(store), shuffle=False, epochs=2, verbose=0)
    with np.load(tmp_path / "weights.npz") as saved:
        assert same(list(saved.values()), weights_of(model))
    assert counts(model) == [2] * SAMPLES


# ---------------------------------------------------------------------------------------------- BackupAndRestore


class StopsDroppingOut(keras.layers.Layer):
    """In place of dropout, whose seeds BackupAndRestore does not save."""

    def call(self, inputs: Any) -> Any:
        return inputs


def backed_up(folder: Path, save_freq: Any) -> Any:
    return keras.callbacks.BackupAndRestore(str(folder), save_freq=save_freq, delete_checkpoint=False)


@way(
    "Keras",
    "`BackupAndRestore`, and `LambdaCallback` with `data.set_epoch`",
    "the epoch again, in its own order; without the `LambdaCallback`, an error",
)
def test_backup_and_restore_after_each_epoch(
    store: Path, tmp_path: Path, whole: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Keras's own BackupAndRestore as it is by default, a run that was stopped in epoch 1 does not train on epoch
    0 in its place: it is an error with the line to write, by which it begins epoch 1 again, in its own order: to the
    weights of one that was not stopped, dropout aside."""
    monkeypatch.setattr(keras.layers, "Dropout", lambda *_, **__: StopsDroppingOut())
    undisturbed = make_model()
    undisturbed.fit(make_data(store), shuffle=False, epochs=3, verbose=0)
    model, data = make_model(), make_data(store)
    callbacks = [backed_up(tmp_path, "epoch"), stop_after(STEPS + 5)]
    with pytest.raises(StoppedError):
        model.fit(data, shuffle=False, epochs=3, callbacks=callbacks, verbose=0)
    model, data = make_model(), make_data(store)
    with pytest.raises(UsageError, match="to begin epoch 1 again, pass besides it") as refused:
        model.fit(data, shuffle=False, epochs=3, callbacks=[backed_up(tmp_path, "epoch")], verbose=0)
    _, _, line = str(refused.value).rpartition("pass besides it ")
    model, data = make_model(), make_data(store)
    callbacks = [backed_up(tmp_path, "epoch"), eval(line, {"keras": keras, "data": data})]
    history = model.fit(data, shuffle=False, epochs=3, callbacks=callbacks, verbose=0)
    assert history.epoch == [1, 2]
    assert counts(model) == [3] * SAMPLES
    assert same(weights_of(model), weights_of(undisturbed))


@way(
    "Keras",
    "`BackupAndRestore(save_freq=5)`",
    "a warning at the start, and an error instead of the epoch again",
)
def test_backup_and_restore_within_an_epoch(store: Path, tmp_path: Path) -> None:
    """With save_freq=5, BackupAndRestore would train on the first samples of the epoch again: a run says so when it
    begins, and one that was restored ends before its first step, with the line to write."""
    model, data = make_model(), make_data(store)
    with (
        pytest.warns(UserWarning, match=r"does not save the position.*checkpoint\(folder\)"),
        pytest.raises(StoppedError),
    ):
        model.fit(data, shuffle=False, epochs=3, callbacks=[backed_up(tmp_path, 5), stop_after(STEPS + 9)], verbose=0)
    trained = sum(counts(model))
    model, data = make_model(), make_data(store)
    with pytest.raises(UsageError, match=r"saved in epoch 1, but not the position.*data\.checkpoint\(folder\)"):
        model.fit(data, shuffle=False, epochs=3, callbacks=[backed_up(tmp_path, 5)], verbose=0)
    assert 0 < sum(counts(model)) < trained
    data.set_epoch(1)  # the user means it
    model.fit(data, shuffle=False, epochs=2, callbacks=[backed_up(tmp_path, 5)], verbose=0)


@way(
    "Keras",
    "weights loaded by hand, batches that were not told where to begin",
    "a warning",
)
def test_an_optimizer_that_has_made_steps_meets_fresh_batches(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that were loaded by hand may mean a run that resumes: one warning says how, and how to say that it is
    another training. Nothing is said of the same batches in another `fit`, of evaluations, and where a place was
    named."""
    monkeypatch.setattr("rawpack.system.user.warned", set())
    model, data = make_model(), make_data(store)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model.fit(data, shuffle=False, epochs=1, validation_data=make_data(store, shuffle=False), verbose=0)
        model.fit(data, shuffle=False, epochs=1, validation_data=make_data(store, shuffle=False), verbose=0)
        model.evaluate(make_data(store, shuffle=False), verbose=0)
        named = make_data(store)
        named.set_epoch(0)
        model.fit(named, shuffle=False, epochs=1, verbose=0)
    assert [str(one.message) for one in caught if "optimizer of this model" in str(one.message)] == []
    with pytest.warns(UserWarning, match=rf"has made {3 * STEPS} steps, and these batches begin with epoch 0") as told:
        model.fit(make_data(store), shuffle=False, epochs=1, verbose=0)
    assert sum("optimizer of this model" in str(one.message) for one in told) == 1


@pytest.mark.parametrize(
    "wrong", ["shuffled", "steps", "epoch", "evaluated", "other", "unbuilt", "damaged", "execution"]
)
def test_what_a_checkpoint_cannot_count_is_refused(store: Path, tmp_path: Path, wrong: str) -> None:
    """With the cure, before a wrong position is saved."""
    if (BACKEND, wrong) == ("torch", "execution"):
        pytest.skip("Keras itself refuses that under PyTorch")
    model, data = make_model(), make_data(store)
    checkpoint = data.checkpoint(tmp_path, every=2)
    more: list[Any] = []
    options: dict[str, Any] = {}
    words = "pass that dataset to fit"
    match wrong:
        case "shuffled":
            # Keras's default. Whatever it draws, it does not begin with batches 0 to 12 in their order.
            options["shuffle"], words = True, r"was asked for instead of batch .* Write fit\(data, shuffle=False\)"
        case "steps":
            options["steps_per_epoch"] = 5
        case "epoch":
            model.fit(data, shuffle=False, epochs=1, callbacks=[checkpoint], verbose=0)
            words = "fit.. begins with epoch 0, but .* was saved in epoch 1: pass initial_epoch="
        case "evaluated":
            # As `evaluate` uses it; JAX's own state does not survive an `evaluate` here.
            more = [Calls(lambda steps: steps == 3 and (data.on_epoch_end(), list(data), data.on_epoch_end()))]
            words = "give evaluate.* a dataset of their own"
        case "other":
            checkpoint = make_data(store, drop_last=True).checkpoint(tmp_path)
        case "unbuilt":
            model.fit(data, shuffle=False, epochs=1, callbacks=[checkpoint], verbose=0)
            model = keras.Sequential([keras.layers.Dense(4)])
            model.compile("sgd", "mse")
            checkpoint.set_model(model)
            with pytest.raises(UsageError, match="build the model before fit"):
                checkpoint.on_train_begin()
            return
        case "damaged":
            (tmp_path / "checkpoint.json").write_text('{"version": 2}')
            words = "checkpoint.json is not a checkpoint"
        case "execution":
            model, words = make_model(steps_per_execution=2), "steps_per_execution=2 does not divide the 13 batches"
    with pytest.raises(Exception, match=words):
        model.fit(data, epochs=2, callbacks=[checkpoint, *more], verbose=0, **{"shuffle": False} | options)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no such thing under PyTorch")
def test_several_steps_in_one_execution(store: Path, tmp_path: Path) -> None:
    """Where they divide the batches, they are counted, and a run resumes."""
    few = {"fields": ["image", "number", "label"], "drop_last": True}
    model, data = make_model(steps_per_execution=3), make_data(store, **few)
    with pytest.raises(StoppedError):
        model.fit(
            data, shuffle=False, epochs=2, callbacks=[data.checkpoint(tmp_path, every=3), stop_after(2)], verbose=0
        )
    state = json.loads((tmp_path / "checkpoint.json").read_text())["state"]
    assert (state["epoch"], state["position"]) == (0, 6 * BATCH)
    model, data = make_model(steps_per_execution=3), make_data(store, **few)
    model.fit(data, shuffle=False, epochs=2, callbacks=[data.checkpoint(tmp_path)], verbose=0)
    seen = sorted(counts(model))
    assert (sum(seen), seen[0] >= 0, seen[-1]) == (2 * 12 * BATCH, True, 2)


def test_several_labels_and_weights(store: Path) -> None:
    """Outputs by name and in order, weights of samples, and Keras's weights of classes: the loss is the one that numpy
    computes."""
    reader = Reader(store)
    image = keras.Input((8, 8, 3), name="image")
    features = keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(image))
    outputs = {name: keras.layers.Dense(4, "softmax", name=name)(features) for name in ("a", "b")}
    loss = "sparse_categorical_crossentropy"
    named, in_order = keras.Model(image, outputs), keras.Model(image, list(outputs.values()))
    named.compile("sgd", {"a": loss, "b": loss})
    in_order.compile("sgd", [loss, loss])
    batches = reader.batches(BATCH, workers=0)
    by_name = batches.keras(y={"a": "label", "b": "label"})
    predicted = {name: np.asarray(array) for name, array in named.predict(by_name, verbose=0).items()}
    labels = reader.column("label")
    losses = {name: -np.log(array[np.arange(SAMPLES), labels]) for name, array in predicted.items()}
    expected = sum(one.mean() for one in losses.values())
    assert named.evaluate(by_name, verbose=0)[0] == pytest.approx(expected, rel=1e-4)
    assert in_order.evaluate(batches.keras(y=["label", "label"]), verbose=0)[0] == pytest.approx(expected, rel=1e-4)
    one = keras.Model(image, outputs["a"])
    one.compile("sgd", loss)
    weighted = one.evaluate(batches.keras(y="label", sample_weight="label"), verbose=0)
    assert weighted == pytest.approx((losses["a"] * labels).sum() / SAMPLES, rel=1e-4)
    one.compile(keras.optimizers.SGD(0.0), loss)
    history = one.fit(batches.keras(y="label"), shuffle=False, class_weight={0: 0, 1: 1, 2: 2, 3: 3}, verbose=0).history
    assert history["loss"][0] == pytest.approx((losses["a"] * labels).sum() / SAMPLES, rel=1e-4)


def test_lists_are_refused_by_name(tmp_path: Path) -> None:
    """Texts, and boxes that are not padded; padded ones are arrays. Under JAX, so are numbers that it would cut."""
    import rawpack_packer

    samples = [
        {"image": picture(8, 8, i), "boxes": np.ones((i, 5), np.float32), "text": "a" * i, "id": i + (1 << 40)}
        for i in range(4)
    ]
    rawpack_packer.pack(samples, tmp_path / "store", fields={"boxes": "float32[?,5]"}, workers=0, format="memmap")
    reader, names = Reader(tmp_path / "store"), ["image", "boxes", "text", "id"]
    batches = reader.batches(4, fields=names, workers=0)
    with pytest.raises(UsageError, match=r"'text' is a list in a batch, which Keras does not take: name other fields$"):
        batches.keras(y="text")
    with pytest.raises(UsageError, match=r"'boxes' is a list.* or pass ragged=\"pad\" or a length to batches\(\)"):
        batches.keras(x=["image", "boxes"])
    padded = reader.batches(4, fields=names, workers=0, ragged="pad")
    if BACKEND == "tensorflow":
        with pytest.raises(UsageError, match=r"shape of 'boxes' differs from batch to batch.* batches.tf_data\(\)"):
            padded.keras(y="boxes")
    else:
        [(_, boxes)] = padded.keras(y="boxes")
        assert boxes.shape == (4, 3, 5)
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


def test_batches_of_several_sizes(tmp_path: Path) -> None:
    """Where Keras takes their shapes as they come; with TensorFlow, by a signature that is open where they differ."""
    from PIL import Image

    import rawpack_packer

    images = [{"image": Image.fromarray(picture(8, 8 + 4 * (i > 3), i)), "label": i % 2} for i in range(12)]
    rawpack_packer.pack(images, tmp_path / "store", size="keep", workers=0)
    batches = Reader(tmp_path / "store").batches(2, workers=0, image_size=Buckets([(8, 8), (8, 12)]))
    image = keras.Input((None, None, 3))
    outputs = keras.layers.Dense(2, "softmax")(keras.layers.GlobalAveragePooling2D()(image))
    model = keras.Model(image, outputs)
    model.compile("sgd", "sparse_categorical_crossentropy")
    if BACKEND == "tensorflow":
        with pytest.raises(UsageError, match=r"shape of 'image' differs from batch to batch.* batches.tf_data\(\)"):
            batches.keras(y="label")
        data = batches.tf_data(x="image", y="label")
    else:
        data = batches.keras(y="label")
    model.fit(data, epochs=2, shuffle=False, verbose=0)
    assert batches.stats()["samples"] >= 24
