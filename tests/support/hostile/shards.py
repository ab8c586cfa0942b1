"""Mutations inside HDF5 and LMDB files, and of the JPEG files in these."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hostile.copies import Copy, Mutation
from hostile.stores import HEIGHT, WIDTH


def structural_bytes(name: str, variant: str) -> Iterator[Mutation]:
    """Single bytes of the first pages, the header of the file and of what lies in it."""

    def flip(at: int, value: int) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            data = copy.read(name)
            data[at % len(data)] = value
            copy.forge(name, bytes(data))

        return apply

    random = np.random.default_rng(11)
    spots = [0, 4, 8, 9, 10, 12, 16, 20, 28, 36, 44]
    spots += [*random.integers(0, 2048, 60).tolist(), *random.integers(-4096, 0, 20).tolist()]
    for number, at in enumerate(spots):
        value = (0, 255, 128)[number % 3]
        yield Mutation(f"{name} bytes", f"{at} = {value}", flip(at, value), check=number % 4 == 0)


def foreign_hdf5(name: str) -> Iterator[Mutation]:
    """HDF5 files that lead elsewhere, in the place of a shard."""
    import h5py

    def made(build: Callable[[h5py.File, Path], object]) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            target = copy.outside / name
            path = copy.path / "new.h5"
            with h5py.File(path, "w") as file:
                build(file, target)
            size = len(copy.read(name))
            data = path.read_bytes().ljust(size, b"\0")
            path.unlink()
            copy.forge(name, data)

        return apply

    def virtual(file: h5py.File, target: Path) -> None:
        layout = h5py.VirtualLayout((64, HEIGHT, WIDTH, 3), "u1")
        layout[:] = h5py.VirtualSource(target, "image", (64, HEIGHT, WIDTH, 3))
        file.create_virtual_dataset("image", layout)

    def external(file: h5py.File, target: Path) -> None:
        shape = (64, HEIGHT, WIDTH, 3)
        file.create_dataset("image", shape, "u1", external=[(os.fspath(target), 0, int(np.prod(shape)))])

    def huge(file: h5py.File, target: Path) -> None:
        file.create_dataset("image", (1 << 40, HEIGHT, WIDTH, 3), "u1", chunks=(1, HEIGHT, WIDTH, 3))

    def filtered(file: h5py.File, target: Path) -> None:
        data = np.zeros((64, HEIGHT, WIDTH, 3), np.uint8)
        file.create_dataset("image", data=data, chunks=(64, HEIGHT, WIDTH, 3), compression="gzip")

    def wide(file: h5py.File, target: Path) -> None:
        file.create_dataset("image", (64, 1 << 20, 1 << 10, 3), "u1", chunks=(1, 1 << 10, 1 << 10, 3))

    def linked(file: h5py.File, target: Path) -> None:
        file["image"] = h5py.ExternalLink(target, "image")

    def looped(file: h5py.File, target: Path) -> None:
        file["image"] = h5py.SoftLink("/image")

    def grouped(file: h5py.File, target: Path) -> None:
        file.create_group("image")

    for build in (linked, looped, external, virtual, grouped, huge, wide, filtered):
        yield Mutation(f"{name} foreign", build.__name__, made(build), check=True)
    yield Mutation(f"{name} foreign", "nothing in it", made(lambda f, t: None), check=True)


_META = {
    "flags of the page": (10, 2), "magic": (16, 4), "version": (20, 4), "address": (24, 8), "map size": (32, 8),
    "page size": (40, 4), "flags of the free list": (44, 2), "root of the free list": (80, 8), "flags": (92, 2),
    "depth": (94, 2), "branch pages": (96, 8), "leaf pages": (104, 8), "entries": (120, 8), "root": (128, 8),
    "last page": (136, 8), "transaction": (144, 8),
}  # fmt: skip
"""Field of an LMDB meta page -> (offset in the page, bytes)."""


def lmdb_pages(name: str) -> Iterator[Mutation]:
    def set_field(offset: int, size: int, value: int) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            data = copy.read(name)
            for page in (0, 4096):
                data[page + offset : page + offset + size] = value.to_bytes(size, "little")
            copy.forge(name, bytes(data))

        return apply

    def zero_page(number: int) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            data = copy.read(name)
            data[number * 4096 : (number + 1) * 4096] = bytes(4096)
            copy.forge(name, bytes(data))

        return apply

    for field_name, (offset, size) in _META.items():
        top = (1 << 8 * size) - 1
        for value in (0, 1, 2, top, top // 2, 4096 & top, 1000):
            yield Mutation(f"{name} {field_name}", str(value), set_field(offset, size, value), check=value in (1, top))
    for number in (0, 1, 2, 3, 4, 5):
        yield Mutation(f"{name} pages", f"{number} zeroed", zero_page(number), check=True)


def jpeg_headers(copy: Copy) -> Iterator[Mutation]:
    """The first JPEG of the first shard."""
    name = copy.shards[0]
    start, size = int(copy.array("image.offset")[0]), int(copy.array("image.bytes")[0])
    image = bytes(copy.read(name)[start : start + size])

    def patch(at: int, new: bytes) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            data = copy.read(name)
            data[start + at : start + at + len(new)] = new
            copy.forge(name, bytes(data))

        return apply

    frame = image.index(b"\xff\xc0")
    sizes = [(0, 0), (65535, 65535), (65500, 8), (HEIGHT + 1, WIDTH), (HEIGHT, WIDTH + 8), (1, 1), (WIDTH, HEIGHT)]
    for sides in sizes:
        yield Mutation("JPEG size", f"{sides}", patch(frame + 5, struct.pack(">HH", *sides)), check=True)
    for components in (0, 1, 2, 4, 255):
        yield Mutation("JPEG components", str(components), patch(frame + 9, bytes([components])))
    yield Mutation("JPEG markers", "none", patch(0, bytes(size)))
    yield Mutation("JPEG markers", "the end at once", patch(2, b"\xff\xd9"))
    random = np.random.default_rng(13)
    for at in random.integers(2, size, 40).tolist():
        yield Mutation("JPEG bytes", str(at), patch(at, bytes([int(random.integers(256))])))
