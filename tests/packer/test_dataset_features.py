"""Datasets of Hugging Face in memory: fields are what the features say, as in its files, and not what the first values
happen to be; columns of objects are boxes, their classes, and what else each object has.

`Rows` and `Faces` stand for a `datasets.Dataset`; where that package is there, it is the oracle of fields too. The
oracle of boxes is arithmetic, done by hand.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from folders import rejects_of
from pictures import encoded, picture
from PIL import Image
from running import reader_of

import rawpack
from rawpack import PackError, Reader
from rawpack.targets import torchvision_targets

pa = pytest.importorskip("pyarrow")
COUNT = 4
IMAGES = [Image.fromarray(picture(20, 30, i)) for i in range(COUNT)]
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "ids": (pa.list_(pa.int32()), [[], [1], [2, 3], None]),
    "score": (pa.float32(), [0.1, None, 0.5, 1.0]),
    "small": (pa.int16(), [*range(COUNT)]),
    "names": (pa.list_(pa.string()), [[], ["a"], ["b", "c"], []]),
    "note": (pa.string(), [None, "x", "y", ""]),
    "vector": (pa.list_(pa.float32(), 3), [[0.1] * 3] * COUNT),
    "label": (pa.int64(), [0, 1, 1, 0]),
    "matrix": (pa.list_(pa.list_(pa.int64())), [[[1, 2], [3, 4]]] * COUNT),
    "when": (pa.timestamp("us"), [datetime.datetime(2020, 1, 1)] * COUNT),
    "uneven": (pa.list_(pa.list_(pa.int64())), [[[1, 2]], [[1, 2]] * 2, [[1, 2]], [[3, 4]]]),
    "about": (pa.struct({"a": pa.int64()}), [{"a": 1}] * COUNT),
}
KINDS = {
    "ids": ("int32", (None,)), "score": ("float32", ()), "small": ("int16", ()), "names": ("str", (None,)),
    "note": ("str", ()), "vector": ("float32", (3,)), "label": ("int64", ()), "matrix": ("int64", (2, 2)),
}  # fmt: skip
LEFT_OUT = ("when", "uneven", "about")


class Features(dict[str, Any]):
    """As `datasets.Features`."""

    @property
    def arrow_schema(self) -> Any:
        return pa.schema({name: one[0] for name, one in self.items()})

    def to_dict(self) -> dict[str, Any]:
        return {name: {"_type": one[1]} for name, one in self.items()}


class Columns:
    """As `datasets.Dataset`: rows by number, columns by name."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["image"])

    def __getitem__(self, i: Any) -> Any:
        return self.columns[i] if isinstance(i, str) else {name: one[i] for name, one in self.columns.items()}


class Rows(Columns):
    """Of some of `COLUMNS`."""

    def __init__(self, names: Sequence[str], form: str | None = None) -> None:
        super().__init__({"image": IMAGES, **{name: COLUMNS[name][1] for name in names}})
        image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        self.features = Features({"image": (image, "Image"), **{name: (COLUMNS[name][0], "Value") for name in names}})
        self.format = {"type": form, "columns": [*self.features]}

    def select_columns(self, names: list[str]) -> Rows:
        return Rows(names)

    def remove_columns(self, names: list[str]) -> Rows:
        return Rows([name for name in self.features if name not in (*names, "image")])


def check(dataset: Any, root: Path) -> None:
    done = rawpack.pack(dataset, root, size="keep", workers=0)
    reader = Reader(root)
    own = {name: (one.dtype, one.shape) for name, one in reader.fields.items() if name not in ("image", "key")}
    assert own == KINDS
    for name in LEFT_OUT:
        assert any(f"column '{name}' is left out" in one for one in done.info.problems)
    assert [one["ids"].tolist() for one in reader] == [[], [1], [2, 3], []]
    np.testing.assert_array_equal([one["score"] for one in reader], np.float32([0.1, np.nan, 0.5, 1.0]))
    assert [one["note"] for one in reader] == ["", "x", "y", ""]
    assert [one["names"] for one in reader] == [[], ["a"], ["b", "c"], []]


def test_fields_are_what_features_say(tmp_path: Path) -> None:
    """Whatever the first value is: an empty list, a missing text, a float of Python; what no field can hold is left
    out with a word, unless it is declared."""
    check(Rows([*COLUMNS]), tmp_path / "store")
    rawpack.pack(Rows(["when", "small"]), tmp_path / "text", fields={"when": "str", "small": "float64"}, workers=0)
    sample = Reader(tmp_path / "text")[2]
    assert (sample["when"], sample["small"].dtype, float(sample["small"])) == ("2020-01-01T00:00:00", np.float64, 2)


def test_a_transform_of_the_dataset_makes_other_values(tmp_path: Path) -> None:
    rawpack.pack(Rows(["small"], form="custom"), tmp_path / "store", workers=0)
    assert Reader(tmp_path / "store").fields["small"].dtype == "int64"


def test_a_missing_whole_number_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLUMNS, "gaps", (pa.int32(), [1, None, 3, 4]))
    with pytest.raises(PackError, match="1 of 4 images was rejected"):
        rawpack.pack(Rows(["gaps"]), tmp_path / "store", workers=0, max_rejects=0)


def test_datasets_itself(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = datasets.Features.from_arrow_schema(pa.schema({name: type_ for name, (type_, _) in COLUMNS.items()}))
    values = {"image": IMAGES, **{name: values for name, (_, values) in COLUMNS.items()}}
    dataset = datasets.Dataset.from_dict(values, datasets.Features({"image": datasets.Image(), **columns}))
    check(dataset, tmp_path / "memory")
    dataset.save_to_disk(tmp_path / "saved")
    rawpack.pack(tmp_path / "saved", tmp_path / "files", size="keep", workers=0)
    files = {name: (one.dtype, one.shape) for name, one in Reader(tmp_path / "files").fields.items()}
    assert {name: KINDS[name] for name in KINDS if name != "matrix"}.items() <= files.items()


# ---------------------------------------------------------------------------------------------- objects

OBJECTS: list[dict[str, list[Any]]] = [
    {"id": [7, 8], "bbox": [[30, 20, 6, 5], [1, 2, 3, 4]], "category": [2, 0], "note": ["a", "b"]},
    {"id": [], "bbox": [], "category": [], "note": []},
    {"id": [9], "bbox": [[10, 12, 13, 14]], "category": [0], "note": ["c"]},
]
WANTED = [[[30, 20, 36, 25, 2], [1, 2, 4, 6, 0]], [], [[10, 12, 23, 26, 0]]]
NAMES = ["hen", "ant", "owl"]
PHOTOS = [Image.fromarray(picture(40, 60, i)) for i in range(3)]


class Faces(Columns):
    def __init__(self, objects: list[Any]) -> None:
        super().__init__({"image": PHOTOS, "size": [[40, 60]] * 3, "faces": objects})
        category = SimpleNamespace(feature=SimpleNamespace(names=NAMES))
        inner = {"id": None, "bbox": None, "category": category, "note": None}
        self.features = {"image": None, "size": None, "faces": SimpleNamespace(feature=inner)}


@pytest.mark.parametrize("form", ["lists", "one by one"])
def test_objects_of_a_dataset_of_hugging_face(form: str, tmp_path: Path) -> None:
    """Boxes end where their width and height say, since one would otherwise end before it begins; classes have the
    names of the features, also those without a box."""
    objects: list[Any] = OBJECTS
    if form == "one by one":
        objects = [[dict(zip(one, row, strict=True)) for row in zip(*one.values(), strict=True)] for one in OBJECTS]
    done = rawpack.pack(Faces(objects), tmp_path / "store", size="keep", workers=0)
    assert any("left out because they are not one number each: note" in one for one in done.info.problems)
    reader = Reader(tmp_path / "store")
    assert (reader.classes, reader.fields["size"].shape) == (tuple(NAMES), (2,))
    assert [one["boxes"].tolist() for one in reader] == WANTED
    assert [one["id"].tolist() for one in reader] == [[7, 8], [], [9]]


@pytest.mark.parametrize("kind", ["dict", "polars", "dicts"])
def test_objects_of_a_table_in_memory(tmp_path: Path, kind: str) -> None:
    """Numbers leave with their boxes; names of classes are sorted."""
    texts = [one | {"category": [NAMES[k] for k in one["category"]]} for one in OBJECTS]
    columns = {"image": [encoded(picture(40, 60, i)) for i in range(3)], "objects": texts[1:] + texts[:1]}
    frame, fields = columns, {"objects": "xywh"} if kind == "polars" else ["objects:xywh"]
    if kind == "polars":
        frame = pytest.importorskip(kind).DataFrame(columns)
    elif kind == "dicts":
        frame = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    reader = reader_of(frame, tmp_path / "store", workers=0, size="keep", crop=(20, 10, 40, 30), fields=fields)
    assert reader.classes == ("hen", "owl")
    assert [one["boxes"].tolist() for one in reader] == [[], [[0, 2, 3, 16, 0]], [[10, 10, 16, 15, 1]]]
    assert [one["id"].tolist() for one in reader] == [[], [9], [7]]


# ---------------------------------------------------------------------------------------------- torchvision's targets

HEIGHT, WIDTH = 40, 60


def target(i: int) -> dict[str, Any]:
    """As the tutorial of torchvision has it; sample 2 has no object."""
    random, count = np.random.default_rng(i), 0 if i == 2 else 1 + i % 3
    corner = random.integers(0, 20, (count, 2))
    boxes = np.concatenate([corner, corner + random.integers(5, 20, (count, 2))], axis=1)
    masks = np.zeros((count, HEIGHT, WIDTH), np.uint8)
    for n, (left, top, right, bottom) in enumerate(boxes):
        masks[n, top:bottom, left:right] = 1
    return {
        "boxes": boxes.astype(np.float32), "labels": random.integers(1, 4, count), "image_id": np.array([100 + i]),
        "area": random.random(count).astype(np.float32), "iscrowd": np.zeros(count, np.int64), "masks": masks,
    }  # fmt: skip


TARGETS = [target(i) for i in range(6)]
SCENES = [(Image.fromarray(picture(HEIGHT, WIDTH, i)), one) for i, one in enumerate(TARGETS)]


@pytest.mark.parametrize("form", ["stream", "list"])
def test_a_dict_of_boxes_and_labels(form: str, tmp_path: Path) -> None:
    """Boxes with the numbers of their classes, and masks as instances; batches give such dicts again."""
    given: Any = SCENES if form == "list" else iter(SCENES)
    reader = reader_of(given, tmp_path / "s", workers=2 if form == "list" else 0)
    for i, (sample, wanted) in enumerate(zip(reader, TARGETS, strict=True)):
        np.testing.assert_array_equal(sample["image"], picture(HEIGHT, WIDTH, i))
        np.testing.assert_array_equal(sample["boxes"], np.column_stack([wanted["boxes"], wanted["labels"]]))
        for name in ("area", "iscrowd"):
            np.testing.assert_array_equal(sample[name], wanted[name])
        assert sample["image_id"] == 100 + i
        instances = np.zeros((HEIGHT, WIDTH), int)
        for n, mask in enumerate(wanted["masks"], 1):
            instances[mask == 1] = n
        np.testing.assert_array_equal(sample["instances"][..., 0], instances)
        assert sample["object"].tolist() == [*range(1, 1 + len(wanted["boxes"]))]
    (batch,) = reader.batches(6, fields=["image", "boxes"])
    for one, wanted in zip(torchvision_targets(batch), TARGETS, strict=True):
        np.testing.assert_array_equal(one["boxes"], wanted["boxes"])
        np.testing.assert_array_equal(one["labels"], wanted["labels"])


def test_targets_that_are_damaged_are_rejected(tmp_path: Path) -> None:
    whole = {"boxes": [[1, 2, 3, 4]], "labels": [1]}
    wrong: list[Any] = [{**whole, "labels": [1, 2]}, {**whole, "boxes": [[1, 2, 3]]}, {**whole, "boxes": None}]
    given = [(picture(8, 8, i), target) for i, target in enumerate([whole, *wrong, whole])]
    assert len(reader_of(given, tmp_path / "s", workers=0, max_rejects=3)) == 2
    rejects = rejects_of(tmp_path / "s")
    assert [one["reason"] for one in rejects] == ["bad_field"] * 3
    assert "it has 1 boxes and 2 labels" in rejects[0]["detail"]
