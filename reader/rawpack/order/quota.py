"""How many samples of each store are in each batch: whole numbers, within one of the shares in every batch and at every
prefix of batches.

A batch of 256 with shares 0.6, 0.3 and 0.1 is to have 153.6, 76.8 and 25.6 samples. Each store gets the whole part of
its number in every batch, and in some batches one more. Which stores get one more in which batch is the problem that
Baruah, Cohen, Plaxton and Varvel solve in "Proportionate progress: a notion of fairness in resource allocation"
(Algorithmica 15, 1996): to run tasks on several processors, so that each task has at every time received its share of
them, rounded down or up. They prove that there is always a solution; batches are their times, stores their tasks, and
the samples that are left over in a batch their processors. The method here is PD2 of Anderson and Srinivasan ("Mixed
Pfair/ERfair scheduling of asynchronous periodic tasks", Journal of Computer and System Sciences 68, 2004), which finds
one batch after another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError

_MOST_BATCHES = 4096
_MOST_ENTRIES = 1 << 18
"""Of the table of counts: 2 MiB."""


class Quota:
    """The counts of several stores in batches of one size. They repeat after a period, which is computed once."""

    def __init__(self, shares: Sequence[Fraction], batch_size: int, batches: int) -> None:
        """shares: above 0, 1 in sum. batches: how many are asked for at most, so that a longer period is not needed."""
        self.shares, self.batch_size = tuple(shares), batch_size
        parts = [share * batch_size for share in shares]
        self._period = min(math.lcm(*(part.denominator for part in parts)), batches)
        counts = np.empty((self._period, len(parts)), np.int64)
        counts[:] = [math.floor(part) for part in parts]
        for batch, stores in enumerate(_one_more([part % 1 for part in parts], self._period)):
            counts[batch, stores] += 1
        self._before = np.zeros((self._period + 1, len(parts)), np.int64)
        """(period + 1, stores): samples of each store before each batch of the first period."""
        np.cumsum(counts, axis=0, out=self._before[1:])

    def before(self, batches: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many samples of each store come before each of these batches, int64 (n, stores)."""
        periods, rest = np.divmod(batches, self._period)
        counts: NDArray[np.int64] = periods[:, None] * self._before[-1] + self._before[rest]
        return counts


def rounded(shares: Sequence[Fraction], batch_size: int, batches: int) -> list[Fraction]:
    """The shares, or, if they would repeat only after very many batches, the nearest ones that repeat after few.

    The result differs from `shares` only in epochs of more than 4,096 batches (of more than 2**18 / stores, if there
    are many stores), by less than one sample in as many batches. Raises UsageError
    for a share that would become 0.
    """
    most = max(1, min(_MOST_BATCHES, _MOST_ENTRIES // len(shares)))
    period = math.lcm(*((share * batch_size).denominator for share in shares))
    if period <= most or batches <= most:
        return list(shares)
    total = most * batch_size
    counts = [math.floor(share * total) for share in shares]
    largest_rest = sorted(range(len(shares)), key=lambda k: counts[k] - shares[k] * total)
    for k in largest_rest[: total - sum(counts)]:
        counts[k] += 1
    if 0 in counts:
        small = counts.index(0)
        raise UsageError(
            f"the share {float(shares[small]):.2g} of store {small} is too small: less than one sample in {total}"
        )
    return [Fraction(count, total) for count in counts]


def _one_more(rests: Sequence[Fraction], batches: int) -> list[list[int]]:
    """For each batch the stores that get one sample more than the whole part of their share.

    rests: what is beyond the whole part, in [0, 1), a whole number in sum. At every prefix of k batches, store i has
    got floor(k * rests[i]) or ceil(k * rests[i]) of them.
    """
    left_over = int(sum(rests))
    released: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    """Batch -> the turns that begin there: see `_turn`."""
    for store, rest in enumerate(rests):
        if rest:
            turn = _turn(store, 1, rest.numerator, rest.denominator)
            released[turn[-1]].append(turn)
    waiting: list[tuple[int, ...]] = []
    chosen: list[list[int]] = []
    for batch in range(batches):
        for turn in released.pop(batch, ()):
            heappush(waiting, turn)
        served = [heappop(waiting) for _ in range(left_over)]
        chosen.append([turn[3] for turn in served])
        for _, _, _, store, number, _ in served:
            turn = _turn(store, number + 1, rests[store].numerator, rests[store].denominator)
            # Not before the next batch: a store gets at most one more in each.
            released[max(turn[-1], batch + 1)].append(turn)
    return chosen


def _turn(store: int, number: int, count: int, of: int) -> tuple[int, ...]:
    """The `number`-th time, from 1, that a store gets one more, which it does `count` times in `of` batches.

    Of several turns, the smallest tuple comes first: (the batch before which it must be, whether the next turn cannot
    begin before that, a later one in which a delay would have to end, store, number, the first batch in which it may
    be). In the terms of PD2: deadline, b-bit, group deadline and release.
    """
    deadline = -(-number * of // count)
    overlaps = number * of % count != 0
    group = 0
    if 2 * count >= of:
        pauses = -(-deadline * (of - count) // of)
        group = -(-pauses * of // (of - count))
    return deadline, not overlaps, -group, store, number, (number - 1) * of // count
