"""Batches as torch tensors: the values of the numpy batches, without a copy on the CPU, and positions that are the
caller's."""

from __future__ import annotations

import gc
import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import Frames, pack_frames
from pictures import picture
from reading import WAYS, Truth
from running import Packed
from simulated_cuda import SimulatedCuda

import rawpack_packer
from rawpack import Batches, Reader, UsageError, WorkerError, Workers
from rawpack.targets import torchvision_targets, yolo_targets
from rawpack.transforms import (
    BatchLambda,
    ConvertImageDtype,
    Lambda,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    ToCHW,
)
from rawpack.transforms.step import Spec
from rawpack.transforms.values import ByTable, tail_of

torch = pytest.importorskip("torch", reason="torch is not installed")
torch.set_num_threads(1)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 3}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A store with every kind of field, and two masks."""
    rng = np.random.default_rng(0)
    samples = [
        {
            "image": picture(20, 24, i),
            "mask": rng.integers(0, 5, (20, 24)).astype(np.uint8),
            "depth": rng.integers(0, 999, (20, 24)).astype(np.uint16),
            "label": i % 3,
            "pose": rng.normal(size=4).astype(np.float32),
            "caption": f"number {i}",
            "boxes": np.full((i % 4, 5), i, np.float32),
            "counts": np.full(i % 3, i, np.uint16),
        }
        for i in range(22)
    ]
    where = tmp_path_factory.mktemp("mixed") / "store"
    fields = {"mask": "mask", "depth": "mask", "boxes": "float32[?,5]", "counts": "uint16[?]"}
    rawpack_packer.pack(samples, where, fields=fields, classes=("a", "b", "c"), workers=0, format="memmap")
    return Reader(where)


def on_simulated(batches: Batches, device: SimulatedCuda | None = None, **options: Any) -> Any:
    """The adapter for CUDA, with a device that the test drives."""
    from rawpack.integrations.torch import torch_batches

    return torch_batches(batches._feed, runtime=device or SimulatedCuda(torch.from_numpy), **options)


def rows_of(batches: Any) -> list[int]:
    return [row for batch in batches for row in batch["index"].tolist()]


# ---------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("way", WAYS)
def test_values_are_those_of_numpy(reader: Reader, truth: Truth, way: str) -> None:
    """Over two epochs, in every way; labels are int64; channels first is torch's channels_last memory format."""
    expected = reader.batches(8, workers=0, **SHUFFLED)
    first, last = (reader.batches(8, **SHUFFLED, **WAYS[way]).torch(channels=side) for side in ("first", "last"))
    assert len(first) == len(last) == len(expected) == 10
    for _ in range(2):
        for given, batch, same in zip(expected, first, last, strict=True):
            assert list(batch) == list(same) == list(given)
            assert batch["image"].shape[1:] == (3, 48, 48)
            assert batch["image"].is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(batch["image"].permute(0, 2, 3, 1), same["image"])
            assert torch.equal(batch["label"], same["label"])
            assert truth.holds({name: tensor.numpy() for name, tensor in same.items()})
            np.testing.assert_array_equal(batch["index"].numpy(), given["index"])
            assert batch["label"].dtype == batch["index"].dtype == torch.int64
            assert batch["image"].dtype == torch.uint8


def test_images_are_not_copied(reader: Reader) -> None:
    """On the CPU, a tensor of images is over the very memory that the workers filled; small ones have their own, so
    that to keep labels keeps no images."""
    for way in WAYS.values():
        iterator = iter(reader.batches(8, **way).torch())
        batch = next(iterator)
        assert iterator._source is not None
        slots = iterator._source._source.slot_pool.slots.values()
        begins = [(np.frombuffer(slot.memory, np.uint8).ctypes.data, slot.size) for slot in slots]
        for name, shared in {"image": True, "label": False, "index": False}.items():
            assert any(start <= batch[name].data_ptr() < start + size for start, size in begins) == shared, name


@pytest.mark.parametrize("way", WAYS)
def test_tensors_that_are_kept_do_not_change(reader: Reader, truth: Truth, way: str) -> None:
    """Across epochs: a view of a tensor is enough to keep the memory of its batch."""
    tensors, kept = reader.batches(8, **SHUFFLED, **WAYS[way]).torch(), []
    for _ in range(3):
        for batch in tensors:
            kept.append((batch["image"][1:, :, ::2].detach(), batch["index"].clone()))
            del batch
    gc.collect()
    for view, index in kept:
        np.testing.assert_array_equal(view.permute(0, 2, 3, 1).numpy(), truth.images[index.numpy()[1:], ::2])
    addresses = {batch["image"].data_ptr() for batch in tensors}
    assert len(addresses) <= 5 * tensors._feed.making.together, "tensors that nobody holds give their slots back"


def test_images_are_converted_without_scaling(mixed: Reader) -> None:
    """To floats of any width, by name or as torch's; masks and numbers stay as they are."""
    (given,) = mixed.batches(22, workers=0)
    for dtype, expected in (("float16", torch.float16), (torch.float32, torch.float32)):
        (batch,) = mixed.batches(22, workers=0).torch(dtype=dtype)
        assert batch["image"].dtype == expected
        assert torch.equal(batch["image"], torch.from_numpy(given["image"]).permute(0, 3, 1, 2).to(expected))
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        assert (batch["mask"].dtype, batch["pose"].dtype) == (torch.uint8, torch.float32)


@pytest.mark.parametrize("place", ["cpu", "simulated CUDA"])
def test_every_kind_of_field(mixed: Reader, place: str) -> None:
    """Masks get channels first too; vectors are tensors; texts stay lists; ragged fields are lists of tensors on the
    device, or padded; targets are made of either as of the numpy batch."""
    names = ["image", "mask", "depth", "label", "pose", "caption", "boxes", "counts"]
    device = SimulatedCuda(torch.from_numpy, eager=True)
    for ragged in ("list", "pad"):
        batches = mixed.batches(22, fields=names, ragged=ragged, workers=0)
        (given,) = batches
        batches.set_epoch(0)
        (batch,) = on_simulated(batches, device) if place == "simulated CUDA" else batches.torch(place)
        assert batch["mask"].shape == batch["depth"].shape == (22, 1, 20, 24)
        assert (batch["depth"].dtype, batch["pose"].shape) == (torch.int32, (22, 4))
        np.testing.assert_array_equal(batch["depth"][:, 0].numpy(), given["depth"][..., 0])
        np.testing.assert_array_equal(batch["pose"].numpy(), given["pose"])
        assert batch["caption"] == given["caption"]
        assert isinstance(batch["boxes"], list) == (ragged == "list")
        for rows, same in zip((*batch["boxes"], *batch["counts"]), (*given["boxes"], *given["counts"]), strict=True):
            expected = same.astype("int32") if same.dtype == np.uint16 else same
            np.testing.assert_array_equal(rows.numpy(), expected, strict=True)
        np.testing.assert_array_equal(yolo_targets(batch), yolo_targets(given), strict=True)
        for made, target in zip(torchvision_targets(batch), torchvision_targets(given), strict=True):
            np.testing.assert_array_equal(made["boxes"], target["boxes"], strict=True)
            np.testing.assert_array_equal(made["labels"], target["labels"], strict=True)
    assert batch["boxes.length"].dtype == torch.int64
    assert device.handed == (2 if place == "simulated CUDA" else 0)


def test_clips_have_channels_after_frames(tmp_path: Path) -> None:
    """(n, T, H, W, C) becomes (n, T, C, H, W), by frames of each clip, whose lists keep an array for each frame; of
    frames at offsets, flags are boolean tensors. What scales is done on the device, frame by frame."""
    frames = Reader(pack_frames(Frames([range(9), range(12)]), tmp_path / "s", "memmap"))
    clips = frames.clips(3)
    samples = frames.clips(offsets={"image": [-0.04, 0.0], "motion": [0.0, 0.04, 0.08]})
    for source, image, mask in (
        (clips, (4, 3, 3, 12, 16), (4, 3, 1, 12, 16)),
        (samples, (4, 2, 3, 12, 16), (4, 1, 12, 16)),
    ):
        given, batch = next(iter(source.batches(4, workers=0))), next(iter(source.batches(4, workers=0).torch()))
        assert (batch["image"].shape, batch["mask"].shape) == (image, mask)
        np.testing.assert_array_equal(batch["image"].numpy(), np.moveaxis(given["image"], -1, -3))
    assert batch["image_is_pad"].tolist() == [[True, False], [False, False], [False, False], [False, False]]
    assert batch["image_is_pad"].dtype == torch.bool
    options: dict[str, Any] = {"workers": 0, "transform": [RandomCrop(8), Normalize(MEAN, STD), ToCHW()], **SHUFFLED}
    tensors = on_simulated(
        clips.batches(4, fields=["image", "mask", "boxes"], **options), SimulatedCuda(torch.from_numpy, eager=True)
    )
    for given, batch in zip(clips.batches(4, fields=["image", "mask", "boxes"], **options), tensors, strict=True):
        np.testing.assert_allclose(batch["image"].numpy(), given["image"], rtol=0, atol=1e-6)
        np.testing.assert_array_equal(batch["mask"].numpy(), given["mask"])
        for of_clip, expected in zip(batch["boxes"], given["boxes"], strict=True):
            for rows, same in zip(of_clip, expected, strict=True):
                np.testing.assert_array_equal(rows.numpy(), same, strict=True)


def test_planes_and_channels_of_the_transform_stay(packed: Packed, reader: Reader) -> None:
    """What a transform has made (C, H, W) is not turned again; planes are flat."""
    batch = next(iter(reader.batches(5, transform=[ToCHW()], workers=0).torch()))
    assert batch["image"].shape == (5, 3, 48, 48)
    planes = Reader(packed("memmap", "--size", 48, "--color", "ycgco420"))
    assert next(iter(planes.batches(5, workers=0, decode="planes").torch()))["image"].shape == (5, 48 * 48 * 3 // 2)


# ---------------------------------------------------------------------------------------------- epochs and states


@pytest.mark.parametrize("way", WAYS)
def test_forever_is_one_epoch_after_another(reader: Reader, way: str) -> None:
    """As by a loop for each, whatever is copied in advance; and a state counts what was handed over."""
    numpy = reader.batches(8, workers=0, **SHUFFLED)
    expected = [(batch["index"].tolist(), numpy.state_dict()) for _ in range(3) for batch in numpy]
    for depth in (None, 3):
        batches = reader.batches(8, **SHUFFLED, **WAYS[way])
        tensors = batches.torch() if depth is None else on_simulated(batches, depth=depth)
        for (rows, state), batch in zip(expected, tensors.forever(), strict=False):
            assert (batch["index"].tolist(), tensors.state_dict()) == (rows, state)
        tensors.load_state_dict(expected[4][1])
        assert next(tensors.forever())["index"].tolist() == expected[5][0]


@pytest.mark.parametrize(("depth", "way"), [(1, "here"), (2, "processes"), (4, "threads")])
def test_states_count_what_was_handed_over(reader: Reader, depth: int, way: str) -> None:
    """However many batches are being copied: a run that stops anywhere, and resumes from its state, loses no sample and
    gets none twice."""
    whole = reader.batches(8, workers=0, **SHUFFLED)
    expected = [row for _ in range(3) for batch in whole for row in batch["index"].tolist()]
    chance, rows, state = random.Random(depth), list[int](), None
    while len(rows) < len(expected):
        tensors = on_simulated(reader.batches(8, **SHUFFLED, **WAYS[way]), depth=depth)
        if state is not None:
            tensors.load_state_dict(state)
        stop = chance.randrange(1, 14)
        for batch in itertools.islice(itertools.chain.from_iterable(itertools.repeat(tensors)), stop):
            rows += batch["index"].tolist()
            state = json.loads(json.dumps(tensors.state_dict()))
        tensors.close()
    assert rows[: len(expected)] == expected


def test_a_sample_that_fails_is_raised_in_its_place(reader: Reader) -> None:
    """The batches before it are handed over, although it fails while they are being copied."""

    def at_row(batch: dict[str, Any]) -> dict[str, Any]:
        if 30 in batch["index"]:
            raise RuntimeError("no such luck")
        return {}

    batches = reader.batches(8, workers=Workers(2, backend="thread"), transform=[BatchLambda(at_row)])
    tensors, rows = on_simulated(batches, depth=4), list[int]()
    iterator = iter(tensors)
    for _ in range(3):
        rows += next(iterator)["index"].tolist()
    with pytest.raises(WorkerError, match="no such luck"):
        next(iterator)
    assert next(iterator, None) is None
    assert rows == list(range(24))
    assert tensors.state_dict()["position"] == 24


def test_a_copy_that_fails_loses_nothing(reader: Reader) -> None:
    """The device has no memory: the error is raised, and the state is where the caller was."""
    device = SimulatedCuda(torch.from_numpy)
    tensors = on_simulated(reader.batches(8, workers=0), device)
    device.failing = True
    with pytest.raises(RuntimeError, match="out of memory"):
        next(iter(tensors))
    assert tensors.state_dict()["position"] == 0
    tensors.load_state_dict(tensors.state_dict())
    assert rows_of(tensors) == list(range(75))


# ---------------------------------------------------------------------------------------------- the way to CUDA


@pytest.mark.parametrize(("depth", "way"), [(1, "threads"), (2, "here"), (3, "processes")])
def test_batches_on_the_way_are_right(reader: Reader, truth: Truth, way: str, depth: int) -> None:
    """With real slots and workers, whenever the device finds time: every batch is whole, few slots are registered, and
    all are given back."""
    chance = random.Random(depth)
    device = SimulatedCuda(torch.from_numpy, refuses=lambda: chance.random() < 0.2)
    tensors = on_simulated(reader.batches(8, **SHUFFLED, **WAYS[way]), device, depth=depth)
    for epoch in range(6):
        for number, batch in enumerate(tensors):
            rows = batch["index"].numpy()
            np.testing.assert_array_equal(batch["image"].permute(0, 2, 3, 1).numpy(), truth.images[rows])
            np.testing.assert_array_equal(batch["label"].numpy(), truth.labels[rows])
            device.work(chance.randrange(6))
            if epoch == 2 and number == 4:
                break
    assert len(device.registrations) <= 4 + depth
    assert device.synchronized == 0
    assert tensors.stats()["registered_slots"] == len(device.registrations)
    tensors.close()
    assert not device.registered
    assert len(rows_of(tensors)) == 75, "after close(), another epoch may follow"
    iterator = iter(tensors)
    next(iterator)
    del tensors, iterator, batch
    gc.collect()
    assert not device.registered, "who forgets close() gets the memory back with the object"


@pytest.mark.parametrize(
    ("steps", "tolerance"),
    [
        ([RandomCrop(32), RandomHorizontalFlip(), Normalize(MEAN, STD), ToCHW()], 1e-6),
        ([RandomCrop(32), ConvertImageDtype()], 1e-6),
        ([ConvertImageDtype("float64"), Normalize(MEAN, STD, "float64"), ToCHW()], 1e-14),
        ([Normalize(MEAN, STD, "float16"), ToCHW()], 1e-6),
        ([ToCHW()], 0),
        ([Normalize(MEAN, STD), Lambda(lambda image: image)], 0),
        ([Normalize(MEAN, STD), ToCHW(), BatchLambda(lambda batch: {"image": -batch["image"]})], 0),
        ([ConvertImageDtype("float16"), Normalize(MEAN, STD)], 0),
    ],
    ids=lambda value: "-".join(type(step).__name__ for step in value) if isinstance(value, list) else "",
)
def test_the_last_steps_run_on_the_device(reader: Reader, steps: list[Any], tolerance: float) -> None:
    """What only scales values is done after the bytes were copied; the values are numpy's, up to rounding; what is
    random stays in the workers, with the same numbers. Where another step comes last, all are numpy's, to the bit."""
    expected, batches = (
        reader.batches(8, workers=Workers(2, backend="thread"), transform=steps, **SHUFFLED) for _ in range(2)
    )
    tensors = on_simulated(batches, SimulatedCuda(torch.from_numpy, eager=True), channels="last")
    assert ("image: uint8" in repr(tensors)) == (tolerance > 0 or len(steps) == 1)
    for given, batch in zip(expected, tensors, strict=True):
        assert batch["image"].shape == given["image"].shape
        assert str(batch["image"].dtype) == f"torch.{given['image'].dtype}"
        next_value = 2**-10 if given["image"].dtype == np.float16 and tolerance else 0
        np.testing.assert_allclose(batch["image"].numpy(), given["image"], rtol=next_value, atol=tolerance)


@pytest.mark.parametrize("form", ["cuda", "cpu"])
def test_tensors_that_are_made_in_the_loop(reader: Reader, form: str) -> None:
    """Who makes batches once, and calls torch() on them in the loop over epochs, reads epoch after epoch, as if it were
    called once; also where set_epoch or a state says where, and where an epoch is left early."""
    expected, batches = (reader.batches(8, workers=0, transform=[Normalize(MEAN, STD)], **SHUFFLED) for _ in range(2))
    epochs = [rows_of(expected) for _ in range(6)]

    def tensors() -> Any:
        return on_simulated(batches) if form == "cuda" else batches.torch()

    assert [rows_of(tensors()) for _ in range(3)] == epochs[:3]
    next(iter(tensors()))
    assert rows_of(tensors()) == epochs[4]
    batches.set_epoch(1)
    assert [rows_of(tensors()) for _ in range(2)] == epochs[1:3]
    expected.set_epoch(5)
    next(iter(expected))
    batches.load_state_dict(expected.state_dict())
    assert rows_of(tensors()) == epochs[5][8:]


def test_every_byte_is_scaled_alike() -> None:
    """All values of a byte, in each channel: within 0.000001 of numpy's as float32, and the next float16 at most; where
    another dtype is asked for, they are rounded once, after they were scaled."""
    from rawpack.integrations.torch import _Converter

    ramp = np.arange(256, dtype=np.uint8)[:, None, None].repeat(3, 2)
    for dtype, asked in (("float32", None), ("float16", None), ("float32", torch.bfloat16)):
        made = Spec(ramp.shape, dtype, "HWC")
        table = ByTable([Normalize(MEAN, STD, dtype)], Spec(ramp.shape, "uint8", "HWC"), made)
        expected = table.apply(ramp, None)
        scaled = _Converter(torch, tail_of(table, made), False, asked)(torch.from_numpy(ramp))
        assert scaled.dtype == (asked or getattr(torch, dtype))
        difference = np.abs(scaled.double().numpy() - expected)
        most = 1e-6 if dtype == "float32" else np.spacing(np.abs(expected))
        assert (difference <= (most if asked is None else 2.0**-8 * np.abs(expected) + 1e-6)).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_nonsense_is_refused_at_the_call(reader: Reader) -> None:
    """In the words of Python, before any worker starts."""
    for options, words in (
        ({"device": "cuda"}, "device='cuda': torch finds no GPU"),
        ({"dtype": torch.uint8}, "dtype=torch.uint8 must be one of"),
        ({"as_tuple": ["image", "key"]}, "only image, label, index; the store has it: pass fields="),
    ):
        with pytest.raises(UsageError, match=words):
            reader.batches(8).torch(**options)


# ---------------------------------------------------------------------------------------------- several sizes, after=


@pytest.mark.parametrize("options", [{}, {"as_tuple": ["image", "label"]}], ids=str)
def test_a_state_by_a_batch_or_a_number(reader: Reader, options: dict[str, Any]) -> None:
    """By the batch that was trained on, in each form, or a number; copies are refused."""
    whole = rows_of(reader.batches(4, workers=0, **SHUFFLED))
    loader: Any = reader.batches(4, workers=0, **SHUFFLED).torch(**options)
    loader.set_epoch(0)  # on purpose
    first, _, third = (batch for batch, _ in zip(loader, range(3), strict=False))
    state = loader.state_dict(after=third)
    assert state == loader.state_dict(3)
    again = reader.batches(4, workers=0, **SHUFFLED)
    again.load_state_dict(state)
    assert rows_of(again) == whole[12:]
    copied = tuple(one.clone() for one in first) if options else {name: one.clone() for name, one in first.items()}
    with pytest.raises(UsageError, match="not copies or views"):
        loader.state_dict(after=copied)
