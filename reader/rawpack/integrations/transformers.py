"""The Trainer of Hugging Face over batches of a store: a class to derive from, besides Trainer. Transformers is not
imported here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any, ClassVar

from rawpack.epoch.epochs import Epochs
from rawpack.errors import UsageError
from rawpack.integrations.accelerate import AcceleratedBatches, state_keeping_batches
from rawpack.integrations.adapter import check_fields, imported
from rawpack.integrations.versions import hook, warn_if_untested


class StoreTrainerMixin:
    """Lets a Trainer take `Batches` as `train_dataset`, `eval_dataset` and for `predict`, and resume exactly.

        class StoreTrainer(StoreTrainerMixin, Trainer):
            columns = {"pixel_values": "image", "labels": "label"}

        StoreTrainer(model, arguments, train_dataset=reader.batches(8, shuffle=True, ranks="auto"))

    Other datasets are left to Trainer. The batch sizes must be those of `arguments`.
    """

    columns: ClassVar[Mapping[str, str]] = {"pixel_values": "image", "labels": "label"}
    """The arguments of `model.forward` -> fields of the batches."""

    args: Any
    train_dataset: Any
    eval_dataset: Any

    def get_train_dataloader(self) -> Any:
        """As Trainer's."""
        if _feed_of(self.train_dataset) is None:
            return super().get_train_dataloader()  # type: ignore[misc]
        return self._loader(self.train_dataset, "per_device_train_batch_size", self.args.train_batch_size)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """As Trainer's."""
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(chosen, str):
            chosen = self.eval_dataset[chosen]
        if _feed_of(chosen) is None:
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return self._evaluated(chosen)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """As Trainer's."""
        if _feed_of(test_dataset) is None:
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return self._evaluated(test_dataset)

    def _evaluated(self, batches: Any) -> AcceleratedBatches:
        loader = self._loader(batches, "per_device_eval_batch_size", self.args.eval_batch_size)
        loader.set_epoch(0)
        return loader

    def _loader(self, batches: Any, parameter: str, size: int) -> AcceleratedBatches:
        """The batches as Trainer wants them. Raises UsageError where they do not fit its arguments."""
        feed, columns = _feed_of(batches), dict(self.columns)
        assert feed is not None
        _let_trainer_skip()
        check_fields(feed, "columns", columns.values())
        if (own := feed.next_start().split.batch_size) != size:
            raise UsageError(
                f"the batches have {own} samples, and TrainingArguments say {size}: pass {parameter}= and batches() "
                "the same number"
            )
        return state_keeping_batches(
            feed,
            self.args.device,
            (int(self.args.process_index), int(self.args.world_size)),
            "Trainer",
            named=lambda batch: {name: batch[field] for name, field in columns.items()},
        )


def _feed_of(dataset: Any) -> Epochs | None:
    """What is behind `Batches`; None for other datasets."""
    feed = getattr(dataset, "_feed", None)
    return feed if isinstance(feed, Epochs) else None


def _let_trainer_skip() -> None:
    """Have a Trainer that resumes in the middle of an epoch begin there, where Accelerate's function would read all
    that is skipped. For loaders of others, nothing changes."""
    module = imported("transformers.trainer", "StoreTrainerMixin needs Transformers: pip install transformers")
    warn_if_untested("transformers")
    plain = hook("transformers", module, "skip_first_batches", "dataloader", "num_batches")
    if hasattr(plain, "__wrapped__"):
        return
    hook("transformers", module.Trainer, "get_train_dataloader")
    hook("transformers", module.Trainer, "get_eval_dataloader", "eval_dataset")
    hook("transformers", module.Trainer, "get_test_dataloader", "test_dataset")

    @wraps(plain)
    def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
        if not isinstance(dataloader, AcceleratedBatches):
            return plain(dataloader, num_batches)
        dataloader._skip(num_batches)
        return dataloader

    module.skip_first_batches = skip_first_batches
