"""What the parts share: photographs, stores of their data, times and sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from published_parts.contract import Task

FORMATS = ("memmap", "hdf5", "lmdb")


def photos(task: Task, count: int) -> list[Path]:
    """`count` JPEG files: links to those of `--data`, or to generated ones, repeated as often as needed."""
    import data

    folder = data.photos(task.folder, Path(task.photos) if task.photos else None, count)
    return data.image_files(folder)


def store(task: Task, name: str, format: str) -> Path:
    """The path of a part's store in this format."""
    return task.folder / f"{name}.{format}"


def pack(task: Task, name: str, source: Any, formats: Iterable[str] = FORMATS, **options: Any) -> None:
    """Pack a store in each format, unless there is one already."""
    import rawpack_packer

    for format in formats:
        path = store(task, name, format)
        if not (path / "store.json").exists():
            rawpack_packer.pack(source, path, format=format, workers=0 if task.quick else None, **options)


def once(path: Path, make: Callable[[Path], object]) -> Path:
    """Make a file or folder unless it exists: under another name, and renamed when it is complete."""
    if not path.exists():
        partial = path.with_name("partial-" + path.name)
        make(partial)
        partial.rename(path)
    return path


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def warm(path: Path) -> None:
    """Read a file, or all files below a folder, into the page cache."""
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb", buffering=0) as opened:
                while opened.read(16 << 20):
                    pass


def size_of(path: Path) -> int:
    """The size of a file, or of all files below a folder, in bytes."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
