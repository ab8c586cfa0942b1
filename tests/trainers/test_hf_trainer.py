"""The Hugging Face Trainer trains from a store: each sample once an epoch over all processes, also after a kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from accelerate_page import TRAIN, VAL, new_run, pack_sets, train, trained_in
from trained import numbers_of, steps_in

pytest.importorskip("transformers")
load_file = pytest.importorskip("safetensors.numpy").load_file

EPOCHS, STEPS = 2, 5
SAVED = 2
"""Batches of epoch 1 before the last checkpoint of a run that is killed."""


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`new(name)`: a folder to run the page's script in."""
    root = tmp_path_factory.mktemp("trainer")
    sets = pack_sets(root)
    return lambda name: new_run(root / name, sets, "transformers")


@pytest.fixture(scope="module")
def whole(new: Callable[[str], Path]) -> Path:
    """A run that nobody disturbed, in two processes."""
    folder = new("whole")
    (folder / "printed").write_text(train(folder, 2))
    return folder


@pytest.fixture(scope="module")
def killed(new: Callable[[str], Path]) -> Path:
    """A run in two processes that was killed in epoch 1, one step of two batches after its last checkpoint."""
    folder = new("killed")
    train(folder, 2, limit=STEPS + SAVED + 2)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["checkpoint-2", "checkpoint-4"]
    return folder


def resumed(new: Callable[[str], Path], killed: Path, ranks: int) -> Path:
    folder = new(f"resumed-{ranks}")
    shutil.copytree(killed / "checkpoints", folder / "checkpoints")
    (folder / "printed").write_text(train(folder, ranks))
    return folder


def test_each_sample_is_trained_on_once_an_epoch(whole: Path) -> None:
    """Two processes together train on every sample once in each epoch, in as many batches, and in another order."""
    steps = trained_in(whole)
    assert [numbers_of(steps, epoch) for epoch in range(EPOCHS)] == [list(range(TRAIN))] * EPOCHS
    assert [len(trained_in(whole, rank)) for rank in range(2)] == [EPOCHS * STEPS] * 2
    assert len({step.numbers for step in steps}) == len(steps)


def test_trainer_counts_as_with_a_dataloader(whole: Path) -> None:
    """Steps, with that of the last batch alone, and samples a second are those of the whole data."""
    assert "6 steps, 2 epochs" in (whole / "printed").read_text()
    state = json.loads((whole / "checkpoints" / "checkpoint-6" / "trainer_state.json").read_text())
    assert (state["global_step"], state["max_steps"], state["epoch"], state["train_batch_size"]) == (6, 6, 2.0, 4)
    (summary,) = [line for line in (whole / "printed").read_text().splitlines() if "train_samples_per_second" in line]
    values = {name: float(value) for name, value in json.loads(summary[summary.index("{") :].replace("'", '"')).items()}
    assert values["train_runtime"] * values["train_samples_per_second"] == pytest.approx(EPOCHS * TRAIN, rel=0.02)


def test_evaluation_counts_each_sample_once(whole: Path) -> None:
    """One sample is read twice, so that both processes have equal batches; `compute_metrics` does not see the second."""
    read = steps_in(whole / "seen" / "eval")
    assert len([number for step in read for number in step.numbers]) == EPOCHS * (VAL + 1)
    state = json.loads((whole / "checkpoints" / "checkpoint-6" / "trainer_state.json").read_text())
    assert [entry["eval_of"] for entry in state["log_history"] if "eval_of" in entry] == [VAL] * EPOCHS


def test_a_killed_run_resumes_to_the_same_model(whole: Path, killed: Path, new: Callable[[str], Path]) -> None:
    """After a kill, two new processes train on what the checkpoint had not seen, and end with the same weights."""
    folder = resumed(new, killed, 2)
    for rank in range(2):
        assert trained_in(killed, rank) == trained_in(whole, rank)[: STEPS + SAVED + 2]
        assert trained_in(folder, rank) == trained_in(whole, rank)[STEPS + SAVED :]
    weights, expected = (load_file(run / "model" / "model.safetensors") for run in (folder, whole))
    assert all(np.array_equal(weights[name], expected[name]) for name in expected)
    assert "6 steps, 2 epochs" in (folder / "printed").read_text()


def test_one_process_continues_what_two_began(whole: Path, killed: Path, new: Callable[[str], Path]) -> None:
    """Resumed by a single process with batches twice as large, each step has the samples that it has in two."""
    folder = resumed(new, killed, 1)
    pairs = zip(*(trained_in(whole, rank)[STEPS + SAVED :] for rank in range(2)), strict=True)
    assert [step.numbers for step in trained_in(folder)] == [one.numbers + other.numbers for one, other in pairs]
    weights, expected = (load_file(run / "model" / "model.safetensors") for run in (folder, whole))
    assert all(np.allclose(weights[name], expected[name], atol=1e-4) for name in expected)
    assert "6 steps, 2 epochs" in (folder / "printed").read_text()
