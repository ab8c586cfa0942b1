"""What `--max-rejects` allows of a source, and how much its rejects and unreadable containers count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from rawpack.errors import DecodeError, PackError
from rawpack_packer import text
from rawpack_packer.destination.journal import NOT_SCANNED, Reject, rejected, typical
from rawpack_packer.job.options import ROUNDING, RunOptions
from rawpack_packer.options import opt
from rawpack_packer.sources import Table
from rawpack_packer.text import again


class RejectLimit:
    """The limit of a job. A sample that is rejected counts as one. A container, such as a video, that cannot be
    read, or ends early, has one sample in place of an unknown number. What is missing of it counts by its share of the
    files or of the bytes of the source, whichever is larger."""

    def __init__(self, source: Table, run_options: RunOptions) -> None:
        self._source, self._samples, self._most = source, len(source), run_options.max_rejects
        containers = source.containers
        self._noun, self._files, self._shares = "", 0, (0.0, 0.0)
        self.containers = frozenset[int]()
        """The numbers of the samples that stand for what is lost of containers."""
        self._lost_share = self._lost_samples = 0.0
        if containers is not None and containers.lost.any():
            shares = containers.shares()[containers.lost]
            self._noun, self._files = containers.noun, len(containers.lost)
            self._shares = float(shares[:, 0].sum()), float(shares[:, 1].sum())
            self.containers = frozenset(containers.stands[containers.lost].tolist())
            larger = shares.max(axis=1)
            self._lost_share = float(larger.sum())
            self._lost_samples = float((larger * self._samples).clip(min=1).sum())

    def counted(self, rejects: Iterable[Reject], first: int = 0) -> int:
        """How many of these count as a sample each. first: the number of the source's first sample, see `Reject`."""
        return sum(reject.reason != NOT_SCANNED and reject.sample - first not in self.containers for reject in rejects)

    def exceeded_by(self, rejects: int) -> bool:
        """Whether this is more than is allowed, with the containers. rejects: of `counted`."""
        return rejects > self._left() + ROUNDING * self._samples

    @property
    def left(self) -> int:
        """How many samples may be rejected besides the containers."""
        return max(0, int(self._left() + ROUNDING * self._samples))

    def _left(self) -> float:
        if self._most >= 1:
            return self._most - self._lost_samples
        return (self._most - self._lost_share) * self._samples

    @property
    def allows(self) -> str:
        """What is allowed, for messages."""
        if not self.containers:
            return str(self.left)
        if self._most < 1:
            return text.share(self._most)
        counted = math.ceil(self._lost_samples - ROUNDING)
        return f"{int(self._most):,}, and these {self._noun}s count as {counted:,} of {self._samples:,}"

    def share(self, rejects: int, checked: int) -> str:
        """The value that allows all of this. rejects: see `counted`. checked: how many samples were tried."""
        lost = self._lost_share + rejects / max(1, checked)
        return f"{min(100, math.ceil(100 * lost - ROUNDING))}%"

    def containers_in_words(self) -> str:
        """Such as "3 of 6 videos cannot be read in full: 50% of the files, 47% of the bytes"."""
        of_files, of_bytes = self._shares
        shares = f"{text.share(of_files)} of the files" + (f", {text.share(of_bytes)} of the bytes" if of_bytes else "")
        return f"{len(self.containers):,} of {text.count(self._files, self._noun)} cannot be read in full: {shares}"

    def check_containers(self, *, begun: bool) -> None:
        """Raise PackError where the containers alone are more than is allowed. begun: whether an earlier run began the
        job."""
        if not self.containers or not self.exceeded_by(0):
            return
        rejects = list[Reject]()
        for number in sorted(self.containers):
            try:
                self._source[number]
            except DecodeError as error:
                rejects.append(rejected(number, self._source.key(number), error))
        reasons = Counter(reject.reason for reject in rejects).most_common()
        why = ", ".join(f"{reason} {count}" for reason, count in reasons)
        cure = f"{again()} with {opt.max_rejects(self.share(0, 1))} {'resumes' if begun else 'packs the rest'}"
        if len(self.containers) == self._samples:
            cure = f"nothing else is in the source, so a larger {opt.max_rejects} does not help"
        raise PackError(
            f"{self.containers_in_words()} ({why}), for example {typical(rejects)}. {opt.max_rejects} allows "
            f"{self.allows}. Copy them again, or take them out of the source; {cure}"
        )
