"""Describes a file or folder of another tool that can be packed: what is in it, and what to type."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rawpack.errors import UsageError
from rawpack_packer import text
from rawpack_packer.sources import KINDS, FieldKind, Table, kinds_at, open_source
from rawpack_packer.sources.folder import EXTENSIONS, holds_image
from rawpack_packer.sources.hdf5.file import DataSet, LookAt, data_sets
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.text import Block, Shown

_NAMES = {
    "hdf5": "HDF5",
    "lmdb": "LMDB",
    "mds": "MDS",
    "litdata": "litdata",
    "tfrecord": "TFRecord",
    "lerobot": "LeRobot",
}
_MOST_DATA_SETS = 40
_SUGGESTED = 4


def _kind_of(listing: Listing) -> str | None:
    """The kind of source that a path is described as; None for a store and for anything else."""
    kinds = kinds_at(listing) if listing.exists else []
    return None if "store" in kinds else next((kind for kind in kinds if kind in _NAMES), None)


def what_is_at(path: str) -> Literal["store", "samples", "nothing", "unknown"]:
    """What a path looks like, by a short look: for hints, not for decisions. Nothing is what an empty folder holds."""
    listing = Listing(path)
    if not listing.exists:
        return "unknown" if listing.is_url else "nothing"
    kinds = kinds_at(listing)
    if "store" in kinds:
        return "store"
    if listing.is_dir and not kinds and not listing.names:
        return "unknown" if listing.error else "nothing"
    try:
        return "samples" if kinds or (listing.is_dir and holds_image(listing)) else "unknown"
    except UsageError:
        return "unknown"


def folder_of_images(paths: Sequence[str]) -> str:
    """The folder that contains all of these files, by their names; "" unless all are images."""
    if not all(Path(path).suffix.lower() in EXTENSIONS for path in paths):
        return ""
    return os.path.commonpath([Path(path).parent for path in paths]) or "."


class SourceDescription(Shown, dict[str, Any]):
    """What is in a file or folder of another tool, and what to type to pack it."""

    def in_words(self) -> list[Block]:
        head = f"{text.plain(self['path'])}: {_NAMES[self['kind']]}"
        head += f", {self['scheme']}" if "scheme" in self else ""
        rows = []
        if self["samples"] is not None:
            rows.append(("samples", f"{self['samples']:,}"))
            rows.append(("images", self["image"] or "image files"))
            if self["classes"]:
                rows.append(("classes", text.listed(self["classes"], 8)))
            rows += [(text.plain(name), kind) for name, kind in self["fields"].items()]
        blocks = [Block(head, rows)]
        for entry, head in (("data_sets", "data sets"), ("features", "features")):
            if entry in self:
                lines = [(text.plain(name), text.plain(what)) for name, what in self[entry].items()]
                blocks.append(Block(head, lines[:_MOST_DATA_SETS] or [("none", "")], len(lines) - _MOST_DATA_SETS))
        if self["pack"]:
            blocks.append(Block("to pack it", [(text.plain(line), "") for line in self["pack"]]))
        else:
            blocks.append(Block(text.plain(self["problem"], lines=True)))
        return blocks


def describe_source(path: str) -> SourceDescription | None:
    """What is at a path, as `rawpack inspect --json` prints it; None where it has no `_kind_of`. Raises UsageError."""
    listing = Listing(path)
    kind = _kind_of(listing)
    if kind is None:
        return None
    about = SourceDescription(path=path, kind=kind)
    sets = list[DataSet]()
    if kind == "hdf5":
        with LookAt(Path(path).absolute()) as look:
            sets = look.ask(data_sets)
        about["data_sets"] = {entry.name: entry.why or f"{entry.dtype} {entry.shape}" for entry in sets}
    try:
        about |= _samples(open_source(path, kind))
    except UsageError as error:
        if kind != "hdf5":
            raise
        about |= {"samples": None, "problem": str(error), "pack": _suggested(path, sets)}
        return about
    splits = KINDS[kind].splits_of(listing)
    about["pack"] = [_command(path, *(["--splits", ",".join(splits)] if splits else []))]
    return about


def _samples(source: Table) -> dict[str, Any]:
    info = source.info
    image = None if info.image is None else _shown(info.image.dtype, info.image.shape)
    return dict(source.details) | {
        "samples": len(source),
        "image": image,
        "classes": None if info.classes is None else list(info.classes),
        "fields": {name: _kind(kind) for name, kind in info.fields.items()},
    }


def _kind(kind: FieldKind) -> str:
    return "texts" if kind.is_texts else "text" if kind.dtype == "str" else _shown(kind.dtype, kind.shape)


def _shown(dtype: str, shape: Sequence[int | None]) -> str:
    """ "float32", "uint8 32x32x3", "float32 ?x4"."""
    return f"{dtype} {text.shape(shape)}".rstrip()


def _suggested(path: str, data_sets: Sequence[DataSet]) -> list[str]:
    """A command for each of the data sets that may be images, with the labels of its group."""
    commands = []
    for image in [data_set for data_set in data_sets if data_set.is_image][:_SUGGESTED]:
        group = image.name.rpartition("/")[0]
        labels = [
            data_set.name
            for data_set in data_sets
            if data_set.is_label and data_set.shape[:1] == image.shape[:1] and data_set.name.rpartition("/")[0] == group
        ]
        named = f"image={image.name}" + (f",label={labels[0]}" if len(labels) == 1 else "")
        commands.append(_command(path, "--array", named))
    return commands


def _command(path: str, *options: str) -> str:
    return shlex.join(["rawpack", "pack", *options, path, "DST"])
