"""4. Five ways to hold a data set, read by torch's DataLoader in one process and in several on one file system."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from published_parts.common import FORMATS, once, pack, store
from published_parts.contract import Method, Part, Relation, Task, Values, table

BATCH, SIDE, CLASSES, EPOCHS = 64, 28, 10, 5
_RAW_STEPS, _TRAIN_STEPS = 150, 300
"""The most steps that are measured; the time is that of five epochs at the same speed."""
RAW, PRELOAD, CLASS, CLASS_MAPPED, MEMMAP = (
    "raw, decoded at each access", "preload, decoded in memory", "tensorclass in memory",
    "tensorclass, memory-mapped", "np.memmap",
)  # fmt: skip
OURS = {f"rawpack, {format}": format for format in FORMATS}
SHARED = (RAW, CLASS_MAPPED, MEMMAP, *OURS)
"""The ways in which several processes can share the data by a file system."""
FASHION, NPZ = "FashionMNIST", "npz"
COLUMNS = (
    *(f"{work}, {data}" for work in ("traverse", "train") for data in (FASHION, NPZ)),
    *(f"{work}, {count} processes" for work in ("traverse", "train") for count in (2, 4)),
)


def prepare(task: Task) -> None:
    count = task.count(60_000, 640)
    folder = once(_folder(task), partial(_make_images, count=count))
    archive = once(task.folder / "small.npz", partial(_make_npz, folder=folder))
    pack(task, "small", folder, size=SIDE, color="gray")
    pack(task, "small-npz", archive)
    try:
        import tensordict  # noqa: F401
    except ImportError:
        return
    once(task.folder / "small.tensorclass", partial(_map_class, task))
    once(task.folder / "small-npz.tensorclass", partial(_map_class, task, npz=True))
    once(task.folder / "small.npy", partial(_map_array, task))
    once(task.folder / "small-npz.npy", partial(_map_array, task, npz=True))


def _folder(task: Task) -> Path:
    return task.folder / "small-png"


def _make_images(folder: Path, count: int) -> None:
    """Gray images as varied as photographs of garments: shapes of ten classes on black, with smooth texture."""
    import cv2

    random = np.random.default_rng(0)
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    for number in range(count):
        label = number % CLASSES
        shape = np.abs(x / random.uniform(0.4, 0.9)) ** (1 + label) + np.abs(y / random.uniform(0.5, 1)) ** (1 + label)
        texture = cv2.GaussianBlur(random.normal(150, 160, (SIDE, SIDE)), (0, 0), 1.2)
        path = folder / str(label) / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.where(shape < 1, texture, 0).clip(0, 255).astype(np.uint8))


def _make_npz(path: Path, folder: Path) -> None:
    import cv2

    files = sorted(folder.rglob("*.png"))
    images: list[Any] = [cv2.imread(str(file), cv2.IMREAD_GRAYSCALE) for file in files]
    with path.open("wb") as file:
        np.savez(file, image=np.stack(images), label=np.array([int(file.parent.name) for file in files]))


def _arrays(task: Task, npz: bool) -> tuple[Any, Any]:
    """All images, float32 (n, 1, 28, 28) from 0 to 1, and all labels, as tensors."""
    import torch

    dataset = Npz(task) if npz else Files(task)
    images = torch.empty((len(dataset), 1, SIDE, SIDE))
    labels = torch.empty(len(dataset), dtype=torch.int64)
    for i in range(len(dataset)):
        images[i], labels[i] = dataset[i]
    return images, labels


def _map_class(task: Task, path: Path, npz: bool = False) -> None:
    images, labels = _arrays(task, npz)
    _samples()(images=images, targets=labels, batch_size=[len(labels)]).memmap(path)


def _samples() -> Any:
    """The tensorclass."""
    from published_parts.five_ways_class import Samples

    return Samples


def _map_array(task: Task, path: Path, npz: bool = False) -> None:
    with path.open("wb") as file:
        np.save(file, _arrays(task, npz)[0].numpy())


class Files:
    """The report's first way: each access reads a file, decodes it, and converts it."""

    def __init__(self, task: Task) -> None:
        self._files = [str(path) for path in sorted(_folder(task).rglob("*.png"))]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        import torch
        from PIL import Image

        path = self._files[i]
        with Image.open(path) as image:
            array = np.array(image)
        return torch.from_numpy(array).unsqueeze(0).to(torch.float32).div_(255), int(Path(path).parent.name)


class Npz:
    """Each access converts an array that needs no decoding."""

    def __init__(self, task: Task) -> None:
        with np.load(task.folder / "small.npz") as arrays:
            self._images, self._labels = arrays["image"], arrays["label"]

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        import torch

        return torch.from_numpy(self._images[i]).unsqueeze(0).to(torch.float32).div_(255), int(self._labels[i])


class Mapped:
    """Each access copies a row of a memory-mapped array."""

    def __init__(self, path: Path, labels: Any) -> None:
        self._images, self._labels = np.load(path, mmap_mode="r"), labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        import torch

        return torch.from_numpy(np.array(self._images[i])), int(self._labels[i])


def loader(
    task: Task, label: str, *, npz: bool, rank: int = 0, world: int = 1
) -> tuple[Callable[[], Iterator[Any]], int]:
    """A function that starts an epoch, and the number of batches in one: pairs of images, float32 (n, 1, 28, 28) from
    0 to 1, and labels."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    if label in OURS:
        from rawpack import Reader

        batches = Reader(store(task, "small-npz" if npz else "small", OURS[label])).batches(
            BATCH, shuffle=True, ranks=(rank, world)
        )

        def ours() -> Iterator[Any]:
            for batch in batches.torch():
                yield batch["image"].reshape(-1, 1, SIDE, SIDE).to(torch.float32).div_(255), batch["label"]

        return ours, len(batches)
    name = "small-npz" if npz else "small"
    collate: Any = None
    if label == RAW:
        dataset: Any = Npz(task) if npz else Files(task)
    elif label == PRELOAD:
        dataset = TensorDataset(*_arrays(task, npz))
    elif label == MEMMAP:
        dataset = Mapped(task.folder / f"{name}.npy", _labels(task))
    else:
        dataset = _samples().load_memmap(task.folder / f"{name}.tensorclass")
        if label == CLASS:
            dataset = dataset.contiguous().clone()
        collate = _unchanged
    sampler: Any = DistributedSampler(dataset, world, rank) if world > 1 else None
    batches = DataLoader(dataset, batch_size=BATCH, shuffle=sampler is None, sampler=sampler, collate_fn=collate)

    def original() -> Iterator[Any]:
        for batch in batches:
            yield (batch.images, batch.targets) if collate else batch

    return original, len(batches)


def _unchanged(batch: Any) -> Any:
    return batch


def _labels(task: Task) -> Any:
    with np.load(task.folder / "small.npz") as arrays:
        return arrays["label"]


def timed(task: Task, label: str, *, npz: bool, train: bool, **share: int) -> float:
    """Seconds for five epochs."""
    epoch, length = loader(task, label, npz=npz, **share)
    step = _trainer(share.get("world", 1)) if train else None
    steps = min(length, _TRAIN_STEPS if train else _RAW_STEPS if label == RAW and not npz else length)
    for images, labels in itertools.islice(epoch(), 3):
        if step:
            step(images, labels)
    began = time.perf_counter()
    for images, labels in itertools.islice(epoch(), steps):
        if step:
            step(images, labels)
    return (time.perf_counter() - began) * length / steps * EPOCHS


def _trainer(world: int) -> Callable[[Any, Any], None]:
    import torch
    from torch import nn

    model: Any = nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE * SIDE, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, CLASSES)
    )
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer, loss = torch.optim.SGD(model.parameters(), 1e-3), nn.CrossEntropyLoss()

    def step(images: Any, labels: Any) -> None:
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()

    return step


def measure(label: str, task: Task) -> Values:
    found = {}
    for data, npz in ((FASHION, False), (NPZ, True)):
        for work in ("traverse", "train"):
            found[f"{work}, {data}"] = timed(task, label, npz=npz, train=work == "train")
    if label in SHARED:
        for count in ((2,) if label == MEMMAP else ()) if task.quick else (2, 4):
            for work, value in _together(task, label, count).items():
                found[f"{work}, {count} processes"] = value
    return found


def _together(task: Task, label: str, count: int) -> dict[str, float]:
    """Seconds that the slowest of `count` processes takes for five epochs that they share."""
    context = multiprocessing.get_context("spawn")
    results, meeting = context.SimpleQueue(), task.folder / f"meeting-{os.getpid()}-{count}"
    processes = [
        context.Process(target=_one_of, args=(task, label, rank, count, meeting, results)) for rank in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    meeting.unlink(missing_ok=True)
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"{label}: a process of {count} failed")
    found = [results.get() for _ in processes]
    return {work: max(one[work] for one in found) for work in found[0]}


def _one_of(task: Task, label: str, rank: int, world: int, meeting: Path, results: Any) -> None:
    import torch
    import torch.distributed

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world))
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    found = {}
    for work in ("traverse", "train"):
        torch.distributed.barrier()
        found[work] = timed(task, label, npz=False, train=work == "train", rank=rank, world=world)
    results.put(found)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


REPORT = {
    RAW: (32.98, 3.19, 51.46, 10.65),
    PRELOAD: (2.08, 3.77, 8.68, 11.02),
    CLASS: (3.65, 3.90, 12.41, 14.46),
    CLASS_MAPPED: (4.23, 3.77, 12.96, 14.81),
    MEMMAP: (4.41, 4.32, 10.99, 12.09),
}
TRAVERSE, TRAVERSE_NPZ, TRAIN, TRAIN_NPZ = COLUMNS[:4]
_IN_BRACKETS = {TRAVERSE: "traverse", TRAVERSE_NPZ: "traverse, npz", TRAIN: "train"}


def _reported(says: str, over: str, under: str, column: str = TRAVERSE) -> Relation:
    """A relation that the report's own figures show."""
    k = COLUMNS.index(column)
    return Relation(
        f"{says} ({_IN_BRACKETS[column]})", (over, column), (under, column), theirs=REPORT[over][k] / REPORT[under][k]
    )


PART = Part(
    number=4,
    name="five_ways",
    title="Five ways to hold a data set",
    unit="Seconds for five epochs of 60,000 images of 28x28 in batches of 64.",
    columns=COLUMNS,
    prepare=prepare,
    methods=(
        *(
            Method(label, partial(measure, label), needs=("torch", "tensordict"), reads=reads)
            for label, reads in (
                (RAW, ("small-png", "small.npz")),
                (PRELOAD, ("small-png", "small.npz")),
                (CLASS, ("small.tensorclass", "small-npz.tensorclass")),
                (CLASS_MAPPED, ("small.tensorclass", "small-npz.tensorclass")),
                (MEMMAP, ("small.npy", "small-npz.npy")),
            )
        ),
        *(
            Method(label, partial(measure, label), needs=("torch",), reads=(f"small.{format}", f"small-npz.{format}"))
            for label, format in OURS.items()
        ),
    ),
    published=table(COLUMNS[:4], REPORT),
    relations=(
        _reported("Decoding at each access costs much more than rows in memory", RAW, PRELOAD),
        _reported("Without decoding, access by access is no slower than preloading", RAW, PRELOAD, TRAVERSE_NPZ),
        _reported("With a training step, decoding at each access still costs much more", RAW, PRELOAD, TRAIN),
        _reported("A tensorclass in memory is slower than preloaded tensors", CLASS, PRELOAD),
        _reported("np.memmap is slower than preloaded tensors", MEMMAP, PRELOAD),
        _reported("Mapping a tensorclass costs little more than holding it", CLASS_MAPPED, CLASS),
        _reported("np.memmap is about as fast as a mapped tensorclass", MEMMAP, CLASS_MAPPED),
        Relation(
            "rawpack: the best of the five against memmap (traverse)", (CLASS, TRAVERSE), ("rawpack, memmap", TRAVERSE)
        ),
        Relation(
            "rawpack: preloaded tensors against memmap (traverse)", (PRELOAD, TRAVERSE), ("rawpack, memmap", TRAVERSE)
        ),
        Relation("rawpack: preloaded tensors against memmap (train)", (PRELOAD, TRAIN), ("rawpack, memmap", TRAIN)),
        *(
            Relation(
                f"Not measured then: raw with {count} processes against one (traverse)",
                (RAW, f"traverse, {count} processes"),
                (RAW, TRAVERSE),
            )
            for count in (2, 4)
        ),
        Relation(
            "Not measured then: np.memmap against rawpack's memmap, 2 processes (traverse)",
            (MEMMAP, "traverse, 2 processes"),
            ("rawpack, memmap", "traverse, 2 processes"),
        ),
    ),
)
