"""Reading from the disk: rawpack's reader, and `dd` of the same files in their order."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Literal

import data
from contract import Epoch, Settings, consume
from rawpack import Workers


class ColdStore:
    """The first epoch of a process, the start of its workers included."""

    needs: tuple[str, ...] = ()

    def __init__(self, form: str, shuffle: Literal["block"] | bool = "block") -> None:
        self._form, self._shuffle = form, shuffle

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, self._form)

    def open(self, settings: Settings) -> None:
        from rawpack import Reader

        path = data.store_path(settings, self._form)
        drop(shard_files(path))
        self._consumer = settings.consumer
        self._batches = Reader(path).batches(
            settings.batch, shuffle=self._shuffle, workers=Workers(settings.workers, backend=settings.backend)
        )

    def epoch(self, n: int) -> Epoch:
        return consume((batch["image"] for batch in self._batches), self._consumer)


class SequentialRead:
    """One `dd` a file, in pieces of a mebibyte."""

    needs: tuple[str, ...] = ()

    def __init__(self, form: str) -> None:
        self._form = form

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, self._form)

    def open(self, settings: Settings) -> None:
        from rawpack import Reader

        path = data.store_path(settings, self._form)
        self._files, self._images = shard_files(path), len(Reader(path))
        drop(self._files)

    def epoch(self, n: int) -> Epoch:
        began = time.perf_counter()
        for file in self._files:
            subprocess.run(["dd", f"if={file}", "of=/dev/null", "bs=1M", "status=none"], check=True)
        return Epoch(self._images, time.perf_counter() - began)


def shard_files(store: Path) -> list[Path]:
    return sorted(store.glob("shard-*"))


def drop(files: list[Path]) -> None:
    """Have these files, and no others, out of the page cache. Where that fails, as root, everything."""
    from rawpack_packer.tune import system

    if not files:
        raise SystemExit("there is nothing to read from the disk")
    if system.drop(files):
        return
    everything = Path("/proc/sys/vm/drop_caches")
    try:
        everything.write_text("1")
    except OSError as error:
        raise SystemExit(
            f"the page cache keeps {files[0].parent}, and {everything} cannot be written: {error}"
        ) from None
    if not system.drop(files):
        raise SystemExit(f"the page cache keeps {files[0].parent}: does it lie on a disk?")
