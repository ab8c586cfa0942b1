"""Boxes and what follows them survive an export: packed again, they have the same classes and leave together.

The oracle is the JSON that was packed first, and arithmetic on its numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture, save
from running import pack, run_here

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.transforms import CenterCrop
from rawpack_packer.sources import open_source

HEIGHT, WIDTH = 40, 60
CROP = (20, 10, 30, 25)
"""Left, top, width, height."""
BOXES = [
    [(2, 3, 10, 8), (25, 12, 10, 8), (30, 20, 15, 9)], [(1, 1, 6, 6), (40, 20, 8, 8)], [],
    [(22, 15, 5, 5), (0, 30, 9, 9)],
]  # fmt: skip
"""Left, top, width, height of the objects in each image: some are outside of the crop, none is cut by it."""
NAMES = ["owl", "ant", "hen"]
"""By id, from 5 on; none is a hen."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """COCO's boxes, with ids, areas and outlines."""
    boxes = [(i, box) for i, some in enumerate(BOXES) for box in some]
    for i in range(len(BOXES)):
        save(tmp_path / f"in/{i}.png", picture(HEIGHT, WIDTH, i))
    annotations = [
        {"id": 100 + n, "image_id": i, "category_id": 5 + n % 2, "bbox": box, "area": n / 4, "iscrowd": 0,
         "segmentation": [[box[0], box[1], box[0] + box[2], box[1], box[0], box[1] + box[3]]]}
        for n, (i, box) in enumerate(boxes)
    ]  # fmt: skip
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(len(BOXES))]
    categories = [{"id": 5 + k, "name": name} for k, name in enumerate(NAMES)]
    tree = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "in/all.json").write_text(json.dumps(tree))
    return pack(tmp_path / "in/all.json", tmp_path / "store", "--size", "keep")


def wanted(crop: bool) -> dict[str, dict[str, Any]]:
    """What is in each image, by its key without the extension."""
    found, number = dict[str, dict[str, Any]](), 0
    left, top, width, height = CROP if crop else (0, 0, WIDTH, HEIGHT)
    for i, boxes in enumerate(BOXES):
        rows, ids, areas, points = [], [], [], []
        for x, y, w, h in boxes:
            if left <= x and x + w <= left + width and top <= y and y + h <= top + height:
                corners = [(x, y), (x + w, y), (x, y + h)]
                points += [[px - left, py - top, len(rows), 0] for px, py in corners]
                rows.append([x - left, y - top, x + w - left, y + h - top, number % 2])
                ids.append(100 + number)
                areas.append(number / 4)
            number += 1
        found[str(i)] = {"boxes": rows, "annotation_id": ids, "area": areas, "polygons": points}
    return found


def found_in(store: Path) -> dict[str, dict[str, Any]]:
    reader = Reader(store)
    fields = ("boxes", "annotation_id", "area", "polygons")
    samples = (reader[i] for i in range(len(reader)))
    return {Path(one["key"]).stem: {name: one[name].tolist() for name in fields} for one in samples}


TYPES = ("boxes:xyxy[5]", "annotation_id:int64[?]", "area:float64[?]", "polygons:float32[?,4]")


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("to", ["files", "parquet", "webdataset"])
def test_what_follows_boxes_leaves_with_them_after_an_export(store: Path, to: str, typed: bool) -> None:
    """A crop of what was exported loses the same boxes, numbers and outlines as a crop of the store would, whether or
    not the user says what types they have."""
    out, options = store.parent / "out", list[str]()
    assert run_here("export", "-q", "--to", to, store, out).code == 0
    for word in TYPES if typed else [one.partition(":")[0] for one in TYPES] if to == "webdataset" else ():
        options += ["--field", f"json.{word}" if to == "webdataset" else word]
    source = out / "metadata.jsonl" if to == "files" else out
    whole = pack(source, store.parent / "again", "--size", "keep", *options)
    assert found_in(whole) == found_in(store) == wanted(crop=False)
    cut = pack(source, store.parent / "cut", "--size", "keep", "--crop", ",".join(map(str, CROP)), *options)
    assert found_in(cut) == wanted(crop=True)
    if to != "webdataset":
        assert Reader(cut).classes == tuple(NAMES)


def test_lists_with_a_value_for_each_box_follow_them(tmp_path: Path) -> None:
    """In anybody's table: `flag` has as many values as there are boxes in each row; `other` has not. Where all images
    have as many boxes, so that a list shows nothing, `per-box:` says it."""
    rows: list[dict[str, Any]] = [
        {"boxes": [[1, 2, 9, 8, 0], [30, 20, 40, 30, 1]], "flag": [7, 8], "other": [1]},
        {"boxes": [], "flag": [], "other": [2, 3]},
        {"boxes": [[25, 20, 40, 30, 1]], "flag": [9], "other": [4]},
    ]
    for i in range(3):
        save(tmp_path / f"{i}.png", picture(HEIGHT, WIDTH, i))
    lines = [json.dumps({"path": f"{i}.png", **row}) for i, row in enumerate(rows)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    (tmp_path / "one.jsonl").write_text(lines[0])
    options = ["--size", "keep", "--crop", "20,10,40,30", "--field", "boxes:xyxy"]
    for name, flag, flags in (
        ("in", [], [[8], [], [9]]),
        ("in", ["--field", "flag:array:int64[?]"], [[7, 8], [], [9]]),
        ("one", ["--field", "flag:per-box:int64[?]"], [[8]]),
    ):
        reader = Reader(pack(tmp_path / f"{name}.jsonl", tmp_path / f"{name} {flag}", *options, *flag))
        assert [one["flag"].tolist() for one in reader] == flags
        assert [one["other"].tolist() for one in reader] == [[1], [2, 3], [4]][: len(flags)]
    for word in ("int64", "mask", "xyxy", "str[?]"):
        with pytest.raises(UsageError, match="per-box"):
            open_source(tmp_path / "in.jsonl", fields=["boxes:xyxy", f"flag:per-box:{word}"])


@pytest.mark.parametrize("target", ["files", "parquet"])
def test_a_list_that_happens_to_be_as_long_stays_as_it_was(target: str, tmp_path: Path) -> None:
    """Points that follow no boxes do not begin to do so, though each image has as many of them as boxes."""
    points = [np.arange(2 * (i % 3), dtype=np.float32).reshape(-1, 2) for i in range(6)]
    data = [
        {"image": picture(32, 32, i), "boxes": np.full((i % 3, 5), [[1, 1, 4, 4, 0]], np.float32), "points": points[i]}
        for i in range(6)
    ]
    rawpack_packer.pack(data, tmp_path / "a", fields={"boxes": "xyxy", "points": "float32[?,2]"}, workers=0)
    rawpack_packer.export(tmp_path / "a", tmp_path / "out", to=target, workers=0)  # type: ignore[arg-type]
    source = tmp_path / "out" / "metadata.jsonl" if target == "files" else tmp_path / "out"
    rawpack_packer.pack(source, tmp_path / "b", size="keep", workers=0)
    reader = Reader(tmp_path / "b")
    batch = next(iter(reader.batches(6, fields=["image", "points"], transform=[CenterCrop(8)], workers=0)))
    assert [given.tolist() for given in batch["points"]] == [one.tolist() for one in points]
    assert {name: one.follows for name, one in reader.fields.items()} == {
        name: one.follows for name, one in Reader(tmp_path / "a").fields.items()
    }
