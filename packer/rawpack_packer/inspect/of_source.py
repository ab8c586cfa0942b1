"""Describes a file or folder of another tool that can be packed: what is in it, and what to type to pack it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rawpack.errors import UsageError
from rawpack_packer import text
from rawpack_packer.sources import KINDS, FieldKind, Source, open_source
from rawpack_packer.sources.hdf5.file import DataSet, LookAt
from rawpack_packer.sources.lmdb.source import LmdbSource

_KINDS = ("hdf5", "lmdb", "cifar")
_NAMES = {"hdf5": "HDF5", "lmdb": "LMDB", "cifar": "CIFAR"}
_SHOWN = 40
_SUGGESTED = 4


def kind_of(path: Path) -> str | None:
    """The kind of source that a path is described as; None for a store and for anything else."""
    if path.is_dir() and KINDS["store"].accepts_folder(path):
        return None
    for name in _KINDS if path.exists() else ():
        if (KINDS[name].accepts_folder if path.is_dir() else KINDS[name].accepts_file)(path):
            return name
    return None


def describe_source(path: str) -> dict[str, Any]:
    """What is at a path that has a `kind_of`, as `rawpack inspect --json` prints it. Raises UsageError."""
    kind = kind_of(Path(path)) or ""
    about: dict[str, Any] = {"path": path, "kind": kind}
    data_sets = list[DataSet]()
    if kind == "hdf5":
        with LookAt(Path(path).absolute()) as look:
            data_sets = look.data_sets()
        about["data_sets"] = {one.name: one.why or f"{one.dtype} {one.shape}" for one in data_sets}
    try:
        about |= _samples(open_source(path, kind))
    except UsageError as error:
        if kind != "hdf5":
            raise
        about |= {"samples": None, "problem": str(error), "pack": _suggested(path, data_sets)}
        return about
    splits = KINDS[kind].splits(Path(path))
    about["pack"] = [_command(path, *(["--splits", ",".join(splits)] if splits else []))]
    return about


def as_text(about: dict[str, Any]) -> str:
    """The same for a person."""
    head = f"{text.plain(about['path'])}: {_NAMES[about['kind']]}"
    head += f", {about['scheme']}" if "scheme" in about else ""
    rows = []
    if about["samples"] is not None:
        rows.append(("samples", f"{about['samples']:,}"))
        rows.append(("images", about["image"] or "image files"))
        if about["classes"]:
            rows.append(("classes", text.listed([text.plain(name) for name in about["classes"]], 8)))
        rows += [(text.plain(name), kind) for name, kind in about["fields"].items()]
    blocks = [f"{head}\n{text.table(rows)}" if rows else head]
    if "data_sets" in about:
        found = [(text.plain(name), text.plain(what)) for name, what in about["data_sets"].items()]
        blocks.append("data sets\n" + (text.table(found[:_SHOWN], rest=len(found) - _SHOWN) if found else "  none"))
    if about["pack"]:
        blocks.append("to pack it\n" + "\n".join(f"  {text.plain(line)}" for line in about["pack"]))
    else:
        blocks.append(text.plain(about["problem"]))
    return "\n\n".join(blocks)


def _samples(source: Source) -> dict[str, Any]:
    info = source.info
    image = None if info.image is None else _shown(info.image.dtype, info.image.shape)
    about: dict[str, Any] = {"scheme": source.scheme} if isinstance(source, LmdbSource) else {}
    return about | {
        "samples": len(source),
        "image": image,
        "classes": None if info.classes is None else list(info.classes),
        "fields": {name: _kind(kind) for name, kind in info.fields.items()},
    }


def _kind(kind: FieldKind) -> str:
    return "text" if kind.dtype == "str" else _shown(kind.dtype, kind.shape)


def _shown(dtype: str, shape: Sequence[int | None]) -> str:
    """ "float32", "uint8 32x32x3", "float32 ?x4"."""
    return f"{dtype} {'x'.join('?' if n is None else str(n) for n in shape)}".rstrip()


def _suggested(path: str, data_sets: Sequence[DataSet]) -> list[str]:
    """A command for each of the data sets that may be images, with the labels of its group."""
    commands = []
    for image in [one for one in data_sets if one.is_image][:_SUGGESTED]:
        group = image.name.rpartition("/")[0]
        labels = [
            one.name
            for one in data_sets
            if one.is_label and one.shape[:1] == image.shape[:1] and one.name.rpartition("/")[0] == group
        ]
        named = f"image={image.name}" + (f",label={labels[0]}" if len(labels) == 1 else "")
        commands.append(_command(path, "--array", named))
    return commands


def _command(path: str, *options: str) -> str:
    return shlex.join(["rawpack", "pack", *options, path, "DST"])
