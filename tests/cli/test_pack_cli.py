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
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest
from folders import files_of, lmdb_values, rejects_of, settled, states_of
from pictures import picture, save
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
    (batch,) = batches_of(ran)
    assert sorted(batch["index"]) == list(range(6))
    assert batch["image"].shape == (6, 32, 32, 3)
    kept = here("--size", "keep", few, tmp_path / "kept")
    assert len(next(iter(batches_of(kept)))["image"]) == 6


def test_the_line_of_python_names_fields_that_have_to_be_asked_for(few: Path, tmp_path: Path) -> None:
    """After boxes and texts were packed, the line that the summary shows gives batches with all fields."""
    lines = [{"path": f"class 0/000{i}.jpg", "text": f"t{i}", "boxes": [[1, 2, 3, 4, 0]] * i} for i in range(3)]
    (few / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fields = ("--field", "text:str", "--field", "boxes:xyxy")
    (batch,) = batches_of(here("--size", 16, *fields, few / "all.jsonl", tmp_path / "store"))
    found = zip(batch["index"].tolist(), batch["text"], map(len, batch["boxes"]), strict=True)
    assert sorted(found) == [(i, f"t{i}", i) for i in range(3)]


@pytest.mark.parametrize("name", ["store.tar", "store.zip", "dst.tgz", "set.ZIP/", "tar"])
def test_a_store_cannot_be_called_an_archive(few: Path, tmp_path: Path, name: str) -> None:
    """It would be a folder; nothing is written."""
    ran, told = here("--size", 8, few, f"{tmp_path}/{name}"), "." in name
    assert (ran.code, (tmp_path / name).exists()) == ((2, False) if told else (0, True))
    assert ("would be a folder, and has the name of an archive: name it without ." in ran.err) == told


def test_a_variable_that_is_not_set_is_no_destination(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    ran = here("--size", 8, few, "")
    assert (ran.code, "the destination is an empty text" in ran.err, [*Path().iterdir()]) == (2, True, []), ran


def test_json_is_for_programs_and_quiet_says_nothing(few: Path, tmp_path: Path) -> None:
    """--json prints one JSON object on stdout and nothing else; --quiet nothing but errors."""
    ran = here("--json", *SHARD, few, tmp_path / "store")
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert (told["format"], told["samples"], told["seen"], told["packed_now"]) == ("memmap", 6, 6, 6)
    assert (told["classes"], told["rejects"], told["already_complete"]) == (2, 0, False)
    again = json.loads(here("--json", *SHARD, few, tmp_path / "store").out)
    assert (again["already_complete"], again["packed_now"], again["digest"]) == (True, 0, told["digest"])
    assert here("--quiet", *SHARD, few, tmp_path / "other") == Ran(0, "", "")
    assert "missing" in refused("--quiet", *SHARD, few / "missing", tmp_path / "third")


def test_a_process_of_its_own_does_the_same(few: Path, tmp_path: Path) -> None:
    """`python -m rawpack` exits 0 when done, with the same words."""
    ran = run_command("pack", *SHARD, "--workers", 0, few, tmp_path / "store")
    assert (ran.code, ran.err) == (0, f"rawpack: 6 images in 2 classes in {few}\n")
    assert ran.out.startswith("Packed.\n")


def test_size_is_height_by_width_and_crop_is_not(tmp_path: Path) -> None:
    """--size 24x16 is 24 high; --crop 10,2,30,20 cuts 30 wide and 20 high, 10 from the left and 2 from the top, and
    rejects a smaller image, whatever --size says."""
    source, pixels = tmp_path / "source", picture(40, 60, 1)
    save(source / "a.png", pixels)
    assert Reader(pack(source, tmp_path / "sized", "--size", "24x16"))[0]["image"].shape == (24, 16, 3)
    save(source / "small.png", picture(15, 60, 1))
    cut = pack(source, tmp_path / "cut", "--size", "20x30", "--crop", "10,2,30,20", "--max-rejects", 1)
    np.testing.assert_array_equal(Reader(cut)[0]["image"], pixels[2:22, 10:40])
    assert [(one["key"], one["reason"]) for one in rejects_of(cut)] == [("small.png", "crop_outside")]


# ---------------------------------------------------------------------------------------------- asked wrongly


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--size", "224x"], "--size '224x'"),
        (["--format", "lmdb", "--quality", "0"], "--quality '0'"),
        (["--quality", "90"], "--quality applies to --format lmdb only"),
        (["--format", "hdf5", "--size", "keep", "--chunk", "4"], "--chunk"),
        (["--format", "hdf5", "--chunk", "30000", "--shard-size", "16GiB"], "21,845 such images"),
        (["--size", "keep", "--fit", "stretch"], "--fit"),
        (["--fast", "--size", "keep"], "--fast"),
        (["--max-rejects", "200%"], "--max-rejects"),
        (["--no-such-option"], "--no-such-option"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(few: Path, tmp_path: Path, options: list[str], words: str) -> None:
    """One line that shows option and value, exit code 2, and nothing is written."""
    assert words in refused(*options, few, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_destination_must_be_free_and_lie_apart_from_the_source(few: Path, tmp_path: Path) -> None:
    """A folder with anything else in it, also one that looks like ours or lost its manifest, a file, the source, a
    folder inside it or one around it, also through a link: refused by name, and stays as it is."""
    for name in ("full/thesis.txt", "file", "foreign/.rawpack/mine", "foreign/shard-00000.npy", "bare/shard-00000.npy"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    (tmp_path / "bare" / ".rawpack").mkdir()
    (tmp_path / "link").symlink_to(few)
    headless = pack(few, tmp_path / "headless")
    (headless / "store.json").unlink()
    before = states_of(tmp_path)
    assert "store.json" in refused(few, headless)
    cases = {"full": "thesis.txt", "foreign": "contains other files", "bare": "contains other files"}
    cases |= dict.fromkeys(("file", "file/below"), "is a file")
    cases |= dict.fromkeys(("few", "few/store", "", "link", "link/deep/store", "few/../few"), "source")
    for name, words in cases.items():
        for extra in ([], ["--restart"]):
            assert words in refused(*extra, *SHARD, few, tmp_path / name)
    assert states_of(tmp_path) == before


def test_a_destination_must_be_writable_and_have_space(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that may not be written to is refused before anything is read, a store that cannot fit with both
    figures; `--restart` counts what it frees."""
    store = pack(few, tmp_path / "store")
    taken = sum(len(data) for data in files_of(store).values())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: mock.Mock(free=1000))
    assert "1 kB free" in refused("--size", 512, few, tmp_path / "large")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: mock.Mock(free=taken))
    assert here("--restart", few, store).code == 0
    # The superuser, as whom tests often run in containers, may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode, **_: not mode & os.W_OK)
    for destination in (store, tmp_path / "new" / "store"):
        assert "not writable" in refused(few, destination)


# ---------------------------------------------------------------------------------------------- again


def test_a_finished_store_is_left_alone(few: Path, tmp_path: Path) -> None:
    """The same command on a finished store says so, exits 0, and rewrites nothing; workers and limits are no part of
    what it is, nor is what a run left that died before it had tidied up."""
    store = pack(few, tmp_path / "store", *SHARD)
    before = states_of(store)
    (store / ".rawpack").mkdir()
    (store / ".rawpack" / "job").write_bytes(b"left behind")
    ran = here("--workers", 2, "--max-rejects", "5%", "--strict", *SHARD, few, store)
    assert (ran.code, "complete already: 6 samples" in ran.out) == (0, True)
    assert states_of(store) == before
    assert run_here("inspect", "--verify", store).code == 0


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


def test_what_cannot_be_packed_is_listed_with_its_reason(tmp_path: Path) -> None:
    """Truncated, empty, text named .jpg, more pixels than allowed: each has a line with key, code and detail, and the
    others keep key and label."""
    source, store = bad_folder(tmp_path / "source"), tmp_path / "store"
    options = ["--json", "--max-rejects", "10%", *LIMIT, *FORMATS["lmdb"], *SHARD, "--workers", 2]
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


@pytest.mark.parametrize(("limit", "code"), [("3", 1), ("5%", 1), ("0.06", 0)])
def test_the_limit_is_a_share_or_a_number(tmp_path: Path, limit: str, code: int) -> None:
    """Of 74 images with 4 rejects: numbers count images, shares below 1 and percentages count parts of the whole."""
    source = bad_folder(tmp_path / "source")
    assert here("--max-rejects", limit, *LIMIT, *SHARD, source, tmp_path / "store").code == code


def test_strict_stops_at_the_first(tmp_path: Path) -> None:
    """--strict: exit code 1, the key and the reason, no manifest; also at a reject of an earlier run, unfinished or
    finished."""
    source, store = bad_folder(tmp_path / "source"), tmp_path / "store"
    strict = ("--strict", "--max-rejects", "100%", *LIMIT, *SHARD, source, store)
    ran = run_here("pack", "--workers", 2, *strict)
    assert ran.code == 1
    assert re.search("class 1/bad empty.jpg.*empty", one_line(ran))
    for limit, code in (("0", 1), ("4", 0)):
        assert here("--max-rejects", limit, *LIMIT, *SHARD, source, store).code == code
        refused(*strict, code=1)
        assert (store / "store.json").exists() == (code == 0)


def test_a_part_without_one_good_image_makes_no_shard(tmp_path: Path) -> None:
    """64 bad files in a row fill a whole part: the store has the other samples, and no empty shard."""
    source = many(tmp_path / "source", 140)
    (source / "class 0b").mkdir()
    for i in range(200):
        (source / "class 0b" / f"{i:04d}.jpg").write_text("no image")
    store = pack(source, tmp_path / "store", "--max-rejects", "100%", *FORMATS["hdf5-gzip"], *SHARD)
    assert Reader(store).column("label").tolist() == [0] * 70 + [2] * 70
    assert len(rejects_of(store)) == 200
    assert len(list(store.glob("shard-*"))) < 6
    assert run_here("inspect", "--verify", store).code == 0


def test_a_source_of_bad_files_alone_makes_no_store(tmp_path: Path) -> None:
    """Where every image is rejected there is nothing to read: exit code 1, the reasons, and no finished store."""
    source, store = tmp_path / "source", tmp_path / "store"
    source.mkdir()
    for i in range(3):
        (source / f"{i}.jpg").write_text("no image")
    assert "not_an_image 3" in refused("--max-rejects", "100%", *SHARD, source, store, code=1)
    with pytest.raises(UnfinishedStoreError):
        Reader(store)


# ---------------------------------------------------------------------------------------------- passed through


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quality_keep_passes_jpeg_files_through(tmp_path: Path) -> None:
    """8-bit grey and YCbCr JPEGs that stand upright are stored byte for byte; the others are re-encoded and counted."""
    source, store, color = tmp_path / "source", tmp_path / "store", picture(40, 56, 1)
    upright, turned = Image.Exif(), Image.Exif()
    upright[0x0112], turned[0x0112] = 1, 6
    save(source / "passes baseline.jpg", color)
    save(source / "passes grey.jpg", color[..., 0])
    save(source / "passes progressive.jpg", color, progressive=True)
    save(source / "passes upright.jpg", color, exif=upright)
    save(source / "turned.jpg", color, exif=turned)
    save(source / "lossless.png", color)
    Image.fromarray(np.dstack([color, color[..., 0]]), "CMYK").save(source / "ink.jpg", quality=95)
    ran = here("--json", "--format", "lmdb", "--size", "keep", "--quality", "keep", source, store)
    assert ran.code == 0, ran.err
    counts = json.loads(ran.out)["counts"]
    assert (counts["passed_through"], counts["reencoded"]) == (4, 3)
    reader, values = Reader(store), lmdb_values(store)
    for i, value in enumerate(values):
        key = reader[i]["key"]
        data = (source / key).read_bytes()
        assert (value == data) == key.startswith("passes")
        with Image.open(io.BytesIO(data)) as image:
            size = image.size if key != "turned.jpg" else image.size[::-1]
        assert reader[i]["image"].shape == (size[1], size[0], 3)
        with Image.open(io.BytesIO(value)) as stored:
            assert stored.size == size
            pixels = np.asarray(stored.convert("RGB"), int)
        assert np.abs(pixels - reader[i]["image"]).max() <= 2


# ---------------------------------------------------------------------------------------------- stopped in the middle


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process")
def test_ctrl_c_stops_and_says_how_to_go_on(tmp_path: Path) -> None:
    """While a run packs, another into the same folder is refused. Ctrl-C long before its end: it ends at once with 130,
    one line says what is kept, no process is left."""
    store, root = tmp_path / "store", tmp_path / "source"
    first = save(root / "0000.jpg", picture(800, 800, 3))
    for i in range(1, 3000):
        os.link(first, root / f"{i:04d}.jpg")
    with started("pack", "--workers", 2, "--size", 64, "--shard-size", 1, root, store) as run:
        while not any((store / ".rawpack").glob("*.done")):
            assert run.poll() is None, run.communicate()
            time.sleep(0.005)
        below = psutil.Process(run.pid).children(recursive=True)
        assert len(below) >= 2
        for extra in ([], ["--restart"]):
            assert "another run is packing into" in refused(*extra, "--size", 64, "--shard-size", 1, root, store)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=120)
    assert (run.returncode, out) == (130, "")
    last = [line for line in err.splitlines() if line][-1]
    assert re.fullmatch(r"rawpack: interrupted after \d+ of 47 parts; the same command resumes", last), last
    _, alive = psutil.wait_procs(below, timeout=120)
    assert not alive
    assert not (store / "store.json").exists()


# ---------------------------------------------------------------------------------------------- what lies there


@pytest.mark.parametrize(
    ("file", "harm", "code"),
    [
        ("shard-00000.npy", lambda path: os.truncate(path, 1000), 1),
        ("store.json", lambda path: path.write_text("{}"), 2),
    ],
    ids=["cut", "manifest"],
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
