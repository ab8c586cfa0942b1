"""The data card of exported tables: a README.md from which Hugging Face datasets and the Hub take the columns, the
names of the classes, the splits and the files of each.

Its head is YAML, whose texts are written as in JSON, so that any name of a class is one.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rawpack_packer.destination import files
from rawpack_packer.text import count, plain

CARD = "README.md"
_UNPRINTABLE = re.compile("[\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""What YAML takes for the end of a line, or refuses, and JSON leaves as it is."""
_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z][a-z_]*[0-9]*")
"""Texts that need no quotes: no YAML takes them for anything else."""
_HEAD = """\
---
{head}
---

# Dataset

{samples}, in Parquet files that `rawpack export` wrote.

```python
import datasets

dataset = datasets.load_dataset("path/of/this/folder")
```
"""
_OF_BOXES = """
The last column of `boxes` is the class of each box:

{rows}
"""


@dataclass(frozen=True)
class Card:
    """What is known of the files of a split, which are on the disk."""

    split: str
    folder: str
    """Where they are, below that of the card; "" for the same folder."""
    samples: int
    bytes: int
    """Size of the files."""
    memory_bytes: int
    """Size of their columns before compression."""
    features: Mapping[str, Mapping[str, Any]]
    """Column -> what it is, as `datasets` writes that in a Parquet file. The same in all splits."""
    classes: Sequence[str]


def split_names(names: Sequence[str]) -> list[str]:
    """What `datasets` can call these splits, in their order: letters, digits and "_", each name once."""
    taken = list[str]()
    for name in names:
        plain_name = re.sub(r"\W", "_", name)
        while plain_name in taken:
            plain_name += "_"
        taken.append(plain_name)
    return taken


def write_card(folder: Path, splits: Sequence[Card], temporary: Path) -> None:
    """Write the card of a folder. temporary: the file until it is whole."""
    # A split that was appended to may have more classes.
    longest = max(splits, key=lambda one: len(one.classes))
    names = split_names([one.split for one in splits])
    size = sum(one.bytes for one in splits)
    head = {
        "dataset_info": {
            "features": [{"name": name, **_of_yaml(feature)} for name, feature in longest.features.items()],
            "splits": [
                {"name": name, "num_bytes": one.memory_bytes, "num_examples": one.samples}
                for name, one in zip(names, splits, strict=True)
            ],
            "download_size": size,
            "dataset_size": sum(one.memory_bytes for one in splits),
        },
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": name, "path": _pattern(one)} for name, one in zip(names, splits, strict=True)],
            }
        ],
    }
    samples = count(sum(one.samples for one in splits), "sample")
    text = _HEAD.format(head="\n".join(_lines(head)), samples=samples)
    if all(feature["_type"] != "ClassLabel" for feature in longest.features.values()) and longest.classes:
        rows = "\n".join(f"- {number}: {plain(name)}" for number, name in enumerate(longest.classes))
        text += _OF_BOXES.format(rows=rows)
    files.write_whole(folder / CARD, text.encode("utf-8", "backslashreplace"), temporary)


def _pattern(one: Card) -> str:
    """Which files a split has, as a glob below the folder of the card."""
    return "/".join(glob.escape(part) for part in (one.folder, one.split) if part) + "-*.parquet"


def _of_yaml(feature: Mapping[str, Any]) -> dict[str, Any]:
    """A feature as a card has it: first what it is."""
    kind = feature["_type"]
    if kind == "Sequence":
        inner = _of_yaml(feature["feature"])
        inner = inner["dtype"] if isinstance(inner.get("dtype"), str) else inner
        return {"sequence": inner, **({"length": feature["length"]} if "length" in feature else {})}
    if kind == "ClassLabel":
        return {"dtype": {"class_label": {"names": {str(k): name for k, name in enumerate(feature["names"])}}}}
    return {"dtype": feature["dtype"] if kind == "Value" else kind.lower()}


def _lines(value: Any) -> Iterator[str]:
    """A dict or a list as lines of YAML."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict | list):
                yield f"{_scalar(name)}:"
                yield from (f"  {line}" if isinstance(inner, dict) else line for line in _lines(inner))
            else:
                yield f"{_scalar(name)}: {_scalar(inner)}"
        return
    for one in value:
        first, *others = _lines(one)
        yield f"- {first}"
        yield from (f"  {line}" for line in others)


def _scalar(value: str | int) -> str:
    """A number or a text."""
    if isinstance(value, int) or _PLAIN.fullmatch(value):
        return str(value)
    text = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
