"""Bad images by the command, and JPEG files that are stored as they are: what of their damage is seen at once."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from bad_images import CUT, cases, expected_pixels, rich_jpeg
from folders import lmdb_values, rejects_of
from pictures import picture, save
from running import pack, run_command, run_here

from rawpack import RawpackError, Reader
from rawpack_packer.images.jpeg import is_whole

AS_THEY_ARE = ("--format", "lmdb", "--size", "keep", "--quality", "keep")
UNSEEN = {"zeros for pixels.jpg", "says 53 rows.jpg"}
"""Bad files whose segments, markers and length are those of good ones."""


def test_real_photographs_pass_through_byte_for_byte(photos: Path, tmp_path: Path) -> None:
    """Every one is taken by its structure alone, and comes out as the very same file."""
    source = tmp_path / "source"
    originals = sorted(path for path in photos.rglob("*") if path.is_file())[:100]
    source.mkdir()
    for number, path in enumerate(originals):
        shutil.copy(path, source / f"{number:03d}.jpg")
    data = [path.read_bytes() for path in originals]
    assert all(map(is_whole, data))
    store = pack(source, tmp_path / "store", *AS_THEY_ARE)
    assert lmdb_values(store) == data
    assert Reader(store)[7]["image"].shape[2] == 3


def test_no_photograph_that_was_cut_passes(photos: Path) -> None:
    """Cut anywhere: never taken for whole. With restart markers, not even where it was given an end again."""
    dice = np.random.default_rng(5)
    originals = [path.read_bytes() for path in sorted(path for path in photos.rglob("*") if path.is_file())[:40]]
    for data in originals:
        for at in (*dice.integers(0, len(data), size=40).tolist(), len(data) - 1, len(data) - 2):
            assert not is_whole(data[:at])
    marked = rich_jpeg()
    assert is_whole(marked)
    start, last = marked.index(b"\xff\xd0"), marked.rindex(b"\xff", 0, -2)
    assert last > start
    for at in range(start, last):
        assert not is_whole(marked[:at] + b"\xff\xd9")


def test_nothing_that_is_cut_or_broken_in_its_structure_passes(tmp_path: Path) -> None:
    """Of the corpus of bad images, by the command: what was cut is rejected as truncated, and what passes although it
    does not decode is known by name, is found by `--check decode`, and by the reader and `inspect --verify` later."""
    source, store, strict = tmp_path / "source", tmp_path / "store", tmp_path / "strict"
    source.mkdir()
    corpus = [case for case in cases() if case.name.endswith(".jpg")]
    for case in corpus:
        (source / case.name).write_bytes(case.data)
    limits = ("--workers", 0, "--max-rejects", "100%", "--quiet")
    assert run_here("pack", *limits, *AS_THEY_ARE, source, store).code == 0
    assert run_here("pack", *limits, *AS_THEY_ARE, "--check", "decode", source, strict).code == 0
    rejects, strictly = ({line["key"]: line["reason"] for line in rejects_of(one)} for one in (store, strict))
    assert all(rejects[case.name] == "truncated" for case in corpus if case.reasons == CUT)
    assert {case.name for case in corpus if case.reasons} - rejects.keys() == UNSEEN
    assert rejects.keys() == strictly.keys() - UNSEEN
    assert strictly.items() >= rejects.items()
    assert {sample["image"].ndim for sample in Reader(strict, verify=True)} == {3}
    reader = Reader(store)
    for name in UNSEEN:
        with pytest.raises(RawpackError):
            reader[reader.column("key").index(name)]
    problems = json.loads(run_here("inspect", "--json", "--verify", store).out)["problems"]
    assert {name for name in UNSEEN if any(name in one["where"] for one in problems)} == UNSEEN


# ---------------------------------------------------------------------------------------------- decoded


@pytest.mark.filterwarnings("ignore")  # Pillow's, of the files that it takes for bombs
def test_what_decodes_is_right_and_the_rest_is_rejected(tmp_path: Path) -> None:
    """Every file is either a sample with the right pixels or a line with the right reason, and nothing else is said."""
    source, store = tmp_path / "source", tmp_path / "store"
    source.mkdir()
    for case in cases():
        (source / case.name).write_bytes(case.data)
    limits = ("--size", "keep", "--max-rejects", "100%", "--json")
    ran = run_command("pack", "--workers", 1, *limits, source, store)
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert told["seen"] == len(cases()) == told["samples"] + told["rejects"]
    rejects = {line["key"]: line for line in rejects_of(store)}
    reader = Reader(store, verify=True)
    rows = {reader[i]["key"]: i for i in range(len(reader))}
    assert len(rejects) == told["rejects"]
    assert rows.keys() | rejects.keys() == {case.name for case in cases()}
    assert "crashed" not in told["reject_reasons"]
    for case in cases():
        if case.reasons:
            assert rejects[case.name]["reason"] in case.reasons, case.name
        else:
            image, expected = reader[rows[case.name]]["image"].astype(int), expected_pixels(case)
            assert image.shape == expected.shape, case.name
            assert np.abs(image - expected).max() <= case.tolerance, case.name
    assert all(line["detail"].isprintable() for line in rejects.values())
    assert run_here("inspect", "--verify", store).code == 0


def test_a_reject_quotes_nothing_of_what_is_no_image(tmp_path: Path) -> None:
    """A link that leads to a file of secrets, or one in place of a YOLO label, gives away none of its bytes."""
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0:root 0.5 0.5 0.5 0.5\n")
    source, store = tmp_path / "source", tmp_path / "store"
    save(source / "a.jpg", picture(20, 20, 0))
    (source / "b.jpg").symlink_to(secret)
    for begin in (b"\xff\x0a", b"8BPS"):
        (source / f"{begin.hex()}.jpg").write_bytes(begin + b"hunter2hunter2")
    ran = run_here("pack", "--workers", 0, "--size", 16, "--max-rejects", 3, source, store)
    assert ran.code == 0
    rejects = (store / "rejects.jsonl").read_text()
    assert len(rejects.splitlines()) == 3
    assert "not_an_image" in rejects
    assert not re.search("root:x|hunter|0:0", rejects + ran.out + ran.err)
    yolo = tmp_path / "yolo"
    save(yolo / "images" / "a.jpg", picture(20, 20, 0))
    (yolo / "labels").mkdir()
    (yolo / "labels" / "a.txt").symlink_to(secret)
    ran = run_here("pack", "--workers", 0, "--source", "yolo", yolo, tmp_path / "other")
    assert ran.code == 2
    assert "a value of a linked file: is not a class number" in ran.err
    assert "root:x" not in ran.err
