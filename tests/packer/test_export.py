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

import cv2
import numpy as np
import pytest
from draws import tries
from folders import files_of, lmdb_values, states_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import picture, save
from PIL import Image
from running import Ran, pack, run_here, started

import rawpack_packer
from rawpack import PackError, Reader, UsageError
from rawpack.system import writing
from rawpack_packer.exporting.target import Names, check_names
from rawpack_packer.job import NoProgress

JPEG = ("--format", "lmdb", "--size", "keep", "--quality", "keep")


def packed(path: Path, samples: Any, **options: Any) -> Path:
    rawpack_packer.pack(samples, path, **{"workers": 0, "shard_size": "1"} | options)
    return path


def export(*args: object) -> Ran:
    return run_here("export", "-q", *args)


def refusal(*args: object, code: int = 2) -> str:
    """What an export that is refused says, in its one line."""
    ran = export(*args)
    assert (ran.code, len(ran.err.splitlines())) == (code, 1), ran
    return ran.err


def listing_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metadata.jsonl").read_text("utf-8").splitlines()]


# ---------------------------------------------------------------------------------------------- what is written


def test_jpeg_files_come_back_as_they_were(tmp_path: Path) -> None:
    """A folder that was packed as it is comes back: the same names, the same bytes, and a listing beside."""
    for i in range(9):
        pixels = picture(20 + i, 30, i) if i % 4 else picture(20 + i, 30, i)[..., 0]
        save(tmp_path / "in" / "ab"[i % 2] / f"n°{i} ü.jpg", pixels, progressive=i % 3 == 0)
    save(tmp_path / "in" / "deep" / "er" / "x.JPEG", picture(9, 9, 1), format="JPEG")
    assert run_here("pack", "-q", "--workers", 0, *JPEG, tmp_path / "in", tmp_path / "store").code == 0
    ran = export(tmp_path / "store", tmp_path / "out")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    out, before = files_of(tmp_path / "out"), files_of(tmp_path / "in")
    assert {name: out[name] for name in before} == before
    assert out.keys() - before.keys() == {"metadata.jsonl", "export.json", "classes.txt"}
    names = [(one["file_name"], one["key"]) for one in listing_of(tmp_path / "out")]
    assert names == [(key, key) for key in sorted(before)]
    assert (tmp_path / "out" / "classes.txt").read_text() == "a\nb\ndeep\n"


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 3), ("uint8", 1), ("uint16", 3), ("uint16", 1)])
def test_pixels_become_png(tmp_path: Path, dtype: str, channels: int) -> None:
    """Raw images, grey and RGB, of 8 and 16 bits, and masks: files that hold the very values."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, np.iinfo(dtype).max, (5, 13, 17, channels), endpoint=True).astype(dtype)
    depth = rng.integers(0, 1 << 16, (5, 13, 17)).astype(np.uint16)
    given, keys = {"image": images, "depth": depth}, [f"{i}.jpg" for i in range(5)]
    store = packed(tmp_path / "store", given, fields={"depth": "mask"}, keys=keys, format="hdf5")
    assert export(store, tmp_path / "out").code == 0
    for i, line in enumerate(listing_of(tmp_path / "out")):
        assert (line["file_name"], line["depth_file_name"]) == (f"{i}.png", f"masks/depth/{i}.png")
        read, mask = (
            cv2.imread(str(tmp_path / "out" / line[name]), cv2.IMREAD_UNCHANGED)
            for name in ("file_name", "depth_file_name")
        )
        assert read is not None
        assert read.dtype == dtype
        np.testing.assert_array_equal(read[..., ::-1] if channels == 3 else read[..., None], images[i])
        np.testing.assert_array_equal(mask, depth[i])
        if dtype == "uint8":
            pillow = np.asarray(Image.open(tmp_path / "out" / line["file_name"]))
            np.testing.assert_array_equal(pillow.reshape(images[i].shape), images[i])


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


@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_the_listing_has_every_field(tmp_path: Path, layout: str) -> None:
    """Each sample is a line: its file, its key, the name of its class, numbers, arrays, texts, and its mask's file.
    Packed again, the listing gives the same fields, classes and samples; of JPEG files the same bytes."""
    classes = ["z", "b", "a", "none"]
    store = packed(
        tmp_path / "store", ALL, fields=SAID, image=("uint8", (None, None, 3)), classes=classes,
        keys=[f"some/{i}" for i in range(7)], format=layout,
    )  # fmt: skip
    out, numbered = tmp_path / "out", layout == "lmdb"
    assert export(*["--numbered"] * numbered, store, out).code == 0
    for i, (line, one) in enumerate(zip(listing_of(out), ALL, strict=True)):
        assert " ".join(line) == "file_name key label number yes vector boxes words mask_file_name"
        assert line["file_name"] == (f"{i:08d}.jpg" if numbered else f"some/{i}.png")
        assert line["label"] == (classes[one["label"]] if one["label"] >= 0 else None)
        assert [line[name] for name in ("number", "yes", "words")] == [one[name] for name in ("number", "yes", "words")]
        for name in ("vector", "boxes"):
            np.testing.assert_array_equal(np.array(line[name], np.float32).reshape(one[name].shape), one[name])
    assert (out / "classes.txt").read_text() == "z\nb\na\nnone\n"
    keep = ("--format", layout, "--size", "keep", *["--quality", "keep"] * numbered)
    before, again = Reader(store), Reader(pack(out / "metadata.jsonl", tmp_path / "again", *keep))
    assert (again.classes, again.fields) == (before.classes, before.fields)
    for old, new in zip(before, again, strict=True):
        for name in before.fields:
            np.testing.assert_array_equal(old[name], new[name])
    if layout == "lmdb":
        assert lmdb_values(tmp_path / "again") == lmdb_values(store)


def test_boxes_and_the_names_of_their_classes_pack_again(tmp_path: Path) -> None:
    """Boxes of YOLO have classes and no labels: the listing packs to the same boxes, each of its class and each class,
    also that of no box, of its name."""
    root = tmp_path / "in"
    for i in range(2):
        save(root / f"images/{i}.jpg", picture(40, 50, i))
    (root / "labels").mkdir()
    (root / "labels/0.txt").write_text("1 0.5 0.5 0.3 0.7\n0 0.1 0.2 0.1 0.1\n")
    (root / "classes.txt").write_text("dog 2\ncat\nant\n")
    before = Reader(pack(root, tmp_path / "store", "--size", "keep"))
    assert export(tmp_path / "store", tmp_path / "out").code == 0
    again = Reader(pack(tmp_path / "out" / "metadata.jsonl", tmp_path / "again", "--size", "keep"))
    assert (again.classes, again.fields) == (("dog 2", "cat", "ant"), before.fields)
    assert [again[i]["boxes"].tolist() for i in range(2)] == [before[i]["boxes"].tolist() for i in range(2)]
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
    assert listing_of(tmp_path / "out")[1] == {
        "file_name": "00000001.png", "key": "00000001", "seg_file_name_file_name": "masks/seg/00000001.png",
        "path": "x1", "Seg_File_Name_": "y1", "file_name_": -1, "file_names_": "z1", "file_name__": "v1.png",
    }  # fmt: skip
    sample = Reader(pack(tmp_path / "out", tmp_path / "again", "--size", "keep"))[1]
    names = ("path", "Seg_File_Name", "file_names", "file_name_", "file_name__")
    assert [sample[name] for name in names] == ["x1", "y1", "z1", -1, "v1.png"]
    np.testing.assert_array_equal(sample["seg"], Reader(store)[1]["seg"])


def test_classes_with_line_breaks_are_in_no_list_of_lines(tmp_path: Path) -> None:
    """The listing names them; classes.txt is not written."""
    store = packed(tmp_path / "store", [{"image": picture(8, 8, 0), "label": 1}], classes=["a", "b\nc"])
    assert export(store, tmp_path / "out").code == 0
    assert listing_of(tmp_path / "out")[0]["label"] == "b\nc"
    assert not (tmp_path / "out" / "classes.txt").exists()


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


def test_a_key_that_no_file_can_have_is_escaped(tmp_path: Path) -> None:
    """What leads elsewhere, or is no name on some system, is written as in URLs; the listing has the key, and nothing
    is written outside the folder."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(len(ESCAPED))], keys=[*ESCAPED])
    assert export(store, tmp_path / "in" / ".." / "out").code == 0
    lines = listing_of(tmp_path / "out")
    assert lines == [{"file_name": f"{name}.png", "key": key} for key, name in ESCAPED.items()]
    assert all((tmp_path / "out" / line["file_name"]).is_file() for line in lines)
    assert {path.name for path in tmp_path.iterdir()} <= {"store", "in", "out"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([""], "is empty"),
        (["x" * 300], "too long"),
        (["metadata.jsonl/x"], "the same as another file or folder"),
        ([".RawPack/x"], "the same as another file or folder"),
        (["cat/1.jpg", "cat/1.JPG"], "'cat/1.jpg' is, as 'cat/1.png', the same as another"),
        (["a.jpg", "a.gif"], "'a.jpg' is, as 'a.png', the same as another"),
        (["a?b", "a%3Fb"], "'a?b' is, as 'a%3Fb.png', the same as another"),
        (["straße", "STRASSE"], "the same as another"),
        ([unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")], "the same as another"),
        (["a.png", "a.png/b"], "'a.png/b' is, as 'a.png/b.png', the same as another"),
    ],
)
def test_keys_that_cannot_be_files_are_refused_by_name(tmp_path: Path, keys: list[str], words: str) -> None:
    """Those that lead elsewhere, and those that collide on some disk by case, by Unicode form, by their new end, or as
    a folder and a file: one line, nothing written anywhere; --numbered exports the same store."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(len(keys) + 1)], keys=["other", *keys])
    before = states_of(tmp_path)
    said = refusal(store, tmp_path / "in" / ".." / "out")
    assert words in said
    assert "--numbered" in said
    assert states_of(tmp_path) == before
    assert export("--numbered", store, tmp_path / "out").code == 0
    assert [line["key"] for line in listing_of(tmp_path / "out")] == ["other", *keys]


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


def test_the_export_of_another_store_is_refused(tmp_path: Path) -> None:
    """Nothing of it is touched; nor by the same store with other names of files."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(3)])
    other = packed(tmp_path / "other", [picture(8, 8, i + 1) for i in range(3)])
    assert export(other, tmp_path / "exported").code == 0
    before = states_of(tmp_path)
    for args in ((store,), ("--numbered", other)):
        assert "exported contains the files of another store" in refusal(*args, tmp_path / "exported")
    assert states_of(tmp_path) == before


# ---------------------------------------------------------------------------------------------- going on


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
def test_a_killed_export_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle: every file that has its name is whole and is not written again, and what the same command
    leaves in the end is what a run leaves that nobody disturbed."""
    store = packed(tmp_path / "store", np.random.default_rng(0).integers(0, 256, (200, 32, 32, 3)).astype(np.uint8))
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
    assert 0 < len(done) < 200
    assert all((out / name).read_bytes() == whole[name] for name in done)
    assert export(store, out).code == 0
    assert files_of(out) == whole
    assert states_of(out).items() >= done.items()


# ---------------------------------------------------------------------------------------------- damage


def test_a_dry_run_says_what_it_would_take(tmp_path: Path) -> None:
    """No less than what is written then."""
    store = packed(tmp_path / "store", [picture(40, 40, i) for i in range(20)], format="lmdb")
    said = json.loads(run_here("export", "--dry-run", "--json", store, tmp_path / "out").out)
    done = rawpack_packer.export(store, tmp_path / "out")
    assert (done.samples, done.files, done.written_now, done.already) == (20, 20, 20, False)
    assert done.bytes_written <= said["files_bytes"] <= 20 * 8192 + 20 * 300


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
