"""`rawpack append`: what a store holds afterwards, what stays as it was, and appends that are stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from folders import files_of, settled
from pictures import picture, save
from PIL import Image
from readers_by_docs import StoreByDocs, check_provenance
from running import FORMATS, Ran, environment, pack, run_here

import rawpack_packer
from rawpack import PackError, Reader, UsageError, Workers

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
    written from the format's pages alone see the same."""
    options = (*FORMATS[layout], "--quality", "100", "--subsampling", "444") if layout == "lmdb" else FORMATS[layout]
    sources = [
        folder(tmp_path / "a", {"dog": 70, "cat": 3}),
        folder(tmp_path / "b", {"bird": 2, "dog": 66}, first=100),
        folder(tmp_path / "c", {"ant": 1, "bird": 2}, first=200),
    ]
    store = pack(sources[0], tmp_path / "store", *SMALL, *options)
    for source in sources[1:]:
        appended(source, store)
    reader = Reader(store)
    assert reader.classes == ("cat", "dog", "bird", "ant")
    found, expected = held(reader), truth(*sources)
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    if layout != "lmdb":
        assert found == expected
    assert reader[73]["key"] == "bird/100.png"
    assert [path.name for path in sorted(store.glob("columns-*"))] == ["columns-1", "columns-2", "columns-3"]
    assert run_here("inspect", "--verify", store).code == 0
    check_provenance(store)
    assert [sample.key for sample in StoreByDocs(store).samples()] == [key for key, *_ in expected]


def test_no_file_that_a_manifest_named_changes(tmp_path: Path) -> None:
    """Of all files that were there, the manifest alone is another after each append."""
    first = folder(tmp_path / "a", {"x": 5, "y": 4})
    store = pack(first, tmp_path / "store", "--size", "keep", "--shard-size", 1)
    for k in range(2):
        before = files_of(store)
        appended(folder(tmp_path / f"more {k}", {"x": 2, f"new {k}": 2}, first=50 * (k + 1)), store)
        after = files_of(store)
        assert [name for name in before if after[name] != before[name]] == ["store.json"]
    assert len(Reader(store)) == 17
    ran = run_here("pack", "--size", "keep", "--shard-size", 1, "--workers", 0, first, store)
    assert (ran.code, "is complete already: 17 samples" in ran.out) == (0, True), ran
    assert files_of(store) == after


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
    assert len(reader) == 40
    assert held(Reader(store), workers=2) == truth(first, second)


def test_what_does_not_fit_is_refused_and_named(tmp_path: Path) -> None:
    """Other fields, labels without names, no store, an unfinished one, the store itself: one line, nothing written."""
    store = pack(folder(tmp_path / "a", {"x": 2}), tmp_path / "store", *SMALL)
    plain = save(tmp_path / "plain" / "1.png", picture(16, 16, 1)).parent
    np.savez(tmp_path / "set.npz", image=np.zeros((3, 16, 16, 3), np.uint8), label=np.zeros(3, np.int64))
    sets = tmp_path / "sets"
    rawpack_packer.pack_splits(np.zeros((3, 8, 8, 3), np.uint8), sets, holdout="val=1", workers=0)
    (tmp_path / "empty").mkdir()
    (tmp_path / "half" / ".rawpack").mkdir(parents=True)
    before = files_of(tmp_path)
    for source, destination, words in (
        (plain, store, "has classes and"),
        (tmp_path / "set.npz", store, "has classes and"),
        (tmp_path / "a", tmp_path / "none", "`rawpack pack` makes one"),
        (tmp_path / "a", tmp_path / "empty", "`rawpack pack` makes one"),
        (tmp_path / "a", tmp_path / "half", "packing did not finish"),
        (tmp_path / "a", sets, "append to one of them"),
        (store, store, "is the source itself"),
    ):
        ran = append(source, destination)
        assert (ran.code, ran.out, words in ran.err) == (2, "", True), ran
        assert len(ran.err.strip().splitlines()) <= 2
    with pytest.raises(UsageError, match=r"image: image uint8 \(8, 8, 3\) raw there, image uint8 \(9, 8, 3\) raw here"):
        rawpack_packer.append(np.zeros((3, 9, 8, 3), np.uint8), sets / "train", workers=0)
    assert files_of(tmp_path) == before


def test_keys_that_exist_are_named_and_can_be_skipped(tmp_path: Path) -> None:
    """A folder that has grown: the first ten of what is there are named; --skip-existing packs what is new, and once
    more has nothing to do. A file that was changed since is told, one that was rejected is tried again then."""
    source = folder(tmp_path / "photos", {"cat": 12, "dog": 2})
    (source / "cat" / "bad.png").write_text("no image")
    store = pack(source, tmp_path / "store", *SMALL, "--max-rejects", 1)
    folder(source, {"cat": 2, "eel": 1}, first=100)
    before = files_of(store)
    ran = append(source, store)
    assert ran.code == 2
    for words in ("has or has rejected 15 of 18 samples", "(cat/000.png, cat/001.png,", "cat/009.png, and 5 more)"):
        assert words in ran.err
    assert files_of(store) == before

    def told() -> tuple[int, ...]:
        said = json.loads(append(source, store, "--skip-existing", "--json").out)
        return tuple(said.get(name, 0) for name in ("added", "existing", "changed", "rejects", "samples"))

    assert told() == (3, 15, 0, 1, 17)
    assert Reader(store).classes == ("cat", "dog", "eel")
    before = files_of(store)
    assert told() == (0, 18, 0, 1, 17)
    assert files_of(store) == before
    save(source / "cat" / "bad.png", picture(16, 16, 77))
    save(source / "cat" / "000.png", picture(16, 16, 78))
    assert told() == (1, 17, 1, 1, 18)
    assert Reader(store)[-1]["key"] == "cat/bad.png"
    assert told()[:2] == (0, 18)
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
    ran = append(second, store)
    assert ran.code == 1
    assert "1 of 4 images was rejected (empty 1), for example dog/0 bad.png: " in ran.err
    assert {name: files_of(store)[name] for name in before} == before
    assert held(Reader(store)) == truth(first)
    appended(second, store, "--max-rejects", 1)
    lines = [json.loads(line) for line in (store / "rejects-2.jsonl").read_text().splitlines()]
    assert [(line["sample"], line["key"], line["reason"]) for line in lines] == [
        (0, "cat/0 bad.png", "not_an_image"),
        (5, "dog/0 bad.png", "empty"),
    ]
    manifest = json.loads((store / "store.json").read_text())
    assert manifest["rejects"]["reasons"] == {"empty": 1, "not_an_image": 1}
    counts = manifest["counts"]
    assert (counts["other_files"], counts["classes_of_one"], counts["empty_classes"]) == (1, 1, 0)
    told = json.loads(run_here("inspect", "--json", store).out)
    assert [one["source"]["root"] for one in told["appends"]] == [str(second)]
    assert told["classes"] == {"cat": 3, "dog": 2, "eel": 1}


def test_other_libraries_are_refused_unless_allowed(tmp_path: Path) -> None:
    """Where OpenCV is another than that which packed the store, what differs is named; allowed, both are recorded."""
    store = pack(folder(tmp_path / "a", {"x": 2}), tmp_path / "store", *SMALL)
    before = files_of(store)
    with mock.patch("cv2.__version__", "99.1"):
        source = folder(tmp_path / "b", {"x": 2}, first=10)
        ran = append(source, store)
        assert ran.code == 2
        for words in ("resizer: opencv", "opencv 99.1, rawpack.area", "--other-libraries"):
            assert words in ran.err
        assert files_of(store) == before
        appended(source, store, "--other-libraries")
        appended(folder(tmp_path / "c", {"x": 1}, first=20), store)
    resizer = json.loads((store / "store.json").read_text())["recipe"]["libraries"]["resizer"]
    assert resizer.count("opencv") == 2
    assert ", then opencv 99.1" in resizer


def test_another_pillow_is_refused_where_it_made_pixels(tmp_path: Path) -> None:
    """A store of JPEG files alone goes on with another Pillow, one with a GIF in it only with --other-libraries."""
    jpegs = pack(folder(tmp_path / "a", {"x": 2}), tmp_path / "jpegs", *SMALL)
    source = folder(tmp_path / "b", {"x": 2})
    Image.new("P", (40, 40)).save(source / "x" / "one.gif")
    both = pack(source, tmp_path / "both", *SMALL)
    with mock.patch("PIL.__version__", "99.1"):
        later = folder(tmp_path / "c", {"x": 2}, first=10)
        appended(later, jpegs)
        ran = append(later, both)
        assert ran.code == 2
        assert "; " not in ran.err
        assert "99.1 now" in ran.err
        appended(later, both, "--other-libraries")
    for store in (jpegs, both):
        assert json.loads((store / "store.json").read_text())["recipe"]["libraries"]["pillow"].endswith(", then 99.1")


# ---------------------------------------------------------------------------------------------- stopped in the middle


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL, fork and /proc")
def test_an_append_killed_at_any_step_leaves_the_old_store_or_the_new(tmp_path: Path) -> None:
    """Before files that are opened, renamed, removed or synced: the store reads as one of the two, and the same append
    then ends in the very bytes of an undisturbed one. What was not synced may be torn."""
    first, second = folder(tmp_path / "a", {"x": 3}), folder(tmp_path / "b", {"w": 1, "x": 64}, first=100)
    (second / "x" / "bad.png").write_text("no image")
    store = pack(first, tmp_path / "store", *SMALL)
    shutil.copytree(store, tmp_path / "undisturbed")
    undisturbed = settled(appended(second, tmp_path / "undisturbed", "--max-rejects", 1))
    (tmp_path / "killed").mkdir()
    every = 1 if os.environ.get("RAWPACK_SOAK") else 5
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).parents[1] / "support" / "append_child.py"),
         str(second), str(store), str(tmp_path / "killed"), "0", str(every)],
        capture_output=True, encoding="utf-8", env=environment(OPENBLAS_NUM_THREADS="1"), check=True,
    )  # fmt: skip
    assert ran.stderr == ""
    turns = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(turns) >= 45 // every
    old = [key for key, *_ in truth(first)]
    new = [key for key, *_ in truth(first, second)]
    seen = set()
    for at, what, killed, keys, again in turns:
        assert (killed, again) == (-signal.SIGKILL, 0), what
        assert keys in (old, new), what
        seen.add(len(keys))
        assert settled(tmp_path / "killed" / f"{at}") == undisturbed, what
    assert seen == {len(old), len(new)}


@pytest.mark.parametrize("then", ["restart", "pack --restart"])
def test_a_half_append_can_be_dropped(tmp_path: Path, then: str) -> None:
    """An append that failed at its end: --restart with another source leaves nothing of it, and every old file; so does
    packing anew."""
    first, second = folder(tmp_path / "a", {"x": 5}), folder(tmp_path / "b", {"x": 70, "y": 1}, first=100)
    store = pack(first, tmp_path / "store", *SMALL)
    before = files_of(store)
    with mock.patch("rawpack_packer.job.job.commit_store", side_effect=OSError(5, "Input/output error")):
        ran = append(second, store)
    assert (ran.code, "the same command resumes" in ran.err) == (1, True), ran
    ran = run_here("pack", *SMALL, first, store)
    assert (ran.code, "is complete already: 5 samples" in ran.out) == (0, True), ran
    assert len(list(store.glob("shard-*"))) == 3
    if then == "restart":
        third = folder(tmp_path / "c", {"x": 2}, first=500)
        after = files_of(appended(third, store, "--restart"))
        assert [name for name in before if after[name] != before[name]] == ["store.json"]
        assert held(Reader(store)) == truth(first, third)
    else:
        pack(first, store, *SMALL, "--restart")
        assert settled(store) == settled(pack(first, tmp_path / "fresh", *SMALL))
    assert run_here("inspect", "--verify", store).code == 0


def test_a_run_killed_after_its_manifest_appends_nothing_twice(tmp_path: Path) -> None:
    """The last step left undone: the same append ends it, also where samples have no names."""
    store, images = tmp_path / "store", np.zeros((3, 8, 8, 3), np.uint8)
    rawpack_packer.pack(images, store, workers=0)
    with (
        mock.patch("rawpack_packer.job.commit.tidy", side_effect=OSError(5, "Input/output error")),
        pytest.raises(PackError),
    ):
        rawpack_packer.append(images, store, workers=0)
    assert len(Reader(store)) == 6
    assert (store / ".rawpack").is_dir()
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
    with mock.patch("rawpack_packer.job.job.commit_store", side_effect=OSError(5, "Input/output error")):
        assert append(source, store, "--skip-existing").code == 1
    folder(source, {"x": 2, "y": 1}, first=90)
    ran = append(folder(tmp_path / "other", {"x": 3}, first=900), store)
    assert (ran.code, "was begun, and the source differs" in ran.err) == (2, True), ran
    told = json.loads(append(source, store, "--skip-existing", "--json").out)
    assert (told["added"], told["existing"], told["later"], told["samples"]) == (3, 5, 0, 8)
    told = json.loads(append(source, store, "--skip-existing", "--json").out)
    assert (told["added"], told["existing"], told["later"], told["samples"]) == (3, 8, 0, 11)


def test_what_was_held_out_does_not_come_into_another_split(tmp_path: Path) -> None:
    """A folder that was divided by a draw and has grown: new files come into the split that is named, those of the
    others do not; samples without names get numbers that no split has, and no label ever means two classes."""
    source, sets = folder(tmp_path / "photos", {"cat": 10, "dog": 10}), tmp_path / "sets"
    assert run_here("pack", "--quiet", "--workers", 0, *SMALL, "--holdout", "val=0.3", source, sets).code == 0
    folder(source, {"cat": 2, "eel": 1}, first=50)
    ran = append(source, sets / "train")
    assert (ran.code, "has or has rejected 20 of 23 samples" in ran.err) == (2, True), ran
    told = json.loads(append(source, sets / "train", "--skip-existing", "--json").out)
    assert (told["added"], told["existing"], told["samples"]) == (3, 20, 17)
    keys = [{one["key"] for one in Reader(sets, split=name)} for name in ("train", "val")]
    assert not keys[0] & keys[1]
    assert len(keys[0] | keys[1]) == 23
    appended(folder(tmp_path / "more", {"ant": 2}, first=900), sets / "val")
    assert Reader(sets, split="train").classes == ("cat", "dog", "eel")
    assert Reader(sets, split="val").classes == ("cat", "dog", "eel", "ant")
    assert run_here("inspect", "--verify", sets).code == 0
    images = np.zeros((10, 8, 8, 3), np.uint8)
    rawpack_packer.pack_splits(images, tmp_path / "arrays", holdout={"val": 3}, workers=0)
    for name in ("train", "val"):
        rawpack_packer.append(images[:2], tmp_path / "arrays" / name, workers=0)
    numbers = [one["key"] for name in ("train", "val") for one in Reader(tmp_path / "arrays", split=name)]
    assert sorted(numbers) == [f"{i:08d}" for i in range(14)]


def test_an_append_of_bad_files_alone_is_one(tmp_path: Path) -> None:
    """Where nothing new can be packed and that is allowed, the rejects are recorded, and later appends go on."""
    source = folder(tmp_path / "photos", {"x": 3})
    store = pack(source, tmp_path / "store", *SMALL)
    (source / "x" / "bad.png").write_text("no image")
    told = json.loads(append(source, store, "--skip-existing", "--max-rejects", 1, "--json").out)
    assert (told["added"], told["rejected"], told["samples"]) == (0, 1, 3)
    assert len(Reader(store)) == 3
    assert not (store / "columns-2").exists()
    folder(source, {"x": 1}, first=10)
    told = json.loads(append(source, store, "--skip-existing", "--json").out)
    assert (told["added"], told["existing"], told["rejects"], told["samples"]) == (1, 4, 1, 4)
    assert [path.name for path in sorted(store.glob("columns-*"))] == ["columns-1", "columns-3"]
    assert run_here("inspect", "--verify", store).code == 0
