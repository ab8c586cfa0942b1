"""Files cut short, and other things in their place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hostile.copies import Copy, Mutation

_HUGE = 1 << 40
"""Bytes of a sparse file."""


def truncations(name: str, size: int) -> Iterator[Mutation]:
    def cut(length: int, forged: bool) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            data = bytes(copy.read(name)[:length])
            copy.forge(name, data) if forged and name != "store.json" else copy.write(name, data)

        return apply

    def grow(copy: Copy, extra: int) -> None:
        copy.forge(name, bytes(copy.read(name)) + bytes(extra))

    for length in sorted({0, 1, 7, 8, 64, 511, 512, 4095, 4096, 4097, size // 2, size - 4096, size - 8, size - 1}):
        if 0 <= length < size:
            yield Mutation(f"{name} length", f"{length} bytes", cut(length, False), check=length == 0)
            yield Mutation(f"{name} length, forged", f"{length} bytes", cut(length, True), check=length == 0)
    for extra in (1, 4096):
        yield Mutation(f"{name} length, forged", f"{extra} bytes more", partial(grow, extra=extra))


def replacements(name: str) -> Iterator[Mutation]:
    def replaced(make: Callable[[Path, Copy], object]) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            path = copy.path / name
            path.unlink()
            make(path, copy)

        return apply

    def sparse(path: Path, copy: Copy) -> None:
        with path.open("wb") as file:
            file.truncate(_HUGE)

    def sparse_forged(copy: Copy) -> None:
        data = copy.read(name)
        for record in copy.records(name):
            record["bytes"] = _HUGE
        copy.seal()
        copy.write(name, bytes(data))
        with (copy.path / name).open("r+b") as file:
            file.truncate(_HUGE)

    kinds: dict[str, Callable[[Path, Copy], object]] = {
        "missing": lambda path, copy: None,
        "a folder": lambda path, copy: path.mkdir(),
        "a pipe": lambda path, copy: os.mkfifo(path),
        "a link to the same bytes outside": lambda path, copy: path.symlink_to(copy.outside / name),
        "a link to /dev/zero": lambda path, copy: path.symlink_to("/dev/zero"),
        "a link to nowhere": lambda path, copy: path.symlink_to(copy.outside / "nothing"),
        "a link to itself": lambda path, copy: path.symlink_to(path.name),
        "a sparse terabyte": sparse,
    }
    for kind, make in kinds.items():
        yield Mutation(f"{name} replaced", kind, replaced(make), check=True)
    if name != "store.json":
        yield Mutation(f"{name} replaced", "a sparse terabyte behind its bytes, forged", sparse_forged)


def folders() -> Iterator[Mutation]:
    def moved(make: Callable[[Path, Copy], object]) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            shutil.rmtree(copy.path / "columns-1")
            make(copy.path / "columns-1", copy)

        return apply

    kinds: dict[str, Callable[[Path, Copy], object]] = {
        "missing": lambda path, copy: None,
        "a file": lambda path, copy: path.write_bytes(b"x"),
        "a pipe": lambda path, copy: os.mkfifo(path),
        "a link outside": lambda path, copy: path.symlink_to(copy.outside / "columns-1"),
        "a link to itself": lambda path, copy: path.symlink_to("columns-1"),
    }
    for kind, make in kinds.items():
        yield Mutation("columns folder", kind, moved(make), check=True)
