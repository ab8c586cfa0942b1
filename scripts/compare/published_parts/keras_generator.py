"""3. A Keras generator instead of all images in memory: memory, time, and where the time goes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from published_parts.common import once, pack, photos, store
from published_parts.contract import Method, Part, Relation, Task, Values

# Keras reads this when it is imported.
os.environ["KERAS_BACKEND"] = "jax"
BOX = (186, 0, 300, 30)
"""Left, top, right, bottom."""
ROWS, COLUMNS_ = 32, 128
CLASSES, LABELS = 21_000, ("a", "b", "c", "d")
BATCH = 128
EPOCH_S, MEMORY = "s per epoch", "MB beyond the model"
READING, CROPPING, ENCODING, TRAINING = "reading, s", "cropping, s", "one-hot labels, s", "training, s"


def prepare(task: Task) -> None:
    folder = once(task.folder / "strips", partial(_make_files, task=task))
    box = f"{BOX[0]},{BOX[1]},{BOX[2] - BOX[0]},{BOX[3] - BOX[1]}"
    pack(task, "strips", folder / "list.csv", crop=box, size=(ROWS, COLUMNS_), fit="stretch")


def _make_files(folder: Path, task: Task) -> None:
    """Photographs of 400x300 as JPEG files, and a listing with four labels for each."""
    import cv2

    folder.mkdir(parents=True, exist_ok=True)
    random, rows = np.random.default_rng(0), [",".join(("path", *LABELS))]
    for number, path in enumerate(photos(task, task.count(1536, 256))):
        image: Any = cv2.imread(str(path))
        cv2.imwrite(str(folder / f"{number:05d}.jpg"), cv2.resize(image, (400, 300)), [cv2.IMWRITE_JPEG_QUALITY, 90])
        rows.append(",".join((f"{number:05d}.jpg", *map(str, random.integers(CLASSES, size=len(LABELS))))))
    (folder / "list.csv").write_text("\n".join(rows) + "\n")


def _listed(task: Task) -> tuple[list[str], Any]:
    """The files, and their labels, int64 (n, 4)."""
    rows = [line.split(",") for line in (task.folder / "strips" / "list.csv").read_text().splitlines()[1:]]
    return [str(task.folder / "strips" / row[0]) for row in rows], np.array([row[1:] for row in rows], np.int64)


def read(path: str) -> Any:
    import cv2

    return cv2.imread(path)


def cropped(image: Any) -> Any:
    """float32 (32, 128, 3), from 0 to 1."""
    import cv2

    left, top, right, bottom = BOX
    return cv2.resize(image[top:bottom, left:right], (COLUMNS_, ROWS)).astype(np.float32) / 255


def one_hot(labels: Any) -> tuple[Any, ...]:
    """Four arrays float32 (n, 21000) from labels (n, 4)."""
    found = tuple(np.zeros((len(labels), CLASSES), np.float32) for _ in LABELS)
    for column, array in enumerate(found):
        array[np.arange(len(labels)), labels[:, column]] = 1
    return found


def model(sparse: bool = False) -> Any:
    import keras

    keras.utils.set_random_seed(0)
    inputs = keras.Input((ROWS, COLUMNS_, 3))
    features = inputs
    for filters in (16, 32):
        features = keras.layers.Conv2D(filters, 3, strides=2, activation="relu")(features)
    features = keras.layers.GlobalAveragePooling2D()(features)
    made = keras.Model(inputs, [keras.layers.Dense(CLASSES, activation="softmax")(features) for _ in LABELS])
    made.compile("sgd", ["sparse_categorical_crossentropy" if sparse else "categorical_crossentropy"] * len(LABELS))
    return made


class Spent:
    """The seconds that the generator spends on each step of its work, summed over all threads."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((READING, CROPPING, ENCODING), 0.0)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - began


def generator(task: Task, spent: Spent, threads: int) -> Any:
    """The report's `Sequence`."""
    import keras

    files, labels = _listed(task)

    class Generator(keras.utils.PyDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(workers=threads)
            self._random = np.random.default_rng(0)
            self.on_epoch_end()

        def __len__(self) -> int:
            return len(files) // BATCH

        def __getitem__(self, k: int) -> tuple[Any, Any]:
            rows = self._order[k * BATCH : (k + 1) * BATCH]
            with spent.on(READING):
                images = [read(files[row]) for row in rows]
            with spent.on(CROPPING):
                x = np.stack([cropped(image) for image in images])
            with spent.on(ENCODING):
                return x, one_hot(labels[rows])

        def on_epoch_end(self) -> None:
            self._order = self._random.permutation(len(files))

    return Generator()


def in_memory(task: Task) -> Values:
    files, labels = _listed(task)

    def data() -> dict[str, Any]:
        return {"x": np.stack([cropped(read(file)) for file in files]), "y": list(one_hot(labels)), "batch_size": BATCH}

    return _fitted(task, data)


def by_generator(task: Task, *, threads: int = 1) -> Values:
    spent = Spent()
    found = _fitted(task, lambda: {"x": generator(task, spent, threads)}, before=lambda: spent.__init__())  # type: ignore[misc]
    if threads == 1:
        found |= spent.seconds
        found[TRAINING] = _training(task)
    return found


def ours(format: str, task: Task, *, sparse: bool = False) -> Values:
    from rawpack import Reader
    from rawpack.transforms import ConvertImageDtype, OneHot

    steps: list[Any] = [ConvertImageDtype()]
    if not sparse:
        steps += [OneHot(CLASSES, field) for field in LABELS]
    reader = Reader(store(task, "strips", format))
    batches = reader.batches(BATCH, shuffle=True, drop_last=True, transform=steps)
    return _fitted(task, lambda: {"x": batches.keras(x="image", y=list(LABELS))}, sparse=sparse)


def _fitted(
    task: Task, data: Callable[[], dict[str, Any]], *, sparse: bool = False, before: Callable[[], Any] = lambda: None
) -> Values:
    """Seconds for the second epoch, and the peak of the memory that the data and its loading take."""
    made = model(sparse)
    _one_step(made, sparse)
    with most_memory() as memory:
        given = data()
        made.fit(**given, epochs=1, verbose=0)
        before()
        began = time.perf_counter()
        made.fit(**given, epochs=1, verbose=0)
        took = time.perf_counter() - began
    return {EPOCH_S: took, MEMORY: memory[0] / 1e6}


def _one_step(made: Any, sparse: bool) -> None:
    """Compile the model, so that neither the time nor the memory for it counts."""
    labels = np.zeros((BATCH, len(LABELS)), np.int64)
    y = [labels[:, column] for column in range(len(LABELS))] if sparse else list(one_hot(labels))
    made.fit(np.zeros((BATCH, ROWS, COLUMNS_, 3), np.float32), y, batch_size=BATCH, verbose=0)


def _training(task: Task) -> float:
    """Seconds for the training steps of an epoch alone, on one batch in memory."""
    made, steps = model(), len(_listed(task)[0]) // BATCH
    x, y = np.zeros((BATCH, ROWS, COLUMNS_, 3), np.float32), list(one_hot(np.zeros((BATCH, len(LABELS)), np.int64)))
    made.train_on_batch(x, y)
    began = time.perf_counter()
    for _ in range(steps):
        made.train_on_batch(x, y)
    return time.perf_counter() - began


@contextmanager
def most_memory() -> Iterator[list[float]]:
    """The peak memory of this process and its workers beyond what they had before, in bytes, without mapped files."""
    from measure import memory

    def now() -> int:
        return memory(0)["beside_bytes"] or 0

    start, found, ended = now(), [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            found[0] = max(found[0], now() - start)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


ALL, ONE = "all in memory", "generator"
THREADS = "generator, a thread for each CPU"
SPARSE = "rawpack, memmap, labels as numbers"


def _method(label: str, call: Callable[[Task], Values]) -> Method:
    return Method(label, call, needs=("keras", "jax"), environment="published-keras", reads=("strips",))


PART = Part(
    number=3,
    name="keras_generator",
    title="A Keras generator instead of all images in memory",
    unit="Training on 1,536 images of 32x128 with four labels of 21,000 classes, in batches of 128.",
    columns=(EPOCH_S, MEMORY, READING, CROPPING, ENCODING, TRAINING),
    prepare=prepare,
    methods=(
        _method(ALL, in_memory),
        _method(ONE, by_generator),
        _method(THREADS, partial(by_generator, threads=os.cpu_count() or 1)),
        *(_method(f"rawpack, {format}", partial(ours, format)) for format in ("memmap", "hdf5", "lmdb")),
        _method(SPARSE, partial(ours, "memmap", sparse=True)),
    ),
    published={
        (ALL, MEMORY): 200_000.0,
        (ONE, MEMORY): 10_000.0,
        (ONE, READING): 100.0,
        (ONE, CROPPING): 20.0,
        (ONE, TRAINING): 2.0,
    },
    relations=(
        Relation("A generator takes a twentieth of the memory", (ALL, MEMORY), (ONE, MEMORY), theirs=20.0),
        Relation("The time for an epoch stays the same", (ONE, EPOCH_S), (ALL, EPOCH_S), within=(0.8, 1.25)),
        Relation("Reading costs more than cropping", (ONE, READING), (ONE, CROPPING), theirs=5.0),
        Relation("Reading costs more than training", (ONE, READING), (ONE, TRAINING), theirs=50.0),
        Relation("Not measured then: one thread against one for each CPU", (ONE, EPOCH_S), (THREADS, EPOCH_S)),
        Relation("rawpack: the generator against memmap, time", (ONE, EPOCH_S), ("rawpack, memmap", EPOCH_S)),
        Relation("rawpack: all in memory against memmap, time", (ALL, EPOCH_S), ("rawpack, memmap", EPOCH_S)),
        Relation("rawpack: all in memory against memmap, memory", (ALL, MEMORY), ("rawpack, memmap", MEMORY)),
        Relation("rawpack: one-hot labels against numbers, memory", ("rawpack, memmap", MEMORY), (SPARSE, MEMORY)),
        Relation("rawpack: one-hot labels against numbers, time", ("rawpack, memmap", EPOCH_S), (SPARSE, EPOCH_S)),
    ),
)
