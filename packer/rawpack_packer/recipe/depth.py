"""What is said where images of more than 8 bits were stored as 8."""

from __future__ import annotations

from collections.abc import Mapping

from rawpack_packer.counts import depth_of
from rawpack_packer.options import opt


def lost_depth(counts: Mapping[str, int]) -> str:
    """How many images lost their lower bits, what is left of their values, and the cure; "" where none did."""
    lost = {depth: count for name, count in counts.items() if count and (depth := depth_of(name))}
    if not lost:
        return ""
    bits, of = max(lost, key=lambda depth: (depth[1], depth[0]))
    left = f"{1 << max(0, bits + 8 - of):,} of {1 << bits:,} levels are left"
    return (
        f"images of more than 8 bits, stored as 8: {sum(lost.values()):,} ({bits}-bit values in {of} bits: {left}; "
        f"{opt.depth(16)} keeps them)"
    )
