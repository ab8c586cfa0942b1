"""Every format keeps every kind of field: numbers, vectors, texts, ragged arrays, masks, and images that are arrays.

What is right is said by the samples themselves, by Pillow and by exact fractions, never by rawpack.
"""

from __future__ import annotations

import io
import shutil
import struct
import zlib
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import flip, rejects_of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from pictures import picture
from PIL import Image
from reading import WAYS
from running import reader_of

import rawpack_packer
from rawpack import DecodeError, RawpackError, Reader, UsageError, verify
from rawpack.disk.manifest import Field
from rawpack.pixels import png
from rawpack.transforms import ConvertImageDtype, RandomCrop, RandomHorizontalFlip, Resize, SampleLambda
from rawpack_packer.samples.fields import as_stored

COUNT = 16
SIZE = (20, 28)
KINDS = {"boxes": "float32[?,5]", "mask": "mask", "colours": "mask", "depth": "mask"}
MASKS = ("mask", "colours", "depth")
SMALL = ("label", "number", "score", "yes", "vector", "words")
LAYOUTS: dict[str, dict[str, Any]] = {
    "memmap": {"format": "memmap"},
    "hdf5": {"format": "hdf5"},
    "hdf5-gzip": {"format": "hdf5", "compression": "gzip"},
    "hdf5-chunk4": {"format": "hdf5", "chunk": 4},
    "lmdb": {"format": "lmdb"},
}
CASES = [(layout, sized) for layout in LAYOUTS for sized in (True, False) if (layout, sized) != ("hdf5-chunk4", False)]


@cache
def samples() -> list[dict[str, Any]]:
    """Samples with a field of every kind, beside images of many sizes."""
    rng = np.random.default_rng(3)
    made = []
    for i in range(COUNT):
        height, width = rng.integers(12, 50, 2).tolist()
        made.append(
            {
                "image": picture(height, width, i),
                "label": i % 3,
                "number": -(1 << 62) + i,
                "score": np.float32(i) / 7,
                "yes": bool(i % 2),
                "vector": rng.integers(0, 256, (2, 3)).astype(np.uint8),
                "boxes": rng.random((0 if i % 5 == 1 else i % 7, 5)).astype(np.float32),
                "words": "" if i == 4 else f"naïve\n文 {i}",
                "mask": rng.integers(0, 256, (height, width)).astype(np.uint8),
                "colours": rng.integers(0, 256, (height, width, 3)).astype(np.uint8),
                "depth": rng.integers(0, 1 << 16, (height, width)).astype(np.uint16),
            }
        )
    return made


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`stores(layout, sized)`: the samples in a store of that layout, packed once."""
    made: dict[tuple[str, bool], Path] = {}

    def get(layout: str, sized: bool) -> Path:
        if (layout, sized) not in made:
            made[layout, sized] = tmp_path_factory.mktemp("fields") / "store"
            rawpack_packer.pack(
                samples(), made[layout, sized], size=SIZE if sized else None, fields=KINDS,
                image=("uint8", (None, None, 3)), classes=["a", "b", "c"], workers=0, shard_size="1", **LAYOUTS[layout],
            )  # fmt: skip
        return made[layout, sized]

    return get


def nearest(image: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """An image scaled to cover a size and centre-cropped, by the pixel nearest to each centre, in exact fractions."""
    stored = image.shape[:2]
    scale = max(Fraction(size[0], stored[0]), Fraction(size[1], stored[1]))
    scaled = [max(size[k], int(stored[k] * scale)) for k in (0, 1)]
    at = []
    for k in (0, 1):
        start = round((scaled[k] - size[k]) / 2)
        centres = [(start + i + Fraction(1, 2)) * stored[k] / scaled[k] for i in range(size[k])]
        at.append([int(centre) for centre in centres])
    return np.array([[image[y, x] for x in at[1]] for y in at[0]]).reshape(*size, -1)


@cache
def masks_at(size: tuple[int, int], i: int) -> dict[str, NDArray[Any]]:
    return {name: nearest(samples()[i][name], size) for name in MASKS}


@pytest.mark.parametrize(("layout", "sized"), CASES)
def test_every_field_comes_back(layout: str, sized: bool, stores: Any) -> None:
    """In every format, as samples and in batches, and all are verified. A mask is exact; where its image was resized,
    it was cut alike, by the nearest pixel."""
    given, reader = samples(), Reader(stores(layout, sized))
    assert (list(reader.fields), reader.classes) == ([*given[0], "key"], ("a", "b", "c"))
    for i, sample in enumerate(reader):
        for name in SMALL:
            assert np.array_equal(sample[name], given[i][name])
        assert sample["boxes"].dtype == np.float32
        np.testing.assert_array_equal(sample["boxes"], given[i]["boxes"])
        size = given[i]["image"].shape[:2]
        for name in MASKS:
            assert sample[name].dtype == given[i][name].dtype
            wanted = masks_at(SIZE, i)[name] if sized else given[i][name].reshape(*size, -1)
            np.testing.assert_array_equal(sample[name], wanted)
        assert sample["mask"].shape[:2] == sample["image"].shape[:2]
    way = "processes" if (layout, sized) == ("hdf5-gzip", False) else [*WAYS][CASES.index((layout, sized)) % 2]
    batches = reader.batches(12, shuffle=True, seed=2, fields=list(reader.fields), image_size=SIZE, **WAYS[way])
    seen = 0
    for batch in batches:
        for k, row in enumerate(batch["index"].tolist()):
            for name in SMALL:
                assert np.array_equal(batch[name][k], given[row][name])
            np.testing.assert_array_equal(batch["boxes"][k], given[row]["boxes"])
            for name in MASKS:
                np.testing.assert_array_equal(batch[name][k], masks_at(SIZE, row)[name])
            seen += 1
        assert isinstance(batch["boxes"], list)
    assert seen == COUNT
    assert {name: reader.fields[name].dtype for name in (*SMALL, "boxes")} == {
        "label": "int64", "number": "int64", "score": "float32", "yes": "bool", "vector": "uint8", "words": "str",
        "boxes": "float32",
    }  # fmt: skip
    assert reader.fields["boxes"].shape == (None, 5)
    assert verify(stores(layout, sized)) == []


STEPS: dict[str, list[Any]] = {
    "as stored": [],
    "resized": [Resize(9)],
    "cropped": [RandomCrop(9)],
    "flipped": [RandomHorizontalFlip()],
    "scaled": [ConvertImageDtype("float32")],
    "by a function of the sample": [SampleLambda(lambda sample: None)],
}


@pytest.mark.parametrize("name", ["image", "mask"])
def test_what_is_read_is_checked(name: str, stores: Any, tmp_path: Path) -> None:
    """One changed value is refused, alone, among others, and in batches however they are made, and `verify` says in
    which sample it is."""
    path = Path(shutil.copytree(stores("memmap", True), tmp_path / "store"))
    file = min(path.glob("shard-*.mask.npy" if name == "mask" else "shard-?????.npy"))
    flip(file, -1, 255)
    row = len(np.load(file, mmap_mode="r")) - 1
    reader = Reader(path, verify=True)
    for rows in (row, [0, row]):
        with pytest.raises(RawpackError, match=f"{name} was changed"):
            reader[rows]
    for how, steps in STEPS.items():
        for fields in ([name], ["image", "mask"]):
            batches = reader.batches(row + 1, fields=fields, workers=0, transform=steps)
            with pytest.raises(RawpackError, match=rf"sample {row} .*{name} was changed"):
                pytest.fail(f"{how}, of {fields}: {len([*batches])} batches")
    assert any(one.where.startswith(f"sample {row} ") and f"{name} was changed" in one.what for one in verify(path))


def test_a_crop_cuts_masks_too(tmp_path: Path) -> None:
    """crop= takes the same box out of image and mask, before they are resized."""
    given = [{"image": picture(40, 60, i), "mask": picture(40, 60, 50 + i)[..., 0]} for i in range(3)]
    rawpack_packer.pack(given, tmp_path / "s", fields={"mask": "mask"}, crop="7,9,24,16", workers=0)
    rawpack_packer.pack(given, tmp_path / "t", fields={"mask": "mask"}, crop="7,9,24,16", size="8x12", workers=0)
    whole, small = Reader(tmp_path / "s"), Reader(tmp_path / "t")
    assert whole.fields["mask"].shape == (16, 24, 1)
    for i in range(3):
        np.testing.assert_array_equal(whole[i]["image"], given[i]["image"][9:25, 7:31])
        np.testing.assert_array_equal(whole[i]["mask"][..., 0], given[i]["mask"][9:25, 7:31])
        np.testing.assert_array_equal(small[i]["mask"], nearest(given[i]["mask"][9:25, 7:31], (8, 12)))


def test_a_mask_of_a_turned_photograph_is_as_upright_as_the_image(tmp_path: Path) -> None:
    """A mask has the size of the upright image; one that has that of the turned file is rejected."""
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.fromarray(picture(16, 32, 1)).save(file, "JPEG", exif=exif)
    upright, turned = np.arange(512, dtype=np.uint16).reshape(32, 16), np.zeros((16, 32), np.uint16)
    given = [{"image": file.getvalue(), "depth": upright}, {"image": file.getvalue(), "depth": turned}]
    summary = rawpack_packer.pack(
        given, tmp_path / "s", fields={"depth": "mask"}, size="keep", workers=0, max_rejects=1, format="lmdb"
    )
    assert summary.manifest.rejects.reasons == {"bad_field": 1}
    np.testing.assert_array_equal(Reader(tmp_path / "s")[0]["depth"][..., 0], upright)


def test_palette_masks_keep_their_indices(tmp_path: Path) -> None:
    """Of a palette PNG of any depth a mask has the indices, not the colours; of a grey one the levels."""
    rng = np.random.default_rng(0)
    palette = rng.integers(0, 256, 768).tolist()
    given, wanted = list[dict[str, Any]](), []
    for bits in (1, 2, 4, 8, None):
        indices = rng.integers(0, 1 << (bits or 8), (21, 13)).astype(np.uint8)
        image, file = Image.fromarray(indices, "L"), io.BytesIO()
        if bits is None:
            image.save(file, "PNG")
        else:
            image = image.convert("P")
            image.putdata(indices.reshape(-1).tolist())
            image.putpalette(palette[: 3 << bits])
            image.save(file, "PNG", bits=bits, transparency=0)
            assert file.getvalue()[24:26] == bytes([bits, 3])
            given.append({"image": picture(21, 13, 1), "mask": image})
            wanted.append(indices)
        given.append({"image": picture(21, 13, 1), "mask": file.getvalue()})
        wanted.append(indices)
    for layout in ("memmap", "lmdb"):
        reader = reader_of(given, tmp_path / layout, fields={"mask": "mask"}, workers=0, format=layout)
        for sample, indices in zip(reader, wanted, strict=True):
            np.testing.assert_array_equal(sample["mask"][..., 0], indices)


@pytest.mark.parametrize("ragged", ["pad", 9])
def test_ragged_fields_are_padded_on_request(ragged: Any, stores: Any) -> None:
    """ragged="pad" pads with zeros to the longest of the batch, a number to that length; lengths come beside. A length
    that a sample exceeds is refused before anything is read."""
    reader = Reader(stores("hdf5", True))
    for batch in reader.batches(5, fields=["boxes"], ragged=ragged, workers=0):
        boxes = [samples()[row]["boxes"] for row in batch["index"].tolist()]
        lengths = [*map(len, boxes)]
        assert (batch["boxes.length"].dtype, batch["boxes.length"].tolist()) == (np.int64, lengths)
        assert batch["boxes"].shape == (len(boxes), max(lengths) if ragged == "pad" else ragged, 5)
        for padded, one in zip(batch["boxes"], boxes, strict=True):
            np.testing.assert_array_equal(padded[: len(one)], one)
            assert not padded[len(one) :].any()
    for wrong, words in ((5, "a sample has 6 of 'boxes'"), ("long", "ragged="), (0, "ragged="), (True, "ragged=")):
        with pytest.raises(UsageError, match=words):
            reader.batches(4, fields=["boxes"], ragged=wrong)  # type: ignore[arg-type]


@given(
    hnp.arrays(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]), (3,)),
    st.sampled_from(["int8", "uint8", "int16", "uint32", "int64", "uint64", "float16", "float32", "float64"]),
)
def test_a_whole_number_is_stored_as_it_is_or_not_at_all(values: NDArray[Any], dtype: str) -> None:
    """Whatever the types: what is stored equals what was given, but for the rounding of floats to shorter floats."""
    try:
        stored = as_stored("x", values, Field(kind="number", dtype=dtype, shape=(3,)))
    except DecodeError:
        return
    assert not isinstance(stored, str)
    assert stored.dtype == dtype
    if values.dtype.kind in "iu":
        assert [Fraction(one) for one in stored.tolist()] == [Fraction(one) for one in values.tolist()]
    else:
        assert stored.dtype.kind == "f"
        assert (np.isfinite(stored) == np.isfinite(values)).all()


def test_samples_that_do_not_fit_are_rejected_with_their_reason(tmp_path: Path) -> None:
    """A wrong dtype, shape or size of a mask, and a missing field: rejected by key, the others packed."""
    wrong: dict[int, dict[str, Any]] = {
        3: {"n": 2.5},
        5: {"mask": np.zeros((8, 8), np.uint8)},
        7: {"mask": np.zeros((9, 8), np.uint16)},
        9: {"n": [1]},
        13: {"image": picture(9, 9, 1)},
        15: {"image": np.zeros((9, 8, 3), np.float32)},
        17: {"more": 1},
    }
    good = {"mask": np.zeros((9, 8), np.uint8)}
    given = [{"image": picture(9, 8, i), "n": i} | good | wrong.get(i, {}) for i in range(20)]
    del given[11]["mask"]
    reader = reader_of(given, tmp_path / "s", fields={"mask": "mask"}, workers=0, max_rejects=8)
    rejects = rejects_of(tmp_path / "s")
    assert [reject["sample"] for reject in rejects] == [3, 5, 7, 9, 11, 13, 15, 17]
    assert {reject["reason"] for reject in rejects} == {"bad_field"}
    assert reader.column("n").tolist() == [0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19]


# ---------------------------------------------------------------------------------------------- masks alone


@pytest.mark.parametrize(("dtype", "channels"), [(np.uint8, 3), (np.uint16, 1)])
def test_a_damaged_png_is_an_error(dtype: Any, channels: int) -> None:
    """A PNG with any bit flipped, cut off anywhere, or of another size or type is an error, never another mask."""
    image = (np.arange(48 * channels) * 601).reshape(8, 6, channels).astype(dtype)
    file = png.encode(image)
    for bit in range(len(file) * 8):
        damaged = file.copy()
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecodeError):
            png.decode(damaged, image.shape, image.dtype)
    for end in range(len(file)):
        with pytest.raises(DecodeError):
            png.decode(file[:end], image.shape, image.dtype)
    with pytest.raises(DecodeError):
        png.decode(np.append(file, np.uint8(0)), image.shape, image.dtype)
    other = np.uint8 if dtype == np.uint16 else np.uint16
    for shape, kind in (((6, 8, channels), dtype), ((8, 6, 4 - channels), dtype), (image.shape, other)):
        with pytest.raises(DecodeError):
            png.decode(file, shape, np.dtype(kind))


@pytest.mark.parametrize(
    ("size", "rows"),
    [(1_000_000, b"\0" * 99), (4, b"\0" * 19), (4, b"\1\0\0\0\0" * 4), (4, b"")],
    ids=["far too few pixels", "too few pixels", "another filter", "no pixels"],
)
def test_a_sealed_png_of_other_pixels_is_an_error(size: int, rows: bytes) -> None:
    """Where all checksums are right, a PNG that has not the pixels that it declares is an error, without memory for
    them."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0))
    file = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    with pytest.raises(DecodeError):
        png.decode(np.frombuffer(file, np.uint8), (size, size, 1), np.dtype(np.uint8))
