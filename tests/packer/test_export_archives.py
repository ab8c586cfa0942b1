"""`rawpack export --to webdataset` and `--to parquet`: every sample comes back, read by other libraries.

What is right is read by the webdataset library, GNU tar, tarfile, pyarrow, Pillow and liblmdb.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest
from folders import files_of, flip, lmdb_values, states_of
from forked import Forks
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import encoded, picture, save
from PIL import Image
from running import Ran, run_here
from webdataset import tariterators

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack_packer.exporting.webdataset import escaped

ALL = [
    {
        "image": picture(14 + i % 3, 18, i),
        "label": (i % 3) - (i % 3 == 2) * 3,
        "number": -(1 << 62) + i,
        "yes": bool(i % 2),
        "half": np.float16(i / 4),
        "vector": np.array([[0.1 * i, np.nan], [np.inf, -1]], np.float32),
        "boxes": np.arange(4 * (i % 3), dtype=np.float32).reshape(-1, 4) / 7,
        "words": '"naïve", {}\n文' if i else "",
        "mask": np.full((14 + i % 3, 18), i, np.uint8),
    }
    for i in range(11)
]
KEYS = [f"some.where/{i}.jpg" for i in range(11)]
NAMES = ["z", " b"]
SPLIT_UP = {"webdataset": "9KB", "parquet": "3KB"}
"""--shard-size that divides these samples among several shards, in every format."""


def packed(path: Path, samples: Any, **options: Any) -> Path:
    rawpack_packer.pack(samples, path, **{"workers": 0, "shard_size": "1"} | options)
    return path


@pytest.fixture(params=["memmap", "lmdb"])
def everything(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with a field of each kind, two classes, and samples without a class."""
    return packed(
        tmp_path / "store", ALL, fields={"boxes": "float32[?,4]", "mask": "mask"}, keys=KEYS, classes=NAMES,
        image=("uint8", (None, None, 3)), format=request.param,
    )  # fmt: skip


def export(to: str, *args: object) -> Ran:
    return run_here("export", "-q", "--to", to, *args)


def exported(to: str, store: Path, out: Path, *args: object) -> Path:
    ran = export(to, *args, store, out)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    return out


def read_by_webdataset(folder: Path) -> list[dict[str, Any]]:
    """All samples of the shards, as bytes, in their order. `WebDataset` itself calls these, and leaves files open."""
    with ExitStack() as files:
        paths = sorted(folder.glob("*.tar"))
        streams = ({"url": path.name, "stream": files.enter_context(path.open("rb"))} for path in paths)
        found = list(tariterators.group_by_keys(tariterators.tar_file_expander(streams)))
    for sample in found:
        del sample["__url__"]
    return found


def members_of(folder: Path) -> list[tarfile.TarInfo]:
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            found += tar.getmembers()
    return found


def note_of(folder: Path) -> dict[str, Any]:
    note: dict[str, Any] = json.loads((folder / "export.json").read_text("utf-8"))
    return note


# ---------------------------------------------------------------------------------------------- WebDataset


def tables_in(out: Path) -> list[dict[str, Any]]:
    """The rows of all Parquet files."""
    return [row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def rows_in(out: Path, kind: str) -> list[dict[str, Any]]:
    """What other libraries read: files of images and masks as bytes, labels, and all other fields."""
    if rows := tables_in(out):
        assert [row["image"]["path"] for row in rows] == [f"{i}.{kind}" for i in range(len(rows))]
        return [row | {name: row[name]["bytes"] for name in ("image", "mask")} for row in rows]
    samples = read_by_webdataset(out)
    assert [sample["__key__"] for sample in samples] == [f"some.where/{i}" for i in range(len(samples))]
    assert all(sample.keys() == {"__key__", kind, "mask.png", "json", "cls"} for sample in samples)
    return [
        {"image": sample[kind], "mask": sample["mask.png"], "label": int(sample["cls"])} | json.loads(sample["json"])
        for sample in samples
    ]


@pytest.mark.parametrize("to", ["webdataset", "parquet"])
def test_every_field_is_read_by_other_libraries(everything: Path, tmp_path: Path, to: str) -> None:
    """Images and masks as files, labels with -1 for none, and all other fields, in several shards."""
    out = exported(to, everything, tmp_path / "out", "--shard-size", SPLIT_UP[to])
    files = lmdb_values(everything)  # none of memmap
    for i, (row, one) in enumerate(zip(rows_in(out, "jpg" if files else "png"), ALL, strict=True)):
        names = "key label number yes half vector boxes words"
        assert " ".join(sorted(row)) == " ".join(sorted([*names.split(), "image", "mask"]))
        assert row["key"] == KEYS[i]
        for name in ("label", "number", "yes", "half", "words"):
            assert row[name] == one[name]
        for name in ("vector", "boxes"):
            np.testing.assert_array_equal(np.array(row[name], np.float32).reshape(one[name].shape), one[name])
        if files:
            assert row["image"] == files[i]
        for name in ("mask",) if files else ("image", "mask"):
            np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(row[name]))), one[name])
    note = note_of(out)
    count = len(note["shards"])
    assert count > 2
    name = "train-{:06d}.tar" if to == "webdataset" else f"train-{{:05d}}-of-{count:05d}.parquet"
    assert [one["file"] for one in note["shards"]] == [name.format(i) for i in range(count)]
    assert (sum(one["samples"] for one in note["shards"]), note["classes"]) == (11, NAMES)


def test_tables_have_types_and_leave_files_uncompressed(everything: Path, tmp_path: Path) -> None:
    """Types of Arrow, and of Hugging Face; images are compressed already."""
    path = exported("parquet", everything, tmp_path / "out") / "train-00000-of-00001.parquet"
    schema, group = pq.read_schema(path), pq.ParquetFile(path).metadata.row_group(0)
    assert {field.name: str(field.type) for field in schema} == {
        "image": "struct<bytes: binary, path: string>",
        "key": "string",
        "label": "int64",
        "number": "int64",
        "yes": "bool",
        "half": "halffloat",
        "vector": "fixed_size_list<element: fixed_size_list<element: float>[2]>[2]",
        "boxes": "list<element: fixed_size_list<element: float>[4]>",
        "words": "string",
        "mask": "struct<bytes: binary, path: string>",
    }
    codecs = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
    assert {name for name, codec in codecs.items() if codec == "UNCOMPRESSED"} == {"image.bytes", "mask.bytes"}
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == features["mask"] == {"_type": "Image"}
    assert features["label"] == {"names": NAMES, "_type": "ClassLabel"}


def test_files_that_were_packed_as_they_are_come_back_under_their_names(tmp_path: Path) -> None:
    """JPEG files of a folder, through a store: GNU tar extracts the same names and bytes, and nothing else but labels.
    Headers are those of POSIX, without times and users; only what does not fit has one of pax."""
    long, longer = f"{'d' * 70}/{'e' * 70}/{'f' * 60}.jpg", f"{'d' * 200}/{'e' * 120}.jpg"
    names = ["a/1.jpg", "a/2.JPEG", "b c/x-y_z.jpg", "v1.5/x.jpg", long, longer, "ü/文.jpg"]
    for i, name in enumerate(names):
        save(tmp_path / "in" / name, picture(20, 30 + i, i), format="JPEG")
    store = packed(tmp_path / "store", tmp_path / "in", format="lmdb", size="keep", quality="keep")
    out = exported("webdataset", store, tmp_path / "out")
    (tmp_path / "back").mkdir()
    subprocess.run(["tar", "-xf", out / "train-000000.tar", "-C", tmp_path / "back"], check=True)
    back = files_of(tmp_path / "back")
    assert {name: data for name, data in back.items() if not name.endswith(".cls")} == files_of(tmp_path / "in")
    classes = (out / "classes.txt").read_text("utf-8").splitlines()
    for name in names:
        assert classes[int(back[str(Path(name).with_suffix(".cls"))])] == name.split("/")[0]
    raw = (out / "train-000000.tar").read_bytes()
    assert len(raw) % 10240 == 0
    for one in members_of(out):
        assert (one.mode, one.mtime, one.uid, one.gid, one.uname, one.gname) == (0o644, 0, 0, 0, "", "")
        assert raw[one.offset_data - 512 + 257 :][:8] == b"ustar\x0000"
        assert bool(one.pax_headers) == (one.name.startswith(("ü", "d" * 200)))
    assert len(read_by_webdataset(out)) == len(names)


ODD = [
    "a.b.jpg", "a.c.jpg", "x/y.z/v1.5.tar.jpg", "same.jpg", "same.png", "no extension", ".hidden", "..", "a/../b",
    "a/./b", "/etc/passwd", "//a", "a//b", "a/b/", "line\nbreak/two\nlines.jpg", "back\\slash.jpg", "nul\0byte",
    "__meta__/x.jpg", "__y__", "100%.jpg", "%2E.jpg", "%252E", "a%2Eb.jpg", "Case.jpg", "case.jpg", "aux",
    "文 и ü/é.jpg", "e\u0301.jpg", "w" * 130, "v" * 300, f"{'u' * 90}/{'t' * 80}.jpg", "trailing. ", "*?<>|:\"'",
    "\u2028\x85 ", "-rf", "ends.cls", "x.json",
]  # fmt: skip


@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_odd_keys_survive(tmp_path: Path, layout: str) -> None:
    """Every sample comes back alone, in its order, whatever its key; the key is in its JSON, and is what its name says
    without escapes. No member leads out of a folder, and the library would skip none."""
    given = [{"image": picture(8, 9, i), "label": i} for i in range(len(ODD))]
    store = packed(tmp_path / "store", given, keys=ODD, format=layout)
    out = exported("webdataset", store, tmp_path / "out", "--shard-size", "30KB")
    samples = read_by_webdataset(out)
    assert len(list(out.glob("*.tar"))) > 1
    assert [json.loads(sample["json"])["key"] for sample in samples] == ODD
    assert [int(sample["cls"]) for sample in samples] == list(range(len(ODD)))
    assert len({sample["__key__"] for sample in samples}) == len(ODD)
    for key, sample in zip(ODD, samples, strict=True):
        if "%" not in key:
            assert unquote(sample["__key__"]) in (key, key.removesuffix(".jpg"))
        if layout == "memmap":
            np.testing.assert_array_equal(
                np.asarray(Image.open(io.BytesIO(sample["png"]))), Reader(store)[int(sample["cls"])]["image"]
            )
    for one in members_of(out):
        tarfile.data_filter(one, str(tmp_path))
        assert one.isreg()
        assert not {"..", ".", ""} & set(one.name.split("/"))
        assert not set(one.name) & set("\n\\\0")
    for one in (
        "a%2Eb%2Ejpg", "a%252Eb%2Ejpg", "a%2Ec", "same%2Ejpg", "same%2Epng", "100%", "%2E", "%252E", "Case", "case",
        "%2Fetc/passwd", "%5F_meta__/x", "a/%2E%2E/b",
    ):  # fmt: skip
        assert one in {sample["__key__"] for sample in samples}


@settings(max_examples=3 * settings().max_examples)
@given(st.text(st.sampled_from("aA./\\_%2E5F\n\0é "), min_size=1, max_size=10))
def test_whatever_the_key_the_library_finds_it(key: str) -> None:
    """The name is split where it should be, is not skipped, leads nowhere, and says what the key is."""
    name = escaped(key)
    assert tariterators.base_plus_ext(f"{name}.seg.png") == (name, "seg.png")
    assert not re.match(r"__[^/]*__($|/)", f"{name}.png")
    assert not {"..", ".", ""} & set(f"{name}.png".split("/"))
    if not re.search("%[0-9A-Fa-f]{2}", key):
        assert unquote(name) == key


@pytest.mark.parametrize(
    ("keys", "layout", "has_json"),
    [
        (["a.jpg", "b.jpg", "c.d.jpg"], "lmdb", False),
        (["a.jpg", "b.jpg", "c.jpg"], "memmap", True),
        (["a", "b", "c.d"], "memmap", False),
        (["a%2Eb", "b.c"], "lmdb", True),
        (["a", "b", "c.jpg"], "lmdb", True),
    ],
)
def test_json_only_where_something_is_in_it(tmp_path: Path, keys: list[str], layout: str, has_json: bool) -> None:
    """Images and labels alone: no JSON, if the names say what the keys are; else, and with --numbered, all have one."""
    store = packed(tmp_path / "s", [{"image": picture(8, 9, i), "label": i} for i in range(len(keys))], keys=keys,
                   format=layout)  # fmt: skip
    samples = read_by_webdataset(exported("webdataset", store, tmp_path / "out"))
    assert [("json" in one, int(one["cls"])) for one in samples] == [(has_json, i) for i in range(len(keys))]
    samples = read_by_webdataset(exported("webdataset", store, tmp_path / "numbers", "--numbered"))
    found = [(sample["__key__"], json.loads(sample["json"])) for sample in samples]
    assert found == [(f"{i:08d}", {"key": key}) for i, key in enumerate(keys)]


@pytest.mark.parametrize(("labels", "member"), [([-1, 1], "cls"), ([0.5, 2.0], "json")])
def test_labels_that_are_not_class_numbers(tmp_path: Path, labels: list[float], member: str) -> None:
    """-1 is a number where there are no classes; a label that is no whole number is in the JSON."""
    store = packed(tmp_path / "store", [{"image": picture(8, 9, 0), "label": label} for label in labels])
    samples = read_by_webdataset(exported("webdataset", store, tmp_path / "out"))
    found = [json.loads(sample[member]) for sample in samples]
    assert [one["label"] for one in found] if member == "json" else found == labels
    assert all(("cls" in sample) == (member == "cls") for sample in samples)


# ---------------------------------------------------------------------------------------------- Parquet


def test_row_groups_have_about_a_hundred_megabytes(tmp_path: Path) -> None:
    """A reader holds one row group at a time, so a table has several."""
    store = packed(tmp_path / "store", [picture(30, 30, i) for i in range(20)], format="lmdb")
    with mock.patch("rawpack_packer.exporting.parquet._GROUP_BYTES", max(map(len, lmdb_values(store))) * 4):
        about = pq.read_metadata(exported("parquet", store, tmp_path / "out") / "train-00000-of-00001.parquet")
    rows = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    assert sum(rows) == 20
    assert all(4 <= one < 8 for one in rows[:-1])


@pytest.mark.parametrize("to", ["files", "webdataset", "parquet"])
def test_a_full_disk_is_seen_before_anything_is_written(tmp_path: Path, to: str) -> None:
    """Too little room: the sizes, and no folder."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(3)])
    with mock.patch("rawpack_packer.destination.folder.free_bytes", return_value=100):
        ran = export(to, store, tmp_path / "out")
    assert (ran.code, "free some space" in ran.err, (tmp_path / "out").exists()) == (2, True, False)


# ---------------------------------------------------------------------------------------------- packed again


@pytest.mark.parametrize("labels", [[0, -1, 1, -1], [-1] * 4])
@pytest.mark.parametrize(
    ("to", "classes"), [("webdataset", ["z", "b", "never"]), ("webdataset", None), ("parquet", ["z", "b", "never"])]
)
def test_labels_and_classes_come_back(tmp_path: Path, to: str, labels: list[int], classes: list[str] | None) -> None:
    """A store, its export, and the store that is packed from it have the same keys, labels, names of classes and files,
    also where samples have none, or no sample has one. A class without samples stays."""
    keys = [f"{i}.jpg" for i in range(4)]
    images = [encoded(picture(20, 30, i), "JPEG") for i in range(4)]
    given = [{"image": image, "label": label} for image, label in zip(images, labels, strict=True)]
    options: dict[str, Any] = {"format": "lmdb", "size": "keep", "quality": "keep"}
    store = packed(tmp_path / "store", given, keys=keys, classes=classes, **options)
    again = packed(tmp_path / "again", exported(to, store, tmp_path / "out"), **options)
    reader = Reader(again)
    found = {Path(key).stem: label for key, label in zip(reader.column("key"), reader.column("label"), strict=True)}
    assert found == {str(i): label for i, label in enumerate(labels)}
    assert reader.classes == Reader(store).classes == (classes and tuple(classes))
    assert lmdb_values(again) == images


def test_null_labels_in_tables_are_missing(tmp_path: Path) -> None:
    """In a Parquet file by others, null and -1 are the label of a sample without a class."""
    import pyarrow as pa

    image = save(tmp_path / "x.jpg", picture(20, 30, 0)).read_bytes()
    features = {"image": {"_type": "Image"}, "label": {"names": ["a", "b"], "_type": "ClassLabel"}}
    table = pa.table({"image": [{"bytes": image, "path": None}] * 4, "label": pa.array([None, 1, -1, 0], pa.int64())})
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(about), tmp_path / "x.parquet")
    reader = Reader(packed(tmp_path / "store", tmp_path / "x.parquet", size=16))
    assert ([int(reader[i]["label"]) for i in range(4)], reader.classes) == ([-1, 1, -1, 0], ("a", "b"))


@pytest.mark.parametrize("text", ["x\n", "x\nx\n", "", "\xff"])
def test_a_file_of_names_that_does_not_fit(tmp_path: Path, text: str) -> None:
    """A classes.txt next to shards that has other names, or none, changes nothing but a line of the summary; --classes
    counts more than it."""
    given = [{"image": picture(20, 30, i), "label": i} for i in range(2)]
    out = exported("webdataset", packed(tmp_path / "store", given), tmp_path / "out")
    (out / "classes.txt").write_bytes(text.encode("latin-1"))
    ran = run_here("pack", "--size", 16, "--workers", 0, out, tmp_path / "again")
    assert (ran.code, "no names of classes: " in ran.out + ran.err) == (0, True), ran
    reader = Reader(tmp_path / "again")
    assert (reader.classes, list(reader.column("label"))) == (None, [0, 1])
    named = packed(tmp_path / "named", out, size=16, classes=["y", "z"])
    assert Reader(named).classes == ("y", "z")


# ---------------------------------------------------------------------------------------------- again, and after a kill


@pytest.mark.parametrize("to", ["files", "webdataset", "parquet"])
def test_the_same_bytes_every_time(everything: Path, tmp_path: Path, to: str) -> None:
    """With one worker or several, in one run or in two, over files that are there already: the same files. What is
    complete stays as it is; a file that was removed comes back, and no other is written."""
    options, one = ("--shard-size", SPLIT_UP[to]) if to in SPLIT_UP else (), tmp_path / "one"
    first = files_of(exported(to, everything, one, *options, "--workers", 1))
    assert files_of(exported(to, everything, tmp_path / "two", *options, "--workers", 3)) == first
    before = states_of(one)
    said = json.loads(run_here("export", "--json", "--to", to, *options, everything, one).out)
    assert (said["already_complete"], said["samples"], said["written_now"]) == (True, 11, 0)
    assert states_of(one) == before
    gone = sorted(name for name in first if name.endswith((".tar", ".parquet", ".png", ".jpg")))[1]
    (one / gone).unlink()
    done = rawpack_packer.export(everything, one, to=to, shard_size=SPLIT_UP.get(to))
    assert (done.written_now, done.bytes_written, done.samples) == (1, len(first[gone]), 11)
    assert files_of(one) == first
    changed = {name for name, state in states_of(one).items() if state != before[name]}
    assert changed <= {gone, "export.json", "metadata.jsonl", "README.md"}


KILLED = """
import pathlib, killed_child
class Killer(killed_child.Killer):
    "Kills as a shard is synced, half of which is on the disk."
    def _step(self, what):
        if what.startswith("fsync ") and "{shard}" in what:
            self._left = 0
            super()._step(what)
Killer(pathlib.Path("{out}"), 1, True, pathlib.Path("{out} words")).install()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
@pytest.mark.parametrize("to", ["webdataset", "parquet"])
def test_a_killed_export_resumes(forks: Forks, tmp_path: Path, to: str) -> None:
    """SIGKILL in the first shard, and later: every shard that has its name is complete and stays as it is, and the end
    is the same as that of an export that was not disturbed."""
    images = np.random.default_rng(0).integers(0, 256, (90, 32, 32, 3)).astype(np.uint8)
    store, options = packed(tmp_path / "store", images), ("--to", to, "--shard-size", "40KB")
    assert run_here("export", "-q", *options, store, tmp_path / "whole").code == 0
    whole, out, ending = files_of(tmp_path / "whole"), tmp_path / "out", "tar" if to == "webdataset" else "parquet"
    shards = sorted(name for name in whole if name.endswith(ending))
    assert len(shards) > 5
    before: dict[str, Any] = {}
    for killed in (0, 4):
        ran = forks.command("export", "-q", *options, store, out, before=KILLED.format(shard=shards[killed], out=out))
        assert ran.code == -9, ran
        assert (out / ".rawpack" / f"{shards[killed]}.tmp").stat().st_size < len(whole[shards[killed]])
        done = {name: state for name, state in states_of(out).items() if name in shards}
        assert sorted(done) == shards[:killed]
        assert all((out / name).read_bytes() == whole[name] for name in done)
        assert done.items() >= before.items()
        before = done
    assert not (out / "export.json").exists()
    assert run_here("export", "-q", *options, store, out).code == 0
    assert files_of(out) == whole
    assert states_of(out).items() >= done.items()


@pytest.mark.parametrize("to", ["files", "webdataset", "parquet"])
def test_damaged_samples_are_left_out_and_stay_listed(tmp_path: Path, to: str) -> None:
    """One bit of a sample: nothing of it but a line in rejects.jsonl; too many are an error. A run that resumes, or
    writes one file again, knows the rejects of the others."""
    store = packed(tmp_path / "store", [picture(40, 40, i) for i in range(20)], format="lmdb")
    offsets = np.load(store / "columns-1" / "image.offset.npy")
    for row in (3, 17):
        flip(store / "shard-00000.lmdb", offsets[row] + 300)
    out, options = tmp_path / "out", () if to == "files" else ("--shard-size", "5KB")
    ran = export(to, *options, "--max-rejects", 1, store, out)
    assert (ran.code, "--max-rejects" in ran.err, (out / "export.json").exists()) == (1, True, False)
    assert len(ran.err.splitlines()) == 1
    exported(to, store, out, *options, "--max-rejects", 2)
    first, note = files_of(out), note_of(out)
    lines = [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]
    assert [(line["key"], line["reason"]) for line in lines] == [("00000003", "damaged"), ("00000017", "damaged")]
    assert (note["samples"], note["rejected"]) == (18, 2)
    keys = [f"{i:08d}" for i in range(20) if i not in (3, 17)]
    if to == "files":
        written = sorted(path.name for path in out.glob("*.jpg"))
        assert written == [f"{key}.jpg" for key in keys]
        listing = (out / "metadata.jsonl").read_text().splitlines()
        assert [json.loads(line)["key"] for line in listing] == keys
    else:
        written = [one["file"] for one in note["shards"]]
        assert len(written) > 1
        found = [row["key"] for row in tables_in(out)] or [row["__key__"] for row in read_by_webdataset(out)]
        assert (found, sum(one["samples"] for one in note["shards"])) == (keys, 18)
    for name in (written[0], written[-1]):
        (out / name).unlink()
        exported(to, store, out, *options, "--max-rejects", 2)
        assert files_of(out) == first


# ---------------------------------------------------------------------------------------------- what is refused


def test_what_is_refused_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    """Options of another target, keys and fields that a target cannot hold."""
    image = picture(8, 8, 0)
    for name, keys in {"plain": None, "empty": ["a", ""], "same": ["x.jpg", "x.png", "x.jpg.jpg"]}.items():
        packed(tmp_path / name, [image] * len(keys or "abc"), keys=keys)
    before = states_of(tmp_path)
    for options, store, words in [
        ("files --split val", "plain", "--split applies to --to webdataset and --to parquet only"),
        ("files --shard-size 1GB", "plain", "--shard-size applies to"),
        ("parquet --numbered", "plain", "--numbered applies to --to files and --to webdataset only"),
        ("webdataset --shard-size much", "plain", "--shard-size 'much'"),
        ("webdataset --split a/b", "plain", "--split 'a/b'"),
        ("webdataset", "empty", "'' is empty"),
        ("webdataset", "same", "'x.jpg' and another are the same"),
    ]:
        ran = export(*options.split(), tmp_path / store, tmp_path / "out")
        assert (ran.code, words in ran.err, len(ran.err.splitlines())) == (2, True, 1), ran
    with pytest.raises(UsageError, match="to='tar': must be one of files, webdataset, parquet"):
        rawpack_packer.export(tmp_path / "plain", tmp_path / "out", to="tar")
    assert states_of(tmp_path) == before


def test_another_export_in_the_folder_is_refused(tmp_path: Path) -> None:
    """Of another target, shard size or split: nothing is touched. So is what stands where a shard should."""
    store, out = packed(tmp_path / "store", [picture(8, 8, i) for i in range(3)]), tmp_path / "out"
    exported("webdataset", store, out)
    exported("files", store, tmp_path / "files")
    before = states_of(tmp_path)
    for arguments in (
        ("files", store, out),
        ("parquet", store, out),
        ("webdataset", "--shard-size", "2GB", store, out),
        ("webdataset", "--split", "val", store, out),
        ("webdataset", store, tmp_path / "files"),
    ):
        ran = export(*arguments)
        assert (ran.code, "name another folder" in ran.err) == (2, True), ran
    assert states_of(tmp_path) == before
    shutil.move(out / "train-000000.tar", tmp_path / "elsewhere")
    (out / "train-000000.tar").symlink_to(tmp_path / "elsewhere")
    ran = export("webdataset", store, out)
    assert (ran.code, "is not a file; remove it" in ran.err) == (1, True)


def test_shards_are_named_after_the_split_that_a_store_is(tmp_path: Path) -> None:
    """Of a split, of one that is called otherwise, and of a set of splits, each in its folder."""
    rawpack_packer.pack_splits(np.zeros((8, 8, 8, 3), np.uint8), tmp_path / "set", holdout={"val": 2}, workers=0)
    exported("webdataset", tmp_path / "set/val", tmp_path / "one")
    exported("parquet", tmp_path / "set/val", tmp_path / "table", "--split", "dev")
    exported("webdataset", tmp_path / "set", tmp_path / "all")
    assert {path for path in files_of(tmp_path) if path.endswith((".tar", ".parquet"))} == {
        "one/val-000000.tar", "table/dev-00000-of-00001.parquet", "all/train/train-000000.tar",
        "all/val/val-000000.tar",
    }  # fmt: skip
