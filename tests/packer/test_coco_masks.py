"""COCO's boxes, segmentations, keypoints and what else belongs to a box.

Oracles: digests of what pycocotools decodes (support/fixtures/coco_rle/make.py), and points tested one by one.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import changed, rejects_of
from numpy.typing import NDArray
from pictures import picture, save
from running import pack, run_here

from rawpack import Reader, UsageError
from rawpack.errors import DecodeError
from rawpack.pixels.geometry import fill_polygons
from rawpack_packer.sources import open_source
from rawpack_packer.sources.detection.coco import Runs, decode_runs

FIXTURE = json.loads((Path(__file__).parents[1] / "support/fixtures/coco_rle/runs.json").read_text())
HEIGHT, WIDTH = 40, 60


def inside(points: NDArray[Any], height: int, width: int) -> NDArray[np.bool_]:
    """Each pixel's center against each edge, with no array in sight."""
    covered = np.zeros((height, width), np.bool_)
    for row in range(height):
        for column in range(width):
            x, y = column + 0.5, row + 0.5
            for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[0]], strict=True):
                if (y0 <= y) != (y1 <= y) and x >= x0 + (y - y0) / (y1 - y0) * (x1 - x0):
                    covered[row, column] ^= True
    return covered


@pytest.mark.parametrize("at", range(len(FIXTURE["masks"])))
def test_run_lengths_are_decoded_as_by_pycocotools(at: int) -> None:
    """Bit for bit, as the compressed string and as the plain list."""
    case = FIXTURE["masks"][at]
    mask = decode_runs(Runs(case["counts"], tuple(case["size"])))
    assert mask.shape == tuple(case["size"])
    assert int(mask.sum()) == case["pixels"]
    assert hashlib.sha256(np.ascontiguousarray(mask).astype(np.uint8).tobytes()).hexdigest() == case["sha256"]
    flat = mask.T.reshape(-1)
    changes = [0, *(np.flatnonzero(flat[1:] != flat[:-1]) + 1).tolist(), len(flat)]
    counts = ([0] if flat[0] else []) + np.diff(changes).tolist()
    assert np.array_equal(decode_runs(Runs(counts, mask.shape)), mask)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counts", "size"),
    [
        ("", (2, 2)), ("o", (2, 2)), ("!", (2, 2)), ("\x7f", (2, 2)), ("é", (2, 2)), ("5", (2, 2)), ("3", (2, 2)),
        ("oooooooooooo0", (2, 2)), ("4", (0, 4)), ("4", (-2, -2)), ("4", (1 << 20, 1 << 20)), ("?4", (2, 2)),
        ([5], (2, 2)), ([-1, 5], (2, 2)), ([], (2, 2)), ([2**62, 2**62, 2**62, 2**62, 4], (2, 2)),
    ],
)  # fmt: skip
def test_run_lengths_of_no_mask_are_refused(counts: Any, size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"run|mask"):
        decode_runs(Runs(counts, size))


def test_polygons_cover_the_pixels_whose_centers_are_inside() -> None:
    """Convex or not, crossing itself, partly outside; several are joined."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        points = (rng.random((int(rng.integers(3, 9)), 2)) * 30 - 5).round(1)
        assert np.array_equal(fill_polygons([points], 20, 24), inside(points, 20, 24))
    squares = [[[0, 0], [2, 0], [2, 2], [0, 2]], [[3, 0], [4, 0], [4, 1], [3, 1]]]
    assert fill_polygons(squares, 3, 4).astype(int).tolist() == [[1, 1, 0, 1], [1, 1, 0, 0], [0] * 4]
    assert not fill_polygons([], 3, 4).any()


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """Two images; the first has a triangle, a mask of runs, and a crowd."""
    for i in range(2):
        save(tmp_path / f"tiny/{i}.jpg", picture(HEIGHT, WIDTH, i))
    runs = {"counts": [0, HEIGHT * 5, HEIGHT * (WIDTH - 5)], "size": [HEIGHT, WIDTH]}
    points = [10, 5, 2, 20, 10, 1, 0, 0, 0]
    images = [{"id": 7 + i, "file_name": f"{i}.jpg", "height": HEIGHT, "width": WIDTH} for i in range(2)]
    path = tmp_path / "annotations/instances_tiny.json"
    path.parent.mkdir()
    path.write_text(json.dumps({
        "images": images,
        "annotations": [
            {"id": 900100000001, "image_id": 8, "category_id": 3, "bbox": [0, 0, 9, 9], "area": 81.5,
             "keypoints": points, "segmentation": [[0, 0, 9, 0, 9, 9], [20, 20, 30, 20, 30, 30, 20, 30]]},
            {"id": 12, "image_id": 7, "category_id": 1, "bbox": [0, 0, 5, 40], "area": 200, "segmentation": runs},
            {"id": 13, "image_id": 7, "category_id": 3, "bbox": [2, 2, 8, 8], "area": 32, "iscrowd": 0,
             "segmentation": [[2, 2, 10, 2, 10, 10]], "keypoints": [0] * 9, "num_keypoints": 0},
            {"id": 14, "image_id": 7, "category_id": 3, "bbox": [0, 0, 60, 2], "area": 120, "iscrowd": 1,
             "segmentation": {"counts": [1, 2] * 60 + [0], "size": [3, 60]}},
        ],
        "categories": [
            {"id": 1, "name": "wall"},
            {"id": 3, "name": "person", "keypoints": ["left_eye", "right_eye", "nose"]},
        ],
    }))  # fmt: skip
    return path


def test_each_box_has_its_polygons_keypoints_area_and_id(coco: Path, tmp_path: Path) -> None:
    """In the order of the boxes of its image; crowds have none."""
    reader = Reader(pack(coco, tmp_path / "s", "--size", "keep"))
    names = ["image", "boxes", "crowds", "image_id", "annotation_id", "area", "polygons", "keypoints", "key"]
    assert list(reader.fields) == names
    first, second = reader[0], reader[1]
    assert (first["boxes"].tolist(), first["crowds"].tolist()) == (
        [[0, 0, 5, 40, 0], [2, 2, 10, 10, 1]],
        [[0, 0, 60, 2, 1]],
    )
    assert first["annotation_id"].tolist() == [12, 13]
    assert second["annotation_id"].tolist() == [900100000001]
    assert (first["area"].tolist(), second["area"].tolist()) == ([200, 32], [81.5])
    assert first["polygons"].tolist() == [[2, 2, 1, 0], [10, 2, 1, 0], [10, 10, 1, 0]]
    assert second["polygons"][:, 2:].tolist() == [[0, 0]] * 3 + [[0, 1]] * 4
    assert second["keypoints"].tolist() == [[[10, 5, 2], [20, 10, 1], [0, 0, 0]]]
    assert not first["keypoints"].any()
    assert first["keypoints"].shape == (2, 3, 3)
    assert reader.fields["keypoints"].mirror == (1, 0, 2)


def test_masks_are_painted_on_demand(coco: Path, tmp_path: Path) -> None:
    """The class plus 1, or the number of the object, the smaller object on top, and the crowd below all."""
    changed(coco, lambda t: t["annotations"][3].update(segmentation=[[0, 0, 60, 0, 60, 2, 0, 2]]))
    asked = ("--field", "seg=semantic:mask", "--field", "instances:mask")
    reader = Reader(pack(coco, tmp_path / "s", "--size", "keep", *asked))
    triangle, column = inside(np.array([[2, 2], [10, 2], [10, 10]]), HEIGHT, WIDTH), np.zeros((HEIGHT, WIDTH), np.bool_)
    column[:, :5] = True
    expected = np.zeros((HEIGHT, WIDTH), np.int64)
    expected[:2] = 255
    expected[column] = 1
    expected[triangle] = 2
    assert np.array_equal(reader[0]["seg"][..., 0], expected)
    objects = np.zeros((HEIGHT, WIDTH), np.int64)
    objects[:2] = 65535
    objects[column], objects[triangle] = 1, 2
    assert np.array_equal(reader[0]["instances"][..., 0], objects)
    assert reader[0]["object"].tolist() == [1, 2]
    cropped = Reader(pack(coco, tmp_path / "t", "--size", "keep", "--crop", "5,0,50,40", "--field", "instances:mask"))
    assert cropped[0]["object"].tolist() == [2]
    assert set(np.unique(cropped[0]["instances"])) == {0, 2, 65535}


def test_other_faults_are_refused(coco: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="write semantic:mask"):
        open_source(coco, fields=["seg:mask"])
    ran = run_here("pack", "--workers", 0, "--max-rejects", 1, "--field", "semantic:mask", coco, tmp_path / "s")
    assert ran.code == 0, ran.err
    assert "an image of (40, 60)" in (tmp_path / "s/rejects.jsonl").read_text()  # the crowd's mask has another size
    with pytest.raises(UsageError, match=r"images\[0\]: masks need its height and width"):
        open_source(changed(coco, lambda tree: tree["images"][0].pop("height")), fields={"semantic": "mask"})
    for wrong, words in (([[1, 2, 3, 4]], "4 numbers, but an outline"), ("x", "")):
        source = open_source(changed(coco, lambda tree, wrong=wrong: tree["annotations"][2].update(segmentation=wrong)))
        with pytest.raises(DecodeError, match=rf"bad_field: boxes: \$.annotations\[2\].segmentation: {words}"):
            source[0]
    changed(coco, lambda tree: tree["annotations"][2].update(segmentation=[]))
    twice = changed(coco, lambda tree: tree["images"][1].update(file_name="0.jpg"))
    with pytest.raises(UsageError, match=r"\$.images\[1\].file_name: '0.jpg' belongs to \$.images\[0\]"):
        open_source(twice)
    changed(coco, lambda tree: tree["images"][1].update(file_name="1.jpg"))
    source = open_source(changed(coco, lambda tree: tree["annotations"][0].update(keypoints=[1, 2, 2])))
    with pytest.raises(DecodeError, match=r"annotations\[0\].keypoints: 3 numbers, but 3 keypoints have 9"):
        _ = [source[i] for i in range(len(source))]


def test_categories_are_numbered_by_their_ids(coco: Path) -> None:
    """However the file orders them, each box has the class that it names."""
    source = open_source(changed(coco, lambda t: t["categories"].reverse()))
    assert source.info.classes == ("wall", "person")
    rows = source[0].fields["boxes"].rows  # type: ignore[union-attr]
    assert rows.tolist() == [[0, 0, 5, 40, 0], [2, 2, 8, 8, 1]]


def test_categories_of_one_name_stay_apart(coco: Path) -> None:
    """Of two with the same name the second has its id in it, as often as it takes to be another; boxes keep theirs."""
    categories = [{"id": i, "name": name} for i, name in zip((1, 3, 9), ("cat 9", "cat", "cat"), strict=True)]
    source = open_source(changed(coco, lambda tree: tree.update(categories=categories)))
    assert source.info.classes == ("cat 9", "cat", "cat 9 9")
    assert source[0].fields["boxes"].rows[:, 4].tolist() == [0, 1]  # type: ignore[union-attr]


def test_boxes_of_an_image_of_another_size_are_rejected(coco: Path, tmp_path: Path) -> None:
    """An image that was resized or turned after its boxes were drawn is rejected, with both sizes; one whose size the
    file does not say is taken as it is."""
    save(tmp_path / "tiny/0.jpg", picture(20, 30, 0))
    pack(coco, tmp_path / "s", "--size", "keep", "--max-rejects", 1)
    (reject,) = rejects_of(tmp_path / "s")
    assert (reject["key"], reject["reason"]) == ("0.jpg", "bad_field")
    assert "an image of (40, 60) (height, width), but the image has (20, 30)" in reject["detail"]
    unsaid = changed(coco, lambda tree: [image.pop("height") for image in tree["images"]])
    assert len(Reader(pack(unsaid, tmp_path / "t", "--size", "keep"))) == 2


def test_images_do_not_lead_out_of_their_folder(coco: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON of somebody else cannot take an image from elsewhere into the store, by an absolute path or by `..`,
    unless --images says where its paths start. What stays in the set is packed, also in `annotations` and by links."""
    secret = save(tmp_path / "private/0.jpg", picture(HEIGHT, WIDTH, 0))
    save(tmp_path / "set/1.jpg", picture(HEIGHT, WIDTH, 1))
    file = tmp_path / "set/annotations/all.json"
    file.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "private")

    def naming(name: str) -> Path:
        file.write_text(coco.read_text().replace('"0.jpg"', f'"{name}"').replace('"1.jpg"', '"../1.jpg"'))
        return file

    for name in (str(secret), "../../private/0.jpg", "../x/../../private/0.jpg"):
        for path in (naming(name), Path("../set/annotations/all.json")):
            with pytest.raises(UsageError, match=rf"\$.images\[0\].file_name: {name} leads out of .*--images "):
                open_source(path)
        (tmp_path / "set" / "x").mkdir(exist_ok=True)
        assert len(open_source(file, images=file.parent)) == 2
    (tmp_path / "set/0.jpg").symlink_to(secret)
    assert len(open_source(naming("../0.jpg"))) == 2
