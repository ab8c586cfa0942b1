"""Writes the listing of an export, with a JSON object for each sample, and the command that packs the folder again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.store.store import Store
from rawpack_packer.destination import files
from rawpack_packer.destination.layout import WORK
from rawpack_packer.exporting.names import CLASSES, LISTING, Names
from rawpack_packer.exporting.target import Again
from rawpack_packer.sources import StoreSource
from rawpack_packer.sources.stores.compatible import IMAGE, KEY, LABEL
from rawpack_packer.sources.table.columns import CLASS
from rawpack_packer.sources.table.labels import no_classes

PATH = "path"
_MOST = np.iinfo(np.int64).max
"""The largest number that a listing may have."""


def write_listing(folder: Path, source: StoreSource, names: Names, without: Iterable[int]) -> None:
    """Write `listing.jsonl`, and `classes.txt` where there are classes. without: rows that have no files."""
    write_classes(folder, source)
    columns = called(source.info.fields)
    left_out, temporary = set(without), folder / WORK / f"{LISTING}.tmp"
    with temporary.open("wb") as file:
        for row in range(len(source)):
            if row not in left_out:
                line = json.dumps(_line(source, row, names, columns), ensure_ascii=False, separators=(",", ":"))
                file.write(line.encode() + b"\n")
    files.commit(temporary, folder / LISTING)


def write_classes(folder: Path, source: StoreSource) -> None:
    """Write `classes.txt` where there are classes."""
    if classes_file(source):
        text = "".join(f"{name}\n" for name in source.info.classes or ())
        files.write_whole(folder / CLASSES, text.encode(), folder / WORK / f"{CLASSES}.tmp")


def again(source: StoreSource, names: Names) -> Again:
    """How to pack an export of `source`, one store, again."""
    store = source.stores[0]
    why_not = _why_not(source, names)
    if why_not is not None:
        return Again(None, why_not)
    image = store.fields[IMAGE]
    words = ["rawpack", "pack", "--format", store.manifest.format, "--key", KEY]
    if names.suffixes[IMAGE] == ".jpg":
        words += ["--size", "keep", "--quality", "keep"]
    else:
        words += ["--size", f"{image.shape[0]}x{image.shape[1]}" if image.uniform else "keep"]
    words += ["--color", "gray"] if image.shape[2] == 1 else ["--color", "yuv420"] if image.planar else []
    words += ["--compression", "gzip"] if image.deflated else []
    words += ["--classes", CLASSES] if _named(source) else []
    for name, column in called(source.info.fields).items():
        if name != LABEL or not _has_names(source):
            words += ["--field", f"{column}:{_word(store.fields[name])}"]
    return Again(shlex.join([*words, LISTING, "DST"]), differs=tuple(_differences(source)))


def _why_not(source: StoreSource, names: Names) -> str | None:
    """Why no command packs an export again; None if one does."""
    store = source.stores[0]
    if source.info.image is None or not source.info.image.pictures or set(names.suffixes.values()) - {".jpg", ".png"}:
        return "only 8-bit JPEG and PNG files can be packed as images; read these from Python"
    for name, field in store.fields.items():
        if field.dtype == "uint64" and any((values > _MOST).any() for values in _values(store, name)):
            return f"field {name} has numbers above {_MOST}, the limit of a listing; read them from Python"
    if names.by_number and "" in source.all_keys():
        return "the key of a sample is empty, and each line of a listing needs one; read them from Python"
    return None


def _differences(source: StoreSource) -> Iterator[str]:
    """How a store that is packed again differs."""
    store = source.stores[0]
    image = store.fields[IMAGE]
    if image.codec.suffix == ".jpg" and image.uniform:
        size = f"{image.shape[0]}x{image.shape[1]}"
        yield f"images that are kept as files may have any size, so the store does not say that all are {size}"
    if image.planar:
        yield "pixels are rounded once more, since planes of YCgCo are made from RGB"
    for name, column in called(source.info.fields).items():
        field = store.fields[name]
        if name != column:
            yield f"field {name} is called {column}, since {name} is the listing's column of files"
        if field.is_boxes and field.dtype != "float32":
            yield f"field {name} is float32, as all boxes of a listing, not {field.dtype}"
        if field.moves and not field.is_boxes:
            yield f"field {name} no longer follows the boxes: a listing holds it as plain numbers, which do not move"
    if source.info.classes is None or _named(source):
        return
    if LABEL not in source.info.fields:
        yield "the names of the classes are lost, since no field has their numbers"
    elif (
        source.info.empty_classes
        or "" in source.info.classes
        or list(source.info.classes) != sorted(source.info.classes)
    ):
        yield "classes are the sorted names that samples have, since not all of them can be lines of a file" + (
            "; '' is not a class" if "" in source.info.classes else ""
        )


def classes_file(source: StoreSource) -> bool:
    """Whether there are classes and their names can be lines of a file."""
    names = source.info.classes or ()
    return bool(names) and all(name and name == name.strip() and len(name.splitlines()) == 1 for name in names)


def called(fields: Iterable[str]) -> dict[str, str]:
    """Each field -> its name in the listing, where "path" is the column of files."""
    names = list(fields)
    free = f"{PATH}_"
    while free in {name.lower() for name in names}:
        free += "_"
    return {name: free if name == PATH else name for name in names}


def _named(source: StoreSource) -> bool:
    """Whether `--classes` gives the classes their names."""
    if LABEL in source.info.fields or not classes_file(source):
        return classes_file(source)
    store, count = source.stores[0], len(source.info.classes or ())
    boxes = [name for name, field in store.fields.items() if field.is_boxes and (field.shape[1] or 0) > CLASS]
    good = (not no_classes(values[:, CLASS], count).any() for name in boxes for values in _values(store, name))
    return bool(boxes) and all(good)


def _has_names(source: StoreSource) -> bool:
    """Whether some label is in the listing as the name of its class, so that packing recognizes the column."""
    labels = source.labels()
    return labels is not None and any((source.info.classes or ())[label] for label in np.unique(labels[labels >= 0]))


def _values(store: Store, name: str) -> Iterator[NDArray[Any]]:
    """All values of a field, an array for each of the store's runs."""
    return (folder.arrays[name] for folder in store.columns.folders)


def _line(source: StoreSource, row: int, names: Names, columns: Mapping[str, str]) -> dict[str, Any]:
    key = source.key(row)
    paths = names.paths(row, key)
    line: dict[str, Any] = {PATH: paths[IMAGE], KEY: key}
    small = source.column_values(row)
    for name, column in columns.items():
        line[column] = paths[name] if name in paths else _plain(small[name])
    if LABEL in line and source.info.classes is not None:
        line[LABEL] = source.info.classes[line[LABEL]] if line[LABEL] >= 0 else None
    return line


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else np.asarray(value).tolist()


def _word(field: Field) -> str:
    """The field as `--field` takes it."""
    if field.kind in ("text", "mask"):
        return "str" if field.kind == "text" else "mask"
    if field.is_boxes:
        return f"xyxy[{field.shape[1]}]"
    lengths = ",".join("?" if n is None else str(n) for n in field.shape)
    return ("array:" if field.is_array else "") + field.dtype + (f"[{lengths}]" if lengths else "")


def note(source: StoreSource, names: Names, rejected: int) -> Mapping[str, Any]:
    """The contents of `export.json`."""
    how = again(source, names)
    return {
        "rawpack_export": 1,
        "store": source.stores[0].digest,
        "numbered": names.by_number,
        "samples": len(source) - rejected,
        "rejected": rejected,
        "pack_again": how.command,
        **({"why_not": how.why_not} if how.command is None else {}),
        **({"differs": how.differs} if how.differs else {}),
    }
