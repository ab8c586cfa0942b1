"""The bare limit of passing an archive through: what any program must do that keeps its files in LMDB, and no more."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

from contract import Epoch, Settings
from data import image_files, make_packed, packed_files, packed_path
from subjects.cold import drop

_TRANSACTION = 64 << 20
_AFTER_NAME = 30
"""Bytes of a zip member's header before its name."""
Place = tuple[str, int, int, int | None]
"""A file, where the bytes of an image begin in it, their number, and their CRC-32 if there is one."""


class BarePass:
    """The files are listed; then each process reads its share in order, checks the two ends of each, and the CRC-32 of
    a zip archive, adds up one checksum, and puts the bytes into a database of its own, which is on the disk at last."""

    needs: tuple[str, ...] = ("lmdb", "xxhash")

    def __init__(self, kind: str) -> None:
        """kind: see `packed_path`."""
        self._kind = kind

    def prepare(self, settings: Settings) -> None:
        make_packed(settings, self._kind)

    def open(self, settings: Settings) -> None:
        self._settings = settings

    def epoch(self, n: int) -> Epoch:
        settings, of = self._settings, self._settings.workers or 1
        drop(packed_files(settings, self._kind))
        output = settings.folder / "passed"
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        os.sync()
        began = time.perf_counter()
        places = _places(settings, self._kind)
        share = -(-len(places) // of)
        with multiprocessing.get_context("spawn").Pool(of) as pool:
            work = [(places[k * share : (k + 1) * share], str(output / f"{k}.lmdb")) for k in range(of)]
            pool.starmap(keep, work, chunksize=1)
        took = time.perf_counter() - began
        shutil.rmtree(output)
        return Epoch(len(places), took)


def _places(settings: Settings, kind: str) -> list[Place]:
    path = packed_path(settings, kind)
    if kind == "folder":
        return [(str(file), 0, file.stat().st_size, None) for file in image_files(path)]
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
    path, fd, held, pending = "", -1, list[bytes](), 0
    row = 0
    for k, (file, offset, size, crc) in enumerate(places):
        if file != path:
            if fd >= 0:
                os.close(fd)
            path, fd = file, os.open(file, os.O_RDONLY)
        data = os.pread(fd, size, offset)
        if data[:2] != b"\xff\xd8" or data[-2:] != b"\xff\xd9" or (crc is not None and zlib.crc32(data) != crc):
            raise ValueError(f"{file} at {offset}: no whole JPEG file")
        xxhash.xxh3_64_intdigest(data)
        held.append(data)
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
