"""Order: which sample comes at which position of which epoch, and which positions each rank reads."""

from rawpack.order.balanced import Balanced
from rawpack.order.base import Order
from rawpack.order.blocks import Blocks, BlockShuffled
from rawpack.order.buckets import Bucketed
from rawpack.order.from_column import FromColumn
from rawpack.order.how_random import Mixing, mixing
from rawpack.order.launcher import Ranks, ranks_here, resolve_rank
from rawpack.order.mixed import Mixed
from rawpack.order.ranks import RankSplit, Span
from rawpack.order.sampled import Sampled
from rawpack.order.shuffled import Sequential, Shuffled
from rawpack.order.weighted import Weighted

__all__ = [
    "Balanced",
    "BlockShuffled",
    "Blocks",
    "Bucketed",
    "FromColumn",
    "Mixed",
    "Mixing",
    "Order",
    "RankSplit",
    "Ranks",
    "Sampled",
    "Sequential",
    "Shuffled",
    "Span",
    "Weighted",
    "mixing",
    "ranks_here",
    "resolve_rank",
]
