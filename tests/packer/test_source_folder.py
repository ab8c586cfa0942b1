"""A folder as a source: what is a sample, in which order, with which label, and what is told of the rest."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pictures
import pytest
from draws import tries
from hypothesis import example, given, settings
from hypothesis import strategies as st
from running import reason_of

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.sources import KINDS, Samples, SourceChangedError, open_source
from rawpack_packer.sources import files as reading
from rawpack_packer.sources.folder import open_folder
from rawpack_packer.sources.look.listing import Listing

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")


def encoded(kind: str = "JPEG") -> bytes:
    """A small image file."""
    return pictures.encoded(np.full((4, 6, 3), 128, np.uint8), kind)


JPEG = encoded()


def put(root: Path, *names: str | bytes, data: bytes = JPEG) -> Path:
    """Write the same file under several names below root."""
    for name in names:
        path = os.path.join(os.fsencode(root), os.fsencode(name))  # noqa: PTH118 - names may be bytes
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "wb") as file:
            file.write(data)
    return root


def keys(samples: Samples) -> list[str]:
    return [samples.key(i) for i in range(len(samples))]


# ---- what is a sample, and its label


def test_other_files_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    """An image under any other name, or none, is a sample; what is no image is counted."""
    kinds = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
    for kind in kinds:
        put(tmp_path, f"{kind} x", f"{kind}.1", data=encoded(kind))
    put(tmp_path, "notes.txt", "Thumbs.db", "x.jpg.tmp", data=b"\xff no image")
    put(tmp_path, "empty", data=b"")
    source = open_folder(tmp_path)
    assert keys(source) == [name for kind in kinds for name in (f"{kind} x", f"{kind}.1")]
    assert source.info.counts["other_files"] == 4


@linux_only
def test_keys_do_not_depend_on_the_locale(tmp_path: Path) -> None:
    """A process whose locale knows ASCII only finds the same keys, classes and states."""
    put(tmp_path, "中/é.jpg", b"b/\xff.jpg", "b/z.jpg")
    program = (
        "import os, pickle, sys; from rawpack_packer.sources import open_source; s = open_source(sys.argv[1]);"
        "assert sys.getfilesystemencoding() == 'ascii', sys.getfilesystemencoding();"
        "images = [s[i].image for i in (0, 2)];"
        "os.write(1, pickle.dumps(([s.key(i) for i in range(len(s))], s.info.classes, s.states(), images)))"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.run(
        [sys.executable, "-c", program, tmp_path], env={**os.environ, **ascii_only}, check=True, capture_output=True
    ).stdout
    source = open_folder(tmp_path)
    found, classes, states, images = pickle.loads(output)
    assert found == keys(source) == ["b/z.jpg", "b/\\xff.jpg", "中/é.jpg"]
    assert classes == source.info.classes
    assert np.array_equal(states, source.states())
    assert images == [JPEG, JPEG]


def expected_of(root: bytes) -> tuple[list[bytes], list[int], list[bytes]]:
    """Paths, labels and class names by os.walk and one sort of split paths."""
    image_suffixes = (b".jpg", b".jpeg", b".png")
    paths = []
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(b".")]
        for name in files:
            path = folder + b"/" + name
            with open(path, "rb") as file:
                is_image = name.lower().endswith(image_suffixes) or file.read() == JPEG
            stem = name[: name.rfind(b".")] if b"." in name else name
            if is_image and stem and not name.startswith(b"."):
                paths.append(path[len(root) + 1 :])
    paths.sort(key=lambda path: path.split(b"/"))
    folders_of = [path.split(b"/")[:-1] for path in paths]
    common: list[bytes] = os.path.commonprefix(folders_of)  # noqa: RUF071 - of lists, name by name
    several = len({names[len(common)] for names in folders_of if len(names) > len(common)}) > 1
    inside = b"".join(name + b"/" for name in common) if several else b""
    top = root + b"/" + inside
    classes = sorted(e.name for e in os.scandir(top) if e.is_dir() and not e.name.startswith(b"."))
    number = {name: i for i, name in enumerate(classes)}
    first_folders = [path.removeprefix(inside).split(b"/")[:-1] for path in paths]
    return paths, [number[names[0]] if names else -1 for names in first_folders], classes


odd_characters = st.sampled_from("ab.-_ ~A0é中\n\u00a0\U0001f993\uffff\ue000")
names = st.one_of(
    st.text(odd_characters, min_size=1, max_size=3).map(str.encode),
    st.binary(min_size=1, max_size=2).filter(lambda name: not set(name) & set(b"\0/")),
).filter(lambda name: name not in (b".", b".."))
files = st.tuples(
    st.lists(names, max_size=3),
    names,
    st.sampled_from([b".jpg", b".PNG", b".txt", b""]),
    st.sampled_from([JPEG, b"", b"x"]),
)


@linux_only
@settings(max_examples=tries(160), deadline=None)
@given(st.lists(files, max_size=12))
@example([([], b"a\n\x1b[31m", b".jpg", JPEG), ([b"\xff"], b"1", b".jpg", JPEG), ([b"\\xff"], b"1", b".jpg", JPEG)])
@example([([b"a"], b"\xc3", b"", JPEG), ([b"a"], b"\xa9", b".jpg", JPEG)])  # which make a character together
def test_random_trees(tree: list[tuple[list[bytes], bytes, bytes, bytes]]) -> None:
    """Samples, order, labels and classes are those of a plain walk and sort, for any tree of any names."""
    with tempfile.TemporaryDirectory() as folder:
        for folders, name, suffix, data in tree:
            with suppress(OSError):  # a file where an earlier path has a folder
                put(Path(folder), b"/".join([*folders, name + suffix]), data=data)
        paths, numbers, classes = expected_of(os.fsencode(folder))
        if not paths:
            with pytest.raises(UsageError, match="no image in"):
                open_folder(folder)
            return
        source = open_folder(folder)
        assert keys(source) == [path.decode(errors="backslashreplace") for path in paths]
        assert len(source.info.classes or ()) == len(classes)
        assert source.info.counts["unlabelled"] == (numbers.count(-1) if classes else 0)
        odd = [path for path in paths if path.decode(errors="replace").encode() != path]
        assert source.info.counts["bad_names"] == len(odd)
        cut = len(paths) // 2
        for part, first in ((source, 0), (pickle.loads(pickle.dumps(source.part(cut, len(paths)))), cut)):
            for i in range(len(part)):
                path, number = paths[first + i], numbers[first + i]
                with open(os.fsencode(folder) + b"/" + path, "rb") as file:
                    data = file.read()
                if not data or path.decode(errors="replace").encode() != path:
                    with pytest.raises(DecodeError, match=r"empty|bad_name"):
                        part[i]
                    continue
                item = part[i]
                assert (item.key.encode(), item.image) == (path, data)
                assert item.fields == ({"label": number} if classes else {})


# ---- links, loops, special files


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "1.jpg", "deep/2.jpg")
    root = put(tmp_path / "root", "a/0.jpg")
    (root / "b").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "again").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "l.jpg").symlink_to(root / "a" / "0.jpg")
    (root / "a" / "m").symlink_to(root / "a" / "0.jpg")
    (tmp_path / "link").symlink_to(root)
    assert keys(open_folder(tmp_path / "link")) == keys(open_folder(f"{tmp_path}/link/../root"))
    source = open_folder(tmp_path / "link")
    assert keys(source) == [
        "a/0.jpg", "a/again/1.jpg", "a/again/deep/2.jpg", "a/l.jpg", "a/m", "b/1.jpg", "b/deep/2.jpg",
    ]  # fmt: skip
    assert [source[i].fields.get("label") for i in range(7)] == [0, 0, 0, 0, 0, 1, 1]
    assert source.info.counts["links"] == 4
    assert source.info.counts["loops"] == 0


def test_loops_are_seen(tmp_path: Path) -> None:
    """A link back to a folder that it lies in, directly or through others, is counted and not followed."""
    root = put(tmp_path / "root", "a/0.jpg", "b/1.jpg")
    (root / "a" / "self").symlink_to(root / "a")
    (root / "a" / "root").symlink_to(root)
    (root / "a" / "above").symlink_to(tmp_path)
    (root / "a" / "top").symlink_to("/")
    (root / "a" / "to_b").symlink_to(root / "b")
    (root / "b" / "to_a").symlink_to(root / "a")
    (root / "loop").symlink_to(root)
    source = open_folder(root)
    assert source.info.classes == ("a", "b")
    assert keys(source) == ["a/0.jpg", "a/to_b/1.jpg", "b/1.jpg", "b/to_a/0.jpg"]
    assert source.info.counts["loops"] == 5 + 5 + 1
    assert source.info.problems == ()


def test_broken_links_and_pipes(tmp_path: Path) -> None:
    """A broken link named as an image is a sample that cannot be read; any other is told as a problem. Pipes are never
    opened."""
    put(tmp_path, "a/0.jpg")
    for name, target in {"a/gone.jpg": "nowhere", "a/round.jpg": "round.jpg", "class": "nowhere"}.items():
        (tmp_path / name).symlink_to(target)
    for name in ("pipe", "pipe.jpg"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "link.jpg").symlink_to("pipe")
    source = open_folder(tmp_path, skip_unreadable=True)
    assert keys(source) == ["a/0.jpg", "a/gone.jpg", "a/round.jpg", "class"]
    assert source.states()[1:].tolist() == [[-1, -1], [-1, -1], [-2, errno.ENOENT]]
    assert [line.split(":")[0] for line in source.info.problems] == ["class cannot be read"]
    assert (source.info.counts["problems"], source.info.counts["special_files"]) == (1, 3)
    for i, number in ((1, errno.ENOENT), (2, errno.ELOOP)):
        with pytest.raises(DecodeError) as caught:
            source[i]
        assert caught.value.reason == "unreadable"
        assert caught.value.detail == f"[Errno {number}] {os.strerror(number)}"


# ---- what cannot be looked into


def deny(monkeypatch: pytest.MonkeyPatch, function: str, number: int, matches: Callable[[str], bool]) -> None:
    """Let a function of os fail with an errno for the paths that match."""
    real = getattr(os, function)

    def failing(path: Any, *more: Any, **options: Any) -> Any:
        if matches(os.fsdecode(path)):
            raise OSError(number, os.strerror(number), path)
        return real(path, *more, **options)

    monkeypatch.setattr(os, function, failing)


@pytest.mark.parametrize(("function", "name"), [("scandir", "a\n1"), ("stat", "a\n1"), ("open", "locked")])
def test_what_cannot_be_looked_into_is_told(
    function: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, and a file without extension, which may be an image: it is not dropped."""
    put(tmp_path, "a\n1/0.jpg", "b/1.jpg", "b/locked")
    deny(monkeypatch, function, errno.EACCES, lambda path: name in path)
    source = open_folder(tmp_path, skip_unreadable=True)
    assert source.info.classes == ("a\n1", "b")
    locked = "b/locked" if name == "locked" else "a\\n1/"
    assert source.info.problems == (f"{locked} cannot be read: [Errno 13] Permission denied",)
    first = "a\n1/0.jpg" if name == "locked" else "a\n1/"
    assert keys(source) == [first, "b/1.jpg", "b/locked"]
    assert source[1].fields == {"label": 1}
    deny(monkeypatch, "scandir", errno.EACCES, lambda path: True)
    with pytest.raises(UsageError, match=f"{tmp_path} cannot be read: .*Permission denied; check path"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("function", "name", "number"),
    [
        ("stat", "0.jpg", errno.EMFILE),
        ("stat", "a", errno.ESTALE),
        ("scandir", "b", errno.EMFILE),
        ("open", "1", errno.ESTALE),
    ],
)
def test_a_failing_machine_stops_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, name: str, number: int
) -> None:
    """Errors that any file would meet are no sample's fault: nothing is left out because of them."""
    put(tmp_path, "a/0.jpg", "b/1")
    deny(monkeypatch, function, number, lambda path: path.rstrip("/").endswith(f"/{name}"))
    with pytest.raises(PackError, match="run the same command again"):
        open_folder(tmp_path)


def test_an_unreadable_file_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of this one file rejects it; the detail names no absolute path, which would differ elsewhere. When
    descriptors run out, packing stops with a cure; no sample is blamed."""
    source = open_folder(put(tmp_path, "a/0.jpg", "a/1.jpg"))
    deny(monkeypatch, "open", errno.EIO, lambda path: path.endswith("0.jpg"))
    with pytest.raises(DecodeError) as caught:
        source[0]
    assert caught.value.reason == "unreadable"
    assert caught.value.detail == f"[Errno {errno.EIO}] {os.strerror(errno.EIO)}"
    deny(monkeypatch, "open", errno.EMFILE, lambda path: path.endswith("1.jpg"))
    with pytest.raises(PackError, match=r"a/1\.jpg cannot be read now: .*; fix that and run the same command again"):
        source[1]


def test_a_file_too_large_for_any_decoder(tmp_path: Path) -> None:
    """A file of 2 GiB is rejected before memory is spent on it."""
    put(tmp_path, "0.jpg")
    os.truncate(tmp_path / "0.jpg", 1 << 31)
    assert reason_of(open_folder(tmp_path), 0) == "too_large"


def become(path: Path, what: str) -> None:
    if what == "larger":
        path.write_bytes(JPEG + b"more")
    elif what == "newer":
        os.utime(path, ns=(10**18, 10**18))
    else:
        path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "below a file":
        path.parent.rmdir()
        path.parent.write_bytes(b"")


@pytest.mark.parametrize("what", ["larger", "newer", "missing", "folder", "pipe", "below a file"])
def test_a_changed_file_stops_packing(tmp_path: Path, what: str) -> None:
    """A file of another size, time or kind than was found is no reject: the source is no longer what it was. What could
    not be read at the scan and now can is a change too, so that two runs agree."""
    put(tmp_path, "a/0.jpg")
    (tmp_path / "link.jpg").symlink_to("later")
    source = open_folder(tmp_path)
    become(tmp_path / "a" / "0.jpg", what)
    put(tmp_path, "later")
    for i, key in enumerate(("a/0.jpg", "link.jpg")):
        with pytest.raises(SourceChangedError, match=f"{key} changed since packing began: .*; leave the source alone"):
            source[i]


def test_a_change_while_reading_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written to between opening and the end of reading gives no sample; one that comes in pieces, as
    from some file systems, is whole."""
    source, read = open_folder(put(tmp_path, "0.jpg")), os.read
    monkeypatch.setattr(reading.os, "read", lambda descriptor, count: read(descriptor, min(count, 7)))
    assert source[0].image == JPEG

    def write_and_read(descriptor: int, count: int) -> bytes:
        become(tmp_path / "0.jpg", "larger")
        return read(descriptor, count)

    monkeypatch.setattr(reading.os, "read", write_and_read)
    with pytest.raises(SourceChangedError, match=f"it had {len(JPEG)} bytes and has {len(JPEG) + 4}"):
        source[0]


def test_a_folder_that_has_changed_since_the_look_is_seen_as_it_is(tmp_path: Path) -> None:
    """Files that were added, and folders that are gone."""
    listing = Listing(put(tmp_path / "set", "cat/0.jpg", "dog/1.jpg"))
    assert [*(listing / "cat").names, *(listing / "dog").names] == ["0.jpg", "1.jpg"]
    assert {*listing.names} == {"cat", "dog"}
    (put(tmp_path / "set", "cat/new.jpg") / "dog/1.jpg").unlink()
    (tmp_path / "set/dog").rmdir()
    for folder in (tmp_path / "set", tmp_path / "set/cat"):
        os.utime(folder, ns=(1, 1))  # clocks of file systems are coarse
    assert keys(open_folder(listing)) == ["cat/0.jpg", "cat/new.jpg"]


def test_a_pattern_differs_from_a_path_in_a_folder_that_looks_like_one(tmp_path: Path) -> None:
    for name in ("set[1]/a.tar", "set[1]/b.tar", "set1/x.tar"):
        put(tmp_path, name)
    patterns = ("set*/x.tar", "set[1]/[ab].tar", "set{1..2}/x.tar", "set1/x.tar::set1/y.tar")
    assert all(Listing(tmp_path / name).is_pattern for name in patterns)
    assert not any(Listing(tmp_path / name).is_pattern for name in ("set[1]", "set[1]/train", "set[1]/a.tar", "set1"))
    assert Listing(tmp_path / "set*/x.tar").first.path == tmp_path / "set1/x.tar"


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="needs devices")
def test_a_pipe_or_device_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """/dev/null stands for all of them, as a test that reads it ends."""
    refused = "is not a file or folder: name one of these"
    for name in ("train.npy", "rows.parquet"):
        (tmp_path / name.partition(".")[0]).mkdir()
        (tmp_path / name.partition(".")[0] / name).symlink_to("/dev/null")
    for kind in KINDS:
        with pytest.raises(UsageError, match=refused):
            open_source(tmp_path / "train/train.npy", kind)
    with pytest.raises(UsageError, match=refused):
        open_source(tmp_path / "train")
    with pytest.raises(UsageError, match="not a file"):
        open_source(tmp_path / "rows")
