"""Order: which sample comes at which position of which epoch, and which positions each rank reads."""

from rawpack.order.base import Order
from rawpack.order.blocks import BlockShuffled
from rawpack.order.buckets import Bucketed
from rawpack.order.launcher import ranks_here, resolve_rank
from rawpack.order.mixing import Mixing, mixing
from rawpack.order.ranks import RankSplit, Span
from rawpack.order.sampled import Sampled
from rawpack.order.shuffled import Sequential, Shuffled

__all__ = [
    "BlockShuffled",
    "Bucketed",
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
