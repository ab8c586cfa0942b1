"""A folder of images with a text file of boxes for each, as YOLO has them: a line is class, x, y, width, height."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import MissingExtraError, UsageError
from rawpack_packer.sources.base import SourceInfo, given_options
from rawpack_packer.sources.divided import is_split
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import NOT_SCANNED, UNKNOWN, opened, reason_of
from rawpack_packer.sources.folder import FolderSource
from rawpack_packer.sources.listing.faults import Faults
from rawpack_packer.sources.listing.reading import Classes, classes_of
from rawpack_packer.sources.listing.table import Files, RaggedColumn, Table, TablePart, TableSource, texts_of
from rawpack_packer.text import plain

NAMES = ("classes.txt", "obj.names")
"""Files of class names, one a line."""
DATA = ("data.yaml", "dataset.yaml", "data.yml")
_SPLITS = ("train", "val", "valid", "test")
_VALUES = ("class", "x", "y", "width", "height")


def is_yolo(path: Path) -> bool:
    """Whether a folder is surely one: it, or a split in it, has folders `images` and `labels` side by side."""
    folders = [path, *(path / split for split in _SPLITS)]
    # Not Path.is_dir: where nothing can be looked into, it raises, and the scan has better words.
    return any(os.path.isdir(folder / "images") and os.path.isdir(folder / "labels") for folder in folders)  # noqa: PTH112


class YoloSource(TableSource):
    """All images below a folder, each with the boxes of its text file: field `boxes`.

    The file of `images/train/a.jpg` is `labels/train/a.txt`; that of an image in no folder `images` lies beside it. An
    image without one, or with an empty one, has no boxes. Class names are those of `classes.txt`, `obj.names` or
    `data.yaml` in the folder; of a split, such as `train`, they may lie beside it.

    `counts`: no_boxes (images), empty_classes, and of `FolderSource` those that speak of files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        classes: Classes | None = None,
        skip_unreadable: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """classes: instead of those in the folder. skip_unreadable, progress: as `FolderSource` has them.

        Raises UsageError where there is no image, BadListingError with the first twenty lines that are no boxes.
        """
        root = Path(path).absolute()
        folder = FolderSource(root, skip_unreadable=skip_unreadable, progress=progress)
        where, counts = folder.info.root, folder.info.counts
        faults = Faults(where)
        names = classes_of(classes) if classes is not None else _names(root)
        reading = _Labels(root, faults, None if names is None else len(names))
        paths = list[str]()
        found = folder.states()[:, 0] != NOT_SCANNED
        for i in range(len(folder)):
            paths.append(folder.key(i))
            if found[i]:
                reading.add(paths[-1])
            else:
                reading.pass_over()
            if faults.enough:
                break
        faults.stop()
        if not reading.read:
            first = paths[int(found.argmax())]
            raise UsageError(
                f"{where} has no text file of boxes for any image: that of {plain(first)} would be "
                f"{plain(label_of(first))}; give the folder that holds images and labels"
            )
        if counts["bad_names"]:
            raise UsageError(f"{where} has names that are not UTF-8: rename these files")
        texts = texts_of(paths)
        images = Files(str(root), texts, folder.states())
        boxes = reading.boxes()
        used = np.unique(boxes.values[:, 0]).tolist()
        empty = tuple(name for number, name in enumerate(names or ()) if number not in used)
        super().__init__(
            Table(
                SourceInfo(
                    kind="yolo",
                    root=where,
                    paths=(str(root),),
                    fields={"boxes": FieldKind("float32", (None, len(_VALUES)), boxes="yolo")},
                    classes=names,
                    empty_classes=empty,
                    options=given_options(classes=classes if isinstance(classes, str | os.PathLike) else None),
                    counts={
                        **{name: counts[name] for name in ("hidden", "special_files", "links", "loops", "problems")},
                        "other_files": counts["other_files"] - reading.read,
                        "no_boxes": int(((np.diff(boxes.ends) == 0) & found).sum()),
                        "empty_classes": len(empty),
                    },
                    problems=folder.info.problems,
                ),
                TablePart(texts, images, {"boxes": boxes}),
                np.array(reading.states, np.int64).reshape(-1, 2),
            )
        )
        self._unread = folder.unread()

    def unread(self) -> NDArray[np.int64]:
        """See `HasUnread`."""
        return self._unread


class _Labels:
    """The text files of images, one after another."""

    def __init__(self, root: Path, faults: Faults, classes: int | None) -> None:
        self._root, self._faults, self._classes = root, faults, classes
        self.states: list[tuple[int, int]] = []
        """Size and mtime of each image's file."""
        self.read = 0
        self._values = array("d")
        self._lengths: list[int] = []

    def add(self, image: str) -> None:
        """Read that of an image, named by its path below the root."""
        name = label_of(image)
        before = len(self._values)
        try:
            with opened(str(self._root / name)) as descriptor:
                found = os.fstat(descriptor)
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read()
            self.states.append((found.st_size, found.st_mtime_ns))
            self.read += 1
            self._parse(name, data)
        except FileNotFoundError:
            self.states.append(UNKNOWN)
        except OSError as error:
            self._faults.add(0, 0, "", f"cannot be read: {reason_of(error)}", file=name)
        self._lengths.append((len(self._values) - before) // len(_VALUES))

    def pass_over(self) -> None:
        """There is nothing of one that could not be looked into."""
        self.states.append(UNKNOWN)
        self._lengths.append(0)

    def boxes(self) -> RaggedColumn:
        """Of all images, as the files have them."""
        values = np.array(self._values, np.float64).reshape(-1, len(_VALUES))
        return RaggedColumn(
            values, np.concatenate([np.zeros(1, np.int64), np.cumsum(self._lengths, dtype=np.int64)]), "yolo"
        )

    def _parse(self, name: str, data: bytes) -> None:
        for number, line in enumerate(data.splitlines(), 1):
            cells = line.split()
            if not cells:
                continue
            if len(cells) != len(_VALUES):
                what = f"{len(cells)} values, and a box is {', '.join(_VALUES)}"
                what += ": outlines are not read" if len(cells) > len(_VALUES) + 1 else ""
                self._faults.add(number, min(len(cells), len(_VALUES)) + 1, "", what, file=name)
                continue
            self._values.extend(self._number(name, number, column, cell) for column, cell in enumerate(cells))

    def _number(self, name: str, line: int, column: int, cell: bytes) -> float:
        try:
            value = float("nan") if b"_" in cell else float(cell)  # Python's own 1_0 is no number of others
        except ValueError:
            value = float("nan")
        wrong = ""
        if column == 0:
            if not (value >= 0 and value.is_integer()):
                wrong = "is not a class number"
            elif self._classes is not None and value >= self._classes:
                wrong = f"there are {self._classes} classes, counted from 0"
        elif not 0 <= value <= 1:
            wrong = "is not a share of the image, from 0 to 1"
        if wrong:
            # A link may lead out of the source, to what its owner would not show.
            linked = os.path.islink(self._root / name)  # noqa: PTH114
            shown = "a value of a linked file" if linked else repr(cell.decode("utf-8", "backslashreplace"))
            self._faults.add(line, column + 1, _VALUES[column], f"{shown}: {wrong}", file=name)
        return value


def label_of(image: str) -> str:
    """The path of the text file with the boxes of an image: in `labels` for `images`, the last of that name; else
    beside it."""
    folders, _, name = image.rpartition("/")
    parts = folders.split("/")
    if "images" in parts:
        last = len(parts) - 1 - parts[::-1].index("images")
        parts[last] = "labels"
    return "/".join([*(part for part in parts if part), os.path.splitext(name)[0] + ".txt"])  # noqa: PTH122


def _names(root: Path) -> tuple[str, ...] | None:
    """The class names that lie in a folder, if any do; or beside it, where it is a split."""
    return _names_in(root) or (_names_in(root.parent) if is_split(root.name) else None)


def _names_in(root: Path) -> tuple[str, ...] | None:
    for name in NAMES:
        if (root / name).is_file():
            return classes_of(root / name)
    for name in DATA:
        if (root / name).is_file():
            return _of_yaml(root / name)
    return None


def _of_yaml(path: Path) -> tuple[str, ...]:
    where = plain(os.fspath(path))
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(
            f"{where} names the classes: pip install 'rawpack[yolo]' to read it, or name a file that has one a line by "
            "--classes"
        ) from None
    try:
        named: Any = yaml.safe_load(path.read_text("utf-8"))["names"]
        numbered = dict(enumerate(named)) if isinstance(named, list) else dict(named)
        names: Sequence[str] = [str(numbered[number]) for number in range(len(numbered))]
    except (yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{where} has no list 'names' of class names ({type(error).__name__}); --classes names a file that has one "
            "a line"
        ) from None
    return classes_of(names)
