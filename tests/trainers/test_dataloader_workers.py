"""torch's own DataLoader around batches or a reader: each sample once, never silently more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS, rows_of
from running import environment
from ways import way

from rawpack import Reader, UsageError
from rawpack.transforms import Lambda, Views

data: Any = pytest.importorskip("torch.utils.data", reason="torch is not installed")
torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning", "ignore::DeprecationWarning", "ignore:.set_vital"
)
SAMPLES, BATCH = 23, 4
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def few(reader: Reader) -> Reader:
    return reader.select(range(10, 10 + SAMPLES))


@pytest.mark.parametrize("way", WAYS)
def test_a_dataloader(few: Reader, way: str) -> None:
    """A DataLoader around batches gives tensors of each sample once, with any number of workers."""
    whole = rows_of(few.batches(BATCH, shuffle=True, workers=0))
    for workers in (0, 2, 3):
        batches = few.batches(BATCH, shuffle=True, **WAYS[way])
        batches.set_epoch(0)
        loader = data.DataLoader(batches, batch_size=None, num_workers=workers)
        found = list(loader)
        assert len(found) == len(loader)
        assert type(found[0]["image"]).__name__ == "Tensor"
        assert rows_of(found) == whole


EPOCHS = """
import json, sys
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from rawpack import Reader

class Own(IterableDataset):
    def __iter__(self):
        return iter(made())

def made():
    return Reader(sys.argv[1]).batches(1, shuffle=True, seed=4, workers=0)

dataset, orders = Own() if "own" in sys.argv else made(), []
kind = StatefulDataLoader if "stateful" in sys.argv else DataLoader
loader = kind(dataset, batch_size=None, num_workers=2, persistent_workers="persistent_workers" in sys.argv)
for epoch in range(3):
    if "set_epoch" in sys.argv:
        dataset.set_epoch(epoch)
    if "new" in sys.argv:
        loader = DataLoader(made(), batch_size=None, num_workers=2)
    if "left" in sys.argv:
        next(iter(loader))
    orders.append([row for batch in loader for row in batch["index"].tolist()])
print(json.dumps(orders))
"""


@way(
    "PyTorch",
    "a `DataLoader` around new batches in each epoch",
    "the same epoch again, with a warning",
)
@pytest.mark.parametrize(
    ("how", "epochs", "warnings"),
    [
        (["set_epoch"], [0, 1, 2], 0),
        (["persistent_workers"], [0, 1, 2], 0),
        ([], [0, 1, 2], 0),
        (["stateful"], [0, 1, 2], 0),
        (["left"], [1, 3, 5], 0),
        (["new"], [0, 0, 0], 1),
        (["own"], [0, 0, 0], 1),
        (["own", "persistent_workers"], [0, 0, 0], 1),
    ],
    ids=str,
)
def test_epochs_of_a_dataloader(store: Path, how: list[str], epochs: list[int], warnings: int) -> None:
    """Each loop is the next epoch: with set_epoch or without, with workers that stay or new ones, also where a loop
    before was left. Where each loop has batches of its own, or a dataset calls batches() itself, each epoch is the
    first one again, and one warning says so."""
    ran = subprocess.run(
        [sys.executable, "-c", EPOCHS, str(store), *how], env=environment(), capture_output=True, text=True, check=True
    )
    alone = Reader(store).batches(1, shuffle=True, seed=4, workers=0)
    orders = [rows_of(alone) for _ in range(6)]
    assert json.loads(ran.stdout) == [orders[epoch] for epoch in epochs]
    assert ran.stderr.count("rawpack: epoch 0 is read again, with the same order: each loop over a Data") == warnings


def test_a_reader_is_a_map_style_dataset(few: Reader) -> None:
    """A DataLoader indexes a reader, and stacks its samples."""
    for workers in (0, 2):
        found = list(data.DataLoader(few, batch_size=BATCH, num_workers=workers))
        assert [len(batch["key"]) for batch in found] == [4] * 5 + [3]
        assert rows_of(found) == list(range(10, 33))
        together = np.concatenate([batch["image"].numpy() for batch in found])
        assert np.array_equal(together, few[list(range(SAMPLES))]["image"])


def loop(batches: Any, kind: Any = None, **options: Any) -> Any:
    return (kind or data.DataLoader)(batches, batch_size=None, num_workers=2, multiprocessing_context="fork", **options)


@way(
    "PyTorch",
    "a `DataLoader` with workers, and `batches.state_dict()`",
    "an error when the state is taken",
)
@way(
    "PyTorch",
    "a `DataLoader` with workers, and `batches.state_dict(after=n)`",
    "to the sample",
)
@pytest.mark.parametrize("persistent", [False, True], ids=["new workers", "workers that stay"])
@pytest.mark.parametrize("taken", [0, 1, 3, 6])
def test_states_where_workers_took_the_batches(few: Reader, persistent: bool, taken: int) -> None:
    """Batches do not know how many of them a DataLoader with workers has handed over: a state without their number is
    an error. With the number, the rest of the epoch, and the next, is what was not trained on, each sample once."""
    undisturbed = few.batches(BATCH, shuffle=True, workers=0)
    epochs = [rows_of(undisturbed) for _ in range(3)]
    batches = few.batches(BATCH, shuffle=True, workers=0)
    loader = loop(batches, persistent_workers=persistent)
    assert rows_of(loader) == epochs[0]
    iterator = iter(loader)
    trained = rows_of(next(iterator) for _ in range(max(1, taken)))[: BATCH * taken]
    with pytest.raises(UsageError, match=r"state_dict\(after=n\)"):
        batches.state_dict()
    state = json.loads(json.dumps(batches.state_dict(after=taken)))
    assert (state["epoch"], state["position"]) == ((1, BATCH * taken) if taken < 6 else (2, 0))
    resumed = few.batches(BATCH, shuffle=True, workers=0)
    resumed.load_state_dict(state)
    rest = loop(resumed)
    if taken < 6:
        assert trained + rows_of(rest) == epochs[1]
    assert rows_of(rest) == epochs[2]


def test_states_where_nobody_took_batches(few: Reader) -> None:
    """Before the loop, after the user has said where to begin, and after a loop of this process, states are right."""
    batches = few.batches(BATCH, shuffle=True, workers=0)
    first, loader = batches.state_dict(), loop(batches)
    next(iter(loader))
    batches.load_state_dict(first)
    assert batches.state_dict() == first
    next(iter(loader))
    batches.set_epoch(4)
    assert batches.state_dict()["epoch"] == 4
    next(iter(loader))
    next(iter(batches))
    assert [batches.state_dict()[name] for name in ("epoch", "position")] == [5, BATCH]


def test_two_loops_at_once(few: Reader) -> None:
    """Two loops over the same batches whose workers begin at the same time take two epochs, none a mixture."""
    alone = few.batches(1, shuffle=True, workers=0)
    epochs = [rows_of(alone) for _ in range(2)]
    for _ in range(5):
        batches = few.batches(1, shuffle=True, workers=0)
        one, other = iter(loop(batches)), iter(loop(batches))
        assert sorted([rows_of(one), rows_of(other)]) == sorted(epochs)


def test_a_stateful_loader_resumes_in_a_later_epoch(few: Reader) -> None:
    """A state that a StatefulDataLoader took in epoch 1 before each of its workers had given a batch, without any
    set_epoch: the rest is that of epoch 1, and epoch 2 follows."""
    kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    alone = few.batches(BATCH, shuffle=True, workers=0)
    epochs = [rows_of(alone) for _ in range(3)]
    loader = loop(few.batches(BATCH, shuffle=True, workers=0), kind)
    assert rows_of(loader) == epochs[0]
    next(iter(loader))
    resumed = loop(few.batches(BATCH, shuffle=True, workers=0), kind)
    resumed.load_state_dict(loader.state_dict())
    assert [rows_of(resumed) for _ in range(2)] == [epochs[1][BATCH:], epochs[2]]


@way("PyTorch", "a `DataLoader` without workers, and `batches.state_dict()`", "to the sample")
def test_states_of_a_dataloader_without_workers(few: Reader) -> None:
    """Each batch counts when the loop gets it: the rest of the epoch, and the next, are what was not trained on."""
    alone = few.batches(BATCH, shuffle=True, workers=0)
    epochs = [rows_of(alone) for _ in range(3)]
    for taken in (1, 5, 6):
        batches = few.batches(BATCH, shuffle=True, workers=2)
        loader = data.DataLoader(batches, batch_size=None)
        assert rows_of(loader) == epochs[0]
        iterator = iter(loader)
        trained = rows_of(next(iterator) for _ in range(taken))
        resumed = few.batches(BATCH, shuffle=True, workers=0)
        resumed.load_state_dict(json.loads(json.dumps(batches.state_dict())))
        rest = rows_of(data.DataLoader(resumed, batch_size=None))
        if taken == 6:
            assert (trained, rest) == (epochs[1], epochs[2])
        else:
            assert trained + rest == epochs[1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"batch_size": 1}, {"batch_size": 8}, {"batch_size": 8, "drop_last": True}])
def test_batches_of_batches_are_refused(reader: Reader, options: dict[str, Any], workers: int) -> None:
    """A DataLoader whose `batch_size` is not None would add an axis in silence. So are tensors refused, which take the
    place of a DataLoader, whatever its `batch_size`."""
    loader = data.DataLoader(reader.batches(4, workers=0), num_workers=workers, **options)
    with pytest.raises(
        UsageError, match=r"write DataLoader\(batches, batch_size=None, num_workers=0\), or `for batch in"
    ):
        next(iter(loader))
    tensors = reader.batches(4, workers=0).torch()
    for chosen in (options, {"batch_size": None}):
        loader = data.DataLoader(tensors, num_workers=workers, **chosen)
        with pytest.raises(
            UsageError, match=r"take the place of a DataLoader of torch: write `for batch in batches.torch"
        ):
            next(iter(loader))


def test_what_torch_says_of_bytes_and_views(reader: Reader) -> None:
    """The page of troubleshooting has these words."""
    images = next(iter(reader.batches(4, workers=0).torch()))["image"]
    for wrong in (lambda: torch.nn.Conv2d(3, 1, 1)(images), lambda: images.view(4, -1)):
        with pytest.raises(RuntimeError) as said:
            wrong()
        assert str(said.value).partition(" (at")[0] in (ROOT / "docs/how-to/troubleshooting.md").read_text()


def test_modules_of_torch_are_no_steps(reader: Reader) -> None:
    """A module takes tensors, so it is refused before a worker gets it; a Lambda around one is called."""
    module = torch.nn.Sequential(torch.nn.Identity())
    for transform in (module, [module], [Views(2, [abs]), module]):
        with pytest.raises(UsageError, match="Sequential in transform= is a module of torch"):
            reader.batches(4, transform=transform)
    assert reader.batches(4, transform=[Lambda(module)], workers=0) is not None
