"""What was found in archives is kept for a run that resumes: used of the same archives, and never if damaged."""

from __future__ import annotations

import bz2
import gzip
import os
import random
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from archived import tar, zipped
from folders import files_of
from pictures import encoded, picture
from running import pack, run_here
from store_server import Server, limit_spools, serving

from rawpack_packer.sources.archives import opened, recordio
from rawpack_packer.sources.table import kept
from rawpack_packer.sources.tfrecord import example
from rawpack_packer.testing.engines import check_files, settled_files

RECORDS = Path(__file__).parents[1] / "support" / "fixtures" / "recordio"
SMALL = ("--size", 32, "--shard-size", 1, "--max-rejects", 1)
LOOKS = ((opened, "tar_members"), (opened, "zip_members"), (recordio, "records"), (example, "records"))
"""What looks through archives."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tar and a zip of a folder, a tar of tars, a WebDataset with unlabelled samples, and a RecordIO file."""
    root = tmp_path_factory.mktemp("archives")
    images = [encoded(picture(40, 60, k), "JPEG", quality=95) for k in range(8)]
    photos = {f"photos/{'ab'[i % 2]}/{i}.jpg": image for i, image in enumerate(images)}
    (root / "photos.zip").write_bytes(zipped(photos))
    (root / "photos.tar").write_bytes(tar(photos | {"photos/a/bad.jpg": b"no image"}))
    classes = {f"{name}.tar": tar({f"{name}_{i}.JPEG": images[i] for i in range(4)}) for name in "ab"}
    (root / "imagenet.tar").write_bytes(tar(classes))
    for number in range(2):
        members: dict[str, bytes | str] = {}
        for i in range(4 * number, 4 * number + 4):
            members |= {f"{i}.jpg": images[i]} | ({f"{i}.cls": f"{i}"} if i % 3 != 1 else {})
        (root / f"train-{number}.tar").write_bytes(tar(members))
    (root / "packed.tar.gz").write_bytes(gzip.compress((root / "photos.tar").read_bytes()))
    (root / "packed.tar.bz2").write_bytes(bz2.compress((root / "imagenet.tar").read_bytes()))
    (root / "shard.tar.gz").write_bytes(gzip.compress((root / "train-0.tar").read_bytes()))
    shutil.copy(RECORDS / "plain.rec", root / "plain.rec")
    shutil.copy(RECORDS.parent / "tfrecord" / "imagenet" / "train-00000-of-00002", root / "train.tfrecord")
    (root / "train.tfrecord.gz").write_bytes(gzip.compress((root / "train.tfrecord").read_bytes()))
    return root


SOURCES = ["photos.tar", "photos.zip", "imagenet.tar", "train-{0..1}.tar", "plain.rec", "train.tfrecord"]
PACKED = ["packed.tar.gz", "packed.tar.bz2", "shard.tar.gz", "train.tfrecord.gz"]


def stop(source: object, destination: Path, *options: object) -> Path:
    """Pack until the last part is done; the folder with what was kept."""
    with mock.patch("rawpack_packer.job.job.commit_store", side_effect=KeyboardInterrupt):
        ran = run_here("pack", "--quiet", "--workers", 0, *SMALL, *options, source, destination)
    assert ran.code == 130, ran
    return destination / ".rawpack" / "spool"


def no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, no archive can be looked through."""
    for module, name in LOOKS:
        monkeypatch.setattr(module, name, mock.Mock(side_effect=AssertionError(f"{name} was called")))


@pytest.mark.parametrize("name", SOURCES + PACKED)
def test_a_run_that_resumes_looks_through_nothing(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each kind of archive; the store has the bytes of an undisturbed run, and what was kept is gone at the end."""
    pack(archives / name, tmp_path / "once", *SMALL)
    assert list(stop(archives / name, tmp_path / "store").iterdir())
    no_look(monkeypatch)
    monkeypatch.setattr(opened, "is_tar", no_look)
    pack(archives / name, tmp_path / "store", *SMALL)
    check_files(settled_files(tmp_path / "store"), settled_files(tmp_path / "once"))
    assert not (tmp_path / "store" / ".rawpack").exists()
    assert not kept._found


@pytest.mark.parametrize(
    ("name", "looks"),
    [("photos.tar", 1), ("photos.zip", 1), ("imagenet.tar", 3), ("train-{0..1}.tar", 2), ("packed.tar.gz", 1),
     ("shard.tar.gz", 1)],
)  # fmt: skip
def test_an_archive_is_looked_through_once(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, looks: int
) -> None:
    """Whether it holds folders or shards is decided by the look that finds its members."""
    found = []
    for module, function in LOOKS:
        look = getattr(module, function)
        monkeypatch.setattr(module, function, lambda *given, look=look: found.append(look) or look(*given))
    pack(archives / name, tmp_path / "store", *SMALL)
    assert len(found) == looks


@pytest.mark.parametrize(
    "name", ["imagenet.tar", "train-{0..1}.tar", "plain.rec", "packed.tar.gz", "train.tfrecord", "train.tfrecord.gz"]
)
def test_damage_is_noticed(archives: Path, tmp_path: Path, name: str) -> None:
    """Whatever was kept is flipped, cut, emptied, or another archive's: it is not used, and the store is the same."""
    pack(archives / name, tmp_path / "once", *SMALL)
    folder = stop(archives / name, tmp_path / "begun")
    draw = random.Random(0)
    for number in range(12):
        shutil.copytree(tmp_path / "begun", tmp_path / f"{number}")
        files = sorted((tmp_path / f"{number}" / folder.relative_to(tmp_path / "begun")).iterdir())
        file = draw.choice(files)
        data = bytearray(file.read_bytes())
        if number < 6:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        elif number < 9:
            del data[draw.randrange(len(data)) :]
        else:
            data = bytearray([b"", b"\x00" * 40, b"x" * 100_000][number - 9])
        file.write_bytes(data)
        pack(archives / name, tmp_path / f"{number}", *SMALL)
        check_files(settled_files(tmp_path / f"{number}"), settled_files(tmp_path / "once"))


def test_what_is_no_file_is_looked_past(archives: Path, tmp_path: Path) -> None:
    """A link or a pipe in place of a list is not opened."""
    pack(archives / "photos.tar", tmp_path / "once", *SMALL)
    (file,) = stop(archives / "photos.tar", tmp_path / "store").iterdir()
    shutil.copytree(tmp_path / "store", tmp_path / "linked")
    file.unlink()
    os.mkfifo(file)
    linked = tmp_path / "linked" / file.relative_to(tmp_path / "store")
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    for name in ("store", "linked"):
        pack(archives / "photos.tar", tmp_path / name, *SMALL)
        check_files(settled_files(tmp_path / name), settled_files(tmp_path / "once"))


@pytest.mark.parametrize("how", ["time", "bytes"])
def test_another_version_of_an_archive_is_looked_through(archives: Path, tmp_path: Path, how: str) -> None:
    """What was kept belongs to one size and time: a run resumes with no other archive, and --restart packs it."""
    source = shutil.copy(archives / "photos.tar", tmp_path / "x.tar")
    stop(source, tmp_path / "store")
    if how == "time":
        os.utime(source, ns=(1, 1))
    else:
        Path(source).write_bytes(tar({"photos/b/9.jpg": encoded(picture(40, 60, 9), "JPEG")}))
    ran = run_here("pack", "--quiet", "--workers", 0, *SMALL, source, tmp_path / "store")
    assert (ran.code, "other" in ran.err) == (2, True), ran.err
    pack(source, tmp_path / "store", *SMALL, "--restart")
    pack(source, tmp_path / "once", *SMALL)
    check_files(settled_files(tmp_path / "store"), settled_files(tmp_path / "once"))


def test_a_list_that_is_too_long_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is found, and its memory is bounded."""
    monkeypatch.setattr(kept, "_MOST_BYTES", 10_000)
    assert list(kept.keeping(iter(range(20_000)), "long.index", tmp_path)) == list(range(20_000))
    assert list(kept.keeping(iter(range(2_000)), "short.index", tmp_path)) == list(range(2_000))
    assert [path.name for path in tmp_path.iterdir()] == ["short.index"]
    assert list(kept.read_kept("short.index", int, tmp_path) or ()) == list(range(2_000))


def test_a_disk_without_room_for_it(archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is kept, and the run is not stopped by that."""
    monkeypatch.setattr(kept, "_found", {})
    monkeypatch.setattr(kept, "_unnamed", None)
    monkeypatch.setattr(tempfile, "TemporaryFile", mock.Mock(side_effect=OSError(28, "No space left on device")))
    folder = stop(archives / "photos.tar", tmp_path / "store")
    assert not folder.exists()


def test_splits_of_an_archive_share_one_look(tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One archive is looked through once for all splits, also by the run that resumes; nothing is left at the end."""
    with zipfile.ZipFile(archives / "photos.zip") as photos:
        files = {name: photos.read(name) for name in photos.namelist()} | {"photos/a/bad.jpg": b"no image"}
    splits = {
        name.replace("photos", f"set/{split}"): data for name, data in files.items() for split in ("train", "val")
    }
    (tmp_path / "set.tar").write_bytes(tar(splits))
    looks = []
    look = opened.tar_members
    monkeypatch.setattr(opened, "tar_members", lambda *given: looks.append(1) or look(*given))
    options = ("--quiet", "--workers", 0, *SMALL, "--splits", "train,val", tmp_path / "set.tar", tmp_path / "sets")
    with mock.patch("rawpack_packer.job.job.commit_store", side_effect=KeyboardInterrupt):
        assert run_here("pack", *options).code == 130
    assert len(looks) == 1
    assert run_here("pack", *options).code == 0
    assert len(looks) == 1
    assert sorted(path.name for path in (tmp_path / "sets").iterdir()) == ["splits.json", "train", "val"]
    pack(archives / "photos.tar", tmp_path / "one", *SMALL)
    for split in ("train", "val"):
        check_files(settled_files(tmp_path / "sets" / split), settled_files(tmp_path / "one"))


# ---------------------------------------------------------------------------------------------- behind URLs


@pytest.fixture
def server(archives: Path) -> Iterator[Server]:
    with serving() as started:
        started.put_folder("files", files_of(archives))
        yield started


@pytest.mark.parametrize("name", ["photos.tar", "photos.zip", "train-{0..1}.tar", "plain.rec"])
def test_a_run_that_resumes_fetches_only_what_it_packs(
    server: Server, archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All parts are done, and the spool was too small for any archive: nothing is looked through or fetched again, to
    detect its kind either."""
    limit_spools(monkeypatch, 1)
    pack(archives / name, tmp_path / "once", *SMALL)
    stop(f"{server.url}/files/{name}", tmp_path / "store")
    no_look(monkeypatch)
    server.log.clear()
    pack(f"{server.url}/files/{name}", tmp_path / "store", *SMALL)
    check_files(settled_files(tmp_path / "store"), settled_files(tmp_path / "once"))
    assert not [path for method, path in server.log if method == "GET"]


def test_an_archive_that_changed_at_the_server(server: Server, archives: Path, tmp_path: Path) -> None:
    """What was kept of another version is not used: the run does not resume, and --restart packs what is there now."""
    stop(f"{server.url}/files/photos.tar", tmp_path / "store")
    server.files["files/photos.tar"] = server.files["files/imagenet.tar"]
    ran = run_here("pack", "--quiet", "--workers", 0, *SMALL, f"{server.url}/files/photos.tar", tmp_path / "store")
    assert (ran.code, "other" in ran.err) == (2, True), ran.err
    pack(f"{server.url}/files/photos.tar", tmp_path / "store", *SMALL, "--restart")
    pack(archives / "imagenet.tar", tmp_path / "once", *SMALL)
    check_files(settled_files(tmp_path / "store"), settled_files(tmp_path / "once"))


def test_nothing_is_kept_of_files_without_a_version(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that tells neither an ETag nor a time may have other bytes at the next look."""
    monkeypatch.setattr("rawpack.remote.transfer._VERSIONS", ())
    folder = stop(f"{server.url}/files/photos.tar", tmp_path / "store")
    assert not list(folder.glob("*.index"))


def test_splits_and_folders_behind_a_url(server: Server, tmp_path: Path, archives: Path) -> None:
    """A folder in an archive behind a URL is packed; so are its splits, which share the spool, also after a kill; and
    so are splits that are drawn. No spool is left."""
    url = f"{server.url}/files/photos.tar"
    pack(f"{url}/a", tmp_path / "far", *SMALL)
    pack(f"{archives}/photos.tar/a", tmp_path / "near", *SMALL)
    check_files(settled_files(tmp_path / "far"), settled_files(tmp_path / "near"))
    for number, options in enumerate((("--splits", "a,b"), ("--holdout", "val=0.25"))):
        server.log.clear()
        begun = ("--quiet", "--workers", 0, *SMALL, *options)
        with mock.patch("rawpack_packer.job.job.commit_store", side_effect=KeyboardInterrupt):
            assert run_here("pack", *begun, url, tmp_path / f"far-{number}").code == 130
        ran = run_here("pack", *begun, url, tmp_path / f"far-{number}")
        assert (ran.code, ran.err) == (0, ""), ran
        assert server.asked("photos.tar") == 1
        assert run_here("pack", *begun, archives / "photos.tar", tmp_path / f"near-{number}").code == 0
        names = {path.name for path in (tmp_path / f"near-{number}").iterdir()}
        assert {path.name for path in (tmp_path / f"far-{number}").iterdir()} == names
        for name in names - {"splits.json"}:
            one, other = (settled_files(tmp_path / f"{where}-{number}" / name) for where in ("far", "near"))
            check_files(one, other)
