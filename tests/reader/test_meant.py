"""What somebody nearly wrote: each door that does not know a name says which one is near, and each habit of another
library what it is called here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rawpack_packer
from rawpack import Cache, Reader, UsageError
from rawpack.order import Balanced, Weighted
from rawpack.transforms import BatchLambda, Lambda, MixUp, OneText


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of 12 frames of a video, with a label, and texts."""
    where, rows = tmp_path_factory.mktemp("meant") / "store", np.arange(12)
    columns: dict[str, Any] = {
        "image": np.zeros((12, 8, 8, 3), np.uint8), "label": [["cat", "dog"][row % 2] for row in rows],
        "video": rows // 12, "frame": rows, "second": rows / 4.0, "captions": [["a", "b"]] * 12,
    }  # fmt: skip
    rawpack_packer.pack(columns, where, workers=0)
    return Reader(where)


DOORS: dict[str, tuple[str, Callable[[Reader], Any]]] = {
    "fields": ("image", lambda reader: reader.batches(4, fields=["img"])),
    "column": ("label", lambda reader: reader.column("lable")),
    "where": ("label", lambda reader: reader.select(where="lable == 1")),
    "find": ("label", lambda reader: reader.find("lable == 1")),
    "class in where": ("dog", lambda reader: reader.select(where="label == 'dgo'")),
    "class": ("dog", lambda reader: reader.select(classes=["dgo"])),
    "offsets": ("image", lambda reader: reader.clips(offsets={"imge": [0.0]})),
    "image_size": ("image", lambda reader: reader.batches(4, image_size={"imge": 8})),
    "decode": ("image", lambda reader: reader.batches(4, decode={"imge": False})),
    "Lambda": ("label", lambda reader: reader.batches(4, transform=[Lambda(np.negative, field="lable")])),
    "MixUp": ("label", lambda reader: reader.batches(4, transform=[MixUp(field="lable")])),
    "OneText": ("captions", lambda reader: reader.batches(4, transform=[OneText("caption")])),
    "Balanced": ("label", lambda reader: reader.batches(4, sampler=Balanced("lable"))),
    "Weighted": ("label", lambda reader: reader.batches(4, sampler=Weighted("lable"))),
    "data_iter": ("image", lambda reader: reader.batches(4).data_iter(data="imge")),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_nearest_name_is_named(reader: Reader, door: str) -> None:
    """Wherever a field or a class is named, a wrong name is answered with the right one."""
    meant, call = DOORS[door]
    with pytest.raises(UsageError, match=rf"\. Did you mean '{meant}'\?$"):
        call(reader)


@pytest.mark.parametrize(
    ("where", "cure"),
    [
        ("(frame > 3) & (frame < 5)", "write 'and' instead"),
        ("frame > 3 & frame < 5", "write 'and' instead"),
        ("(frame > 3) | (frame < 5)", "write 'or' instead"),
        ("~(frame > 3)", "write 'not' instead"),
        ("frame > 3 && frame < 5", "write and, or, not"),
        ("frame > 3 || frame < 5", "write and, or, not"),
        ("frame > 3 AND frame < 5", "write and, or, not"),
        ("!frame", "write and, or, not"),
    ],
)
def test_and_or_and_not_are_words(reader: Reader, where: str, cure: str) -> None:
    """The operators of numpy, of SQL and of a shell are answered with Python's words."""
    with pytest.raises(UsageError, match=cure):
        reader.select(where=where)


@pytest.mark.parametrize("limit", ["10GB", "1.5 TiB", "200 m", "64b"])
def test_a_limit_is_no_folder(limit: str) -> None:
    """A size in place of the folder of a cache is refused, by both doors. A folder may still be called so."""
    for door in (Cache, lambda cache: Reader("memory://bucket/store", cache=cache)):
        with pytest.raises(UsageError, match=rf"pass a limit as Cache\(limit='{limit}'\)"):
            door(limit)
    for folder in (f"./{limit}", Path(limit), "2024", "10GBs"):
        assert Cache(folder).folder == folder


def test_a_step_adds_no_field(reader: Reader) -> None:
    """What a function of a batch returns must be in the batch; the error has the fields that are."""
    step = BatchLambda(lambda batch: {"double": batch["label"] * 2})
    with pytest.raises(
        Exception, match="returned 'double': a step cannot add fields to the batch; it can replace image"
    ):
        next(iter(reader.batches(4, workers=0, transform=[step], fields=["image", "label"])))
    declared = BatchLambda(lambda batch: {}, makes={"double": ((), "int64")})
    with pytest.raises(UsageError, match="makes 'double': a step cannot add fields to the batch; it can replace image"):
        reader.batches(4, transform=[declared], fields=["image", "label"])


def test_batches_of_all_frameworks_are_not_indexed(reader: Reader) -> None:
    """What a DataLoader asks of a dataset that it takes for a list says how to pass batches to one."""
    for batches in (reader.batches(4), reader.batches(4).data_iter()):
        with pytest.raises(UsageError, match="iterated, not indexed; for a DataLoader of torch import torch before"):
            batches[0]
