"""Archives as sources: what is packed from them is what their unpacked folder gives, and damage is never silent."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archived import tar, zipped
from folders import files_of, states_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import encoded, picture, save
from reading import SOAK
from running import reason_of, run_command, run_here

from rawpack.errors import DecodeError, UsageError
from rawpack_packer import api
from rawpack_packer.part.pieces import ReadAhead
from rawpack_packer.sources import DividedError, Item, Samples, Source, SourceChangedError, archives, open_source
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


def same(one: Samples, two: Samples) -> None:
    """Both have the same keys, and each sample is the same or cannot be read for the same reason."""

    def read(samples: Samples, i: int) -> Any:
        try:
            item = samples[i]
        except DecodeError as error:
            return error.reason
        return item.image, dict(item.fields)

    assert [one.key(i) for i in range(len(one))] == [two.key(i) for i in range(len(two))]
    for i in range(len(one)):
        assert read(one, i) == read(two, i), one.key(i)


# ---- which folder


@pytest.mark.parametrize(
    ("members", "keys", "classes"),
    [
        (["photos/cat/1.jpg", "photos/dog/2.jpg"], ["cat/1.jpg", "dog/2.jpg"], ("cat", "dog")),
        (["cat/1.jpg"], ["1.jpg"], None),
        (["./", "./cat/1.jpg"], ["cat/1.jpg"], ("cat",)),
        (["photos/cat/1.jpg", "README.txt"], ["photos/cat/1.jpg"], ("photos",)),
        (["photos/cat/1.jpg", "__MACOSX/photos/cat/._1.jpg", ".DS_Store"], ["cat/1.jpg"], ("cat",)),
    ],
)
def test_the_folder_that_was_archived_is_packed(
    tmp_path: Path, members: list[str], keys: list[str], classes: tuple[str, ...] | None
) -> None:
    source = open_archive(make_tar(tmp_path / "a.tar", *members))
    assert [source.key(i) for i in range(len(source))] == keys
    assert source.info.classes == classes
    top = members[0].removesuffix(keys[0]).rstrip("/.")
    assert source.info.root == os.path.join(tmp_path, "a.tar", top).rstrip("/")  # noqa: PTH118


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
    """Ranges keep their zeros, lists and globs are in order, and what exists under the very name is one file."""
    assert expanded("a-{008..010}.tar") == ["a-008.tar", "a-009.tar", "a-010.tar"]
    assert expanded("{0..1}/{0..1}::x") == ["0/0", "0/1", "1/0", "1/1", "x"]
    for name in ("b2.tar", "b10.tar", "{0..1}.tar"):
        make_tar(tmp_path / name, "1.jpg")
    assert expanded(f"{tmp_path}/b*.tar") == [f"{tmp_path}/b10.tar", f"{tmp_path}/b2.tar"]
    assert expanded(f"{tmp_path}/{{0..1}}.tar") == [f"{tmp_path}/{{0..1}}.tar"]
    for wrong in ("{2..1}.tar", "{0..9999999}.tar", f"{tmp_path}/c*.tar", ""):
        with pytest.raises(UsageError):
            expanded(wrong)
    with pytest.raises(UsageError, match="twice"):
        open_source(f"{tmp_path}/b2.tar::{tmp_path}/b2.tar")


# ---- what archives may hold


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_links_never_leave_the_archive(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(JPEG)
    path = make_tar(
        tmp_path / "a.tar", "./", "a/1.jpg", link("a/abs.jpg", str(tmp_path / "secret.jpg")),
        link("a/up.jpg", "../../secret.jpg"), link("a/hard.jpg", "a/1.jpg", tarfile.LNKTYPE),
        link("a/hard2.jpg", "../secret.jpg", tarfile.LNKTYPE), link("a/loop.jpg", "loop.jpg"),
    )  # fmt: skip
    source = open_archive(path)
    read = {source.key(i): reason_of(source, i) for i in range(len(source))}
    assert read == {
        "a/1.jpg": "", "a/abs.jpg": "unreadable", "a/hard.jpg": "", "a/hard2.jpg": "unreadable",
        "a/loop.jpg": "unreadable", "a/up.jpg": "unreadable",
    }  # fmt: skip


def test_links_that_multiply_end_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty folders that each link twice to the next would be a billion paths."""
    monkeypatch.setattr("rawpack_packer.sources.archives.tree._MOST_SEEN", 1000)
    links = [link(f"d{i}/{name}", f"../d{i + 1}") for i in range(30) for name in "ab"]
    with pytest.raises(UsageError, match="links between folders of the archive lead to more than"):
        open_source(make_tar(tmp_path / "a.tar", "./", *links, "d30/1.jpg"))


def test_names_that_lead_out_are_rejected_by_name(tmp_path: Path) -> None:
    """Absolute and climbing names are samples that are rejected; those of other files are counted."""
    source = open_archive(
        make_tar(tmp_path / "a.tar", "b/1.jpg", "/etc/x.jpg", "../y.jpg", "b/../z.jpg", "/etc/passwd")
    )
    assert {source.key(i): reason_of(source, i) for i in range(len(source))} == {
        "1.jpg": "", "/etc/x.jpg": "bad_name", "../y.jpg": "bad_name", "b/../z.jpg": "bad_name",
    }  # fmt: skip
    assert (source.info.counts["bad_names"], source.info.counts["other_files"]) == (3, 1)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_packing_writes_only_inside_the_destination(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in any folder that the environment names: of the kind that keeps an index, by a process and its workers."""
    for i in range(3):
        save(tmp_path / "from" / "photos" / f"{i % 2}" / f"{i}.jpg", picture(20, 30, i))
    shell(tmp_path / "from", "tar cf a.tar photos; tar czf a.tar.gz photos; zip -qr a.zip photos")
    elsewhere = {name: tmp_path / "elsewhere" / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "RAWPACK_CACHE")}
    for folder in elsewhere.values():
        folder.mkdir(parents=True)
    before = states_of(tmp_path / "from")
    for variable, folder in elsewhere.items():
        monkeypatch.setenv(variable, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    run, workers = (run_command, 2) if name == "a.tar.gz" else (run_here, 0)
    ran = run("pack", "--quiet", "--workers", workers, tmp_path / "from" / name, tmp_path / "store")
    assert (ran.code, ran.err) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "from", "store"]
    assert files_of(tmp_path / "elsewhere") == {}
    assert states_of(tmp_path / "from") == before


def test_the_last_of_two_members_counts_and_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    save(root / "a" / "1.png", picture(20, 30, 0))
    shell(tmp_path, "tar cf a.tar photos")
    save(root / "a" / "1.png", picture(20, 30, 1))
    shell(tmp_path, "tar rf a.tar photos/a/1.png")
    source = open_source(tmp_path / "a.tar")
    same(source, open_folder(root))
    assert source.info.problems == ("photos/a/1.png is there more than once: the last one counts",)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("photos/a/1.png", b"old")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("photos/a/1.png", (root / "a" / "1.png").read_bytes())
    same(open_source(tmp_path / "a.zip"), open_folder(root))


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


def test_names_in_zip_archives(tmp_path: Path) -> None:
    """Names are UTF-8 by their mark; without it UTF-8 as Unix writes it, or cp437; DOS has backslashes."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, system in (("a/ü1.jpg", 3), ("a/XX2.jpg", 3), ("a/Y3.jpg", 0), ("b\\4.jpg", 0)):
            info = zipfile.ZipInfo("x")
            info.filename = info.orig_filename = name
            info.create_system = system
            archive.writestr(info, JPEG)
    data = path.read_bytes().replace(b"XX2", "ü2".encode()).replace(b"Y3", b"\x813")
    path.write_bytes(data)
    source = open_source(path)
    assert [source.key(i) for i in range(len(source))] == ["a/ü1.jpg", "a/ü2.jpg", "a/ü3.jpg", "b/4.jpg"]


class OfCodePage(zipfile.ZipInfo):
    """A member whose name is in the code page of a Russian Windows."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802
        return self.filename.encode("cp866"), self.flag_bits & ~0x800


@pytest.mark.parametrize("changed", [False, True])
def test_names_of_a_code_page_with_another_in_utf8(changed: bool, tmp_path: Path) -> None:
    """As WinZip and Info-ZIP write them: the field with the name in UTF-8 counts, unless the name was changed since."""
    info = OfCodePage("кот/1.jpg")
    utf8, old = info.filename.encode(), info.filename.encode("cp866")
    field = struct.pack("<HHBI", 0x7075, 5 + len(utf8), 1, zlib.crc32(old) ^ changed) + utf8
    info.extra = struct.pack("<HHI", 0x9999, 4, 0) + field
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, JPEG)
        archive.writestr("x/2.jpg", JPEG)
    source = open_source(tmp_path / "a.zip", "archive")
    assert {source.key(i) for i in range(2)} == {old.decode("cp437") if changed else info.filename, "x/2.jpg"}


def test_zip64(tmp_path: Path) -> None:
    """Records for archives beyond 4 GiB are read."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive, archive.open("1.jpg", "w", force_zip64=True) as file:
        file.write(JPEG)
    assert open_source(path)[0].image == JPEG


# ---- against tarfile


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


# ---- damage


@pytest.mark.parametrize("name", ["a.zip", "a.tgz"])
def test_a_changed_archive_stops_packing(tmp_path: Path, name: str) -> None:
    """An archive that was truncated or removed since it was opened is no reject of its members."""
    save(tmp_path / "p" / "a" / "1.png", picture(20, 30, 0))
    shell(tmp_path, "zip -qr a.zip p; tar czf a.tgz p")
    part = pickle.loads(pickle.dumps(open_source(tmp_path / name).part(0, 1)))
    assert isinstance(part[0], Item)
    if name == "a.zip":
        os.truncate(tmp_path / name, 100)
    else:
        (tmp_path / name).unlink()
    with pytest.raises(SourceChangedError, match=rf"{name} changed since packing began"):
        part[0]


def test_mutated_headers_are_read_as_tar_reads_them(tmp_path: Path) -> None:
    """Where the system's tar unpacks a changed header without complaint, the images are those that it unpacks."""
    for i in range(3):
        save(tmp_path / "p" / "a" / f"{i}.png", picture(8, 8, i))
    (tmp_path / "p" / "a" / "l.png").symlink_to("0.png")
    shell(tmp_path, "tar cf a.tar -C p .")
    whole, dice, compared = (tmp_path / "a.tar").read_bytes(), random.Random(7), 0
    headers = [i for i in range(0, len(whole), 512) if whole[i + 257 : i + 262] == b"ustar"]
    rounds = 60 if SOAK else 20
    for _ in range(rounds):
        data, start = bytearray(whole), dice.choice(headers)
        for _ in range(dice.randint(1, 3)):
            data[start + dice.randrange(512)] = dice.choice([0, 255, dice.randrange(256), *b"0123457/.SLgxDK"])
        header = data[start : start + 512]
        header[148:156] = b" " * 8
        data[start + 148 : start + 156] = b"%06o\0 " % sum(header)
        (tmp_path / "m.tar").write_bytes(data)
        out = tmp_path / "out"
        out.mkdir()
        unpacked = subprocess.run(["tar", "xf", "m.tar", "-C", "out"], cwd=tmp_path, capture_output=True, check=False)
        shell(tmp_path, "chmod -R u+rwx out")
        if unpacked.returncode == 0 and b"Removing leading" not in unpacked.stderr:
            compared += 1
            same(open_source(tmp_path / "m.tar", "archive"), open_folder(out))
        shutil.rmtree(out)
    assert compared > rounds * 2 // 3


# ---- reading


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice on files")
def test_the_disk_is_asked_for_the_ranges_of_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before members are read, their bytes are asked for, in one call if they follow one another; of a compressed
    archive nothing is."""
    members = {f"p/{i}.png": encoded(picture(20, 30, i)) for i in range(6)}
    (tmp_path / "a.tar").write_bytes(tar(members))
    (tmp_path / "a.zip").write_bytes(zipped(members))
    (tmp_path / "a.tgz").write_bytes(gzip.compress(tar(members)))
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr("os.posix_fadvise", lambda fd, offset, size, advice: asked.append((offset, size)))
    monkeypatch.setattr("rawpack_packer.part.pieces._file_system", lambda device: "ext4")
    for name, count in (("a.tar", 1), ("a.zip", 1), ("a.tgz", 0)):
        ReadAhead(open_source(tmp_path / name).part(0, 6), range(6)).at(0)
        data = (tmp_path / name).read_bytes()
        found = [data[offset : offset + size] for offset, size in asked]
        assert len(found) == count
        assert all(image in one for one in found for image in [*members.values()][1:5])
        asked.clear()


def test_a_grown_archive_is_appended(tmp_path: Path) -> None:
    """What was added to an archive is added to its store; what the store has stays."""
    for i in range(4):
        save(tmp_path / "p" / "a" / f"{i}.png", picture(20, 30, i))
    shell(tmp_path, "tar cf a.tar p")
    api.pack(tmp_path / "a.tar", tmp_path / "store", size=16, workers=0)
    save(tmp_path / "p" / "a" / "4.png", picture(20, 30, 4))
    shell(tmp_path, "tar rf a.tar p/a/4.png")
    done = api.append(tmp_path / "a.tar", tmp_path / "store", skip_existing=True, workers=0)
    assert (done.added, done.existing, done.changed) == (1, 4, 0)


def test_parts_are_small(tmp_path: Path) -> None:
    for k in range(3):
        make_tar(tmp_path / f"{k}.tar", *(f"{k}/some-image-{i:04}.jpg" for i in range(500)))
    source = open_source(f"{tmp_path}/{{0..2}}.tar")
    part = source.part(600, 700)
    assert len(pickle.dumps(part)) < 100 * 100 + 2000
    assert pickle.loads(pickle.dumps(part))[99].key == source.key(699)


# ---- ImageNet

WNIDS = {1: "n02119789", 449: "n01440764", 691: "n03788195"}
"""ILSVRC's own ids of a kit fox, a tench and a mosque; labels are in the order of the names."""
VALIDATION = (691, 1, 1, 449, 691)
"""The ILSVRC id of each validation image."""


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's validation images and development kit, with the names of the original."""
    root = tmp_path_factory.mktemp("imagenet")
    images = {f"ILSVRC2012_val_{i + 1:08d}.JPEG": encoded(picture(20, 30, i), "JPEG") for i in range(len(VALIDATION))}
    (root / "ILSVRC2012_img_val.tar").write_bytes(tar(images))
    make_tar(root / "train.tar", *(f"{wnid}/1.jpg" for wnid in WNIDS.values()))
    kit = root / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{i}\n" for i in VALIDATION))
    shell(root, "tar czf ILSVRC2012_devkit_t12.tar.gz ILSVRC2012_devkit_t12")
    return root


def test_ilsvrc_ids_are_those_of_the_development_kit() -> None:
    """1,000 of them in the order of `ILSVRC2012_ID` in the kit's meta.mat."""
    data = (Path(archives.__file__).parents[1] / "ilsvrc2012.txt").read_bytes()
    assert len({*data.decode().split()}) == 1000
    # Of the ids in meta.mat, a line each.
    assert sha256(data).hexdigest() == "e85e4969a881deb8a8ba329357d033f7a664de8f1e099f593ad723bcf79bbfe5"


@pytest.mark.parametrize("form", ["kit", "folder", "kaggle", "wnids"])
def test_imagenet_validation_set(tmp_path: Path, imagenet: Path, form: str) -> None:
    """Labels from the development kit, Kaggle's table or a list are those of the training set's classes."""
    wnids = [WNIDS[i] for i in VALIDATION]
    rows = [f"ILSVRC2012_val_{i:08d},{wnid} 1 2 3 4 {wnid} 5 6 7 8 \n" for i, wnid in enumerate(wnids, 1)]
    (tmp_path / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "".join(reversed(rows)))
    (tmp_path / "labels.txt").write_text("\n".join(wnids))
    path = {
        "kit": imagenet / "ILSVRC2012_devkit_t12.tar.gz",
        "folder": imagenet / "ILSVRC2012_devkit_t12",
        "kaggle": tmp_path / "LOC_val_solution.csv",
        "wnids": tmp_path / "labels.txt",
    }[form]
    source = open_source(imagenet / "ILSVRC2012_img_val.tar", labels_file=path)
    assert source.info.classes == tuple(sorted(WNIDS.values()))
    assert [source[i].fields["label"] for i in range(5)] == [sorted(WNIDS.values()).index(wnid) for wnid in wnids]
    assert source.info.options == {"--labels-file": str(path)}
    assert not np.array_equal(source.states(), open_source(imagenet / "ILSVRC2012_img_val.tar").states())


@pytest.mark.parametrize(
    ("archive", "name", "labels", "message"),
    [
        ("train.tar", "three.txt", b"a\n" * 3, "has 3 class folders: --labels-file applies to images without"),
        ("ILSVRC2012_img_val.tar", "ids.txt", b"1\n2\n3\n1\n2\n", "begin at 1, .* from 0.*ILSVRC2012_devkit_t12"),
        ("ILSVRC2012_img_val.tar", "other.csv", b"ImageId,PredictionString\nILSVRC2012_val_1,n01440764 1 2 3 4\n",
         "has no label for ILSVRC2012_val_00000001.JPEG"),
        ("ILSVRC2012_img_val.tar", "kit/ILSVRC2012_validation_ground_truth.txt", b"1001\n" * 5, "are 1 to 1,000"),
        ("ILSVRC2012_img_val.tar", "kit/ILSVRC2012_validation_ground_truth.txt", b"\xff" * 5, "cannot be read"),
    ],
)  # fmt: skip
def test_labels_that_do_not_fit(
    tmp_path: Path, imagenet: Path, archive: str, name: str, labels: bytes, message: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(labels)
    with pytest.raises(UsageError, match=message):
        open_source(imagenet / archive, labels_file=tmp_path / name.partition("/")[0])


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
