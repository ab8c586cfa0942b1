"""All layouts of the corpus, and the file of their answers: `python tests/layouts/corpus.py --write` writes it anew;
with words after it, only the answers of layouts whose names have one of them.

Run it after a change of how a path is recognized, and read what it changes in the file.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]

import cases_archives
import cases_arrays
import cases_beside
import cases_detection
import cases_folders
import cases_pages
import cases_tables
from cases import ANSWERS, Answer, Case, answer, in_this_process, missing, prepare, recorded, saved_again

from rawpack_packer.sources import Source

_HEAD = """\
# How each path of the corpus is recognized: what opens it without being told, what its samples have, or the refusal.
# Made by `python tests/layouts/corpus.py --write`. Listings are those of folders, as
# the path is opened.
"""
_MODULES: tuple[Any, ...] = (
    *(cases_folders, cases_beside, cases_archives, cases_tables, cases_arrays, cases_detection, cases_pages),
)
CASES: dict[str, Case] = {
    f"{theme}: {case.name}": case
    for module in _MODULES
    for theme, of_theme in module.CASES.items()
    for case in of_theme
}


_LOOKED = (
    "images beside class folders", "shards by a pattern", "shards by a range", "one split of MNIST",
    "YOLO's images/ and labels/", "Pascal VOC of two years",
)  # fmt: skip
"""Layouts of which it is recorded how often folders are listed, as they are opened."""


def recognized(case: Case, folder: Path) -> Answer:
    """How the path of a layout is recognized, which is made in an empty folder."""
    looks = {}
    with chdir(folder), in_this_process() as listed:
        opener = prepare(case, folder)

        def opened() -> Source:
            before = len(listed)
            source = opener()
            looks["listings"] = len(listed) - before
            return saved_again(source, case, folder)

        record = answer(opened, folder)
    if case.name in _LOOKED:
        record |= looks
    return record if case.path is None else {"opens": case.path, **record}


def _value(value: Any) -> str:
    if isinstance(value, dict):
        items = ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items())
        return f"{{ {items} }}" if items else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _table(name: str, record: Answer) -> str:
    return "".join([f"\n[{_key(name)}]\n", *(f"{_key(key)} = {_value(value)}\n" for key, value in record.items())])


def write(words: Sequence[str] = ()) -> None:
    """words: one of them is in the names of the layouts that are asked. Answers of others, and of layouts that cannot
    be made here, stay as they are."""
    before = recorded() if ANSWERS.exists() else {}
    tables = []
    for name, case in CASES.items():
        if missing(case) or (words and not any(word in name for word in words)):
            record = before.get(name, {})
        else:
            with tempfile.TemporaryDirectory() as folder:
                record = recognized(case, Path(folder).resolve())
        if record:
            tables.append(_table(name, record))
    ANSWERS.write_text(_HEAD + "".join(tables), "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit("usage: python tests/layouts/corpus.py --write [WORD ...]")
    write(sys.argv[2:])
