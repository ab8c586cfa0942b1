"""What a layout of the page "I have ..." is to the tests: how it is made, and what other code reads of it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cases import Files, write
from pictures import encoded, picture
from PIL import Image

FIXTURES = Path(__file__).resolve().parents[1] / "support" / "fixtures"
Samples = Mapping[str, Mapping[str, Any]]
"""Key -> field -> value: arrays of images and numbers, the names of classes for fields that have classes, texts."""


@dataclass(frozen=True)
class Layout:
    """One line of the page's tables."""

    have: str
    """Its first cell: the page has the command."""
    make: Callable[[Path], Mapping[str, Any] | None]
    """Lays the data in the empty folder in which the command then runs. For a line of Python, it returns the names that
    the line uses."""
    samples: Callable[[Path], Samples] | None = None
    """What is to be read, found in that folder by code that is not rawpack's. None: the keys and labels that the corpus
    records, as tests of the kind compare all values."""
    needs: tuple[str, ...] = ()
    """Modules without which the layout is skipped."""


def of_files(have: str, files: Files | Callable[[], Files], samples: Samples, needs: tuple[str, ...] = ()) -> Layout:
    """A layout of files whose samples are known; files: called only where the modules are installed."""
    return Layout(have, lambda root: write(root, files() if callable(files) else files), lambda root: samples, needs)


def copied(name: str, to: str) -> Callable[[Path], None]:
    """Makes what the tools themselves wrote, from a file or folder of the fixtures."""

    def make(root: Path) -> None:
        source = FIXTURES / name
        (root / to).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / to)

    return make


def pixels(file: Path | bytes) -> Any:
    """What Pillow reads."""
    return np.asarray(Image.open(io.BytesIO(file) if isinstance(file, bytes) else file).convert("RGB"))


def shot(n: int) -> Any:
    """The pixels of one of many pictures."""
    return picture(24, 32, n)


def png(n: int) -> bytes:
    return encoded(shot(n))


def pngs(names: str, count: int) -> dict[str, bytes | str]:
    """Files of pictures; names: with the place of a number."""
    return {names.format(n): png(n) for n in range(count)}


def samples_of(keys: str, count: int, fields: Callable[[int], Mapping[str, Any]]) -> Samples:
    """The samples of pictures; fields: what else the sample of a number has."""
    return {keys.format(n): {"image": shot(n), **fields(n)} for n in range(count)}


def lines(*lines: str) -> str:
    """The text of a file."""
    return "".join(f"{line}\n" for line in lines)
