"""Batches on a real CUDA device. Skipped without one: `test_torch_batches.py` has a simulated device for every run.

The stream of the copies is kept busy, so that copies are still to come when the host is already far ahead: a slot that
was given back too early would then have other pixels in it. What is compared is read back from the device at the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture
from reading import WAYS, workers_of
from running import environment

import rawpack_packer
from rawpack import Reader, Workers

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
    pytest.mark.timeout(120),
]

SAMPLES = 300
LATE = 3_000_000
"""Cycles by which the stream of the copies is late with each batch: one to two milliseconds."""


@pytest.fixture(scope="module")
def samples() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "image": picture(64, 64, i),
            "label": i % 7,
            "pose": rng.normal(size=4).astype(np.float32),
            "depth": rng.integers(0, 999, (64, 64)).astype(np.int32),
        }
        for i in range(SAMPLES)
    ]


@pytest.fixture(scope="module", params=["memmap", "hdf5", "lmdb"])
def store(request: pytest.FixtureRequest, samples: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each format."""
    where = tmp_path_factory.mktemp("gpu") / "store"
    fields = {"depth": "int32[64,64]"}
    rawpack_packer.pack(samples, where, format=request.param, fields=fields, size=64, workers=0)
    return where


@pytest.fixture(scope="module")
def pixels(reader: Reader) -> Any:
    """All pixels of the store, one sample at a time."""
    return np.stack([reader[i]["image"] for i in range(len(reader))])


def late(loader: Any) -> None:
    """Keep the stream of the copies busy for a while."""
    with torch.cuda.stream(loader._copies._runtime._stream):
        torch.cuda._sleep(LATE)


def compare(kept: list[dict[str, Any]], pixels: Any, samples: list[dict[str, Any]]) -> None:
    torch.cuda.synchronize()
    rows = np.concatenate([batch["index"].cpu().numpy() for batch in kept])
    images = np.concatenate([batch["image"].permute(0, 2, 3, 1).cpu().numpy() for batch in kept])
    np.testing.assert_array_equal(images, pixels[rows])
    for name in ("label", "pose", "depth"):
        given = np.concatenate([batch[name].cpu().numpy() for batch in kept])
        np.testing.assert_array_equal(given, np.stack([samples[row][name] for row in rows]))


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_late_copies_are_right(reader: Reader, pixels: Any, samples: list[Any], way: str, depth: int) -> None:
    """Over three epochs, with every batch kept on the device; slots are registered, and few."""
    loader = reader.batches(16, shuffle=True, seed=1, **WAYS[way]).torch("cuda", depth=depth)
    for _ in range(3):
        kept = []
        for batch in loader:
            assert batch["image"].is_cuda
            kept.append(batch)
            late(loader)
        assert sorted(row for batch in kept for row in batch["index"].tolist()) == list(range(SAMPLES))
        compare(kept, pixels, samples)
    stats = loader.stats()
    if way == "processes":
        assert stats["registered_slots"] > 0, stats
    assert stats["registered_slots"] < 24, stats
    loader.close()


def test_batches_used_on_another_stream(reader: Reader, pixels: Any, samples: list[Any]) -> None:
    """Whose memory torch would otherwise give to the next batch while that stream still reads it."""
    loader = reader.batches(16, shuffle=True, seed=2, workers=2).torch("cuda", dtype="float32")
    other, sums, rows = torch.cuda.Stream(), [], []
    with torch.cuda.stream(other):
        for _ in range(3):
            for batch in loader:
                torch.cuda._sleep(LATE)
                sums.append(batch["image"].double().sum((1, 2, 3)))
                rows += batch["index"].tolist()
                del batch
    torch.cuda.synchronize()
    expected = pixels.reshape(len(pixels), -1).astype(np.float64).sum(1)
    np.testing.assert_array_equal(torch.cat(sums).cpu().numpy(), expected[rows])


def test_a_worker_that_is_killed(reader: Reader, pixels: Any, samples: list[Any]) -> None:
    """While copies are under way: it is replaced, and nothing is lost."""
    loader = reader.batches(16, shuffle=True, seed=5, workers=Workers(2, backend="process")).torch("cuda")
    iterator, kept = iter(loader), []
    for number, batch in enumerate(iterator):
        kept.append(batch)
        late(loader)
        if number == 3:
            os.kill(workers_of(iterator._source)[0], signal.SIGKILL)
    assert sorted(row for batch in kept for row in batch["index"].tolist()) == list(range(SAMPLES))
    compare(kept, pixels, samples)


@pytest.mark.parametrize("ending", ["pass", "del batch, loader, iterator", "os._exit(0)"])
def test_a_process_that_ends_in_the_middle(store: Path, ending: str) -> None:
    """Without a word, and without waiting."""
    code = (
        "import os, sys\nfrom rawpack import Reader\n"
        "loader = Reader(sys.argv[1]).batches(16, workers=2).torch('cuda')\n"
        f"iterator = iter(loader)\nbatch = next(iterator)\nbatch = next(iterator)\n{ending}\n"
    )
    words = [sys.executable, "-c", code, store]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=90, env=environment(), check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_arrays_of_jax(reader: Reader, pixels: Any, samples: list[Any]) -> None:
    """JAX copies from the memory of the batch, and may do so later: nothing in it changes before."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    batches = reader.batches(16, shuffle=True, seed=6, workers=2).jax()
    kept = [dict(batch) for _ in range(3) for batch in batches]
    rows = np.concatenate([np.asarray(batch["index"]) for batch in kept])
    np.testing.assert_array_equal(np.concatenate([np.asarray(batch["image"]) for batch in kept]), pixels[rows])
    depths = np.concatenate([np.asarray(batch["depth"]) for batch in kept])
    np.testing.assert_array_equal(depths, np.stack([samples[row]["depth"] for row in rows]))
