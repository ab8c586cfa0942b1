"""A column of objects in a dataset that Python gives: boxes, their classes, and what else each object has.

The oracle is arithmetic, done by hand. `_Rows` stands for a `datasets.Dataset`, whose own features it takes if that
package is there.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pictures import picture
from PIL import Image
from running import reader_of

import rawpack
from rawpack import Reader, UsageError

OBJECTS = [
    {"id": [7, 8], "bbox": [[30, 20, 6, 5], [1, 2, 3, 4]], "category": [2, 0], "note": ["a", "b"]},
    {"id": [], "bbox": [], "category": [], "note": []},
    {"id": [9], "bbox": [[10, 12, 13, 14]], "category": [0], "note": ["c"]},
]
WANTED = [[[30, 20, 36, 25, 2], [1, 2, 4, 6, 0]], [], [[10, 12, 23, 26, 0]]]
NAMES = ["hen", "ant", "owl"]
IMAGES = [Image.fromarray(picture(40, 60, i)) for i in range(3)]


class _Rows:
    """As `datasets.Dataset`: rows by number, columns by name."""

    def __init__(self, objects: list[Any]) -> None:
        self.columns: dict[str, list[Any]] = {"image": IMAGES, "size": [[40, 60]] * 3, "faces": objects}
        classes = SimpleNamespace(names=NAMES)
        inner = {"id": None, "bbox": None, "category": SimpleNamespace(feature=classes), "note": None}
        self.features = {"image": None, "size": None, "faces": SimpleNamespace(feature=inner)}

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: Any) -> Any:
        return self.columns[i] if isinstance(i, str) else {name: one[i] for name, one in self.columns.items()}


def _one_by_one(objects: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(objects, values, strict=True)) for values in zip(*objects.values(), strict=True)]


@pytest.mark.parametrize(("form", "workers"), [("lists", 0), ("one by one", 1)])
def test_objects_of_a_dataset_of_hugging_face(tmp_path: Path, form: str, workers: int) -> None:
    """Boxes end where their width and height say, since one would otherwise end before it begins; classes have the
    names of the features, also those without a box."""
    dataset = _Rows(OBJECTS if form == "lists" else [*map(_one_by_one, OBJECTS)])
    done = rawpack.pack(dataset, tmp_path / "store", size="keep", workers=workers)
    assert any("left out because they are not one number each: note" in one for one in done.info.problems)
    reader = Reader(tmp_path / "store")
    assert reader.classes == tuple(NAMES)
    assert [one["boxes"].tolist() for one in reader] == WANTED
    assert [one["id"].tolist() for one in reader] == [[7, 8], [], [9]]
    assert [one["size"].tolist() for one in reader] == [[40, 60]] * 3
    assert reader.fields["size"].shape == (2,)


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars"])
def test_objects_of_a_table_in_memory(tmp_path: Path, kind: str) -> None:
    """Numbers leave with their boxes; names of classes are sorted."""
    texts = [one | {"category": [NAMES[k] for k in one["category"]]} for one in OBJECTS]
    columns = {"image": [*map(_saved, range(3), [tmp_path] * 3)], "objects": texts[1:] + texts[:1]}
    frame = columns if kind == "dict" else pytest.importorskip(kind).DataFrame(columns)
    reader = reader_of(
        frame, tmp_path / "store", workers=0, size="keep", crop=(20, 10, 40, 30), fields={"objects": "xywh"}
    )
    assert reader.classes == ("hen", "owl")
    assert [one["boxes"].tolist() for one in reader] == [[], [[0, 2, 3, 16, 0]], [[10, 10, 16, 15, 1]]]
    assert [one["id"].tolist() for one in reader] == [[], [9], [7]]


def _saved(i: int, folder: Path) -> str:
    IMAGES[i].save(folder / f"{i}.png")
    return str(folder / f"{i}.png")


def test_the_form_is_asked_for_and_all_can_be_kept_as_text(tmp_path: Path) -> None:
    """As for tables in files."""
    dataset = _Rows(OBJECTS[2:] * 3)
    with pytest.raises(UsageError, match=r"fields={'faces': 'xyxy'}|faces:xyxy"):
        rawpack.pack(dataset, tmp_path / "a", workers=0)
    rawpack.pack(dataset, tmp_path / "b", workers=0, size="keep", fields={"faces": "xyxy"}, classes=["a", "b", "c"])
    assert Reader(tmp_path / "b")[0]["boxes"].tolist() == [[10, 12, 13, 14, 0]]
    assert Reader(tmp_path / "b").classes == ("a", "b", "c")
    rawpack.pack(dataset, tmp_path / "c", workers=0, fields={"faces": "str"})
    assert '"bbox"' in Reader(tmp_path / "c")[0]["faces"]
