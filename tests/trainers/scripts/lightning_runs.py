"""Training runs with Lightning on the CPU, for tests: in their own process, or as a script of its own.

As a script: `python lightning_runs.py RUNS`, a file with a JSON list of the arguments of `Run`, which are done in turn.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from trained import Journal

from rawpack import Ranks, Reader


class StopTrainingError(Exception):
    """Raised in the middle of an epoch, where a run is to be interrupted in its own process."""


@dataclass
class Run:
    """One call of `Trainer.fit`."""

    store: str
    folder: str
    """Gets the journal of training, and those of validation and of checkpoints as folders in it."""
    style: str = "loaders"
    """"loaders": made before `fit`; "module" or "datamodule": made in its `train_dataloader()`."""
    ckpt: str | None = None
    """Resume from this checkpoint."""
    validate: str | None = None
    """The store to validate with."""
    stop: int | None = None
    """Interrupt before this batch, counted over all epochs since `fit`."""
    kill: bool = False
    """Interrupt by ending the process on the spot."""
    schedule: str = ""
    """A learning rate schedule, as long as `trainer.estimated_stepping_batches`, if "estimated", or "computed"."""
    fields: list[str] | None = None
    every: int | None = None
    """Save a checkpoint every n optimizer steps; None: after each validation, or epoch."""
    batches: dict[str, Any] | None = None
    """More arguments of `Reader.batches`."""
    trainer: dict[str, Any] | None = None
    """More arguments of `Trainer`."""

    def loader(self) -> Any:
        options = {"workers": 0, "shuffle": True, "seed": 5, "ranks": "auto", **(self.batches or {})}
        return Reader(self.store).batches(4, **options).torch(as_tuple=self.fields)

    def validation(self) -> Any:
        if self.validate is None:
            return []
        return Reader(self.validate).batches(4, workers=0, ranks=Ranks("auto", last="keep")).torch()

    def fit(self) -> Model:
        checkpoint = ModelCheckpoint(
            Path(self.folder) / "checkpoints", filename="at-{step}", save_top_k=-1, save_last=True,
            every_n_train_steps=self.every, save_on_train_epoch_end=False if self.validate else None,
        )  # fmt: skip
        arguments: dict[str, Any] = {
            "accelerator": "cpu", "devices": 1, "max_epochs": 2, "logger": False, "enable_progress_bar": False,
            "enable_model_summary": False, "num_sanity_val_steps": 2, "callbacks": [checkpoint],
        }  # fmt: skip
        model = (OwnLoaders if self.style == "module" else Model)(self)
        trainer = lightning.Trainer(**arguments | (self.trainer or {}))
        if self.style == "loaders":
            trainer.fit(model, self.loader(), self.validation(), ckpt_path=self.ckpt)
        else:
            data = Data(self) if self.style == "datamodule" else None
            trainer.fit(model, datamodule=data, ckpt_path=self.ckpt)
        return model


class Model(lightning.LightningModule):
    """Classifies the images of a `numbered_store`, and writes down what it saw."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, self.begun, self.validations = run, 0, 0
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(8 * 8 * 3, 4)

    def setup(self, stage: str) -> None:
        folder = Path(self.run.folder)
        (folder / "val").mkdir(parents=True, exist_ok=True)
        self.journal, self.seen = Journal(folder, self.global_rank), Journal(folder / "val", self.global_rank)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        named = batch if self.run.fields is None else dict(zip(self.run.fields, batch, strict=True))
        self.numbers = named["number"].tolist()
        images = named["image"].flatten(1).to(torch.float32) / 255
        return torch.nn.functional.cross_entropy(self.layer(images), named["label"])

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.run.stop == self.begun:
            if self.run.kill:
                os._exit(0)
            raise StopTrainingError
        self.begun += 1

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.journal.trained(self.current_epoch, self.numbers)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.seen.trained(-1 if self.trainer.sanity_checking else self.validations, batch["number"].tolist())

    def on_validation_epoch_end(self) -> None:
        self.validations += not self.trainer.sanity_checking

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)
        if not self.run.schedule:
            return optimizer
        if self.run.schedule == "estimated":
            steps = self.trainer.estimated_stepping_batches
        else:
            steps = 2 * len(self.run.loader())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class OwnLoaders(Model):
    """Makes its loaders itself."""

    def train_dataloader(self) -> Any:
        return self.run.loader()

    def val_dataloader(self) -> Any:
        return self.run.validation()


class Data(lightning.LightningDataModule):
    """Makes the loaders: docs/how-to/train-with-lightning.md has the same."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def setup(self, stage: str) -> None:
        self.train_loader, self.val_loader = self.run.loader(), self.run.validation()

    def train_dataloader(self) -> Any:
        return self.train_loader

    def val_dataloader(self) -> Any:
        return self.val_loader


if __name__ == "__main__":
    for arguments in json.loads(Path(sys.argv[1]).read_text()):
        Run(**arguments).fit()
