"""A folder of bad images, packed by the command: what decodes is right, what does not is in the rejects."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_images import cases, expected_pixels
from folders import rejects_of as rejects_in
from pictures import picture, save
from reading import SOAK
from running import FORMATS, Ran, run_command, run_here

from rawpack import Reader
from rawpack_packer.destination.journal import REASONS

KEEP = ("--size", "keep", "--max-rejects", "100%", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of the corpus."""
    root = tmp_path_factory.mktemp("bad") / "source"
    root.mkdir()
    for case in cases():
        (root / case.name).write_bytes(case.data)
    return root


@pytest.fixture(scope="module")
def raw(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """All of it, packed into memmap by a process of its own, and what that said."""
    store = tmp_path_factory.mktemp("raw") / "store"
    return store, run_command("pack", "--workers", 1, *KEEP, folder, store)


def rejects_of(store: Path) -> dict[str, dict[str, Any]]:
    return {line["key"]: line for line in rejects_in(store)}


@pytest.mark.filterwarnings("ignore")  # Pillow's, of the files that it takes for bombs
def test_what_decodes_is_right_and_the_rest_is_rejected(raw: tuple[Path, Ran]) -> None:
    """Every file is either a sample with the right pixels or a line with the right reason, and nothing else is said."""
    store, ran = raw
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert told["seen"] == len(cases()) == told["samples"] + told["rejects"]
    rejects, reader = rejects_of(store), Reader(store, verify=True)
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


@pytest.mark.parametrize(
    "options", [("--quality", "keep", "--check", "decode"), ("--quality", "90")], ids=["passed through", "re-encoded"]
)
def test_a_jpeg_store_takes_and_refuses_the_same(
    folder: Path, raw: tuple[Path, Ran], tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Passing through or not, lmdb accepts the very files that memmap accepts; what it holds can be read."""
    jpeg = tmp_path / "jpeg"
    assert run_here("pack", "--workers", 1, *KEEP, *FORMATS["lmdb"], *options, folder, jpeg).code == 0
    reasons = [{key: line["reason"] for key, line in rejects_of(store).items()} for store in (raw[0], jpeg)]
    assert reasons[0] == reasons[1]
    one, other = Reader(raw[0]), Reader(jpeg, verify=True)
    for i in range(len(one)):
        assert one[i]["image"].shape == other[i]["image"].shape, one[i]["key"]


@pytest.mark.timeout(3600 if SOAK else 300)
@pytest.mark.parametrize("layout", ["memmap", "lmdb"] if SOAK else ["lmdb"])
def test_photographs_that_are_damaged_by_dice(photos: Path, tmp_path: Path, layout: str) -> None:
    """Bits flipped, bytes overwritten, blocks zeroed or moved, ends cut off: samples + rejects = files, no worker dies
    of any, a file that was cut is never a sample, and an untouched one always is."""
    dice = np.random.default_rng(2 if layout == "memmap" else 3)
    originals = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    originals = [path for path in originals if path.stat().st_size < 300_000]
    source, store = tmp_path / "source", tmp_path / "store"
    source.mkdir()
    for number in range(5000 if SOAK else 120):
        data = bytearray(originals[int(dice.integers(len(originals)))].read_bytes())
        what = ("untouched", "cut", "flipped", "overwritten", "zeroed", "moved", "head")[number % 7]
        if what == "cut":
            del data[int(dice.integers(3, len(data) * 9 // 10)) :]
        elif what == "flipped":
            for _ in range(int(dice.integers(1, 9))):
                data[int(dice.integers(len(data)))] ^= 1 << int(dice.integers(8))
        elif what == "head":
            for _ in range(int(dice.integers(1, 4))):
                data[int(dice.integers(2, 700))] = int(dice.integers(256))
        elif what != "untouched":
            size = int(dice.integers(1, min(5000, len(data) // 2)))
            at = int(dice.integers(len(data) - size))
            block = bytes(size) if what == "zeroed" else dice.bytes(size)
            if what == "moved":
                block = bytes(data[: size // 2]) + bytes(data[at : at + size - size // 2])
            data[at : at + size] = block
        (source / f"{number:05d} {what}.jpg").write_bytes(data)
    options = ("--workers", 1, "--size", "32", "--max-rejects", "100%", "--json", *FORMATS[layout])
    ran = run_here("pack", *options, source, store)
    assert (ran.code, ran.err) == (0, "")
    told, rejects = json.loads(ran.out), rejects_of(store)
    names = {path.name for path in source.iterdir()}
    assert told["seen"] == len(names) == told["samples"] + len(rejects)
    reader = Reader(store, verify=True)
    assert {reader[i]["key"] for i in range(len(reader))} == names - rejects.keys()
    assert {line["reason"] for line in rejects.values()} <= REASONS.keys() - {"crashed", "unreadable"}
    assert {name for name in names if "cut" in name} <= rejects.keys()
    assert not {name for name in rejects if "untouched" in name}
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
