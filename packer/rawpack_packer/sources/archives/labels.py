"""Labels of images that are not in class folders: ImageNet's development kit, Kaggle's table, or a text file.

A text file has one class for each image in the order of their names, or `NAME CLASS` in any order. A class is a word,
such as a WordNet id, or a number from 0 on. Words are numbered in order, as class folders are.
"""

from __future__ import annotations

import csv
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import reason_of
from rawpack_packer.sources.table.choose import Labels, number_labels
from rawpack_packer.text import count, plain

_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_ILSVRC_IDS = Path(__file__).with_name("ilsvrc2012.txt")
"""The WordNet ids of ImageNet's 1,000 classes in the order of ILSVRC2012's own ids, which count from 1."""
_TARS = (".tar", ".tgz", ".tar.gz")
_MOST_BYTES = 1 << 28
"""Of a file with labels."""
_MOST_CLASSES = 1_000_000


def read_labels(path: str | os.PathLike[str], keys: Sequence[str]) -> Labels:
    """The labels of images with these keys, which are in order. Raises UsageError where they do not fit."""
    where, shown = Path(path), plain(os.fspath(path))
    try:
        if where.is_dir() or where.name == _TRUTH or where.name.lower().endswith(_TARS):
            found = _by_kit(_truth(where), shown)
        else:
            found = _by_text(_checked(where.read_bytes()).decode("utf-8-sig"), keys, shown)
    except (tarfile.TarError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown} cannot be read as labels: {error}") from None
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {reason_of(error)}; check the path of the labels") from None
    if len(found) != len(keys):
        raise UsageError(f"{shown} has {count(len(found), 'label')} for {count(len(keys), 'image')}: give their labels")
    if not all(label.isdecimal() for label in found):
        return number_labels(found, where=shown)
    numbers = [int(label) for label in found]
    if min(numbers) > 0:
        raise UsageError(
            f"the labels in {shown} begin at {min(numbers)}, and classes are counted from 0. ILSVRC ids are no labels: "
            f"give ImageNet's development kit, ILSVRC2012_devkit_t12.tar.gz, its folder, or {_TRUTH} by that name"
        )
    if max(numbers) >= _MOST_CLASSES:
        raise UsageError(f"{shown} has label {max(numbers)}: number classes from 0 on")
    return Labels(np.array(numbers, np.int64), tuple(str(i) for i in range(max(numbers) + 1)))


def _by_text(text: str, keys: Sequence[str], shown: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].replace(" ", "") == "ImageId,PredictionString":
        rows = list(csv.reader(io.StringIO("\n".join(lines[1:]))))
        return _by_name({row[0]: row[1].split()[0] for row in rows if len(row) == 2 and row[1].strip()}, keys, shown)
    pairs = [line.rsplit(maxsplit=1) for line in lines]
    if lines and all(len(pair) == 2 for pair in pairs):
        return _by_name({pair[0]: pair[1] for pair in pairs}, keys, shown)
    return lines


def _by_name(labels: Mapping[str, str], keys: Sequence[str], shown: str) -> list[str]:
    """The label of each image by its path, its name, or its name without the extension."""
    found = []
    for key in keys:
        path = PurePosixPath(key)
        label = next((labels[name] for name in (key, path.name, path.stem) if name in labels), None)
        if label is None:
            raise UsageError(f"{shown} has no label for {plain(key)}: give the labels of these images")
        found.append(label)
    return found


def _by_kit(truth: bytes | None, shown: str) -> list[str]:
    """The WordNet id of each validation image, for which the kit has ILSVRC's own."""
    if truth is None:
        raise UsageError(f"{shown} is not ImageNet's development kit: it has no {_TRUTH}; the kit is a file of its own")
    ids = {str(number): name for number, name in enumerate(_ILSVRC_IDS.read_text().split(), 1)}
    numbers = truth.decode().split()
    unknown = next((number for number in numbers if number not in ids), None)
    if unknown is not None:
        raise UsageError(f"{shown}: {_TRUTH} has {plain(unknown[:20])}, and ILSVRC2012's classes are 1 to {len(ids):,}")
    return [ids[number] for number in numbers]


def _truth(path: Path) -> bytes | None:
    """What the kit says of the validation images, given as a folder, an archive or the file itself; None where a path
    is no kit."""
    if path.is_dir():
        places = [file for file in (path / _TRUTH, path / "data" / _TRUTH) if file.is_file()]
        return _checked(places[0].read_bytes()) if places else None
    if path.name == _TRUTH:
        return _checked(path.read_bytes())
    with tarfile.open(path) as archive:
        for member in archive:
            if PurePosixPath(member.name).name == _TRUTH and member.isreg() and member.size <= _MOST_BYTES:
                file = archive.extractfile(member)
                return None if file is None else file.read()
    return None


def _checked(data: bytes) -> bytes:
    if len(data) > _MOST_BYTES:
        raise UsageError(f"the file has {len(data)} bytes: it is no list of labels")
    return data
