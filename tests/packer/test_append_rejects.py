"""`rawpack append` and what was rejected before: once it is mended, by whatever means, it is added; and a broken line
without a key is never taken for a sample."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived import tar
from folders import files_of, rejects_of
from pictures import encoded, picture, save
from running import pack, run_here

import rawpack_packer
from rawpack import PackError, Reader
from rawpack_packer.destination import journal
from rawpack_packer.sources import files

BAD, IMAGES = 2, range(4)


def photos(root: Path) -> Path:
    """Images that are always of one time."""
    for i in IMAGES:
        os.utime(save(root / f"{i}.png", picture(16, 16, i)), (1, 1))
    return root


# Each of these writes a source, with one bad sample or without, and returns it.


def lines(root: Path, broken: bool, bad: str, good: str) -> Path:
    """A listing of images with a score each. bad, good: the whole line of one of them."""
    rows = [f"{i}.png,{i}" for i in IMAGES]
    rows[BAD] = bad if broken else good
    (photos(root) / "list.csv").write_text("\n".join(["path,score", *rows, ""]))
    return root / "list.csv"


def image(root: Path, broken: bool) -> Path:
    """The listing is the same before and after."""
    path = lines(root, False, "", "2.png,2")
    if broken:
        (root / f"{BAD}.png").write_text("no image")
    for file in (path, root / f"{BAD}.png"):
        os.utime(file, (1, 1))
    return path


def json_lines(root: Path, broken: bool) -> Path:
    rows = [json.dumps({"path": f"{i}.png", "score": i}) for i in IMAGES]
    rows[BAD] = rows[BAD][:-1] if broken else rows[BAD]
    (photos(root) / "list.jsonl").write_text("\n".join(rows))
    return root / "list.jsonl"


def beside(root: Path, broken: bool) -> Path:
    photos(root / "set" / "images")
    (root / "set" / "labels").mkdir(exist_ok=True)
    for i in IMAGES:
        word = "x" if broken and i == BAD else "0.5"
        (root / "set" / "labels" / f"{i}.txt").write_text(f"0 0.5 {word} 0.5 0.5\n")
    (root / "set" / "data.yaml").write_text("path: .\ntrain: images\nval: images\nnames: [a]\n")
    return root / "set"


def table(root: Path, broken: bool) -> Path:
    images = [encoded(picture(16, 16, i)) for i in IMAGES]
    images[BAD] = images[BAD][:200] if broken else images[BAD]
    pq.write_table(pa.table({"key": [f"{i}" for i in IMAGES], "image": images}), root / "images.parquet")
    return root / "images.parquet"


def archive(root: Path, broken: bool) -> Path:
    """The bad member is as large as the good one, and no member has a time."""
    members: dict[str, bytes | str] = {f"{i}.png": encoded(picture(16, 16, i)) for i in IMAGES}
    if broken:
        members[f"{BAD}.png"] = b"x" * len(members[f"{BAD}.png"])
    (root / "images-000.tar").write_bytes(tar(members))
    os.utime(root / "images-000.tar", ns=(1, 1 + broken))
    return root / "images-000.tar"


def in_memory(_root: Path, broken: bool) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = [{"image": picture(16, 16, i), "score": i} for i in IMAGES]
    samples[BAD]["score"] = "two" if broken else BAD
    return samples


MENDED: dict[str, Callable[[Path, bool], Any]] = {
    "cell": partial(lines, bad="2.png,two", good="2.png,2"),
    "line": partial(lines, bad="2.png,2,2", good="2.png,2"),
    "line without a key": partial(lines, bad=",,,", good="2.png,2"),
    "image": image, "object": json_lines, "annotation": beside, "table": table, "archive": archive,
    "dataset": in_memory,
}  # fmt: skip


@pytest.mark.parametrize("what", MENDED)
def test_what_was_mended_outside_of_the_image_file_is_added(tmp_path: Path, what: str) -> None:
    """While it is bad, nothing is added nor listed again; once it is mended, the store has what one pack of the mended
    source has."""
    write, store = partial(MENDED[what], tmp_path), tmp_path / "store"
    rawpack_packer.pack(write(True), store, size=16, max_rejects=1, workers=0)
    before = files_of(store)
    done = rawpack_packer.append(write(True), store, skip_existing=True, max_rejects=0, workers=0)
    assert (done.added, done.existing, done.rejected_before, done.summary.already) == (0, 4, 1, True)
    assert "still bad  1 of these, listed in " in str(done)
    assert files_of(store) == before
    done = rawpack_packer.append(write(False), store, skip_existing=True, max_rejects=0, workers=0)
    assert (done.added, done.existing, done.rejected_before) == (1, 3, 0)
    assert sorted(sample["image"].tobytes() for sample in Reader(store)) == sorted(
        picture(16, 16, i).tobytes() for i in IMAGES
    )
    assert [line["sample"] for line in rejects_of(store)] == [BAD]
    done = rawpack_packer.append(write(False), store, skip_existing=True, max_rejects=0, workers=0)
    assert (done.added, done.existing, done.rejected_before) == (0, 4, 0)


def test_a_mended_partner_lets_its_sample_in(tmp_path: Path) -> None:
    """One that is no image, and one that is not there: the file of the first image is the same."""
    source, partners = photos(tmp_path / "in"), photos(tmp_path / "out")
    (partners / "1.png").unlink()
    (partners / "2.png").write_text("no image")
    options: dict[str, Any] = {"images": {"target": partners}, "workers": 0}
    rawpack_packer.pack(source, tmp_path / "store", size=16, max_rejects=2, **options)
    for k, name in enumerate(("1.png", "2.png")):
        save(partners / name, picture(16, 16, 7))
        done = rawpack_packer.append(source, tmp_path / "store", skip_existing=True, **options)
        assert (done.added, done.existing, done.rejected_before) == (1, 3, 1 - k)


@contextmanager
def unreadable(name: str) -> Iterator[None]:
    """As if the disk could not read a file."""
    read = files.opened

    def failing(path: str) -> AbstractContextManager[int]:
        if path.endswith(name):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    with mock.patch.object(files, "opened", failing):
        yield


def test_a_file_that_can_be_read_again_is_added(tmp_path: Path) -> None:
    """Though its size and time are as they were. One that can be read then, but is no image, is a new reject."""
    source, store = photos(tmp_path / "photos"), tmp_path / "store"
    (source / "bad.png").write_text("no image")
    with unreadable("2.png"), unreadable("bad.png"):
        rawpack_packer.pack(source, store, size=16, max_rejects=2, workers=0)
    with pytest.raises(PackError, match="rejected"):
        rawpack_packer.append(source, store, skip_existing=True, max_rejects=0, workers=0)
    done = rawpack_packer.append(source, store, skip_existing=True, max_rejects=1, workers=0)
    assert (done.added, done.rejected, len(Reader(store))) == (1, 1, 4)
    assert [line["reason"] for line in rejects_of(store)] == ["unreadable", "unreadable", "not_an_image"]
    done = rawpack_packer.append(source, store, skip_existing=True, max_rejects=0, workers=0)
    assert (done.added, done.existing, done.rejected_before) == (0, 5, 1)


def test_a_file_that_is_the_same_is_not_read_again(tmp_path: Path) -> None:
    """A folder of a million images may have thousands of bad ones."""
    source = photos(tmp_path / "photos")
    (source / "bad.png").write_text("no image")
    store = pack(source, tmp_path / "store", "--size", 16, "--max-rejects", 1)
    with mock.patch.object(files, "opened", side_effect=AssertionError):
        done = rawpack_packer.append(source, store, skip_existing=True, workers=0)
    assert (done.added, done.existing, done.rejected_before) == (0, 5, 1)


def test_a_sample_that_crashed_is_not_tried_in_this_process(tmp_path: Path) -> None:
    """Nor is its table known to be the same."""
    write, store = partial(table, tmp_path), tmp_path / "store"
    rawpack_packer.pack(write(True), store, size=16, max_rejects=1, workers=0)
    crashed = journal.Reject(BAD, "2", "crashed", "it killed two processes that decoded it")
    keys = [("0", None), ("1", None), ("2", crashed), ("3", None)]
    with (
        mock.patch.object(journal, "_keys", return_value=keys),
        mock.patch("rawpack_packer.job.append.prepare_item", side_effect=AssertionError),
    ):
        done = rawpack_packer.append(write(False), store, skip_existing=True, workers=0)
    assert (done.added, done.existing, done.rejected_before) == (0, 4, 1)


def lists(root: Path, name: str, first: int, broken: str) -> Path:
    """A listing of four images, numbered from `first` on, whose third line is broken."""
    for i in range(first, first + 4):
        save(root / name / f"{i}.png", picture(16, 16, i))
    lines = ["path", *(f"{name}/{i}.png" for i in range(first, first + 4))]
    lines[2] = broken
    (root / f"{name}.csv").write_text("\n".join([*lines, ""]))
    return root / f"{name}.csv"


def test_broken_lines_of_two_listings_are_two_rejects(tmp_path: Path) -> None:
    """Both are line 3, and have no key: the second is counted and listed; a third time, it is as before."""
    store = pack(lists(tmp_path, "a", 0, ",,"), tmp_path / "store", "--size", 16, "--max-rejects", 1)
    other = lists(tmp_path, "b", 10, ",,")
    for skip_existing in (True, False):
        with pytest.raises(PackError, match=r"1 of 4 images was rejected.*with max_rejects=1 resumes"):
            rawpack_packer.append(other, store, skip_existing=skip_existing, max_rejects=0, restart=True, workers=0)
    done = rawpack_packer.append(other, store, max_rejects=1, workers=0)
    assert (done.added, done.rejected, done.existing) == (3, 1, 0)
    assert [(line["sample"], line["key"]) for line in rejects_of(store)] == [(1, "line 3"), (5, "line 3")]
    with other.open("a") as file:
        file.write("a/1.png\n")
    done = rawpack_packer.append(other, store, skip_existing=True, max_rejects=0, workers=0)
    assert (done.added, done.rejected, done.existing, done.rejected_before) == (1, 0, 4, 1)
    # Broken otherwise, it is another reject.
    other.write_text(other.read_text().replace(",,\n", ",,,\n"))
    with pytest.raises(PackError, match="1 of 1 image was rejected"):
        rawpack_packer.append(other, store, skip_existing=True, max_rejects=0, workers=0)


def test_a_sample_whose_key_is_that_of_a_broken_line_is_a_sample(tmp_path: Path) -> None:
    """In either order: appended after the broken line, and before it."""
    broken, named = (photos(tmp_path / name).parent / f"{name}.csv" for name in ("a", "b"))
    broken.write_text("name,path\n0,a/0.png\n,,\n2,a/2.png\n3,a/3.png\n")
    named.write_text("name,path\nline 3,b/0.png\nother,b/1.png\n")
    options: dict[str, Any] = {"key_column": "name", "max_rejects": 1, "workers": 0}
    for skip_existing in (True, False):
        for first, second in ((broken, named), (named, broken)):
            store = tmp_path / f"{first.stem}{second.stem}{skip_existing}"
            rawpack_packer.pack(first, store, size=16, **options)
            done = rawpack_packer.append(second, store, skip_existing=skip_existing, **options)
            assert (done.existing, len(Reader(store)), len(rejects_of(store))) == (0, 5, 1)
            assert sum(sample["key"] == "line 3" for sample in Reader(store)) == 1


def test_samples_of_stores_without_a_label_are_counted(tmp_path: Path) -> None:
    """Whatever is made of a store says how many have none: those of its own samples."""
    photos(tmp_path)
    (tmp_path / "list.csv").write_text("path,label\n0.png,cat\n1.png,\n2.png,dog\n3.png,\n")
    store = pack(tmp_path / "list.csv", tmp_path / "store", "--size", 16)
    line, place = "images without a class, with label -1: ", tmp_path / "made"

    def counts(made: Path) -> int:
        labels = [sample["label"] for sample in Reader(made)]
        counted = json.loads((made / "store.json").read_text())["counts"].get("unlabelled", 0)
        assert counted == labels.count(-1)
        return int(counted)

    for options, wanted in {
        ("convert", "--size", "8"): 2,
        ("subset", "--every", "2"): 0,
        ("subset", "--where", "label < 1"): 2,
        ("subset", "--classes", "dog"): 0,
    }.items():
        made = place / "-".join(options[::2])
        ran = run_here(options[0], "--workers", 0, *options[1:], store, made)
        assert (ran.code, counts(made), line in ran.out) == (0, wanted, wanted > 0), ran
    other = pack(tmp_path / "list.csv", tmp_path / "other", "--size", 16)
    ran = run_here("merge", "--workers", 0, "--prefix", "names", store, other, place / "both")
    assert (ran.code, counts(place / "both"), f"{line}4" in ran.out) == (0, 4, True), ran
    save(tmp_path / "more" / "cat" / "9.png", picture(16, 16, 9))
    grown = pack(tmp_path / "more", tmp_path / "grown", "--size", 16)
    ran = run_here("append", "--workers", 0, store, grown)
    assert (ran.code, counts(grown)) == (0, 2), ran


def test_a_mended_reject_of_another_split_stays_in_that(tmp_path: Path) -> None:
    """A draw promised that none of its samples comes into this one."""
    rows = [(f"{k}.png", f"p{k % 6}") for k in range(24)]
    for k, (name, _) in enumerate(rows):
        save(tmp_path / name, picture(16, 16, k))
    for name, _ in rows[::5]:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:50])
    source = tmp_path / "list.csv"
    source.write_text("\n".join(["path,person", *map(",".join, rows)]) + "\n")
    drawn = ("--holdout", "val=0.4", "--group-by", "person", "--max-rejects", "100%")
    assert run_here("pack", "-q", "--workers", 0, "--size", 8, *drawn, source, tmp_path / "sets").code == 0
    bad = {name: {one["key"] for one in rejects_of(tmp_path / "sets" / name)} for name in ("train", "val")}
    assert bad["train"]
    assert bad["val"]
    for k, (name, _) in enumerate(rows):
        save(tmp_path / name, picture(16, 16, k))
    ran = run_here("append", "--workers", 0, "--skip-existing", source, tmp_path / "sets" / "train")
    assert (ran.code, f"added {len(bad['train'])} of" in " ".join(ran.out.split())) == (0, True), ran
    people = {name: set(Reader(tmp_path / "sets" / name).column("person")) for name in ("train", "val")}
    assert people["train"] & people["val"] == set()
