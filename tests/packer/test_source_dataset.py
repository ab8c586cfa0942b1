"""Any dataset packs: what has a length and gives number i, in this process or in workers, and what plugins bring."""

from __future__ import annotations

import io
import json
import re
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from folders import rejects_of
from numpy.typing import NDArray
from pictures import encoded, picture, save
from PIL import Image, ImageOps
from reading import run_script, script
from running import reader_of, run_here

import rawpack_packer
from rawpack import PackError, Reader, UsageError, verify
from rawpack_packer.sources import Item, open_dataset, open_source, registry


class Pairs:
    """A dataset as torch has them: a length, and a tuple for each number."""

    classes = ("even", "odd")

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return picture(14, 11, i), i % 2


class Made(Pairs):
    """A dataset that makes each sample when it is asked for."""

    classes = None  # type: ignore[assignment]

    def __init__(self, count: int, make: Any) -> None:
        super().__init__(count)
        self.make = make

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


@pytest.mark.parametrize(("layout", "workers"), [("memmap", 2), ("hdf5", 0)])
def test_a_dataset_with_two_methods_is_enough(layout: str, workers: int, tmp_path: Path) -> None:
    """`len` and `[i]`: arrays are stored as they are, labels and classes are found, whoever packs."""
    reader = reader_of(Pairs(70), tmp_path / "s", format=layout, workers=workers, shard_size=1)
    assert (len(reader), reader.classes, reader.fields["image"].shape) == (70, ("even", "odd"), (14, 11, 3))
    for i, sample in enumerate(reader):
        np.testing.assert_array_equal(sample["image"], picture(14, 11, i))
        assert (sample["label"], sample["key"]) == (i % 2, f"{i:08d}")


def test_a_dataset_of_a_script_travels_to_workers(tmp_path: Path) -> None:
    """A class and a lambda of the script itself, without a `__main__` guard."""
    path = script(
        tmp_path,
        """
import numpy as np
import rawpack_packer
from rawpack import Reader

class Squares:
    def __init__(self):
        self.make = lambda i: np.full((3, 4), i, np.float32)
    def __len__(self):
        return 70
    def __getitem__(self, i):
        return {"image": self.make(i), "square": i * i}

rawpack_packer.pack(Squares(), "s", workers=2, shard_size=1)
reader = Reader("s")
assert all((reader[i]["image"] == i).all() and reader[i]["square"] == i * i for i in range(70))
print("packed", len(reader), reader.fields["image"].dtype, reader.fields["image"].shape)
""",
    )
    ran = run_script(path)
    assert (ran.code, ran.out) == (0, "packed 70 float32 (3, 4)\n"), ran


def on_white(color: NDArray[Any], alpha: NDArray[Any]) -> NDArray[Any]:
    """Colours (H, W, C) on white paper, by alpha (H, W), rounded to the nearest."""
    share = alpha[..., None] / 255
    return np.floor(color * share + 255 * (1 - share) + 0.5).astype(np.uint8)


def transparent(mode: str) -> tuple[Image.Image, NDArray[Any]]:
    """A PIL image of a mode that holds more than 8 bits of colour, and what is seen of it on white paper."""
    rng = np.random.default_rng(5)
    rgb, alpha = picture(9, 7, 3), rng.integers(0, 256, (9, 7)).astype(np.uint8)
    grey = rgb[..., :1]
    if mode == "RGB":  # of which one color is transparent
        file, key = io.BytesIO(), tuple(rgb[0, 0].tolist())
        Image.fromarray(rgb).save(file, "PNG", transparency=key)
        return Image.open(file), np.where((rgb == key).all(axis=2, keepdims=True), np.uint8(255), rgb)
    if mode == "RGBA":
        return Image.fromarray(np.dstack([rgb, alpha])), on_white(rgb, alpha)
    if mode == "LA":
        return Image.fromarray(np.dstack([grey, alpha])), on_white(grey, alpha).repeat(3, axis=2)
    if mode == "P":
        indices, palette = rng.integers(0, 4, (9, 7)).astype(np.uint8), rng.integers(0, 256, (4, 3)).astype(np.uint8)
        image = Image.fromarray(indices).convert("P")
        image.putpalette(palette.tobytes())
        image.putdata(indices.reshape(-1).tolist())
        image.info["transparency"] = bytes([255, 0, 100, 255])
        return image, on_white(palette[indices], np.array([255, 0, 100, 255])[indices])
    deep = rng.integers(0, 1 << 16, (9, 7)).astype(np.uint16)
    return Image.fromarray(deep), (deep // 256).astype(np.uint8)[..., None].repeat(3, axis=2)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16", "RGB"])
def test_a_pillow_image_is_seen_as_its_file_is(mode: str, tmp_path: Path) -> None:
    """What is transparent lies on white and 16 bits become 8, in a PIL image made or opened, and in its PNG file."""
    image, wanted = transparent(mode)
    assert image.mode == mode
    file = io.BytesIO()
    image.save(file, "PNG")
    given = [image, Image.open(io.BytesIO(file.getvalue())), file.getvalue()]
    rawpack_packer.pack(given, tmp_path / "s", workers=0, size="keep")
    for i in range(3):
        np.testing.assert_array_equal(Reader(tmp_path / "s")[i]["image"], wanted)


@pytest.mark.parametrize(("kind", "grey"), [("PNG", True), ("TIFF", False), ("WEBP", False)])
def test_an_opened_pillow_image_is_turned_upright_and_one_made_of_it_lies_as_it_is(
    kind: str, grey: bool, tmp_path: Path
) -> None:
    """EXIF orientation counts where the image is the file's; the user's own turns are not turned again."""
    pixels = picture(6, 10, 2)
    pixels[:] = pixels[..., :1] if grey else pixels
    given, wanted = [], []
    for orientation in range(1, 9):
        exif, file = Image.Exif(), io.BytesIO()
        exif[0x0112] = orientation
        Image.fromarray(pixels[..., 0] if grey else pixels).save(file, kind, exif=exif, lossless=True)
        upright = np.asarray(ImageOps.exif_transpose(Image.open(file)).convert("RGB"))
        if kind != "TIFF":  # which Pillow turns as it loads it
            given.append(Image.open(file).rotate(90, expand=True))
            wanted.append(np.rot90(pixels))
        given += [Image.open(file), file.getvalue(), ImageOps.exif_transpose(Image.open(file))]
        wanted += 3 * [upright]
    for sample, one in zip(reader_of(given, tmp_path / "s", workers=0, size="keep"), wanted, strict=True):
        np.testing.assert_array_equal(sample["image"], one)
    assert wanted[-1].shape == (10, 6, 3)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_a_pillow_image_without_a_range_of_values_is_refused(dtype: Any, tmp_path: Path) -> None:
    """As a later one it is rejected; the array that the error advises packs."""
    image = Image.fromarray(np.full((4, 5), 1000).astype(dtype))
    with pytest.raises(UsageError, match=r"mode [IF], no picture: pass np.asarray\(image\)"):
        rawpack_packer.pack([image], tmp_path / "s", workers=0)
    assert (reader_of([np.asarray(image)], tmp_path / "a", workers=0)[0]["image"] == 1000).all()
    rawpack_packer.pack([Image.fromarray(picture(4, 5, 0)), image], tmp_path / "s", workers=0, max_rejects=1)
    assert [one["reason"] for one in rejects_of(tmp_path / "s")] == ["bad_field"]


def test_an_opened_pillow_image_travels_and_may_be_damaged(tmp_path: Path) -> None:
    """Workers turn opened images too; one whose file ends early is rejected as the exception that Pillow raises."""
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.fromarray(picture(40, 60, 1)).save(file, "PNG", exif=exif)
    files = [file.getvalue(), file.getvalue()[:-900]]
    given = Made(2, lambda i: Image.open(io.BytesIO(files[i])))
    reader = reader_of(given, tmp_path / "s", workers=2, size="keep", max_rejects=1)
    assert [(one["sample"], one["reason"]) for one in rejects_of(tmp_path / "s")] == [(1, "source_error")]
    np.testing.assert_array_equal(reader[0]["image"], np.rot90(picture(40, 60, 1), -1))


def test_paths_of_images_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of paths, relative ones too, is a dataset of pictures. A row without one is rejected."""
    given = [save(tmp_path / f"{i}.png", picture(30, 40, i)) for i in range(4)]
    monkeypatch.chdir(tmp_path)
    reader = reader_of([*given, "0.png", ""], tmp_path / "s", workers=0, max_rejects=1, size=20)
    assert (len(reader), reader.fields["image"].shape) == (5, (20, 20, 3))
    assert [one["reason"] for one in rejects_of(tmp_path / "s")] == ["unreadable"]
    assert str(tmp_path) not in (tmp_path / "s" / "rejects.jsonl").read_text()


def test_masks_may_be_paths(tmp_path: Path) -> None:
    """As in a listing; one that is missing stops packing, the first one too."""
    masks = [np.full((30, 40), i, np.uint8) for i in range(3)]
    paths = [save(tmp_path / f"m{i}.png", mask) for i, mask in enumerate(masks)]
    columns = {"image": [picture(30, 40, i) for i in range(3)], "mask": [*map(str, paths)]}
    reader = reader_of(columns, tmp_path / "s", workers=0, fields={"mask": "mask"})
    np.testing.assert_array_equal([one["mask"][..., 0] for one in reader], masks)
    paths[0].unlink()
    with pytest.raises(UsageError, match=f"mask of sample 0: there is no file {paths[0]}"):
        rawpack_packer.pack(columns, tmp_path / "no", workers=0, fields={"mask": "mask"})


@pytest.mark.parametrize("form", ["list", "columns", "records", "pandas"])
def test_files_that_are_missing_are_named_before_packing(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first few of them, how many there are, and the first sample; also where they are of another field."""
    there = [str(save(tmp_path / f"{i}.png", picture(30, 40, i))) for i in range(3)]
    monkeypatch.chdir(tmp_path)
    names = [*there, *(f"gone{k}.png" for k in range(8)), there[0]]
    given: Any = {
        "list": names,
        "columns": {"image": names},
        "records": [{"image": there[0], "depth": name} for name in names],
    }.get(form)
    if form == "pandas":
        given = pytest.importorskip("pandas").DataFrame({"path": names})
    fields = {"depth": "image"} if form == "records" else None
    with pytest.raises(UsageError) as refused:
        rawpack_packer.pack(given, tmp_path / "s", workers=0, max_rejects=100, size=20, fields=fields)
    said = str(refused.value)
    assert f"{'depth' if fields else 'image'} of sample 3: there is no file gone0.png below {tmp_path}" in said
    assert "8 files are missing: gone0.png, gone1.png, gone2.png, gone3.png, gone4.png, and 3 more; " in said
    assert not (tmp_path / "s").exists()


def test_an_array_is_a_dataset(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).random((9, 6, 2, 2))
    readers = (
        reader_of(whole, tmp_path / "s", workers=0),
        reader_of([(1, one) for one in whole], tmp_path / "t", workers=0, names=("n", "image")),
    )
    for reader in readers:
        np.testing.assert_array_equal([one["image"] for one in reader], whole)


@pytest.mark.parametrize("keys", [["é", "b", "c"], ["é".encode(), b"b", b"c"]])
def test_keys_are_what_the_caller_says(keys: list[Any], tmp_path: Path) -> None:
    """Bytes are texts, as those of an LMDB."""
    reader = reader_of(Pairs(3), tmp_path / "s", workers=0, keys=keys)
    assert [one["key"] for one in reader] == ["é", "b", "c"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_raises_is_rejected_with_the_exception(workers: int, tmp_path: Path) -> None:
    """The first one too; of megabytes that are no UTF-8, rejects.jsonl has the beginning; the store is sound and takes
    more; too many stop the run."""
    store, errors = tmp_path / "s", {0: "no sample today", 7: "\udcff" + "x" * 2_000_000}

    def made(i: int) -> Any:
        if i in errors:
            raise RuntimeError(errors[i])
        return picture(14, 11, i)

    given = Made(20, made)
    with pytest.raises(PackError, match="source_error 2"):
        rawpack_packer.pack(given, store, workers=workers)
    rawpack_packer.pack(given, store, workers=workers, max_rejects=2)
    np.testing.assert_array_equal(Reader(store)[0]["image"], picture(14, 11, 1))
    first, long = rejects_of(store)
    assert (first["sample"], first["reason"], first["detail"]) == (0, "source_error", "RuntimeError: no sample today")
    assert (long["sample"], long["detail"][:23]) == (7, "RuntimeError: \\udcffxxx")
    assert verify(store) == []
    rawpack_packer.append(
        [picture(14, 11, 0)] * 5, store, workers=workers, skip_existing=True, keys=[f"new {i}" for i in range(5)]
    )
    assert len(Reader(store)) == 23


def test_labels_are_those_of_the_classes(tmp_path: Path) -> None:
    """With classes a label is int64, whatever whole number it was; one beyond them is rejected; -1 is none of them.
    Texts are found among the classes, and a declared text stays one."""
    given = [{"image": picture(4, 4, i), "label": np.int16(label)} for i, label in enumerate((0, 1, -1, 2, -2))]
    reader = reader_of(given, tmp_path / "s", workers=0, classes=["a", "b"], max_rejects=2)
    assert reader.column("label").tolist() == [0, 1, -1]
    assert (reader.fields["label"].dtype, reader.classes) == ("int64", ("a", "b"))
    assert [one["reason"] for one in rejects_of(tmp_path / "s")] == ["bad_field"] * 2

    texts = Made(3, lambda i: {"image": picture(4, 4, i), "label": ("dog", "", "cat")[i]})
    named = reader_of(texts, tmp_path / "named", workers=0, classes=["eel", "dog", "cat"])
    assert named.column("label").tolist() == [1, -1, 2]
    kept = reader_of(texts, tmp_path / "kept", workers=0, fields={"label": "str"})
    assert (kept.classes, kept.column("label")) == (None, ["dog", "", "cat"])


MODES: dict[str, Any] = {
    "L": lambda rgb: Image.fromarray(rgb[..., 0]),
    "RGB": Image.fromarray,
    "1": lambda rgb: Image.fromarray(rgb[..., 0]).convert("1"),
    "P": lambda rgb: Image.fromarray(rgb).convert("P"),
    "CMYK": lambda rgb: Image.fromarray(rgb).convert("CMYK"),
    "I;16": lambda rgb: Image.fromarray(rgb[..., 0].astype(np.uint16) * 257),
}


@pytest.mark.parametrize("mode", MODES)
def test_pillow_images_of_one_mode_and_one_size_stay_so(mode: str, tmp_path: Path) -> None:
    """Without a size, PIL images that are all alike keep theirs, grey ones one channel, and make batches."""
    images = [MODES[mode](picture(28, 26, i)) for i in range(5)]
    grey = mode in ("L", "1", "I;16")
    reader = reader_of(images, tmp_path / "s", workers=0)
    assert reader.fields["image"].shape == (28, 26, 1 if grey else 3)
    (batch,) = reader.batches(5)
    for i, image in enumerate(images):
        if mode == "I;16":
            wanted = (np.asarray(image) // 256)[..., None]
        else:
            wanted = np.asarray(image.convert("L" if grey else "RGB")).reshape(28, 26, -1)
        np.testing.assert_array_equal(batch["image"][i], wanted)


GREY, COLOR = Image.fromarray(picture(8, 8, 1)[..., 0]), Image.fromarray(picture(8, 8, 1))


@pytest.mark.parametrize(
    ("images", "options", "shape"),
    [
        ([encoded(picture(30, 40, 1))], {}, (256, 256, 3)),
        ([picture(30, 40, 1)], {}, (30, 40, 3)),
        ([COLOR, COLOR.resize((8, 9))], {}, (256, 256, 3)),
        ([COLOR, GREY], {}, (256, 256, 3)),
        ([GREY], {"size": 4}, (4, 4, 1)),
        ([GREY], {"color": "rgb"}, (8, 8, 3)),
        ([COLOR], {"color": "gray"}, (8, 8, 1)),
        ([GREY], {"format": "lmdb"}, (8, 8, 1)),
    ],
)
def test_images_get_the_size_of_photographs_only_where_they_are_some(
    images: list[Any], options: dict[str, Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Files and PIL images that differ do; arrays, and PIL images that are alike, keep what is not asked otherwise."""
    assert reader_of(images, tmp_path / "s", workers=0, **options).fields["image"].shape == shape


def test_a_color_image_among_gray_ones_is_rejected_with_the_cure(tmp_path: Path) -> None:
    """One PIL image in many that has colors is neither changed nor lost without a word."""
    given = Made(400, lambda i: COLOR if i == 137 else GREY)
    rawpack_packer.pack(given, tmp_path / "s", workers=0)
    (line,) = rejects_of(tmp_path / "s")
    assert (line["sample"], "mode RGB; others are grey" in line["detail"]) == (137, True), line
    assert len(reader_of(given, tmp_path / "cured", workers=0, color="rgb")) == 400


GUISES: dict[str, Any] = {
    "arrays": lambda pixels: pixels,
    "grey arrays": lambda pixels: pixels[..., 0],
    "float arrays": lambda pixels: pixels.astype(np.float32),
    "pillow": Image.fromarray,
}


@pytest.mark.parametrize(
    ("guise", "workers", "size"),
    [("arrays", 2, None), ("grey arrays", 0, None), ("float arrays", 0, "keep"), ("pillow", 0, None)],
)
def test_an_image_of_another_size_than_was_seen_stops_with_what_to_pass(
    guise: str, workers: int, size: Any, tmp_path: Path
) -> None:
    """Where one image in many has another size, none is lost: packing stops, and every way that it names packs."""
    given = Made(40, lambda i: GUISES[guise](picture(9 if i == 12 else 12, 8, i)))
    with pytest.raises(PackError) as stopped:
        rawpack_packer.pack(given, tmp_path / "s", workers=workers, size=size)
    assert "sample 00000012 is an image of 9x8 (height x width)" in str(stopped.value)
    found = re.findall(r"image=(\(.*?\)\)|\S+)|(size=\d+)", str(stopped.value))
    words = [eval(f"dict({way if way else f'image={shape}'})") for shape, way in found]
    assert [*words[0]] == ["size"], words
    channels = 1 if guise == "grey arrays" else 3
    for n, options in enumerate(words[:2]):
        summary = rawpack_packer.pack(given, tmp_path / f"{n}", workers=0, **options)
        assert (len(Reader(tmp_path / f"{n}")), summary.manifest.rejects.count) == (40, 0)
    assert Reader(tmp_path / "0").fields["image"].shape == (256, 256, channels)
    for i in (11, 12):
        wanted = np.asarray(given[i]).reshape(*np.shape(given[i])[:2], channels)
        np.testing.assert_array_equal(Reader(tmp_path / "1")[i]["image"], wanted)
    summary = rawpack_packer.pack(given, tmp_path / "2", workers=0, max_rejects=1, **words[2])
    assert (len(Reader(tmp_path / "2")), summary.manifest.rejects.count) == (39, 1)


@pytest.mark.parametrize(("guise", "layout"), [("grey arrays", "memmap"), ("float arrays", "hdf5")])
def test_arrays_of_different_sizes_keep_them_if_that_is_said(guise: str, layout: str, tmp_path: Path) -> None:
    images = [GUISES[guise](picture(20 + i, 24, i)) for i in range(8)]
    reader = reader_of(Made(8, lambda i: images[i]), tmp_path / "s", workers=0, size="keep", format=layout)
    for i, image in enumerate(images):
        np.testing.assert_array_equal(reader[i]["image"], image if image.ndim == 3 else image[..., None])
    reader = reader_of([picture(20 + i, 24, i) for i in range(3)], tmp_path / "c", workers=0, crop=(2, 3, 10, 12))
    assert reader.fields["image"].shape == (12, 10, 3)


@pytest.mark.parametrize("sizes", [(9,), (9, 12)])
def test_gray_arrays_among_others_become_rgb(sizes: tuple[int, ...], tmp_path: Path) -> None:
    """As `cv2.imread` with `IMREAD_UNCHANGED` gives them: whichever comes first, none is rejected."""
    images = [picture(sizes[i % len(sizes)], 8, i) for i in range(6)]
    given = [image[..., 0] if i in (0, 3) else image for i, image in enumerate(images)]
    rawpack_packer.pack(given, tmp_path / "s", workers=0, size="keep")
    for i, image in enumerate(images):
        wanted = image[..., :1].repeat(3, axis=2) if i in (0, 3) else image
        np.testing.assert_array_equal(Reader(tmp_path / "s")[i]["image"], wanted)


def test_arrays_that_cannot_be_resized_say_what_to_do(tmp_path: Path) -> None:
    """Floats of 64 bits of different sizes are refused with the ways that pack; one size is stored as it is."""
    images = [np.linspace(0, 1, (8 + i) * 9 * 3).reshape(8 + i, 9, 3) for i in range(3)]
    with pytest.raises(UsageError, match="only uint8, uint16, float32 can be resized") as refused:
        rawpack_packer.pack(images, tmp_path / "s", workers=0)
    assert "size='keep'" in str(refused.value)
    assert "(image * 255).round().astype('uint8')" in str(refused.value)
    for name, given, options in (("keep", images, {"size": "keep"}), ("one", images[2:] * 3, {})):
        reader = reader_of(given, tmp_path / name, workers=0, **options)
        np.testing.assert_array_equal(reader[2]["image"], images[2])


@pytest.mark.parametrize("size", ["keep", None])
def test_more_arrays_of_any_size_are_appended(size: Any, tmp_path: Path) -> None:
    images = [picture(9 + i % 2, 8, i) for i in range(6)]
    rawpack_packer.pack(images, tmp_path / "s", workers=0, size=size)
    rawpack_packer.append(images, tmp_path / "s", workers=0)
    reader = Reader(tmp_path / "s")
    assert len(reader) == 12
    for i in range(6):
        np.testing.assert_array_equal(reader[6 + i]["image"], reader[i]["image"])


def test_a_dict_of_columns_is_a_dataset(tmp_path: Path) -> None:
    """As is an opened .npz file, which does not travel."""
    given = {
        "image": np.stack([picture(9, 8, i) for i in range(70)]),
        "label": (np.arange(70) % 3).astype(np.uint8),
        "name": [f"n{i}" for i in range(70)],
        "vector": np.arange(140, dtype=np.float32).reshape(70, 2),
    }
    np.savez(tmp_path / "a.npz", **given)  # type: ignore[arg-type]
    with np.load(tmp_path / "a.npz") as opened:
        readers = [
            reader_of(given, tmp_path / "s", workers=2, shard_size=1),
            reader_of(opened, tmp_path / "npz", workers=0),
        ]
    for reader in readers:
        assert reader.fields["label"].dtype == "int64"
        for i, sample in enumerate(reader):
            np.testing.assert_array_equal(sample["image"], picture(9, 8, i))
            assert (sample["label"], sample["name"], [*sample["vector"]]) == (i % 3, f"n{i}", [2 * i, 2 * i + 1])


class Named(NamedTuple):
    label: int
    image: Any


@dataclass
class Record:
    label: int
    image: Any


def test_samples_that_have_names_are_taken_by_them(tmp_path: Path) -> None:
    """Named tuples, dataclasses and rows of structured arrays: no label is taken for an image."""
    rows = np.zeros(4, [("label", np.int64), ("image", np.uint8, (9, 8, 3))])
    rows["label"], rows["image"] = range(4), [picture(9, 8, i) for i in range(4)]
    for k, given in enumerate(([Named(*row) for row in rows], [Record(*row) for row in rows], rows)):
        reader = reader_of(given, tmp_path / f"{k}", workers=0)
        assert reader.column("label").tolist() == [*range(4)]
        np.testing.assert_array_equal([one["image"] for one in reader], rows["image"])


def test_objects_of_samples_are_kept_as_json(tmp_path: Path) -> None:
    """Dicts and lists of a sample, with arrays in them, are JSON text if texts are declared, as the error advises."""
    values = [[{"from": "human", "x": np.arange(2)}], ({"a": np.float32(0.5)},), {"b": {"c": np.int64(2**60 + 1)}}]
    samples = [{"image": picture(4, 4, i), "x": value} for i, value in enumerate(values)]
    with pytest.raises(UsageError, match=r"Store it as JSON text by fields=\{'x': 'str'\}"):
        rawpack_packer.pack(samples, tmp_path / "store", workers=0)
    rawpack_packer.pack(samples, tmp_path / "store", fields={"x": "str"}, workers=0)
    found = [json.loads(one) for one in Reader(tmp_path / "store").column("x")]
    assert found == [[{"from": "human", "x": [0, 1]}], [{"a": 0.5}], {"b": {"c": 2**60 + 1}}]


def test_a_dataset_may_fill_one_array_again_and_again() -> None:
    """Each sample is stored as it was when it was given, also where workers prepare many before one is stored."""
    image, mask = np.empty((6, 5, 3), np.uint8), np.empty((6, 5), np.uint8)

    def filled(i: int) -> Any:
        image[:], mask[:] = i, 255 - i
        return {"image": image, "mask": mask}

    source = open_dataset(Made(9, filled), fields={"mask": "mask"})
    for i, item in enumerate([source[i] for i in range(9)]):
        assert (np.asarray(item.image) == i).all()
        assert (np.asarray(item.fields["mask"]) == 255 - i).all()


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ({"image": np.zeros((4, 3, 3)), "label": 3}, {}, "'label' of the dict is a int: a column"),
        ({"train": [1], "val": [2]}, {}, "a dict of splits with pack_splits()"),
        (Pairs(-1), {}, "its len() raises ValueError"),
        (Made(3, {}.__getitem__), {}, "each of its first 3 samples raises an exception, source[0] KeyError: 0"),
        ([(3, picture(4, 4, 0))], {}, "the image is a single number, 3"),
        ([[picture(4, 4, 0), 3]], {}, "a list of several values needs names="),
        ([np.ma.masked_less(picture(4, 4, 0), 100)], {}, "the image is a MaskedArray"),
        ([{"image": picture(4, 4, 0), "x": 2**70}], {}, "its first value is int beyond 64 bits"),
        ([{"image": picture(4, 4, 0), "x": None}], {}, "give each sample a value"),
        ([{"image": picture(4, 4, 0), "x": b"a"}], {}, "decode it to text"),
        ([np.zeros((3, 32, 32), np.float32)], {"size": 20, "image": "hwc"}, "transpose each to height, width"),
        ([{"image": picture(4, 4, 0)}], {"fields": {"y": "float32"}}, "no field 'y'"),
        ([{"image": picture(4, 4, 0), "y": 1}], {"fields": {"y": "float32[?,?]"}}, "only the first length"),
        ([np.zeros((4, 4), np.float32)], {"format": "lmdb"}, "format='memmap' or format='hdf5'"),
        ([np.zeros(7, np.float32)], {"size": 4}, "leave the options out"),
        ([np.zeros((4, 4, 3), np.uint8)], {"color": "gray"}, "keep their channels"),
        ([picture(4, 4, 0)], {"classes": ["a"]}, "classes= names labels"),
        ([{"image": np.zeros((2, 2)), "v": 1}], {"fields": {"v": ("no such", ())}}, "'no such' is not a field dtype"),
        ([{"image": np.zeros((2, 2)), "v": np.zeros(17 * (1,))}], {}, "at most 16 axes"),
        ([{"image": np.zeros((2, 2)), "index": 1}], {}, "rename it, for example to 'index_'"),
        ([{"image": np.zeros((2, 2)), "key": 1}], {}, "pass keys="),
        ([{"image": np.zeros((2, 2)), "Score": 1, "score": 1}], {}, "differ only in case"),
        ([{"image": np.zeros((2, 2)), "boxes": 1, "boxes_start": 1}], {}, "rename it, for example to 'boxesstart'"),
        (Pairs(3), {"keys": ["a", "b", "b"]}, "keys[2] is 'b', as keys[1] is"),
        (Pairs(2), {"keys": ["b", "a\udcff"]}, "keys[1] is 'a\\udcff', which UTF-8 cannot encode"),
        (Pairs(2), {"keys": [b"b", b"\xff"]}, "keys[1] is '\\udcff', which UTF-8 cannot encode"),
        ([{"img": picture(4, 4, 0)}], {"names": {"image": "x"}}, "has no 'x', which is asked for as 'image'"),
        ([{"image": picture(4, 4, 0), "x": 1, "y": 2}], {"names": {"x": "y"}}, "has a field 'x' already"),
        (Made(1, lambda i: Item(f"{i}", picture(4, 4, 0), {})), {}, "lacks info, key, part, states"),
    ],
)  # fmt: skip
def test_what_is_no_dataset_is_refused(given: Any, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        rawpack_packer.pack(given, tmp_path / "s", workers=0, **options)
    assert words in str(refused.value)
    assert not (tmp_path / "s").exists()


def test_a_dataset_that_does_not_travel_is_refused_with_the_cure(tmp_path: Path) -> None:
    """An open file in a dataset cannot go to a worker: the error says workers=0, and that works."""
    held: Any = Pairs(5)
    with (tmp_path / "open").open("w") as held.file:
        with pytest.raises(UsageError, match="pass workers=0"):
            rawpack_packer.pack(held, tmp_path / "s", workers=2)
        assert rawpack_packer.pack(held, tmp_path / "s", workers=0).manifest.samples == 5


# ---------------------------------------------------------------------------------------------- plugins


def from_plugin(path: Any) -> Any:
    """A plugin: a file of numbers becomes a dataset."""
    return [np.full((2, 2), int(line), np.uint16) for line in Path(path).read_text().split()]


def accepts(path: Any) -> bool:
    return str(path).endswith(".numbers")


from_plugin.accepts = accepts  # type: ignore[attr-defined]


def plugins(**entries: str) -> Any:
    """Plugins of these names are installed, and no others."""
    found = [EntryPoint(name, value, "rawpack.sources") for name, value in entries.items()]
    return mock.patch.object(registry, "entry_points", lambda group: found if group == "rawpack.sources" else [])


NUMBERS = "test_source_dataset:from_plugin"


def test_a_plugin_adds_a_kind_of_source(tmp_path: Path) -> None:
    """Which is found by its path, or named; none takes the place of a kind of rawpack's own."""
    file = tmp_path / "a.numbers"
    file.write_text("3 1 4 1 5")
    with plugins(numbers=NUMBERS):
        for k, options in enumerate(([], ["--source", "numbers"])):
            ran = run_here("pack", "--quiet", "--workers", 0, *options, file, tmp_path / f"s{k}")
            assert (ran.code, ran.err) == (0, ""), ran
            assert [int(one["image"][0, 0]) for one in Reader(tmp_path / f"s{k}")] == [3, 1, 4, 1, 5]
    for installed, path, kind, words in (
        ({"numbers": NUMBERS}, file, "tape", r"no source of kind 'tape'.*arrays.*folder.*numbers"),
        ({"b": NUMBERS, "a": NUMBERS}, file, None, r"kind a or b: --source a or --source b says"),
        ({"folder": NUMBERS}, file, "folder", r"is a file, not a folder"),
        ({"numbers": NUMBERS, "broken": "no_such:thing"}, file, None, r"'broken' of no_such:thing cannot be loaded"),
        ({"broken": "no_such:thing"}, tmp_path, "broken", r"'broken' of no_such:thing cannot be loaded"),
    ):
        with plugins(**installed), pytest.raises(UsageError, match=words):
            open_source(path, kind)


# ---------------------------------------------------------------------------------------------- names, iterables


def renamed(kind: str, i: int) -> Any:
    """A sample whose fields have other names than a store's."""
    if kind == "tuple":
        return i / 2, picture(14, 11, i), i % 3
    return {"img": picture(14, 11, i), "fine_label": i % 3, "score": i / 2}


@pytest.mark.parametrize("kind", ["dict", "tuple", "columns"])
def test_fields_get_other_names(kind: str, tmp_path: Path) -> None:
    """`names` maps a name to what samples or columns call it, or to its position in a tuple; other fields of dicts keep
    their names, other values of tuples are left out."""
    source: Any = Made(6, lambda i: renamed(kind, i))
    names: dict[str, Any] = {"image": "img", "label": "fine_label"} if kind != "tuple" else {"label": 2, "image": 1}
    if kind == "columns":
        source = {name: np.array([source[i][name] for i in range(6)]) for name in source[0]}
    reader = reader_of(source, tmp_path / "s", names=names, workers=0)
    assert set(reader.fields) == {"image", "label", "key"} | (set() if kind == "tuple" else {"score"})
    for i, sample in enumerate(reader):
        np.testing.assert_array_equal(sample["image"], picture(14, 11, i))
        assert sample["label"] == i % 3


@pytest.mark.parametrize("kind", ["columns", "array", "labels", "texts"])
def test_other_arrays_are_not_taken_for_those_of_a_finished_store(kind: str, tmp_path: Path) -> None:
    """A call with other arrays of the same shape, or other texts beside them, is refused; it does not return the store
    of the first ones."""
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 10, 3), np.uint8)
    first, other = {
        "columns": ({"image": images, "label": np.zeros(9, int)}, {"image": 255 - images, "label": np.zeros(9, int)}),
        "array": (images, images[::-1]),
        "labels": ({"image": images, "label": np.zeros(9, int)}, {"image": images, "label": np.ones(9, int)}),
        "texts": ({"image": images, "caption": ["old"] * 9}, {"image": images, "caption": ["new"] * 9}),
    }[kind]
    rawpack_packer.pack(first, tmp_path / "store", workers=0)
    rawpack_packer.pack(first, tmp_path / "store", workers=0)
    with pytest.raises(UsageError, match=r"the source differs|returned other samples than now"):
        rawpack_packer.pack(other, tmp_path / "store", workers=0)


class Stopping:
    """Samples of which those from `stop` on cannot be read, and whose code, `shift`, may change."""

    def __init__(self, shift: int = 0, stop: int = 60, random: np.random.Generator | None = None) -> None:
        self.shift, self.stop, self.random = shift, stop, random

    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i >= self.stop:
            raise OSError("the disk is gone")
        shift = self.shift if self.random is None else int(self.random.integers(200))
        return {"image": np.full((12, 16, 3), i + shift, np.uint8), "label": i % 3, "number": i}


def stopped(store: Path, dataset: Stopping) -> None:
    """Pack a dataset up to the sample that it cannot read."""
    with pytest.raises(PackError, match="rejected"):
        rawpack_packer.pack(dataset, store, workers=0, shard_size=1)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("stop", [50, 60])
def test_a_dataset_whose_code_changed_does_not_resume(stop: int, wrapped: bool, tmp_path: Path) -> None:
    """The call is refused and says so, rather than keep the samples of the older code, also of the splits of a draw."""
    store = tmp_path / "store"

    def pack(dataset: Stopping, **options: Any) -> None:
        if wrapped:
            rawpack_packer.pack_splits(dataset, store, holdout={"val": 0.2}, workers=0, shard_size=1, **options)
        else:
            rawpack_packer.pack(dataset, store, workers=0, shard_size=1, **options)

    with nullcontext() if stop == 60 else pytest.raises(PackError, match="rejected"):
        pack(Stopping(stop=stop))
    with pytest.raises(UsageError, match="dataset returned other samples than now: its code or its data"):
        pack(Stopping(shift=1, stop=stop))
    pack(Stopping(stop=stop), max_rejects=10)
    pack(Stopping(shift=1), restart=True)
    for folder in (store / "train", store / "val") if wrapped else (store,):
        (batch,) = Reader(folder).batches(60, workers=0)
        assert batch["image"][:, 0, 0, 0].tolist() == [int(number) + 1 for number in batch["number"]]


@pytest.mark.parametrize(("count", "at"), [(1, 0), (2, 1), (30, 0), (30, 15), (30, 29)])
def test_a_dataset_that_differs_when_it_is_read_twice_is_spoken_of(count: int, at: int, tmp_path: Path) -> None:
    """The first, the middle and the last sample: a warning before anything is packed, and an error under strict."""
    random = np.random.default_rng(0)
    steady = Made(count, lambda i: np.full((8, 8, 3), i, np.uint8))
    given = Made(count, lambda i: random.integers(0, 200, (8, 8, 3), np.uint8) if i == at else steady[i])
    with pytest.warns(RuntimeWarning, match=f"differed when read twice, such as {at:08}: if its __getitem__"):
        rawpack_packer.pack(given, tmp_path / "s", workers=0)
    with pytest.raises(UsageError, match=r"differed when read twice.*or leave out strict=True"):
        rawpack_packer.pack(given, tmp_path / "strict", workers=0, strict=True)
    assert not (tmp_path / "strict").exists()
    rawpack_packer.pack(steady, tmp_path / "steady", workers=0, strict=True)


@pytest.mark.filterwarnings("ignore:.*differed when read twice:RuntimeWarning")
def test_a_random_dataset_resumes(tmp_path: Path) -> None:
    """Samples that differ at each read show no change: the run resumes, and a finished store is left as it is."""
    stopped(tmp_path / "store", Stopping(stop=50, random=np.random.default_rng(0)))
    again = Stopping(stop=50, random=np.random.default_rng(1))
    done = rawpack_packer.pack(again, tmp_path / "store", workers=0, shard_size=1, max_rejects=10)
    assert len(Reader(tmp_path / "store")) == 50
    finished = rawpack_packer.pack(again, tmp_path / "store", workers=0, shard_size=1, max_rejects=10)
    assert (finished.already, finished.digest) == (True, done.digest)


def test_an_append_of_a_dataset_compares_too(tmp_path: Path) -> None:
    """An append that stopped does not resume with another code."""
    rawpack_packer.pack(Stopping(), tmp_path / "store", workers=0, shard_size=1)
    keys = [f"more {i}" for i in range(60)]
    with pytest.raises(PackError, match="rejected"):
        rawpack_packer.append(Stopping(stop=50), tmp_path / "store", keys=keys, workers=0)
    with pytest.raises(UsageError, match="returned other samples than now"):
        rawpack_packer.append(Stopping(shift=1, stop=50), tmp_path / "store", keys=keys, workers=0)
