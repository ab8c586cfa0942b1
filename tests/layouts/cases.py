"""Layouts of which it is recorded how their paths are recognized: how one is made, how it is opened, and what is read
of what opens. The tables of layouts are in `cases_*.py`, the answers in `answers.toml`."""

from __future__ import annotations

import io
import os
import re
import shutil
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from childless import without_children
from PIL import Image

from rawpack.errors import DecodeError, RawpackError
from rawpack_packer.job.opening import open_given
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.saved_tables import SavedTables
from rawpack_packer.sources import DividedError, FieldKind, Source, Table, open_source
from rawpack_packer.sources.fields import Boxes
from rawpack_packer.sources.table.remote_files import Spool

FIXTURES = Path(__file__).resolve().parents[1] / "support" / "fixtures"
ANSWERS = Path(__file__).with_name("answers.toml")
Files = Mapping[str, bytes | str]
Answer = dict[str, Any]
"""What a path is taken for, or why it is refused: texts, numbers, lists and tables of these."""
_FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".bmp": "BMP", ".tif": "TIFF", ".gif": "GIF"}
_MOST = 6
"""Keys and labels that are recorded of a layout."""
_MOST_NUMBERS = 36
"""Numbers of one value."""
_MOST_CHARACTERS = 240
"""Characters of a message."""
_LIBRARIES = re.compile(
    r"((scandir: )?embedded null|Array can't|mmap length|ArrowInvalid|OSError|Expected `|Object missing|Input data)"
    ".*",
    re.DOTALL,
)
"""How messages of libraries begin: they differ between versions."""
CLOSED = "closed"
"""A folder of this name cannot be listed: to take the right to do so away keeps nobody out who is root."""


@dataclass(frozen=True)
class Case:
    """One layout."""

    name: str
    """Unique in its table."""
    path: str | None
    """What is opened, from the folder in which the layout is made; None for what `make` returns."""
    make: Files | Callable[[Path], Any]
    """The files; or what makes them in an empty folder, or returns them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `open_source`."""
    needs: tuple[str, ...] = ()
    """Modules without which the layout is skipped."""


def recorded() -> dict[str, Answer]:
    return tomllib.loads(ANSWERS.read_text("utf-8"))


def missing(case: Case) -> str:
    """A module that the layout needs and that is not installed; empty where none is."""
    return next((name for name in case.needs if find_spec(name) is None), "")


# ---------------------------------------------------------------------------------------------- how they are made


def names(pattern: str) -> list[str]:
    """The names that the shell makes of a pattern with braces."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return [pattern]
    return [
        name
        for choice in braces[1].split(",")
        for name in names(pattern[: braces.start()] + choice + pattern[braces.end() :])
    ]


@cache
def image(suffix: str = ".png", seed: int = 0) -> bytes:
    """An image file of 8 x 8 pixels."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(file, _FORMATS.get(suffix.lower(), "PNG"))
    return file.getvalue()


def images(*patterns: str) -> dict[str, bytes | str]:
    """Files of these names, each another image of the format of its suffix."""
    every = [name for pattern in patterns for name in names(pattern)]
    return {name: image(os.path.splitext(name)[1], seed) for seed, name in enumerate(every)}  # noqa: PTH122


def files(*parts: str | Files, below: str = "") -> dict[str, bytes | str]:
    """Images of names by patterns, and other files, below a folder."""
    found = images(*(part for part in parts if isinstance(part, str)))
    for part in parts:
        found |= {} if isinstance(part, str) else part
    return {below + name: data for name, data in found.items()}


def texts(text: str, *patterns: str) -> dict[str, bytes | str]:
    """Files of these names that all hold one text."""
    return {name: text for pattern in patterns for name in names(pattern)}


def copied(name: str, to: str) -> Callable[[Path], None]:
    """Makes what the tools themselves wrote, from a file or folder of the fixtures."""

    def make(root: Path) -> None:
        source = FIXTURES / name
        (root / to).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / to)

    return make


def lone(name: str, path: str, data: bytes | str, *, inside: str = "", **options: Any) -> Case:
    """A layout of one file. inside: what of it is opened."""
    return Case(name, f"{path}/{inside}" if inside else path, {path: data}, options)


def photos(name: str, *parts: str | Files, of: str = "photos", needs: tuple[str, ...] = (), **options: Any) -> Case:
    """A layout of files in the folder photos/. of: what is opened."""
    return Case(name, of, files(*parts, below="photos/"), options, needs=needs)


def write(folder: Path, files: Files) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


# ---------------------------------------------------------------------------------------------- how they are opened


class _Sorted(Iterator[Any], AbstractContextManager[Any]):
    """The entries of a folder by their names, as messages name suffixes in the order of the entries."""

    def __init__(self, entries: Any) -> None:
        with entries:
            self._entries = iter(sorted(entries, key=lambda entry: entry.name))

    def __next__(self) -> Any:
        return next(self._entries)

    def __exit__(self, *_: object) -> None:
        pass

    close = __exit__


@contextmanager
def in_this_process() -> Iterator[list[Any]]:
    """Without children, and the entries of a folder come in the order of their names. Gives the folders that are listed
    meanwhile."""
    plain, listed = os.scandir, list[Any]()

    def scandir(path: Any = ".") -> Any:
        if not isinstance(path, int) and Path(os.fsdecode(path)).name == CLOSED:
            raise PermissionError(13, "Permission denied", path)
        listed.append(path)
        return _Sorted(plain(path))

    with without_children(), mock.patch.object(os, "scandir", scandir):
        yield listed


def prepare(case: Case, folder: Path) -> Callable[[], Source]:
    """Makes a layout in an empty folder, in which this process must be, and returns what opens it."""
    made = case.make(folder) if callable(case.make) else case.make
    options = dict(case.options)
    if case.path is None:
        run = RunOptions(workers=0)
        return lambda: open_given(made, options, run, {}, folder / "store", "store")
    write(folder, made or {})
    return lambda: open_source(case.path or "", **options)


def saved_again(table: Source, case: Case, folder: Path) -> Source:
    """The table that a run that resumes has in place of this one."""
    if case.path is None or not isinstance(table, Table):
        return table
    place, spool = folder / "store-being-packed", Spool(folder / "spool", 1 << 30)
    saved, again = (SavedTables(place, case.path, case.options, spool) for _ in range(2))
    saved.tables = {"": table}
    saved.save()
    described = ("coco", "cvat", "listing") if Path(case.path).is_dir() else ()
    unsaved = ("store", "labelme", "voc", "yolo", *described)
    assert again.load({saved.digest}) == (table.info.kind not in unsaved)
    return again.tables.get("", table)


def answer(opener: Callable[[], Source], folder: Path) -> Answer:
    """What opens, or the refusal."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            source = opener()
    except RawpackError as error:
        return _refusal(error, shown(str(error), folder))
    info = source.info
    samples = [_sample(source, i) for i in range(min(len(source), _MOST))]
    keys = [shown(source.key(i), folder) for i in range(len(samples))]
    record: Answer = {
        "kind": info.kind,
        "samples": len(source),
        "keys": keys,
        "image": f"{info.image.dtype}{_shape(info.image.shape)}" if info.image else "",
        "fields": {name: _field(kind) for name, kind in info.fields.items()},
        "classes": list(info.classes or ()),
        "labels": [sample["label"] for sample in samples if "label" in sample],
        "boxes": [sample["boxes"] for sample in samples if "boxes" in sample],
        "values": values if any(values := [sample.get("more", {}) for sample in samples[:3]]) else [],
        "rejected": [f"{keys[i]}: {sample['!']}" for i, sample in enumerate(samples) if "!" in sample],
        "counts": {name: number for name, number in info.counts.items() if number},
        "skipped": {name or "without a suffix": number for name, number in sorted(info.skipped.items())},
        "problems": [shown(problem, folder) for problem in info.problems],
        "warns": [_first_part(shown(str(one.message), folder)) for one in caught],
    }
    return {name: value for name, value in record.items() if value or name == "samples"}


def shown(text: str, folder: Path) -> str:
    """A text without the name of this run's folder."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace(f"{folder}/", "").replace(str(folder), ".")


def _refusal(error: RawpackError, message: str) -> Answer:
    record: Answer = {"refused": type(error).__name__}
    if isinstance(error, DividedError):
        _, splits, kind = error._told
        record |= {"kind": kind, "splits": list(splits)}
    else:
        record["says"] = _first_part(message)
    record |= {"type": _commands(message)}
    return {name: value for name, value in record.items() if value}


def _first_part(message: str) -> str:
    """Up to a semicolon or a line break that is in no command, or to what a library says."""
    message = _LIBRARIES.sub("...", message)
    return re.split(r"; (?=[^`]*(?:`[^`]*`[^`]*)*$)|\n", message)[0][:_MOST_CHARACTERS]


def _commands(message: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"`(rawpack [^`]*)`", message)))


def _sample(source: Source, i: int) -> dict[str, Any]:
    """The label, by its class where it has one, the boxes as the source has them, and "more": texts and numbers of
    other fields; or "!" and why it is rejected."""
    try:
        fields = source[i].fields
    except DecodeError as error:
        return {"!": error.reason}
    plain = {name: _plain(fields[name]) for name in source.info.fields if name in fields}
    record: dict[str, Any] = {"more": {name: value for name, value in plain.items() if value is not None}}
    classes, label = source.info.classes, record["more"].pop("label", None)
    if label is not None:
        record["label"] = classes[label] if classes and isinstance(label, int) and label >= 0 else label
    if isinstance(boxes := fields.get("boxes"), Boxes):
        record["boxes"] = np.atleast_2d(boxes.rows).round(3).tolist() if np.size(boxes.rows) else []
    return record


def _plain(value: Any) -> Any:
    """Texts, and few numbers; None for anything else."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.astype(float).round(4) if value.dtype.kind == "f" else value
        return value.tolist() if value.size <= _MOST_NUMBERS and value.dtype.kind in "biuf" else None
    if isinstance(value, list):
        return value if all(isinstance(one, str) for one in value) else None
    return value if isinstance(value, str | int | float) else None


def _shape(shape: tuple[int | None, ...]) -> str:
    return f"[{','.join('?' if length is None else str(length) for length in shape)}]" if shape else ""


def _field(kind: FieldKind) -> str:
    """Its dtype and shape as `--field` has them, and what else it is."""
    more = (kind.image and f"image: {kind.image}", kind.mask and "mask", kind.boxes, kind.follows)
    return " ".join([kind.dtype + _shape(kind.shape), *(str(word) for word in more if word)])
