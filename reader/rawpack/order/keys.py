"""Keys: every random choice of an order depends on a 64-bit key, which is derived from (purpose, seed, epoch, ...).

The arithmetic is splitmix64's, in Python integers: the same on every machine and with every numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

WORD = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)


def mix(word: int) -> int:
    """splitmix64's finalizer: a bijection of [0, 2**64) in which each bit affects all others."""
    word = ((word ^ (word >> SHIFTS[0])) * MULTIPLIERS[0]) & WORD
    word = ((word ^ (word >> SHIFTS[1])) * MULTIPLIERS[1]) & WORD
    return word ^ (word >> SHIFTS[2])


def stream(key: int) -> Iterator[int]:
    """The endless outputs of splitmix64 from `key` on, each in [0, 2**64)."""
    while True:
        key = (key + GAMMA) & WORD
        yield mix(key)


@lru_cache(maxsize=1024)
def derive_key(purpose: str, *numbers: int) -> int:
    """A key in [0, 2**64) for one purpose. `numbers` are any integers, negative or longer than 64 bits."""
    state = 0
    for number in (int.from_bytes(purpose.encode(), "little"), *numbers):
        rest = abs(number)
        limbs = max(1, (rest.bit_length() + 63) // 64)
        state = mix(((state ^ (2 * limbs + (number < 0))) + GAMMA) & WORD)
        for _ in range(limbs):
            state = mix(((state ^ (rest & WORD)) + GAMMA) & WORD)
            rest >>= 64
    return state
