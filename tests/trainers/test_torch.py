"""Training with plain torch and torchdata, for real: small models that learn, in processes that are killed and resumed.

Users can rely on this: with DistributedDataParallel, the ranks share each epoch, take the same number of steps, and
evaluate each sample once. A run that is killed resumes with exactly the samples that no optimizer step has used, with
the same or another number of ranks.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal, assert_equal
from pictures import picture, save
from trained import KILLED, UNTRAINED, numbered_store, numbers_of, order_of, run_script, steps_in
from ways import way

import rawpack_packer
from rawpack import Reader

torch = pytest.importorskip("torch")

SCRIPTS = Path(__file__).parent / "scripts"
PAGE = Path(__file__).parents[2] / "docs/how-to/train-with-pytorch.md"
SAMPLES = 46
"""Of the store that training resumes on: they divide into steps of one rank, but not of two or three."""

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore:This DataLoader will create:UserWarning",
    "ignore:.set_vital. is deprecated:UserWarning",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", SAMPLES)


def train(script: str, *arguments: object, ranks: int = 1, code: int = 0) -> list[str]:
    """Run a script of this folder; what each rank printed."""
    return run_script(SCRIPTS / f"{script}.py", *arguments, ranks=ranks, code=code, timeout=120, preloaded=True)


def test_the_script_of_the_page(tmp_path: Path) -> None:
    """The script for several GPUs in docs/how-to/train-with-pytorch.md runs as it is there, with two ranks."""
    blocks = re.findall(r"^```python notest\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (script,) = (block for block in blocks if "DistributedDataParallel" in block)
    (tmp_path / "train.py").write_text(script)
    for name, samples in (("train", 61), ("val", 23)):
        for number in range(samples):
            image = np.full((20, 20, 3), 40 + number % 4 * 60, np.uint8)
            save(tmp_path / name / "abcd"[number % 4] / f"{number}.png", image)
        rawpack_packer.pack(tmp_path / name, tmp_path / "store" / name, size=16, workers=0)
    printed = run_script(tmp_path / "train.py", ranks=2, cwd=tmp_path, timeout=120, preloaded=True)
    found = re.findall(r"^epoch (\d): loss (\S+), (\d+) of 23 right$", printed[0], re.MULTILINE)
    assert [epoch for epoch, _, _ in found] == ["0", "1", "2"]
    assert float(found[2][1]) < float(found[0][1])
    assert "epoch" not in printed[1]


# ---------------------------------------------------------------------------------------------- killed and resumed


@pytest.fixture(scope="module")
def killed(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with two ranks that was killed in epoch 1.

    An epoch has 12 batches of 2, or 4 optimizer steps, each of 3 batches.
    """
    folder = tmp_path_factory.mktemp("killed")
    arguments = (store, folder / "journal", folder / "checkpoint", 3, "--kill-after", 6)
    train("resume", *arguments, ranks=2, code=KILLED)
    return folder


@way("PyTorch", "a loop over `batches.torch()`", "to the sample, also with another number of ranks")
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_killed_run_resumes(store: Path, killed: Path, tmp_path: Path, ranks: int) -> None:
    """After SIGKILL in the middle of an epoch, with workers that prefetch and with gradient accumulation, a run with
    another number of ranks trains on exactly the samples that were in no optimizer step. Those of the unfinished
    accumulation are among them: they were seen before, but their gradients were lost."""
    folder, order = shutil.copytree(killed, tmp_path / "run"), order_of(store, 1)
    assert numbers_of(steps_in(folder / "journal"), 1) == sorted(order[:24])
    assert numbers_of(steps_in(folder / "journal/seen"), 1) == sorted(order[:28])
    printed = train("resume", store, folder / "again", folder / "checkpoint", 3, ranks=ranks)
    found, rest = steps_in(folder / "again"), order[24:]
    assert numbers_of(found, 1) == sorted(rest + order[: -len(rest) % ranks])
    assert sorted(set(numbers_of(found, 2))) == list(range(SAMPLES))
    assert {step.epoch for step in found} == {1, 2}
    assert len({sum(step.rank == rank for step in found) for rank in range(ranks)}) == 1
    assert float(printed[0].split()[-1]) < 0.8 * UNTRAINED


def test_a_killed_run_ends_with_the_same_weights(store: Path, killed: Path, tmp_path: Path) -> None:
    """Two ranks share each epoch, with as many steps each; killed and resumed, with random flips and Adam, the samples
    of each step are those of a run that nobody killed, and the weights, to the bit."""
    resumed, whole = shutil.copytree(killed, tmp_path / "run"), tmp_path / "whole"
    for folder in (resumed, whole):
        train("resume", store, folder / "journal", folder / "checkpoint", 3, ranks=2)
    steps = steps_in(whole / "journal")
    assert [numbers_of(steps, epoch) for epoch in range(3)] == [list(range(SAMPLES))] * 3
    assert [step.rank for step in steps] == [0] * 12 + [1] * 12
    assert steps_in(resumed / "journal") == steps
    weights, expected = (torch.load(folder / "checkpoint")["model"] for folder in (resumed, whole))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


# ---------------------------------------------------------------------------------------------- torchdata


@way("torchdata", "`StatefulDataLoader` without workers; nodes that prefetch", "to the sample")
@pytest.mark.parametrize("kind", ["stateful", "nodes"])
def test_a_killed_run_resumes_through_torchdata(store: Path, tmp_path: Path, kind: str) -> None:
    """The state of a StatefulDataLoader, or of nodes that prefetch, resumes after SIGKILL with exactly the samples that
    were not trained on."""
    pytest.importorskip("torchdata")
    journal = tmp_path / "journal"
    arguments = (store, journal, tmp_path / "checkpoint", 3, "--loader", kind)
    train("resume", *arguments, "--kill-after", 11, code=KILLED)
    assert numbers_of(steps_in(journal), 1) == sorted(order_of(store, 1)[:18])
    (printed,) = train("resume", *arguments)
    for epoch in range(3):
        trained = [number for step in steps_in(journal) if step.epoch == epoch for number in step.numbers]
        assert trained == order_of(store, epoch)
    assert float(printed.split()[-1]) < 0.8 * UNTRAINED


def test_ranks_with_other_seeds_are_found_out(store: Path, tmp_path: Path) -> None:
    """Three processes with one seed share an epoch. With several seeds, all but the first that comes raise."""
    train("seeds", store, tmp_path, ranks=3)
    found = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(3)]
    read = [number for one in found for number in one["one seed"]]
    assert (len(read), set(read)) == (48, set(range(SAMPLES)))
    errors = {rank: one["several seeds"] for rank, one in enumerate(found) if isinstance(one["several seeds"], str)}
    (first,) = {0, 1, 2} - errors.keys()
    for rank, error in errors.items():
        assert f"rank {rank} does not read in the order of rank {first}: seed={rank} here and {first}" in error


# ---------------------------------------------------------------------------------------------- what is packed


def test_targets_of_tensors_are_packed_as_those_of_arrays(tmp_path: Path) -> None:
    """Image, boxes, labels and masks, as torchvision's tutorial on detection makes them."""
    boxes = np.array([[2, 3, 20, 11], [5, 9, 30, 15]], np.float32)
    masks = np.zeros((2, 16, 40), np.uint8)
    masks[0, 3:11, 2:20] = masks[1, 11:15, 5:30] = 1
    target = {"boxes": boxes, "labels": np.array([2, 1]), "image_id": np.array([7]), "masks": masks}
    tensors = {name: torch.from_numpy(value) for name, value in target.items()}
    samples = []
    for name, one in (("arrays", target), ("tensors", tensors)):
        rawpack_packer.pack([(picture(16, 40, 0), one)], tmp_path / name, workers=0)
        samples.append(Reader(tmp_path / name)[0])
    assert_equal(*samples)
    assert_array_equal(samples[1]["boxes"], np.column_stack([boxes, target["labels"]]))
    assert_array_equal(samples[1]["instances"][..., 0], masks[0] + 2 * masks[1])
