"""Reading from a server on loopback, all of the same bandwidth: rawpack, webdataset, streaming, and plain requests.

Every subject begins with an empty cache. An epoch includes opening the store, but no imports. The server's CPU time is
not counted.
"""

from __future__ import annotations

import http.client
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from contract import Epoch, Settings, consume
from loopback import BUCKET
from rawpack import Blocks
from systems.images import Source
from systems.job import Job

BYTES_PER_S = 100e6
_SHARD_BYTES = 8 << 20
_BUFFER = 1000
"""Samples that are shuffled together by blocks: as many as by webdataset, whose documentation has this number."""
_CONNECTIONS = 32
"""With 8, a latency of 100 ms and files of less than 1 MB would leave the link idle."""
_LOOPBACK = Path(__file__).resolve().parent.parent / "loopback.py"
_RANGE = 2 << 20
"""Bytes of a request of the transport alone."""


@dataclass(frozen=True)
class Stored:
    """A store that is served."""

    form: str = "memmap"
    side: int | None = None
    """Of its images, in pixels; None for the table's."""
    shard_size: int = _SHARD_BYTES
    """As `rawpack pack --shard-size` takes it: for lmdb, the bytes of decoded images."""

    def size(self, settings: Settings) -> str:
        return settings.size if self.side is None else f"{self.side}x{self.side}"


RAW = Stored()
LMDB = Stored("lmdb", shard_size=64 << 20)
SMALL_SHARDS = Stored(side=64, shard_size=512 << 10)
"""Shards of 64 images, the fewest that packing makes: 0.8 MB."""


@dataclass(frozen=True)
class Link:
    """What is between a store and its reader."""

    latency_s: float = 0.0
    rate: float = BYTES_PER_S
    """Bytes per second; infinite where nothing is held back."""
    s3: bool = False
    """Whether the server is moto, and asked by S3 with keys."""


class Served:
    """What the subjects share: a server over the benchmark's folder, and an empty cache for each epoch."""

    needs: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    """What an epoch would import."""

    def __init__(self, link: Link = Link(), stored: Stored = RAW) -> None:
        self.link, self.stored = link, stored
        if link.s3:
            self.needs += ("moto", "flask", "boto3", "s3fs")
            self.imports += ("s3fs",)

    def prepare(self, settings: Settings) -> None:
        folder = self.folder(settings)
        if not folder.exists():
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            self.pack(settings, partial)
            partial.rename(folder)

    def pack(self, settings: Settings, folder: Path) -> None:
        """Make what is read."""
        command = [sys.executable, "-m", "rawpack", "pack", "--quiet", "--format", self.stored.form]
        command += ["--size", self.stored.size(settings), "--shard-size", str(self.stored.shard_size)]
        subprocess.run([*command, settings.images, folder], check=True)

    def folder(self, settings: Settings) -> Path:
        """Where that is stored."""
        name = f"{Path(settings.images).name}-{self.stored.size(settings)}"
        return settings.folder / f"{name}.remote-{self.stored.form}-{self.stored.shard_size >> 10}"

    def open(self, settings: Settings) -> None:
        for name in self.imports:
            importlib.import_module(name)
        self.settings = settings
        began = time.perf_counter()
        folder, s3 = self.folder(settings), ["s3"] * self.link.s3
        root = folder if s3 else settings.folder
        command = [sys.executable, str(_LOOPBACK), str(root), str(self.link.rate), str(self.link.latency_s), *s3]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self._server.stdout.readline())}"
        self._server.wait()
        self.server_s = time.perf_counter() - began
        """What it took to start the server, which is no part of the first batch."""
        self.name = BUCKET if s3 else folder.relative_to(settings.folder).as_posix()
        files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("provenance")]
        self.files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
        """What a reader fetches: names, with bytes."""
        from rawpack import Reader

        self.images = len(Reader(folder)) if (folder / "store.json").exists() else 0

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}" if self.link.s3 else f"{self.endpoint}/{self.name}"

    @property
    def options(self) -> dict[str, Any]:
        """fsspec's options for the URL."""
        return {"key": "none", "secret": "none", "endpoint_url": self.endpoint} if self.link.s3 else {}

    def epoch(self, n: int) -> Epoch:
        cache = tempfile.mkdtemp(dir=self.settings.folder, prefix="cache-")
        try:
            found = consume(self.batches(Path(cache), n), self.settings.consumer)
            return replace(found, fetched_bytes=sum(self.files.values()))
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def batches(self, cache: Path, n: int) -> Iterator[Any]:
        """Batches of images of epoch n, by an empty cache."""
        raise NotImplementedError


class Wire(Served):
    """Plain requests for all files that a reader fetches, with their names known and over connections that are kept.
    Nothing is done with the bytes: this is the bare limit.

    read: an epoch of the same store on the disk is also read, while the bytes come, or then. This is the limit where
    decoding takes about as long as fetching: a full shuffle has no batch before almost all shards are there.
    """

    def __init__(
        self, link: Link = Link(), stored: Stored = RAW, read: Literal["no", "at once", "then"] = "no"
    ) -> None:
        super().__init__(link, stored)
        self._read = read
        if read != "no":
            self.imports = ("rawpack",)

    def epoch(self, n: int) -> Epoch:
        files = sorted(self.files, key=self.files.__getitem__, reverse=True)
        of_thread = threading.local()

        def get(file: str) -> int:
            if not hasattr(of_thread, "connection"):
                of_thread.connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"))
                of_thread.buffer = bytearray(1 << 20)
            of_thread.connection.request("GET", f"/{self.name}/{file}")
            response, size = of_thread.connection.getresponse(), 0
            while count := response.readinto(of_thread.buffer):
                size += count
            return size

        began, images = time.perf_counter(), 1
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            sizes = pool.map(get, files)
            if self._read == "at once":
                images = self._local(n)
        if self._read == "then":
            images = self._local(n)
        took = time.perf_counter() - began
        if list(sizes) != [self.files[file] for file in files]:
            raise RuntimeError("not all bytes came")
        if self._read == "no":
            images = self.images
        return Epoch(images, took, fetched_bytes=sum(self.files.values()))

    def _local(self, n: int) -> int:
        """Read an epoch from the disk. Returns the number of its images."""
        from rawpack import Reader

        batches = Reader(self.folder(self.settings)).batches(
            self.settings.batch, shuffle=True, seed=n, workers=self.settings.workers
        )
        return consume((batch["image"] for batch in batches), self.settings.consumer).images


class Transport(Served):
    """The transport alone: ranges of all shards, many at once, of which nothing is kept. By that of this project, or by
    a library as this project would use it."""

    def __init__(self, link: Link = Link(), stored: Stored = RAW, by: Literal["rawpack", "fsspec"] = "rawpack") -> None:
        super().__init__(link, stored)
        self._by = by
        self.needs += ("fsspec", "aiohttp") if by == "fsspec" else ()

    def open(self, settings: Settings) -> None:
        super().open(settings)
        self._get = self._rawpack() if self._by == "rawpack" else self._fsspec()

    def epoch(self, n: int) -> Epoch:
        shards = [name for name in self.files if name.startswith("shard-")]
        ranges = [
            (name, start, min(start + _RANGE, self.files[name]))
            for name in shards
            for start in range(0, self.files[name], _RANGE)
        ]
        began = time.perf_counter()
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            sizes = list(pool.map(lambda one: self._get(*one), ranges))
        took = time.perf_counter() - began
        if sizes != [stop - start for _, start, stop in ranges]:
            raise RuntimeError("not all bytes came")
        return Epoch(self.images, took, fetched_bytes=sum(sizes))

    def _rawpack(self) -> Callable[[str, int, int], int]:
        from rawpack.remote.transfer import Remote

        remote, of_thread = Remote(self.url, self.options, 60.0), threading.local()

        def get(name: str, start: int, stop: int) -> int:
            if not hasattr(of_thread, "buffer"):
                of_thread.buffer = memoryview(bytearray(_RANGE))
            done, into = 0, of_thread.buffer[: stop - start]
            while done < len(into):
                got = remote.read_range(
                    name, start + done, into[done:], lambda: True, lambda *_: None, self.files[name]
                )
                done += got if isinstance(got, int) else len(got)
            return done

        return get

    def _fsspec(self) -> Callable[[str, int, int], int]:
        import asyncio

        import fsspec

        system, root = fsspec.core.url_to_fs(
            self.url, **self.options, **({"config_kwargs": {"max_pool_connections": 32}} if self.link.s3 else {})
        )

        def get(name: str, start: int, stop: int) -> int:
            request = system._cat_file(f"{root}/{name}", start=start, end=stop)
            return len(asyncio.run_coroutine_threadsafe(request, system.loop).result())

        return get


class RemoteStore(Served):
    """This project's reader."""

    needs: tuple[str, ...] = ("fsspec", "aiohttp")
    imports = ("rawpack.reader", "rawpack.remote.origin", "rawpack.ahead.prefetch", "fsspec")

    def __init__(
        self,
        link: Link = Link(),
        stored: Stored = RAW,
        order: Literal["block", "full"] = "block",
        *,
        encoded: bool = False,
    ) -> None:
        """encoded: images as the files that the store holds, which a GPU would decode."""
        super().__init__(link, stored)
        self._order, self._encoded = order, encoded

    def batches(self, cache: Path, n: int) -> Iterator[Any]:
        from rawpack import Reader

        settings = self.settings
        order: dict[str, Any] = {"shuffle": True}
        if self._order == "block":
            order = {"shuffle": Blocks(block=_BUFFER // 8, window=8)}
        decode = {"image": not self._encoded}
        batches = Reader(self.url, cache=cache, storage_options=self.options).batches(
            settings.batch, seed=n, workers=settings.workers, decode=decode, **order
        )
        for batch in batches:
            # Of files, the first bytes are looked at as if they were pixels.
            yield np.stack([file[:4] for file in batch["image"]])[:, None, None] if self._encoded else batch["image"]


class RemotePeer(Served):
    """Another system, which shuffles as by default: webdataset by HTTP, streaming by S3."""

    def __init__(self, system: str, needs: tuple[str, ...], scheme: Literal["http", "s3"] = "http") -> None:
        super().__init__()
        self._system, self._scheme, self.needs = system, scheme, ("torch", *needs)
        self.imports = (f"systems.{system}",)

    def folder(self, settings: Settings) -> Path:
        return settings.folder / f"{Path(settings.images).name}-{settings.size}.remote-{self._system}"

    def pack(self, settings: Settings, folder: Path) -> None:
        job = self._job(settings, "pack")
        folder.mkdir()
        importlib.import_module(f"systems.{self._system}").pack(Source(job), folder, job)

    def open(self, settings: Settings) -> None:
        super().open(settings)
        os.environ |= {
            "S3_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
        }

    def batches(self, cache: Path, n: int) -> Iterator[Any]:
        url = f"s3://{self.name}" if self._scheme == "s3" else self.url
        job = replace(self._job(self.settings, "read"), url=url, cache=str(cache))
        for images, _ in importlib.import_module(f"systems.{self._system}").read(Path(job.folder), job)(n):
            yield images.numpy()

    def _job(self, settings: Settings, action: str) -> Job:
        return Job(
            action, self._system, "raw", str(self.folder(settings)), settings.images, shape=settings.shape,
            side=settings.shape[0], batch=settings.batch, workers=settings.workers or 0, shard_bytes=_SHARD_BYTES,
        )  # fmt: skip
