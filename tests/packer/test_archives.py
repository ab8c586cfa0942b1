"""Archives as sources: what is packed from them is what their unpacked folder gives, and damage is never silent."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from archived import zipped
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import encoded, picture, save
from reading import SOAK
from running import reason_of

from rawpack.errors import UsageError
from rawpack_packer import api
from rawpack_packer.sources import DividedError, Source, archives, open_source
from rawpack_packer.sources.archives.source import open_archive
from rawpack_packer.sources.archives.tar import tar_members
from rawpack_packer.sources.folder import open_folder
from rawpack_packer.sources.table.named_files import expanded
from rawpack_packer.testing import SourceConformance
from rawpack_packer.testing.engines import check_files, settled_files

pytestmark = pytest.mark.skipif(shutil.which("tar") is None or shutil.which("zip") is None, reason="needs tar and zip")


JPEG = encoded(picture(4, 6, 0), "JPEG")


def shell(folder: Path, command: str) -> None:
    subprocess.run(command, shell=True, check=True, cwd=folder, capture_output=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with all that an archive can hold: classes, an empty one, deep and loose files, odd names, links; and
    its store."""
    root = tmp_path_factory.mktemp("tree") / "photos"
    for i, name in enumerate(
        ["cat/1.jpg", "cat/deep/er/0.jpg", "dog/é 2.png", "dog/-3.jpg", "loose.jpg", ".hid/4.jpg"]
    ):
        save(root / name, picture(20, 30, i))
    shutil.copy(root / "cat" / "1.jpg", root / "dog" / "noext")
    (root / "cat" / "notes.txt").write_text("no image")
    (root / "cat" / "bad.jpg").write_text("no image")
    (root / "cat" / "empty.jpg").touch()
    (root / "cat" / "clip.mp4").write_text("video")
    (root / "empty").mkdir()
    (root / "long" / ("x" * 90) / ("y" * 120)).mkdir(parents=True)
    shutil.copy(root / "cat" / "1.jpg", root / "long" / ("x" * 90) / ("y" * 120) / "ü.jpg")
    (root / "dog" / "link.jpg").symlink_to("../cat/1.jpg")
    (root / "dog" / "all").symlink_to("../cat")
    (root / "dog" / "up").symlink_to("..")
    (root / "dog" / "gone.jpg").symlink_to("nowhere")
    api.pack(root, root.parent / "store", **HOW)
    return root, root.parent / "store"


HOW: Any = {"size": 16, "workers": 0, "max_rejects": 10}


ARCHIVES = {
    "a.tar": "tar cf $OUT/a.tar photos",
    "b.tar": "tar cf $OUT/b.tar -C photos .",
    "pax.tar": "tar cf $OUT/pax.tar --format=pax photos",
    "a.tgz": "tar czf $OUT/a.tgz photos",
    "a.tar.bz2": "tar cjf $OUT/a.tar.bz2 -C photos .",
    "a.zip": "zip -qry $OUT/a.zip photos",
    "stored.zip": "cd photos && zip -0qry $OUT/stored.zip .",
    "streamed.zip": "zip -qry -fz - photos > $OUT/streamed.zip",  # sizes behind members, in records of 64 bits
    "one.tar::two.tar": "tar cf $OUT/one.tar -C photos ./cat && tar cf $OUT/two.tar -C photos --exclude=./cat .",
    "part-{0..1}.zip": "cd photos && zip -qry $OUT/part-0.zip cat && zip -qry $OUT/part-1.zip . -x 'cat/*'",
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_store_is_that_of_the_unpacked_folder(tmp_path: Path, tree: tuple[Path, Path], name: str) -> None:
    """Whatever made the archive, the store has the bytes of the one that the unpacked folder gives, and its rejects."""
    root, store = tree
    shell(root.parent, f"OUT={tmp_path}; {ARCHIVES[name]}")
    named = "::".join(f"{tmp_path}/{one}" for one in name.split("::"))
    api.pack(named, tmp_path / "store", **HOW)
    check_files(settled_files(tmp_path / "store"), settled_files(store))
    assert open_folder(root).info.counts == open_source(named).info.counts


def make_tar(path: Path, *members: str | tarfile.TarInfo, data: bytes = JPEG) -> Path:
    """A tar archive of these members by `tarfile`; names that end in "/" are folders."""
    with tarfile.open(path, "w") as archive:
        for member in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            if info.name.endswith("/"):
                info.type = tarfile.DIRTYPE
            content = b"text" if info.name.endswith(".txt") else data
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return path


def test_the_folder_that_was_archived_is_packed(tmp_path: Path) -> None:
    """The only one at the top, beside which macOS may have put its own."""
    for members, keys, classes in (
        (["photos/cat/1.jpg", "photos/dog/2.jpg"], ["cat/1.jpg", "dog/2.jpg"], ("cat", "dog")),
        (["cat/1.jpg"], ["1.jpg"], None),
        (["photos/cat/1.jpg", "README.txt"], ["photos/cat/1.jpg"], ("photos",)),
        (["photos/cat/1.jpg", "__MACOSX/photos/cat/._1.jpg", ".DS_Store"], ["cat/1.jpg"], ("cat",)),
    ):
        source = open_archive(make_tar(tmp_path / "a.tar", *members))
        assert ([source.key(i) for i in range(len(source))], source.info.classes) == (keys, classes)


def test_splits_in_an_archive(tmp_path: Path) -> None:
    """train/ and val/ are refused as classes with the command that packs them, which works; --source takes them."""
    for i, name in enumerate(["train/cat/1.png", "train/dog/2.png", "val/dog/3.png"]):
        save(tmp_path / "set" / name, picture(20, 30, i))
    shell(tmp_path, "tar cf set.tar set; tar cf part-0.tar set/train/cat; tar cf part-1.tar set/train/dog set/val")
    assert open_source(tmp_path / "set.tar", "archive").info.classes == ("train", "val")
    api.pack_splits(tmp_path / "set", tmp_path / "wanted", splits=["train", "val"], size=16, workers=0)
    for i, name in enumerate(("set.tar", f"part-0.tar::{tmp_path}/part-1.tar")):
        with pytest.raises(DividedError, match=r"rawpack pack --splits train,val \S+\.tar DST"):
            open_source(tmp_path / name)
        api.pack_splits(f"{tmp_path}/{name}", tmp_path / f"{i}", splits=["train", "val"], size=16, workers=0)
        check_files(settled_files(tmp_path / f"{i}"), settled_files(tmp_path / "wanted"))


def test_names_of_several_archives(tmp_path: Path) -> None:
    """Ranges keep their zeros, lists are in order, and what exists under the very name is one file."""
    assert expanded("a-{008..010}.tar") == ["a-008.tar", "a-009.tar", "a-010.tar"]
    assert expanded("{0..1}/{0..1}::x") == ["0/0", "0/1", "1/0", "1/1", "x"]
    for name in ("b2.tar", "{0..1}.tar"):
        make_tar(tmp_path / name, "1.jpg")
    assert expanded(f"{tmp_path}/{{0..1}}.tar") == [f"{tmp_path}/{{0..1}}.tar"]
    with pytest.raises(UsageError, match="twice"):
        open_source(f"{tmp_path}/b2.tar::{tmp_path}/b2.tar")


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_names_and_links_never_leave_the_archive(tmp_path: Path) -> None:
    """What leads out, by its name or as a link, is a sample that is rejected."""
    (tmp_path / "secret.jpg").write_bytes(JPEG)
    path = make_tar(
        tmp_path / "a.tar", "./", "a/1.jpg", link("a/abs.jpg", str(tmp_path / "secret.jpg")),
        link("a/up.jpg", "../../secret.jpg"), link("a/hard.jpg", "a/1.jpg", tarfile.LNKTYPE),
        link("a/hard2.jpg", "../secret.jpg", tarfile.LNKTYPE), link("a/loop.jpg", "loop.jpg"),
        "/etc/x.jpg", "../y.jpg", "a/../z.jpg", "/etc/passwd",
    )  # fmt: skip
    source = open_archive(path)
    assert {source.key(i): reason_of(source, i) for i in range(len(source))} == {
        "a/1.jpg": "", "a/abs.jpg": "unreadable", "a/hard.jpg": "", "a/hard2.jpg": "unreadable",
        "a/loop.jpg": "unreadable", "a/up.jpg": "unreadable",
        "/etc/x.jpg": "bad_name", "../y.jpg": "bad_name", "a/../z.jpg": "bad_name",
    }  # fmt: skip


def test_links_that_multiply_end_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty folders that each link twice to the next would be a billion paths."""
    monkeypatch.setattr("rawpack_packer.sources.archives.tree._MOST_SEEN", 1000)
    links = [link(f"d{i}/{name}", f"../d{i + 1}") for i in range(30) for name in "ab"]
    with pytest.raises(UsageError, match="links between folders of the archive lead to more than"):
        open_source(make_tar(tmp_path / "a.tar", "./", *links, "d30/1.jpg"))


def test_the_last_of_two_members_counts_and_is_reported(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "a.tar", "p/a/1.jpg", data=b"old")
    with tarfile.open(path, "a") as archive:
        archive.addfile(tarfile.TarInfo("p/a/1.jpg"), io.BytesIO())
    source = open_source(path)
    assert [reason_of(source, i) for i in range(len(source))] == ["empty"]
    assert source.info.problems == ("p/a/1.jpg is there more than once: the last one counts",)


def test_sparse_and_special_members(tmp_path: Path) -> None:
    root = tmp_path / "p"
    (root / "a").mkdir(parents=True)
    (root / "a" / "2.jpg").write_bytes(JPEG)
    with (root / "a" / "1.jpg").open("wb") as file:
        file.truncate(1 << 22)
    os.mkfifo(root / "a" / "pipe")
    for form in ("gnu", "pax"):
        shell(tmp_path, f"tar cSf {form}.tar --format={form} p")
        source = open_source(tmp_path / f"{form}.tar")
        assert [reason_of(source, i) for i in range(len(source))] == ["unreadable", ""]
        assert source.info.counts["special_files"] == 1
        assert source.key(0) == "a/1.jpg"


def test_sizes_beyond_8_gib(tmp_path: Path) -> None:
    """Such a size is a base-256 number or a pax record; the member is too large for any decoder, the next is read."""
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / f"{form}.tar"
        with path.open("wb") as file:
            big, small = tarfile.TarInfo("a/1.jpg"), tarfile.TarInfo("a/2.jpg")
            big.size, small.size = 9 << 30, len(JPEG)
            file.write(big.tobuf(form))
            file.seek(9 << 30, os.SEEK_CUR)
            file.write(small.tobuf(form) + JPEG.ljust(1024, b"\0") + bytes(1024))
        source = open_archive(path)
        assert [reason_of(source, i) for i in range(len(source))] == ["too_large", ""]
        path.unlink()


@pytest.mark.parametrize(
    ("at", "value", "content"),
    [(16, b"\0\0\0\0", JPEG), (24, b"\1\0\0\0", JPEG), (24, b"\0\x10\0\0", bytes(5_000_000))],
    ids=["checksum", "size", "bomb"],
)
def test_zip_members_that_cannot_be_read(tmp_path: Path, at: int, value: bytes, content: bytes) -> None:
    """A member that the directory lies about is rejected, and no other."""
    data = bytearray(zipped({"1.jpg": content, "2.jpg": JPEG}, zipfile.ZIP_DEFLATED))
    entry = data.index(b"PK\1\2")
    data[entry + at : entry + at + 4] = value
    (tmp_path / "a.zip").write_bytes(data)
    source = open_source(tmp_path / "a.zip")
    assert [reason_of(source, i) for i in range(2)] == ["corrupt", ""]


class OfCodePage(zipfile.ZipInfo):
    """A member whose name is in the code page of a Russian Windows."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802
        return self.filename.encode("cp866"), self.flag_bits & ~0x800


def test_names_in_zip_archives(tmp_path: Path) -> None:
    """UTF-8 by their mark or by a field that has the name of now; without them UTF-8 as Unix writes it, or cp437. DOS
    has backslashes."""
    path, russian = tmp_path / "a.zip", "кот/1.jpg"
    old, utf8 = russian.encode("cp866"), russian.encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, system in (("a/ü1.jpg", 3), ("a/XX2.jpg", 3), ("a/Y3.jpg", 0), ("b\\4.jpg", 0)):
            info = zipfile.ZipInfo("x")
            info.filename = info.orig_filename = name
            info.create_system = system
            archive.writestr(info, JPEG)
        for name, named in ((russian, old), ("до.jpg", b"another name")):
            info = OfCodePage(name)
            info.extra = struct.pack("<HHBI", 0x7075, 5 + len(utf8), 1, zlib.crc32(named)) + utf8
            archive.writestr(info, JPEG)
    data = path.read_bytes().replace(b"XX2", "ü2".encode()).replace(b"Y3", b"\x813")
    path.write_bytes(data)
    source = open_source(path)
    keys = {"a/ü1.jpg", "a/ü2.jpg", "a/ü3.jpg", "b/4.jpg", russian, "до.jpg".encode("cp866").decode("cp437")}
    assert {source.key(i) for i in range(len(source))} == keys


text = st.text(st.sampled_from("ab./é中\n -"), min_size=1, max_size=130)
member = st.tuples(text, st.sampled_from([b"0", b"\0", b"1", b"2", b"5", b"6"]), st.binary(max_size=700), text)


@settings(max_examples=150 if SOAK else 50, deadline=None)
@given(st.lists(member, max_size=6), st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_headers_are_read_as_tarfile_reads_them(members: list[tuple[str, bytes, bytes, str]], form: int) -> None:
    """Name, kind, place, size, time and target of every member are those that Python's own module finds."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, kind, data, target in members:
            info = tarfile.TarInfo(name.strip("/") or "x")
            info.type, info.linkname, info.mtime = kind, target, len(data)
            info.size = len(data) if kind in (b"0", b"\0") else 0
            with suppress(ValueError):  # a name that ustar cannot have
                archive.addfile(info, io.BytesIO(data))
    raw = file.getvalue()
    found = list(tar_members(lambda at, size: raw[at : at + size], 0, len(raw)))
    kinds = {b"1": "hardlink", b"2": "symlink", b"5": "folder", b"6": "special"}
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        expected = archive.getmembers()
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.name.rstrip(b"/") == other.name.encode("utf-8", "surrogateescape").rstrip(b"/")
        assert one.kind == kinds.get(other.type, "file")
        assert (one.size, one.mtime_ns) == (other.size, other.mtime * 10**9)
        assert not other.isreg() or one.offset == other.offset_data
        assert not (other.issym() or other.islnk()) or one.target.decode() == other.linkname


def test_ilsvrc_ids_are_those_of_the_development_kit() -> None:
    """1,000 of them in the order of `ILSVRC2012_ID` in the kit's meta.mat."""
    data = (Path(archives.__file__).parents[1] / "ilsvrc2012.txt").read_bytes()
    assert len({*data.decode().split()}) == 1000
    # Of the ids in meta.mat, a line each.
    assert sha256(data).hexdigest() == "e85e4969a881deb8a8ba329357d033f7a664de8f1e099f593ad723bcf79bbfe5"


def test_imagenet_validation_set(tmp_path: Path) -> None:
    """Labels of the development kit, unpacked or not, and of a list are those of the training set's classes."""
    names = {1: "n02119789", 449: "n01440764", 691: "n03788195"}
    numbers, classes = (691, 1, 1, 449, 691), tuple(sorted(names.values()))
    path, kit = tmp_path / "ILSVRC2012_img_val.tar", tmp_path / "ILSVRC2012_devkit_t12"
    make_tar(path, *(f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 6)))
    (kit / "data").mkdir(parents=True)
    truth = kit / "data" / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("".join(f"{i}\n" for i in numbers))
    shell(tmp_path, f"tar czf {kit.name}.tar.gz {kit.name}")
    (tmp_path / "labels.txt").write_text("\n".join(names[i] for i in numbers))
    for labels in (kit, tmp_path / f"{kit.name}.tar.gz", tmp_path / "labels.txt"):
        source = open_source(path, labels_file=labels)
        assert source.info.classes == classes
        assert [source[i].fields["label"] for i in range(5)] == [classes.index(names[i]) for i in numbers]
    for wrong, message in ((b"1001\n" * 5, "are 1 to 1,000"), (b"\xff" * 5, "cannot be read")):
        truth.write_bytes(wrong)
        with pytest.raises(UsageError, match=message):
            open_source(path, labels_file=kit)
    (tmp_path / "labels.txt").write_text("1\n2\n3\n1\n2\n")
    with pytest.raises(UsageError, match=r"begin at 1, .* from 0.*ILSVRC2012_devkit_t12"):
        open_source(path, labels_file=tmp_path / "labels.txt")
    make_tar(path, *(f"{name}/1.jpg" for name in classes))
    (tmp_path / "labels.txt").write_text("a\n" * 3)
    with pytest.raises(UsageError, match="has 3 class folders: --labels-file applies to images without"):
        open_source(path, labels_file=tmp_path / "labels.txt")


class TestTar(SourceConformance):
    command = "tar cf a.tar p"

    def open(self, folder: Path) -> Source:
        path = folder / "source" / self.command.split()[-2]
        if not path.exists():
            for i in range(7):
                save(folder / "source" / "p" / "ab"[i % 2] / f"{i}.png", picture(20, 30, i))
            (folder / "source" / "p" / "a" / "bad.jpg").write_text("no image")
            (folder / "source" / "p" / "b" / "link.jpg").symlink_to("nowhere")
            (folder / "source" / "p" / "b" / "same.png").symlink_to("1.png")
            shell(folder / "source", self.command)
        return open_source(path)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        root = folder / "source" / "p"
        names = sorted(str(path.relative_to(root)) for path in root.glob("*/*"))
        return [(name, None if "link" in name else (root / name).read_bytes()) for name in names]

    def change(self, folder: Path) -> bool:
        os.utime(folder / "source" / self.command.split()[-2], ns=(10**18, 10**18))
        return True


class TestGzip(TestTar):
    command = "tar czf a.tgz p"


class TestZip(TestTar):
    command = "zip -qry a.zip p"

    def test_workers_pack_what_one_process_packs(self, tmp_path: Path) -> None:
        """`TestTar` has it."""
