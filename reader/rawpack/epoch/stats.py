"""Measures where reading spends its time, and explains it: `Batches.stats()`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rawpack.system import machine
from rawpack.system.times import Times

_RARELY, _SELDOM, _MOSTLY = 0.05, 0.15, 0.5
"""Shares of time: below the first two, a faster reader would gain next to nothing; from the third on, the reader is
what takes the time."""


@dataclass(slots=True)
class Stats:
    """What `Batches` counts, over all its iterators. Seconds are wall-clock time, summed over the workers."""

    workers: int = 0
    samples: int = 0
    batches: int = 0
    timed_samples: int = 0
    """The samples that `elapsed_s` covers: without the first batch of each iterator."""
    timed_bytes: int = 0
    """Their bytes in the arrays of batches."""
    elapsed_s: float = 0.0
    """From the moment an iterator's first batch was handed over to its latest."""
    waited_s: float = 0.0
    """How much of `elapsed_s` the caller waited for the next batch."""
    first_batch_s: float = 0.0
    """How long the caller waited for the latest iterator's first batch."""
    fetching_s: float = 0.0
    """How much of `waited_s` was spent waiting for files of a remote store."""
    slots_s: float = 0.0
    """How much of `waited_s` was spent on memory for batches."""
    times: Times = field(default_factory=Times)

    def as_dict(self) -> dict[str, Any]:
        """What `Batches.stats()` returns: rates are None before the second batch."""

        def per_elapsed(amount: float) -> float | None:
            return amount / self.elapsed_s if self.elapsed_s else None

        counted = ("elapsed_s", "waited_s", "first_batch_s", "fetching_s", "slots_s")
        return {
            "samples": self.samples,
            "batches": self.batches,
            "samples_per_s": per_elapsed(self.timed_samples),
            "bytes_per_s": per_elapsed(self.timed_bytes),
            "waited_share": per_elapsed(self.waited_s),
            **{name: getattr(self, name) for name in counted},
            **{f"{name}_s": getattr(self.times, name) for name in ("reading", "decoding", "transforming")},
            "workers": self.workers,
            "verdict": self.verdict(),
        }

    def verdict(self) -> str:
        if not self.elapsed_s:
            return "too early to say: fewer than two batches were read"
        share = self.waited_s / self.elapsed_s
        if share < _SELDOM:
            kind = "compute-bound" if share < _RARELY else "mostly compute-bound"
            return f"{kind}: the loop waited for the reader {share:.0%} of the time"
        fetching = self.fetching_s / self.waited_s
        kind = "input-bound" if share > _MOSTLY else "partly input-bound"
        return f"{kind}: the loop waited {share:.0%} of the time; {self._most(fetching)}"

    def _most(self, fetching: float) -> str:
        if fetching > _MOSTLY:
            return (
                f"fetching from the remote store takes {fetching:.0%} of that: rawpack warm before training, a cache "
                'that holds the whole store, shuffle="block" with few large blocks, or an lmdb store, which is smaller'
            )
        # More than there are CPUs would only take turns.
        free = self.workers < machine.cpus()
        more = "more workers, or " if free else ""
        cures = {
            "reading": "rawpack warm, a faster disk or an lmdb store where the files are not cached; where they are, "
            "memory is the limit",
            "decoding": f"{'more workers would share it, and ' if free else ''}a raw store (memmap) needs none",
            "transforming": f"{more}images stored at a smaller size, or fewer or cheaper steps",
        }
        name = max(cures, key=lambda name: getattr(self.times, name))
        share = getattr(self.times, name) / (self.times.total or 1)
        return f"{name} takes {share:.0%} of the workers' time: {cures[name]}"
