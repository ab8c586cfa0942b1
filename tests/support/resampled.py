"""For tests of the native core: resizing from its definition, tap by tap in fractions, and thousands of odd cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray
from planes import bytes_of, rgb_of

from rawpack.native.calls import IMAGE, resample

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    """One image and what is made of it."""

    pixels: Bytes  # (height * stride,) at least: rows `stride` bytes from each other
    stride: int
    shape: tuple[int, int, int]  # of the image: height, width, channels
    box: tuple[int, int, int, int]  # y, x, height, width
    scaled: tuple[int, int]
    at: tuple[int, int]
    flips: int
    out: tuple[int, int]  # height, width of the result
    planar: bool
    antialias: bool
    fill: int
    tables: NDArray[Any] | None
    lines: NDArray[np.float64] | None = None
    planes: bool = False  # `pixels` are planes of YCgCo 4:2:0 of that shape
    changes: NDArray[np.float64] | None = None  # (1, count, 2), of color

    @property
    def bytes(self) -> int:
        """From the first pixel to the last."""
        height, width, channels = self.shape
        if self.planes:
            return bytes_of(height, width)
        return (height - 1) * self.stride + width * channels

    def described(self, address: int) -> NDArray[np.void]:
        """(1,) of IMAGE, the pixels at this address, of which nothing after the last may be read."""
        image = np.zeros(1, IMAGE)
        image["pixels"], image["end"], image["stride"] = address, address + self.bytes, self.stride
        image["height"], image["width"], image["planes"] = *self.shape[:2], self.planes
        image["box"], image["scaled"], image["at"], image["flips"] = self.box, self.scaled, self.at, self.flips
        return image

    def empty(self) -> NDArray[Any]:
        height, width = self.out
        channels = self.shape[2]
        shape = (1, channels, height, width) if self.planar else (1, height, width, channels)
        return np.empty(shape, np.uint8 if self.tables is None else self.tables.dtype)

    def made(self, lanes: bool, out: NDArray[Any] | None = None, address: int | None = None) -> NDArray[Any]:
        """The native core's result."""
        out = self.empty() if out is None else out
        image = self.described(self.pixels.ctypes.data if address is None else address)
        options = {"planar": self.planar, "antialias": self.antialias, "fill": self.fill, "tables": self.tables}
        resample(image, out, lanes=lanes, lines=self.lines, changes=self.changes, **options)
        return out

    def expected(self) -> NDArray[Any]:
        """The definition's result, of the shape of `made`."""
        height, width, channels = self.shape
        if self.planes:
            whole = rgb_of(self.pixels[: self.bytes], height, width).astype(np.uint8)
        else:
            whole = np.stack([self.pixels[y * self.stride :][: width * channels] for y in range(height)])
        y, x, h, w = self.box
        part = whole.reshape(self.shape)[y : y + h, x : x + w]
        part = _resized(part, 1, self.scaled[1], self.antialias)
        part = _resized(part, 0, self.scaled[0], self.antialias)
        window = np.full((*self.out, channels), self.fill, np.uint8)
        for i, j in np.ndindex(self.out):
            row, column = i + self.at[0], j + self.at[1]
            if 0 <= row < self.scaled[0] and 0 <= column < self.scaled[1]:
                window[i, j] = part[row, column]
        window = window[:, ::-1] if self.flips & 1 else window
        window = window[::-1] if self.flips & 2 else window
        values = (
            window if self.tables is None else np.stack([self.tables[c][window[..., c]] for c in range(channels)], -1)
        )
        return (values.transpose(2, 0, 1) if self.planar else values)[np.newaxis]


@lru_cache(maxsize=512)
def weights(size: int, scaled: int, antialias: bool) -> tuple[int, list[dict[int, int]]]:
    """p, and for each output its pixels' weights in 2^-p."""
    exact: list[dict[int, Fraction]] = []
    for i in range(scaled):
        center, half = Fraction((2 * i + 1) * size, 2 * scaled), Fraction(1, 2)
        if size > scaled and antialias:
            reach = Fraction(size, scaled)
            near = range(max(0, int(center - reach)), min(size, int(center + reach) + 1))
            heights = {j: 1 - abs(j + half - center) / reach for j in near}
            heights = {j: height for j, height in heights.items() if height > 0}
            total = sum(heights.values())
            exact.append({j: height / total for j, height in heights.items()})
        else:
            at = min(max(center - half, Fraction(0)), Fraction(size - 1))
            share = at - int(at)
            exact.append({int(at): 1 - share, int(at) + 1: share} if share else {int(at): Fraction(1)})
    most = max(max(taps.values()) for taps in exact)
    p = max(bits for bits in range(23) if most * 2**bits + Fraction(1, 2) < 2**15)
    whole = [{j: int(weight * 2**p + Fraction(1, 2)) for j, weight in taps.items()} for taps in exact]
    if not (size > scaled and antialias):  # the second of two is rounded, the first is the rest
        for taps in whole:
            first, *second = sorted(taps)
            taps[first] = 2**p - sum(taps[j] for j in second)
    return p, whole


def _resized(image: Bytes, axis: int, scaled: int, antialias: bool) -> Bytes:
    if image.shape[axis] == scaled:
        return image
    lines = np.moveaxis(image, axis, 0).astype(np.int64)
    p, taps_of = weights(len(lines), scaled, antialias)
    sums = [sum(weight * lines[j] for j, weight in taps.items()) + 2 ** (p - 1) for taps in taps_of]
    return np.moveaxis(np.clip(np.stack(sums) >> p, 0, 255).astype(np.uint8), 0, axis)


class _Draws:
    """Whole numbers that are the same with every version of Python and NumPy."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, end: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % end

    def between(self, least: int, most: int) -> int:
        return least + self.below(most - least + 1)


def noise(size: int) -> Bytes:
    """Bytes without a pattern; every third one 0 or 255, where rounding and clipping matter."""
    numbers = np.arange(size, dtype=np.uint64)
    mixed = (numbers * np.uint64(0x9E3779B97F4A7C15)) ^ ((numbers * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(29))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    values = (mixed >> np.uint64(56)).astype(np.uint8)
    return np.where(mixed >> np.uint64(20) & np.uint64(3) == 0, np.where(values < 128, 0, 255), values).astype(np.uint8)


def odd_cases(count: int, seed: int = 1) -> Iterator[Case]:
    """Cases of all kinds: most are small; each tenth has a long side, each second result is a window."""
    draws, block = _Draws(seed), noise(2_000_000)
    for k in range(count):
        channels = (1, 3)[draws.below(2)]
        sides = [draws.between(1, 70), draws.between(1, 70)]
        if k % 10 == 0:
            sides[draws.below(2)] = draws.between(100, 4000)
        size = [draws.between(1, side) for side in sides]
        corner = [draws.between(0, side - part) for side, part in zip(sides, size, strict=True)]
        scaled = [part if draws.below(4) == 0 else draws.between(1, 80) for part in size]
        at, out = [0, 0], [min(side, 500) for side in scaled]
        if draws.below(2):
            at, out = [draws.between(-20, 60), draws.between(-20, 60)], [draws.between(1, 70), draws.between(1, 70)]
        stride = sides[1] * channels + (draws.below(40) if draws.below(2) else 0)
        dtype = (None, np.uint8, np.uint16, np.float32)[draws.below(4)]
        tables = None
        if dtype is not None:  # whole numbers that this dtype holds exactly
            tables = (np.arange(256) * 31 % 251 + 1)[np.newaxis].repeat(channels, 0).astype(dtype)
            tables += np.arange(channels, dtype=dtype)[:, np.newaxis]
        lines = None
        if dtype is np.float32 and draws.below(2):
            lines = np.stack([1 / np.arange(56.0, 56 + channels), np.arange(channels) - 2.12], axis=1)
            tables = (np.arange(256) * lines[:, :1] + lines[:, 1:]).astype(np.float32)
        begin = draws.below(1000)
        pixels = block[begin : begin + sides[0] * stride]
        yield Case(
            pixels, stride, (sides[0], sides[1], channels), (corner[0], corner[1], size[0], size[1]),
            (scaled[0], scaled[1]), (at[0], at[1]), draws.below(4), (out[0], out[1]),
            bool(draws.below(2)), bool(draws.below(2)), draws.below(256), tables, lines,
        )  # fmt: skip


def planar_cases(count: int, seed: int = 1) -> Iterator[Case]:
    """The cases of `count` that have 3 channels, with planes instead of pixels."""
    for case in odd_cases(count, seed):
        if case.shape[2] == 3:
            yield replace(case, stride=case.shape[1], planes=True)


def recolored_cases(count: int, seed: int = 1) -> Iterator[Case]:
    """The cases of `count`, of pixels and of planes in turn, with up to 5 changes of color each."""
    draws = _Draws(seed + 1000)
    for plain, planar in zip(odd_cases(count, seed), cycle(planar_cases(count, seed)), strict=False):
        changes = np.zeros((1, draws.below(6), 2))
        for change in changes[0]:
            change[0] = draws.below(4)
            whole = draws.below(256) if change[0] == 3 else draws.below(4) / 2
            change[1] = whole if change[0] == 3 or draws.below(4) == 0 else draws.below(1 << 21) / (1 << 20)
            if change[0] != 3 and draws.below(30) == 0:
                change[1] *= 15
        yield replace(planar if draws.below(4) == 0 else plain, changes=changes)
