"""`rawpack export`: a store back into files, each the very sample, none outside the folder.

What is right is read by Pillow, numpy, OpenCV and liblmdb, and said by the samples themselves.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import cv2
import lmdb
import numpy as np
import pytest
from draws import tries
from folders import files_of, flip, states_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import picture, save
from PIL import Image
from running import Ran, run_here, started

import rawpack_packer
from rawpack import PackError, Reader, UsageError
from rawpack.system import writing
from rawpack_packer.exporting.target import Names, check_names
from rawpack_packer.job import NoProgress
from rawpack_packer.sources import KINDS

JPEG = ("--format", "lmdb", "--size", "keep", "--quality", "keep")


def packed(path: Path, samples: Any, **options: Any) -> Path:
    rawpack_packer.pack(samples, path, **{"workers": 0, "shard_size": "1"} | options)
    return path


def export(*args: object) -> Ran:
    return run_here("export", "-q", *args)


def listing_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metadata.jsonl").read_text("utf-8").splitlines()]


def packed_again(folder: Path, destination: Path, store: Path) -> tuple[int, str]:
    """Pack the listing of an exported store, with the types of the store's fields; exit code, and what it said in
    errors."""
    reader = Reader(store)
    layout = json.loads((store / "store.json").read_text("utf-8"))["format"]
    height, width, _ = reader.fields["image"].shape
    size = "keep" if height is None or layout == "lmdb" else f"{height}x{width}"
    options = ["--format", layout, "--size", size, "--key-column", "key"]
    options += ["--quality", "keep"] if layout == "lmdb" else []
    options += ["--classes", str(folder / "classes.txt")] if (folder / "classes.txt").exists() else []
    for name, field in reader.fields.items():
        shape = ",".join("?" if n is None else str(n) for n in field.shape)
        kind = {"text": "str", "mask": "mask"}.get(field.kind, f"{field.dtype}[{shape}]" if shape else field.dtype)
        kind = f"xyxy[{field.shape[1]}]" if field.boxes else kind
        named = name == "label" and any(isinstance(line["label"], str) for line in listing_of(folder))
        options += [] if name in ("image", "key") or named else ["--field", f"{name}:{kind}"]
    ran = run_here("pack", "-q", "--workers", 0, *options, folder / "metadata.jsonl", destination)
    return ran.code, ran.err


def assert_same(store: Path, other: Path) -> None:
    """Both have the same classes, fields and samples."""
    one, two = Reader(store), Reader(other)
    assert one.classes == two.classes
    assert {name: (f.kind, f.dtype, f.shape, f.boxes) for name, f in one.fields.items()} == {
        name: (f.kind, f.dtype, f.shape, f.boxes) for name, f in two.fields.items()
    }
    assert len(one) == len(two)
    for i in range(len(one)):
        for name in one.fields:
            np.testing.assert_array_equal(one[i][name], two[i][name])


def lines_of(ran: Ran) -> int:
    return len(ran.err.splitlines())


# ---------------------------------------------------------------------------------------------- what is written


def test_jpeg_files_come_back_as_they_were(tmp_path: Path) -> None:
    """A folder that was packed as it is comes back: the same names, the same bytes, and a listing beside."""
    for i in range(9):
        pixels = picture(20 + i, 30, i)
        save(
            tmp_path / "in" / "ab"[i % 2] / f"n°{i} ü.jpg", pixels if i % 4 else pixels[..., 0], progressive=i % 3 == 0
        )
    save(tmp_path / "in" / "deep" / "er" / "x.JPEG", picture(9, 9, 1), format="JPEG")
    assert run_here("pack", "-q", "--workers", 0, *JPEG, tmp_path / "in", tmp_path / "store").code == 0
    ran = export(tmp_path / "store", tmp_path / "out")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    out, before = files_of(tmp_path / "out"), files_of(tmp_path / "in")
    assert {name: out[name] for name in before} == before
    assert out.keys() - before.keys() == {"metadata.jsonl", "export.json", "classes.txt"}
    assert [(one["file_name"], one["key"]) for one in listing_of(tmp_path / "out")] == [
        (key, key) for key in sorted(before)
    ]
    assert (tmp_path / "out" / "classes.txt").read_text() == "a\nb\ndeep\n"


def test_pixels_become_png(tmp_path: Path) -> None:
    """Raw images, grey and RGB, of 8 and 16 bits, and masks: files that hold the very values."""
    rng = np.random.default_rng(0)
    for number, (dtype, channels) in enumerate([("uint8", 3), ("uint8", 1), ("uint16", 3), ("uint16", 1)]):
        top = np.iinfo(dtype).max
        images = rng.integers(0, top, (5, 13, 17, channels), endpoint=True).astype(dtype)
        depth = rng.integers(0, 1 << 16, (5, 13, 17)).astype(np.uint16)
        given = [{"image": image, "depth": mask} for image, mask in zip(images, depth, strict=True)]
        keys = [f"{i}.jpg" for i in range(5)]
        store = packed(tmp_path / f"{number}", given, fields={"depth": "mask"}, keys=keys, format="hdf5")
        assert export(store, tmp_path / f"out {number}").code == 0
        for i, line in enumerate(listing_of(tmp_path / f"out {number}")):
            assert (line["file_name"], line["depth_file_name"]) == (f"{i}.png", f"masks/depth/{i}.png")
            read = cv2.imread(str(tmp_path / f"out {number}" / line["file_name"]), cv2.IMREAD_UNCHANGED)
            assert read is not None
            found = read[..., ::-1] if channels == 3 else read[..., None]
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, images[i])
            if dtype == "uint8":
                pillow = np.asarray(Image.open(tmp_path / f"out {number}" / line["file_name"]))
                np.testing.assert_array_equal(pillow.reshape(images[i].shape), images[i])
            mask = cv2.imread(str(tmp_path / f"out {number}" / line["depth_file_name"]), cv2.IMREAD_UNCHANGED)
            np.testing.assert_array_equal(mask, depth[i])


def test_arrays_become_npy(tmp_path: Path) -> None:
    """What no PNG holds: numpy's own files, of the dtype and shape that the arrays had."""
    images = np.random.default_rng(0).random((4, 2, 3, 5, 2)).astype(np.float16)
    assert export(packed(tmp_path / "store", images), tmp_path / "out").code == 0
    for i, line in enumerate(listing_of(tmp_path / "out")):
        assert line["file_name"] == f"0000000{i}.npy"
        found = np.load(tmp_path / "out" / line["file_name"])
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, images[i])


ALL = [
    {
        "image": picture(14 + i % 3, 18, i),
        "label": (i % 3) - (i == 4),
        "number": -(1 << 62) + i,
        "yes": bool(i % 2),
        "vector": np.array([[0.1 * i, np.nan], [np.inf, -1]], np.float32),
        "boxes": np.arange(4 * (i % 3), dtype=np.float32).reshape(-1, 4) / 7,
        "words": '"naïve", {}\n文' if i else "",
        "mask": np.full((14 + i % 3, 18), i, np.uint8),
    }
    for i in range(7)
]
SAID = {"boxes": "float32[?,4]", "mask": "mask"}


def test_the_listing_has_every_field(tmp_path: Path) -> None:
    """Each sample is a line: its file, its key, the name of its class, numbers, arrays, texts, and its mask's file."""
    store = packed(
        tmp_path / "store", ALL, fields=SAID, image=("uint8", (None, None, 3)), classes=["z", "b", "a"],
        keys=[f"some/{i}" for i in range(7)],
    )  # fmt: skip
    assert export(store, tmp_path / "out").code == 0
    for i, line in enumerate(listing_of(tmp_path / "out")):
        one = ALL[i]
        assert list(line) == [
            "file_name",
            "key",
            "label",
            "number",
            "yes",
            "vector",
            "boxes",
            "words",
            "mask_file_name",
        ]
        assert line["file_name"] == f"some/{i}.png"
        assert line["label"] == (["z", "b", "a"][one["label"]] if one["label"] >= 0 else None)
        for name in ("number", "yes", "words"):
            assert line[name] == one[name]
        for name in ("vector", "boxes"):
            found = np.array(line[name], np.float32).reshape(one[name].shape)
            np.testing.assert_array_equal(found, one[name])
    assert (tmp_path / "out" / "classes.txt").read_text() == "z\nb\na\n"


@pytest.mark.skipif("listing" not in KINDS, reason="needs a source that reads listings")
@pytest.mark.parametrize("layout", ["memmap", "hdf5", "lmdb"])
@pytest.mark.parametrize("numbered", [False, True], ids=["by key", "numbered"])
def test_what_was_exported_packs_again_to_the_same_samples(tmp_path: Path, layout: str, numbered: bool) -> None:
    """Packing the listing with the fields' types makes a store with the same fields, classes, keys, values and pixels;
    of JPEG files the same bytes."""
    store = packed(
        tmp_path / "store", ALL, fields=SAID, image=("uint8", (None, None, 3)), classes=["z", "b", "a", "none"],
        keys=[f"some/{i}" for i in range(7)], format=layout,
    )  # fmt: skip
    assert export(*(["--numbered"] if numbered else []), store, tmp_path / "out").code == 0
    assert packed_again(tmp_path / "out", tmp_path / "again", store) == (0, "")
    assert_same(tmp_path / "again", store)
    if layout == "lmdb":
        for row in range(7):
            files = []
            for path in (store, tmp_path / "again"):
                shard = str(path / "shard-00000.lmdb")
                with lmdb.open(shard, subdir=False, readonly=True, lock=False) as env, env.begin() as transaction:
                    files.append(transaction.get(b"%012d" % row))
            assert files[0] == files[1]


@pytest.fixture(params=["coco", "yolo"])
def boxes(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Images with boxes of three classes, of which no box has the last, as a file of COCO or a folder of YOLO."""
    root = tmp_path / "in"
    for i in range(3):
        save(root / f"images/{i}.jpg", picture(40, 50, i))
    if request.param == "coco":
        tree = {
            "images": [{"id": 9 - i, "file_name": f"images/{i}.jpg"} for i in range(3)],
            "annotations": [
                {"image_id": 9, "category_id": 5, "bbox": [1.1, 2, 30, 20.3]},
                {"image_id": 7, "category_id": 2, "bbox": [0, 0, 50, 40], "iscrowd": 1},
                {"image_id": 9, "category_id": 2, "bbox": [5, 6, 7, 8]},
            ],
            "categories": [{"id": 8, "name": "ant"}, {"id": 5, "name": "cat"}, {"id": 2, "name": "dog 2"}],
        }
        (root / "all.json").write_text(json.dumps(tree))
        return root / "all.json"
    (root / "labels").mkdir()
    (root / "labels/0.txt").write_text("1 0.5 0.5 0.3 0.7\n0 0.1 0.2 0.1 0.1\n")
    (root / "classes.txt").write_text("dog 2\ncat\nant\n")
    return root


@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_boxes_and_the_names_of_their_classes_pack_again(boxes: Path, tmp_path: Path, layout: str) -> None:
    """A store of COCO's or YOLO's boxes, which have classes and no labels: the listing packs to the same boxes, each of
    its class and each class of its name."""
    keep = ["--size", "keep"] + (["--quality", "keep"] if layout == "lmdb" else [])
    assert run_here("pack", "-q", "--workers", 0, "--format", layout, *keep, boxes, tmp_path / "store").code == 0
    assert export(tmp_path / "store", tmp_path / "out").code == 0
    assert packed_again(tmp_path / "out", tmp_path / "again", tmp_path / "store") == (0, "")
    assert_same(tmp_path / "again", tmp_path / "store")
    again = Reader(tmp_path / "again")
    assert again.classes == ("dog 2", "cat", "ant")
    assert again[0]["boxes"][:, 4].tolist() == [1, 0]


def test_names_by_number_and_by_kind(tmp_path: Path) -> None:
    """--numbered names files by their row; the end of an image's name gives way to what the file is, others stay."""
    keys = ["a.jpg", "b.PNG", "c", "d.tar.gz", "e.webp", "v1.5", ".hidden"]
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(7)], keys=keys)
    assert export(store, tmp_path / "out").code == 0
    names = [line["file_name"] for line in listing_of(tmp_path / "out")]
    assert names == ["a.png", "b.PNG", "c.png", "d.tar.gz.png", "e.png", "v1.5.png", ".hidden.png"]
    assert export("--numbered", store, tmp_path / "numbers").code == 0
    lines = listing_of(tmp_path / "numbers")
    assert [(line["file_name"], line["key"]) for line in lines] == [(f"{i:08d}.png", key) for i, key in enumerate(keys)]
    assert all((tmp_path / "numbers" / line["file_name"]).is_file() for line in lines)


def test_odd_names_that_are_fine_are_kept(images: Path, packed_images: Path, tmp_path: Path) -> None:
    """Blanks and letters of any script in keys and classes are names of files as they were; line breaks are escaped.
    Where a class has a line break, no list of lines can have the classes, and none is written."""
    assert export(packed_images, tmp_path / "out").code == 0
    lines, reader = listing_of(tmp_path / "out"), Reader(packed_images)
    assert [one["key"] for one in lines] == [reader[i]["key"] for i in range(len(reader))]
    for i, line in enumerate(lines):
        assert Path(unquote(line["file_name"])).parent == Path(line["key"]).parent
        assert (images / line["key"]).is_file()
        assert line["label"] == (line["key"].split("/")[0] if "/" in line["key"] else None)
        found = cv2.imdecode(np.fromfile(tmp_path / "out" / line["file_name"], np.uint8), cv2.IMREAD_COLOR)
        np.testing.assert_array_equal(found[..., ::-1], reader[i]["image"])
    assert not (tmp_path / "out" / "classes.txt").exists()


@pytest.fixture
def packed_images(images: Path, tmp_path: Path) -> Path:
    assert run_here("pack", "-q", "--workers", 0, "--size", 24, images, tmp_path / "store").code == 0
    return tmp_path / "store"


def test_a_field_that_is_called_as_a_column_of_files_keeps_its_values(tmp_path: Path) -> None:
    """Texts whose names would make them files, in whatever case, stand in the listing as texts, each once; packed
    again, they have their names, except one called as the column of images."""
    given = [
        {
            "image": picture(8, 8, i), "seg": np.full((8, 8), i, np.uint8), "path": f"x{i}", "Seg_File_Name": f"y{i}",
            "file_name_": -i, "file_names": f"z{i}", "file_name": f"v{i}.png",
        }
        for i in range(2)
    ]  # fmt: skip
    store = packed(tmp_path / "store", given, fields={"seg": "mask"})
    assert export(store, tmp_path / "out").code == 0
    line = {
        "file_name": "00000001.png", "key": "00000001", "seg_file_name_file_name": "masks/seg/00000001.png",
        "path": "x1", "Seg_File_Name_": "y1", "file_name_": -1, "file_names_": "z1", "file_name__": "v1.png",
    }  # fmt: skip
    assert listing_of(tmp_path / "out")[1] == line
    for source in (tmp_path / "out", tmp_path / "out" / "metadata.jsonl"):
        again = tmp_path / f"again {source.name}"
        ran = run_here("pack", "-q", "--workers", 0, "--size", "keep", source, again)
        assert (ran.code, ran.err) == (0, "")
        sample = Reader(again)[1]
        names = ("path", "Seg_File_Name", "file_names", "file_name_", "file_name__")
        assert [sample[name] for name in names] == ["x1", "y1", "z1", -1, "v1.png"]
        np.testing.assert_array_equal(sample["seg"], Reader(store)[1]["seg"])


# ---------------------------------------------------------------------------------------------- strange keys

ESCAPED = {
    "/etc/passwd": "%2Fetc/passwd",
    "../outside": "%2E%2E/outside",
    "a/../../outside": "a/%2E%2E/%2E%2E/outside",
    "a//b": "a/%2Fb",
    "./a": "%2E/a",
    "C:\\x": "C%3A%5Cx",
    "nul\0byte": "nul%00byte",
    "line\nbreak?": "line%0Abreak%3F",
    "aux": "%61ux",
    "a/COM1.png/x": "a/%43OM1.png/x",
    "console": "console",
    "trailing./x": "trailing%2E/x",
}


@pytest.mark.parametrize(("key", "name"), ESCAPED.items(), ids=[repr(key)[:20] for key in ESCAPED])
def test_a_key_that_no_file_can_have_is_escaped(tmp_path: Path, key: str, name: str) -> None:
    """What leads elsewhere, or is no name on some system, is written as in URLs; the listing has the key, and nothing
    is written outside the folder."""
    store = packed(tmp_path / "store", [picture(8, 8, 0), picture(8, 8, 1)], keys=["fine.png", key])
    assert export(store, tmp_path / "in" / ".." / "out").code == 0
    line = listing_of(tmp_path / "out")[1]
    assert line == {"file_name": f"{name}.png", "key": key}
    assert (tmp_path / "out" / line["file_name"]).is_file()
    assert {path.name for path in tmp_path.iterdir()} <= {"store", "in", "out"}


HOSTILE = {
    "": "is empty",
    "x" * 300: "too long",
    "metadata.jsonl/x": "the same as another file or folder",
    ".RawPack/x": "the same as another file or folder",
}


@pytest.mark.parametrize(("key", "reason"), HOSTILE.items(), ids=[repr(key)[:20] for key in HOSTILE])
def test_a_key_that_leads_elsewhere_is_refused_by_name(tmp_path: Path, key: str, reason: str) -> None:
    """One line with the key and why, nothing written anywhere; --numbered exports the same store."""
    store = packed(tmp_path / "store", [picture(8, 8, 0), picture(8, 8, 1)], keys=["fine.png", key])
    before = states_of(tmp_path)
    ran = export(store, tmp_path / "in" / ".." / "out")
    assert (ran.code, reason in ran.err, "--numbered" in ran.err, lines_of(ran)) == (2, True, True, 1), ran.err
    assert states_of(tmp_path) == before
    assert not (tmp_path / "out").exists()
    assert export("--numbered", store, tmp_path / "out").code == 0
    assert [line["key"] for line in listing_of(tmp_path / "out")] == ["fine.png", key]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["cat/1.jpg", "cat/1.JPG"], "'cat/1.jpg' is, as 'cat/1.png', the same as another"),
        (["a.jpg", "a.gif"], "'a.jpg' is, as 'a.png', the same as another"),
        (["a?b", "a%3Fb"], "'a?b' is, as 'a%3Fb.png', the same as another"),
        (["straße", "STRASSE"], "the same as another"),
        ([unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")], "the same as another"),
        (["a.png", "a.png/b"], "'a.png/b' is, as 'a.png/b.png', the same as another"),
    ],
)
def test_keys_that_collide_on_some_disk_are_refused(tmp_path: Path, keys: list[str], words: str) -> None:
    """By case, by Unicode form, by their new end, or as a folder and a file: named, and nothing written."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(3)], keys=["other", *keys])
    ran = export(store, tmp_path / "out")
    assert (ran.code, words in ran.err, lines_of(ran)) == (2, True, 1), ran.err
    assert not (tmp_path / "out").exists()


NAMES = Names({"image": ".png", "mask": ".png"}, by_number=False)
PARTS = st.text(st.sampled_from("aAéE\u0301.: /\\\x00ß~nulNUL1"), max_size=8)


@settings(max_examples=tries(400), deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=6, unique=True))
def test_what_is_not_refused_lies_in_the_folder_alone(keys: list[str]) -> None:
    """Whatever keys: either they are refused, or each file has a place of its own below the folder, on any system."""
    try:
        check_names(NAMES, lambda: keys, Path("/some/folder"))
    except UsageError:
        return
    files = [path for row, key in enumerate(keys) for path in NAMES.paths(row, key).values()]
    places = {os.path.normpath(f"/some/folder/{path}") for path in files}
    assert all(place.startswith("/some/folder/") for place in places)
    spelled = {unicodedata.normalize("NFKD", path).lower().rstrip(". ") for path in places}
    assert len(spelled) == len(files)
    assert not any(one.startswith(other + "/") for one in spelled for other in spelled)


# ---------------------------------------------------------------------------------------------- the folder


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """A stranger's folder, a store, a half-made store, a file, the export of another store: nothing is touched."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(3)])
    other = packed(tmp_path / "other", [picture(8, 8, i + 1) for i in range(3)])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.jpg").write_text("mine")
    (tmp_path / "half" / ".rawpack").mkdir(parents=True)
    (tmp_path / "half" / ".rawpack" / "job").write_text("x")
    (tmp_path / "file").write_text("x")
    assert export(other, tmp_path / "exported").code == 0
    before = states_of(tmp_path)
    for name in ("mine", "half", "file", "other", "exported"):
        ran = export(store, tmp_path / name)
        assert (ran.code, lines_of(ran), name in ran.err) == (2, 1, True), ran.err
    assert export("--numbered", other, tmp_path / "exported").code == 2
    assert states_of(tmp_path) == before


def test_a_full_disk_is_seen_before_anything_is_written(tmp_path: Path) -> None:
    """Too little room: the sizes, and no folder."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(3)])
    with mock.patch("rawpack_packer.destination.folder.free_bytes", return_value=1000):
        ran = export(store, tmp_path / "out")
    assert (ran.code, "free some space" in ran.err, (tmp_path / "out").exists()) == (2, True, False)


# ---------------------------------------------------------------------------------------------- going on


def test_a_second_run_writes_nothing(tmp_path: Path) -> None:
    """What is complete stays as it is; a file that was removed comes back, and no other is written."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(100)], format="lmdb")
    assert export(store, tmp_path / "out").code == 0
    before = states_of(tmp_path / "out")
    said = json.loads(run_here("export", "--json", store, tmp_path / "out").out)
    assert (said["already_complete"], said["samples"], said["written_now"]) == (True, 100, 0)
    assert states_of(tmp_path / "out") == before
    (tmp_path / "out" / "00000017.jpg").unlink()
    assert json.loads(run_here("export", "--json", store, tmp_path / "out").out)["written_now"] == 1
    after = states_of(tmp_path / "out")
    assert after.keys() == before.keys()
    assert {name for name in before if after[name] != before[name]} == {
        "00000017.jpg", "metadata.jsonl", "export.json"
    }  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
def test_a_killed_export_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle: every file that has its name is whole and is not written again, and what the same command
    leaves in the end is what a run leaves that nobody disturbed."""
    store = packed(tmp_path / "store", np.random.default_rng(0).integers(0, 256, (400, 32, 32, 3)).astype(np.uint8))
    assert export(store, tmp_path / "whole").code == 0
    out = tmp_path / "out"
    with started("export", "--workers", 2, store, out) as began:
        while began.poll() is None and not (out / "00000000.png").exists():
            time.sleep(0.002)
        began.kill()
    assert began.returncode == -9
    assert not (out / "export.json").exists()
    whole = files_of(tmp_path / "whole")
    done = {name: state for name, state in states_of(out).items() if name.endswith(".png")}
    assert 0 < len(done) < 400
    assert all((out / name).read_bytes() == whole[name] for name in done)
    assert export(store, out).code == 0
    assert files_of(out) == whole
    assert states_of(out).items() >= done.items()


# ---------------------------------------------------------------------------------------------- damage


def test_damaged_samples_are_rejected_and_listed(tmp_path: Path) -> None:
    """One bit of one sample: no file of it, no line in the listing, a line in rejects.jsonl; too many are an error, and
    the others' files are there when the same command may reject more."""
    store = packed(tmp_path / "store", [picture(40, 40, i) for i in range(20)], format="lmdb")
    offsets = np.load(store / "columns-1" / "image.offset.npy")
    flip(store / "shard-00000.lmdb", offsets[11] + 300)
    ran = export(store, tmp_path / "out")
    assert (ran.code, "00000011" in ran.err, "--max-rejects" in ran.err, lines_of(ran)) == (1, True, True, 1)
    assert not (tmp_path / "out" / "export.json").exists()
    ran = run_here("export", "--max-rejects", "1", store, tmp_path / "out")
    assert (ran.code, "rejected" in ran.out) == (0, True)
    (line,) = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    assert (json.loads(line)["key"], json.loads(line)["reason"]) == ("00000011", "damaged")
    assert not (tmp_path / "out" / "00000011.jpg").exists()
    assert [one["key"] for one in listing_of(tmp_path / "out")] == [f"{i:08d}" for i in range(20) if i != 11]
    assert len(list((tmp_path / "out").glob("*.jpg"))) == 19


def test_a_dry_run_says_what_it_would_take(tmp_path: Path) -> None:
    """As text and as JSON, and writes nothing; what Python gives says the same."""
    store = packed(tmp_path / "store", [picture(40, 40, i) for i in range(20)], format="lmdb")
    before = states_of(tmp_path)
    assert "Nothing was written" in run_here("export", "--dry-run", store, tmp_path / "out").out
    said = json.loads(run_here("export", "--dry-run", "--json", store, tmp_path / "out").out)
    assert states_of(tmp_path) == before
    done = rawpack_packer.export(store, tmp_path / "out")
    assert (done.samples, done.files, done.written_now, done.already) == (20, 20, 20, False)
    assert done.bytes_written <= said["files_bytes"] <= 20 * 8192 + 20 * 300
    with pytest.raises(UsageError, match="contains the files of another store"):
        rawpack_packer.export(store, tmp_path / "out", numbered=True)


def test_what_the_disk_refuses_is_one_line(tmp_path: Path) -> None:
    """A file that cannot be written ends the run with its name and how to go on, and the progress that is shown; then
    the same command does."""
    store, progress = packed(tmp_path / "store", [picture(8, 8, i) for i in range(3)]), mock.Mock(spec=NoProgress)
    create = writing.create

    def full(path: Path, *args: Any, **how: Any) -> Any:
        if path.name.endswith(".image.tmp"):
            raise OSError(28, "No space left on device", str(path))
        return create(path, *args, **how)

    with mock.patch.object(writing, "create", full), pytest.raises(PackError, match=r"No space left.*\.image\.tmp"):
        rawpack_packer.export(store, tmp_path / "out", progress=progress)
    progress.end.assert_called()
    assert rawpack_packer.export(store, tmp_path / "out").written_now == 3
