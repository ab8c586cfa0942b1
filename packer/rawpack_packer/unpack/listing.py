"""The listing of an export: a JSON object a line for each sample, and the command that packs all of it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rawpack.manifest import Field
from rawpack_packer import files
from rawpack_packer.layout import WORK
from rawpack_packer.sources import StoreSource
from rawpack_packer.sources.alike import IMAGE, KEY, LABEL
from rawpack_packer.unpack.names import CLASSES, LISTING, Names

PATH = "path"


def write_listing(folder: Path, source: StoreSource, names: Names, without: Iterable[int]) -> None:
    """Write `listing.jsonl`, and `classes.txt` where there are classes. without: rows that have no files."""
    if classes_file(source):
        text = "".join(f"{name}\n" for name in source.classes or ())
        files.write_whole(folder / CLASSES, text.encode(), folder / WORK / f"{CLASSES}.tmp")
    left_out, temporary = set(without), folder / WORK / f"{LISTING}.tmp"
    with temporary.open("wb") as file:
        for row in range(len(source)):
            if row not in left_out:
                line = json.dumps(_line(source, row, names), ensure_ascii=False, separators=(",", ":"))
                file.write(line.encode() + b"\n")
    files.commit(temporary, folder / LISTING)


def command(source: StoreSource, names: Names) -> str | None:
    """What packs an export again, run in its folder; None where its images are no pictures, which `rawpack pack` reads
    from files."""
    store = source.stores[0]
    image = store.fields[IMAGE]
    if source.image is None or not source.image.pictures or set(names.suffixes.values()) - {".jpg", ".png"}:
        return None
    words = ["rawpack", "pack", "--format", store.manifest.format, "--key", KEY]
    if names.suffixes[IMAGE] == ".jpg":
        words += ["--size", "keep", "--quality", "keep"]
    else:
        words += ["--size", f"{image.shape[0]}x{image.shape[1]}" if image.uniform else "keep"]
    words += ["--color", "gray"] if image.shape[2] == 1 else ["--color", "yuv420"] if image.planar else []
    words += ["--compression", "gzip"] if image.deflated else []
    words += ["--classes", CLASSES] if classes_file(source) else []
    for name, field in store.fields.items():
        if name not in (IMAGE, KEY) and not (name == LABEL and source.classes is not None):
            words += ["--field", f"{called(name)}:{_word(field)}"]
    return shlex.join([*words, LISTING, "DST"])


def classes_file(source: StoreSource) -> bool:
    """Whether there are classes whose names can stand in a file, one a line."""
    names = source.classes or ()
    return bool(names) and all(name and name == name.strip() and len(name.splitlines()) == 1 for name in names)


def called(name: str) -> str:
    """What a field is called in the listing, whose paths have a name of their own."""
    return name if name != PATH else f"{PATH}_"


def _line(source: StoreSource, row: int, names: Names) -> dict[str, Any]:
    key = source.key(row)
    paths = names.paths(row, key)
    line: dict[str, Any] = {PATH: paths[IMAGE], KEY: key}
    small = source.small(row)
    for name in source.fields:
        line[called(name)] = paths[name] if name in paths else _plain(small[name])
    if LABEL in line and source.classes is not None:
        line[LABEL] = source.classes[line[LABEL]] if line[LABEL] >= 0 else None
    return line


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else np.asarray(value).tolist()


def _word(field: Field) -> str:
    """What a field is, as `--field` takes it."""
    if field.kind in ("text", "mask"):
        return "str" if field.kind == "text" else "mask"
    if field.is_boxes:
        return f"xyxy[{field.shape[1]}]"
    lengths = ",".join("?" if n is None else str(n) for n in field.shape)
    return field.dtype + (f"[{lengths}]" if lengths else "")


def note(source: StoreSource, names: Names, rejected: int) -> Mapping[str, Any]:
    """What `export.json` says."""
    again = command(source, names)
    return {
        "rawpack_export": 1,
        "store": source.stores[0].digest,
        "numbered": names.by_number,
        "samples": len(source) - rejected,
        "rejected": rejected,
        "pack_again": again,
    } | ({} if again else {"why_not": "images are packed from JPEG or PNG files of 8 bits; read these from Python"})
