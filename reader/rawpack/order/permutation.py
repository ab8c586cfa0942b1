"""Keyed permutations of range(n): by a sort, or by a bijection of which any part can be computed alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack.order.base import Samples
from rawpack.order.keys import GAMMA, MULTIPLIERS, SHIFTS, stream

ROUNDS = 7
"""Chosen by how often each difference occurs between samples at power-of-two distances, as z-scores against true
permutations, whose own worst is 4.5. Worst of 500 keys at 17 bits, the fewest in use: 133 after 4 rounds, 5.4 after 5,
4.5 after 6. Worst of 2,000 keys at 13 bits: 37 after 5 rounds, 12.6 after 6 (one key), 4.5 after 7."""

SWAP_ROUNDS, SWAP_STEP = 24, 0xD1342543DE82EF95
"""Of `swapped`. After 12 rounds, all orders of 3 to 6 samples are equally likely, as are the distances of pairs in sets
of 1,000 and 50,000, by chi-square of 400,000 keys. The step is the multiplier of a generator of random points."""


def sorted_shuffle(n: int, key: int) -> Samples:
    """range(n) in the order of keyed hashes, int64 (n,), for n < 2**32. Memory is O(n)."""
    low = np.uint64((1 << n.bit_length()) - 1)
    position = np.arange(n, dtype=np.uint64)
    words = splitmix(position, key)
    # The position replaces the low bits: no two words are equal, so every sorting algorithm gives the same result.
    words &= ~low
    words |= position
    if n <= 1 << 16:
        return _ranked(words)
    words.sort()
    words &= low
    return words.view(np.int64)


def _ranked(words: NDArray[np.uint64]) -> Samples:
    """`words.argsort()` for up to 65,536 different words that are random above their low bits.

    Two radix sorts, which numpy has for 16 bits only, take less than half the time of its general sort without SIMD.
    """
    order = (words >> np.uint64(32)).astype(np.uint16).argsort(kind="stable")
    order = order.take((words >> np.uint64(48)).astype(np.uint16).take(order).argsort(kind="stable"))
    ranked = words.take(order)
    # In a third of all such sets, some two words have equal upper 32 bits.
    return (order if (ranked[1:] > ranked[:-1]).all() else words.argsort()).astype(np.int64, copy=False)


def splitmix(index: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """The outputs of `stream(key)` at the positions `index`, from 0."""
    word = index + np.uint64(1)
    word *= np.uint64(GAMMA)
    word += np.uint64(key)
    return mix_all(word)


def mix_all(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` of each word, in place."""
    for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, 1), strict=True):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(multiplier)
    return words


def swapped(positions: NDArray[np.int64], sizes: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Each position through a permutation of its own, of range(size) by its key, for sizes below 2**32. All (n,).

    For many small sets at once, of each of which only a few positions are wanted. The method is the swap-or-not shuffle
    of Hoang, Morris and Rogaway (CRYPTO 2012): in each round, a position and its mirror image around a random point
    change places or not, by a random bit. Unlike rounds of multiply and xor-shift, that is uniform for few samples too.
    """
    half, top = np.uint64(32), np.uint64(63)
    step, start = np.uint64(SWAP_STEP), np.uint64(GAMMA)
    x, size, words = positions.astype(np.uint64), sizes.astype(np.uint64), keys
    for _ in range(SWAP_ROUNDS):
        words = words * step + start
        mirrored = (words >> half) * size >> half
        mirrored += (mirrored < x) * size
        mirrored -= x
        # One of the two, whichever is given, decides for both.
        bits = mix_all(words ^ np.maximum(x, mirrored) * start)
        x = np.where(bits >> top, mirrored, x)
    return x.astype(np.int64)


def permuted(n: int, key: int, start: int, stop: int) -> Samples:
    """The samples at positions start..stop-1 of a permutation of range(n), 1 <= n < 2**63: int64 (stop - start,), in as
    much memory.

    Positions go through rounds of multiply, add and xor-shift, each a bijection of [0, 2**bits), the smallest power of
    two not below n. A result outside range(n) goes through again until it is inside (cycle walking), so the whole
    remains a permutation.
    """
    bits = max(2, (n - 1).bit_length())
    # The low bits of a product depend on low bits only, so 32 bits are enough: half the memory traffic.
    word: type[np.uint32 | np.uint64] = np.uint32 if bits <= 32 else np.uint64
    last, mask, shift, words = word(n - 1), word((1 << bits) - 1), word(bits // 2), stream(key)
    rounds = [(word((next(words) | 1) & int(mask)), word(next(words) & int(mask))) for _ in range(ROUNDS)]

    def mix(x: NDArray[np.unsignedinteger]) -> None:
        # Without this first xor-shift, positions half an epoch apart remain related for one more round.
        half = x >> shift
        x ^= half
        for multiplier, addend in rounds:
            x *= multiplier
            x += addend
            x &= mask
            np.right_shift(x, shift, out=half)
            x ^= half

    x: NDArray[np.unsignedinteger] = np.arange(start, stop, dtype=word)
    mix(x)
    outside = np.flatnonzero(x > last)
    while outside.size:
        again = x.take(outside)
        mix(again)
        x[outside] = again
        outside = outside.take(np.flatnonzero(again > last))
    return x.astype(np.int64)
