"""Stores made of stores: `rawpack convert`, `merge` and `subset` lose nothing, and believe nothing.

What is right is said by the samples themselves, and read by `StoreByDocs` and liblmdb, never by rawpack.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from folders import files_of, flip, lmdb_values, overwrite, states_of
from numpy.typing import NDArray
from pictures import picture
from readers_by_docs import StoreByDocs
from running import Ran, run_here

import rawpack_packer
from rawpack import Reader, look
from rawpack.disk import manifest as manifests
from rawpack_packer import recipe as recipes
from rawpack_packer.sources import SourceChangedError, open_stores
from rawpack_packer.sources.store import StoreRows, _opened

LEAST, COUNT = 16, 20
"""Samples of the smallest shard here, where it has 64 elsewhere, and of most stores."""
SIDES = (20, 28)
KINDS = {"boxes": "float32[?,5]", "mask": "mask", "depth": "mask"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "memmap": {"format": "memmap"},
    "hdf5": {"format": "hdf5"},
    "hdf5-gzip": {"format": "hdf5", "compression": "gzip"},
    "lmdb": {"format": "lmdb"},
}
JOBS = (
    ("convert",), ("subset", "--every", 2), ("export",), ("export", "--to", "webdataset"),
    ("export", "--to", "parquet"),
)  # fmt: skip
"""Every job that makes something out of one store; `merge` takes several."""


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    """Stores of `COUNT` samples have two shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "_MIN_PART", LEAST)
        yield


@cache
def samples(count: int = COUNT, sized: bool = True) -> list[dict[str, Any]]:
    """Samples with a field of every kind, of one size or of many."""
    rng = np.random.default_rng(5)
    sizes = [SIDES if sized else tuple(rng.integers(8, 40, 2).tolist()) for _ in range(count)]
    return [
        {
            "image": picture(*size, i),
            "label": (i % 3) - (i == 6),
            "number": -(1 << 62) + i,
            "vector": rng.random((2, 3)).astype(np.float16),
            "boxes": rng.random((i % 4, 5)).astype(np.float32),
            "words": "" if i == 4 else f"naïve\n文 {i}",
            "mask": rng.integers(0, 256, size).astype(np.uint8),
            "depth": rng.integers(0, 1 << 16, size).astype(np.uint16),
        }
        for i, size in enumerate(sizes)
    ]


def run(*args: object) -> Ran:
    """Run a command in this process; one that packs, without worker processes."""
    alone = ("--workers", 0) if args[0] in ("pack", "convert", "merge", "subset") else ()
    return run_here(args[0], *alone, *args[1:])


def refusal(*args: object) -> str:
    """What a command that is refused says, in its one line."""
    ran = run(*args)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1), ran
    return ran.err


def packed(path: Path, given: Any, **options: Any) -> Path:
    """A store of samples, packed in this process, in parts of `LEAST`."""
    options = {"workers": 0, "shard_size": "1"} | options
    rawpack_packer.pack(given, path, **options)
    return path


def store_of(path: Path, layout: str, sized: bool = True, count: int = COUNT) -> Path:
    """A store of `samples`, packed once and copied."""
    shutil.copytree(Path(stored(layout, sized, count).name, "store"), path)
    return path


@cache
def stored(layout: str, sized: bool, count: int) -> tempfile.TemporaryDirectory[str]:
    more: dict[str, Any] = {} if sized else {"image": ("uint8", (None, None, 3))}
    folder, options = tempfile.TemporaryDirectory(), {"fields": KINDS, "classes": ["a", "b", "c"]}
    packed(Path(folder.name, "store"), samples(count, sized), **options, **LAYOUTS[layout], **more)
    return folder


def manifest_of(store: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((store / "store.json").read_text())
    return manifest


def shards_of(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_of(store).items() if name.startswith("shard")}


def values_of(store: Path) -> list[NDArray[Any]]:
    """The images, as the documentation says they are stored."""
    return [sample.image for sample in StoreByDocs(store).samples()]


def labels_of(store: Path) -> list[int]:
    """The labels; those that are missing are counted in the manifest."""
    labels: list[int] = StoreByDocs(store).columns["label"].tolist()
    assert manifest_of(store)["counts"].get("unlabelled", 0) == labels.count(-1)
    return labels


def keys_of(store: Path) -> list[str]:
    return [*StoreByDocs(store).texts("key")]


def same_samples(store: Path, given: list[dict[str, Any]], keys: list[str]) -> None:
    """Every field but the image is what was given."""
    for sample, one, key in zip(StoreByDocs(store).samples(), given, keys, strict=True):
        others = sample.others
        assert (sample.key, sample.label, others["words"], others["number"]) == (
            key, one["label"], one["words"], one["number"]
        )  # fmt: skip
        for name in ("vector", "boxes"):
            np.testing.assert_array_equal(others[name], one[name])
        for name in ("mask", "depth"):
            np.testing.assert_array_equal(sample.masks[name][..., 0], one[name])


def numbers(count: int) -> list[str]:
    return [f"{i:08d}" for i in range(count)]


# ---------------------------------------------------------------------------------------------- convert


@pytest.mark.parametrize(("before", "after", "sized"), [("memmap", "hdf5-gzip", False), ("hdf5", "memmap", True)])
def test_raw_to_raw_loses_nothing(tmp_path: Path, before: str, after: str, sized: bool) -> None:
    """Pixels, masks and fields are those that were packed, in the very shards that packing the samples makes."""
    made, given = tmp_path / "made", samples(sized=sized)
    rawpack_packer.convert(store_of(tmp_path / "source", before, sized), made, workers=0, **LAYOUTS[after])
    for value, one in zip(values_of(made), given, strict=True):
        np.testing.assert_array_equal(value, one["image"])
    same_samples(made, given, numbers(COUNT))
    assert labels_of(made).count(-1) == 1
    assert shards_of(made) == shards_of(store_of(tmp_path / "direct", after, sized))
    assert run_here("inspect", "--verify", made).code == 0


def test_jpeg_files_stay_the_bytes_that_they_are(tmp_path: Path) -> None:
    """From lmdb to lmdb no option is needed: the same files under the same rows, also in one larger shard."""
    source = store_of(tmp_path / "source", "lmdb")
    summary = rawpack_packer.convert(source, tmp_path / "made", workers=0)
    assert summary.manifest.counts["passed_through"] == COUNT
    assert manifest_of(tmp_path / "made")["fields"] == manifest_of(source)["fields"]
    assert shards_of(tmp_path / "made") == shards_of(source)
    same_samples(tmp_path / "made", samples(), numbers(COUNT))
    rawpack_packer.convert(source, tmp_path / "larger", shard_size="1GB", workers=0)
    assert len(shards_of(tmp_path / "larger")) == 1
    assert lmdb_values(tmp_path / "larger") == lmdb_values(source)


JPEG: dict[str, Any] = {"format": "lmdb", "quality": 60}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"format": "lmdb", "quality": 70}),
        ({}, {"size": 9, "crop": "2,1,20,18"}),
        (JPEG, {"size": "10x14"}),
        (JPEG, {"subsampling": "444"}),
    ],
)
def test_a_new_recipe_is_what_packing_the_pixels_gives(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Encoded, resized or cropped: the very shards that packing the store's pixels makes by that recipe, which is else
    the store's."""
    source = packed(tmp_path / "source", samples(), fields=KINDS, **before)
    rawpack_packer.convert(source, tmp_path / "made", workers=0, **after)
    given = [one | {"image": image} for one, image in zip(samples(), values_of(source), strict=True)]
    assert shards_of(tmp_path / "made") == shards_of(packed(tmp_path / "direct", given, fields=KINDS, **before | after))


def test_grey_stays_grey_and_colours_can_change(tmp_path: Path) -> None:
    """A grey store stays grey in other formats; --color gray takes the colours out, --color rgb puts channels in."""
    colours = [one["image"] for one in samples(10)]
    grey = [image[..., :1] for image in colours]
    packed(tmp_path / "grey", grey)
    packed(tmp_path / "colours", colours)
    for options, before, after, channels in (
        ("--format lmdb", "grey", "jpeg", 1),
        ("--color rgb", "grey", "three", 3),
        ("--color gray", "colours", "one", 1),
    ):
        assert run("convert", "-q", *options.split(), tmp_path / before, tmp_path / after).code == 0
        assert manifest_of(tmp_path / after)["fields"]["image"]["shape"] == [*SIDES, channels]
    for value, image in zip(values_of(tmp_path / "jpeg"), grey, strict=True):
        assert np.abs(value.astype(int) - image).max() <= 40
    np.testing.assert_array_equal(values_of(tmp_path / "three")[3], np.repeat(grey[3], 3, axis=2))
    weights = colours[3] @ np.array([0.299, 0.587, 0.114])
    assert np.abs(values_of(tmp_path / "one")[3][..., 0] - weights).max() <= 1


def test_a_store_that_grew_is_converted_whole(tmp_path: Path) -> None:
    """Samples that were appended, with columns and classes of their own, go on like the first ones."""
    source, given = store_of(tmp_path / "source", "memmap"), samples(COUNT + 30)
    later = [one | {"label": max(one["label"], 0)} for one in given[COUNT:]]
    rawpack_packer.append(
        later, source, fields=KINDS, classes=["c", "d", "a"], keys=[f"later {i}" for i in range(30)], workers=0
    )
    assert (source / "columns-2").is_dir()
    assert run("convert", "-q", "--format", "hdf5", source, tmp_path / "made").code == 0
    same = [one | {"label": {0: 2, 1: 3, 2: 0}[one["label"]]} for one in later]
    same_samples(tmp_path / "made", [*given[:COUNT], *same], [*numbers(COUNT), *(f"later {i}" for i in range(30))])
    for value, one in zip(values_of(tmp_path / "made"), given, strict=True):
        np.testing.assert_array_equal(value, one["image"])
    assert manifest_of(tmp_path / "made")["classes"] == ["a", "b", "c", "d"]


def test_a_run_goes_on_only_with_the_same_store(tmp_path: Path) -> None:
    """Where the store is another by now, even with the same keys, nothing is done, and the error says what differs."""
    images = [picture(8, 8, i) for i in range(COUNT)]
    source = packed(tmp_path / "source", images)
    assert run("convert", "-q", source, tmp_path / "made").code == 0
    before = states_of(tmp_path / "made")
    shutil.rmtree(source)
    packed(source, [*images[:-1], images[0]])
    assert "the recipe differs: the stores that it is made of" in refusal("convert", "-q", source, tmp_path / "made")
    assert states_of(tmp_path / "made") == before
    assert run("convert", "-q", "--restart", source, tmp_path / "made").code == 0


def test_a_store_that_changes_under_a_run_stops_it(tmp_path: Path) -> None:
    """A worker that finds another store than the run began with says so, and nothing of both is mixed."""
    source = packed(tmp_path / "source", [picture(8, 8, i) for i in range(5)])
    rows = open_stores(source).rows.images
    travelled = StoreRows(rows.origins, rows.rows, {})
    assert travelled.key(3) == "00000003"
    shutil.rmtree(source)
    packed(source, [picture(8, 8, i + 1) for i in range(5)])
    _opened.cache_clear()
    with pytest.raises(SourceChangedError, match="another store"):
        travelled.value(0)


# ---------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(("layout", "name"), [*((one, "image") for one in LAYOUTS), ("lmdb", "depth")])
def test_a_sample_that_is_damaged_is_never_copied(tmp_path: Path, layout: str, name: str) -> None:
    """A few bytes of one sample: it is rejected as damaged, by its key; nothing is made unless that is allowed, and
    then all others are there, whole."""
    store_of(tmp_path / "source", layout)
    overwrite(look(Reader(tmp_path / "source")).where_is(11)[name], 5)
    ran = run("convert", "-q", "--format", "memmap", tmp_path / "source", tmp_path / "made")
    assert (ran.code, "damaged 1" in ran.err, (tmp_path / "made" / "store.json").exists()) == (1, True, False)
    ran = run("convert", "-q", "--max-rejects", "1", "--format", "memmap", tmp_path / "source", tmp_path / "made")
    assert (ran.code, ran.err) == (0, "")
    (line,) = (tmp_path / "made" / "rejects.jsonl").read_text().splitlines()
    assert (json.loads(line)["key"], json.loads(line)["reason"]) == ("00000011", "damaged")
    assert str(tmp_path) not in line
    given = [one for i, one in enumerate(samples()) if i != 11]
    same_samples(tmp_path / "made", given, [key for key in numbers(COUNT) if key != "00000011"])


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("columns-1/label.npy", "flipped"),
        ("columns-1/image.xxh3.npy", "flipped"),
        ("columns-1/key.npy", "flipped"),
        ("columns-1/boxes.offset.npy", "flipped"),
        ("shard-00001.npy", "flipped"),
        ("shard-00001.npy", "cut"),
        ("shard-00001.npy", "gone"),
    ],
)
def test_files_that_are_not_the_packed_ones_stop_everything(tmp_path: Path, name: str, how: str) -> None:
    """A bit of a label, a checksum, a key, an offset or a shard's head, another size, or no file: one line has the
    file's name, and nothing is made."""
    file = store_of(tmp_path / "source", "memmap") / name
    if how == "flipped":
        flip(file, 100 if "shard" in name else 200)
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    for number, job in enumerate(JOBS):
        made = tmp_path / f"{number}"
        ran = run(*job, "-q", tmp_path / "source", made)
        assert (ran.code, file.name in ran.err, "Traceback" in ran.err) == (1, True, False), ran
        assert not {"store.json", "export.json"} & {*files_of(made)}
        assert "columns" not in name or not made.exists()


def test_a_forged_store_is_not_believed(tmp_path: Path) -> None:
    """A store whose checksums fit and whose JPEG files have another size than its manifest says: rejected."""
    source = packed(tmp_path / "source", [picture(16, 16, i) for i in range(3)], format="lmdb")
    manifest, _ = manifests.load(source)
    image = msgspec.structs.replace(manifest.fields["image"], shape=(16, 18, 3))
    forged = msgspec.structs.replace(manifest, fields=manifest.fields | {"image": image})
    (source / "store.json").write_bytes(manifests.dump(forged))
    ran = run("convert", "-q", source, tmp_path / "made")
    assert (ran.code, "bad_field 3" in ran.err) == (1, True)


def test_what_is_no_whole_store_is_refused(tmp_path: Path) -> None:
    """No folder, a file, a folder without a manifest, a store whose packing did not finish: one line each."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "half" / ".rawpack").mkdir(parents=True)
    for name, code in (("none", 2), ("file", 2), ("empty", 1), ("half", 1)):
        for job in (*JOBS[:3], ("inspect",), ("warm",), ("bench",)):
            made = [] if job[0] in ("inspect", "warm", "bench") else [tmp_path / "made"]
            ran = run(*job, tmp_path / name, *made)
            assert (ran.code, len(ran.err.splitlines()), name in ran.err) == (code, 1, True), ran
            assert not (tmp_path / "made").exists()


def test_a_destination_beside_the_store_only(tmp_path: Path) -> None:
    """Not the store itself, not inside it, not around it; of a merge, none of them; nor a folder with other files."""
    one, two = store_of(tmp_path / "at" / "one", "memmap"), packed(tmp_path / "two", [picture(8, 8, 1)])
    for name in ("full/mine.txt", "half/.rawpack/job", "file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    before = states_of(tmp_path)
    for dst in (one, one / "inside", tmp_path / "at", tmp_path / "full", tmp_path / "file", two):
        for job in (*JOBS, ("merge", two)):
            assert run(*job, one, dst).code == 2, (job, dst)
    for job in JOBS[2:]:
        assert run(*job, one, tmp_path / "half").code == 2
    assert states_of(tmp_path) == before


# ---------------------------------------------------------------------------------------------- merge


def pets(path: Path, classes: list[str], first: int, **options: Any) -> tuple[Path, list[NDArray[Any]]]:
    """Six images in some classes, their keys by number from `first` on."""
    images = [picture(12, 12, first + i) for i in range(6)]
    given = [{"image": image, "label": i % len(classes)} for i, image in enumerate(images)]
    keys = [f"{classes[i % len(classes)]}/{first + i}.jpg" for i in range(6)]
    return packed(path, given, classes=classes, keys=keys, **options), images


def test_a_merge_unites_classes_by_name(tmp_path: Path) -> None:
    """The first store's classes keep their numbers, new ones follow; every image keeps the name of its class."""
    stores, images, names = [], [], []
    for k, classes in enumerate((["cat", "dog"], ["bird", "dog"], ["dog", "ant", "cat"])):
        store, some = pets(tmp_path / f"{k}", classes, 100 * k, format=("memmap", "hdf5", "memmap")[k])
        stores.append(store)
        images += some
        names += [classes[i % len(classes)] for i in range(6)]
    summary = rawpack_packer.merge(stores, tmp_path / "all", format="hdf5", workers=0)
    assert summary.manifest.classes == ("cat", "dog", "bird", "ant")
    assert [summary.manifest.classes[label] for label in labels_of(tmp_path / "all")] == names
    np.testing.assert_array_equal(np.array(values_of(tmp_path / "all")), np.array(images))
    assert len(manifest_of(tmp_path / "all")["recipe"]["origin"]) == 3


def test_keys_that_are_in_several_stores_are_refused_and_prefixed(tmp_path: Path) -> None:
    """The error counts and names them; --prefix puts the folder's name or a number in front."""
    a, b = (pets(tmp_path / name, ["x"], first)[0] for name, first in (("a", 0), ("b", 3)))
    said = refusal("merge", a, b, tmp_path / "ab")
    assert all(words in said for words in ("3 keys are in more than one", "'x/3.jpg'", "--prefix"))
    for prefix, (first, second) in (("names", "ab"), ("numbers", "01")):
        assert run("merge", "-q", "--prefix", prefix, a, b, tmp_path / prefix).code == 0
        wanted = [f"{first}/x/{i}.jpg" for i in range(6)] + [f"{second}/x/{i}.jpg" for i in range(3, 9)]
        assert keys_of(tmp_path / prefix) == wanted
    assert "--prefix numbers" in refusal("merge", "--prefix", "names", a, a, tmp_path / "ab")
    assert not (tmp_path / "ab").exists()


def test_what_does_not_go_together_is_refused_with_the_cure(tmp_path: Path) -> None:
    """Sizes, formats, fields, dtypes, classes that differ: both stores, what differs, and what to do. Where the option
    that brings them together is given, they are merged."""
    a, images = pets(tmp_path / "a", ["x"], 0)
    jpeg, _ = pets(tmp_path / "jpeg", ["x"], 20, format="lmdb")
    image, small = picture(12, 12, 1), picture(9, 7, 1)
    for name, given, classes, words in (
        ("other", image, None, "has a field 'label'"),
        ("odd", {"image": image, "label": 0.5}, None, "float64"),
        ("none", {"image": image, "label": 0}, None, "has classes, and"),
        ("grey", {"image": image[..., :1], "label": 0}, ["x"], "rawpack convert --color"),
        ("small", {"image": small, "label": 0}, ["x"], "rawpack convert --size"),
        ("jpeg", None, None, "--format"),
    ):
        if given is not None:
            packed(tmp_path / name, [given], classes=classes, keys=["other"])
        said = refusal("merge", a, tmp_path / name, tmp_path / "made")
        assert words in said
        assert str(tmp_path / name) in said
        assert not (tmp_path / "made").exists()
    for options, other, made in (
        ("--size 6", "small", "sized"),
        ("--size keep", "small", "kept"),
        ("--format memmap", "jpeg", "raw"),
        ("--format lmdb", "jpeg", "jpegs"),
    ):
        assert run("merge", "-q", *options.split(), a, tmp_path / other, tmp_path / made).code == 0
    assert {value.shape for value in values_of(tmp_path / "sized")} == {(6, 6, 3)}
    np.testing.assert_array_equal(values_of(tmp_path / "kept")[6], small)
    np.testing.assert_array_equal(values_of(tmp_path / "raw")[5], images[5])
    assert lmdb_values(tmp_path / "jpegs")[6:] == lmdb_values(jpeg)


# ---------------------------------------------------------------------------------------------- subset


ZOO = ["ant", "bee", "c,d"]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 ants, 30 bees, 10 "c,d", two without a class: in this order; and files that name rows, keys and classes."""
    labels = [0] * 60 + [1] * 30 + [2] * 10 + [-1] * 2
    given = [{"image": np.full((4, 4, 3), i, np.uint8), "label": label} for i, label in enumerate(labels)]
    store = packed(tmp_path_factory.mktemp("zoo") / "zoo", given, classes=ZOO)
    for name, text in {
        "rows.txt": "7\n3\n3\n", "keys.txt": "00000099\r\n00000003\n", "keys.json": '["00000007", "00000003"]',
        "classes": "c,d\n", "absent": "00000003\nabsent\n", "late": "102", "none": "[]",
    }.items():  # fmt: skip
        store.with_name(name).write_text(text)
    np.save(store.with_name("rows.npy"), np.array([99, 3]))
    return store


def rows_of(store: Path) -> list[int]:
    """Which samples of `zoo` a store has: their pixels say it."""
    return [int(value[0, 0, 0]) for value in values_of(store)]


@pytest.mark.parametrize(
    ("options", "rows", "classes"),
    [
        ("--classes c,d --classes bee", range(60, 100), ["bee", "c,d"]),
        ("--classes bee,ant --every 30", [0, 30, 60], ["ant", "bee"]),
        ("--limit 6", [0, 17, 34, 51, 68, 85], ZOO),
        ("--per-class 2", [0, 30, 60, 75, 90, 95, 100, 101], ZOO),
        ("--classes ant,bee --per-class 3 --limit 2", [0, 60], ["ant", "bee"]),
        ("--classes c,d --keep-labels --limit 1", [90], ZOO),
        ("--rows-from rows.txt", [3, 7], ZOO),
        ("--keys-from keys.json --rows-from rows.npy", [3], ZOO),
        ("--keys-from keys.txt --classes-from classes", [99], ["c,d"]),
    ],
)
def test_a_subset_is_what_was_asked_for(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, rows: Any, classes: list[str]
) -> None:
    """Classes, each n-th, so many in all or of each class, evenly spaced, rows or keys of files: in the stored order,
    each once. Labels of chosen classes are counted anew, unless they are to stay."""
    monkeypatch.chdir(zoo.parent)
    made = tmp_path / "some"
    ran = run("subset", "--json", *options.split(), zoo, made)
    assert (ran.code, json.loads(ran.out)["samples"]) == (0, len(rows)), ran.err
    assert rows_of(made) == list(rows)
    assert keys_of(made) == [f"{row:08d}" for row in rows]
    assert manifest_of(made)["classes"] == classes
    was = ["ant"] * 60 + ["bee"] * 30 + ["c,d"] * 10 + [None, None]
    assert [[*classes, None][label] for label in labels_of(made)] == [was[row] for row in rows]


def test_a_seed_takes_others_at_random_and_the_same_again(zoo: Path, tmp_path: Path) -> None:
    """Equal seeds give equal stores, others others, in the stored order."""
    found = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        rawpack_packer.subset(zoo, tmp_path / name, limit=20, seed=seed, workers=0)
        found[name] = rows_of(tmp_path / name)
        assert found[name] == sorted({*found[name]})
    assert len(found["a"]) == 20
    assert found["a"] == found["b"] != found["c"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--classes cow", "no class 'cow'"),
        ("--keys-from absent", "1 of the keys are not in"),
        ("--rows-from late", "no row 102"),
        ("--rows-from none", "no sample of"),
    ],
)
def test_a_subset_that_cannot_be_is_refused(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, words: str
) -> None:
    """What is not there, or makes no sense: one line with the value, and nothing written."""
    monkeypatch.chdir(zoo.parent)
    assert words in refusal("subset", *options.split(), zoo, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    """--dry-run says what it would take, as text and as JSON, and leaves no trace."""
    source = store_of(tmp_path / "source", "memmap")
    before = states_of(tmp_path)
    for samples, size, args in (
        (COUNT, "store_bytes", ("convert", source)),
        (7, "store_bytes", ("subset", "--limit", 7, source)),
        (2 * COUNT, "store_bytes", ("merge", "--prefix", "numbers", source, source)),
        (COUNT, "files_bytes", ("export", source)),
    ):
        ran = run(*args, "--dry-run", tmp_path / "made")
        assert (ran.code, "Nothing was written" in ran.out) == (0, True), ran
        said = json.loads(run(*args, "--dry-run", "--json", tmp_path / "made").out)
        assert said["samples"] == samples
        assert said[size] > samples * 20 * 28 * (3 + 1 + 2)
    assert states_of(tmp_path) == before
