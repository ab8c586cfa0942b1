"""What the batches of every framework have in common."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NoReturn

from rawpack.epoch.epochs import Epochs
from rawpack.epoch.misuse import refuse
from rawpack.errors import UsageError


class Loader:
    """What the batches of every framework have, with the attributes that training scripts read of a DataLoader."""

    _feed: Epochs
    sampler = None
    """Samples are drawn by `Reader.batches`."""

    def __len__(self) -> int:
        """The number of batches that this rank gets in the epoch that comes next, from its start."""
        return len(self._feed)

    def __reduce__(self) -> NoReturn:
        raise UsageError("batches own workers and memory: pickle the reader instead, and call batches() there")

    @property
    def dataset(self) -> Any:
        """The reader. Its length is the number of samples, whatever a `sampler` makes of them."""
        refuse("dataset", self)
        return self._feed.dataset

    @property
    def batch_size(self) -> int:
        """Samples in a batch of this rank."""
        return self._feed.split.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is left out."""
        return self._feed.split.drop_last

    @property
    def num_workers(self) -> int:
        """The workers that rawpack has for these batches; 0: this process does the work."""
        return self._feed.settings.workers

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` comes next: from its start, or from the position that was loaded for this epoch."""
        self._feed.set_epoch(epoch)

    def forever(self) -> Generator[Any]:
        """Epoch after epoch without end, for loops that count steps instead of epochs.

            for step, batch in zip(range(100_000), batches.forever()): ...

        Batches, positions and states are those of a loop for each epoch; what `set_epoch` and `load_state_dict` say
        holds from the epoch on that begins next. One thread at a time may use it. It ends with an error only: one of a
        batch, or UsageError where an epoch has no batches for this rank.
        """
        while True:
            start = self._feed.next_start()
            yield from self._epoch()
            if not len(start) and not start.position:
                raise UsageError(f"epoch {start.epoch} has no batches for this rank: forever() would wait without end")

    def _epoch(self) -> Iterator[Any]:
        return iter(self)  # type: ignore[call-overload, no-any-return] # those of every framework are iterable
