"""`rawpack pack` as its user sees it: exit codes, messages, what is written and what never is."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest
from folders import files_of, lmdb_values, rejects_of, settled, states_of
from pictures import Pixels, picture, save
from PIL import Image
from running import FORMATS, Ran, pack, run_command, run_here, started

import rawpack
from rawpack import Reader, UnfinishedStoreError

SHARD = ("--size", "16", "--shard-size", "1")
"""Shards of 64 images: the fewest that a shard is cut for."""


def here(*args: object) -> Ran:
    """`rawpack pack --workers 0`, in this process."""
    return run_here("pack", "--workers", 0, *args)


def many(root: Path, count: int) -> Path:
    """A folder of small images in two classes: so many names of two files."""
    for k in range(2):
        first = save(root / f"class {k}" / "0000.jpg", picture(20, 24, k))
        for i in range(1, count // 2):
            os.link(first, root / f"class {k}" / f"{i:04d}.jpg")
    return root


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A folder of six images."""
    return many(tmp_path / "few", 6)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that takes long to pack: 3,000 names of one large image."""
    root = tmp_path_factory.mktemp("lasting") / "source"
    first = save(root / "0000.jpg", picture(800, 800, 3))
    for i in range(1, 3000):
        os.link(first, root / f"{i:04d}.jpg")
    return root


def batches_of(ran: Ran) -> Any:
    """What the line of Python makes that a summary shows."""
    line = re.search(r"read it +batches = (rawpack\.Reader\(.*\))\n +each epoch +for batch in batches: \.\.\.", ran.out)
    assert line, ran.out
    return eval(line[1], {"rawpack": rawpack})


def one_line(ran: Ran) -> str:
    """The error: one line on stderr, none on stdout, no traceback."""
    assert ran.out == ""
    lines = [line for line in ran.err.splitlines() if not re.match(r"rawpack: [\d,]+ images? (in|without)", line)]
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("rawpack: ")
    return lines[0]


def refused(*args: object, code: int = 2) -> str:
    """The one line of a run that ends with this exit code."""
    ran = here(*args)
    assert ran.code == code, ran
    return one_line(ran)


# ---------------------------------------------------------------------------------------------- done


def test_the_summary_tells_what_was_made(few: Path, tmp_path: Path) -> None:
    """Exit code 0, and a summary with samples, classes, counts, bytes, where it lies, and Python that reads it,
    also where images keep their size."""
    store = tmp_path / "store"
    ran = here("--size", 32, few, store)
    assert ran.code == 0
    assert "6 of 6 samples, 32x32x3 (memmap)" in ran.out
    assert re.search(r"classes +2\b", ran.out)
    assert "images smaller than the size, enlarged: 6" in ran.out
    assert re.search(r"bytes +\S+ kB, \S+ times the \S+ kB of source files", ran.out)
    assert re.search(r"stored in +" + re.escape(str(store)), ran.out)
    batches = batches_of(ran)
    epochs = [[batch["index"].tolist() for batch in batches] for _ in range(3)]
    assert len({str(epoch) for epoch in epochs}) == 3
    assert all(sorted(rows) == list(range(6)) for (rows,) in epochs)
    assert next(iter(batches))["image"].shape == (6, 32, 32, 3)
    kept = here("--size", "keep", few, tmp_path / "kept")
    assert len(next(iter(batches_of(kept)))["image"]) == 6


def test_the_line_of_python_names_fields_that_have_to_be_asked_for(tmp_path: Path) -> None:
    """After boxes and texts were packed, the line that the summary shows gives batches with all fields; elsewhere it
    names none."""
    rows = [{"path": f"{i}.png", "label": "ab"[i % 2], "text": f"t{i}"} for i in range(4)]
    boxes = [[[1, 2, 3, 4, 0]] * i for i in range(4)]
    for i in range(4):
        save(tmp_path / f"{i}.png", picture(20, 20, i))
    (tmp_path / "all.jsonl").write_text(
        "".join(json.dumps({**row, "boxes": found}) + "\n" for row, found in zip(rows, boxes, strict=True))
    )
    (tmp_path / "some.jsonl").write_text("".join(json.dumps({**row, "text": 1}) + "\n" for row in rows))
    ran = here("--size", 16, "--field", "text:str", "--field", "boxes:xyxy", tmp_path / "all.jsonl", tmp_path / "store")
    assert ran.code == 0, ran
    (batch,) = batches_of(ran)
    found = {
        index: (text, len(boxes))
        for index, text, boxes in zip(batch["index"].tolist(), batch["text"], batch["boxes"], strict=True)
    }
    assert found == {i: (f"t{i}", i) for i in range(4)}
    assert set(batch) == {"image", "label", "text", "boxes", "index"}
    plain = here("--size", 16, "--field", "text:int64", tmp_path / "some.jsonl", tmp_path / "numbers").out
    assert "read it" in plain
    assert "fields=" not in plain


@pytest.mark.parametrize(("name", "told"), [("shards.tar", True), ("set.ZIP/", True), ("tar", False)])
def test_a_store_cannot_be_called_an_archive(few: Path, tmp_path: Path, name: str, told: bool) -> None:
    """It would be a folder; nothing is written."""
    ran = run_here("pack", "--size", 8, few, f"{tmp_path}/{name}")
    assert (ran.code, Path(f"{tmp_path}/{name}").exists()) == ((2, False) if told else (0, True))
    assert ("would be a folder, and has the name of an archive: name it without ." in ran.err) == told


def test_json_is_for_programs(few: Path, tmp_path: Path) -> None:
    """--json prints one JSON object on stdout and nothing else."""
    ran = here("--json", *SHARD, few, tmp_path / "store")
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert (told["format"], told["samples"], told["seen"], told["packed_now"]) == ("memmap", 6, 6, 6)
    assert (told["classes"], told["rejects"], told["already_complete"]) == (2, 0, False)
    again = json.loads(here("--json", *SHARD, few, tmp_path / "store").out)
    assert (again["already_complete"], again["packed_now"], again["digest"]) == (True, 0, told["digest"])


def test_quiet_says_nothing_but_errors(few: Path, tmp_path: Path) -> None:
    """--quiet leaves stdout and stderr empty; an error still shows."""
    assert here("--quiet", *SHARD, few, tmp_path / "store") == Ran(0, "", "")
    assert "rawpack: " in one_line(here("--quiet", *SHARD, few / "missing", tmp_path / "other"))


def test_a_process_of_its_own_does_the_same(few: Path, tmp_path: Path, run_cli: Callable[..., Ran]) -> None:
    """`python -m rawpack` exits 0 when done, 2 when asked wrongly, with the same words."""
    ran = run_cli("pack", *SHARD, "--workers", 0, few, tmp_path / "store")
    assert ran.code == 0
    assert ran.out.startswith("Packed.\n")
    assert ran.err == f"rawpack: 6 images in 2 classes in {few}\n"
    assert settled(tmp_path / "store") == settled(pack(few, tmp_path / "other", *SHARD))
    ran = run_cli("pack", "--size", "big", few, tmp_path / "third")
    assert ran.code == 2
    assert "--size 'big'" in one_line(ran)
    assert not (tmp_path / "third").exists()


def test_size_is_height_by_width_and_crop_is_not(tmp_path: Path) -> None:
    """--size 24x16 is 24 high; --crop 10,2,30,20 cuts 30 wide and 20 high, 10 from the left and 2 from the top."""
    pixels = picture(40, 60, 1)
    save(tmp_path / "source" / "a.png", pixels)
    sized = Reader(pack(tmp_path / "source", tmp_path / "sized", "--size", "24x16"))
    assert sized[0]["image"].shape == (24, 16, 3)
    cut = Reader(pack(tmp_path / "source", tmp_path / "cut", "--size", "keep", "--crop", "10,2,30,20"))
    np.testing.assert_array_equal(cut[0]["image"], pixels[2:22, 10:40])


def test_crop_comes_before_resizing_and_rejects_what_is_smaller(tmp_path: Path) -> None:
    """A box that reaches beyond an image rejects it as crop_outside, whatever --size says."""
    save(tmp_path / "source" / "large.png", picture(40, 60, 1))
    save(tmp_path / "source" / "small.png", picture(15, 60, 1))
    ran = here("--size", 8, "--crop", "0,0,60,16", "--max-rejects", 1, tmp_path / "source", tmp_path / "store")
    assert ran.code == 0
    assert [(one["key"], one["reason"]) for one in rejects_of(tmp_path / "store")] == [("small.png", "crop_outside")]


def test_quality_and_subsampling_reach_the_jpeg_files(few: Path, tmp_path: Path) -> None:
    """A higher --quality makes larger files; --subsampling is what the JPEG headers say."""
    size = {}
    for quality, subsampling, sampling in ((50, "420", (2, 2)), (90, "422", (2, 1)), (95, "444", (1, 1))):
        store = tmp_path / f"{quality}"
        pack(few, store, "--format", "lmdb", "--size", 64, "--quality", quality, "--subsampling", subsampling)
        (value, *_) = lmdb_values(store)
        with Image.open(io.BytesIO(value)) as image:
            assert image.layer[0][1:3] == sampling  # type: ignore[attr-defined]
        size[quality] = len(value)
    assert size[50] < size[90] < size[95]


# ---------------------------------------------------------------------------------------------- asked wrongly


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--size", "0"], "--size 0"),
        (["--size", "224x"], "--size '224x'"),
        (["--size", "99999"], "--size 99999"),
        (["--crop", "1,2,3"], "--crop '1,2,3'"),
        (["--crop", "0,0,0,5"], "--crop 0,0,0,5"),
        (["--format", "lmdb", "--quality", "0"], "--quality '0'"),
        (["--format", "lmdb", "--quality", "best"], "--quality 'best'"),
        (["--format", "lmdb", "--subsampling", "410"], "--subsampling '410'"),
        (["--quality", "90"], "--quality applies to --format lmdb only"),
        (["--compression", "gzip"],
         "--compression gzip applies to --format hdf5 only; --format memmap has --compression zstd"),
        (["--format", "lmdb", "--chunk", "4"], "--chunk applies to --format hdf5 only"),
        (["--format", "hdf5", "--size", "keep", "--chunk", "4"], "--chunk"),
        (["--size", "keep", "--fit", "stretch"], "--fit"),
        (["--fast", "--size", "keep"], "--fast"),
        (["--format", "lmdb", "--check", "structure"], "--check applies to files that are stored as they are"),
        (["--shard-size", "lots"], "--shard-size 'lots'"),
        # Before rawpack sees them:
        (["--format", "zip"], "--format"),
        (["--chunk", "0"], "--chunk"),
        (["--workers", "-1"], "--workers"),
        (["--max-rejects", "200%"], "--max-rejects"),
        (["--no-such-option"], "--no-such-option"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(few: Path, tmp_path: Path, options: list[str], words: str) -> None:
    """One line that shows option and value, exit code 2, and nothing is written."""
    assert words in refused(*options, few, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_source_must_be_a_folder_with_images(tmp_path: Path) -> None:
    """Missing, a file, empty, or without an image: one line that names it, exit code 2, and no destination."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("no image")
    file = save(tmp_path / "a.jpg", picture(8, 8, 0))
    cases = {"missing": "there is no file or folder", file.name: "is a file", "empty": "no image", "texts": "no image"}
    for name, words in cases.items():
        line = refused(tmp_path / name, tmp_path / "store")
        assert (words in line, str(tmp_path / name) in line) == (True, True), line
    assert here("", tmp_path / "store").code == 2
    assert not (tmp_path / "store").exists()


def test_a_destination_must_be_free(few: Path, tmp_path: Path) -> None:
    """A folder with anything else in it, or a file, is refused by name and stays as it is."""
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "thesis.txt").write_text("precious")
    file.write_text("precious too")
    before = states_of(tmp_path)
    for destination, words in ((full, "thesis.txt"), (file, "is a file"), (file / "below", "is a file")):
        for extra in ([], ["--restart"]):
            assert words in refused(*extra, *SHARD, few, destination)
    assert states_of(tmp_path) == before


def test_a_destination_must_lie_apart_from_the_source(few: Path, tmp_path: Path) -> None:
    """The source itself, a folder inside it or one around it, also through a link, is refused."""
    link = tmp_path / "link"
    link.symlink_to(few)
    before = states_of(tmp_path)
    for destination in (few, few / "store", tmp_path, link, link / "deep" / "store", few / ".." / few.name):
        assert "source" in refused(*SHARD, few, destination)
    assert states_of(tmp_path) == before
    assert not (few / "store").exists()


def test_a_destination_must_be_writable(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that may not be written to is refused before anything is read."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    # The superuser, as whom tests often run in containers, may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode, **_: not mode & os.W_OK)
    for destination in (locked, locked / "store"):
        assert "not writable" in refused(*SHARD, few, destination)


def test_too_little_space_is_seen_before_anything_is_written(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot fit is refused with both figures."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert "1 kB free" in refused("--size", "512", few, tmp_path / "store")
    assert not (tmp_path / "store").exists()


# ---------------------------------------------------------------------------------------------- again


@pytest.mark.parametrize("options", [(), ("--workers", 2, "--max-rejects", "5%", "--strict")], ids=["same", "limits"])
def test_a_finished_store_is_left_alone(few: Path, tmp_path: Path, options: tuple[object, ...]) -> None:
    """The same command on a finished store says so, exits 0, and rewrites nothing; workers and limits are no part of
    what it is."""
    store = pack(few, tmp_path / "store", *SHARD)
    before = states_of(store)
    ran = here(*options, *SHARD, few, store)
    assert (ran.code, "complete already: 6 samples" in ran.out) == (0, True)
    assert states_of(store) == before


@pytest.mark.parametrize(
    ("then", "now", "named"),
    [
        ("--format hdf5 --chunk 4 --compression gzip", "--format lmdb --quality 80",
         ["--size", "--format was hdf5"]),
        ("--format hdf5", "--format hdf5 --compression gzip --chunk 8",
         ["--compression was none", "--chunk was 1"]),
        ("--format lmdb --size keep --quality keep", "--format lmdb --size keep --quality 85",
         ["--quality was keep"]),
        ("--shard-size 1MiB --crop 0,0,9,8", "--fast", ["--crop was 0,0,9,8",
         "--shard-size was 1048576", "--fast was not given"]),
    ],
)  # fmt: skip
def test_only_options_that_differ_are_named(few: Path, tmp_path: Path, then: str, now: str, named: list[str]) -> None:
    """What a refusal lists are the options that the user changed, as they are written on the command line: neither the
    encoder nor the chroma that follow from --format. Where --size stays, it is not named."""
    size = [] if "--size" in then else ["--size", "16"]
    store = tmp_path / "store"
    assert run_here("pack", "-q", "--workers", 0, *size, *then.split(), few, store).code == 0
    ran = run_here("pack", "-q", "--workers", 0, *size, *now.split(), few, store)
    assert ran.code == 2
    listed = one_line(ran).partition("the recipe differs: ")[2].partition(": name")[0].split(", ")
    assert listed == [one for one in named if one != "--size"], ran.err


def test_a_finished_store_is_not_called_begun_and_its_samples_are_kept(few: Path, tmp_path: Path) -> None:
    """Of a finished store a refusal says how much it holds, offers another destination first, an append where one adds
    something, and --restart last, with what that would delete. A further class is named. The append works."""
    store = pack(few, tmp_path / "store", *SHARD)
    line = refused("--format", "lmdb", *SHARD, few, store)
    assert "is a finished store (6 samples, " in line
    assert re.search(r"name another destination\. --restart deletes this store \(6 samples, [\d.]+ kB\)", line)
    assert "append" not in line  # the store has all of these samples

    save(few / "class 0" / "new.jpg", picture(9, 9, 0))
    line = one_line(here(*SHARD, few, store))
    assert line.index("another destination") < line.index("append --skip-existing") < line.index("--restart deletes")
    save(few / "zebra" / "new.jpg", picture(9, 9, 0))
    line = one_line(here(*SHARD, few, store))
    assert "the classes differ: zebra" in line
    assert "add what is new with `rawpack append --skip-existing`" in line
    assert run_here("append", "-q", "--workers", 0, "--skip-existing", few, store).code == 0
    assert (len(Reader(store)), Reader(store).classes[-1]) == (8, "zebra")


def test_restart_makes_another_store_of_it(few: Path, tmp_path: Path) -> None:
    """--restart replaces a finished store, also by one of another format, and leaves nothing of the old one."""
    store = pack(few, tmp_path / "store", *SHARD)
    pack(few, store, "--restart", "--format", "lmdb", "--size", "8")
    assert Reader(store)[0]["image"].shape == (8, 8, 3)
    assert settled(store) == settled(pack(few, tmp_path / "fresh", "--format", "lmdb", "--size", "8"))


# ---------------------------------------------------------------------------------------------- rejects


def bad_folder(root: Path, good: int = 70) -> Path:
    """Good images, and one bad file of each kind among them."""
    many(root, good)
    whole = (root / "class 0" / "0000.jpg").read_bytes()
    bad = root / "class 1"
    (bad / "bad empty.jpg").write_bytes(b"")
    (bad / "bad text.jpg").write_text("this is no image")
    (bad / "bad truncated.jpg").write_bytes(whole[: len(whole) // 2])
    save(bad / "bad huge.png", np.zeros((300, 400), np.uint8))
    return root


BAD = {
    "class 1/bad empty.jpg": "empty",
    "class 1/bad huge.png": "too_large",
    "class 1/bad text.jpg": "not_an_image",
    "class 1/bad truncated.jpg": "truncated",
}
LIMIT = ("--max-pixels", 400 * 300 - 1)


@pytest.mark.parametrize(("layout", "workers"), [("memmap", 0), ("hdf5", 0), ("lmdb", 0), ("lmdb", 2)])
def test_what_cannot_be_packed_is_listed_with_its_reason(tmp_path: Path, layout: str, workers: int) -> None:
    """Truncated, empty, text named .jpg, more pixels than allowed: each has a line with key, code and detail.

    Samples and rejects together are all images that were seen, and the others keep key and label.
    """
    source, store = bad_folder(tmp_path / "source"), tmp_path / "store"
    options = ["--json", "--max-rejects", "10%", *LIMIT, *FORMATS[layout], *SHARD, "--workers", workers]
    ran = run_here("pack", *options, source, store)
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert (told["seen"], told["samples"], told["rejects"]) == (74, 70, 4)
    assert told["reject_reasons"] == dict.fromkeys(sorted(BAD.values()), 1)
    lines = rejects_of(store)
    assert {line["key"]: line["reason"] for line in lines} == BAD
    assert all(line["detail"] and str(tmp_path) not in line["detail"] for line in lines)
    everything = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.*"))
    assert [everything[line["sample"]] for line in lines] == [line["key"] for line in lines]
    reader = Reader(store)
    assert [reader[i]["key"] for i in range(len(reader))] == [key for key in everything if key not in BAD]
    assert [int(reader[i]["label"]) for i in range(len(reader))] == [0] * 35 + [1] * 35


def test_too_many_rejects_leave_no_store_and_a_larger_limit_finishes_it(tmp_path: Path) -> None:
    """Beyond --max-rejects: exit code 1, no manifest. A larger limit finishes without packing a shard again."""
    source, store = bad_folder(tmp_path / "source", 150), tmp_path / "store"
    line = refused(*LIMIT, *SHARD, source, store, code=1)
    assert "4 of 154 images were rejected" in line
    assert "--max-rejects allows 1" in line
    assert re.search(r"for example (.+?): \w.*The same command with --max-rejects 4 resumes", line)[1] in BAD  # type: ignore[index]
    assert not (store / "store.json").exists()
    with pytest.raises(UnfinishedStoreError, match="the same `rawpack pack` resumes"):
        Reader(store)
    shards = {name: state for name, state in states_of(store).items() if name.startswith("shard-")}
    assert len(shards) == 3
    ran = here("--json", "--max-rejects", 4, *LIMIT, *SHARD, source, store)
    assert ran.code == 0
    assert json.loads(ran.out)["packed_now"] == 0
    after = states_of(store)
    assert {name: after[name] for name in shards} == shards
    fresh = pack(source, tmp_path / "fresh", "--max-rejects", 4, *LIMIT, *SHARD)
    assert settled(store) == settled(fresh)


def test_identical_files_and_classes_of_one_are_counted_and_told(tmp_path: Path) -> None:
    """Files of the same bytes, in one part or two and in several classes; classes with a single image, also where the
    others of the class were rejected: in the summary and in `inspect`."""
    source, store = tmp_path / "source", tmp_path / "store"
    for i in range(70):
        save(source / "many" / f"{i:03d}.jpg", picture(20, 24, i))
    shutil.copy(source / "many" / "000.jpg", source / "many" / "001.jpg")
    shutil.copy(source / "many" / "000.jpg", source / "many" / "069.jpg")
    save(source / "other" / "of it.jpg", picture(20, 24, 70))
    shutil.copy(source / "many" / "005.jpg", source / "other" / "005.jpg")
    save(source / "single" / "one.png", picture(20, 24, 5))
    save(source / "single too" / "one.png", picture(20, 24, 6))
    (source / "single too" / "bad.jpg").write_text("no image")
    (source / "all bad").mkdir()
    (source / "all bad" / "bad.jpg").write_text("no image")
    ran = here(*SHARD, "--max-rejects", 2, source, store)
    assert ran.code == 0, ran.err
    assert "duplicate files: 3\n" in ran.out
    assert "classes with a single image: 2\n" in ran.out
    counts = json.loads(run_here("inspect", "--json", store).out)["counts"]
    assert (counts["identical_files"], counts["classes_of_one"]) == (3, 2)


@pytest.mark.parametrize(("limit", "code"), [("3", 1), ("4", 0), ("5%", 1), ("6%", 0), ("0.06", 0)])
def test_the_limit_is_a_share_or_a_number(tmp_path: Path, limit: str, code: int) -> None:
    """Of 74 images with 4 rejects: numbers count images, shares below 1 and percentages count parts of the whole."""
    source = bad_folder(tmp_path / "source")
    assert here("--max-rejects", limit, *LIMIT, *SHARD, source, tmp_path / "store").code == code


@pytest.mark.parametrize("workers", [0, 2])
def test_strict_stops_at_the_first(tmp_path: Path, workers: int) -> None:
    """--strict: exit code 1, the key and the reason, no manifest."""
    source, store = bad_folder(tmp_path / "source"), tmp_path / "store"
    ran = run_here("pack", "--workers", workers, "--strict", "--max-rejects", "100%", *LIMIT, *SHARD, source, store)
    assert ran.code == 1
    line = one_line(ran)
    assert "class 1/bad empty.jpg" in line
    assert "empty" in line
    assert not (store / "store.json").exists()


def test_a_part_without_one_good_image_makes_no_shard(tmp_path: Path) -> None:
    """64 bad files in a row fill a whole part: the store has the other samples, and no empty shard."""
    source = many(tmp_path / "source", 140)
    (source / "class 0b").mkdir()
    for i in range(200):
        (source / "class 0b" / f"{i:04d}.jpg").write_text("no image")
    for layout in ("memmap", "hdf5-gzip", "lmdb"):
        store = pack(source, tmp_path / layout, "--max-rejects", "100%", *FORMATS[layout], *SHARD)
        reader = Reader(store)
        assert len(reader) == 140
        assert [int(label) for batch in reader.batches(32, workers=0) for label in batch["label"]] == [0] * 70 + [
            2
        ] * 70
        assert len(rejects_of(store)) == 200
        assert len(list(store.glob("shard-*"))) < 6
        assert run_here("inspect", "--verify", store).code == 0


def test_a_source_of_bad_files_alone_makes_no_store(tmp_path: Path) -> None:
    """Where every image is rejected there is nothing to read: exit code 1, and the reasons."""
    (tmp_path / "source").mkdir()
    for i in range(5):
        (tmp_path / "source" / f"{i}.jpg").write_text("no image")
    line = refused("--max-rejects", "100%", *SHARD, tmp_path / "source", tmp_path / "store", code=1)
    assert "not_an_image 5" in line
    assert not (tmp_path / "store" / "store.json").exists()


# ---------------------------------------------------------------------------------------------- passed through


def mixed_folder(root: Path) -> tuple[Path, list[str]]:
    """Images of every kind, and the names of those whose bytes may pass through."""
    color: Pixels = picture(40, 56, 1)
    upright, turned = Image.Exif(), Image.Exif()
    upright[0x0112], turned[0x0112] = 1, 6
    save(root / "a baseline.jpg", color)
    save(root / "b grey.jpg", color[..., 0])
    save(root / "c progressive.jpg", color, progressive=True)
    save(root / "d upright.jpg", color, exif=upright)
    save(root / "e turned.jpg", color, exif=turned)
    save(root / "f lossless.png", color)
    Image.fromarray(np.dstack([color, color[..., 0]]), "CMYK").save(root / "g ink.jpg", quality=95)
    return root, ["a baseline.jpg", "b grey.jpg", "c progressive.jpg", "d upright.jpg"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quality_keep_passes_jpeg_files_through(tmp_path: Path) -> None:
    """8-bit grey and YCbCr JPEGs that stand upright are stored byte for byte; the others are re-encoded and counted."""
    source, passing = mixed_folder(tmp_path / "source")
    store = tmp_path / "store"
    ran = here("--json", "--format", "lmdb", "--size", "keep", "--quality", "keep", source, store)
    assert ran.code == 0, ran.err
    counts = json.loads(ran.out)["counts"]
    assert (counts["passed_through"], counts["reencoded"]) == (4, 3)
    reader, values = Reader(store), lmdb_values(store)
    for i, value in enumerate(values):
        key = reader[i]["key"]
        data = (source / key).read_bytes()
        assert (value == data) == (key in passing)
        with Image.open(io.BytesIO(data)) as image:
            size = image.size if key != "e turned.jpg" else image.size[::-1]
        assert reader[i]["image"].shape == (size[1], size[0], 3)
        with Image.open(io.BytesIO(value)) as stored:
            assert stored.size == size
            pixels = np.asarray(stored.convert("RGB"), int)
        assert np.abs(pixels - reader[i]["image"]).max() <= 2


def test_quality_keep_re_encodes_what_the_recipe_changes(few: Path, tmp_path: Path) -> None:
    """With a crop or a size nothing can pass through: all is re-encoded, and counted."""
    for options in (["--size", "keep", "--crop", "0,0,8,8"], ["--size", "16"]):
        store = tmp_path / options[1]
        ran = here("--json", "--format", "lmdb", "--quality", "keep", *options, few, store)
        counts = json.loads(ran.out)["counts"]
        assert (counts.get("passed_through", 0), counts["reencoded"]) == (0, 6)


# ---------------------------------------------------------------------------------------------- stopped in the middle


def until(what: Callable[[], bool], process: Any) -> None:
    """Wait for something that a running command is about to do."""
    while not what():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def children(pid: int) -> list[psutil.Process]:
    return list(psutil.Process(pid).children(recursive=True))


@contextmanager
def interruptible() -> Iterator[None]:
    """A child gets Ctrl-C's signal even where these tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process")
@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_stops_and_says_how_to_go_on(tmp_path: Path, lasting: Path, workers: int) -> None:
    """Ctrl-C long before the end of a run: it ends at once with 130, one line says what is kept, no process is left."""
    store = tmp_path / "store"
    shard = ("--shard-size", 1) if workers else ()
    with interruptible(), started("pack", "--workers", workers, "--size", 64, *shard, lasting, store) as run:
        until(lambda: any((store / ".rawpack").glob("*.done" if workers else "shard-*")), run)
        below = children(run.pid)
        assert len(below) >= workers
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=120)
    assert run.returncode == 130
    assert out == ""
    kept = r"after \d+ of 47 parts; the same command resumes"
    nothing = "before the first part was finished: the same command starts over"
    last = [line for line in err.splitlines() if line][-1]
    assert re.fullmatch(f"rawpack: interrupted {kept if workers else nothing}", last), last
    _, alive = psutil.wait_procs(below, timeout=120)
    assert not alive
    assert not (store / "store.json").exists()


def test_two_runs_into_one_destination_do_not_mix(tmp_path: Path, lasting: Path) -> None:
    """While one run packs, another into the same folder is refused with exit code 2, and the first goes on."""
    store = tmp_path / "store"
    with started("pack", "--workers", 1, "--size", 64, lasting, store) as run:
        until(lambda: any((store / ".rawpack").glob("shard-*")), run)
        for extra in ([], ["--restart"]):
            assert "another run is packing into" in refused(*extra, "--size", 64, lasting, store)
        assert run.poll() is None
        assert any((store / ".rawpack").glob("shard-*"))


def test_nothing_outside_the_destination_is_touched(tmp_path: Path) -> None:
    """Packing leaves the source, the temporary folder, the home and the working folder as they were."""
    around = tmp_path / "around"
    source = bad_folder(around / "source")
    for name in ("tmp", "home", "cwd"):
        (around / name).mkdir()
        (around / name / "data").mkdir()
        (around / name / "data" / "precious").write_text("keep me")
    before, folders = states_of(around), {path: path.stat().st_mtime_ns for path in around.rglob("*") if path.is_dir()}
    where = {"TMPDIR": str(around / "tmp"), "HOME": str(around / "home"), "XDG_CACHE_HOME": str(around / "home")}
    ran = run_command(
        "pack", "--workers", 2, "--max-rejects", "10%", *LIMIT, *FORMATS["lmdb"], *SHARD, source, tmp_path / "store",
        **where,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert states_of(around) == before
    assert {path: path.stat().st_mtime_ns for path in around.rglob("*") if path.is_dir()} == folders
    assert sorted(path.name for path in tmp_path.iterdir()) == ["around", "store"]


def test_a_finished_store_has_no_leftovers(few: Path, tmp_path: Path) -> None:
    """Nothing but the files of the format stays in the destination."""
    for layout, suffix in (("memmap", "npy"), ("hdf5", "h5"), ("lmdb", "lmdb")):
        store = pack(few, tmp_path / layout, *FORMATS[layout], *SHARD)
        assert sorted(path.name for path in store.iterdir()) == [
            "columns-1", "provenance.json", "provenance.npy", "rejects.jsonl", f"shard-00000.{suffix}", "store.json",
        ]  # fmt: skip


def test_an_unfinished_store_goes_on_only_with_the_same_job(tmp_path: Path) -> None:
    """A run that was stopped does not go on with another recipe or source: what differs is named."""
    source, store = bad_folder(tmp_path / "source"), tmp_path / "store"
    assert here(*LIMIT, *SHARD, source, store).code == 1
    line = refused("--size", 24, "--shard-size", 1, *LIMIT, source, store)
    assert "was begun, and the recipe differs: --size was 16" in line
    other = shutil.copytree(source, tmp_path / "other", symlinks=True)
    save(other / "class 1" / "late.jpg", picture(9, 9, 0))
    assert "the source differs" in refused("--max-rejects", "100%", *LIMIT, *SHARD, other, store)
    assert here("--restart", "--quiet", "--max-rejects", "100%", *LIMIT, *SHARD, source, store).code == 0


# ---------------------------------------------------------------------------------------------- what lies there


def test_a_bare_command_shows_how_to_use_it() -> None:
    """Who names nothing to work on reads the help of `rawpack`, or the examples of its command, with exit code 2."""
    bare, asked = run_here(), run_here("--help")
    assert (bare.code, bare.out, bare.err) == (2, "", asked.out)
    for name in ("pack", "inspect", "plan", "merge"):
        bare, asked = run_here(name), run_here(name, "--help")
        assert (bare.code, bare.out) == (2, "")
        assert bare.err.startswith(f"rawpack: {name} needs ")
        example = bare.err.splitlines()[2]
        assert example.startswith(f"  rawpack {name} ")
        assert example in asked.out
    assert run_here("doctor").code == 0


def test_strict_holds_for_what_an_earlier_run_rejected(few: Path, tmp_path: Path) -> None:
    """`--strict` stops at a reject of an earlier run, unfinished or finished."""
    (few / "class 0" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    begun, whole = tmp_path / "begun", tmp_path / "whole"
    assert here("--max-rejects", "0", few, begun).code == 1
    assert "broken.jpg" in refused("--strict", "--max-rejects", "1", few, begun, code=1)
    assert not (begun / "store.json").exists()
    assert here("--max-rejects", "1", few, whole).code == 0
    assert "--strict" in refused("--strict", "--max-rejects", "1", few, whole, code=1)


def test_a_folder_with_a_name_like_ours_is_not_touched(few: Path, tmp_path: Path) -> None:
    """A `.rawpack` that no run of ours made does not make a folder ours, with or without --restart."""
    foreign = tmp_path / "foreign"
    (foreign / ".rawpack").mkdir(parents=True)
    (foreign / ".rawpack" / "mine").write_text("x")
    (foreign / "shard-00000.npy").write_text("hi")
    for with_a_file in (True, False):
        before = files_of(foreign)
        for options in ((), ("--restart",)):
            assert "contains other files" in refused(*options, few, foreign)
        assert files_of(foreign) == before
        if with_a_file:
            (foreign / ".rawpack" / "mine").unlink()


def test_a_chunk_that_hdf5_cannot_hold_is_refused_at_once(few: Path, tmp_path: Path) -> None:
    """Before anything is packed, with the number that it can hold; one beyond the shard's images is cut to them."""
    words = "21,845 such images"
    assert words in refused("--format", "hdf5", "--chunk", 30_000, "--shard-size", "16GiB", few, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert here("--format", "hdf5", "--chunk", 30_000, few, tmp_path / "store").code == 0


def test_a_store_without_its_manifest_is_not_touched(few: Path, tmp_path: Path) -> None:
    """Where only store.json is gone, nobody can tell what the rest is: it is left, and the cure is told."""
    store = pack(few, tmp_path / "store")
    (store / "store.json").unlink()
    before = files_of(store)
    assert "store.json" in refused(few, store)
    assert files_of(store) == before


@pytest.mark.parametrize(
    ("file", "harm", "code"),
    [
        ("shard-00000.npy", lambda path: path.unlink(), 1),
        ("shard-00000.npy", lambda path: os.truncate(path, 1000), 1),
        ("store.json", lambda path: path.write_text("{}"), 2),
    ],
    ids=["gone", "cut", "manifest"],
)
def test_a_damaged_store_is_not_called_complete(
    few: Path, tmp_path: Path, file: str, harm: Callable[[Path], object], code: int
) -> None:
    """The same command on a store that lost a file, or a part of one, says so, and how to mend it; --restart does."""
    store = pack(few, tmp_path / "store")
    whole = settled(store)
    harm(store / file)
    line = refused(few, store, code=code)
    assert (file in line, "--restart" in line) == (True, True)
    assert here("--restart", few, store).code == 0
    assert settled(store) == whole


def test_dry_run_refuses_what_packing_would(few: Path, tmp_path: Path) -> None:
    """A dry run with another recipe than the finished store's is refused as the run itself is."""
    store = pack(few, tmp_path / "store")
    assert "size" in refused("--dry-run", "--size", "8", few, store)


def test_a_restart_counts_what_it_frees(few: Path, tmp_path: Path) -> None:
    """`--restart` needs no second store's worth of free space."""
    store = pack(few, tmp_path / "store")
    taken = sum(len(data) for data in files_of(store).values())
    with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=taken)):
        assert here("--restart", few, store).code == 0


def test_photographs_that_nothing_decodes_are_rejected(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra, a HEIC file is a reject that names it, and not ignored as something that is no image."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (few / "class 0" / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    assert here("--max-rejects", "1", few, tmp_path / "store").code == 0
    (one,) = rejects_of(tmp_path / "store")
    assert (one["key"], one["reason"]) == ("class 0/phone.heic", "unsupported")
    assert "pip install 'rawpack[heic]'" in one["detail"]
