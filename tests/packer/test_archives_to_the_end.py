"""Archives are read to their end, or refused: what their size or their own count says is there is never left out
in silence."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archived import tar, zipped
from forked import Forks
from pictures import encoded
from PIL import Image
from running import Ran, reason_of, run_here

from rawpack import Reader
from rawpack.errors import PackError, UsageError
from rawpack_packer import api
from rawpack_packer.sources import open_source
from rawpack_packer.sources.archives import opened
from rawpack_packer.sources.archives.zip import _problem, directory

CLASSES = ("ant", "bee", "cow")


def png(seed: int) -> bytes:
    return encoded(np.random.default_rng(seed).integers(0, 256, (8, 6, 3), dtype=np.uint8))


PHOTOS = {f"p/{name}/{i}.png": png(10 * k + i) for k, name in enumerate(CLASSES) for i in range(4)}


def of_class(name: str) -> dict[str, bytes]:
    return {path: data for path, data in PHOTOS.items() if f"/{name}/" in path}


def inner() -> dict[str, bytes]:
    """A flat tar of each class, as ImageNet's training set has them."""
    return {f"{name}.tar": tar({path[2:].replace("/", "_"): data for path, data in of_class(name).items()})
            for name in CLASSES}  # fmt: skip


def shard(first: int) -> bytes:
    return tar({f"{i:03}.{suffix}": data for i in range(first, first + 6)
                for suffix, data in (("cls", b"%d" % (i % 3)), ("png", png(i)))})  # fmt: skip


def strict(source: Path, store: Path, *options: object) -> Ran:
    """What packs nothing that it does not report: `-q --strict`."""
    return run_here("pack", "-q", "--strict", "--workers", 0, *options, source, store)


def refused(source: Path, data: bytes | None, *messages: str) -> None:
    """A file of these bytes, or as it is, ends with an error that says all of this, and nothing is written."""
    store = source.with_name("store")
    if data is not None:
        source.write_bytes(data)
    ran = run_here("pack", "-q", "--max-rejects", 0, "--workers", 0, source, store)
    assert (ran.code in (1, 2), store.exists()) == (True, False), ran
    for message in messages:
        assert message in ran.err
    assert "Traceback" not in ran.err


def with_unreadable(source: Path) -> dict[str, bytes]:
    """What `--skip-unreadable` packs, as keys and pixels; its exit code says that something is missing."""
    store = source.with_name("store")
    ran = run_here("pack", "-q", "--skip-unreadable", "--size", "keep", "--workers", 0, source, store)
    assert ran.code == 1, ran
    return packed(store)


def packed(store: Path) -> dict[str, bytes]:
    return {str(sample["key"]): sample["image"].tobytes() for sample in Reader(store)}


def pixels(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same by Pillow."""
    return {name: np.asarray(Image.open(io.BytesIO(data))).tobytes() for name, data in members.items()}


ANTS = pixels({path[2:]: data for path, data in of_class("ant").items()})
ALL = pixels({path[2:]: data for path, data in PHOTOS.items()})

# ---- after the mark of the end

TWO = (tar(of_class("ant")), tar(of_class("bee")))
END = TWO[0].rstrip(b"\0")
SOUND = {
    "one block.tar": END + bytes(-len(END) % 512 + 512),
    "no whole block.tar": END + bytes(-len(END) % 512 + 1024 + 77),
    "one in two.tar.gz": gzip.compress(TWO[0][:3000]) + gzip.compress(TWO[0][3000:]),
    "program.zip": b"MZ" + os.urandom(3000) + zipped(of_class("ant")),
    "zeros.zip": zipped(of_class("ant")) + bytes(1000),
    "zeros.tar.bz2": bz2.compress(TWO[0]) + bytes(1000),
}


@pytest.mark.parametrize("name", SOUND)
def test_zeros_at_the_end_are_nothing(tmp_path: Path, name: str) -> None:
    """Any number of them; and one archive in two gzip streams, or after a program, is one archive."""
    (tmp_path / name).write_bytes(SOUND[name])
    assert strict(tmp_path / name, tmp_path / "store", "--size", "keep") == Ran(0, "", "")
    assert packed(tmp_path / "store") == ANTS


@pytest.mark.parametrize("flags", ["-V label", "-G", "--format=v7", "-b 1", "append"])
def test_what_tar_writes_has_nothing_after_its_end(tmp_path: Path, flags: str) -> None:
    """Labels, lists of folders, old formats, small and large records, archives joined by `tar -A`: all pack."""
    for path, data in PHOTOS.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    command = f"tar cf a.tar {flags} p"
    if flags == "append":
        command = "tar cf a.tar p/ant && tar cf b.tar p/bee p/cow && tar -Af a.tar b.tar"
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert strict(tmp_path / "a.tar", tmp_path / "store", "--size", "keep") == Ran(0, "", "")
    assert packed(tmp_path / "store") == ALL


def test_every_cut_of_a_tar_is_refused_by_name(tmp_path: Path) -> None:
    """Wherever a download stopped, also within the padding of a member, and what is whole can be packed."""
    whole, path = tar(of_class("ant")), tmp_path / "cut.tar"
    end = len(whole.rstrip(b"\0"))
    for cut in [*range(600, end + 512 - end % 512, 97), end + 1]:
        path.write_bytes(whole[:cut])
        with pytest.raises(PackError, match=r"cut\.tar cannot be read to its end: .*; \d members? before that"):
            open_source(path)
    path.write_bytes(whole[: whole.index(b"p/ant/3.png") - 5])  # within padding
    found = with_unreadable(path)
    assert len(found) == 3
    assert found.items() <= ANTS.items()


# ---- archives in archives


def test_a_damaged_class_of_a_tar_of_tars_is_an_error(tmp_path: Path) -> None:
    """It is not left out; with --skip-unreadable it is, and the labels of the other classes stay as they were."""
    members, damaged = inner(), bytearray(inner()["bee.tar"])
    damaged[3] ^= 1  # in its first header
    data = tar({**members, "bee.tar": bytes(damaged)})
    refused(tmp_path / "tot.tar", data, "tot.tar/bee.tar cannot be read to its end: it has no valid header")
    assert len(with_unreadable(tmp_path / "tot.tar")) == 8
    left = Reader(tmp_path / "store")
    assert left.classes == CLASSES
    assert all(CLASSES[int(one["label"])] == str(one["key"]).partition("/")[0] for one in left)


@pytest.mark.parametrize("how", ["./{}", "train/{}"])
def test_an_empty_class_of_a_tar_of_tars_is_a_class(tmp_path: Path, how: str) -> None:
    """An archive of nothing is whole; hidden names that macOS adds are none of the archives."""
    members = {**inner(), "bee.tar": tar({}), "._cow.tar": b"Mac OS X", "._x.png": b"Mac OS X"}
    (tmp_path / "tot.tar").write_bytes(tar({how.format(name): data for name, data in members.items()}))
    assert strict(tmp_path / "tot.tar", tmp_path / "store").code == 0
    reader = Reader(tmp_path / "store")
    assert (reader.classes, len(reader)) == (CLASSES, 8)


def test_an_image_beside_inner_tars_is_an_error_that_names_the_way(tmp_path: Path) -> None:
    """The images of the archives are not dropped; what is typed by the message packs them, or the image."""
    data, way = tar({"cover.png": png(99), **inner()}), f"{tmp_path}/stray.tar/bee"
    refused(tmp_path / "stray.tar", data, "stray.tar/bee.tar is an archive next to 1 image", way)
    assert strict(Path(way), tmp_path / "bees").code == 0
    assert len(Reader(tmp_path / "bees")) == 4
    assert with_unreadable(tmp_path / "stray.tar") == pixels({"cover.png": png(99)})


def encrypted(data: bytes) -> bytes:
    """A zip archive whose directory says that its last member is encrypted."""
    changed = bytearray(data)
    changed[data.rindex(b"PK\1\2") + 8] |= 1
    return bytes(changed)


def damaged(data: bytes) -> bytes:
    """A compressed file with a stretch in its middle overwritten."""
    at = len(data) // 2
    return data[:at] + bytes(255 - byte for byte in data[at : at + 40]) + data[at + 40 :]


def entry(data: bytes | bytearray, number: int) -> int:
    """Where an entry of the directory begins."""
    at = -1
    for _ in range(number + 1):
        at = data.index(b"PK\1\2", at + 1)
    return at


def shorter(data: bytes) -> bytes:
    """A zip archive of which a byte makes the directory, from its sixth member on, a comment of the fifth."""
    at = entry(data, 4) + 33
    return data[:at] + b"\xff" + data[at + 1 :]


ANT = b"p/ant/1.png"
A_FILE, A_PIPE = ((mode | 0o600).to_bytes(2, "little") for mode in (0, 0o010000))
"""The high half of a member's attributes, as `zipfile` writes it for a file, and that of a pipe."""
AT_ANT = zipped(PHOTOS).index(b"PK\3\4", 1).to_bytes(4, "little")


def with_another(old: bytes, new: bytes) -> bytes:
    """A zip archive whose directory, and not the member itself, has another name or mode of one member."""
    before, after = zipped(PHOTOS).rsplit(old, 1)
    return before + new + after


REST = TWO[0] + bytes(100) + b"rest"
NOT_ZEROS = f"is not zeros, from byte {len(TWO[0]) + 100} on; 4 members before"
JOINED = ("more members follow the mark of its end", "ONE.tar::TWO.tar")
INSIDE = "is an archive in an archive"
COMPRESSED = ("its compressed data ", " members before that", "--skip-unreadable packs the rest")
REFUSED: dict[str, tuple[str, bytes, tuple[str, ...], int]] = {
    "joined": ("a.tar", TWO[0] + TWO[1], JOINED, 4),
    "joined after compression": ("a.tar.gz", gzip.compress(TWO[0]) + gzip.compress(TWO[1]), JOINED, 4),
    "joined behind zeros": ("a.tar", TWO[0] + bytes(3 << 20) + TWO[1], JOINED, 4),
    "a block of zeros": ("a.tar", TWO[0][:2048] + bytes(512) + TWO[0][2048:], JOINED, 2),
    "joined shards": ("a.tar", shard(0) + shard(6), JOINED, 0),
    "other bytes": ("a.tar", REST, (NOT_ZEROS,), 4),
    "other bytes behind bzip2": ("a.tar.bz2", bz2.compress(TWO[0]) + b"rest", ("is not compressed",), 0),
    "a joined inner tar": ("tot.tar", tar({**inner(), "bee.tar": inner()["bee.tar"] + TWO[1]}),
                           ("tot.tar/bee.tar cannot be read to its end", "the mark of its end"), 0),
    "damaged gzip": ("a.tar.gz", damaged(gzip.compress(tar(PHOTOS))), COMPRESSED, 0),
    "beside a folder": ("a.tar", tar({**PHOTOS, "extra.zip": b"PK"}), (f"a.tar/extra.zip {INSIDE}", "/FOLDER"), 12),
    "a tar in an inner tar": ("deep.tar", tar({**inner(), "cow.tar": tar({"more.tar": TWO[0]})}), (INSIDE,), 0),
    "a member without a name": ("a.tar", tar({**PHOTOS, "": png(1)}), ("has no name",), 0),
    "joined zips": ("a.zip", zipped(of_class("ant")) + zipped(of_class("bee")), ("Pack them as ONE.zip::TWO.zip",), 0),
    "other bytes behind a zip": ("a.zip", zipped(PHOTOS) + b"rest", ("4 bytes follow its end",), 12),
    "a zip that is cut": ("a.zip", zipped(PHOTOS)[:-30], ("no directory at its end: it is truncated, or one",), 0),
    "an encrypted zip": ("a.zip", encrypted(zipped(PHOTOS)), ("1 image of 12 cannot be read", "its password"), 0),
    **{f"method {k}": ("a.zip", zipped({"1.png": png(1)}, method), (f"compressed by method {k} (", "unpack it"), 0)
       for k, method in ((12, zipfile.ZIP_BZIP2), (14, zipfile.ZIP_LZMA))},
    "a zip of fewer members": ("a.zip", shorter(zipped(PHOTOS)), ("5 members, and the record at its end says 12",), 5),
    "no image": ("a.zip", with_another(ANT, b"p/ant/1.txt"), ("its directory calls it 'p/ant/1.txt'",), 11),
    "another class": ("a.zip", with_another(ANT, b"p/bee/9.png"), ("is 'p/ant/1.png', and its directory",), 11),
    "a folder": ("a.zip", with_another(ANT, b"p/ant/1png/"), ("the member at byte",), 11),
    "elsewhere": ("a.zip", zipped(PHOTOS).replace(b"PK\3\4", b"PK\3\3", 1), ("no member begins at byte 0",), 11),
    "a pipe": ("a.zip", with_another(A_FILE + AT_ANT + ANT, A_PIPE + AT_ANT + ANT), ("a pipe or a device",), 11),
}  # fmt: skip
"""Name, bytes, words of the error, and how many images --skip-unreadable packs where some are left."""


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_more_or_less_than_an_archive_of_images_is_an_error(tmp_path: Path, how: str) -> None:
    """Archives joined by `cat`, damaged ones, archives in archives; zips whose directories have other members.
    --skip-unreadable packs the rest, and nothing under another name."""
    name, data, messages, left = REFUSED[how]
    refused(tmp_path / name, data, *messages)
    if left:
        rest = with_unreadable(tmp_path / name)
        assert len(rest) == left
        assert rest.items() <= ALL.items()


def test_more_members_than_the_old_record_can_count(tmp_path: Path) -> None:
    """Without the record of large archives, the number is that modulo 65,536, as some programs write it, or 65,535."""
    data = zipped({"a.png": png(1)})
    begin, end = entry(data, 0), data.rindex(b"PK\5\6")
    names = [b"%05d.txt" % i for i in range(65_600)]
    more = b"".join(data[begin : begin + 28] + struct.pack("<H", 9) + bytes(16) + name for name in names)
    found: list[zipfile.ZipInfo] = []
    for said, message in ((65_601 % 65_536, ""), (65_535, ""), (64, "lists 65,601 members, and .* says 64")):
        record = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, said, said, end - begin + len(more), begin, 0)
        (tmp_path / "a.zip").write_bytes(data[:end] + more + record)
        with (tmp_path / "a.zip").open("rb") as file:
            # The members are read once: that takes most of the time.
            found, problem = (found, _problem(file, found, begin)) if found else directory(file)
        assert len(found) == 65_601
        assert re.search(message, str(problem)) if message else problem is None


def test_a_split_zip_is_refused_with_the_command_that_joins_it(tmp_path: Path) -> None:
    """The last part has a directory; its members are in the others."""
    for i in range(8):
        (tmp_path / f"{i}.png").write_bytes(png(i) + os.urandom(20_000))
    subprocess.run("zip -q -0 -s 64k a.zip *.png", shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "a.z01").exists()
    refused(tmp_path / "a.zip", None, "it is one part of a split archive: join the parts first", "zip -s 0")


# ---- random damage

KINDS: dict[str, bytes] = {
    "a.tar": tar(PHOTOS),
    "tot.tar": tar(inner()),
    "a.tar.gz": gzip.compress(tar(PHOTOS)),
    "a.tar.bz2": bz2.compress(tar(PHOTOS)),
    "a.zip": zipped(PHOTOS),
    "deflated.zip": zipped(PHOTOS, zipfile.ZIP_DEFLATED),
}


def places(name: str, data: bytes) -> list[int]:
    """Bytes whose change can be seen: all, but for pixels in a tar, which have no checksum there, and for modes in the
    directory of a zip, which are nowhere else."""
    if name in ("a.tar", "tot.tar"):
        headers = [i for i in range(0, len(data), 512) if data[i + 257 : i + 262] == b"ustar"]
        tail = range(len(data.rstrip(b"\0")) + 512, len(data))
        return [*(i + k for i in headers for k in range(512)), *tail]
    free = set[int]()
    if name.endswith(".zip"):
        for number in range(data.count(b"PK\1\2")):
            at = entry(data, number)
            free.update({at + 4, at + 5, *range(at + 38, at + 42)})
    return [i for i in range(len(data)) if i not in free]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("rounds", [7, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_a_damaged_archive_never_loses_samples_in_silence(tmp_path: Path, name: str, rounds: int) -> None:
    """Whatever bytes change, are cut, doubled or added: with exit code 0 and no reject, every sample is there with its
    own pixels and its own class; and what is packed otherwise is right too."""
    whole, dice, ended = KINDS[name], random.Random(f"{name} {rounds}"), Counter[str]()
    where, how = places(name, whole), dict[str, Any](size="keep", workers=0, max_rejects=100)
    (tmp_path / name).write_bytes(whole)
    api.pack(tmp_path / name, tmp_path / "sound", **how)
    sound = contents(tmp_path / "sound")
    assert len(sound) == 12
    for number in range(rounds):
        data = bytearray(whole)
        kind = dice.choice(["bytes", "bytes", "bytes", "cut", "twice", "more", "zeros"])
        if kind == "bytes":
            for _ in range(dice.randint(1, 3)):
                at = dice.choice(where)
                data[at] = dice.choice([0, 255, dice.randrange(256), data[at] ^ 1 << dice.randrange(8)])
        elif kind == "cut":
            del data[dice.randrange(len(data)) :]
        elif kind == "twice":
            data += bytes(data)
        elif kind == "more":
            data += dice.randbytes(dice.randrange(1, 2000))
        else:
            at = dice.randrange(len(data) // 512) * 512
            data[at:at] = bytes(512)
        (tmp_path / name).write_bytes(data)
        skip, store = dice.random() < 0.3, tmp_path / f"store-{number}"
        try:
            done = api.pack(tmp_path / name, store, skip_unreadable=skip, **how)
        except (UsageError, PackError):
            ended["refused"] += 1
            continue
        rejects = store / "rejects.jsonl"
        found, silent = contents(store), not (done.unread or (rejects.exists() and rejects.read_bytes()))
        shutil.rmtree(store)
        if skip and found and None in {label for label, _ in found.values()}:
            # Of one class alone, its folder is the one that was archived.
            assert {image for _, image in found.values()} <= {image for _, image in sound.values()}
        else:
            assert found.items() <= sound.items(), (kind, number)
        assert not silent or found == sound, (kind, number, sorted(sound.keys() - found.keys()))
        ended["whole" if found == sound else "in part, and said so"] += 1
    print(name, dict(ended))
    assert ended["refused"] > rounds // 5


def contents(store: Path) -> dict[str, tuple[str | None, bytes]]:
    """Key -> class and pixels."""
    reader = Reader(store)
    return {
        str(one["key"]): (reader.classes[int(one["label"])] if reader.classes else None, one["image"].tobytes())
        for one in reader
    }


# ---- nothing is left behind


STOPS = """
import os, pathlib, signal, sys
from rawpack_packer.sources import open_source
from rawpack_packer.sources.table import process_file
from rawpack_packer.sources.table.remote_files import Spool
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "writing":
    write = process_file._UnnamedFile.add
    process_file._UnnamedFile.add = lambda self, pieces: (write(self, pieces), print("writing", flush=True), killed())
spool = Spool(pathlib.Path(sys.argv[2]), 1 << 30)
sources = [open_source(path, spool=spool) for path in sys.argv[3:]]
print("opened", *map(len, sources), flush=True)
killed()
"""


@pytest.mark.parametrize(
    ("names", "when"),
    [
        (["a.tar", "a.tar.gz", "a.tar.bz2", "a.zip"], "opened 12 12 12 12"),
        (["a.tar.gz"], "writing"),
        (["a.tar.bz2"], "writing"),  # the other archives have no index to be killed in
    ],
)
def test_a_killed_command_leaves_nothing_in_the_folder_for_temporary_files(
    forks: Forks, tmp_path: Path, names: list[str], when: str
) -> None:
    """`kill -9` while an archive is looked through, or after that; nor anywhere else, before there is a store."""
    for name in names:
        (tmp_path / name).write_bytes(KINDS[name])
    (tmp_path / "tmp").mkdir()
    paths = [tmp_path / name for name in names]
    ran = forks.run(STOPS, when, tmp_path / "spool", *paths, TMPDIR=str(tmp_path / "tmp"))
    assert (ran.code, ran.out) == (-signal.SIGKILL, f"{when}\n"), ran
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "spool").exists()


# ------------------------------------------------------------------------------------------ reads that fail


@pytest.mark.skipif(sys.platform != "linux", reason="finds rapidgzip's descriptors in /proc")
def test_a_read_that_fails_is_no_damage_of_compressed_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again; a sample that cannot be read then is unreadable, and is read as soon as it can be."""
    pytest.importorskip("rapidgzip")
    path, image = tmp_path / "set.tar.gz", png(0)
    path.write_bytes(gzip.compress(tar({f"a/{i}.png": image for i in range(3)})))
    part, fails, opening = open_source(path).part(0, 3), 0, opened._open_compressed

    def open_compressed(path: str, fd: int, *how: Any) -> Any:
        nonlocal fails
        reader, fails = opening(path, fd, *how), fails - 1
        if fails >= 0:
            nothing = os.open(os.devnull, os.O_WRONLY)
            for link in [*Path("/proc/self/fd").iterdir()]:
                if int(link.name) != fd and os.path.lexists(link) and link.readlink() == Path(path):
                    os.dup2(nothing, int(link.name))
            os.close(nothing)
        return reader

    monkeypatch.setattr(opened, "_open_compressed", open_compressed)
    for fails, reason in ((1, ""), (2, "unreadable"), (0, "")):  # noqa: B007
        assert reason_of(part, 1) == reason
        opened._close()
