"""Order: which sample comes at which position of which epoch, and which positions each rank reads.

Here are the values that users pass to `Reader.batches`.
"""

from rawpack.order.balanced import Balanced
from rawpack.order.blocks import Blocks
from rawpack.order.launcher import Ranks
from rawpack.order.weighted import Weighted

__all__ = ["Balanced", "Blocks", "Ranks", "Weighted"]
