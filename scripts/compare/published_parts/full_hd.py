"""5. Where a torch loader of 1080p images spends its time: every variant that the report tried on a CPU."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from published_parts.common import once, pack, photos, size_of, store
from published_parts.contract import Method, Part, Relation, Task, UnavailableError, Values, table

HEIGHT, WIDTH = 1080, 1920
CROP = (540, 960)
BATCH, WORKERS = 8, 2
THEIR_IMAGES = 840
_QUALITY, _NOISE = 93, 2.0
"""These make files of about 417 kB, as in the report."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RATE, DISK, STAGE = "images/s", "GB for 840 images", "ms per image"
Pixels = NDArray[np.uint8]


def prepare(task: Task) -> None:
    folder = once(task.folder / "hd", partial(_make_files, task=task))
    files = _files(task)
    once(task.folder / "hd-jpeg.lmdb.mdb", partial(_make_lmdb, values=(file.read_bytes() for file in files)))
    once(task.folder / "hd-raw.lmdb.mdb", partial(_make_lmdb, values=(_decode(file) for file in files)))
    once(task.folder / "hd-raw.h5", partial(_make_hdf5, files=files, compression=None))
    once(task.folder / "hd-gzip.h5", partial(_make_hdf5, files=files, compression="gzip"))
    listing = folder / "list.jsonl"
    pack(task, "hd", listing, ("memmap", "hdf5"), size=(HEIGHT, WIDTH), fields={"boxes": "xyxy"})
    pack(task, "hd", listing, ("lmdb",), size="keep", quality="keep", fields={"boxes": "xyxy"})


def _make_files(folder: Path, task: Task) -> None:
    """Photographs as 1080p files, with boxes next to them and in a listing: the largest 16:9 box of each photograph,
    enlarged, with the noise of a sensor."""
    import cv2

    folder.mkdir(parents=True, exist_ok=True)
    random, rows = np.random.default_rng(0), []
    for number, path in enumerate(photos(task, task.count(84, 4))):
        image: Any = cv2.imread(str(path))
        scale = max(HEIGHT / image.shape[0], WIDTH / image.shape[1])
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        top, left = (image.shape[0] - HEIGHT) // 2, (image.shape[1] - WIDTH) // 2
        image = cv2.resize(image[top : top + HEIGHT, left : left + WIDTH], (WIDTH, HEIGHT))
        image = (image + random.normal(0, _NOISE, (HEIGHT, WIDTH, 1))).clip(0, 255).astype(np.uint8)
        name = f"{number:04d}"
        cv2.imwrite(str(folder / f"{name}.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        corners = random.integers(0, (WIDTH - 100, HEIGHT - 100), (number % 6, 2))
        boxes = np.hstack([corners, corners + random.integers(20, 100, corners.shape), corners[:, :1] % 7])
        np.save(folder / f"{name}.npy", boxes.astype(np.float32))
        rows.append(json.dumps({"path": f"{name}.jpg", "boxes": boxes.tolist()}))
    (folder / "list.jsonl").write_text("\n".join(rows) + "\n")


def _make_lmdb(path: Path, values: Iterable[Any]) -> None:
    import lmdb

    with lmdb.open(str(path), subdir=False, map_size=1 << 36, lock=False) as environment:
        for number, value in enumerate(values):
            with environment.begin(write=True) as transaction:
                transaction.put(f"{number:04d}".encode(), value if isinstance(value, bytes) else value.tobytes())


def _make_hdf5(path: Path, files: list[Path], compression: str | None) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        images = file.create_dataset(
            "image", (len(files), HEIGHT, WIDTH, 3), np.uint8, chunks=(1, HEIGHT, WIDTH, 3), compression=compression
        )
        for number, one in enumerate(files):
            images[number] = _decode(one)


def _files(task: Task) -> list[Path]:
    return sorted((task.folder / "hd").glob("*.jpg"))


def _decode(path: Path | bytes, flag: str = "IMREAD_COLOR") -> Pixels:
    """BGR, the order of OpenCV, which the report keeps."""
    import cv2

    data = path if isinstance(path, bytes) else path.read_bytes()
    decoder: Any = cv2.imdecode
    image: Pixels = decoder(np.frombuffer(data, np.uint8), getattr(cv2, flag))
    return image


# ------------------------------------------------------------------------------------------ images, by number


class FromFiles:
    def __init__(self, task: Task, flag: str = "IMREAD_COLOR") -> None:
        self._files, self._flag = _files(task), flag

    def __call__(self, i: int) -> Pixels:
        return _decode(self._files[i], self._flag)


class FromFilesByTurboJpeg:
    def __init__(self, task: Task) -> None:
        self._files, self._decoder = _files(task), _turbojpeg()

    def __call__(self, i: int) -> Pixels:
        decoded: Pixels = self._decoder.decode(self._files[i].read_bytes())
        return decoded


def _turbojpeg() -> Any:
    import turbojpeg

    try:
        return turbojpeg.TurboJPEG()
    except (RuntimeError, OSError) as error:
        raise UnavailableError(f"PyTurboJPEG: {error}") from error


class FromLmdb:
    """Opened in each worker when it is first read."""

    def __init__(self, task: Task, *, jpeg: bool) -> None:
        self._path, self._jpeg = task.folder / f"hd-{'jpeg' if jpeg else 'raw'}.lmdb.mdb", jpeg
        self._environment: Any = None

    def __call__(self, i: int) -> Pixels:
        import lmdb

        if self._environment is None:
            self._environment = lmdb.open(str(self._path), subdir=False, readonly=True, lock=False, readahead=False)
        with self._environment.begin(buffers=True) as transaction:
            value = transaction.get(f"{i:04d}".encode())
            if self._jpeg:
                return _decode(bytes(value))
            return np.frombuffer(value, np.uint8).reshape(HEIGHT, WIDTH, 3).copy()


class FromHdf5:
    """Opened in each worker when it is first read."""

    def __init__(self, task: Task, name: str) -> None:
        self._path = task.folder / name
        self._file: Any = None

    def __call__(self, i: int) -> Pixels:
        import h5py

        if self._file is None:
            self._file = h5py.File(self._path)
        read: Pixels = self._file["image"][i]
        return read


# ------------------------------------------------------------------------------------------ the original loader


class Cropped:
    """The report's data set: an image, a random crop of 960x540, and the boxes in it."""

    def __init__(
        self, task: Task, images: Callable[[int], Pixels], convert: Callable[[Pixels], Any] | None = None
    ) -> None:
        self._images, self._convert, self._files = images, convert, _files(task)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        import torch

        image, boxes = self._images(i), np.load(self._files[i].with_suffix(".npy"))
        y, x = (int(np.random.randint(side - crop + 1)) for side, crop in zip(image.shape, CROP, strict=False))
        image = image[y : y + CROP[0], x : x + CROP[1]]
        boxes[:, :4] = (boxes[:, :4] - (x, y, x, y)).clip(0, (CROP[1], CROP[0], CROP[1], CROP[0]))
        boxes = boxes[(boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])]
        converted = np.ascontiguousarray(image) if self._convert is None else self._convert(image)
        return torch.from_numpy(converted), torch.from_numpy(boxes)


def _collate(samples: list[tuple[Any, Any]]) -> tuple[Any, list[Any]]:
    import torch

    return torch.stack([image for image, _ in samples]), [boxes for _, boxes in samples]


def by_arithmetic(image: Pixels) -> NDArray[np.float32]:
    """(H, W, 3) uint8 to (3, H, W) float32."""
    scaled = (image.astype(np.float32) / 255 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def by_table(image: Pixels) -> NDArray[np.float32]:
    """The same numbers from look-up tables: 256 for each channel."""
    tables = (np.arange(256, dtype=np.float32)[:, None] / 255 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    out = np.empty((3, *image.shape[:2]), np.float32)
    for channel in range(3):
        np.take(tables[:, channel], image[..., channel], out=out[channel], mode="clip")
    return out


def after_the_batch(images: Any) -> Any:
    """A batch uint8 (n, H, W, 3) as normalized float32 (n, 3, H, W). With a GPU, this runs there, after the copy."""
    import torch

    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    return images.permute(0, 3, 1, 2).to(torch.float32).div_(255).sub_(mean).div_(std)


def prefetched(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches that a thread reads and converts in advance."""
    ready: queue.Queue[Any] = queue.Queue(2)

    def fill() -> None:
        for images, _ in batches:
            ready.put(after_the_batch(images))
        ready.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (batch := ready.get()) is not None:
        yield batch


def original(
    make: Callable[[Task], Callable[[int], Pixels]],
    task: Task,
    *,
    file: str | None = None,
    convert: Callable[[Pixels], Any] | None = None,
    workers: int = WORKERS,
    finish: Callable[[Iterable[Any]], Iterator[Any]] | None = None,
) -> Values:
    import cv2
    from torch.utils.data import DataLoader

    # One thread per worker; and with threads of its own, OpenCV deadlocks in forks of a process that has used it.
    cv2.setNumThreads(0)
    batches: Any = DataLoader(
        Cropped(task, make(task), convert), batch_size=BATCH, shuffle=True, num_workers=workers, collate_fn=_collate,
        persistent_workers=workers > 0,
    )  # fmt: skip
    found = {RATE: _rate(lambda: finish(batches) if finish else batches, len(_files(task)))}
    if file is not None:
        found[DISK] = _gigabytes(task, task.folder / file)
    return found


def _rate(epoch: Callable[[], Iterable[Any]], images: int) -> float:
    """Images per second in two epochs after a first one, so that workers run and files are in memory."""
    for _ in epoch():
        pass
    began = time.perf_counter()
    for _ in range(2):
        for _ in epoch():
            pass
    return 2 * images / (time.perf_counter() - began)


def _gigabytes(task: Task, path: Path) -> float:
    size = sum(file.stat().st_size for file in _files(task)) if path.name == "hd" else size_of(path)
    return size / len(_files(task)) * THEIR_IMAGES / 1e9


def _each_converted(batches: Iterable[Any]) -> Iterator[Any]:
    for images, _ in batches:
        yield after_the_batch(images)


# ------------------------------------------------------------------------------------------ rawpack, and the stages


def ours(format: str, task: Task, *, steps: str = "crop", sized: bool = False) -> Values:
    from rawpack import Reader
    from rawpack.transforms import Normalize, RandomCrop, RandomResizedCrop, ToCHW

    whole = RandomResizedCrop(CROP, scale=(1, 1), ratio=(WIDTH / HEIGHT, WIDTH / HEIGHT), scaled_decode=1.0)
    transform: list[Any] = [whole if steps == "half" else RandomCrop(CROP)]
    if steps == "normalize":
        transform += [Normalize(MEAN, STD), ToCHW()]
    path = store(task, "hd", format)
    batches = Reader(path).batches(
        BATCH, shuffle=True, transform=transform, fields=["image", "boxes"], workers=WORKERS
    ).torch()  # fmt: skip
    found = {RATE: _rate(lambda: batches, len(_files(task)))}
    if sized:
        found[DISK] = _gigabytes(task, path)
    return found


def stage(work: Callable[[Task], Callable[[int], Any]], task: Task) -> Values:
    """Milliseconds per image, in one process."""
    do, count = work(task), len(_files(task))
    do(0)
    began = time.perf_counter()
    for i in range(count):
        do(i)
    return {STAGE: (time.perf_counter() - began) / count * 1000}


def _reading(task: Task) -> Callable[[int], Any]:
    files = _files(task)
    return lambda i: files[i].read_bytes()


def _decoding(task: Task) -> Callable[[int], Any]:
    contents = [file.read_bytes() for file in _files(task)]
    return lambda i: _decode(contents[i])


def _decoding_by_turbojpeg(task: Task) -> Callable[[int], Any]:
    contents, decoder = [file.read_bytes() for file in _files(task)], _turbojpeg()
    return lambda i: decoder.decode(contents[i])


def _on_a_crop(convert: Callable[[Pixels], Any], task: Task) -> Callable[[int], Any]:
    crop = np.ascontiguousarray(_decode(_files(task)[0])[: CROP[0], : CROP[1]])
    return lambda i: convert(crop)


FILES = "JPEG files, OpenCV"
DECODE, READ, COPY = "stage: decode, OpenCV", "stage: read a file", "stage: copy a crop"
ARITHMETIC, TABLE = "stage: normalize by arithmetic", "stage: normalize by a look-up table"
LMDB_JPEG, LMDB_RAW, HDF5, GZIP = "LMDB, JPEG inside", "LMDB, unencoded", "HDF5, uncompressed", "HDF5, gzip"
TURBO, HALF = "JPEG files, PyTurboJPEG", "JPEG files, OpenCV, decoded at 1/2"
IN_WORKERS, IN_WORKERS_TABLE = f"{FILES}, normalized in the workers", f"{FILES}, normalized in the workers by a table"
AFTER, PREFETCHED = f"{FILES}, normalized after the batch", f"{FILES}, normalized by a prefetcher"
MANY = f"{FILES}, 16 workers"


def _method(label: str, make: Callable[[Task], Any], needs: tuple[str, ...] = (), **options: Any) -> Method:
    reads = ("hd", options.get("file", "hd"))
    return Method(label, partial(original, make, **options), needs=("torch", "cv2", *needs), reads=reads)


PART = Part(
    number=5,
    name="full_hd",
    title="A loader of 1080p images",
    unit="Random crops of 960x540 of 84 images of 1920x1080, in batches of 8, with 2 workers.",
    columns=(RATE, DISK, STAGE),
    prepare=prepare,
    methods=(
        Method(READ, partial(stage, _reading)),
        Method(DECODE, partial(stage, _decoding)),
        Method("stage: decode, PyTurboJPEG", partial(stage, _decoding_by_turbojpeg), needs=("turbojpeg",)),
        Method(COPY, partial(stage, partial(_on_a_crop, np.copy))),
        Method(ARITHMETIC, partial(stage, partial(_on_a_crop, by_arithmetic))),
        Method(TABLE, partial(stage, partial(_on_a_crop, by_table))),
        _method(FILES, FromFiles, file="hd"),
        _method(f"{FILES}, no workers", FromFiles, workers=0),
        _method(MANY, FromFiles, workers=16),
        _method(TURBO, FromFilesByTurboJpeg, ("turbojpeg",)),
        _method(HALF, partial(FromFiles, flag="IMREAD_REDUCED_COLOR_2")),
        _method(LMDB_JPEG, partial(FromLmdb, jpeg=True), ("lmdb",), file="hd-jpeg.lmdb.mdb"),
        _method(LMDB_RAW, partial(FromLmdb, jpeg=False), ("lmdb",), file="hd-raw.lmdb.mdb"),
        _method(HDF5, partial(FromHdf5, name="hd-raw.h5"), ("h5py",), file="hd-raw.h5"),
        _method(GZIP, partial(FromHdf5, name="hd-gzip.h5"), ("h5py",), file="hd-gzip.h5"),
        _method(IN_WORKERS, FromFiles, convert=by_arithmetic),
        _method(IN_WORKERS_TABLE, FromFiles, convert=by_table),
        _method(AFTER, FromFiles, finish=_each_converted),
        _method(PREFETCHED, FromFiles, finish=prefetched),
        *(
            Method(f"rawpack, {format}", partial(ours, format, sized=True), needs=("torch",), reads=(f"hd.{format}",))
            for format in ("memmap", "hdf5", "lmdb")
        ),
        Method("rawpack, lmdb, decoded at 1/2", partial(ours, "lmdb", steps="half"), needs=("torch",)),
        *(
            Method(
                f"rawpack, {format}, normalized",
                partial(ours, format, steps="normalize"),
                needs=("torch",),
                reads=(f"hd.{format}",),
            )
            for format in ("memmap", "hdf5", "lmdb")
        ),
    ),
    published=table((DISK,), {FILES: (0.35,), LMDB_RAW: (4.86,), HDF5: (4.86,)}),
    relations=(
        Relation("Decoding, not reading, is the bottleneck", (DECODE, STAGE), (READ, STAGE), within=(5, 1e9)),
        Relation("Decoding, not copying, is the bottleneck", (DECODE, STAGE), (COPY, STAGE), within=(5, 1e9)),
        Relation(
            "LMDB with JPEG inside gains nothing over files", (LMDB_JPEG, RATE), (FILES, RATE), within=(0.8, 1.25)
        ),
        Relation("LMDB unencoded saves the decoding", (LMDB_RAW, RATE), (FILES, RATE), within=(1.5, 1e9)),
        Relation("It costs 14 times the disk", (LMDB_RAW, DISK), (FILES, DISK), theirs=4.86 / 0.35),
        Relation("HDF5 uncompressed is fast", (HDF5, RATE), (FILES, RATE), within=(1.5, 1e9)),
        Relation("Compression gives HDF5 trouble", (HDF5, RATE), (GZIP, RATE), within=(1.5, 1e9)),
        Relation("PyTurboJPEG gains clearly", (TURBO, RATE), (FILES, RATE), within=(1.15, 1e9)),
        Relation("Decoding at 1/2 gains", (HALF, RATE), (FILES, RATE), within=(1.15, 1e9)),
        Relation("Too many workers harm", (FILES, RATE), (MANY, RATE), within=(1.05, 1e9)),
        Relation("A prefetcher changes little", (PREFETCHED, RATE), (AFTER, RATE), within=(0.8, 1.25)),
        Relation(
            "Normalizing after the batch is faster than before", (AFTER, RATE), (IN_WORKERS, RATE), within=(1.05, 1e9)
        ),
        Relation(
            "A look-up table normalizes faster than arithmetic", (ARITHMETIC, STAGE), (TABLE, STAGE), within=(1.05, 1e9)
        ),
        Relation("rawpack: lmdb against the same JPEG files", ("rawpack, lmdb", RATE), (FILES, RATE)),
        Relation("rawpack: memmap against LMDB unencoded", ("rawpack, memmap", RATE), (LMDB_RAW, RATE)),
        Relation("rawpack: hdf5 against HDF5 uncompressed", ("rawpack, hdf5", RATE), (HDF5, RATE)),
        Relation(
            "rawpack: lmdb normalized against the same files", ("rawpack, lmdb, normalized", RATE), (IN_WORKERS, RATE)
        ),
    ),
)
