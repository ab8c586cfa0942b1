"""Whether all ranks share an epoch in the same order: with "auto", each rank compares its own with the first one that
another rank has noted in the store of torch's process group. No rank waits for another."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from typing import Any

import xxhash

from rawpack.errors import UsageError
from rawpack.order.base import Order
from rawpack.order.launcher import Ranks, torch_distributed
from rawpack.order.ranks import RankSplit

_SAMPLES = ("samples", "keys", "selected", "clips")
"""What an order's identity has that says which samples there are."""
_numbers: defaultdict[str, count[int]] = defaultdict(count)
"""Digest of samples and batch size -> counts the `Batches` of these whose ranks were compared by this process."""
_inherited: Any = None
"""In a forked child: the process group of its parent, whose connections must not be used by two processes."""


class Agreement:
    """Compares the order of one `Batches` with that of the same `Batches` on the other ranks."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._compared = False
        self.problem: str | None = None
        """Why ranks could not be compared."""

    def check(
        self, ranks: Ranks | None, split: RankSplit, order: Order, epoch: int, identity: Mapping[str, Any]
    ) -> None:
        """Compare with the other ranks, once, if the ranks are "auto" and torch.distributed is initialized.

        identity: of the samples and the order. Raises UsageError where another rank has noted another order.
        """
        if self._compared or ranks is None or ranks.rank != "auto" or split.world_size == 1 or not torch_distributed():
            return
        if self._key is None:
            which = xxhash.xxh3_64_hexdigest(repr([[identity[name] for name in _SAMPLES], split.batch_size]).encode())
            # torchrun may start all processes anew with the store of those that failed.
            started = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            self._key = f"rawpack/order/{started}/{which}/{next(_numbers[which])}"
        import json

        own: dict[str, Any] = {name: value for name, value in identity.items() if name not in _SAMPLES}
        own |= {"drop_last": split.drop_last, "last": split.last}
        if not order.follows_epoch:
            del own["seed"]  # it does not change the order
        if not order.foreseeable:
            # The user's sampler may draw at random, on each rank in another way.
            own["samples drawn"] = xxhash.xxh3_64_hexdigest(order.samples(epoch, 0, order.length(epoch)).tobytes())
        try:
            mine = json.dumps([split.rank, own])
            (_, own), (other, theirs) = json.loads(mine), json.loads(_noted(self._key, mine))
        except Exception as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            self.problem = (
                f"not compared: the store of torch's process group cannot be used ({why}); make sure that all ranks "
                "have the same seed, order and options"
            )
            self._compared = True
            return
        if own != theirs:
            different = [name for name in own if name in theirs and own[name] != theirs[name]]
            shown = ", ".join(f"{name}={own[name]!r} here and {theirs[name]!r} there" for name in different)
            raise UsageError(
                f"rank {split.rank} does not read in the order of rank {other}: {shown}; some samples would be read "
                "twice and others never: pass the same seed, order and options to batches() on all ranks"
            )
        self._compared = True


def _noted(key: str, value: str) -> bytes:
    """What the first rank noted under a key in the store of the process group: `value` where this rank is the first."""
    distributed = torch_distributed()
    if distributed.group.WORLD is _inherited:
        raise RuntimeError("the process group is that of the parent process")
    # torch has no public name for it.
    return distributed.distributed_c10d._get_default_store().compare_set(key, "", value)  # type: ignore[no-any-return]


def _inherit() -> None:
    global _inherited
    _inherited = getattr(getattr(torch_distributed(), "group", None), "WORLD", None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)
