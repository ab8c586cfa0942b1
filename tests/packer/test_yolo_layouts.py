"""Ultralytics' layouts: data.yaml, splits, lists of images, polygons and keypoints; and pairs of folders.

The oracle is the arithmetic of the format, done here once more by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from numpy.testing import assert_allclose
from pictures import picture, save
from running import pack, run_here, stop_of

from rawpack import Reader, UsageError
from rawpack.errors import DecodeError
from rawpack_packer.sources import DividedError, open_source

pytest.importorskip("yaml")
HEIGHT, WIDTH = 40, 60


def put(root: Path, name: str, label: str | None, folder: str = "images", labels: str = "labels") -> None:
    """An image, and its text file if there is one."""
    save(root / folder / f"{name}.jpg", picture(HEIGHT, WIDTH, len(name)))
    file = root / labels / f"{name}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    if label is not None:
        file.write_text(label)


@pytest.fixture
def coco8(tmp_path: Path) -> Path:
    """Ultralytics' own layout: images/{train,val}, labels/{train,val}, and coco8.yaml next to the folder."""
    root = tmp_path / "coco8"
    put(root, "train/a", "0 0.5 0.5 0.2 0.4\n")
    put(root, "train/background", None)
    put(root, "val/b", "1 0.25 0.75 0.1 0.1\n")
    (tmp_path / "coco8.yaml").write_text(
        "path: coco8 # dataset root dir\ntrain: images/train\nval: images/val\ntest:\nnames:\n  0: no\n  1: dog\n"
    )
    return root


def yaml(folder: Path, text: str) -> Path:
    path = folder / "data.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("given", ["coco8.yaml", "coco8"])
def test_splits_of_a_data_yaml_or_its_folder(given: str, coco8: Path) -> None:
    source, there = coco8.parent / given, coco8.parent / "s"
    with pytest.raises(DividedError, match=r"is divided into the splits train, val.*--splits train,val.*--source yolo"):
        open_source(source)
    assert run_here("pack", "--workers", 0, "--size", "keep", "--splits", "train,val", source, there).code == 0
    train, val = Reader(there / "train"), Reader(there / "val")
    assert [train[i]["key"] for i in range(2)] == ["images/train/a.jpg", "images/train/background.jpg"]
    assert_allclose(train[0]["boxes"], [[24, 12, 36, 28, 0]], atol=1e-4)
    assert train[1]["boxes"].shape == (0, 5)
    assert_allclose(val[0]["boxes"], [[12, 28, 18, 32, 1]], atol=1e-4)
    # The class "no" is a name, not False.
    assert train.classes == (("no", "dog") if given == "coco8.yaml" else None)
    assert len(open_source(source, "yolo")) == 3


@pytest.mark.parametrize("changed", ["val.txt", "labels/val/b.txt"])
def test_another_list_or_other_boxes_are_another_source(changed: str, coco8: Path) -> None:
    """A store of what the list named, or of the boxes that the text files had, is not complete once these change."""
    (coco8 / "val.txt").write_text("images/val/b.jpg\n")
    file, store = yaml(coco8, "train: val.txt\nnames: [x, y]\n"), coco8.parent / "s"
    pack(file, store, "--size", 16)
    assert "complete already" in run_here("pack", "--size", 16, file, store).out
    (coco8 / changed).write_text((coco8 / changed).read_text() + "\n")
    assert "the source differs" in stop_of("pack", "--size", 16, file, store)


def test_a_list_does_not_lead_out_of_its_set(coco8: Path, tmp_path: Path) -> None:
    """A list of somebody else cannot take images from elsewhere into the store; `path` in data.yaml says where they
    are, if they are."""
    put(tmp_path / "private", "p", "0 0.5 0.5 1 1\n")
    for line in (
        tmp_path / "private/images/p.jpg",
        "../../private/images/p.jpg",
        "images/../../../private/images/p.jpg",
    ):
        (coco8 / "train.txt").write_text(f"images/train/a.jpg\n{line}\n")
        file = yaml(coco8, "train: train.txt\nnames: [x, y]\n")
        ran = run_here("pack", "--workers", 0, file, tmp_path / "s")
        assert (ran.code, "train.txt, line 2: " in ran.err, "leads out of" in ran.err) == (2, True, True), ran
        assert not (tmp_path / "s").exists()
    (coco8 / "train.txt").write_text(f"{tmp_path}/private/images/p.jpg\n")
    file = yaml(coco8, f"path: {tmp_path}\ntrain: {coco8.relative_to(tmp_path)}/train.txt\nnames: [x, y]\n")
    assert open_source(file).key(0) == "private/images/p.jpg"


def test_splits_may_be_lists_of_folders_or_text_files(coco8: Path) -> None:
    """Several folders are one split; a list has its paths from its own folder or the dataset's; one folder for train
    and val is a set without splits."""
    put(coco8, "more/c", "0 0.5 0.5 1 1\n")
    (coco8 / "train.txt").write_text(f"./images/val/b.jpg\nimages/train/a.jpg\n\n{coco8}/images/more/c.jpg\n")
    lists = yaml(coco8, "train: train.txt\nval: [images/val, images/more]\nnames: [x, y]\n")
    assert [open_source(lists / "train").key(i) for i in range(3)] == [
        "images/val/b.jpg", "images/train/a.jpg", "images/more/c.jpg",
    ]  # fmt: skip
    val = open_source(lists / "val")
    assert [val.key(i) for i in range(len(val))] == ["images/val/b.jpg", "images/more/c.jpg"]
    assert val[1].fields["boxes"].rows.tolist() == [[0, 0.5, 0.5, 1, 1]]  # type: ignore[union-attr]
    same = open_source(yaml(coco8, "train: images/train\nval: images/train\nnames: [x, y]\n"))
    assert len(same) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train: images/train\nnames: {1: a}\n", "no list 'names'"),
        ("train: images/train\nkpt_shape: [2, 3]\nflip_idx: [0, 0]\n", "flip_idx is [0, 0], which is not an order"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nnames: [*b, *b]\ntrain: images/train\n", "at `$.names[0]`"),
    ],
)
def test_what_is_wrong_in_a_data_yaml_is_named(text: str, words: str, coco8: Path) -> None:
    assert words in stop_of("pack", yaml(coco8, text), coco8.parent / "s")
    assert not (coco8.parent / "s").exists()


# ---------------------------------------------------------------------------------------------- polygons and keypoints


def test_polygons_have_boxes_around_them(tmp_path: Path) -> None:
    """A line of points becomes rows x, y, box, part, in pixels, and the smallest box around them; a line of a box has
    no polygon."""
    root = tmp_path / "set"
    put(root, "a", "2 0.5 0.5 0.5 0.5\n1 0.1 0.2 0.3 0.2 0.3 0.8\n\n0 0.5 0 1 0 1 1 0.5 1\n")
    put(root, "b", None)
    reader = Reader(pack(root, tmp_path / "s", "--size", "keep"))
    assert list(reader.fields) == ["image", "boxes", "polygons", "key"]
    assert_allclose(reader[0]["boxes"], [[15, 10, 45, 30, 2], [6, 8, 18, 32, 1], [30, 0, 60, 40, 0]], atol=1e-4)
    expected = [
        [6, 8, 1, 0],
        [18, 8, 1, 0],
        [18, 32, 1, 0],
        *([x, y, 2, 0] for x, y in ((30, 0), (60, 0), (60, 40), (30, 40))),
    ]
    assert_allclose(reader[0]["polygons"], expected, atol=1e-4)
    assert reader[1]["polygons"].shape == (0, 4)


@pytest.mark.parametrize("numbers", [2, 3])
def test_keypoints_have_three_numbers(numbers: int, tmp_path: Path) -> None:
    """kpt_shape says how many there are; without a visibility they are visible; unlabeled ones are 0, 0, 0."""
    root = tmp_path / "set"
    points = "0.5 0.25 2 0.1 0.1 0" if numbers == 3 else "0.5 0.25 0.1 0.1"
    put(root, "a", f"0 0.5 0.5 0.2 0.4 {points}\n")
    put(root, "b", "")
    yaml(root, f"names: [x]\nkpt_shape: [2, {numbers}]\nflip_idx: [1, 0]\n")
    reader = Reader(pack(root, tmp_path / "s", "--size", "keep"))
    last = [0, 0, 0] if numbers == 3 else [6, 4, 2]
    assert_allclose(reader[0]["keypoints"], [[[30, 10, 2], last]], atol=1e-4)
    assert reader[1]["keypoints"].shape == (0, 2, 3)
    assert reader[0]["boxes"].shape == (1, 5)


def test_a_bad_line_rejects_its_image(tmp_path: Path) -> None:
    root = tmp_path / "set"
    put(root, "a", "0 0.5 0.5 0.2 0.4\n")
    put(root, "b", "0 0.5 0.5 0.2 0.4\n0 0.5 x 0.2 0.4\n")
    source = open_source(root)
    assert source.info.counts["no_boxes"] == 0
    assert len(source[0].fields["boxes"].rows) == 1  # type: ignore[union-attr]
    part = source.part(1, 2)
    for sample in (lambda: source[1], lambda: part[0]):
        with pytest.raises(DecodeError, match=r"^bad_field: boxes: labels/b.txt, line 2, column 3 \(y\): 'x': is not"):
            sample()
    put(root, "a", "")
    with pytest.raises(UsageError, match=r"set: labels/b.txt, line 2, column 3"):
        open_source(root)


def test_numbers_a_hair_outside_are_clipped(tmp_path: Path) -> None:
    """As Ultralytics does, and counted; a byte order mark at the start is no part of a number. Not the visibility."""
    root = tmp_path / "set"
    put(root, "a", "\ufeff0 0.5 0.5 1.0000001 1.004 -0.001 1.01 2\n0 0.5 0.5 0.2 0.4 0.5 0.5 2\n")
    yaml(root, "names: [x]\nkpt_shape: [1, 3]\n")
    source = open_source(root)
    assert source.info.problems == ("1 box with a number up to 0.01 outside of 0 to 1, clipped to it",)
    fields = source[0].fields
    assert fields["boxes"].rows.tolist() == [[0, 0.5, 0.5, 1, 1], [0, 0.5, 0.5, 0.2, 0.4]]  # type: ignore[union-attr]
    assert fields["keypoints"].rows.tolist() == [[[0, 1, 2]], [[0.5, 0.5, 2]]]  # type: ignore[union-attr]
    put(root, "a", "0 0.5 0.5 1.02 1 0 0 2\n")
    with pytest.raises(UsageError, match=r"'1\.02': is not a fraction"):
        open_source(root)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 0.1 0.1 0.2 0.2 0.3 nan 0.4 0.4", r"column 7 .*is not a fraction"),
        ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4", "column 6: 8 values, but a box is class, x, y, width, height, and"),
        ("0_1 0.5 0.5 0.2 0.2", r"column 1 \(class\): '0_1': is not a class number"),
        ("0 0.5 0.5 0.2 0.4 0.5 0.5", ".* 7 values, but class, x, y, width, height and 1 keypoints of 3 numbers are 8"),
        ("0 0.5 0.5 0.2 0.4 0.5 1.5 2", r"column 7 \(y\): '1\.5': is not a fraction of the image"),
        ("0 0.5 0.5 0.2 0.4 0.5 0.5 3", r"column 8 \(visibility\): '3': is not 0, 1 or 2"),
    ],
)
def test_bad_lines_are_refused(line: str, words: str, tmp_path: Path) -> None:
    """Where an image has no other; the last three in a set of keypoints."""
    put(tmp_path / "set", "a", f"{line}\n")
    if "keypoints" in words or line.startswith("0 0.5 0.5 0.2 0.4 0.5"):
        yaml(tmp_path / "set", "names: [x]\nkpt_shape: [1, 3]\n")
    with pytest.raises(UsageError, match=f"labels/a.txt, line 1, {words}"):
        open_source(tmp_path / "set")
