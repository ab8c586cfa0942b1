"""The Hugging Face Trainer trains from a store: each sample once an epoch over all processes, also
where a run is resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from accelerate_page import ON_CPU, TRAIN, VAL, new_run, pack_sets, train, trained_in
from trained import numbered_store, numbers_of, run_script, steps_in
from ways import way

pytest.importorskip("transformers")
load_file = pytest.importorskip("safetensors.numpy").load_file

CLAIMS = Path(__file__).parent / "scripts" / "claims_hf.py"
IMPORTED = ("accelerate", "transformers.trainer")
EPOCHS, STEPS = 2, 5
SAVED = 2
"""Batches of epoch 1 before the checkpoint that runs are resumed from."""


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
    (folder / "printed").write_text(train(folder, 2, imports=IMPORTED))
    return folder


def resumed(new: Callable[[str], Path], whole: Path, ranks: int) -> Path:
    """A run that began at the second checkpoint of another one."""
    folder = new(f"resumed-{ranks}")
    shutil.copytree(whole / "checkpoints" / "checkpoint-4", folder / "checkpoints" / "checkpoint-4")
    assert "6 steps, 2 epochs" in train(folder, ranks, imports=IMPORTED)
    return folder


def test_each_sample_is_trained_on_once_an_epoch(whole: Path) -> None:
    """Two processes together train on every sample once in each epoch, in as many batches, and in another order.
    Trainer counts steps and samples of the whole data; `compute_metrics` sees each sample once, also the one that is
    read twice, so that both processes have equal batches."""
    steps, printed = trained_in(whole), (whole / "printed").read_text()
    assert [numbers_of(steps, epoch) for epoch in range(EPOCHS)] == [list(range(TRAIN))] * EPOCHS
    assert [len(trained_in(whole, rank)) for rank in range(2)] == [EPOCHS * STEPS] * 2
    assert len({step.numbers for step in steps}) == len(steps)
    assert "6 steps, 2 epochs" in printed
    state = json.loads((whole / "checkpoints" / "checkpoint-6" / "trainer_state.json").read_text())
    assert (state["global_step"], state["max_steps"], state["epoch"], state["train_batch_size"]) == (6, 6, 2.0, 4)
    read = steps_in(whole / "seen" / "eval")
    assert len([number for step in read for number in step.numbers]) == EPOCHS * (VAL + 1)
    assert printed.count(f"'eval_of': {VAL},") == EPOCHS


@way(
    "Hugging Face Trainer",
    "`StoreTrainerMixin`, two processes, accumulation",
    "to the sample, and to the same weights",
)
def test_a_resumed_run_ends_with_the_same_model(whole: Path, new: Callable[[str], Path]) -> None:
    """New processes train on what the checkpoint had not seen, read nothing else, and end with the same weights."""
    folder = resumed(new, whole, 2)
    for rank in range(2):
        assert trained_in(folder, rank) == trained_in(whole, rank)[STEPS + SAVED :]
    weights, expected = (load_file(run / "model" / "model.safetensors") for run in (folder, whole))
    assert all(np.array_equal(weights[name], expected[name]) for name in expected)


@way("Hugging Face Trainer", "the same, resumed by one process with batches twice as large", "to the sample")
def test_one_process_continues_what_two_began(whole: Path, new: Callable[[str], Path]) -> None:
    """Resumed by a single process with batches twice as large, each step has the samples that it has in two."""
    folder = resumed(new, whole, 1)
    pairs = zip(*(trained_in(whole, rank)[STEPS + SAVED :] for rank in range(2)), strict=True)
    assert [step.numbers for step in trained_in(folder)] == [one.numbers + other.numbers for one, other in pairs]


def test_evaluation_with_the_mixin(tmp_path: Path) -> None:
    """13 samples are 13 in one process and in two, and `eval_loss` is exact in one."""
    numbered_store(tmp_path / "odd", 13)
    for ranks in (1, 2):
        run_script(CLAIMS, tmp_path, ranks=ranks, preloaded=IMPORTED, **ON_CPU)
    labels = np.arange(13) % 4
    one, first, second = (json.loads((tmp_path / f"found-{which}.json").read_text()) for which in ("1-0", "2-0", "2-1"))
    assert first == second
    assert one["loss"] == pytest.approx(labels.mean())
    for found in (one, first):
        assert found["of"] == 13
        assert found["predicted"] == sorted(labels.tolist())
        assert "3 samples, and TrainingArguments say 4: pass per_device_eval_batch_size=" in found["other size"]
