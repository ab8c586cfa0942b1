"""Batches in torch's DataLoader, and ranks that come from torch: each sample once, never silently more. Frameworks of
untested versions.

Modules are put in torch's place; `tests/trainers/test_dataloader_workers.py` has torch's own DataLoader."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from reading import WAYS, rows_of

from rawpack import Batches, Reader, UsageError
from rawpack.epoch.misuse import TABLE
from rawpack.integrations import versions
from rawpack.order import launcher

SAMPLES, BATCH = 23, 4


@pytest.fixture(scope="module")
def few(reader: Reader) -> Reader:
    return reader.select(range(10, 10 + SAMPLES))


@pytest.mark.parametrize("way", ["here", "threads"])
def test_a_worker_of_a_dataloader_is_refused(few: Reader, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Batches that its parent made, and those that a dataset makes in the worker: an error that says what to write,
    before a sample is read. In the parent, the same batches then begin at the same place."""
    batches = few.batches(BATCH, shuffle=True, **WAYS[way])
    before = batches.state_dict()
    info = SimpleNamespace(id=1, num_workers=2)
    with monkeypatch.context() as worker:
        worker.setitem(sys.modules, "torch.utils.data", SimpleNamespace(get_worker_info=lambda: info))  # type: ignore[arg-type]
        for refused in (batches, few.batches(BATCH, workers=0)):
            with pytest.raises(UsageError, match=r"DataLoader\(batches, batch_size=None, num_workers=0\)"):
                next(iter(refused))
    assert batches.state_dict() == before
    assert sorted(rows_of(batches)) == list(range(23))


def test_batches_are_an_iterable_dataset(few: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataLoader sees an iterable dataset if torch was imported first; if not, its error says what to do."""

    class IterableDataset(Iterable[Any]):
        """As torch has it: its metaclass is that of an abstract class."""

    torch = SimpleNamespace(get_worker_info=lambda: None, IterableDataset=IterableDataset)
    monkeypatch.setitem(sys.modules, "torch.utils.data", torch)  # type: ignore[arg-type]
    batches = few.batches(BATCH, workers=0)
    assert isinstance(batches, IterableDataset)
    with pytest.raises(UsageError, match="import torch before you call batches"):
        batches[0]


def test_the_rank_may_come_late(few: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rank="auto", a process group that is initialized after batches() counts from the next epoch on, and its end
    changes nothing."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for way in WAYS.values():
        batches = few.batches(BATCH, ranks="auto", **way)
        assert len(batches) == 6
        epoch = iter(batches)
        first = next(epoch)["index"].tolist()
        distributed = SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", distributed)  # type: ignore[arg-type]
        assert first + rows_of(epoch) == list(range(23))
        mine = rows_of(few.batches(BATCH, workers=0, ranks=(1, 2)))
        assert len(batches) == 3
        assert rows_of(batches) == mine
        monkeypatch.delitem(sys.modules, "torch.distributed")
        assert rows_of(batches) == mine
        assert "rank 1 of 2" in repr(batches)


def test_a_world_that_shows_up_late_is_warned_of(few: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer may start its other processes after batches(): the warning comes when the epoch begins."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    batches, quiet = few.batches(BATCH, workers=0), few.batches(BATCH, workers=0, ranks=(0, 1))
    for name, value in {"LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    list(quiet)
    with pytest.warns(UserWarning, match="one of 2, and each of them reads all samples") as caught:
        assert len(rows_of(batches)) == SAMPLES
    assert caught[0].filename != launcher.__file__
    list(batches)


# ---------------------------------------------------------------------------------------------- what trainers ask


class Divides:
    """As what divides the batches that it reads between processes."""


Divides.__name__ = "DataLoaderDispatcher"
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "torch.utils.data._utils.fetch": ("next(iter(dataset))", {"auto_collation": True}),
    "accelerate.data_loader": ("next(iter(dataset))", {"self": Divides()}),
    "accelerate.accelerator": ("isinstance(dataset, dict)", {}),
    "lightning.pytorch.trainer.connectors.data_connector": ("dataset.dataset", {}),
}
"""Module -> what a function of it does with batches, and its other variables."""


def run_in(module: str, code: str, names: dict[str, Any], function: str = "prepare") -> Any:
    """What code returns in a function of a module, with these variables."""
    scope: dict[str, Any] = {"__name__": module}
    exec(f"def {function}({', '.join(names)}): return {code}", scope)
    return scope[function](**names)


@pytest.mark.parametrize("module", ASKED)
def test_only_what_would_go_wrong_is_refused(few: Reader, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Where it is asked by that function of a trainer: not by the same code elsewhere, without what is wrong there, or
    further down while it reads other batches."""
    batches, other = (few.batches(BATCH, workers=0, ranks=(0, 2)) for _ in range(2))
    code, names = ASKED[module]
    (row,) = (row for row in TABLE if module in row.modules)
    monkeypatch.setitem(sys.modules, module, SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(row.error):
        run_in(module, code, {"dataset": batches, **names})
    run_in("of_a_user", code, {"dataset": batches, **names})
    if names:
        run_in(module, code, {"dataset": batches, **dict.fromkeys(names)})
    if row.function:
        assert not run_in(module, code, {"dataset": batches}, "register")
    if "self" not in names:  # what it reads in turn would be divided, too
        inner = {"dataset": other, "call": lambda: run_in("of_a_user", code, {"dataset": batches})}
        run_in(module, "call()", inner | names)
    assert isinstance(batches, Batches)
    assert batches.__class__ is Batches


@pytest.mark.parametrize(("found", "told"), [("1.15.0", 0), ("1.15.7", 0), ("1.16.0", 1), ("2.0.0", 1)])
def test_another_version_is_warned_of_once(monkeypatch: pytest.MonkeyPatch, found: str, told: int) -> None:
    """A version that was not tested gives one warning in a process, which names those that were; patch releases of
    these give none."""
    monkeypatch.setattr(versions, "version", lambda name: found)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            versions.warn_if_untested("accelerate")
    assert len(caught) == told
    for warning in caught:
        assert f"accelerate {found} has not been tested with rawpack, only 1.15.0" in str(warning.message)
        assert "pip install accelerate==1.15.0" in str(warning.message)
