"""What `--curate` measured, put to use: near duplicates, leaks between splits, and the darkest, blurriest and blankest
images of a store. No image is read."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawpack import Reader
from rawpack.disk.manifest import CURATED
from rawpack.disk.splits import read_splits
from rawpack.remote.url import is_url
from rawpack_packer.destination.folder import is_finished

NEAR = 4
"""Bits of 64 in which the perceptual hashes of near duplicates differ, at most."""
_CHUNKS = NEAR + 1
_SHOWN = 12
_WORDS = {
    "brightness": "brightness, the mean of gray: 0 to 255",
    "sharpness": "sharpness, the variance of the Laplacian of gray",
    "entropy": "entropy of gray, in thousandths of a bit per pixel: 0 to 8,000",
    "one_color": "one_color, the longest run of pixels of one gray, in thousandths of the image",
}
_ONES = np.array([bin(k).count("1") for k in range(256)], np.int64)
"""The bits that are set in each byte."""
_ARGUMENT = 100_000
"""Characters of a condition in a command; a shell takes 128 KiB."""
Rows = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Extremes:
    """The images of a store that have the least, or the most, of a measure."""

    title: str
    field: str
    """The measure."""
    words: str
    """What is measured."""
    rows: list[int]
    """The most extreme first."""
    values: list[int]
    command: str
    """Makes a store without these."""


@dataclass(frozen=True)
class Leak:
    """An image that is in another split too, or nearly."""

    row: int
    split: str
    other: int
    """The row there."""


@dataclass(frozen=True)
class Curation:
    """What was found in one store."""

    groups: list[list[int]]
    """Rows of near duplicates, in stored order; the largest groups first."""
    without_duplicates: str
    """The command that keeps the first image of each group."""
    leaks: list[Leak]
    without_leaks: str
    extremes: list[Extremes]


def curation_of(reader: Reader) -> Curation | None:
    """What the measures of a store show; None where it has none. reader: of all of it."""
    if not len(reader) or not all(name in reader.fields for name in CURATED):
        return None
    path = reader.stores[0].path
    hashes = reader.column("phash").astype(np.uint64)
    groups = near_groups(hashes)
    leaks = [Leak(row, name, other) for name, split in _siblings(path) for row, other in _leaks(hashes, split)]
    extra, leaked = [row for group in groups for row in group[1:]], sorted({leak.row for leak in leaks})
    return Curation(
        groups,
        _without(path, extra, "without-duplicates"),
        leaks,
        _without(path, leaked, "without-leaks"),
        [
            shown
            for title, name, least in (
                ("Darkest", "brightness", True),
                ("Brightest", "brightness", False),
                ("Blurriest", "sharpness", True),
                ("Least detail", "entropy", True),
                ("Largest area of one color", "one_color", False),
            )
            if (shown := _extremes(reader, title, name, least=least)).rows
        ],
    )


def near_groups(hashes: Hashes) -> list[list[int]]:
    """The rows, in order, of images whose hashes (n,) are nearly equal, directly or through others; the largest groups
    first."""
    values, inverse = np.unique(hashes, return_inverse=True)
    parents = np.arange(len(values))

    def root(k: int) -> int:
        while parents[k] != k:
            parents[k] = k = parents[parents[k]]
        return k

    for a, b in near_pairs(values):
        parents[root(a)] = root(b)
    roots = np.array([root(k) for k in range(len(values))], np.int64)[inverse]
    order = np.argsort(roots, kind="stable")
    cuts = np.flatnonzero(np.diff(roots[order])) + 1
    groups = [group.tolist() for group in np.split(order, cuts) if len(group) > 1]
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def near_pairs(hashes: Hashes) -> Iterator[tuple[int, int]]:
    """The pairs of hashes (n,), all different, that differ in at most `NEAR` bits: their positions.

    Two such hashes are equal in at least one of `NEAR` + 1 runs of bits (Norouzi et al., Fast Search in Hamming Space
    with Multi-Index Hashing, CVPR 2012), so only those are compared.
    """
    edges = [64 * k // _CHUNKS for k in range(_CHUNKS + 1)]
    pairs = [np.empty((0, 2), np.int64)]
    for low, high in itertools.pairwise(edges):
        parts = (hashes >> np.uint64(low)) & np.uint64((1 << (high - low)) - 1)
        order = np.argsort(parts, kind="stable")
        parts, ordered = parts[order], hashes[order]
        at, distance = np.arange(len(hashes)), 1
        while True:
            # Each hash with the one `distance` further on, as long as their runs of bits are equal.
            at = at[at + distance < len(hashes)]
            at = at[parts[at] == parts[at + distance]]
            if not len(at):
                break
            octets = (ordered[at] ^ ordered[at + distance]).view(np.uint8).reshape(-1, 8)
            near = at[_ONES[octets].sum(axis=1) <= NEAR]
            pairs.append(np.sort(np.stack([order[near], order[near + distance]], axis=1), axis=1))
            distance += 1
    yield from map(tuple, np.unique(np.concatenate(pairs), axis=0).tolist())


def _leaks(hashes: Hashes, path: Path) -> list[tuple[int, int]]:
    """The rows of images that are nearly in another store too, and the rows there."""
    other = Reader(path)
    if "phash" not in other.fields:
        return []
    theirs = other.column("phash").astype(np.uint64)
    leaks, mine = list[tuple[int, int]](), len(hashes)
    for group in near_groups(np.concatenate([hashes, theirs])):
        others = [row - mine for row in group if row >= mine]
        leaks += [(row, others[0]) for row in group if row < mine and others]
    return sorted(leaks)


def _siblings(path: str) -> Iterator[tuple[str, Path]]:
    """The other splits of the set that the store at a path or URL is in."""
    store = Path(path).resolve()
    splits = None if is_url(path) else read_splits(store.parent)
    for name in () if splits is None else splits.splits:
        if (split := store.parent / name) != store and is_finished(split):
            yield name, split


def _extremes(reader: Reader, title: str, name: str, *, least: bool) -> Extremes:
    values = reader.column(name).astype(np.int64)
    order = np.argsort(values if least else -values, kind="stable")
    # Those that are more extreme than the next one, so that the command leaves out these and no others.
    rest = int(values[order[min(_SHOWN, len(order) - 1)]])
    shown = [row for row in order[:_SHOWN].tolist() if values[row] != rest]
    limit = int(values[shown[-1]]) if shown else rest
    condition = f"{name} {'>' if least else '<'} {limit}"
    command = _command(reader.stores[0].path, condition, f"without-{title.split()[0].lower()}")
    return Extremes(title, name, _WORDS[name], shown, values[shown].tolist(), command)


def _without(path: str, rows: list[int], name: str) -> str:
    """The command that makes a store without these rows, or without as many of them as a command has room for."""
    listed = ""
    for row in rows:
        if len(listed) > _ARGUMENT:
            break
        listed += f"{row}, "
    return _command(path, f"index not in ({listed.strip()})", name) if rows else ""


def _command(path: str, condition: str, name: str) -> str:
    return shlex.join(["rawpack", "subset", path, name, "--where", condition])
