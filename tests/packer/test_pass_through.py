"""JPEG files that are stored as they are: which of them are taken, and what of their damage is seen at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from bad_images import CUT, cases, rich_jpeg
from folders import lmdb_values
from reading import SOAK
from running import pack, run_here

from rawpack import RawpackError, Reader
from rawpack.errors import DecodeError
from rawpack_packer.images import decode_image, read_header
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
    rejects, strictly = (
        {line["key"]: line["reason"] for line in map(json.loads, (one / "rejects.jsonl").read_text().splitlines())}
        for one in (store, strict)
    )
    assert all(rejects[case.name] == "truncated" for case in corpus if case.reasons == CUT)
    assert {case.name for case in corpus if case.reasons} - rejects.keys() == UNSEEN
    assert rejects.keys() == strictly.keys() - UNSEEN
    assert strictly.items() >= rejects.items()
    reader = Reader(store)
    for name in UNSEEN:
        with pytest.raises(RawpackError):
            reader[reader.column("key").index(name)]
    problems = json.loads(run_here("inspect", "--json", "--verify", store).out)["problems"]
    assert {name for name in UNSEEN if any(name in one["where"] for one in problems)} == UNSEEN


def test_what_each_check_finds_is_what_the_page_says(photos: Path, tmp_path: Path) -> None:
    """Of photographs whose compressed data are overwritten, the look at the structure finds none, and decoding most;
    `--help` and the page say so. Both find all that are cut, and take one that is sound."""
    files = sorted((path for path in photos.rglob("*") if path.is_file()), key=lambda path: path.name)
    whole = [data for path in files if is_whole(data := path.read_bytes())][:24]
    source = tmp_path / "source"
    source.mkdir()
    (source / "sound.jpg").write_bytes(whole[0])
    for i, data in enumerate(whole):
        start = data.rindex(b"\xff\xda") + 14
        at = start + (len(data) - start) // 3
        half = (len(data) - at) // 2
        (source / f"{i:02}.jpg").write_bytes(data[:at] + bytes(half) + data[at + half :])
        (source / f"{i:02} cut.jpg").write_bytes(data[:at])
    limits = ("--workers", 0, "--source", "folder", "--max-rejects", "100%", "--quiet", *AS_THEY_ARE)
    found = {}
    for check in ("structure", "decode"):
        assert run_here("pack", *limits, "--check", check, source, tmp_path / check).code == 0
        lines = (tmp_path / check / "rejects.jsonl").read_text().splitlines()
        rejected = [json.loads(line)["key"] for line in lines]
        assert "sound.jpg" not in rejected
        found[check] = sum("cut" not in key for key in rejected)
        assert sum("cut" in key for key in rejected) == len(whole)
    assert found["structure"] <= len(whole) // 10
    assert found["decode"] > len(whole) // 2
    words = " ".join(run_here("pack", "--help").out.split())
    assert "structure: finds truncated files without decoding them, but hardly any damage inside" in words


def test_damage_by_dice_is_never_worse_than_unseen(photos: Path) -> None:
    """Bytes overwritten in the header or removed anywhere: the look at the structure ends, raises nothing, and takes no
    file whose header cannot be read."""
    dice = np.random.default_rng(6)
    data = min((path.read_bytes() for path in photos.rglob("*") if path.is_file()), key=len)
    taken = decoded = 0
    rounds = 1500 if SOAK else 300
    for _ in range(rounds):
        damaged = bytearray(data)
        for _ in range(int(dice.integers(1, 4))):
            damaged[int(dice.integers(2, 700))] = int(dice.integers(256))
        if dice.random() < 0.3:
            at = int(dice.integers(2, len(damaged) - 9))
            del damaged[at : at + int(dice.integers(1, 9))]
        if is_whole(bytes(damaged)):
            taken += 1
            header = read_header(bytes(damaged))
            try:
                decode_image(bytes(damaged), header, color="gray", scale=8)
            except DecodeError:
                continue
            decoded += 1
    assert 0 < decoded <= taken < rounds
