"""Accelerate trains from a store: each sample once an epoch over all processes, also after a kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerate_page import ON_CPU, TRAIN, VAL, new_run, pack_sets, train, trained_in
from trained import numbered_store, numbers_of, run_script, steps_in
from ways import way

from rawpack import Reader, UsageError

pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:This DataLoader will create:UserWarning")
load_file = pytest.importorskip("safetensors.numpy").load_file

EPOCHS, STEPS = 3, 5


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`new(name)`: a folder to run the page's script in."""
    root = tmp_path_factory.mktemp("accelerate")
    sets = pack_sets(root)
    return lambda name: new_run(root / name, sets, "accelerate")


@pytest.fixture(scope="module")
def whole(new: Callable[[str], Path]) -> Path:
    """A run that nobody disturbed, in two processes."""
    folder = new("whole")
    (folder / "printed").write_text(train(folder, 2))
    return folder


@pytest.fixture(scope="module")
def killed(new: Callable[[str], Path]) -> Path:
    """A run in two processes that was killed in epoch 1, one batch after its last checkpoint."""
    folder = new("killed")
    train(folder, 2, limit=STEPS + 3)
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == ["000-000000032", "001-000000016"]
    return folder


def resumed(new: Callable[[str], Path], killed: Path, ranks: int) -> Path:
    folder = new(f"resumed-{ranks}")
    shutil.copytree(killed / "checkpoints", folder / "checkpoints")
    train(folder, ranks)
    return folder


def test_each_sample_counts_once(whole: Path) -> None:
    """Two processes together train on every sample once in each epoch, in as many steps. In evaluation, one sample is
    read twice, so that both processes have equal batches; `gather_for_metrics` does not count the second."""
    steps, printed = trained_in(whole), (whole / "printed").read_text()
    assert [numbers_of(steps, epoch) for epoch in range(EPOCHS)] == [list(range(TRAIN))] * EPOCHS
    assert [len(trained_in(whole, rank)) for rank in range(2)] == [EPOCHS * STEPS] * 2
    assert len({step.numbers for step in steps}) == len(steps)
    assert numbers_of(steps_in(whole / "seen" / "eval"), 0) == sorted([*range(VAL), 0])
    assert printed.count(f" of {VAL} correct") == EPOCHS, printed
    assert "bound" in printed.splitlines()[-1]


@way(
    "Accelerate",
    "`batches.accelerate(accelerator)`, two processes, accumulation",
    "to the sample, and to the same weights",
)
def test_a_killed_run_resumes_to_the_same_model(whole: Path, killed: Path, new: Callable[[str], Path]) -> None:
    """After a kill, two new processes train on what the checkpoint had not seen, and end with the same weights."""
    folder = resumed(new, killed, 2)
    for rank in range(2):
        assert trained_in(killed, rank) == trained_in(whole, rank)[: STEPS + 3]
        assert trained_in(folder, rank) == trained_in(whole, rank)[STEPS + 2 :]
    weights, expected = (load_file(run / "model" / "model.safetensors") for run in (folder, whole))
    assert all(np.array_equal(weights[name], expected[name]) for name in expected)


@way("Accelerate", "the same, resumed by one process", "to the sample")
def test_one_process_continues_what_two_began(killed: Path, new: Callable[[str], Path]) -> None:
    """Resumed by a single process, the epoch continues with the samples that two had not trained on."""
    folder = resumed(new, killed, 1)
    before = [step for rank in range(2) for step in trained_in(killed, rank)[: STEPS + 2]]
    steps = before + trained_in(folder)
    assert [numbers_of(steps, epoch) for epoch in range(EPOCHS)] == [list(range(TRAIN))] * EPOCHS


# --------------------------------------------------------------------------------------------- claims of the page

SAMPLES, BATCH, ACCUMULATED, RATE = 36, 4, 2, 0.05


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What scripts/claims.py found in each of two processes."""
    folder = tmp_path_factory.mktemp("claims")
    numbered_store(folder / "store", SAMPLES)
    run_script(Path(__file__).parent / "scripts" / "claims.py", folder, ranks=2, preloaded=("accelerate",), **ON_CPU)
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(2)]


def test_prepare_leaves_the_loader_alone(claims: list[dict[str, Any]]) -> None:
    """Batches for Accelerate come back from `prepare` as they were, although they have the attributes of a DataLoader.
    Others are refused, with what to pass instead."""
    for one in claims:
        assert one["untouched"]
        assert one["read"] == [True, BATCH, False, 0, None]
        assert len(one["unprepared"]) == 2
        assert all("pass batches.accelerate(accelerator) to prepare()" in line for line in one["unprepared"])


def test_the_last_group_of_an_epoch_makes_a_step(claims: list[dict[str, Any]]) -> None:
    """Five batches are three steps, and the weight is that of a computation by hand."""
    batches = [iter(one["batches"]) for one in claims]
    weight, sizes = 1.0, [2, 2, 1] * EPOCHS
    for size in sizes:
        group = [next(of_rank) for of_rank in batches for _ in range(size)]
        gradients = [2 * weight * np.mean((np.array(batch) / SAMPLES) ** 2) for batch in group]
        weight -= RATE * float(np.sum(gradients)) / ACCUMULATED / len(claims)
    assert [one["steps"] for one in claims] == [len(sizes)] * 2
    assert [one["weight"] for one in claims] == pytest.approx([weight] * 2, rel=1e-9)


def test_ranks_are_those_of_accelerate(claims: list[dict[str, Any]]) -> None:
    """Of batches without ranks, each process reads its part, and each sample counts once. Where Accelerate does not say
    the ranks, the first batch is an error; batches with all samples, or of the other rank, are refused: each with the
    line to write."""
    own = [number for one in claims for batch in one["own"] for number in batch]
    assert sorted(own) == list(range(SAMPLES))
    for rank, one in enumerate(claims):
        assert one["alone"] == '2 processes: ranks="auto" (each reads half) or ranks=(0, 1) (each reads everything)'
        assert [line.split(", but ")[0].split("rank ")[1] for line in one["refused"]] == ["0 of 1", f"{1 - rank} of 2"]
        assert all(f'process {rank} of 2: pass ranks="auto" to batches()' in line for line in one["refused"])


@way("Accelerate", "batches with ranks in a `DataLoader` that is prepared", "an error at the first batch")
@pytest.mark.parametrize("kind", ["dispatched", "sharded"])
def test_batches_with_ranks_are_not_divided_again(tmp_path: Path, kind: str) -> None:
    """What Accelerate makes of a DataLoader that is prepared, with and without `dispatch_batches`, divides what it is
    given between the processes. Of batches that have ranks it raises; others it reads, all."""
    import torch
    from accelerate import PartialState
    from accelerate.data_loader import DataLoaderDispatcher, IterableDatasetShard

    PartialState(cpu=True)
    reader = Reader(numbered_store(tmp_path / "store", 16))

    def loader(**options: Any) -> Any:
        batches = reader.batches(4, fields=["number"], workers=0, **options)
        if kind == "dispatched":
            return DataLoaderDispatcher(batches, batch_size=None)
        shard = IterableDatasetShard(batches, batch_size=1, num_processes=2, process_index=1)
        return torch.utils.data.DataLoader(shard, batch_size=None)

    with pytest.raises(UsageError, match=r"one rank's.*\.accelerate\(accelerator\)"):
        list(loader(ranks=(0, 2)))
    read = [number for batch in loader() for number in batch["number"].tolist()]
    assert set(read) <= set(range(16))
    if kind == "dispatched":
        assert sorted(read) == list(range(16))
