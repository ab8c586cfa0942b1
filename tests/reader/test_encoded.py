"""Batches of files for decoders on a GPU: the bytes of the store, and the boxes that the same batches in pixels are
cropped to. Pillow and liblmdb read what is compared."""

from __future__ import annotations

import io
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import lmdb
import numpy as np
import pytest
from numpy.typing import NDArray
from pictures import picture, save
from PIL import Image
from reading import WAYS
from running import Packed, pack

import rawpack_packer
from rawpack import Reader, UsageError, WorkerError
from rawpack import transforms as t
from rawpack.transforms.step import CropStep

SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 3}


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    """75 JPEG files of one size, in several shards."""
    return packed("lmdb", "--size", 48)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of JPEG files as cameras and programs write them, and a store that has kept them."""
    root = tmp_path_factory.mktemp("kept")
    for i in range(6):
        options = {"progressive": i % 2 == 0, "subsampling": i % 3, "quality": 60 + 6 * i}
        save(root / "photos" / f"{i:02}.jpg", picture(50 + 5 * i, 90 - 3 * i, i), **options)
    save(root / "photos" / "gray.jpg", picture(66, 90, 50)[..., 1])
    turned = Image.Exif()
    turned[0x0112] = 6
    save(root / "photos" / "turned.jpg", picture(40, 70, 51), exif=turned)
    store = pack(root / "photos", root / "store", "--format", "lmdb", "--size", "keep", "--quality", "keep")
    return root / "photos", store


@pytest.fixture(scope="module")
def segmented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of different sizes with a mask, a label, a caption and boxes."""
    rng = np.random.default_rng(0)
    samples = [
        {
            "image": Image.fromarray(picture(60 + i, 80 - i, i)),
            "mask": rng.integers(0, 5, (60 + i, 80 - i)).astype(np.uint8),
            "label": i % 3,
            "caption": f"number {i}",
            "boxes": np.array([[5, 6, 20 + i, 30, i]] * (i % 3), np.float32).reshape(-1, 5),
        }
        for i in range(22)
    ]
    where = tmp_path_factory.mktemp("segmented") / "store"
    fields = {"mask": "mask", "boxes": "xyxy"}
    rawpack_packer.pack(samples, where, fields=fields, classes=("a", "b", "c"), workers=0, format="lmdb", size="keep")
    return where


def values_of(store: Path) -> list[bytes]:
    """The files of a store's images in the order of its rows, as liblmdb reads them."""
    found = []
    for path in sorted(store.glob("shard-*.lmdb")):
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin() as transaction:
            found += [value for key, value in transaction.cursor() if key.isdigit()]
    return found


def decoded(file: NDArray[np.uint8], mode: str | None = "RGB") -> NDArray[Any]:
    with Image.open(io.BytesIO(file.tobytes())) as image:
        return np.asarray(image if mode is None else image.convert(mode))


@pytest.mark.parametrize("way", WAYS)
def test_files_decode_to_the_plain_batch(store: Path, way: str) -> None:
    """Each file is the store's value for its row, and decodes to the plain batch; all else is the same."""
    values = values_of(store)
    plain = Reader(store).batches(8, workers=0, **SHUFFLED)
    encoded = Reader(store).batches(8, decode=False, **SHUFFLED, **WAYS[way])
    assert len(encoded) == len(plain) == 10
    for _ in range(2):
        for given, batch in zip(plain, encoded, strict=True):
            np.testing.assert_array_equal(batch["index"], given["index"])
            np.testing.assert_array_equal(batch["label"], given["label"])
            assert set(batch) == set(given)
            assert [file.tobytes() for file in batch["image"]] == [values[row] for row in given["index"]]
            np.testing.assert_array_equal([decoded(file) for file in batch["image"]], given["image"])


def test_kept_files_are_the_original_ones(kept: tuple[Path, Path]) -> None:
    """Files of any size, without `image_size`; what decodes to other pixels than it shows was encoded again."""
    photos, store = kept
    reader = Reader(store)
    (batch,) = reader.batches(100, fields=["image", "key"], decode=False)
    assert len(batch["image"]) == len(batch["key"]) == 8
    for file, key, row in zip(batch["image"], batch["key"], batch["index"], strict=True):
        assert (file.tobytes() == (photos / key).read_bytes()) == (key != "turned.jpg")
        np.testing.assert_array_equal(decoded(file), reader[row]["image"])
        assert decoded(file, None).ndim == (2 if key == "gray.jpg" else 3)


def test_one_ragged_array(store: Path) -> None:
    """Files are writable views of one array, each at an address that 64 divides, with zeros between them; indexed from
    both ends, sliced over the same memory, and copied by pickle to aligned memory."""
    for batch in Reader(store).batches(16, decode={"image": False}, **SHUFFLED):
        files = batch["image"]
        filled = np.zeros(len(files.data), bool)
        assert len(files.offsets) == len(files.sizes) == len(files) == len(batch["index"])
        for file, start, size in zip(files, files.offsets.tolist(), files.sizes.tolist(), strict=True):
            assert file.ctypes.data % 64 == 0
            assert file.flags.writeable
            assert (file.dtype, file.shape, file.strides) == (np.uint8, (size,), (1,))
            assert file.ctypes.data == files.data.ctypes.data + start
            assert not filled[start : start + size].any()
            filled[start : start + size] = True
        assert not files.data[~filled].any()
        expected = [file.tobytes() for file in files]
        assert files[-1].tobytes() == expected[-1]
        with pytest.raises(IndexError):
            files[len(expected)]
        part = files[5:1:-2]
        assert [file.tobytes() for file in part] == expected[5:1:-2]
        assert np.shares_memory(part[0], files.data)
        for one in (files, part, files[0:0]):
            again = pickle.loads(pickle.dumps(one))
            assert [file.tobytes() for file in again] == [file.tobytes() for file in one]
            assert all(file.ctypes.data % 64 == 0 for file in again)


def test_resumes(segmented: Path) -> None:
    """A state of the plain batches is one of these, and boxes do not depend on where an epoch began."""
    options: dict[str, Any] = {"transform": [t.RandomResizedCrop(24)], "fields": ["image"], **SHUFFLED}
    whole = list(Reader(segmented).batches(8, decode=False, **options))
    plain = Reader(segmented).batches(8, workers=0, **options)
    next(iter(plain))
    resumed = Reader(segmented).batches(8, decode=False, **options)
    resumed.load_state_dict(plain.state_dict())
    for batch, expected in zip(resumed, whole[1:], strict=True):
        np.testing.assert_array_equal(batch["index"], expected["index"])
        np.testing.assert_array_equal(batch["boxes"], expected["boxes"])


def cut(file: NDArray[np.uint8], box: NDArray[np.int64], mode: str | None = "RGB") -> NDArray[np.uint8]:
    top, left, height, width = box.tolist()
    return decoded(file, mode)[top : top + height, left : left + width]


@pytest.mark.parametrize("step", [t.RandomCrop((20, 28)), t.CenterCrop((40, 32))], ids=repr)
@pytest.mark.parametrize("way", ["here", "processes"])
def test_the_box_of_a_crop(segmented: Path, step: CropStep, way: str) -> None:
    """The part of the decoded image, and of its mask, in the box is the plain batch, in every epoch; workers may crop
    masks to the same boxes."""
    asked: dict[str, Any] = {"transform": [step], "fields": ["mask", "image", "label"], **SHUFFLED}
    plain = Reader(segmented).batches(5, workers=0, **asked)
    both = Reader(segmented).batches(5, decode=False, **asked, **WAYS[way])
    one = Reader(segmented).batches(5, decode={"image": False}, **asked, **WAYS[way])
    drawn = set[tuple[int, ...]]()
    for _ in range(2):
        for given, files, mixed in zip(plain, both, one, strict=True):
            assert files["boxes"].dtype == np.int64
            np.testing.assert_array_equal(mixed["mask"], given["mask"])
            np.testing.assert_array_equal(mixed["boxes"], files["boxes"])
            for i, box in enumerate(files["boxes"]):
                np.testing.assert_array_equal(cut(files["mask"][i], box, None), given["mask"][i, ..., 0])
                np.testing.assert_array_equal(cut(files["image"][i], box), given["image"][i])
                np.testing.assert_array_equal(cut(mixed["image"][i], box), given["image"][i])
            drawn |= set(map(tuple, files["boxes"].tolist()))
    assert isinstance(step, t.CenterCrop) or len(drawn) > 35


def test_the_box_of_a_random_resized_crop(segmented: Path) -> None:
    """The part in the box, resized by OpenCV, is the plain batch within a level, at any scale of decoding."""

    def batches(size: tuple[int, int], decode: bool = False, **options: Any) -> list[Any]:
        step = t.RandomResizedCrop(size, antialias=False, **options)
        asked: dict[str, Any] = {"transform": [step], "fields": ["image"], "workers": 0, **SHUFFLED}
        return list(Reader(segmented).batches(5, decode=decode, **asked))

    files = batches((24, 20))
    for given, batch in zip(batches((24, 20), decode=True), files, strict=True):
        for file, box, pixels in zip(batch["image"], batch["boxes"], given["image"], strict=True):
            assert np.abs(cv2.resize(cut(file, box), (20, 24)).astype(int) - pixels).max() <= 1
    seen = np.concatenate([batch["boxes"] for batch in files])
    for scaled in (None, 1.0):
        fewer = seen - np.concatenate([batch["boxes"] for batch in batches((4, 4), scaled_decode=scaled)])
        assert ((fewer >= 0) & (fewer <= (7 if scaled else 0))).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 24}, "leave out image_size="),
        ({"decode": {"depth": False}}, "decode= names 'depth'; the batch has the fields that it is for: image, mask"),
        ({"decode": "image"}, "decode='image' must be True, False or 'planes', or a dict"),
        ({"decode": "planes"}, "no field of the batch is stored that way; pack with --color ycgco420"),
        ({"fields": ["label"]}, "the batch has no images or masks"),
        ({"transform": [t.RandomHorizontalFlip()]}, "RandomHorizontalFlip.* needs .* image and mask as files"),
        ({"transform": [t.CenterCrop(40), t.RandomCrop(20)]}, r"RandomCrop\(.* needs pixels"),
        ({"transform": [t.RandomCrop(20), t.MixUp()]}, "MixUp.* needs pixels"),
        ({"transform": [t.RandomCrop(20, padding=4)]}, r"RandomCrop.* pads, .* after decoding"),
        ({"transform": [t.RandomCrop(20)], "fields": ["image", "boxes"]}, "the name of the field 'boxes'"),
        ({"transform": [t.SampleLambda(print)]}, "needs pixels, and decode= gives"),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),
)
def test_what_files_cannot_be(segmented: Path, options: dict[str, Any], message: str) -> None:
    """What would need pixels is refused by name, with what to do instead."""
    with pytest.raises(UsageError, match=message):
        Reader(segmented).batches(4, **{"decode": False} | options)


def test_what_gets_no_files(packed: Packed, store: Path) -> None:
    """Batches of MXNet, and several stores of which one holds none."""
    with pytest.raises(UsageError, match="'image' has no fixed shape"):
        Reader(store).batches(8, decode=False).data_iter()
    with pytest.raises(UsageError, match=r"'image' is stored as raw, not as image files, in .*: pack or convert"):
        Reader([store, packed("memmap", "--size", 48)]).batches(8, decode=False)


def test_damage(store: Path, tmp_path: Path) -> None:
    """With `verify=True` a changed byte is found and its sample named; an index that points outside the file always."""
    changed = tmp_path / "changed"
    shutil.copytree(store, changed)
    shard = sorted(changed.glob("shard-*.lmdb"))[0]
    data, value = bytearray(shard.read_bytes()), values_of(store)[3]
    data[data.index(value) + len(value) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(WorkerError, match=r"reading sample 3 \('.*'\) failed: DamagedStoreError"):
        list(Reader(changed, verify=True).batches(8, decode=False))
    assert len(list(Reader(changed).batches(8, decode=False))) == 10

    outside = tmp_path / "outside"
    shutil.copytree(store, outside)
    column = outside / "columns-1" / "image.offset.npy"
    offsets = np.load(column)
    offsets[5] = 1 << 40
    np.save(column, offsets)
    with pytest.raises(WorkerError, match=r"sample 5 .*is outside its file"):
        list(Reader(outside).batches(8, decode=False))
