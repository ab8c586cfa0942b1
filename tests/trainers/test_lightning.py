"""Lightning trains with batches as they are: every sample once an epoch, and from a checkpoint on with the next one.

What is expected comes from loops without Lightning and torch, and from the samples' own numbers.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running import pack
from trained import Step, numbered_store, numbers_of, run_script, steps_in
from ways import way

from rawpack import Reader, UsageError

pytest.importorskip("lightning")
import lightning
import torch
from trainers.scripts import lightning_runs
from trainers.scripts.lightning_runs import Data, Run, StopTrainingError

# Of all that Lightning says about its own settings; what rawpack says still fails a test.
pytestmark = pytest.mark.filterwarnings("ignore::Warning:lightning")

SAMPLES, VALIDATED = 64, 27
QUIET: dict[str, Any] = {
    "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
    "enable_checkpointing": False,
}  # fmt: skip
SCRIPT = Path(lightning_runs.__file__)
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-with-lightning.md"


@dataclass(frozen=True)
class Place:
    """Two stores, and a folder for runs."""

    train: Path
    validate: Path
    runs: Path

    def run(self, name: str, **options: Any) -> Run:
        """A run with a folder of its own."""
        folder = self.runs / name
        folder.mkdir()
        return Run(str(self.train), str(folder), **options)

    def steps(self, name: str) -> list[Step]:
        return steps_in(self.runs / name)

    def last(self, name: str) -> str:
        """The checkpoint that the run saved last."""
        return str(self.runs / name / "checkpoints" / "last.ckpt")

    def script(self, runs: list[Run]) -> None:
        """Do these runs in a process of their own, and those that Lightning adds."""
        path = self.runs / f"{Path(runs[0].folder).name}.json"
        path.write_text(json.dumps([vars(run) for run in runs]))
        run_script(SCRIPT, path, preloaded=("lightning",))

    def plain(self, epochs: int, **options: Any) -> list[tuple[int, tuple[int, ...]]]:
        """Epoch and numbers of each batch, in a loop over numpy batches."""
        batches = Reader(self.train).batches(4, **{"workers": 0, "shuffle": True, "seed": 5} | options)
        return [(epoch, tuple(batch["number"].tolist())) for epoch in range(epochs) for batch in batches]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("lightning")
    (root / "runs").mkdir()
    return Place(numbered_store(root / "train", SAMPLES), numbered_store(root / "val", VALIDATED), root / "runs")


def as_plain(steps: list[Step]) -> list[tuple[int, tuple[int, ...]]]:
    return [(step.epoch, step.numbers) for step in steps]


def stopped(run: Run) -> None:
    """Do a run that raises in the middle of an epoch."""
    with pytest.raises(StopTrainingError):
        run.fit()


# ---------------------------------------------------------------------------------------------- one device


def test_epochs_are_those_of_a_plain_loop(place: Place) -> None:
    """Every sample once an epoch, from epoch 0 on, each epoch in another order; every validation is complete, also
    after the sanity check."""
    place.run("one", validate=str(place.validate), trainer={"max_epochs": 3}).fit()
    trained = place.steps("one")
    assert as_plain(trained) == place.plain(3)
    assert [numbers_of(trained, epoch) for epoch in range(3)] == [list(range(SAMPLES))] * 3
    assert len({trained[16 * epoch].numbers for epoch in range(3)}) == 3
    seen = place.steps("one/val")
    assert numbers_of(seen, -1) == list(range(8))
    assert [numbers_of(seen, validation) for validation in range(3)] == [list(range(VALIDATED))] * 3


# ---------------------------------------------------------------------------------------------- resume, one device


@dataclass(frozen=True)
class Stop:
    """A run that is interrupted before batch `at`; the batches before `saved` are in its last checkpoint."""

    at: int
    saved: int
    options: dict[str, Any]
    per_epoch: int = 16


VALIDATES = {"validate": True, "trainer": {"val_check_interval": 4}}
STOPS = {
    "limit_train_batches, saved at its end": Stop(14, 12, {"every": 12, "trainer": {"limit_train_batches": 0.75}}, 12),
    "saved between validations in mid-epoch": Stop(12, 10, {"every": 5, **VALIDATES}),
    "saved after a validation in mid-epoch": Stop(14, 12, VALIDATES),
    "max_steps": Stop(10, 9, {"every": 3, "trainer": {"max_steps": 32, "max_epochs": -1}}),
    "tuples, new loaders each epoch, second epoch": Stop(
        23, 21,
        {
            "every": 3, "style": "module", "fields": ["image", "label", "number"],
            "trainer": {"reload_dataloaders_every_n_epochs": 1},
        },
    ),
    "datamodule, with a schedule": Stop(10, 9, {"every": 3, "style": "datamodule", "schedule": "computed"}),
    "after the last batch, with a schedule by estimated steps": Stop(18, 16, {"every": 16, "schedule": "estimated"}),
}  # fmt: skip


@pytest.mark.parametrize("stop", STOPS.values(), ids=list(STOPS))
def test_resumes_after_what_was_saved(place: Place, stop: Stop, request: pytest.FixtureRequest) -> None:
    """`fit(ckpt_path=...)` continues with the sample after those that the checkpoint counts as trained."""
    name, options = request.node.callspec.id, dict(stop.options)
    if options.pop("validate", False):
        options["validate"] = str(place.validate)
    stopped(place.run(name, stop=stop.at, **options))
    place.run(f"{name}, resumed", ckpt=place.last(name), **options).fit()
    plain = place.plain(2)
    expected = plain[: stop.per_epoch] + plain[16 : 16 + stop.per_epoch]
    trained, resumed = as_plain(place.steps(name)), as_plain(place.steps(f"{name}, resumed"))
    assert trained == expected[: stop.at]
    assert resumed == expected[stop.saved :]
    if "validate" in options:
        seen = place.steps(f"{name}, resumed/val")
        assert [numbers_of(seen, validation) for validation in range(4)] == [list(range(VALIDATED))] * 4


@way("Lightning", "the same, after `trainer.estimated_stepping_batches` was read", "an error at the first batch")
def test_a_position_that_lightning_does_not_load_is_an_error(place: Place) -> None:
    """After `estimated_stepping_batches`, Lightning does not load the states of loaders, and would begin the epoch
    again: the error has the line to write, with which it resumes."""
    stopped(place.run("estimated", stop=10, schedule="estimated", every=3))
    last = place.last("estimated")
    with pytest.raises(UsageError, match=r"did not resume at position 36 of epoch 0, .* trainer\.max_epochs \* "):
        place.run("refused", ckpt=last, schedule="estimated").fit()
    assert not place.steps("refused")
    place.run("computed", ckpt=last, schedule="computed").fit()
    assert as_plain(place.steps("computed")) == place.plain(2)[9:]


# ---------------------------------------------------------------------------------------------- processes

KILLED: dict[str, Any] = {"every": 3, "trainer": {"accumulate_grad_batches": 2}, "batches": {"workers": 2}}
"""Saved after six batches, because two make a step; killed before the tenth."""
TWO = {"strategy": "ddp", "devices": 2}
FORK = {"strategy": "ddp_fork", "devices": 2}


def killed(devices: dict[str, Any]) -> dict[str, Any]:
    return KILLED | {"trainer": KILLED["trainer"] | devices}


@pytest.fixture(scope="module")
def done(place: Place) -> Place:
    """Runs of two devices, of which Lightning starts the second, and the last is killed; and those of a script where
    Lightning forks two devices, which begin, and resume."""
    place.script(
        [
            place.run("two", validate=str(place.validate), trainer=TWO),
            place.run("two, module", style="module", trainer=TWO | {"use_distributed_sampler": False}),
            place.run("two, killed", stop=9, kill=True, **killed(TWO)),
        ]
    )
    stopped(place.run("one, stopped", stop=18))
    place.script(
        [
            place.run("fork", trainer=FORK),
            place.run("two, resumed", ckpt=place.last("two, killed"), **killed(FORK)),
            place.run("one to two", ckpt=place.last("one, stopped"), trainer=FORK),
            place.run("killed", stop=9, kill=True, **KILLED),
        ]
    )
    return place


@way("Lightning", "one device, `ckpt_path=`", "to the sample")
def test_a_killed_run_resumes(done: Place) -> None:
    """A process that ended on the spot, with workers ahead and gradients accumulated over two batches, resumes in
    another one to the samples and to the very weights of a run that was not interrupted."""
    runs = done.run("not killed", **KILLED), done.run("killed, resumed", ckpt=done.last("killed"), **KILLED)
    whole, again = ([parameter.detach() for parameter in run.fit().parameters()] for run in runs)
    plain = done.plain(2)
    assert as_plain(done.steps("killed")) == plain[:9]
    assert as_plain(done.steps("killed, resumed")) == plain[6:]
    assert all(torch.equal(mine, other) for mine, other in zip(again, whole, strict=True))


@pytest.mark.parametrize("name", ["two", "two, module", "fork"])
def test_two_devices_share_each_epoch(done: Place, name: str) -> None:
    """Every sample once over both ranks, half of them on each, wherever the loaders are made; a fork inherits them.
    Each validation has each sample once, also where they do not divide by the ranks."""
    trained = done.steps(name)
    assert [numbers_of(trained, epoch) for epoch in (0, 1)] == [list(range(SAMPLES))] * 2
    for rank in (0, 1):
        assert as_plain([step for step in trained if step.rank == rank]) == done.plain(2, ranks=(rank, 2))
    if name == "two":
        seen = done.steps("two/val")
        assert [numbers_of(seen, validation) for validation in (0, 1)] == [list(range(VALIDATED))] * 2


@way("Lightning", "two devices, `ckpt_path=`", "to the sample")
def test_two_killed_devices_resume(done: Place) -> None:
    """Each rank continues where it was; and two ranks resume what one saved at the end of an epoch."""
    for rank in (0, 1):
        plain = done.plain(2, ranks=(rank, 2))
        before, resumed, grown = (
            as_plain([step for step in done.steps(name) if step.rank == rank])
            for name in ("two, killed", "two, resumed", "one to two")
        )
        assert (before, resumed, grown) == (plain[:9], plain[6:], plain[8:])


def test_one_device_resumes_what_two_have_saved(done: Place) -> None:
    """It trains on all samples that are left. As the page warns, Lightning does not know that epoch's last batch."""
    done.run("two to one", ckpt=done.last("two, killed"), validate=str(done.validate), every=3).fit()
    resumed = done.steps("two to one")
    before = [step for rank in (0, 1) for step in done.steps("two, killed") if step.rank == rank]
    saved = before[:6] + before[9:15]
    assert numbers_of([*saved, *resumed], 0) == list(range(SAMPLES))
    assert as_plain(resumed[-16:]) == done.plain(2)[16:]
    assert {step.epoch for step in done.steps("two to one/val")} == {0}


# ---------------------------------------------------------------------------------------------- Fabric, and the page


def test_fabric_takes_batches_as_they_are(place: Place) -> None:
    """A loop with Fabric, without `setup_dataloaders`; `save` and `load` keep the position."""
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    run = place.run("fabric")
    loader, again = run.loader(), run.loader()
    with pytest.raises(TypeError, match="Only PyTorch DataLoader"):
        fabric.setup_dataloaders(loader)
    numbers = []
    for _ in range(2):
        for batch in loader:
            numbers.append(tuple(fabric.to_device(batch)["number"].tolist()))
            if len(numbers) == 16 + 5:
                fabric.save(place.runs / "fabric.ckpt", {"loader": loader})
    assert numbers == [numbers for _, numbers in place.plain(2)]
    fabric.load(place.runs / "fabric.ckpt", {"loader": again})
    assert [tuple(batch["number"].tolist()) for batch in again] == numbers[21:]


def test_the_page_does_what_it_says(photos_here: None, capfd: pytest.CaptureFixture[str]) -> None:
    """The script on the page trains, and everything after it runs too."""
    text = PAGE.read_text("utf-8")
    assert "rawpack pack --quiet --size 64 --holdout val=0.25 photos/ sets/" in text
    pack(Path("photos/"), Path("sets/"), "--size", 64, "--holdout", "val=0.25")
    blocks = re.findall(r"^```python needs=lightning\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == text.count("```python")
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
    out = capfd.readouterr().out
    assert "bound: the loop waited" in out
    assert namespace["trainer"].current_epoch == 3
    [diff] = re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert all(line.startswith("-") or line[1:] in blocks[0].splitlines() for line in diff.splitlines())
    methods = [name for name in vars(namespace["Data"]) if not name.startswith("_")]
    assert methods == [name for name in vars(Data) if not name.startswith("_")]
