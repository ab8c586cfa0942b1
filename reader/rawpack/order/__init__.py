"""Order: which sample comes at which position of which epoch, and which positions each rank takes.

base.py         what every order is
shuffled.py     the stored order and the full shuffle
blocks.py       the block shuffle
sampled.py      an order of the user's own
permutation.py  keyed permutations of range(n)
keys.py         keys from seeds
mixing.py       how random an order is
ranks.py        the positions of each rank's batches
launcher.py     rank="auto"
"""

from rawpack.order.base import Order
from rawpack.order.blocks import BlockShuffled
from rawpack.order.launcher import ranks_here, resolve_rank
from rawpack.order.mixing import Mixing, mixing
from rawpack.order.ranks import RankSplit, Span
from rawpack.order.sampled import Sampled
from rawpack.order.shuffled import Sequential, Shuffled

__all__ = [
    "BlockShuffled",
    "Mixing",
    "Order",
    "RankSplit",
    "Sampled",
    "Sequential",
    "Shuffled",
    "Span",
    "mixing",
    "ranks_here",
    "resolve_rank",
]
