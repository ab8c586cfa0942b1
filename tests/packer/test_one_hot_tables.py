"""One-hot labels of tables: lists of 0 and 1, or a column for each class, as in ISIC's ground truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pictures import encoded, picture, save
from running import pack

from rawpack import Reader, UsageError
from rawpack_packer.sources import open_source

HOT = [[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]]
WANTED = [2, 0, -1, 2]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i in range(4):
        save(tmp_path / f"{i}.png", picture(20, 30, i))
    return tmp_path


@pytest.mark.parametrize("number", ["{}", "{}.0"])
def test_a_column_for_each_class(photos: Path, number: str) -> None:
    """The names of the columns are those of the classes; a row of zeros has no class."""
    rows = [f"{i}.png,{','.join(number.format(one) for one in row)},{i}" for i, row in enumerate(HOT)]
    (photos / "truth.csv").write_text("\n".join(["path,MEL,NV,BCC,age", *rows]))
    reader = Reader(pack(photos / "truth.csv", photos / "store", "--label-column", "NV,BCC,MEL:onehot"))
    names = [reader.classes[one["label"]] if one["label"] >= 0 else None for one in reader]
    assert names == ["BCC", "MEL", None, "BCC"]
    assert [one["age"] for one in reader] == [0, 1, 2, 3]
    assert {*reader.fields} == {"image", "label", "age", "key"}


@pytest.mark.parametrize("end", ["csv", "jsonl"])
def test_lists_in_a_listing(photos: Path, end: str) -> None:
    """`--classes` names their positions."""
    rows = [{"path": f"{i}.png", "y": row} for i, row in enumerate(HOT)]
    text = "path,y\n" + "".join(f'{row["path"]},"{row["y"]}"\n' for row in rows)
    (photos / f"truth.{end}").write_text(text if end == "csv" else "\n".join(map(json.dumps, rows)))
    (photos / "names.txt").write_text("a\nb\nc\n")
    reader = Reader(
        pack(photos / f"truth.{end}", photos / "store", "--label-column", "y:onehot", "--classes", photos / "names.txt")
    )
    assert ([one["label"] for one in reader], reader.classes) == (WANTED, ("a", "b", "c"))


@pytest.mark.parametrize("fixed", [True, False])
def test_lists_in_a_parquet_file(tmp_path: Path, fixed: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    kind = pa.list_(pa.int8(), 3 if fixed else -1)
    images = [encoded(picture(20, 30, i)) for i in range(4)]
    pq.write_table(pa.table({"image": images, "y": pa.array(HOT, kind)}), tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet", label_column="y:onehot", classes=["a", "b", "c"])
    assert ([source[i].fields["label"] for i in range(4)], [*source.info.fields]) == (WANTED, ["label"])


@pytest.mark.parametrize(
    ("label", "error"),
    [
        ("y:onehot", "label 1, 1 of line 1 is not one-hot, a single 1 among zeros"),
        ("y,z:onehot", "has no column 'z'"),
        ("ragged:onehot", "one-hot labels are lists of one length, or columns of 0 and 1"),
        ("y,ragged:onehot", "one-hot labels are lists of one length, or columns of 0 and 1"),
    ],
)
def test_what_is_not_one_hot(photos: Path, label: str, error: str) -> None:
    """The error says what it is not."""
    rows = [{"path": "0.png", "y": [1, 1], "ragged": [0]}, {"path": "1.png", "y": [0, 1], "ragged": [0, 1]}]
    (photos / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UsageError, match=error):
        open_source(photos / "a.jsonl", label_column=label)
