"""Batches as arrays of JAX: the values of the numpy batches, in memory that stays theirs, on one device, on eight, and
on those of two processes.

Users can rely on this: an array never changes, although JAX shares the memory of the batch on the CPU. Ranks that train
together take each sample once an epoch, and resume with exactly the samples that no step has used.
"""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture
from reading import WAYS
from trained import UNTRAINED, numbered_store, numbers_of, order_of, run_script, steps_in
from ways import way

import rawpack_packer
from rawpack import Reader, UsageError

jax = pytest.importorskip("jax", reason="JAX is not installed")

SCRIPT = Path(__file__).parent / "scripts" / "jax_run.py"
SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 3}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", 50)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Masks, vectors, texts, boxes, and numbers that 32 bits do not hold."""
    samples = [
        {
            "image": picture(20, 24, i),
            "mask": np.full((20, 24), i, np.uint8),
            "pose": np.arange(4, dtype=np.float32) + i,
            "id": i + (1 << 40),
            "caption": f"number {i}",
            "boxes": np.full((i % 4, 5), i, np.float32),
        }
        for i in range(10)
    ]
    where = tmp_path_factory.mktemp("mixed") / "store"
    rawpack_packer.pack(samples, where, fields={"mask": "mask", "boxes": "float32[?,5]"}, workers=0, format="memmap")
    return Reader(where)


@pytest.fixture(scope="module", autouse=True)
def devices() -> list[Any]:
    """Eight devices in this process."""
    try:
        jax.config.update("jax_num_cpu_devices", 8)
    except RuntimeError:
        pytest.skip("JAX was used in this process before, with fewer devices")
    return list(jax.devices("cpu"))


@pytest.fixture(scope="module")
def eight(devices: list[Any]) -> Any:
    """Rows over eight devices."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    return NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))


# ---------------------------------------------------------------------------------------------- values and memory


@pytest.mark.parametrize("way", WAYS)
def test_values_are_those_of_numpy(store: Path, eight: Any, way: str) -> None:
    """Over two epochs, in every way, on one device and on eight; int64 becomes JAX's int32."""
    reader = Reader(store)
    for sharding, options in ((None, {}), (jax.devices()[3], {}), (eight, {"drop_last": True})):
        expected = reader.batches(8, workers=0, **SHUFFLED, **options)
        arrays = reader.batches(8, **SHUFFLED, **options, **WAYS[way]).jax(sharding)
        assert len(arrays) == len(expected)
        for _ in range(2):
            for given, batch in zip(expected, arrays, strict=True):
                assert list(batch) == list(given)
                for name in given:
                    np.testing.assert_array_equal(np.asarray(batch[name]), given[name])
                assert (batch["image"].dtype, batch["label"].dtype) == (np.uint8, np.int32)
                placed = eight.device_set if sharding is eight else {sharding or jax.devices()[0]}
                assert batch["image"].devices() == batch["index"].devices() == placed


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sharded", [False, True])
def test_arrays_that_are_kept_do_not_change(store: Path, eight: Any, way: str, sharded: bool) -> None:
    """Over epochs, with jit and donation in between: JAX shares the memory of batches, so it must not be reused. What
    nobody holds is reused."""
    reader = Reader(store)
    truth = np.stack([reader[i]["image"] for i in range(50)])
    arrays = reader.batches(8, drop_last=True, **SHUFFLED, **WAYS[way]).jax(eight if sharded else None)
    donated, kept = jax.jit(lambda images: images + 1, donate_argnums=0), []
    for _ in range(3):
        for number, batch in enumerate(arrays):
            images, rows = batch["image"], batch["index"]
            kept.append((np.asarray(images) if number % 2 else images, rows, 0))
            if number % 2:  # numpy's view of the array, and what a donation made of it
                kept.append((donated(images), rows, 1))
            del batch, images
    gc.collect()
    for images, rows, more in kept:
        np.testing.assert_array_equal(np.asarray(images), truth[np.asarray(rows)] + np.uint8(more))
    pointers, shared = set(), 0
    iterator = iter(arrays)
    for batch in iterator:
        slots = iterator._source._source.slot_pool.slots.values()
        begins = [(np.frombuffer(slot.memory, np.uint8).ctypes.data, slot.size) for slot in slots]
        pointer = batch["image"].addressable_shards[0].data.unsafe_buffer_pointer()
        shared += any(start <= pointer < start + size for start, size in begins)
        pointers.add(pointer)
    if way != "here":  # where batches this small share a slot, JAX copies those that are not aligned
        assert shared == 6, "nothing is copied on the CPU"
        assert len(pointers) <= 5, "arrays that nobody holds give their slots back"


def test_every_kind_of_field(mixed: Reader, eight: Any) -> None:
    """Images and masks stay (n, H, W, C); texts stay lists; ragged fields are lists of arrays on
    the device, or are padded and sharded. Over several devices, lists stay numpy's."""
    names = ["image", "mask", "pose", "caption", "boxes"]
    batch = next(iter(mixed.batches(10, fields=names, workers=0).jax()))
    assert (batch["image"].shape, batch["mask"].shape) == ((10, 20, 24, 3), (10, 20, 24, 1))
    assert batch["caption"][9] == "number 9"
    assert [len(boxes) for boxes in batch["boxes"]] == [i % 4 for i in range(10)]
    assert all(isinstance(boxes, jax.Array) and boxes.devices() == batch["image"].devices() for boxes in batch["boxes"])
    np.testing.assert_array_equal(batch["boxes"][3], np.full((3, 5), 3, np.float32), strict=False)
    over_eight = next(iter(mixed.batches(8, fields=["image", "boxes"], drop_last=True, workers=0).jax(eight)))
    assert isinstance(over_eight["boxes"][3], np.ndarray)
    padded = mixed.batches(8, fields=["boxes"], ragged="pad", drop_last=True, workers=0)
    assert [boxes.shape for (boxes,) in padded.jax(eight, as_tuple=["boxes"])] == [(8, 3, 5)]


def test_numbers_that_jax_would_cut_are_refused(mixed: Reader, tmp_path: Path) -> None:
    """JAX itself would make 0 of 2 to the 40th, and say nothing; also in lists."""
    with jax.enable_x64(True):
        arrays = mixed.batches(4, fields=["id"], workers=0).jax()
        assert next(iter(arrays))["id"].tolist() == [(1 << 40) + i for i in range(4)]
    with pytest.raises(UsageError, match=r"'id' has numbers that JAX would cut to int32.*jax_enable_x64"):
        next(iter(arrays))  # in the mode of now, not of when it was made
    lists = [{"image": picture(8, 8, i), "ids": np.array([1, 1 << 40][: i + 1])} for i in range(2)]
    rawpack_packer.pack(lists, tmp_path / "s", fields={"ids": "int64[?]"}, workers=0, format="memmap")
    batches = iter(Reader(tmp_path / "s").batches(1, fields=["ids"], workers=0).jax())
    assert [numbers.tolist() for numbers in next(batches)["ids"]] == [[1]]
    with pytest.raises(UsageError, match=r"'ids' has numbers that JAX would cut to int32"):
        next(batches)


# ---------------------------------------------------------------------------------------------- states and arguments


def test_a_state_is_the_one_of_numpy_batches(store: Path, eight: Any) -> None:
    """At every batch, one epoch after another; a run that stops anywhere resumes with the next sample, also on another
    number of devices. Scripts find the attributes that loaders have."""
    options: dict[str, Any] = {"workers": 0, **SHUFFLED, "drop_last": True}
    reader = Reader(store)
    numpy, arrays, again = (reader.batches(8, **options) for _ in range(3))
    expected = [(batch["index"].tolist(), numpy.state_dict()) for _ in range(3) for batch in numpy]
    on_eight, on_one = arrays.jax(eight), again.jax()
    for (rows, state), batch in zip(expected, on_eight.forever(), strict=False):
        assert (batch["index"].tolist(), on_eight.state_dict()) == (rows, state)
    for done in range(1, 6):
        state = json.loads(json.dumps(expected[done - 1][1]))
        on_one.load_state_dict(state)
        iter(on_one)
        on_one.set_epoch(0)
        assert on_one.state_dict() == state
        assert [batch["index"].tolist() for batch in on_one] == [rows for rows, _ in expected[done:6]]
    read = on_one.dataset, on_one.batch_size, on_one.drop_last, on_one.num_workers, on_one.sampler
    assert read == (reader, 8, True, 0, None)


def test_what_a_sharding_does_not_divide_is_refused(store: Path, eight: Any) -> None:
    """Batches at the call, as axes that a field does not have; a last batch before the epoch begins, with the cure."""
    from jax.sharding import NamedSharding, PartitionSpec

    reader = Reader(store)
    for batch_size, sharding, words in (
        (12, eight, r"does not fit the batches, for 'image' \(12, 8, 8, 3\): choose another batch_size"),
        (8, NamedSharding(eight.mesh, PartitionSpec(None, "data")), r"does not fit the batches, for .* \(8,\)"),
    ):
        with pytest.raises(UsageError, match=words):
            reader.batches(batch_size).jax(sharding)
    arrays = reader.batches(8, workers=0).jax(eight)
    with pytest.raises(UsageError, match=r"does not fit the last batch of epoch 0, for 'image' \(2, 8.*drop_last=True"):
        next(iter(arrays))
    assert arrays.state_dict()["position"] == 0
    assert [len(batch["index"]) for batch in reader.select(range(40)).batches(16, workers=0).jax(eight)] == [16, 16, 8]


# ---------------------------------------------------------------------------------------------- training


def train(store: Path, folder: Path, journal: str, *more: int, processes: int, code: int = 0) -> list[str]:
    """Run the script, with 8 devices in all."""
    arguments = (store, folder / journal, folder / "checkpoint", 3, 8 // processes, *more)
    return run_script(SCRIPT, *arguments, ranks=processes, code=code, timeout=120)


@pytest.fixture(scope="module")
def killed(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with two processes that was killed in the middle of epoch 1."""
    folder = tmp_path_factory.mktemp("killed")
    train(store, folder, "before", 6 + 4, processes=2, code=7)
    return folder


@way("JAX", "a loop over `batches.jax()`", "to the sample")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_resumes(store: Path, tmp_path: Path, killed: Path, processes: int) -> None:
    """Eight devices of two processes, killed in the middle of epoch 1, and resumed in as many processes or in one:
    every sample of an epoch's 48 is trained on once, in the order that one process has. The model learns."""
    folder = shutil.copytree(killed, tmp_path / "run")
    printed = train(store, folder, "after", processes=processes)
    first, second = steps_in(folder / "before"), steps_in(folder / "after")
    for epoch in range(3):
        assert numbers_of([*first, *second], epoch) == sorted(order_of(store, epoch)[:48])
    assert numbers_of(first, 1) == sorted(order_of(store, 1)[:32])
    assert [len({step.rank for step in steps}) for steps in (first, second)] == [2, processes]
    losses = [float(line) for line in printed[0].splitlines() if line[0].isdigit()]
    assert losses[-1] < 0.8 * UNTRAINED
