"""RecordIO files: samples equal what mxnet reads, and files that are damaged or lie are refused.

The files in `fixtures/recordio` were written by mxnet 1.9.1, and `expected.json` is what mxnet itself read from them;
`make.py` there made both. Damaged files are made here, byte by byte.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_source_conformance import write_again

from rawpack.errors import UsageError
from rawpack_packer.sources import FieldKind, Source, open_source
from rawpack_packer.sources.archives.recordio import open_recordio
from rawpack_packer.testing import SourceConformance

FIXTURES = Path(__file__).parents[1] / "support" / "fixtures" / "recordio"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
MAGIC = 0xCED7230A
PNG = b"\x89PNG\r\n\x1a\n"


def images_of(name: str) -> list[dict[str, Any]]:
    """What mxnet read from a fixture, without records that have no image."""
    return [record for record in EXPECTED[name] if record["bytes"]]


def part(flag: int, data: bytes, length: int | None = None) -> bytes:
    """A part of a record. length: what it says of itself; None is the truth."""
    said = len(data) if length is None else length
    return struct.pack("<II", MAGIC, flag << 29 | said) + data + bytes(-len(data) % 4)


def record(image: bytes, label: float = 0, id: int = 0, labels: Sequence[float] = (), flag: int | None = None) -> bytes:
    """A record in one part. flag: how many labels it declares; None is the truth."""
    header = struct.pack("<IfQQ", len(labels) if flag is None else flag, label, id, 0)
    return part(0, header + np.array(labels, "<f4").tobytes() + image)


def opened(folder: Path, data: bytes, **options: Any) -> Source:
    path = folder / "set.rec"
    path.write_bytes(data)
    return open_recordio(path, **options)


class TestRecordIO(SourceConformance):
    def open(self, folder: Path) -> Source:
        if not (folder / "set.rec").exists():
            for suffix in (".rec", ".idx"):
                shutil.copy(FIXTURES / f"split{suffix}", folder / f"set{suffix}")
        return open_source(folder / "set.rec")

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(str(record["id"]), None) for record in images_of("split")]

    def change(self, folder: Path) -> bool:
        write_again(folder / "set.rec")
        return True


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "raw"])
def test_samples_are_those_that_mxnet_reads(name: str) -> None:
    """Images are the same bytes, also where the magic number in them makes mxnet cut a record; labels the same
    numbers."""
    source = open_source(FIXTURES / f"{name}.rec")
    expected = images_of(name)
    assert len(source) == len(expected)
    for i, one in enumerate(expected):
        item = source[i]
        assert isinstance(item.image, bytes)
        assert hashlib.sha256(item.image).hexdigest() == one["sha256"]
        found = item.fields["labels"] if "labels" in item.fields else item.fields["label"]
        assert np.atleast_1d(np.asarray(found)).tolist() == one["labels"]


def test_a_label_that_is_no_whole_number_makes_all_floats(tmp_path: Path) -> None:
    source = opened(tmp_path, record(PNG, 1, 0) + record(PNG, 0.5, 1))
    assert source.info.fields == {"label": FieldKind("float32")}
    assert [source[i].fields["label"] for i in range(2)] == [1, 0.5]


def test_files_of_a_range_are_one_source(tmp_path: Path) -> None:
    """In their order, also without an .idx; ids that occur again make the keys numbers."""
    for i in range(2):
        shutil.copy(FIXTURES / "plain.rec", tmp_path / f"part{i}.rec")
    one = open_source(tmp_path / "part1.rec")
    assert [one.key(i) for i in range(6)] == [str(100 + i) for i in range(6)]
    source = open_source(tmp_path / "part{0..1}.rec", "recordio")
    assert (len(source), source.info.numbered, source.key(7)) == (12, True, "00000007")
    assert source.info.problems == ("keys are the numbers of rows, not the ids: two records have one",)
    assert source[7].image == source[1].image


def test_a_folder_of_insightface_is_its_only_file(tmp_path: Path) -> None:
    """Next to verification sets, which are refused by name, and a file without a suffix; of two .rec, one must be
    named."""
    for suffix in (".rec", ".idx"):
        shutil.copy(FIXTURES / f"faces{suffix}", tmp_path / f"train{suffix}")
    for name in ("property", "lfw.bin"):
        (tmp_path / name).write_bytes(b"x")
    source = open_source(tmp_path)
    assert (source.info.kind, len(source)) == ("recordio", 5)
    for name, message in (("lfw.bin", "pickle"), ("train.idx", "give the .rec")):
        with pytest.raises(UsageError, match=message):
            open_source(tmp_path / name, "recordio")
    shutil.copy(FIXTURES / "plain.rec", tmp_path / "val.rec")
    with pytest.raises(UsageError, match=r"contains train\.rec, val\.rec: name the \.rec to pack"):
        open_source(tmp_path)
    (tmp_path / "a.jpg").write_bytes(b"x")
    assert open_source(tmp_path).info.kind == "folder"


ONE = record(PNG + bytes(9), 1, 7)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (ONE + b"junk" * 9, f"is damaged at byte {len(ONE)}"),
        (ONE + part(1, bytes(24)) + ONE, "does not end"),
        (ONE + part(0, bytes(40), 1 << 28), "is truncated: it ends inside the record at byte"),
        (part(0, b"a text of its own"), "has 17 bytes, too few for an image with a label"),
        (record(PNG, flag=3), "declares 3 labels"),
        (record(b"", labels=[1, 2]), "all of its 1 records have labels alone"),
    ],
)
def test_what_is_no_intact_file_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    """With the path, the byte and the cure, and before anything is packed."""
    with pytest.raises(UsageError, match=message) as caught:
        opened(tmp_path, data)
    assert str(tmp_path / "set.rec") in str(caught.value)


@pytest.mark.parametrize(
    "index",
    ["0\t0\n1\t4\n", "0\t0\n", "0\t0\n1\t48\n2\t48\n", "no index", f"0\t{2**80}\n"],
)
def test_an_index_of_another_file_is_refused(index: str, tmp_path: Path) -> None:
    (tmp_path / "set.idx").write_text(index)
    with pytest.raises(UsageError, match=r"set\.idx does not belong to set\.rec.*move it away"):
        opened(tmp_path, ONE + ONE)


def test_no_record_may_be_larger_than_the_format_allows(tmp_path: Path) -> None:
    """Parts that add up to more than 512 MiB are refused before they are read: the file is sparse."""
    path, length = tmp_path / "set.rec", (1 << 29) - 4
    with path.open("wb") as file:
        for flag in (1, 2, 3):
            file.write(struct.pack("<II", MAGIC, flag << 29 | length))
            file.seek(length, 1)
        file.truncate()
    with pytest.raises(UsageError, match="no record has more than 536,870,911 bytes"):
        open_source(path)
