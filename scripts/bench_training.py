"""Trains a network from JPEG files and from stores, and compares each with what the GPU trains from its own memory.

    python scripts/bench_training.py --photos photos/ --json training.json

The files are copied until there are enough of them. For each network, these are timed in turn:

- `gpu alone`: one batch that lies on the GPU, again and again: what no loader can surpass.
- `files`: torchvision's ImageFolder and torch's DataLoader, with the transforms of PyTorch's ImageNet example.
- `lmdb`, `memmap`, `planes`: stores at 256 px, with the same random steps.
- `loading`: the fastest store without training, to compare with the link to the GPU.
- `decoding`: the files of the smallest store, decoded on the GPU by nvImageCodec, where that is installed.
- `scaling`: images on the CPU alone, by 1, 2, 4 and more workers; and plain NumPy processes that copy the same rows.

Needs torch and torchvision, and a CUDA device; --cpu runs all of it once on the CPU, to try the script.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torchvision import transforms

import rawpack
from rawpack import Reader, Workers
from rawpack.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STORES: dict[str, dict[str, Any]] = {
    "lmdb": {"format": "lmdb"},
    "memmap": {"format": "memmap"},
    "planes": {"format": "memmap", "color": "ycgco420"},
}
Batch = tuple[torch.Tensor, torch.Tensor]


def main() -> None:
    """Make the data, measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of JPEG files")
    parser.add_argument("--images", type=int, default=12_000, help="how many files there should be")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=12, help="for each measurement")
    parser.add_argument("--networks", default="resnet18,resnet50")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="of the DataLoader")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not asked.cpu and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here: --cpu tries the script without one")
    device = torch.device("cpu" if asked.cpu else "cuda")
    torch.backends.cudnn.benchmark = True
    with tempfile.TemporaryDirectory() as folder:
        results = measure(asked, device, Path(folder))
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=2) + "\n")


def measure(asked: argparse.Namespace, device: torch.device, home: Path) -> dict[str, Any]:
    """Everything that is measured, by name."""
    results: dict[str, Any] = {
        "machine": {
            "gpu": torch.cuda.get_device_name() if device.type == "cuda" else "none",
            "cpus": len(os.sched_getaffinity(0)),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "rawpack": rawpack.__version__,
        },
        "asked": {name: value for name, value in vars(asked).items() if isinstance(value, int | float | str)},
        "packing": {},
        "rates": {},
    }
    tell(results["machine"])
    files, size = copies(asked.photos, home / "files", asked.images, asked.classes)
    tell(f"{asked.images} files, {size / 1e9:.2f} GB")
    for name, options in STORES.items():
        began = time.perf_counter()
        summary = rawpack.pack(files, home / name, size=256, **options)
        seconds = time.perf_counter() - began
        stored = sum(path.stat().st_size for path in (home / name).rglob("*") if path.is_file())
        results["packing"][name] = {"seconds": seconds, "bytes": stored, "of_files": stored / size}
        tell(f"packed {name}: {seconds:.1f} s, {stored / 1e9:.2f} GB; {summary}")

    def dataloader() -> Iterable[Batch]:
        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        dataset = torchvision.datasets.ImageFolder(
            str(files), transforms.Compose([*steps, transforms.Normalize(MEAN, STD)])
        )
        loader: Iterable[Batch] = torch.utils.data.DataLoader(
            dataset, asked.batch, shuffle=True, num_workers=asked.workers, pin_memory=device.type == "cuda",
            persistent_workers=True, drop_last=True,
        )  # fmt: skip
        return loader

    def store(name: str) -> Callable[[], Iterable[Batch]]:
        def loader() -> Iterable[Batch]:
            steps = [RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(MEAN, STD)]
            batches = Reader(home / name).batches(asked.batch, shuffle=True, drop_last=True, transform=steps)
            return batches.torch(device, as_tuple=("image", "label"))

        return loader

    def alone() -> Iterable[Batch]:
        images = torch.randn(asked.batch, 3, 224, 224, device=device).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(asked.classes, (asked.batch,), device=device)
        return [(images, labels)] * 1000

    loaders = {"gpu alone": alone, "files": dataloader, **{name: store(name) for name in STORES}}
    for network in filter(None, asked.networks.split(",")):
        rates = results["rates"][network] = {}
        for name, loader in loaders.items():
            rates[name] = trained(network, loader(), device, asked)
            rate = rates[name]["images_per_second"]
            share = rate / rates["gpu alone"]["images_per_second"]
            tell(f"{network:9} {name:9} {rate:8,.0f} images/s, {share:.2f} of the GPU alone")
    results["loading"] = loading(home / "memmap", device, asked)
    tell(results["loading"])
    results["decoding"] = decoding(home / "lmdb", device, asked)
    tell(results["decoding"])
    results["scaling"] = {"memmap": scaling(home / "memmap", asked), "lmdb": scaling(home / "lmdb", asked)}
    return results


def trained(network: str, loader: Iterable[Batch], device: torch.device, asked: argparse.Namespace) -> dict[str, float]:
    """Images per second of training, after some steps to warm up; seconds until the first step has ended."""
    model = getattr(torchvision.models, network)(num_classes=asked.classes).to(
        device, memory_format=torch.channels_last
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        images = images.to(device, memory_format=torch.channels_last, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    began = time.perf_counter()
    batches = endless(loader)
    first = None
    for images, labels in islice(batches, 1 if device.type == "cpu" else 25):
        step(images, labels)
        first = first or time.perf_counter() - began
    synchronize(device)
    start, cpu, count = time.perf_counter(), os.times(), 0
    while time.perf_counter() - start < asked.seconds:
        for images, labels in islice(batches, 1 if device.type == "cpu" else 10):
            step(images, labels)
            count += len(labels)
        synchronize(device)
    seconds = time.perf_counter() - start
    del batches
    return {
        "images_per_second": count / seconds,
        "first_step_s": first or 0.0,
        "own_cpu": (os.times().user + os.times().system - cpu.user - cpu.system) / seconds,
    }


def loading(store: Path, device: torch.device, asked: argparse.Namespace) -> dict[str, float]:
    """Images per second of whole 256-px images to the device, without training; and a bare copy of the same bytes from
    page-locked memory."""
    batches = endless(Reader(store).batches(asked.batch, shuffle=True, drop_last=True).torch(device))
    for _ in islice(batches, 10):
        pass
    synchronize(device)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < asked.seconds / 2:
        for batch in islice(batches, 10):
            count += len(batch["image"])
        synchronize(device)
    rate = count / (time.perf_counter() - start)
    held = torch.from_numpy(np.zeros((asked.batch, 256, 256, 3), np.uint8))
    held = held.pin_memory() if device.type == "cuda" else held
    start, rounds = time.perf_counter(), 40
    for _ in range(rounds):
        held.to(device, non_blocking=True, copy=True)
    synchronize(device)
    bare = asked.batch * rounds / (time.perf_counter() - start)
    return {"images_per_second": rate, "gigabytes_per_second": rate * 196_608 / 1e9, "bare_copies_per_second": bare}


def decoding(store: Path, device: torch.device, asked: argparse.Namespace) -> dict[str, float]:
    """Images per second that the device decodes, in batches; empty without nvImageCodec or a device."""
    try:
        from nvidia import nvimgcodec
    except ImportError:
        return {}
    if device.type == "cpu":
        return {}
    decoder = nvimgcodec.Decoder(options=":fancy_upsampling=1")
    batches = endless(Reader(store).batches(asked.batch, shuffle=True, drop_last=True, decode=False))
    start, count = time.perf_counter(), 0
    for number, batch in enumerate(batches):
        images = decoder.decode(list(batch["image"]))
        assert all(image is not None for image in images)
        torch.cuda.synchronize()
        if number == 5:
            start, count = time.perf_counter(), 0
        count += len(images)
        if number > 5 and time.perf_counter() - start > asked.seconds / 3:
            break
    return {"images_per_second": count / (time.perf_counter() - start)}


def scaling(store: Path, asked: argparse.Namespace) -> dict[str, dict[int, float]]:
    """Images per second on the CPU alone, by how many workers there are: whole images."""
    raw = (store / "shard-00000.npy").exists()
    ways: dict[str, Callable[[int], Workers]] = {"processes": lambda number: Workers(number, backend="process")}
    if raw:
        ways["threads"] = lambda number: Workers(number, backend="thread")
    rates: dict[str, dict[int, float]] = {name: {} for name in (*ways, "bare")}
    for number in (1, 2, 4, 6, 8, 12, 16, 24, 32):
        if number > asked.workers:
            break
        for name, way in ways.items():
            batches = endless(Reader(store).batches(asked.batch, shuffle=True, drop_last=True, workers=way(number)))
            for _ in islice(batches, 20):
                pass
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < asked.seconds / 6:
                count += len(next(batches)["image"])
            rates[name][number] = count / (time.perf_counter() - start)
            del batches
        if raw:
            with multiprocessing.get_context("spawn").Pool(number) as pool:
                pool.map(bare, [(store, asked.batch, 0.1)] * number, 1)
                rates["bare"][number] = sum(pool.map(bare, [(store, asked.batch, asked.seconds / 6)] * number, 1))
        tell(
            f"{store.name}, {number} workers: { ({name: round(rate[number]) for name, rate in rates.items() if rate}) }"
        )
    return rates


def bare(asked: tuple[Path, int, float]) -> float:
    """Images per second that this process copies from a store of pixels into its own memory, by NumPy alone."""
    store, size, seconds = asked
    shards = [np.load(path, mmap_mode="r") for path in sorted(store.glob("shard-?????.npy"))]
    rng, out = np.random.default_rng(os.getpid()), np.zeros((size, *shards[0].shape[1:]), np.uint8)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        shard = shards[rng.integers(len(shards))]
        np.take(shard, rng.integers(0, len(shard), size), 0, out, "clip")
        count += size
    return count / (time.perf_counter() - start)


def copies(photos: Path, where: Path, images: int, classes: int) -> tuple[Path, int]:
    """The photographs, again and again, in a folder for each class; and their bytes."""
    found = [path for path in sorted(photos.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg")]
    if not found:
        sys.exit(f"{photos}: there is no JPEG file in it")
    size = 0
    for number in range(images):
        folder = where / f"{number % classes:04}"
        folder.mkdir(parents=True, exist_ok=True)
        source = found[number % len(found)]
        shutil.copyfile(source, folder / f"{number:07}.jpg")
        size += source.stat().st_size
    return where, size


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def synchronize(device: torch.device) -> None:
    """Wait for all that the device has to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def tell(what: object) -> None:
    """Print at once."""
    print(what, flush=True)


if __name__ == "__main__":
    main()
