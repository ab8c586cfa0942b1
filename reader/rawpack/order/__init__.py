"""Order: which sample comes at which position of which epoch, and which positions each rank reads.

Here are the values that users pass to `Reader.batches`.
"""

from rawpack.order.from_column import Balanced, Weighted
from rawpack.order.launcher import Ranks
from rawpack.order.shuffled import Blocks

__all__ = ["Balanced", "Blocks", "Ranks", "Weighted"]
