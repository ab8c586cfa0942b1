"""torch's own DataLoader around batches or a reader: each sample once, never silently more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import rows_of
from ways import way

from rawpack import Reader, UsageError

data: Any = pytest.importorskip("torch.utils.data", reason="torch is not installed")
torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning", "ignore::DeprecationWarning", "ignore:.set_vital"
)
SAMPLES, BATCH = 23, 4


@pytest.fixture(scope="module")
def few(reader: Reader) -> Reader:
    return reader.select(range(10, 10 + SAMPLES))


def first(loader: Any) -> Any:
    """Its first batch. The workers end here: once the collector of garbage finds them, torch waits ten seconds."""
    iterator = iter(loader)
    try:
        return next(iterator)
    finally:
        if loader.num_workers:
            iterator._shutdown_workers()


class Own(data.IterableDataset):  # type: ignore[misc]
    """Calls batches() in each worker."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __iter__(self) -> Any:
        return iter(self.reader.batches(BATCH, workers=0))


@way("PyTorch", "a `DataLoader` with workers", "an error at the first batch")
@pytest.mark.parametrize("made", ["before", "in the worker"])
def test_workers_of_a_dataloader_are_refused(few: Reader, made: str) -> None:
    """Batches have workers of their own: the error in the worker reaches the loop."""
    dataset = few.batches(BATCH, workers=0) if made == "before" else Own(few)
    loader = data.DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")
    with pytest.raises(UsageError, match=r"write DataLoader\(batches, batch_size=None, num_workers=0\)"):
        first(loader)


def test_a_reader_is_a_map_style_dataset(few: Reader) -> None:
    """A DataLoader indexes a reader, and stacks its samples."""
    for workers in (0, 2):
        found = list(data.DataLoader(few, batch_size=BATCH, num_workers=workers))
        assert [len(batch["key"]) for batch in found] == [4] * 5 + [3]
        assert rows_of(found) == list(range(SAMPLES))
        together = np.concatenate([batch["image"].numpy() for batch in found])
        assert np.array_equal(together, few[list(range(SAMPLES))]["image"])


@way("PyTorch", "a `DataLoader` without workers, and `batches.state_dict()`", "to the sample")
def test_states_of_a_dataloader_without_workers(few: Reader) -> None:
    """A loop gets tensors of each sample once. Each batch counts when the loop gets it: the rest of the epoch, and the
    next, are what was not trained on."""
    alone = few.batches(BATCH, shuffle=True, workers=0)
    epochs = [rows_of(alone) for _ in range(3)]
    for taken in (1, 5, 6):
        batches = few.batches(BATCH, shuffle=True, workers=2)
        loader = data.DataLoader(batches, batch_size=None)
        found = list(loader)
        assert len(found) == len(loader)
        assert torch.is_tensor(found[0]["image"])
        assert rows_of(found) == epochs[0]
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
def test_batches_of_batches_are_refused(reader: Reader, workers: int) -> None:
    """A DataLoader whose `batch_size` is not None would add an axis in silence. So are tensors refused, which take the
    place of a DataLoader, whatever its `batch_size`."""
    batches = reader.batches(4, workers=0)
    instead = r"take the place of a DataLoader of torch: write `for batch in batches.torch"
    written = r"write DataLoader\(batches, batch_size=None, num_workers=0\), or `for batch in"
    for dataset, options, words in (
        (batches, {}, written),
        (batches, {"batch_size": 8, "drop_last": True}, written),
        (batches.torch(), {}, instead),
        (batches.torch(), {"batch_size": None}, instead),
    ):
        with pytest.raises(UsageError, match=words):
            first(data.DataLoader(dataset, num_workers=workers, **options))


def test_what_torch_says_of_bytes_and_views(reader: Reader) -> None:
    """The page of troubleshooting has these words."""
    page = (Path(__file__).parents[2] / "docs/how-to/troubleshooting.md").read_text()
    images = next(iter(reader.batches(4, workers=0).torch()))["image"]
    for wrong in (lambda: torch.nn.Conv2d(3, 1, 1)(images), lambda: images.view(4, -1)):
        with pytest.raises(RuntimeError) as said:
            wrong()
        assert str(said.value).partition(" (at")[0] in page
