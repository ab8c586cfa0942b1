"""`rawpack export`: a store back into files, archives or tables, each the very sample, none outside the folder.

What is right is read by Pillow, numpy, OpenCV, liblmdb, the webdataset library, GNU tar and pyarrow, and said by the
samples themselves.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import unicodedata
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from draws import tries
from folders import files_of, flip, lmdb_values, states_of
from forked import Forks
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_child import killing
from pictures import encoded, picture, save
from PIL import Image
from running import Ran, pack, run_here
from webdataset import tariterators

import rawpack_packer
from rawpack import PackError, Reader, UsageError
from rawpack.system import writing
from rawpack.transforms import CenterCrop
from rawpack_packer.exporting.target import Names, check_names
from rawpack_packer.exporting.webdataset import escaped
from rawpack_packer.job import NoProgress
from rawpack_packer.sources import open_source

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
TARGETS = ("files", "webdataset", "parquet")
SPLIT_UP = {"files": (), "webdataset": ("--shard-size", "9KB"), "parquet": ("--shard-size", "3KB")}
"""What divides these samples among several shards, in every format."""
KEEP: dict[str, Any] = {"format": "lmdb", "size": "keep", "quality": "keep"}


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


def refusal(to: str, *args: object, code: int = 2) -> str:
    """What an export that is refused says, in its one line."""
    ran = export(to, *args)
    assert (ran.code, len(ran.err.splitlines())) == (code, 1), ran
    return ran.err


def listing_of(folder: Path, name: str = "metadata.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def note_of(folder: Path) -> dict[str, Any]:
    note: dict[str, Any] = json.loads((folder / "export.json").read_text("utf-8"))
    return note


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


def tables_in(out: Path) -> list[dict[str, Any]]:
    """The rows of all Parquet files."""
    return [row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def pixels_of(file: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(file)))


# ---------------------------------------------------------------------------------------------- what is written


def rows_in(out: Path, to: str, kind: str) -> list[dict[str, Any]]:
    """What other libraries read: files of images and masks as bytes, labels by number, and all other fields."""
    if to == "parquet":
        rows = tables_in(out)
        assert [row["image"]["path"] for row in rows] == [f"{i}.{kind}" for i in range(len(rows))]
        return [row | {name: row[name]["bytes"] for name in ("image", "mask")} for row in rows]
    if to == "files":
        rows, numbers = listing_of(out), {None: -1} | {name: i for i, name in enumerate(NAMES)}
        assert [row.pop("file_name") for row in rows] == [f"some.where/{i}.{kind}" for i in range(len(rows))]
        for i, row in enumerate(rows):
            row["image"] = (out / f"some.where/{i}.{kind}").read_bytes()
            row["mask"] = (out / row.pop("mask_file_name")).read_bytes()
            row["label"] = numbers[row["label"]]
        return rows
    samples = read_by_webdataset(out)
    assert [sample["__key__"] for sample in samples] == [f"some.where/{i}" for i in range(len(samples))]
    assert all(sample.keys() == {"__key__", kind, "mask.png", "json", "cls"} for sample in samples)
    return [
        {"image": sample[kind], "mask": sample["mask.png"], "label": int(sample["cls"])} | json.loads(sample["json"])
        for sample in samples
    ]


@pytest.mark.parametrize("to", TARGETS)
def test_every_field_is_read_by_other_libraries(everything: Path, tmp_path: Path, to: str) -> None:
    """Images and masks as files, labels, also of no class, and all other fields, in several shards."""
    out = exported(to, everything, tmp_path / "out", *SPLIT_UP[to])
    files = lmdb_values(everything)  # none of memmap
    for i, (row, one) in enumerate(zip(rows_in(out, to, "jpg" if files else "png"), ALL, strict=True)):
        assert row.keys() == {"key", *one}
        assert row["key"] == KEYS[i]
        for name in ("label", "number", "yes", "half", "words"):
            assert row[name] == one[name]
        for name in ("vector", "boxes"):
            np.testing.assert_array_equal(np.array(row[name], np.float32).reshape(one[name].shape), one[name])
        if files:
            assert row["image"] == files[i]
        for name in ("mask",) if files else ("image", "mask"):
            np.testing.assert_array_equal(pixels_of(row[name]), one[name])
    if to == "files":
        return
    note = note_of(out)
    count = len(note["shards"])
    assert count > 2
    name = "train-{:06d}.tar" if to == "webdataset" else f"train-{{:05d}}-of-{count:05d}.parquet"
    assert [one["file"] for one in note["shards"]] == [name.format(i) for i in range(count)]
    assert (sum(one["samples"] for one in note["shards"]), note["classes"]) == (11, NAMES)


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 3), ("uint8", 1), ("uint16", 3), ("uint16", 1)])
def test_pixels_become_png(tmp_path: Path, dtype: str, channels: int) -> None:
    """Raw images, grey and RGB, of 8 and 16 bits, and masks: files that hold the very values."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, np.iinfo(dtype).max, (5, 13, 17, channels), endpoint=True).astype(dtype)
    depth = rng.integers(0, 1 << 16, (5, 13, 17)).astype(np.uint16)
    given, keys = {"image": images, "depth": depth}, [f"{i}.jpg" for i in range(5)]
    store = packed(tmp_path / "store", given, fields={"depth": "mask"}, keys=keys, format="hdf5")
    out = exported("files", store, tmp_path / "out")
    for i, line in enumerate(listing_of(out)):
        assert (line["file_name"], line["depth_file_name"]) == (f"{i}.png", f"masks/depth/{i}.png")
        read, mask = (
            cv2.imread(str(out / line[name]), cv2.IMREAD_UNCHANGED) for name in ("file_name", "depth_file_name")
        )
        assert read is not None
        assert read.dtype == dtype
        np.testing.assert_array_equal(read[..., ::-1] if channels == 3 else read[..., None], images[i])
        np.testing.assert_array_equal(mask, depth[i])


@pytest.mark.parametrize("to", ["files", "webdataset"])
def test_files_that_were_packed_as_they_are_come_back_under_their_names(tmp_path: Path, to: str) -> None:
    """JPEG files of a folder, through a store: the same names and bytes, and nothing else but labels; of an archive,
    GNU tar extracts them. Headers are those of POSIX, without times and users; only long names have one of pax."""
    long, longer = f"{'d' * 70}/{'e' * 70}/{'f' * 60}.jpg", f"{'d' * 200}/{'e' * 120}.jpg"
    names = ["a/1.jpg", "a/2.JPEG", "b c/x-y_z.jpg", "v1.5/x.jpg", long, longer, "ü/文.jpg"]
    for i, name in enumerate(names):
        pixels = picture(20, 30 + i, i)
        save(tmp_path / "in" / name, pixels if i % 4 else pixels[..., 0], format="JPEG", progressive=i % 3 == 0)
    store = packed(tmp_path / "store", tmp_path / "in", **KEEP)
    out = exported(to, store, tmp_path / "out")
    back, before = files_of(out), files_of(tmp_path / "in")
    classes = back["classes.txt"].decode().splitlines()
    assert classes == sorted({name.split("/")[0] for name in names})
    if to == "files":
        assert {name: back[name] for name in before} == before
        assert back.keys() - before.keys() == {"metadata.jsonl", "export.json", "classes.txt"}
        assert [(one["file_name"], one["key"]) for one in listing_of(out)] == [(key, key) for key in sorted(before)]
        return
    (tmp_path / "back").mkdir()
    subprocess.run(["tar", "-xf", out / "train-000000.tar", "-C", tmp_path / "back"], check=True)
    back = files_of(tmp_path / "back")
    assert {name: data for name, data in back.items() if not name.endswith(".cls")} == before
    for name in names:
        assert classes[int(back[str(Path(name).with_suffix(".cls"))])] == name.split("/")[0]
    raw = (out / "train-000000.tar").read_bytes()
    assert len(raw) % 10240 == 0
    for one in members_of(out):
        assert (one.mode, one.mtime, one.uid, one.gid, one.uname, one.gname) == (0o644, 0, 0, 0, "", "")
        assert raw[one.offset_data - 512 + 257 :][:8] == b"ustar\x0000"
        assert bool(one.pax_headers) == (one.name.startswith(("ü", "d" * 200)))
    assert len(read_by_webdataset(out)) == len(names)


def test_a_field_that_is_called_as_a_column_of_files_keeps_its_values(tmp_path: Path) -> None:
    """Texts whose names would make them files stand in the listing as texts, each once, and are texts again when it is
    packed."""
    given = [
        {"image": picture(8, 8, i), "seg": np.full((8, 8), i, np.uint8), "Seg_File_Name": f"y{i}", "file_name": f"v{i}"}
        for i in range(2)
    ]
    store = packed(tmp_path / "store", given, fields={"seg": "mask"})
    out = exported("files", store, tmp_path / "out")
    assert listing_of(out)[1] == {
        "file_name": "00000001.png", "key": "00000001", "seg_file_name_file_name": "masks/seg/00000001.png",
        "Seg_File_Name_": "y1", "file_name_": "v1",
    }  # fmt: skip
    sample = Reader(pack(out, tmp_path / "again", "--size", "keep"))[1]
    assert (sample["Seg_File_Name"], sample["file_name_"]) == ("y1", "v1")
    np.testing.assert_array_equal(sample["seg"], Reader(store)[1]["seg"])


@pytest.mark.parametrize("everything", ["memmap"], indirect=True)
def test_tables_have_types_and_row_groups_and_leave_files_uncompressed(everything: Path, tmp_path: Path) -> None:
    """Types of Arrow, and of Hugging Face; a reader holds one row group at a time, of about 100 MB; images are
    compressed already."""
    with mock.patch("rawpack_packer.exporting.parquet._GROUP_BYTES", 4000):
        path = exported("parquet", everything, tmp_path / "out") / "train-00000-of-00001.parquet"
    schema, about = pq.read_schema(path), pq.ParquetFile(path).metadata
    assert [str(schema.field(name).type) for name in ("image", "half", "boxes")] == [
        "struct<bytes: binary, path: string>", "halffloat", "list<element: fixed_size_list<element: float>[4]>",
    ]  # fmt: skip
    columns = [about.row_group(0).column(i) for i in range(about.row_group(0).num_columns)]
    plain = {column.path_in_schema for column in columns if column.compression == "UNCOMPRESSED"}
    assert plain == {"image.bytes", "mask.bytes"}
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == features["mask"] == {"_type": "Image"}
    assert features["label"] == {"names": NAMES, "_type": "ClassLabel"}
    rows = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    assert sum(rows) == 11
    assert all(4 <= one < 8 for one in rows[:-1])


@pytest.mark.parametrize("labels", [[0, -1, 1, -1], [-1] * 4])
@pytest.mark.parametrize(
    ("to", "classes"),
    [("webdataset", None), *((to, ["z", "b ", "never"]) for to in ("webdataset", "parquet", "files"))],
)
def test_labels_and_classes_come_back(tmp_path: Path, to: str, labels: list[int], classes: list[str] | None) -> None:
    """A store, its export, and the store that is packed from it have the same keys, labels, names of classes and files,
    also where samples have none, or no sample has one. A class without samples stays, and so does a blank in a name."""
    images = [encoded(picture(20, 30, i), "JPEG") for i in range(4)]
    given = [{"image": image, "label": label} for image, label in zip(images, labels, strict=True)]
    store = packed(tmp_path / "store", given, keys=[f"{i}.jpg" for i in range(4)], classes=classes, **KEEP)
    again = packed(tmp_path / "again", exported(to, store, tmp_path / "out"), **KEEP)
    reader = Reader(again)
    found = {Path(key).stem: label for key, label in zip(reader.column("key"), reader.column("label"), strict=True)}
    assert found == {str(i): label for i, label in enumerate(labels)}
    assert reader.classes == Reader(store).classes == (classes and tuple(classes))
    assert lmdb_values(again) == images


def test_labels_that_are_no_whole_numbers_are_in_the_json(tmp_path: Path) -> None:
    """Such a label is no class."""
    labels = [0.5, 2.0]
    store = packed(tmp_path / "store", [{"image": picture(8, 9, 0), "label": label} for label in labels])
    out = exported("webdataset", store, tmp_path / "out")
    assert [json.loads(sample["json"])["label"] for sample in read_by_webdataset(out)] == labels


# ---------------------------------------------------------------------------------------------- strange keys

ESCAPED = {
    "a.jpg": "a",
    "b.PNG": "b.PNG",
    "v1.5": "v1.5",
    "/etc/passwd": "%2Fetc/passwd",
    "a/../../outside": "a/%2E%2E/%2E%2E/outside",
    "a//b": "a/%2Fb",
    "C:\\x": "C%3A%5Cx",
    "nul\0byte": "nul%00byte",
    "line\nbreak?": "line%0Abreak%3F",
    "a/COM1.png/x": "a/%43OM1.png/x",
    "trailing./x": "trailing%2E/x",
}


def test_names_of_files_are_keys_that_every_system_can_have_or_numbers(tmp_path: Path) -> None:
    """The end of an image's name gives way to what the file is. What leads elsewhere, or is no name on some system, is
    written as in URLs. --numbered names files by their row. The listing has the key, and nothing lies elsewhere."""
    store = packed(tmp_path / "store", [picture(8, 8, i) for i in range(len(ESCAPED))], keys=[*ESCAPED])
    exported("files", store, tmp_path / "in" / ".." / "out")
    exported("files", store, tmp_path / "numbers", "--numbered")
    for folder, names in (
        ("out", [name if name.endswith("PNG") else f"{name}.png" for name in ESCAPED.values()]),
        ("numbers", [f"{i:08d}.png" for i in range(len(ESCAPED))]),
    ):
        lines = listing_of(tmp_path / folder)
        assert lines == [{"file_name": name, "key": key} for name, key in zip(names, ESCAPED, strict=True)]
        assert all((tmp_path / folder / name).is_file() for name in names)
    assert {path.name for path in tmp_path.iterdir()} <= {"store", "in", "out", "numbers"}


PLACES = Names({"image": ".png", "mask": ".png"}, by_number=False)
PARTS = st.text(st.sampled_from("aAéE\u0301.: /\\\x00ß~nulNUL1"), max_size=8)


@settings(max_examples=tries(400), deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=6, unique=True))
def test_what_is_not_refused_lies_in_the_folder_alone(keys: list[str]) -> None:
    """Whatever keys: either they are refused, or each file has a place of its own below the folder, on any system."""
    try:
        check_names(PLACES, lambda: keys, Path("/some/folder"))
    except UsageError:
        return
    files = [path for row, key in enumerate(keys) for path in PLACES.paths(row, key).values()]
    places = {os.path.normpath(f"/some/folder/{path}") for path in files}
    assert all(place.startswith("/some/folder/") for place in places)
    spelled = {unicodedata.normalize("NFKD", path).lower().rstrip(". ") for path in places}
    assert len(spelled) == len(files)
    assert not any(one.startswith(other + "/") for one in spelled for other in spelled)


ODD = [
    "a.b.jpg", "a.c.jpg", "same.jpg", "same.png", "..", "a/../b", "/etc/passwd", "a//b", "a/b/", "line\nbreak/two.jpg",
    "back\\slash.jpg", "nul\0byte", "__meta__/x.jpg", "100%.jpg", "%2E.jpg", "a%2Eb.jpg", "Case.jpg", "case.jpg",
    "文 и ü/é.jpg", "v" * 300, "\u2028\x85 ", "ends.cls", "x.json",
]  # fmt: skip


def test_odd_keys_survive_in_archives(tmp_path: Path) -> None:
    """Every sample comes back alone, in its order, whatever its key, which is in its JSON. No member leads out of a
    folder, and the library would skip none. --numbered names samples by row."""
    given = [{"image": picture(8, 9, i), "label": i} for i in range(len(ODD))]
    store = packed(tmp_path / "store", given, keys=ODD)
    out = exported("webdataset", store, tmp_path / "out", "--shard-size", "20KB")
    samples = read_by_webdataset(out)
    assert len(list(out.glob("*.tar"))) > 1
    assert [json.loads(sample["json"])["key"] for sample in samples] == ODD
    assert len({sample["__key__"] for sample in samples}) == len(ODD)
    assert {"a%2Eb%2Ejpg", "a%252Eb%2Ejpg", "a%2Ec", "%5F_meta__/x"} < {sample["__key__"] for sample in samples}
    for i, sample in enumerate(samples):
        assert int(sample["cls"]) == i
        np.testing.assert_array_equal(pixels_of(sample["png"]), given[i]["image"])
    for member in members_of(out):
        tarfile.data_filter(member, str(tmp_path))
        assert member.isreg()
        assert not {"..", ".", ""} & set(member.name.split("/"))
        assert not set(member.name) & set("\n\\\0")
    samples = read_by_webdataset(exported("webdataset", store, tmp_path / "numbers", "--numbered"))
    found = [(sample["__key__"], json.loads(sample["json"])["key"]) for sample in samples]
    assert found == [(f"{i:08d}", key) for i, key in enumerate(ODD)]


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


# ---------------------------------------------------------------------------------------------- again, and after a kill


@pytest.mark.parametrize("to", TARGETS)
def test_the_same_bytes_every_time(everything: Path, tmp_path: Path, to: str) -> None:
    """With one worker or several, in one run or in two, over files that are there already: the same files. What is
    complete stays as it is; a file that was removed comes back, and no other is written."""
    options, one = SPLIT_UP[to], tmp_path / "one"
    first = files_of(exported(to, everything, one, *options, "--workers", 1))
    assert files_of(exported(to, everything, tmp_path / "two", *options, "--workers", 3)) == first
    before = states_of(one)
    said = json.loads(run_here("export", "--json", "--to", to, *options, everything, one).out)
    assert (said["already_complete"], said["samples"], said["written_now"]) == (True, 11, 0)
    assert states_of(one) == before
    gone = sorted(name for name in first if name.endswith((".tar", ".parquet", ".png", ".jpg")))[1]
    (one / gone).unlink()
    done = rawpack_packer.export(everything, one, to=to, shard_size=options[1] if options else None)
    assert (done.written_now, done.bytes_written, done.samples) == (1, len(first[gone]), 11)
    assert files_of(one) == first
    changed = {name for name, state in states_of(one).items() if state != before[name]}
    assert changed <= {gone, "export.json", "metadata.jsonl", "README.md"}


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
@pytest.mark.parametrize("to", TARGETS)
def test_a_killed_export_goes_on(forks: Forks, tmp_path: Path, to: str) -> None:
    """SIGKILL in the first file, and later: every file that has its name is complete and stays as it is, and the end
    is the same as that of an export that was not disturbed."""
    images = np.random.default_rng(0).integers(0, 256, (90, 32, 32, 3)).astype(np.uint8)
    store, options = packed(tmp_path / "store", images), ("--shard-size", "40KB") if to != "files" else ()
    whole, out = files_of(exported(to, store, tmp_path / "whole", *options)), tmp_path / "out"
    shards = sorted(name for name in whole if name.endswith((".tar", ".parquet", ".png")))
    assert len(shards) > 5
    earlier: dict[str, Any] = {}
    for killed in (0, 4):
        event, name = ("os.rename", f"{killed}.image") if to == "files" else ("fsync", shards[killed])
        before = killing(event, f"/{name}.tmp", out, torn=event == "fsync")
        ran = forks.command("export", "-q", "--to", to, *options, store, out, before=before)
        assert ran.code == -9, ran
        if to != "files":
            assert (out / ".rawpack" / f"{name}.tmp").stat().st_size < len(whole[name])
        done = {name: state for name, state in states_of(out).items() if name in shards}
        assert sorted(done) == shards[:killed]
        assert all((out / name).read_bytes() == whole[name] for name in done)
        assert done.items() >= earlier.items()
        earlier = done
    assert not (out / "export.json").exists()
    assert files_of(exported(to, store, out, *options)) == whole
    assert states_of(out).items() >= done.items()


def test_what_the_disk_refuses_is_one_line(tmp_path: Path) -> None:
    """A file that cannot be written ends the run with its name, and the progress that is shown; then the same command
    goes on, and writes no more than a dry run says. With too little room from the start, nothing is written."""
    store, progress = packed(tmp_path / "store", [picture(8, 8, i) for i in range(3)]), mock.Mock(spec=NoProgress)
    with mock.patch("rawpack_packer.destination.folder.free_bytes", return_value=1000):
        for to in TARGETS:
            assert "free some space" in refusal(to, store, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    create = writing.create

    def full(path: Path, *args: Any, **how: Any) -> Any:
        if path.name.endswith(".image.tmp"):
            raise OSError(28, "No space left on device", str(path))
        return create(path, *args, **how)

    with mock.patch.object(writing, "create", full), pytest.raises(PackError, match=r"No space left.*\.image\.tmp"):
        rawpack_packer.export(store, tmp_path / "out", progress=progress)
    progress.end.assert_called()
    said = json.loads(run_here("export", "--dry-run", "--json", store, tmp_path / "dry").out)
    done = rawpack_packer.export(store, tmp_path / "out")
    assert (done.samples, done.written_now, done.bytes_written <= said["files_bytes"]) == (3, 3, True)


@pytest.mark.parametrize("to", TARGETS)
def test_damaged_samples_are_left_out_and_stay_listed(tmp_path: Path, to: str) -> None:
    """One bit of a sample: nothing of it but a line in rejects.jsonl; too many are an error. A run that resumes, or
    writes one file again, knows the rejects of the others."""
    store = packed(tmp_path / "store", [picture(40, 40, i) for i in range(20)], format="lmdb")
    offsets = np.load(store / "columns-1" / "image.offset.npy")
    for row in (3, 17):
        flip(store / "shard-00000.lmdb", offsets[row] + 300)
    out, options = tmp_path / "out", () if to == "files" else ("--shard-size", "5KB")
    assert "--max-rejects" in refusal(to, *options, "--max-rejects", 1, store, out, code=1)
    assert not (out / "export.json").exists()
    first = files_of(exported(to, store, out, *options, "--max-rejects", 2))
    lines = [(line["key"], line["reason"]) for line in listing_of(out, "rejects.jsonl")]
    assert lines == [("00000003", "damaged"), ("00000017", "damaged")]
    assert (note_of(out)["samples"], note_of(out)["rejected"]) == (18, 2)
    keys = [f"{i:08d}" for i in range(20) if i not in (3, 17)]
    if to == "files":
        written = sorted(path.name for path in out.glob("*.jpg"))
        assert written == [f"{key}.jpg" for key in keys]
        assert [line["key"] for line in listing_of(out)] == keys
    else:
        written = [one["file"] for one in note_of(out)["shards"]]
        assert len(written) > 1
        assert ([row["key"] for row in tables_in(out)] or [row["__key__"] for row in read_by_webdataset(out)]) == keys
    for name in (written[0], written[-1]):
        (out / name).unlink()
        assert files_of(exported(to, store, out, *options, "--max-rejects", 2)) == first


# ---------------------------------------------------------------------------------------------- what is refused


def test_what_is_refused_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    """Options of another target, and keys that a target cannot hold."""
    for name, keys in {"plain": None, "empty": ["a", ""], "same": ["x.jpg", "x.png", "x.jpg.jpg"]}.items():
        packed(tmp_path / name, [picture(8, 8, 0)] * len(keys or "abc"), keys=keys)
    before = states_of(tmp_path)
    for options, store, words in [
        ("files --split val", "plain", "--split applies to --to webdataset and --to parquet only"),
        ("parquet --numbered", "plain", "--numbered applies to --to files and --to webdataset only"),
        ("webdataset --split a/b", "plain", "--split 'a/b'"),
        ("webdataset", "empty", "'' is empty"),
        ("files", "empty", "'' is empty"),
        ("files", "same", "'x.png' is, as 'x.png', the same as another"),
        ("webdataset", "same", "'x.jpg' and another are the same"),
    ]:
        assert words in refusal(*options.split(), tmp_path / store, tmp_path / "out")
    assert states_of(tmp_path) == before


def test_another_export_in_the_folder_is_refused(tmp_path: Path) -> None:
    """One of another store, target or split, or by other names or shards: nothing is touched. So is what stands where a
    shard should."""
    store, other = (packed(tmp_path / f"{k}", [picture(8, 8, i + k) for i in range(3)]) for k in range(2))
    out, files = exported("webdataset", store, tmp_path / "out"), exported("files", store, tmp_path / "files")
    before = states_of(tmp_path)
    for arguments in (
        ("files", other, files),
        ("files", "--numbered", store, files),
        ("webdataset", store, files),
        ("parquet", store, out),
        ("webdataset", other, out),
        ("webdataset", "--shard-size", "2GB", store, out),
        ("webdataset", "--split", "val", store, out),
    ):
        assert "name another folder" in refusal(*arguments)
    assert "contains the files of another store" in refusal("files", other, files)
    assert states_of(tmp_path) == before
    shutil.move(out / "train-000000.tar", tmp_path / "elsewhere")
    (out / "train-000000.tar").symlink_to(tmp_path / "elsewhere")
    assert "is not a file; remove it" in refusal("webdataset", store, out, code=1)


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


# ---------------------------------------------------------------------------------------------- boxes

FOLLOW = ("boxes:xyxy[5]", "annotation_id:int64[?]", "area:float64[?]", "polygons:float32[?,4]")
CROP = "20,10,30,25"


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of COCO's boxes, with ids, areas and outlines; some are outside of the crop, and none is a hen."""
    folder = tmp_path_factory.mktemp("objects")
    boxes = [(0, 2, 3), (0, 25, 12), (0, 30, 20), (1, 1, 1), (1, 40, 20), (3, 22, 15), (3, 0, 30)]
    for i in range(4):
        save(folder / f"in/{i}.png", picture(40, 60, i))
    annotations = [
        {"id": 100 + n, "image_id": i, "category_id": 5 + n % 2, "bbox": [x, y, 8, 5], "area": n / 4, "iscrowd": 0,
         "segmentation": [[x, y, x + 8, y, x, y + 5]]}
        for n, (i, x, y) in enumerate(boxes)
    ]  # fmt: skip
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(4)]
    categories = [{"id": 5 + k, "name": name} for k, name in enumerate(["owl", "ant", "hen"])]
    tree = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "in/all.json").write_text(json.dumps(tree))
    return pack(folder / "in/all.json", folder / "store", "--size", "keep")


def following(store: Path) -> dict[str, dict[str, Any]]:
    """Boxes and what follows them, by the key without the extension."""
    names = [one.partition(":")[0] for one in FOLLOW]
    return {Path(one["key"]).stem: {name: one[name].tolist() for name in names} for one in Reader(store)}


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("to", TARGETS)
def test_what_follows_boxes_leaves_with_them_after_an_export(
    objects: Path, tmp_path: Path, to: str, typed: bool
) -> None:
    """A crop of what was exported loses the same boxes, numbers and outlines as a crop of the store, whether or not the
    user says what types they have. Names of classes stay, also that of no box."""
    out, options = exported(to, objects, tmp_path / "out"), list[str]()
    for word in FOLLOW if typed else [one.partition(":")[0] for one in FOLLOW] if to == "webdataset" else ():
        options += ["--field", f"json.{word}" if to == "webdataset" else word]
    source = out / "metadata.jsonl" if to == "files" else out
    whole = pack(source, tmp_path / "again", "--size", "keep", *options)
    assert following(whole) == following(objects)
    cut = pack(source, tmp_path / "cut", "--size", "keep", "--crop", CROP, *options)
    assert run_here("convert", "-q", "--size", "keep", "--crop", CROP, objects, tmp_path / "convert").code == 0
    assert following(cut) == following(tmp_path / "convert") != following(objects)
    if to != "webdataset":
        assert Reader(cut).classes == ("owl", "ant", "hen")


def test_lists_with_a_value_for_each_box_follow_them(tmp_path: Path) -> None:
    """In anybody's table: `flag` has as many values as there are boxes in each row; `other` has not. Where all images
    have as many boxes, so that a list shows nothing, `per-box:` says it."""
    rows: list[dict[str, Any]] = [
        {"boxes": [[1, 2, 9, 8, 0], [30, 20, 40, 30, 1]], "flag": [7, 8], "other": [1]},
        {"boxes": [], "flag": [], "other": [2, 3]},
        {"boxes": [[25, 20, 40, 30, 1]], "flag": [9], "other": [4]},
    ]
    for i in range(3):
        save(tmp_path / f"{i}.png", picture(40, 60, i))
    lines = [json.dumps({"path": f"{i}.png", **row}) for i, row in enumerate(rows)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    (tmp_path / "one.jsonl").write_text(lines[0])
    options = ["--size", "keep", "--crop", "20,10,40,30", "--field", "boxes:xyxy"]
    for name, flag, flags in (
        ("in", [], [[8], [], [9]]),
        ("in", ["--field", "flag:array:int64[?]"], [[7, 8], [], [9]]),
        ("one", ["--field", "flag:per-box:int64[?]"], [[8]]),
    ):
        reader = Reader(pack(tmp_path / f"{name}.jsonl", tmp_path / f"{name} {flag}", *options, *flag))
        assert [one["flag"].tolist() for one in reader] == flags
        assert [one["other"].tolist() for one in reader] == [[1], [2, 3], [4]][: len(flags)]
    for word in ("int64", "mask", "xyxy", "str[?]"):
        with pytest.raises(UsageError, match="per-box"):
            open_source(tmp_path / "in.jsonl", fields=["boxes:xyxy", f"flag:per-box:{word}"])


@pytest.mark.parametrize("target", ["files", "parquet"])
def test_a_list_that_happens_to_be_as_long_stays_as_it_was(target: str, tmp_path: Path) -> None:
    """Points that follow no boxes do not begin to do so, though each image has as many of them as boxes."""
    points = [np.arange(2 * (i % 3), dtype=np.float32).reshape(-1, 2) for i in range(6)]
    data = [
        {"image": picture(32, 32, i), "boxes": np.full((i % 3, 5), [[1, 1, 4, 4, 0]], np.float32), "points": points[i]}
        for i in range(6)
    ]
    rawpack_packer.pack(data, tmp_path / "a", fields={"boxes": "xyxy", "points": "float32[?,2]"}, workers=0)
    rawpack_packer.export(tmp_path / "a", tmp_path / "out", to=target, workers=0)  # type: ignore[arg-type]
    source = tmp_path / "out" / "metadata.jsonl" if target == "files" else tmp_path / "out"
    rawpack_packer.pack(source, tmp_path / "b", size="keep", workers=0)
    reader = Reader(tmp_path / "b")
    batch = next(iter(reader.batches(6, fields=["image", "points"], transform=[CenterCrop(8)], workers=0)))
    assert [given.tolist() for given in batch["points"]] == [one.tolist() for one in points]
    assert {name: one.follows for name, one in reader.fields.items()} == {
        name: one.follows for name, one in Reader(tmp_path / "a").fields.items()
    }
