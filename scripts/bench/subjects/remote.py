"""Reading from a server on loopback, all of the same bandwidth: rawpack, webdataset, streaming, and plain requests.

Every subject begins with an empty cache, shuffles, and has its images raw, in shards of 8 MiB.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import data
from contract import Epoch, Settings, consume

BYTES_PER_S = 100e6
_SHARD_BYTES = 8 << 20
_BUFFER = 1000
"""Samples that webdataset shuffles together: its documentation's choice."""
_CONNECTIONS = 8
_LOOPBACK = Path(__file__).resolve().parent.parent / "loopback.py"


class Served:
    """What the subjects share: a server over the benchmark's folder, and an empty cache for each epoch."""

    needs: tuple[str, ...] = ()

    def prepare(self, settings: Settings) -> None:
        data.make_array(settings)
        folder = self.folder(settings)
        if not folder.exists():
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            self.pack(settings, partial)
            partial.rename(folder)

    def pack(self, settings: Settings, folder: Path) -> None:
        """Make what is read."""
        command = [sys.executable, "-m", "rawpack_packer", "pack", "--quiet", "--size", settings.size]
        subprocess.run([*command, "--shard-size", str(_SHARD_BYTES), settings.images, folder], check=True)

    def folder(self, settings: Settings) -> Path:
        """Where that lies."""
        return data.array_path(settings).with_suffix(".remote-rawpack")

    def open(self, settings: Settings) -> None:
        self.settings = settings
        command = [sys.executable, str(_LOOPBACK), settings.work, str(BYTES_PER_S)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        self.port = int(self._server.stdout.readline())
        self.name = self.folder(settings).relative_to(settings.folder).as_posix()

    def epoch(self, n: int) -> Epoch:
        cache = tempfile.mkdtemp(dir=self.settings.folder, prefix="cache-")
        try:
            return consume(self.batches(Path(cache), n), self.settings.consumer)
        finally:
            shutil.rmtree(cache)

    def batches(self, cache: Path, n: int) -> Iterator[Any]:
        """Batches of images of epoch n, by an empty cache."""
        raise NotImplementedError


class Wire(Served):
    """Plain requests for the shards' files, and nothing done with them: the bare limit."""

    def epoch(self, n: int) -> Epoch:
        files = sorted(self.folder(self.settings).glob("shard-*"))

        def get(file: Path) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            connection.request("GET", f"/{self.name}/{file.name}")
            response, buffer, size = connection.getresponse(), bytearray(1 << 20), 0
            while count := response.readinto(buffer):
                size += count
            connection.close()
            return size

        began = time.perf_counter()
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            sizes = list(pool.map(get, files))
        took = time.perf_counter() - began
        if sizes != [file.stat().st_size for file in files]:
            raise RuntimeError("not all bytes came")
        return Epoch(len(np.load(data.array_path(self.settings), mmap_mode="r")), took)


class RemoteStore(Served):
    """This project's reader, by block shuffle."""

    needs: tuple[str, ...] = ("fsspec", "aiohttp")

    def batches(self, cache: Path, n: int) -> Iterator[Any]:
        from rawpack import Reader

        settings, url = self.settings, f"http://127.0.0.1:{self.port}/{self.name}"
        batches = Reader(url, cache=cache).batches(
            settings.batch, shuffle="block", block=_BUFFER // 8, window=8, seed=n, workers=settings.workers
        )
        for batch in batches:
            yield batch["image"]


class RemoteWebdataset(Served):
    """Tar files, shuffled, then a shuffle buffer; by a torch DataLoader, as its documentation has it."""

    needs: tuple[str, ...] = ("torch", "webdataset")

    def folder(self, settings: Settings) -> Path:
        return data.array_path(settings).with_suffix(".remote-wds")

    def pack(self, settings: Settings, folder: Path) -> None:
        import webdataset

        folder.mkdir()
        with webdataset.ShardWriter(f"{folder}/%05d.tar", maxsize=_SHARD_BYTES, verbose=0) as writer:
            for i, image in enumerate(np.load(data.array_path(settings), mmap_mode="r")):
                writer.write({"__key__": f"{i:08d}", "bin": image.tobytes()})

    def batches(self, cache: Path, n: int) -> Iterator[Any]:
        import webdataset

        shape = self.settings.shape
        names = sorted(path.name for path in self.folder(self.settings).iterdir())
        urls = [f"http://127.0.0.1:{self.port}/{self.name}/{name}" for name in names]
        images = (
            webdataset.WebDataset(urls, shardshuffle=len(urls), seed=n, empty_check=False)
            .shuffle(_BUFFER)
            .map(lambda sample: np.frombuffer(sample["bin"], np.uint8).reshape(shape))
            .batched(self.settings.batch, collation_fn=np.stack, partial=True)
        )
        yield from webdataset.WebLoader(
            images, batch_size=None, num_workers=self.settings.workers or 0, collate_fn=np.asarray
        )


class RemoteStreaming(Served):
    """MDS shards by S3, shuffled as by default; by a torch DataLoader."""

    needs: tuple[str, ...] = ("torch", "streaming", "boto3")

    def folder(self, settings: Settings) -> Path:
        return data.array_path(settings).with_suffix(".remote-mds")

    def pack(self, settings: Settings, folder: Path) -> None:
        from streaming import MDSWriter

        columns = {"image": f"ndarray:uint8:{','.join(map(str, settings.shape))}"}
        with MDSWriter(out=str(folder), columns=columns, size_limit=_SHARD_BYTES, progress_bar=False) as writer:
            for image in np.load(data.array_path(settings), mmap_mode="r"):
                writer.write({"image": image})

    def open(self, settings: Settings) -> None:
        super().open(settings)
        os.environ |= {
            "S3_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
        }

    def batches(self, cache: Path, n: int) -> Iterator[Any]:
        import streaming
        from torch.utils.data import DataLoader

        images = streaming.StreamingDataset(
            remote=f"s3://{self.name}", local=str(cache), shuffle=True, shuffle_seed=n, batch_size=self.settings.batch
        )
        yield from DataLoader(
            images,
            batch_size=self.settings.batch,
            num_workers=self.settings.workers or 0,
            collate_fn=lambda samples: np.stack([sample["image"] for sample in samples]),
        )
