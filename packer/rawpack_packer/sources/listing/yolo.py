"""YOLO files as a source: a folder of images with a text file of boxes for each: class, x, y, width, height."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
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
from rawpack_packer.sources.listing.columns import Classes, classes_of
from rawpack_packer.sources.listing.faults import Faults
from rawpack_packer.sources.listing.table import Files, RaggedColumn, TableSource, empty_classes, ends_of, texts_of
from rawpack_packer.text import plain

_SPLITS = ("train", "val", "valid", "test")
_VALUES = ("class", "x", "y", "width", "height")


def is_yolo(path: Path) -> bool:
    """Whether a folder is certainly one: it, or a split in it, has folders `images` and `labels` side by side."""
    folders = [path, *(path / split for split in _SPLITS)]
    # Not Path.is_dir, which raises where nothing can be looked into: the scan reports that better.
    return any(os.path.isdir(folder / "images") and os.path.isdir(folder / "labels") for folder in folders)  # noqa: PTH112


class YoloSource(TableSource):
    """All images below a folder, each with the boxes of its text file: field `boxes`.

    The file of `images/train/a.jpg` is `labels/train/a.txt`; an image that is not in a folder `images` has it next to
    itself. An image without a file, or with an empty one, has no boxes. Class names come from `classes.txt`,
    `obj.names` or `data.yaml` in the folder; those of a split, such as `train`, may be next to it.

    `counts`: no_boxes (images), empty_classes, and those of `FolderSource` that count files.
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
        """classes: replaces those in the folder. skip_unreadable, progress: as for `FolderSource`.

        Raises UsageError if there is no image, BadListingError with the first twenty lines that are not boxes.
        """
        root = Path(path).absolute()
        folder = FolderSource(root, skip_unreadable=skip_unreadable, progress=progress)
        where, counts = folder.info.root, folder.info.counts
        faults = Faults(where)
        names = classes_of(classes) if classes is not None else _names(root)
        reader = _LabelReader(root, faults, None if names is None else len(names))
        paths = [folder.key(i) for i in range(len(folder))]
        scanned = folder.states()[:, 0] != NOT_SCANNED
        for image, known in zip(paths, scanned, strict=True):
            reader.add(image, known)
            if faults.enough:
                break
        faults.stop()
        if not reader.files:
            first = paths[int(scanned.argmax())]
            raise UsageError(
                f"{where} has no text file of boxes for any image: that of {plain(first)} would be "
                f"{plain(label_of(first))}; give the folder that holds images and labels"
            )
        if counts["bad_names"]:
            raise UsageError(f"{where} has names that are not UTF-8: rename these files")
        boxes = reader.boxes()
        empty = empty_classes(names, boxes.classes())
        info = SourceInfo(
            kind="yolo",
            root=where,
            paths=(str(root),),
            fields={"boxes": FieldKind("float32", (None, len(_VALUES)), boxes="yolo")},
            classes=names,
            empty_classes=empty,
            options=given_options(classes=classes if isinstance(classes, str | os.PathLike) else None),
            counts={
                **{name: counts[name] for name in ("hidden", "special_files", "links", "loops", "problems")},
                "other_files": counts["other_files"] - reader.files,
                "no_boxes": int(((np.diff(boxes.ends) == 0) & scanned).sum()),
                "empty_classes": len(empty),
            },
            problems=folder.info.problems,
        )
        texts = texts_of(paths)
        images = Files(str(root), texts, folder.states())
        super().__init__(info, texts, images, {"boxes": boxes}, np.array(reader.states, np.int64))
        self._unread = folder.unread()

    def unread(self) -> NDArray[np.int64]:
        """See `HasUnread`."""
        return self._unread


class _LabelReader:
    """Reads the text files of images, one after another."""

    def __init__(self, root: Path, faults: Faults, classes: int | None) -> None:
        self._root, self._faults, self._classes = root, faults, classes
        self.states: list[tuple[int, int]] = []
        """Size and mtime of the file of each image."""
        self.files = 0
        self._values = array("d")
        self._lengths: list[int] = []

    def add(self, image: str, known: bool) -> None:
        """Read the file of an image, named by its path below the root. known: whether the image could be looked at."""
        name, before, state = label_of(image), len(self._values), UNKNOWN
        try:
            if known:
                with opened(str(self._root / name)) as descriptor:
                    found = os.fstat(descriptor)
                    with open(descriptor, "rb", closefd=False) as file:
                        data = file.read()
                state = found.st_size, found.st_mtime_ns
                self.files += 1
                self._parse(name, data)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._faults.add(0, 0, "", f"cannot be read: {reason_of(error)}", file=name)
        self.states.append(state)
        self._lengths.append((len(self._values) - before) // len(_VALUES))

    def boxes(self) -> RaggedColumn:
        """The boxes of all images, as in the files."""
        values = np.array(self._values, np.float64).reshape(-1, len(_VALUES))
        return RaggedColumn(values, ends_of(self._lengths), "yolo")

    def _parse(self, name: str, data: bytes) -> None:
        for number, line in enumerate(data.splitlines(), 1):
            cells = line.split()
            if len(cells) == len(_VALUES):
                self._values.extend(self._number(name, number, column, cell) for column, cell in enumerate(cells))
            elif cells:
                what = f"{len(cells)} values, but a box is {', '.join(_VALUES)}"
                what += ": outlines are not read" if len(cells) > len(_VALUES) + 1 else ""
                self._faults.add(number, min(len(cells), len(_VALUES)) + 1, "", what, file=name)

    def _number(self, name: str, line: int, column: int, cell: bytes) -> float:
        try:
            value = float("nan") if b"_" in cell else float(cell)  # only Python reads 1_0 as a number
        except ValueError:
            value = float("nan")
        wrong = ""
        if column == 0:
            if not (value >= 0 and value.is_integer()):
                wrong = "is not a class number"
            elif self._classes is not None and value >= self._classes:
                wrong = f"there are {self._classes} classes, counted from 0"
        elif not 0 <= value <= 1:
            wrong = "is not a fraction of the image, from 0 to 1"
        if wrong:
            # A link may lead out of the source, to values that its owner would not show.
            linked = os.path.islink(self._root / name)  # noqa: PTH114
            shown = "a value of a linked file" if linked else repr(cell.decode("utf-8", "backslashreplace"))
            self._faults.add(line, column + 1, _VALUES[column], f"{shown}: {wrong}", file=name)
        return value


def label_of(image: str) -> str:
    """The path of the text file with the boxes of an image: the last folder `images` is replaced by `labels`. Without
    such a folder, the file is next to the image."""
    folders, _, name = image.rpartition("/")
    before, found, after = f"/{folders}/".rpartition("/images/")
    folders = f"{before}/labels/{after}" if found else after
    return "/".join([*filter(None, folders.split("/")), os.path.splitext(name)[0] + ".txt"])  # noqa: PTH122


def _names_in_yaml(path: Path) -> tuple[str, ...]:
    where = plain(os.fspath(path))
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(
            f"{where} has the names of the classes: pip install 'rawpack[yolo]' to read it, or give a file with one "
            "name per line by --classes"
        ) from None
    try:
        named: Any = yaml.safe_load(path.read_text("utf-8"))["names"]
        numbered = dict(enumerate(named)) if isinstance(named, list) else dict(named)
        names = [str(numbered[number]) for number in range(len(numbered))]
    except (yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{where} has no list 'names' of class names ({type(error).__name__}); give a file with one name per line "
            "by --classes"
        ) from None
    return classes_of(names)


_NAME_FILES: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "classes.txt": classes_of,
    "obj.names": classes_of,
    "data.yaml": _names_in_yaml,
    "dataset.yaml": _names_in_yaml,
    "data.yml": _names_in_yaml,
}
"""Files with class names -> what reads them; the first that exists counts."""


def _names(root: Path) -> tuple[str, ...] | None:
    """The class names in a folder, if there are any; or next to it, if it is a split."""
    for folder in (root, root.parent) if is_split(root.name) else (root,):
        for name, read in _NAME_FILES.items():
            if (folder / name).is_file():
                return read(folder / name)
    return None
