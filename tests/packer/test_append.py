"""`rawpack append`: what a store holds afterwards, what stays as it was, and appends that are stopped.

What was rejected before is added once it is mended, and a broken line without a key is never taken for a sample.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from archived import tar
from folders import files_of, rejects_of, settled
from forked import Forks
from pictures import encoded, picture, save
from PIL import Image
from readers_by_docs import StoreByDocs, check_provenance
from running import FORMATS, Ran, pack, run_here

import rawpack_packer
from rawpack import PackError, Reader, UsageError, Workers
from rawpack_packer.destination import journal
from rawpack_packer.sources import files

SMALL = ("--size", "16", "--shard-size", "1")


def folder(root: Path, classes: Mapping[str, int], first: int = 0) -> Path:
    """So many different PNG files in each class, numbered from `first` on."""
    for k, (name, count) in enumerate(classes.items()):
        for i in range(first, first + count):
            save(root / name / f"{i:03d}.png", picture(16, 16, 1000 * k + i))
    return root


def append(source: Path, store: Path, *options: object) -> Ran:
    return run_here("append", "--workers", 0, *options, source, store)


def appended(source: Path, store: Path, *options: object) -> Path:
    """Append in this process, and insist that it went well."""
    ran = append(source, store, "--quiet", *options)
    assert (ran.code, ran.out, ran.err) == (0, "", ""), ran
    return store


def refused(source: Path, store: Path, *options: object, code: int = 2) -> str:
    ran = append(source, store, *options)
    assert (ran.code, ran.out) == (code, ""), ran
    return ran.err


def told(source: Path, store: Path, *options: object) -> tuple[int, ...]:
    """What an append that skips what exists says it did: added, existing, changed, rejects and samples."""
    said = json.loads(append(source, store, "--skip-existing", "--json", *options).out)
    return tuple(said.get(name, 0) for name in ("added", "existing", "changed", "rejects", "samples"))


def truth(*sources: Path) -> list[tuple[str, str, bytes]]:
    """What a store of 16 x 16 files holds, by their folders alone: key, name of the class, pixels; of those that are
    not called bad."""
    return [
        (path.relative_to(source).as_posix(), path.parent.name, np.asarray(Image.open(path)).tobytes())
        for source in sources
        for path in sorted(source.glob("*/*.png"))
        if not path.name.endswith("bad.png")
    ]


def held(reader: Reader, workers: Workers | int = 0) -> list[tuple[str, str, bytes]]:
    """The same, of a reader."""
    classes = reader.classes or ()
    return [
        (key, classes[label], image.tobytes())
        for batch in reader.batches(7, fields=["image", "label", "key"], workers=workers)
        for image, label, key in zip(batch["image"], batch["label"], batch["key"], strict=True)
    ]


@pytest.mark.parametrize("layout", ["memmap", "hdf5-gzip", "lmdb"])
def test_a_store_has_the_samples_of_all_sources_one_after_another(tmp_path: Path, layout: str) -> None:
    """Two appends: samples follow in order, classes keep their numbers, new ones come at the end; readers that were
    written from the format's pages alone see the same. Of the files that were there, the manifest alone changes."""
    options = (*SMALL, *FORMATS[layout], *(("--quality", "100", "--subsampling", "444") if layout == "lmdb" else ()))
    sources = [
        folder(tmp_path / "a", {"dog": 70, "cat": 3}),
        folder(tmp_path / "b", {"bird": 2, "dog": 66}, first=100),
        folder(tmp_path / "c", {"ant": 1, "bird": 2}, first=200),
    ]
    store = pack(sources[0], tmp_path / "store", *options)
    for source in sources[1:]:
        before, after = files_of(store), files_of(appended(source, store))
        assert [name for name in before if after[name] != before[name]] == ["store.json"]
    ran = run_here("pack", "--workers", 0, *options, sources[0], store)
    assert (ran.code, "is complete already: 144 samples" in ran.out, files_of(store) == after) == (0, True, True), ran
    reader = Reader(store)
    assert reader.classes == ("cat", "dog", "bird", "ant")
    found, expected = held(reader), truth(*sources)
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    if layout != "lmdb":
        assert found == expected
    assert [path.name for path in sorted(store.glob("columns-*"))] == ["columns-1", "columns-2", "columns-3"]
    assert run_here("inspect", "--verify", store).code == 0
    check_provenance(store)
    assert [sample.key for sample in StoreByDocs(store).samples()] == [key for key, *_ in expected]


def test_a_reader_that_is_open_goes_on(tmp_path: Path) -> None:
    """Batches that were begun before an append, and epochs begun after it, have the old samples, in workers that start
    only then; a reader that is opened afterwards has all."""
    first, second = folder(tmp_path / "a", {"x": 40}), folder(tmp_path / "b", {"x": 30, "y": 1}, first=500)
    store, processes = pack(first, tmp_path / "store", *SMALL), Workers(2, backend="process")
    reader = Reader(store)
    running = [iter(reader.batches(7, fields=["image", "key"], workers=workers)) for workers in (processes, 0)]
    keys = [list(next(batches)["key"]) for batches in running]
    appended(second, store)
    for seen, batches in zip(keys, running, strict=True):
        assert [*seen, *(key for batch in batches for key in batch["key"])] == [key for key, *_ in truth(first)]
    assert held(reader, workers=processes) == truth(first)
    assert held(Reader(store), workers=2) == truth(first, second)


def test_what_does_not_fit_is_refused_and_named(tmp_path: Path) -> None:
    """Other fields, labels without names, no store, an unfinished one, the store itself: nothing is written."""
    store = pack(folder(tmp_path / "a", {"x": 2}), tmp_path / "store", *SMALL)
    plain = save(tmp_path / "plain" / "1.png", picture(16, 16, 1)).parent
    np.savez(tmp_path / "set.npz", image=np.zeros((3, 16, 16, 3), np.uint8), label=np.zeros(3, np.int64))
    sets = tmp_path / "sets"
    rawpack_packer.pack_splits(np.zeros((3, 8, 8, 3), np.uint8), sets, holdout="val=1", workers=0)
    (tmp_path / "half" / ".rawpack").mkdir(parents=True)
    before = files_of(tmp_path)
    for source, destination, words in (
        (plain, store, "has classes and"),
        (tmp_path / "set.npz", store, "has classes and"),
        (tmp_path / "a", tmp_path / "none", "`rawpack pack` makes one"),
        (tmp_path / "a", tmp_path / "half", "packing did not finish"),
        (tmp_path / "a", sets, "append to one of them"),
        (store, store, "is the source itself"),
    ):
        assert words in refused(source, destination)
    with pytest.raises(UsageError, match=r"image: image uint8 \(8, 8, 3\) raw there, image uint8 \(9, 8, 3\) raw here"):
        rawpack_packer.append(np.zeros((3, 9, 8, 3), np.uint8), sets / "train", workers=0)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("count", [1, 2])
def test_masks_of_one_size_join_those_of_many(tmp_path: Path, count: int) -> None:
    """Images and masks of one size are appended to a store whose sizes differ."""

    def samples(*sizes: int) -> list[dict[str, Any]]:
        return [{"image": picture(n, n, n), "mask": np.full((n, n, 1), n, np.uint8)} for n in sizes]

    keep: dict[str, Any] = {"fields": {"mask": "mask"}, "workers": 0}
    rawpack_packer.pack(samples(14, 16), tmp_path / "store", size="keep", **keep)
    more = samples(*[18] * count)
    rawpack_packer.append(more, tmp_path / "store", keys=[f"new{i}" for i in range(count)], **keep)
    masks = [sample["mask"] for sample in Reader(tmp_path / "store")]
    assert [mask.shape for mask in masks] == [(n, n, 1) for n in (14, 16, *[18] * count)]
    assert all((mask == len(mask)).all() for mask in masks)


def test_keys_that_exist_are_named_and_can_be_skipped(tmp_path: Path) -> None:
    """A folder that has grown: the first ten of what is there are named; --skip-existing packs what is new, and once
    more has nothing to do. A file that was changed since is told, one that was rejected is tried again then."""
    source = folder(tmp_path / "photos", {"cat": 12, "dog": 2})
    (source / "cat" / "bad.png").write_text("no image")
    store = pack(source, tmp_path / "store", *SMALL, "--max-rejects", 1)
    folder(source, {"cat": 2, "eel": 1}, first=100)
    before, said = files_of(store), refused(source, store)
    for words in ("has or has rejected 15 of 18 samples", "(cat/000.png, cat/001.png,", "cat/009.png, and 5 more)"):
        assert words in said
    assert files_of(store) == before
    assert told(source, store) == (3, 15, 0, 1, 17)
    assert Reader(store).classes == ("cat", "dog", "eel")
    before = files_of(store)
    assert told(source, store) == (0, 18, 0, 1, 17)
    assert files_of(store) == before
    save(source / "cat" / "bad.png", picture(16, 16, 77))
    save(source / "cat" / "000.png", picture(16, 16, 78))
    assert told(source, store) == (1, 17, 1, 1, 18)
    assert Reader(store)[-1]["key"] == "cat/bad.png"
    assert told(source, store)[:2] == (0, 18)
    assert run_here("inspect", "--verify", store).code == 0


def test_rejects_and_counts_are_those_of_all_sources(tmp_path: Path) -> None:
    """The file of rejects lists those of every source in order; counts add up; limits are of the new samples alone."""
    first = folder(tmp_path / "a", {"cat": 2, "dog": 1})
    (first / "cat" / "0 bad.png").write_text("no image")
    store = pack(first, tmp_path / "store", *SMALL, "--max-rejects", 1)
    second = folder(tmp_path / "b", {"cat": 1, "dog": 1, "eel": 1}, first=50)
    (second / "dog" / "0 bad.png").write_text("")
    (second / "notes.txt").write_text("no image")
    before = files_of(store)
    assert "1 of 4 images was rejected (empty 1), for example dog/0 bad.png: " in refused(second, store, code=1)
    assert files_of(store).items() >= before.items()
    appended(second, store, "--max-rejects", 1)
    lines = [(line["sample"], line["key"], line["reason"]) for line in rejects_of(store)]
    assert lines == [(0, "cat/0 bad.png", "not_an_image"), (5, "dog/0 bad.png", "empty")]
    manifest = json.loads((store / "store.json").read_text())
    assert manifest["rejects"]["reasons"] == {"empty": 1, "not_an_image": 1}
    counts = manifest["counts"]
    assert (counts["other_files"], counts["classes_of_one"], counts["empty_classes"]) == (1, 1, 0)
    said = json.loads(run_here("inspect", "--json", store).out)
    assert [one["source"]["root"] for one in said["appends"]] == [str(second)]
    assert said["classes"] == {"cat": 3, "dog": 2, "eel": 1}


def test_other_libraries_are_refused_unless_allowed(tmp_path: Path) -> None:
    """Where OpenCV is another than that which packed the store, what differs is named; so is Pillow where it made
    pixels, as of a GIF. Allowed, both are recorded."""
    jpegs = pack(folder(tmp_path / "a", {"x": 2}), tmp_path / "jpegs", *SMALL)
    source, later = folder(tmp_path / "b", {"x": 2}), folder(tmp_path / "c", {"x": 2}, first=10)
    Image.new("P", (40, 40)).save(source / "x" / "one.gif")
    both = pack(source, tmp_path / "both", *SMALL)
    before = files_of(both)
    for library, store, entry, words in (
        ("cv2", both, "resizer", "opencv 99.1, rawpack.area"),
        ("PIL", both, "pillow", "99.1 now"),
        ("PIL", jpegs, "pillow", ""),
    ):
        with mock.patch(f"{library}.__version__", "99.1"):
            if words:
                said = refused(later, store)
                assert all(word in said for word in (entry, words, "--other-libraries"))
                assert files_of(store) == before
            appended(later, store, *["--other-libraries"] * bool(words))
        assert ", then " in json.loads((store / "store.json").read_text())["recipe"]["libraries"][entry]
        later, before = folder(tmp_path / f"after {library}", {"x": 2}, first=20), files_of(both)


# ---------------------------------------------------------------------------------------------- stopped in the middle

KILLED = """
import json, shutil, signal, sys
from pathlib import Path
from killed_child import forked, turns
from rawpack import Reader
from rawpack_packer.job.append import Append, open_store
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources import open_source
signal.alarm(0)  # long where all steps are tried
source, whole, folder, every = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
table = open_source(source)
def work(store):
    Append(table, open_store(store, [source]), RunOptions(0, max_rejects=10)).run()
work(shutil.copytree(whole, folder / "warm"))  # which loads, once, all that runs need
for at, store, what, status in turns(work, folder, 0, every, whole):
    keys = [key for batch in Reader(store).batches(64, fields=["key", "image"], workers=0) for key in batch["key"]]
    print(json.dumps([at, what, status, keys, forked(lambda: work(store), None)]), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL, fork and /proc")
def test_an_append_killed_at_any_step_leaves_the_old_store_or_the_new(forks: Forks, tmp_path: Path) -> None:
    """Before files that are opened, renamed, removed or synced: the store reads as one of the two, and the same append
    then ends in the very bytes of an undisturbed one. What was not synced may be torn."""
    first, second = folder(tmp_path / "a", {"x": 3}), folder(tmp_path / "b", {"w": 1, "x": 64}, first=100)
    (second / "x" / "bad.png").write_text("no image")
    store = pack(first, tmp_path / "store", *SMALL)
    shutil.copytree(store, tmp_path / "undisturbed")
    undisturbed = settled(appended(second, tmp_path / "undisturbed", "--max-rejects", 1))
    (tmp_path / "killed").mkdir()
    every = 1 if os.environ.get("RAWPACK_SOAK") else 5
    ran = forks.run(KILLED, second, store, tmp_path / "killed", every)
    assert (ran.code, ran.err) == (0, "")
    turns = [json.loads(line) for line in ran.out.splitlines()]
    assert len(turns) >= 45 // every
    old, new = ([key for key, *_ in truth(*sources)] for sources in ([first], [first, second]))
    for at, what, killed, keys, again in turns:
        assert (killed, again) == (-signal.SIGKILL, 0), what
        assert keys in (old, new), what
        assert settled(tmp_path / "killed" / f"{at}") == undisturbed, what
    assert {len(keys) for *_, keys, _ in turns} == {len(old), len(new)}


FAILS = mock.patch("rawpack_packer.job.job.commit_store", side_effect=OSError(errno.EIO, "Input/output error"))


def test_a_half_append_can_be_dropped(tmp_path: Path) -> None:
    """An append that failed at its end: --restart with another source leaves nothing of it, and every old file."""
    first, second = folder(tmp_path / "a", {"x": 5}), folder(tmp_path / "b", {"x": 70, "y": 1}, first=100)
    store = pack(first, tmp_path / "store", *SMALL)
    before = files_of(store)
    with FAILS:
        assert "the same command resumes" in refused(second, store, code=1)
    ran = run_here("pack", *SMALL, first, store)
    assert (ran.code, "is complete already: 5 samples" in ran.out) == (0, True), ran
    third = folder(tmp_path / "c", {"x": 2}, first=500)
    after = files_of(appended(third, store, "--restart"))
    assert [name for name in before if after[name] != before[name]] == ["store.json"]
    assert held(Reader(store)) == truth(first, third)
    assert run_here("inspect", "--verify", store).code == 0


def test_a_run_killed_after_its_manifest_appends_nothing_twice(tmp_path: Path) -> None:
    """The last step left undone: the same append ends it, also where samples have no names."""
    store, images = tmp_path / "store", np.zeros((3, 8, 8, 3), np.uint8)
    rawpack_packer.pack(images, store, workers=0)
    with (
        mock.patch("rawpack_packer.job.commit.tidy", side_effect=OSError(errno.EIO, "Input/output error")),
        pytest.raises(PackError),
    ):
        rawpack_packer.append(images, store, workers=0)
    assert (len(Reader(store)), (store / ".rawpack").is_dir()) == (6, True)
    done = rawpack_packer.append(images, store, workers=0)
    assert (done.added, done.summary.already, len(Reader(store))) == (0, True, 6)
    assert not (store / ".rawpack").exists()
    assert rawpack_packer.append(images, store, workers=0).added == 3


def test_files_that_come_after_a_killed_append_are_for_the_next(tmp_path: Path) -> None:
    """A folder that grows on: the append ends as it was begun, and the next one adds the rest; until then, another
    source is refused."""
    source = folder(tmp_path / "photos", {"x": 5})
    store = pack(source, tmp_path / "store", *SMALL)
    folder(source, {"x": 3}, first=50)
    with FAILS:
        assert append(source, store, "--skip-existing").code == 1
    folder(source, {"x": 2, "y": 1}, first=90)
    assert "was begun, and the source differs" in refused(folder(tmp_path / "other", {"x": 3}, first=900), store)
    assert told(source, store) == (3, 5, 0, 0, 8)
    assert told(source, store) == (3, 8, 0, 0, 11)


def test_what_was_held_out_does_not_come_into_another_split(tmp_path: Path) -> None:
    """A folder that was divided by a draw and has grown: new files come into the split that is named, those of the
    others do not; samples without names get numbers that no split has, and no label ever means two classes."""
    source, sets = folder(tmp_path / "photos", {"cat": 10, "dog": 10}), tmp_path / "sets"
    pack(source, sets, *SMALL, "--holdout", "val=0.3")
    folder(source, {"cat": 2, "eel": 1}, first=50)
    assert "has or has rejected 20 of 23 samples" in refused(source, sets / "train")
    assert told(source, sets / "train") == (3, 20, 0, 0, 17)
    keys = [{*Reader(sets, split=name).column("key")} for name in ("train", "val")]
    assert (keys[0] & keys[1], len(keys[0] | keys[1])) == (set(), 23)
    appended(folder(tmp_path / "more", {"ant": 2}, first=900), sets / "val")
    assert Reader(sets, split="train").classes == ("cat", "dog", "eel")
    assert Reader(sets, split="val").classes == ("cat", "dog", "eel", "ant")
    images = np.zeros((10, 8, 8, 3), np.uint8)
    rawpack_packer.pack_splits(images, tmp_path / "arrays", holdout={"val": 3}, workers=0)
    for name in ("train", "val"):
        rawpack_packer.append(images[:2], tmp_path / "arrays" / name, workers=0)
    numbers = [key for name in ("train", "val") for key in Reader(tmp_path / "arrays", split=name).column("key")]
    assert sorted(numbers) == [f"{i:08d}" for i in range(14)]


# ---------------------------------------------------------------------------------------------- mended

BAD, IMAGES = 2, range(4)


def photos(root: Path) -> Path:
    """Images that are always of one time."""
    for i in IMAGES:
        os.utime(save(root / f"{i}.png", picture(16, 16, i)), (1, 1))
    return root


# Each of these writes a source, with one bad sample or without, and returns it.


def lines(root: Path, broken: bool, bad: str) -> Path:
    """A listing of images with a score each. bad: the whole line of one of them."""
    rows = [f"{i}.png,{i}" for i in IMAGES]
    rows[BAD] = bad if broken else rows[BAD]
    (photos(root) / "list.csv").write_text("\n".join(["path,score", *rows, ""]))
    return root / "list.csv"


def image(root: Path, broken: bool) -> Path:
    """The listing is the same before and after."""
    path = lines(root, False, "")
    if broken:
        (root / f"{BAD}.png").write_text("no image")
    for file in (path, root / f"{BAD}.png"):
        os.utime(file, (1, 1))
    return path


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
    "cell": partial(lines, bad="2.png,two"),
    "line without a key": partial(lines, bad=",,,"),
    "image": image, "archive": archive, "dataset": in_memory,
}  # fmt: skip


def counted(source: Any, store: Path, **options: Any) -> tuple[int, int, int]:
    """What an append that skips what exists and allows no rejects does: added, existing, and rejected before."""
    done = rawpack_packer.append(source, store, **{"skip_existing": True, "max_rejects": 0, "workers": 0} | options)
    return done.added, done.existing, done.rejected_before


@pytest.mark.parametrize("what", MENDED)
def test_what_was_mended_outside_of_the_image_file_is_added(tmp_path: Path, what: str) -> None:
    """While it is bad, nothing is added nor listed again; once it is mended, the store has what one pack of the mended
    source has."""
    write, store = partial(MENDED[what], tmp_path), tmp_path / "store"
    rawpack_packer.pack(write(True), store, size=16, max_rejects=1, workers=0)
    before = files_of(store)
    assert counted(write(True), store) == (0, 4, 1)
    assert files_of(store) == before
    assert counted(write(False), store) == (1, 3, 0)
    pixels = sorted(picture(16, 16, i).tobytes() for i in IMAGES)
    assert sorted(sample["image"].tobytes() for sample in Reader(store)) == pixels
    assert [line["sample"] for line in rejects_of(store)] == [BAD]
    assert counted(write(False), store) == (0, 4, 0)


def test_a_mended_partner_lets_its_sample_in(tmp_path: Path) -> None:
    """One that is no image, and one that is not there: the file of the first image is the same."""
    source, partners = photos(tmp_path / "in"), photos(tmp_path / "out")
    (partners / "1.png").unlink()
    (partners / "2.png").write_text("no image")
    options: dict[str, Any] = {"images": {"target": partners}}
    rawpack_packer.pack(source, tmp_path / "store", size=16, max_rejects=2, workers=0, **options)
    for k, name in enumerate(("1.png", "2.png")):
        save(partners / name, picture(16, 16, 7))
        assert counted(source, tmp_path / "store", **options) == (1, 3, 1 - k)


@contextmanager
def unreadable(*names: str) -> Iterator[None]:
    """As if the disk could not read these files."""
    read = files.opened

    def failing(path: str) -> AbstractContextManager[int]:
        if path.endswith(names):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    with mock.patch.object(files, "opened", failing):
        yield


def test_a_file_that_can_be_read_again_is_added(tmp_path: Path) -> None:
    """Though its size and time are as they were. One that can be read then, but is no image, is a new reject, which is
    not read again."""
    source, store = photos(tmp_path / "photos"), tmp_path / "store"
    (source / "bad.png").write_text("no image")
    with unreadable("2.png", "bad.png"):
        rawpack_packer.pack(source, store, size=16, max_rejects=2, workers=0)
    with pytest.raises(PackError, match="rejected"):
        counted(source, store)
    assert counted(source, store, max_rejects=1) == (1, 3, 0)
    assert [line["reason"] for line in rejects_of(store)] == ["unreadable", "unreadable", "not_an_image"]
    with mock.patch.object(files, "opened", side_effect=AssertionError):
        assert counted(source, store) == (0, 5, 1)


def test_a_sample_that_crashed_is_not_tried_in_this_process(tmp_path: Path) -> None:
    """Nor is its archive known to be the same."""
    write, store = partial(archive, tmp_path), tmp_path / "store"
    rawpack_packer.pack(write(True), store, size=16, max_rejects=1, workers=0)
    crashed = journal.Reject(BAD, "2.png", "crashed", "it killed two processes that decoded it")
    keys = [(f"{i}.png", crashed if i == BAD else None) for i in IMAGES]
    with (
        mock.patch.object(journal, "_keys", return_value=keys),
        mock.patch("rawpack_packer.job.append.prepare_item", side_effect=AssertionError),
    ):
        assert counted(write(False), store) == (0, 4, 1)


def test_a_mended_reject_of_another_split_stays_in_that(tmp_path: Path) -> None:
    """A draw promised that none of its samples comes into this one."""
    rows = [(f"{k}.png", f"p{k % 6}") for k in range(24)]
    for k, (name, _) in enumerate(rows):
        save(tmp_path / name, picture(16, 16, k))
    for name, _ in rows[::5]:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:50])
    source, sets = tmp_path / "list.csv", tmp_path / "sets"
    source.write_text("\n".join(["path,person", *map(",".join, rows)]) + "\n")
    pack(source, sets, "--size", 8, "--holdout", "val=0.4", "--group-by", "person", "--max-rejects", "100%")
    bad = {name: {one["key"] for one in rejects_of(sets / name)} for name in ("train", "val")}
    assert all(bad.values())
    for k, (name, _) in enumerate(rows):
        save(tmp_path / name, picture(16, 16, k))
    assert told(source, sets / "train")[0] == len(bad["train"])
    people = {name: set(Reader(sets / name).column("person")) for name in ("train", "val")}
    assert people["train"] & people["val"] == set()
