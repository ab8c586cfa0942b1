"""WebDataset shards: samples equal what webdataset itself reads; what is ambiguous, damaged or unsafe is refused.

The oracles are webdataset's own reader and writer, and Python's tarfile.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from archived import MakesAFolder
from folders import rejects_of
from pictures import encoded, picture
from running import pack, run_here
from test_source_conformance import write_again
from webdataset import tariterators

from rawpack import Reader
from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources import Source, open_source
from rawpack_packer.sources.archives.members import value_of
from rawpack_packer.sources.archives.webdataset import open_webdataset
from rawpack_packer.sources.fields import Boxes, FieldKind
from rawpack_packer.testing import SourceConformance

Members = Iterable[tuple[str, bytes]]


def image(seed: int, format: str = "JPEG") -> bytes:
    return encoded(picture(20, 30, seed), format)


JPEG = image(0)


def shard(path: Path, members: Members, format: int = tarfile.USTAR_FORMAT) -> Path:
    """A tar archive with these members, in this order."""
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def samples_of(start: int, stop: int) -> list[tuple[str, bytes]]:
    """An image, a label, a text and some JSON for each sample."""
    found = []
    for i in range(start, stop):
        about = {"width": i, "camera": {"iso": i * 100}, "box": [[i, 1, i + 5, 9, 0]]}
        found += [(f"{i:04d}.jpg", image(i)), (f"{i:04d}.cls", b"%d" % (i % 3)), (f"{i:04d}.txt", b"text %d" % i)]
        found.append((f"{i:04d}.json", json.dumps(about).encode()))
    return found


def by_webdataset(*paths: Path) -> list[dict[str, Any]]:
    """The samples that webdataset reads, with their members as bytes; its `WebDataset` is the same, but leaves files
    open."""
    found = []
    for path in paths:
        with path.open("rb") as file:
            members = tariterators.tar_file_expander([{"url": str(path), "stream": file}])
            found += list(tariterators.group_by_keys(members))
    return found


opened = open_webdataset


def label_of(source: Source, i: int) -> int:
    return int(np.asarray(source[i].fields["label"]))


class TestShards(SourceConformance):
    suffix = ".tar"

    def open(self, folder: Path) -> Source:
        lacks = [member for member in samples_of(3, 6) if member[0] != "0004.txt"]
        both = (samples_of(0, 3), [*lacks, ("0006.cls", b"1"), ("0007.jpg", b""), ("0007.txt", b"")])
        for i, members in enumerate(both):
            path = folder / f"a-{i}{self.suffix}"
            if not path.exists():
                data = shard(path, members).read_bytes()
                path.write_bytes(gzip.compress(data) if self.suffix == ".tar.gz" else data)
        return open_source(folder / f"a-{{0..1}}{self.suffix}", fields=["txt", "iso=json.camera.iso", "json.box:xyxy"])

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        images = [(f"{i:04}", None if i == 4 else image(i)) for i in range(6)]
        return [*images, ("0007", None)]

    def change(self, folder: Path) -> bool:
        write_again(folder / f"a-0{self.suffix}")
        return True


class TestCompressedShards(TestShards):
    suffix = ".tar.gz"


ODD: Members = [
    ("__meta__", b"x"),
    ("__notes__/a.txt", b"x"),
    ("plain", b"no dot"),
    ("._same.jpg", b"of macOS"),
    ("a.b/c.JPG", image(1)),
    ("a.b/c.seg.PNG", image(1, "PNG")),
    ("a.b/c.cls", b" 2\n"),
    ("c.jpg", image(2)),
    ("__d__.jpg", image(3)),
    ("../../up.jpg", image(4)),
    ("./same.jpg", image(5)),
    ("same.jpg", image(6)),
    ("ü/ß.jpeg", image(7)),
    ("/abs.jpg", image(8)),
    ("x/y/" + "long" * 60 + ".jpg", image(9)),
    ("no-image.cls", b"1"),
    ("e..jpg", image(10)),
]


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_odd_names_are_split_as_webdataset_splits_them(format: int, tmp_path: Path) -> None:
    """Dots in folders, upper case, names that lead out of the archive, long names: same keys, same bytes."""
    path = shard(tmp_path / "odd.tar", ODD, format)
    source = opened(path, fields=["image=jpg,jpeg,.jpg"])
    expected = [one for one in by_webdataset(path) if {"jpg", "jpeg", ".jpg"} & one.keys()]
    assert len(expected) == 10
    assert [source.key(i) for i in range(len(source))] == [one["__key__"] for one in expected]
    for i, one in enumerate(expected):
        assert source[i].image == next(one[name] for name in ("jpg", "jpeg", ".jpg") if name in one)
    assert source.info.counts["no_image"] == 1
    assert source.info.counts["other_members"] == 4


def test_samples_of_webdatasets_own_writer(tmp_path: Path) -> None:
    """Images, labels, texts, arrays and JSON come back as they were given to ShardWriter."""
    given = [
        {
            "__key__": f"s/{i}",
            "jpg": image(i),
            "cls": i % 2,
            "txt": f"text {i}",
            "npy": np.arange(i, i + 4, dtype=np.float32).reshape(2, 2),
            "json": {"name": f"n{i}", "score": i / 2},
        }
        for i in range(7)
    ]
    with webdataset.ShardWriter(str(tmp_path / "w-%06d.tar"), maxcount=3, verbose=0) as writer:
        for one in given:
            writer.write(one)
    source = opened(tmp_path, fields=["txt", "npy", "json.name", "json.score"])
    assert len(source) == 7
    for i, one in enumerate(given):
        item = source[i]
        assert (item.key, item.image) == (one["__key__"], one["jpg"])
        assert int(np.asarray(item.fields["label"])) == one["cls"]
        assert np.array_equal(np.asarray(item.fields["npy"]), one["npy"])
        assert (item.fields["txt"], item.fields["name"]) == (one["txt"], one["json"]["name"])
        assert float(np.asarray(item.fields["score"])) == one["json"]["score"]


@pytest.mark.parametrize(
    ("members", "fields", "message"),
    [
        ({"a.txt": b"x", "a.cls": b"1"}, [], r"has no image: its members have the suffixes \.txt, \.cls"),
        ({"a.jpg": JPEG, "a.cls": b"1", "a.JPG": JPEG}, [], r"a\.tar has two members a\.JPG"),
        ({f"{key}.{end}": JPEG for end in ("jpg", "png") for key in "ab"}, [], r"key a is there twice.* --sort=name"),
        ({"images/0.jpg": JPEG, "labels/0.cls": b"1"}, [], r"no image has a label in \.cls: .* labels/0, .* images/0"),
        ({"a.jpg": JPEG, "a.seg.png": JPEG}, ["image=jpg", "seg.png"], r"\.png is an image"),
        ({"0.jpg": JPEG, "0.cls": b"1", "1.jpg": JPEG, "1.cls": b"a"}, [], "label of 1 is 'a', and that of 0 is 1: "),
        ({"0.jpg": JPEG, "0.cls": b"\xff"}, [], r"label of 0\.cls cannot be read: byte 0 is not UTF-8"),
        ({"0.jpg": JPEG, "0.json": b"{}"}, ["label=json.c"], r"label=json\.c: no sample has that; members have the .*"),
        (samples_of(0, 1), ["xyz"], r"--field 'xyz': no sample of \S+\.tar has a member \.xyz, only \.jpg, \.cls, "),
        (samples_of(0, 1), ["npz"], r"does not read \.npz"),
    ],
)
def test_what_cannot_be_packed_as_it_is_asked_for(
    members: Members | dict[str, bytes], fields: list[str], message: str, tmp_path: Path
) -> None:
    """Before anything is packed, with the sample or the member."""
    path = shard(tmp_path / "a.tar", members.items() if isinstance(members, dict) else members)
    with pytest.raises(UsageError, match=message):
        opened(path, fields=fields)


def test_of_several_images_one_must_be_named(tmp_path: Path) -> None:
    """The others can be masks."""
    mask = encoded(np.eye(20, 30, dtype=np.uint8))
    members = [("a.jpg", JPEG), ("a.seg.png", mask), ("b.jpg", JPEG), ("b.seg.png", mask)]
    path = shard(tmp_path / "a.tar", members)
    assert opened(path, fields=["image=seg.png"])[0].image == mask
    assert opened(path, fields=["seg.png:mask"]).info.fields == {"seg": FieldKind("uint8", (None, None, 1), mask=True)}
    options = ("--source", "webdataset", "--field", "seg.png:mask", "--size", "keep", "--format", "lmdb")
    reader = Reader(pack(path, tmp_path / "store", *options))
    assert np.array_equal(reader[1]["seg"][..., 0], np.eye(20, 30))


def test_pickles_are_never_read(tmp_path: Path) -> None:
    """They are refused by name if they are asked for, and otherwise counted; so are arrays of Python objects."""
    trap = tmp_path / "trapped"
    objects = io.BytesIO()
    np.save(objects, np.array([MakesAFolder(trap)], object), allow_pickle=True)
    members = [("a.jpg", JPEG), ("a.npy", objects.getvalue())]
    members += [(f"a.{kind}", pickle.dumps(MakesAFolder(trap))) for kind in ("pyd", "pkl", "pickle", "pth")]
    path = shard(tmp_path / "a.tar", members)
    source = opened(path)
    assert source.info.counts["pickles"] == 4
    assert source[0].image == JPEG
    for kind in ("pyd", "pkl", "pickle", "pth", "x=pth:str"):
        with pytest.raises(UsageError, match="can run code"):
            opened(path, fields=[kind])
    with pytest.raises(UsageError, match="Python objects"):
        opened(path, fields=["npy"])
    with pytest.raises(DecodeError, match="Python objects"):
        opened(path, fields=["npy:float32"])[0]
    assert not trap.exists()


def labelled(folder: Path, *labels: bytes | None, suffix: str = "cls", **options: Any) -> Source:
    """A source of one shard, whose samples have these labels."""
    members = []
    for i, label in enumerate(labels):
        members += [(f"{i}.jpg", JPEG)] + ([] if label is None else [(f"{i}.{suffix}", label)])
    return opened(shard(folder / "l.tar", members), **options)


def test_labels_are_numbers_or_names(tmp_path: Path) -> None:
    """Numbers stay; names are numbered in order; a missing or empty one is -1, and counted."""
    source = labelled(tmp_path, b"3", b"007\n", None, b"-1", b"")
    assert [label_of(source, i) for i in range(5)] == [3, 7, -1, -1, -1]
    assert (source.info.classes, source.info.counts["unlabelled"]) == (None, 3)
    source = labelled(tmp_path, b"dog", None, b"cat", b"dog")
    assert [label_of(source, i) for i in range(4)] == [1, -1, 0, 1]
    assert source.info.classes == ("cat", "dog")
    source = labelled(tmp_path, b"1_0", b"0_1", "٣".encode(), b"1_0")
    assert [label_of(source, i) for i in range(4)] == [1, 0, 2, 1]
    assert source.info.classes == ("0_1", "1_0", "٣")
    assert labelled(tmp_path, b"9" * 5000).info.classes == ("9" * 5000,)
    assert not labelled(tmp_path, None).info.fields


def test_labels_in_json_or_another_member(tmp_path: Path) -> None:
    source = labelled(tmp_path, b'{"a": {"b": "x"}}', b'{"a": {}}', b"7", suffix="json", fields=["label=json.a.b"])
    assert [label_of(source, i) for i in range(3)] == [0, -1, -1]
    source = labelled(tmp_path, b"0.5", suffix="cls", fields=["label=cls:float32"])
    assert source[0].fields["label"] == np.float32(0.5)


def test_fields_are_inferred_or_declared(tmp_path: Path) -> None:
    """By the words that listings have; each is named after its member or entry, or as the user says. An entry that is
    an object, declared a text, is JSON."""
    path = shard(tmp_path / "a.tar", samples_of(2, 5))
    fields = {"txt": "str", "w=json.width": "float32", "json.camera.iso": "int64", "json": "str", "json.box": "xyxy",
              "json.camera": "str"}  # fmt: skip
    source = opened(path, fields=fields)
    assert source.info.fields == {
        "label": FieldKind("int64"),
        "txt": FieldKind("str"),
        "w": FieldKind("float32"),
        "iso": FieldKind("int64"),
        "json": FieldKind("str"),
        "box": FieldKind("float32", (None, 5), boxes="xyxy"),
        "camera": FieldKind("str"),
    }
    inferred = opened(path, fields=["txt", "w=json.width"]).info.fields
    assert (inferred["txt"], inferred["w"]) == (FieldKind("str"), FieldKind("int64"))
    found = source[1].fields
    assert isinstance(found["box"], Boxes)
    assert found["box"].rows.tolist() == [[3, 1, 8, 9, 0]]
    assert (found["txt"], found["w"], found["iso"], found["camera"]) == ("text 3", 3, 300, '{"iso": 300}')
    assert json.loads(str(found["json"]))["width"] == 3


def test_samples_whose_fields_do_not_fit_are_rejected_alone(tmp_path: Path) -> None:
    """A missing member, JSON that is none, a missing entry, values of other types, a number that only Python reads."""
    values = (b'{"a": 1}', None, b"{", b"{}", b'{"a": "x"}', b'{"a": 1.5}', b"[" * 99_999, b'{"a": 1_0}')
    labelled(tmp_path, *values, suffix="json")
    options = ("--field", "json.a", "--max-rejects", "100%", "--size", 16, "--source", "webdataset")
    store = pack(tmp_path / "l.tar", tmp_path / "store", *options)
    assert [(one["key"], one["reason"]) for one in rejects_of(store)] == [(f"{i}", "bad_field") for i in range(1, 8)]
    assert Reader(store)[0]["a"] == 1


def test_arrays_that_lie_are_rejected() -> None:
    """A header of a gigantic shape allocates nothing; truncated and foreign bytes are no arrays either."""
    file = io.BytesIO()
    np.save(file, np.arange(6, dtype="<i2").reshape(2, 3).T)
    good = file.getvalue()
    found = value_of(good, "npy", (), None)
    assert np.array_equal(np.asarray(found), np.arange(6).reshape(2, 3).T)
    shapes = (b"(1 << 60,)", b"(9**9, 9**9)", b"(-1,-1)", b"('a',)", b"(6,2)", b"(3, 2(", b"(3,\0 2", b"((3, 2")
    lies = [good.replace(b"(3, 2)", shape) for shape in shapes]
    lies.append(good.replace(b"(3, 2), }" + b" " * 10, b"(3000000000000,), }"))
    for bad in (*lies, good[:-1], good + b"x", good[:40], b"", b"text", b"\x93NUMPY\x09\x00"):
        with pytest.raises(DecodeError):
            value_of(bad, "npy", (), None)


def test_keys_that_repeat_between_shards(tmp_path: Path) -> None:
    for i in range(2):
        shard(tmp_path / f"a-{i}.tar", [("x.jpg", image(i)), ("x.cls", b"1")])
    with pytest.raises(UsageError, match="key x is there twice, in a-0 and a-1: --prefix names"):
        opened(tmp_path)
    source = opened(tmp_path, prefix="names")
    assert [source.key(i) for i in range(2)] == ["a-0/x", "a-1/x"]
    assert [opened(tmp_path, prefix="numbers").key(i) for i in range(2)] == ["0/x", "1/x"]


@pytest.mark.parametrize("far", ["all", "one"])
def test_labels_far_from_their_images_are_refused(far: str, tmp_path: Path) -> None:
    """Rather than pack images without their labels, the error names the sample and the shard."""
    images, labels = ([(f"{i:04d}.{end}", data) for i in range(9)] for end, data in (("jpg", JPEG), ("cls", b"1")))
    near = sorted([*images, *labels[1:]])
    shard(tmp_path / "a-0.tar", samples_of(10, 12))
    shard(tmp_path / "a-1.tar", [*images, *labels] if far == "all" else [*near, labels[0]])
    said = r"a-1\.tar: members of the sample 0000 are in several.*`tar --sort=name` does"
    with pytest.raises(UsageError, match=said):
        opened(tmp_path / "a-{0..1}.tar")


def test_samples_without_an_image_are_left_out(tmp_path: Path) -> None:
    """Nor does a shard without members say anything of the others."""
    shard(tmp_path / "a-0.tar", [])
    shard(tmp_path / "a-1.tar", [("x.cls", b"2"), ("x.txt", b"no image"), *samples_of(0, 3)])
    shard(tmp_path / "a-2.tar", [("0000.cls", b"1"), ("0007.cls", b"1"), ("0007.jpg", image(7))])
    source = open_source(tmp_path)
    assert source.info.kind == "webdataset"
    assert [source.key(i) for i in range(len(source))] == ["0000", "0001", "0002", "0007"]
    assert ([label_of(source, i) for i in range(4)], source.info.counts["no_image"]) == ([0, 1, 2, 1], 2)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("c/0.jpg", "c/0.cls"), "webdataset"),
        (("0.txt", "0.jpg"), "--field txt .* packs them as fields"),
        (("0.left.jpg", "0.right.jpg"), "sample 0 has 2 images"),
        (("c/0.jpg", "c/0.txt", "d/0.jpg", "d/0.txt"), "archive"),
    ],
)
def test_a_shard_is_known_by_its_first_members(names: tuple[str, ...], found: str, tmp_path: Path) -> None:
    """An image next to its `.cls`; outside of folders, next to any other member. `--source` decides otherwise."""
    path = shard(tmp_path / "a.tar", [(name, JPEG if name.endswith("jpg") else b"1") for name in names])
    assert open_source(path, "archive").info.kind == "archive"
    if " " not in found:
        assert open_source(path).info.kind == found
    else:
        with pytest.raises(UsageError, match=found):
            open_source(path)


def test_damaged_shards_are_all_named_and_can_be_left_out(tmp_path: Path) -> None:
    """One error names every shard that is damaged. With --skip-unreadable, the samples before the damage are packed,
    but for the last one, which may lack members: it is listed as a reject, or the shard is, if it has none."""
    for k in range(4):
        shard(tmp_path / f"a-{k}.tar", samples_of(3 * k, 3 * k + 3))
    for k, within in ((1, b"0005.txt"), (2, b"0007.jpg")):
        data = (tmp_path / f"a-{k}.tar").read_bytes()
        (tmp_path / f"a-{k}.tar").write_bytes(data[: data.index(within) + 513])
    (tmp_path / "a-3.tar").write_bytes(b"")
    command = ("pack", "--workers", 0, "--size", 16, "--field", "txt", tmp_path / "a-{0..3}.tar", tmp_path / "store")
    ran = run_here(*command)
    assert (ran.code, (tmp_path / "store" / "store.json").exists()) == (1, False)
    for name, what in (("a-1", "is truncated within 0005.txt; 2"), ("a-2", "is truncated within 0007.jpg; 0"),
                       ("a-3", "ends at byte 0 without a mark of its end; 0")):  # fmt: skip
        assert f"  {tmp_path / name}.tar cannot be read to its end: it {what} intact samples before that\n" in ran.err
    assert run_here(*command, "--skip-unreadable", "--strict").code == 1
    found = [(one["key"], one["label"], one["txt"]) for one in Reader(tmp_path / "store")]
    assert found == [(f"{i:04}", i % 3, f"text {i}") for i in range(5)]
    rejects = [(one["key"], one["reason"]) for one in rejects_of(tmp_path / "store")]
    assert rejects == [(key, "not_scanned") for key in ("0005", "0006", "a-3.tar")]


def test_names_that_no_text_can_hold_are_rejected_alone(tmp_path: Path) -> None:
    """Bytes that are not UTF-8, and names of a megabyte: the sample is rejected, with a key that can be shown."""
    members = [("a.jpg", JPEG), ("b\udcff.jpg", JPEG), ("c" * 100_000 + ".jpg", JPEG), ("d.jpg", JPEG)]
    source = opened(shard(tmp_path / "a.tar", members, tarfile.GNU_FORMAT))
    assert [source.key(i)[:6] for i in range(4)] == ["a", "b\\xff", "cccccc", "d"]
    assert len(source.key(2)) < 5000
    assert source[0].image == source[3].image == JPEG
    for i in (1, 2):
        with pytest.raises(DecodeError, match=r"not UTF-8|100000 bytes") as caught:
            source[i]
        assert caught.value.reason == "bad_name"
