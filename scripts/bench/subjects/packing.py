"""Packing by rawpack and listing what it packs, and the bare limits of both: processes that do the same library calls
and nothing else, `cp`, and `os.walk`."""

from __future__ import annotations

# ruff: noqa: PTH116, PTH118 - a Path for each file would slow the limit
import multiprocessing
import os
import shutil
import subprocess
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data
from contract import Epoch, Settings, Subject
from data import drop, make_packed, packed_files, packed_path
from systems.images import encoded, fit, fitted, image_files, single_threaded

_TRANSACTION = 64 << 20
_AFTER_NAME = 30
"""Bytes of a zip member's header before its name."""
Place = tuple[str, int, int, int | None]
"""A file, where the bytes of an image begin in it, their number, and their CRC-32 if there is one."""


class Pack(Subject):
    """The call behind `rawpack pack`, from an untouched destination to a whole store: listing of the source, start of
    the workers and commit included."""

    def __init__(self, form: str, *, as_they_are: bool = False, cold: str = "", kind: str | None = None) -> None:
        """as_they_are: with `--size keep --quality keep`, whatever the shape in the settings. cold: from the disk, this
        kind of `packed_path`. kind: of the source."""
        self._form, self._as_they_are, self._cold, self._kind = form, as_they_are, cold, kind

    def prepare(self, settings: Settings) -> None:
        if self._cold:
            make_packed(settings, self._cold)

    def open(self, settings: Settings) -> None:
        import rawpack_packer.api  # noqa: F401

        self.settings, self._source = settings, packed_path(settings, self._cold or "folder")
        stored: dict[str, Any] = {"size": "keep", "quality": "keep"} if self._as_they_are else {"size": settings.size}
        self._options = {"format": self._form, "workers": settings.workers, "kind": self._kind, **stored}

    def epoch(self, n: int) -> Epoch:
        import rawpack

        destination = self.settings.folder / f"packing.{self._form}"
        shutil.rmtree(destination, ignore_errors=True)
        if self._cold:
            drop(packed_files(self.settings, self._cold))
            os.sync()
        began = time.perf_counter()
        summary = rawpack.pack(self._source, destination, **self._options)
        took = time.perf_counter() - began
        shutil.rmtree(destination)
        return Epoch(summary.packed_now, took)


class PackingStart(Subject):
    """A whole run over a few files, with rawpack imported."""

    def __init__(self) -> None:
        import rawpack_packer.api  # noqa: F401

    def open(self, settings: Settings) -> None:
        import rawpack

        destination = settings.folder / "packing.start"
        shutil.rmtree(destination, ignore_errors=True)
        began = time.perf_counter()
        rawpack.pack(settings.images, destination, format="lmdb", size=settings.shape[0], workers=settings.workers)
        self._epoch = Epoch(len(data.image_files(settings.images)), time.perf_counter() - began, 0.0)
        shutil.rmtree(destination)

    def epoch(self, n: int) -> Epoch:
        return self._epoch


class Share(Subject):
    """Processes that each do every n-th file and write one file of their own; their start is part of the time.

    work: see `pack`; given files, the file to write, the size (height, width) and whether to encode. Returns how many
    images it did."""

    def __init__(
        self, work: Callable[[list[str], str, tuple[int, int], bool], int], needs: tuple[str, ...] = (), *,
        jpeg: bool = False, files: Callable[[Settings], list[Path]] = lambda one: data.image_files(one.images),
    ) -> None:  # fmt: skip
        self._work, self.needs, self._jpeg, self._files = work, needs, jpeg, files

    def epoch(self, n: int) -> Epoch:
        settings, of = self.settings, self.settings.workers or 1
        began = time.perf_counter()
        files = [str(path) for path in self._files(settings)]
        outputs = [settings.folder / f"bare-{number}" for number in range(of)]
        with multiprocessing.get_context("spawn").Pool(of) as pool:
            work = [(files[k::of], str(outputs[k]), settings.shape[:2], self._jpeg) for k in range(of)]
            count = sum(pool.starmap(self._work, work, chunksize=1))
        took = time.perf_counter() - began
        for output in outputs:
            output.unlink(missing_ok=True)
        return Epoch(count, took)


def pack(files: list[str], output: str, size: tuple[int, int], jpeg: bool) -> int:
    """Bring each file to `size` and append it to the output, as pixels or as a JPEG file: the bare limit of packing."""
    with open(output, "wb", buffering=1 << 20) as out:
        for file in files:
            image = fitted(file, (*size, 3))
            out.write((encoded(image, restarts=True) if jpeg else image).data)
    return len(files)


def copy(files: list[str], output: str, size: tuple[int, int], jpeg: bool) -> int:
    """Append the bytes of each file to the output, and sync it: the bare limit of passing files through."""
    with open(output, "wb", buffering=1 << 20) as out:
        for file in files:
            with open(file, "rb", buffering=0) as source:
                out.write(source.read())
        out.flush()
        os.fsync(out.fileno())
    return len(files)


def frames(files: list[str], output: str, size: tuple[int, int], jpeg: bool) -> int:
    """Decode every frame of these videos by PyAV to RGB of that size: the bare limit of packing videos.

    Frames go nowhere: writing and syncing them is left out, as are the checks that a file has not changed and that no
    frame is damaged."""
    import av

    single_threaded()
    count = 0
    for file in files:
        with av.open(file) as container:
            stream: Any = container.streams.best("video")
            stream.codec_context.thread_count = 1
            for frame in container.decode(stream):
                made = fit(frame.to_ndarray(format="rgb24"), *size)
                count += len(encoded(made, restarts=True) if jpeg else made) > 0
    return count


class FromDisk(Subject):
    """One pass over a folder or archive that is not in memory, into a folder that is removed."""

    def __init__(self, kind: str) -> None:
        """kind: see `packed_path`."""
        self._kind = kind

    def prepare(self, settings: Settings) -> None:
        make_packed(settings, self._kind)

    def epoch(self, n: int) -> Epoch:
        drop(packed_files(self.settings, self._kind))
        output = self.settings.folder / "passed"
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        os.sync()
        began = time.perf_counter()
        images = self.passed(output)
        took = time.perf_counter() - began
        shutil.rmtree(output)
        return Epoch(images or len(image_files(self.settings.images)), took)

    def passed(self, output: Path) -> int:
        """Pass all through; the number of images, or 0 for all of them."""
        raise NotImplementedError


class Copy(FromDisk):
    """One `cp`; with `sync -f`, if all is to be on the disk when it ends, as a store is."""

    def __init__(self, kind: str, *, sync: bool = False) -> None:
        super().__init__(kind)
        self._sync = sync

    def passed(self, output: Path) -> int:
        subprocess.run(["cp", "-r", packed_path(self.settings, self._kind), output], check=True)
        if self._sync:
            subprocess.run(["sync", "-f", output], check=True)
        return 0


class BarePass(FromDisk):
    """What any program must do that keeps an archive's files in LMDB. The files are listed; then each process reads its
    share in order, checks the two ends of each, and the CRC-32 of a zip archive, adds up one checksum, and puts the
    bytes into a database of its own, which is on the disk at last."""

    needs: tuple[str, ...] = ("lmdb", "xxhash")

    def passed(self, output: Path) -> int:
        of = self.settings.workers or 1
        places = _places(self.settings, self._kind)
        share = -(-len(places) // of)
        with multiprocessing.get_context("spawn").Pool(of) as pool:
            work = [(places[k * share : (k + 1) * share], str(output / f"{k}.lmdb")) for k in range(of)]
            pool.starmap(keep, work, chunksize=1)
        return len(places)


def _places(settings: Settings, kind: str) -> list[Place]:
    path = packed_path(settings, kind)
    if kind == "folder":
        return [(file, 0, os.stat(file).st_size, None) for file in image_files(path)]
    if kind == "tar":
        with tarfile.open(path) as tar:
            return [(str(path), member.offset_data, member.size, None) for member in tar if member.isfile()]
    with zipfile.ZipFile(path) as archive:
        # As `data.make_packed` writes them, with nothing between name and data.
        return [
            (str(path), one.header_offset + _AFTER_NAME + len(one.orig_filename.encode()), one.file_size, one.CRC)
            for one in archive.infolist()
        ]


def keep(places: list[Place], output: str) -> None:
    """Put the bytes at these places into a database."""
    import lmdb
    import xxhash

    env = lmdb.open(output, subdir=False, map_size=1 << 40, lock=False, sync=False, metasync=False)
    path, fd, held, pending, row = "", -1, list[bytes](), 0, 0
    for k, (file, offset, size, crc) in enumerate(places):
        if file != path:
            if fd >= 0:
                os.close(fd)
            path, fd = file, os.open(file, os.O_RDONLY)
        found = os.pread(fd, size, offset)
        if found[:2] != b"\xff\xd8" or found[-2:] != b"\xff\xd9" or (crc is not None and zlib.crc32(found) != crc):
            raise ValueError(f"{file} at {offset}: no whole JPEG file")
        xxhash.xxh3_64_intdigest(found)
        held.append(found)
        pending += size
        if pending >= _TRANSACTION or k == len(places) - 1:
            with env.begin(write=True) as transaction:
                for value in held:
                    transaction.put(b"%012d" % row, value, append=True)
                    row += 1
            held, pending = [], 0
    env.close()
    with Path(output).open("rb+") as written:
        os.fsync(written.fileno())


class Listing(Subject):
    """A folder of very many files. What is found is kept, so that its memory is measured."""

    def __init__(self, found: Callable[[str], Any]) -> None:
        self._found = found
        self._kept: Any = None
        # Before `open`, whose memory is measured.
        import rawpack_packer.images
        import rawpack_packer.sources.folder  # noqa: F401

    def epoch(self, n: int) -> Epoch:
        self._kept = None
        began = time.perf_counter()
        self._kept = self._found(self.settings.images)
        return Epoch(len(self._kept), time.perf_counter() - began)


def scanned(path: str) -> Any:
    """The source that is packed: names in order, sizes, times, labels."""
    from rawpack_packer.sources.folder import open_folder

    return open_folder(path)


def walked(path: str) -> list[str]:
    """`os.walk`, and the paths sorted."""
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)


def walked_with_states(path: str) -> list[tuple[str, int, int]]:
    """The same, with size and time of each file, without which no change is noticed."""
    return [(file, found.st_size, found.st_mtime_ns) for file in walked(path) if (found := os.stat(file))]
