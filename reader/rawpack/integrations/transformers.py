"""The Trainer of Hugging Face over batches of a store: a class to derive from, besides Trainer. Transformers is not
imported here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rawpack.epoch.epochs import Epochs
from rawpack.errors import UsageError
from rawpack.integrations.accelerate import AcceleratedBatches, state_keeping_batches
from rawpack.integrations.adapter import check_fields, imported
from rawpack.integrations.torch import EpochSetter
from rawpack.integrations.versions import warn_if_untested


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
        if _feed_of(self.train_dataset) is None:
            return super().get_train_dataloader()  # type: ignore[misc]
        size = self.args.train_batch_size
        return self._loader(self.train_dataset, "per_device_train_batch_size", size, TrainerBatches)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(chosen, str):
            chosen = self.eval_dataset[chosen]
        if _feed_of(chosen) is None:
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return self._evaluated(chosen)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        if _feed_of(test_dataset) is None:
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return self._evaluated(test_dataset)

    def _evaluated(self, batches: Any) -> AcceleratedBatches:
        loader = self._loader(batches, "per_device_eval_batch_size", self.args.eval_batch_size)
        loader.set_epoch(0)
        return loader

    def _loader(
        self, batches: Any, parameter: str, size: int, kind: type[AcceleratedBatches] = AcceleratedBatches
    ) -> AcceleratedBatches:
        """The batches as Trainer wants them. Raises UsageError where they do not fit its arguments."""
        feed, columns = _feed_of(batches), dict(self.columns)
        assert feed is not None
        imported("transformers.trainer", "StoreTrainerMixin needs Transformers: pip install transformers")
        warn_if_untested("transformers")
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
            kind=kind,
            named=lambda batch: {name: batch[field] for name, field in columns.items()},
        )


def _feed_of(dataset: Any) -> Epochs | None:
    feed = getattr(dataset, "_feed", None)
    return feed if isinstance(feed, Epochs) else None


class TrainerBatches(AcceleratedBatches):
    """Batches for training, of which Accelerate's `skip_first_batches`, which Trainer resumes with, can make a
    DataLoader: its dataset has whole batches by their number, and begins with the first that is asked for."""

    num_workers = 0
    prefetch_factor = None
    """A DataLoader of these needs no workers."""

    @staticmethod
    def collate_fn(batch: Any) -> Any:
        return batch

    @property
    def dataset(self) -> BatchesByNumber:
        return BatchesByNumber(self)

    @property
    def batch_sampler(self) -> BatchNumbers:
        """The numbers of the batches of the current epoch; by it, Trainer sets the epoch, too."""
        return BatchNumbers(self)


class BatchesByNumber:
    """A dataset of torch, in the order of the numbers."""

    def __init__(self, batches: TrainerBatches) -> None:
        self._batches, self._rest = batches, iter(())
        self._next: int | None = None

    def __len__(self) -> int:
        return len(self._batches._feed.dataset)

    def __getitems__(self, numbers: list[int]) -> Any:
        (number,) = numbers
        if number != self._next:
            self._batches.load_state_dict(self._batches.state_dict(after=number))
            self._rest = iter(self._batches)
        self._next = number + 1
        return next(self._rest)


class BatchNumbers(EpochSetter):
    """A batch sampler of torch: lists of one number."""

    def __iter__(self) -> Iterator[list[int]]:  # type: ignore[override] # EpochSetter's raises
        return ([number] for number in range(len(self._batches)))
