"""Mutations of `.npy` headers and of the values of columns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostile.copies import Copy, Mutation, npy


def npy_headers(name: str) -> Iterator[Mutation]:
    def header(descr: str | None = None, shape: str | None = None, **rest: Any) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            array = np.load(copy.path / name)
            data = rest.pop("data", None)
            new = npy(
                descr or repr(array.dtype.str), shape or array.shape, array.tobytes() if data is None else data, **rest
            )
            copy.forge(name, new.replace(b"OUTSIDE", str(copy.outside).encode()))

        return apply

    def patch(at: int, new: bytes) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            data = copy.read(name)
            data[at : at + len(new)] = new
            copy.forge(name, bytes(data))

        return apply

    for descr in ("|O", "<f8", ">i8", "<i8", "|S8", "|V8", "<i9", "<U4", "|b1", "<c1", "<i99", "|i0"):
        yield Mutation(f"{name} descr", descr, header(repr(descr)))
    yield Mutation(f"{name} descr", "a record", header("[('a', '<i8')]"))
    beyond = ("(4611686018427387904,)", "(18446744073709551616, 2)", f"({'1, ' * 70})", f"({'9' * 5000},)")
    for shape in ("()", "(0,)", "(-1,)", "(1,)", "(67,)", "(66, 0)", "'x'", *beyond):
        yield Mutation(f"{name} shape", shape[:30], header(shape=shape))
    for shape in ("(0,)", f"(0, {10**30})", f"({10**30}, 0)", f"({'0, ' * 70})", "(66, 0)", "()"):
        yield Mutation(f"{name} shape", f"{shape[:30]} and no data", header(shape=shape, data=b""))
    yield Mutation(f"{name} header", "Fortran order", header(order="True"))
    yield Mutation(f"{name} header", "an unknown key", header(extra="'x': 1, "))
    yield Mutation(f"{name} header", "code", header(extra="'x': __import__('os').system('touch OUTSIDE/x'), "))
    yield Mutation(f"{name} header", "a pickle", header("'|O'", data=b"cos\nsystem\n(S'touch OUTSIDE/x'\ntR."))
    for size in (0, 1, 53, 119, 0x7FFF, 0xFFFF):
        yield Mutation(f"{name} header length", str(size), patch(8, struct.pack("<H", size)))
    for version in (0, 2, 3, 255):
        yield Mutation(f"{name} version", str(version), patch(6, bytes([version])))
    yield Mutation(f"{name} version", "no magic", patch(0, b"PK"))
    yield Mutation(f"{name} header", "no end", patch(10, b" " * 54))


def column_values(name: str, array: NDArray[Any]) -> Iterator[Mutation]:
    def values(change: Callable[[NDArray[Any]], object]) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            array = copy.array(name)
            changed = change(array)
            copy.put(name, changed if isinstance(changed, np.ndarray) else array)

        return apply

    def at(position: object, value: int) -> Callable[[NDArray[Any]], object]:
        def change(array: NDArray[Any]) -> None:
            array[position] = value  # type: ignore[call-overload]

        return change

    yield Mutation(f"{name} values", "reversed", values(lambda a: np.ascontiguousarray(a[::-1])))
    yield Mutation(f"{name} values", "one less", values(lambda a: a[:-1].copy()))
    yield Mutation(f"{name} values", "one more", values(lambda a: np.concatenate([a, a[-1:]])))
    yield Mutation(f"{name} values", "all as the first", values(at(..., array[0] if array.ndim == 1 else 1)))
    kind = np.iinfo(array.dtype)
    many = {0, 1, 255, kind.min, kind.max, kind.max // 2, 4096, 1 << 20, 1 << 31, 1 << 40, -1}
    numbers = many if array.dtype != np.uint8 else {0, 27, 255}
    for number in sorted(n for n in numbers if kind.min <= n <= kind.max):
        for position in (0, len(array) // 2, -1):
            yield Mutation(f"{name} values", f"{number} at {position}", values(at(position, number)))
        yield Mutation(f"{name} values", f"all {number}", values(at(..., number)))
        for axis in range(array.shape[1] if array.ndim == 2 else 0):
            yield Mutation(f"{name} values {axis}", f"all {number}", values(at((slice(None), axis), number)))
    for step in (-1, 1):
        if array.dtype.kind == "i":
            yield Mutation(f"{name} values", f"all {step:+d}", values(partial(np.add, np.array(step, array.dtype))))
    if array.ndim == 2:
        yield Mutation(f"{name} values", "axes swapped", values(lambda a: np.ascontiguousarray(a[:, ::-1])))
        yield Mutation(f"{name} values", "axes turned", values(lambda a: np.ascontiguousarray(np.roll(a, 1, axis=1))))
    if name.endswith(".shape"):
        flat = values(lambda a: np.stack([a[:, 0], a[:, 1] * a[:, 2], a[:, 2] * 0 + 1], 1).astype(a.dtype))
        low = values(lambda a: np.stack([a[:, 0] // a[:, 0], a[:, 0] * a[:, 1], a[:, 2]], 1).astype(a.dtype))
        yield Mutation(f"{name} values", "grey and three times as wide", flat)
        yield Mutation(f"{name} values", "one row each", low)
