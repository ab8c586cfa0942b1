"""Any dataset packs: what has a length and gives number i, in this process or in workers, and what plugins bring."""

from __future__ import annotations

import io
import json
import re
import sys
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
from rawpack_packer.sources import FieldKind, ImageKind, Item, SourceInfo, open_dataset, open_source, registry


class Pairs:
    """A dataset as torch has them: a length, and a tuple for each number."""

    classes = ("even", "odd")

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return picture(14, 11, i), i % 2


@pytest.mark.parametrize(("layout", "workers"), [("memmap", 2), ("hdf5", 0)])
def test_a_dataset_with_two_methods_is_enough(layout: str, workers: int, tmp_path: Path) -> None:
    """`len` and `[i]`: arrays are stored as they are, labels and classes are found, whoever packs."""
    reader = reader_of(Pairs(70), tmp_path / "s", format=layout, workers=workers, shard_size=1)
    assert (len(reader), reader.classes, reader.fields["image"].shape) == (70, ("even", "odd"), (14, 11, 3))
    for i in range(70):
        np.testing.assert_array_equal(reader[i]["image"], picture(14, 11, i))
        assert (reader[i]["label"], reader[i]["key"]) == (i % 2, f"{i:08d}")


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


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16"])
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


def test_one_colour_of_a_file_may_be_transparent(tmp_path: Path) -> None:
    """The colour key of an opened PNG lies on white; of an image made from it, whose pixels Pillow gives, none does."""
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[:3] = (10, 20, 30)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", transparency=(10, 20, 30))
    opened = Image.open(io.BytesIO(file.getvalue()))
    rawpack_packer.pack([opened, file.getvalue(), opened.copy()], tmp_path / "s", workers=0, size="keep")
    white = np.where(pixels == (10, 20, 30), 255, pixels)
    for i, wanted in enumerate((white, white, pixels)):
        np.testing.assert_array_equal(Reader(tmp_path / "s")[i]["image"], wanted)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("grey", [False, True])
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
            own = Image.open(file).rotate(90, expand=True)
            given.append(own)
            wanted.append(np.rot90(pixels))
        given += [Image.open(file), file.getvalue(), ImageOps.exif_transpose(Image.open(file))]
        wanted += 3 * [upright]
    reader = reader_of(given, tmp_path / "s", workers=0, size="keep")
    for i, one in enumerate(wanted):
        np.testing.assert_array_equal(reader[i]["image"], one)
    assert wanted[-1].shape == (10, 6, 3)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_a_pillow_image_without_a_range_of_values_is_refused(dtype: Any, tmp_path: Path) -> None:
    image = Image.fromarray(np.full((4, 5), 1000).astype(dtype))
    with pytest.raises(UsageError, match=r"mode [IF], no picture: pass np.asarray\(image\)"):
        rawpack_packer.pack([image], tmp_path / "s", workers=0)
    assert not (tmp_path / "s").exists()
    rawpack_packer.pack([np.asarray(image)], tmp_path / "a", workers=0)
    assert (Reader(tmp_path / "a")[0]["image"] == 1000).all()
    given = [Image.fromarray(picture(4, 5, 0)), image]
    summary = rawpack_packer.pack(given, tmp_path / "s", workers=0, max_rejects=1)
    assert summary.manifest.rejects.reasons == {"bad_field": 1}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_opened_pillow_image_travels_and_may_be_damaged(workers: int, tmp_path: Path) -> None:
    """Workers turn opened images too; one whose file ends early is rejected as the exception that Pillow raises."""
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.fromarray(picture(40, 60, 1)).save(file, "PNG", exif=exif)
    files = [file.getvalue(), file.getvalue()[:-900]]

    class Opened(Pairs):
        def __getitem__(self, i: int) -> Any:
            return Image.open(io.BytesIO(files[i]))

    rawpack_packer.pack(Opened(2), tmp_path / "s", workers=workers, size="keep", max_rejects=1)
    (line,) = (tmp_path / "s" / "rejects.jsonl").read_text().splitlines()
    assert (json.loads(line)["sample"], json.loads(line)["reason"]) == (1, "source_error")
    np.testing.assert_array_equal(Reader(tmp_path / "s")[0]["image"], np.rot90(picture(40, 60, 1), -1))


def test_paths_of_images_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of paths, relative ones too, is a dataset of pictures. A row without one is rejected."""
    given = [save(tmp_path / f"{i}.png", picture(30, 40, i)) for i in range(4)]
    monkeypatch.chdir(tmp_path)
    summary = rawpack_packer.pack([*given, "0.png", ""], tmp_path / "s", workers=0, max_rejects=1, size=20)
    assert summary.manifest.rejects.reasons == {"unreadable": 1}
    assert str(tmp_path) not in (tmp_path / "s" / "rejects.jsonl").read_text()
    reader = Reader(tmp_path / "s")
    assert (len(reader), reader.fields["image"].shape) == (5, (20, 20, 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_masks_may_be_paths(workers: int, tmp_path: Path) -> None:
    """As in a listing; one that is missing stops packing, the first one too."""
    masks = [np.full((30, 40), i, np.uint8) for i in range(3)]
    columns = {
        "image": [str(save(tmp_path / f"{i}.png", picture(30, 40, i))) for i in range(3)],
        "mask": [str(save(tmp_path / f"m{i}.png", mask)) for i, mask in enumerate(masks)],
    }
    options: dict[str, Any] = {"workers": workers, "size": "keep", "fields": {"mask": "mask"}}
    rawpack_packer.pack(columns, tmp_path / "s", **options)
    for sample, mask in zip(Reader(tmp_path / "s"), masks, strict=True):
        np.testing.assert_array_equal(sample["mask"][..., 0], mask)
    for i in range(2):
        (tmp_path / f"m{i}.png").unlink()
        with pytest.raises(UsageError, match=rf"mask of sample 0: there is no file {tmp_path}/m0\.png"):
            rawpack_packer.pack(columns, tmp_path / "no", **options)


@pytest.mark.parametrize("form", ["list", "tuples", "columns", "array", "records"])
def test_files_that_are_missing_are_named_before_packing(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first few of them, how many there are, and the first sample; also where they are of another field."""
    there = [str(save(tmp_path / f"{i}.png", picture(30, 40, i))) for i in range(3)]
    monkeypatch.chdir(tmp_path)
    names = [*there, *(f"gone{k}.png" for k in range(8)), there[0]]
    given: Any = {
        "list": names,
        "tuples": [(name, 1) for name in names],
        "columns": {"image": names},
        "array": np.array(names),
        "records": [{"image": there[0], "depth": name} for name in names],
    }[form]
    fields = {"depth": "image"} if form == "records" else None
    with pytest.raises(UsageError) as refused:
        rawpack_packer.pack(given, tmp_path / "s", workers=0, max_rejects=100, size=20, fields=fields)
    said = str(refused.value)
    assert f"{'depth' if fields else 'image'} of sample 3: there is no file gone0.png below {tmp_path}" in said
    assert "8 files are missing: gone0.png, gone1.png, gone2.png, gone3.png, gone4.png, and 3 more; " in said
    assert not (tmp_path / "s").exists()
    one = {name: column[:4] for name, column in given.items()} if form == "columns" else given[:4]
    with pytest.raises(UsageError, match=r"sample 3: there is no file gone0\.png below \S+; correct the path"):
        rawpack_packer.pack(one, tmp_path / "s", workers=0, size=20, fields=fields)


def test_pictures_are_brought_to_256_and_arrays_stay(tmp_path: Path) -> None:
    rawpack_packer.pack([encoded(picture(30, 40, 1))], tmp_path / "p", workers=0)
    rawpack_packer.pack([picture(30, 40, 1)], tmp_path / "a", workers=0)
    assert Reader(tmp_path / "p").fields["image"].shape == (256, 256, 3)
    assert Reader(tmp_path / "a").fields["image"].shape == (30, 40, 3)


def test_an_array_is_a_dataset(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).random((70, 6, 2, 2))
    rawpack_packer.pack(whole, tmp_path / "s", workers=2, shard_size=1)
    rawpack_packer.pack([(1, w) for w in whole], tmp_path / "t", workers=0, names=("n", "image"))
    for i in range(70):
        np.testing.assert_array_equal(Reader(tmp_path / "s")[i]["image"], whole[i])
        np.testing.assert_array_equal(Reader(tmp_path / "t")[i]["image"], whole[i])


def test_keys_are_what_the_caller_says(tmp_path: Path) -> None:
    rawpack_packer.pack(Pairs(3), tmp_path / "s", workers=0, keys=["é", "b", "c"])
    assert [Reader(tmp_path / "s")[i]["key"] for i in range(3)] == ["é", "b", "c"]
    with pytest.raises(UsageError, match=r"keys\[2\] is .b., as keys\[1\] is"):
        rawpack_packer.pack(Pairs(3), tmp_path / "t", workers=0, keys=["a", "b", "b"])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_raises_is_rejected_with_the_exception(workers: int, tmp_path: Path) -> None:
    """The dataset's own exception stands in rejects.jsonl; the other samples are packed; too many stop the run."""

    class Raising(Pairs):
        def __getitem__(self, i: int) -> Any:
            if i in (3, 7):
                raise RuntimeError(f"no sample {i} today")
            return super().__getitem__(i)

    with pytest.raises(PackError, match="source_error 2"):
        rawpack_packer.pack(Raising(20), tmp_path / "s", workers=workers)
    rawpack_packer.pack(Raising(20), tmp_path / "s", workers=workers, max_rejects=2)
    rejects = rejects_of(tmp_path / "s")
    assert [(one["sample"], one["reason"], one["detail"]) for one in rejects] == [
        (3, "source_error", "RuntimeError: no sample 3 today"),
        (7, "source_error", "RuntimeError: no sample 7 today"),
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_what_an_exception_says_does_not_spoil_the_store(workers: int, tmp_path: Path) -> None:
    """Megabytes, and what is no UTF-8: the line has its beginning, the store is sound, and takes more."""

    class Raising(Pairs):
        def __getitem__(self, i: int) -> Any:
            if i == 3:
                raise RuntimeError("\udcff" + "x" * 2_000_000)
            return super().__getitem__(i)

    store = tmp_path / "s"
    rawpack_packer.pack(Raising(20), store, workers=workers, max_rejects=1)
    (one,) = rejects_of(store)
    assert one["detail"].startswith("RuntimeError: \\udcffxxx")
    assert verify(store) == []
    rawpack_packer.append(Pairs(5), store, workers=workers, skip_existing=True, keys=[f"new {i}" for i in range(5)])
    assert len(Reader(store)) == 24


def test_labels_that_are_texts_are_names_of_classes(tmp_path: Path) -> None:
    """They are sorted, also where samples must be read for them; an empty text is no class; and a declared text stays
    one."""

    def packed(source: Any, name: str, **options: Any) -> Reader:
        rawpack_packer.pack(source, tmp_path / name, workers=0, **options)
        return Reader(tmp_path / name)

    texts = ["dog", "cat", "", "dog"]
    images = [picture(8, 8, i) for i in range(4)]
    reader = packed(list(zip(images, texts, strict=True)), "list")
    assert (reader.classes, reader.column("label").tolist()) == (("cat", "dog"), [1, 0, -1, 1])

    class Lazy:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"image": images[i], "label": texts[i]}

    reader = packed(Lazy(), "read")
    assert (reader.classes, reader.column("label").tolist()) == (("cat", "dog"), [1, 0, -1, 1])
    named = packed(Lazy(), "named", classes=["eel", "dog", "cat"])
    assert named.column("label").tolist() == [1, 2, -1, 1]
    kept = packed(Lazy(), "kept", fields={"label": "str"})
    assert (kept.classes, list(kept.column("label"))) == (None, texts)


def test_labels_are_those_of_the_classes(tmp_path: Path) -> None:
    """With classes a label is int64, whatever whole number it was; one beyond them is rejected; -1 is none of them."""
    given = [{"image": picture(4, 4, i), "label": np.int16(label)} for i, label in enumerate((0, 1, -1, 2, -2))]
    summary = rawpack_packer.pack(given, tmp_path / "s", workers=0, classes=["a", "b"], max_rejects=2)
    reader = Reader(tmp_path / "s")
    assert [int(reader[i]["label"]) for i in range(len(reader))] == [0, 1, -1]
    assert (reader.fields["label"].dtype, reader.classes) == ("int64", ("a", "b"))
    assert summary.manifest.rejects.reasons == {"bad_field": 2}
    with pytest.raises(UsageError, match="classes= names labels"):
        rawpack_packer.pack([picture(4, 4, 0)], tmp_path / "t", workers=0, classes=["a"])


def test_attributes_of_other_meaning_do_not_matter(tmp_path: Path) -> None:
    class Odd(Pairs):
        classes = 7  # type: ignore[assignment]

        def fields(self) -> None: ...
        def image(self) -> None: ...

    rawpack_packer.pack(Odd(3), tmp_path / "s", workers=0)
    assert Reader(tmp_path / "s").classes is None


MODES: dict[str, Any] = {
    "L": lambda rgb: Image.fromarray(rgb[..., 0]),
    "RGB": Image.fromarray,
    "1": lambda rgb: Image.fromarray(rgb[..., 0]).convert("1"),
    "P": lambda rgb: Image.fromarray(rgb).convert("P"),
    "LA": lambda rgb: Image.fromarray(rgb[..., 0]).convert("LA"),
    "RGBA": lambda rgb: Image.fromarray(rgb).convert("RGBA"),
    "CMYK": lambda rgb: Image.fromarray(rgb).convert("CMYK"),
    "I;16": lambda rgb: Image.fromarray(rgb[..., 0].astype(np.uint16) * 257),
}


class Made(Pairs):
    """A dataset that makes each sample when it is asked for."""

    classes = None  # type: ignore[assignment]

    def __init__(self, count: int, make: Any) -> None:
        super().__init__(count)
        self.make = make

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


@pytest.mark.parametrize("mode", MODES)
def test_pillow_images_of_one_mode_and_one_size_stay_so(mode: str, tmp_path: Path) -> None:
    """Without a size, PIL images that are all alike keep theirs, grey ones one channel, and make batches."""
    images = [MODES[mode](picture(28, 26, i)) for i in range(20)]
    grey = mode in ("L", "1", "LA", "I;16")
    for size in ("keep", None):
        reader = reader_of(images, tmp_path / f"s{size}", workers=0, size=size)
        assert reader.fields["image"].shape == (28, 26, 1 if grey else 3)
        (batch,) = reader.batches(20)
        for i, image in enumerate(images):
            if mode == "I;16":
                wanted = (np.asarray(image) // 256)[..., None]
            else:
                wanted = np.asarray(image.convert("L" if grey else "RGB")).reshape(28, 26, -1)
            np.testing.assert_array_equal(batch["image"][i], wanted)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("what", ["size", "mode"])
def test_pillow_images_that_differ_are_photographs(what: str, in_memory: bool, tmp_path: Path) -> None:
    images = [Image.fromarray(picture(20 + 4 * (i % 2 and what == "size"), 24, i)) for i in range(6)]
    if what == "mode":
        images[3] = images[3].convert("L")
    rawpack_packer.pack(images if in_memory else Made(6, lambda i: images[i]), tmp_path / "s", workers=0)
    assert Reader(tmp_path / "s").fields["image"].shape == (256, 256, 3)


def test_a_color_image_among_gray_ones_is_rejected_with_the_cure(tmp_path: Path) -> None:
    """One PIL image in many that has colors is neither changed nor lost without a word."""
    odd = Image.fromarray(picture(9, 8, 1))
    given = Made(400, lambda i: odd if i == 137 else Image.fromarray(picture(9, 8, i)[..., 0]))
    rawpack_packer.pack(given, tmp_path / "s", workers=0)
    (line,) = (tmp_path / "s" / "rejects.jsonl").read_text().splitlines()
    assert (json.loads(line)["sample"], "mode RGB; others are grey" in json.loads(line)["detail"]) == (137, True), line
    summary = rawpack_packer.pack(given, tmp_path / "cured", workers=0, color="rgb")
    assert (len(Reader(tmp_path / "cured")), summary.manifest.rejects.count) == (400, 0)


GUISES: dict[str, Any] = {
    "arrays": lambda pixels: pixels,
    "grey arrays": lambda pixels: pixels[..., 0],
    "float arrays": lambda pixels: pixels.astype(np.float32),
    "pillow": Image.fromarray,
}


@pytest.mark.parametrize(
    ("guise", "workers", "size"),
    [*((guise, 0, None) for guise in GUISES), ("arrays", 0, "keep"), ("pillow", 0, "keep"), ("arrays", 2, None)],
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


@pytest.mark.parametrize(("guise", "in_memory"), [("arrays", True), ("grey arrays", False), ("float arrays", False)])
def test_arrays_of_different_sizes_are_resized_as_pillow_images_are(
    guise: str, in_memory: bool, tmp_path: Path
) -> None:
    """Without a size they are brought to 256, with one to that; their channels and dtype stay, and none is rejected."""
    images = [GUISES[guise](picture(20 + 4 * (i % 3), 24, i)) for i in range(20)]
    given = images if in_memory else Made(20, lambda i: images[i])
    channels = 1 if guise == "grey arrays" else 3
    for size, side in ((None, 256), (30, 30)):
        summary = rawpack_packer.pack(given, tmp_path / f"{size}", workers=0, size=size)
        field = Reader(tmp_path / f"{size}").fields["image"]
        assert (field.shape, field.dtype) == ((side, side, channels), images[0].dtype)
        assert summary.manifest.rejects.count == 0
    if guise == "arrays":
        rawpack_packer.pack([Image.fromarray(one) for one in images], tmp_path / "pillow", workers=0)
        for i in range(20):
            np.testing.assert_array_equal(
                Reader(tmp_path / "None")[i]["image"], Reader(tmp_path / "pillow")[i]["image"]
            )


@pytest.mark.parametrize(("guise", "layout"), [("arrays", "memmap"), ("grey arrays", "hdf5"), ("float arrays", "hdf5")])
def test_arrays_of_different_sizes_keep_them_if_that_is_said(guise: str, layout: str, tmp_path: Path) -> None:
    images = [GUISES[guise](picture(20 + i, 24, i)) for i in range(8)]
    reader = reader_of(Made(8, lambda i: images[i]), tmp_path / "s", workers=0, size="keep", format=layout)
    for i, image in enumerate(images):
        np.testing.assert_array_equal(reader[i]["image"], image if image.ndim == 3 else image[..., None])


def test_a_crop_makes_one_size_of_arrays(tmp_path: Path) -> None:
    images = [picture(20 + i, 24, i) for i in range(8)]
    rawpack_packer.pack(images, tmp_path / "s", workers=0, crop=(2, 3, 10, 12))
    (batch,) = Reader(tmp_path / "s").batches(8, workers=0)
    np.testing.assert_array_equal(batch["image"], [image[3:15, 2:12] for image in images])


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
    with pytest.raises(UsageError) as refused:
        rawpack_packer.pack(images, tmp_path / "s", workers=0)
    assert "only uint8, uint16, float32 can be resized" in str(refused.value)
    assert "size='keep'" in str(refused.value)
    assert "(image * 255).round().astype('uint8')" in str(refused.value)
    rawpack_packer.pack(images, tmp_path / "keep", workers=0, size="keep")
    rawpack_packer.pack([(image * 255).round().astype("uint8") for image in images], tmp_path / "bytes", workers=0)
    rawpack_packer.pack(images[:1] * 3, tmp_path / "one", workers=0)
    np.testing.assert_array_equal(Reader(tmp_path / "keep")[2]["image"], images[2])
    np.testing.assert_array_equal(Reader(tmp_path / "one")[2]["image"], images[0])


def test_more_arrays_of_any_size_are_appended(tmp_path: Path) -> None:
    images = [picture(9 + i % 2, 8, i) for i in range(6)]
    for name, size in (("keep", "keep"), ("resized", None)):
        rawpack_packer.pack(images, tmp_path / name, workers=0, size=size)
        rawpack_packer.append(images, tmp_path / name, workers=0)
        reader = Reader(tmp_path / name)
        assert len(reader) == 12
        for i in range(6):
            np.testing.assert_array_equal(reader[6 + i]["image"], reader[i]["image"])


def test_grey_pillow_images_take_a_size_and_a_color(tmp_path: Path) -> None:
    """What is asked for is done: a size leaves grey images grey, a color makes them RGB, and RGB ones grey."""
    grey, color = Image.fromarray(picture(8, 8, 1)[..., 0]), Image.fromarray(picture(8, 8, 1))
    for name, image, options, shape in (
        ("size", grey, {"size": 4}, (4, 4, 1)),
        ("rgb", grey, {"color": "rgb"}, (8, 8, 3)),
        ("gray", color, {"color": "gray"}, (8, 8, 1)),
        ("jpeg", grey, {"format": "lmdb"}, (8, 8, 1)),
    ):
        rawpack_packer.pack([image] * 3, tmp_path / name, workers=0, **options)
        assert Reader(tmp_path / name).fields["image"].shape == shape
    np.testing.assert_array_equal(Reader(tmp_path / "rgb")[0]["image"], picture(8, 8, 1)[..., :1].repeat(3, axis=2))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dict_of_columns_is_a_dataset(workers: int, tmp_path: Path) -> None:
    images = np.stack([picture(9, 8, i) for i in range(140)])
    given = {
        "image": images,
        "label": (np.arange(140) % 3).astype(np.uint8),
        "name": [f"n{i}" for i in range(140)],
        "vector": np.arange(280, dtype=np.float32).reshape(140, 2),
    }
    reader = reader_of(given, tmp_path / "s", workers=workers, shard_size=1)
    assert (len(reader), reader.fields["label"].dtype) == (140, "int64")
    for i in range(140):
        sample = reader[i]
        np.testing.assert_array_equal(sample["image"], images[i])
        assert (sample["label"], sample["name"], list(sample["vector"])) == (i % 3, f"n{i}", [2 * i, 2 * i + 1])
    rawpack_packer.pack_splits(given, tmp_path / "drawn", workers=workers, holdout={"val": 0.1})
    drawn = Reader(tmp_path / "drawn" / "val")
    drawn_labels = np.bincount([int(drawn[i]["label"]) for i in range(len(drawn))]).tolist()
    assert all(count in (4, 5) for count in drawn_labels), drawn_labels


def test_an_opened_npz_is_a_dict_of_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=np.arange(48, dtype=np.uint8).reshape(4, 3, 4), label=np.arange(4))
    with np.load(tmp_path / "a.npz") as opened:
        rawpack_packer.pack(opened, tmp_path / "s", workers=0)
    reader = Reader(tmp_path / "s")
    assert [(int(reader[i]["label"]), int(reader[i]["image"][0, 0, 0])) for i in range(4)] == [
        (i, 12 * i) for i in range(4)
    ]


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
    for k, given in enumerate(
        (
            [Named(i, picture(9, 8, i)) for i in range(4)],
            [Record(i, picture(9, 8, i)) for i in range(4)],
            rows,
            rows.view(np.recarray),
        )
    ):
        reader = reader_of(given, tmp_path / f"{k}", workers=0)
        for i in range(4):
            assert reader[i]["label"] == i
            np.testing.assert_array_equal(reader[i]["image"], picture(9, 8, i))


def test_objects_of_samples_are_kept_as_json(tmp_path: Path) -> None:
    """Dicts and lists of a sample, with arrays in them, are JSON text if texts are declared, as the error advises."""
    values = [[{"from": "human", "x": np.arange(2)}], ({"a": np.float32(0.5)},), {"b": {"c": np.int64(2**60 + 1)}}]
    samples = [{"image": picture(4, 4, i), "x": value} for i, value in enumerate(values)]
    with pytest.raises(UsageError, match=r"Store it as JSON text by fields=\{'x': 'str'\}"):
        rawpack_packer.pack(samples, tmp_path / "store", workers=0)
    rawpack_packer.pack(samples, tmp_path / "store", fields={"x": "str"}, workers=0)
    found = [json.loads(one) for one in Reader(tmp_path / "store").column("x")]
    assert found == [[{"from": "human", "x": [0, 1]}], [{"a": 0.5}], {"b": {"c": 2**60 + 1}}]


def test_a_dataset_whose_first_samples_raise_is_packed(tmp_path: Path) -> None:
    """What the fields are is seen by the first sample that can be had; the others are rejected."""

    class Late(Pairs):
        def __getitem__(self, i: int) -> Any:
            if i < 2:
                raise RuntimeError("not yet")
            return super().__getitem__(i)

    rawpack_packer.pack(Late(20), tmp_path / "s", workers=0, max_rejects=2)
    np.testing.assert_array_equal(Reader(tmp_path / "s")[0]["image"], picture(14, 11, 2))


def test_a_dataset_may_fill_one_array_again_and_again(tmp_path: Path) -> None:
    """Each sample is stored as it was when it was given, also where workers prepare many before one is stored."""

    class Buffer(Pairs):
        def __init__(self, count: int) -> None:
            super().__init__(count)
            self.image, self.mask = np.empty((6, 5, 3), np.uint8), np.empty((6, 5), np.uint8)

        def __getitem__(self, i: int) -> Any:
            self.image[:], self.mask[:] = i, 255 - i
            return {"image": self.image, "mask": self.mask}

    source = open_dataset(Buffer(9), fields={"mask": "mask"})
    items = [source[i] for i in range(9)]
    for i, item in enumerate(items):
        assert (np.asarray(item.image) == i).all()
        assert (np.asarray(item.fields["mask"]) == 255 - i).all()


class Length:
    def __init__(self, length: Any) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length  # type: ignore[no-any-return]

    def __getitem__(self, i: int) -> Any:
        raise KeyError(i)


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (7, {}, "7 is not a source: give a path, or a dataset with len(source) and source[i]"),
        ([], {}, "has no samples"),
        ({}, {}, "has no samples"),
        ({"image": np.zeros((4, 3, 3)), "label": [1, 2]}, {}, "'image' has 4, 'label' has 2"),
        ({"image": np.zeros((4, 3, 3)), "label": 3}, {}, "'label' of the dict is a int: a column"),
        ({"x": np.zeros((4, 3, 3)), "y": [1, 2, 3, 4]}, {}, "has 'x', 'y' and no 'image'"),
        ({"train": [1], "val": [2]}, {}, "a dict of splits with pack_splits()"),
        (b"photos", {}, "a path is a str"),
        (Length(-1), {}, "its len() raises ValueError"),
        (Length(3), {}, "each of its first 3 samples raises an exception, source[0] KeyError: 0"),
        (Length(1), {}, "its only sample raises an exception, source[0] KeyError: 0; source[i] must return sample i"),
        ([(3, picture(4, 4, 0))], {}, "the image is a single number, 3"),
        ([[picture(4, 4, 0), 3]], {}, "a list of several values needs names="),
        ([np.ma.masked_less(picture(4, 4, 0), 100)], {}, "the image is a MaskedArray"),
        ([{"image": picture(4, 4, 0), "x": 2**70}], {}, "its first value is int beyond 64 bits"),
        ([{"image": picture(4, 4, 0), "x": None}], {}, "give each sample a value"),
        ([{"image": picture(4, 4, 0), "x": b"a"}], {}, "decode it to text"),
        ([{"label": 1}], {}, "no 'image'"),
        ([(1, 2, 3)], {}, "name them: names="),
        ([(picture(4, 4, 0), 1, 2)], {"names": ("image", "a", "a")}, "names= has 'a' twice"),
        ([np.zeros((3, 32, 32), np.float32)], {"size": 20, "image": "hwc"}, "transpose each to height, width"),
        ([{"image": picture(4, 4, 0)}], {"fields": {"y": "float32"}}, "no field 'y'"),
        ([{"image": picture(4, 4, 0), "y": 1}], {"fields": {"y": "float32[?,?]"}}, "only the first length"),
        ([np.zeros((4, 4), np.float32)], {"format": "lmdb"}, "format='memmap' or format='hdf5'"),
        ([np.zeros(7, np.float32)], {"size": 4}, "leave the options out"),
        ([np.zeros((4, 4, 3), np.uint8)], {"color": "gray"}, "keep their channels"),
    ],
)  # fmt: skip
def test_what_is_no_dataset_is_refused(given: Any, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        rawpack_packer.pack(given, tmp_path / "s", workers=0, **options)
    assert words in str(refused.value)
    assert not (tmp_path / "s").exists()


def test_a_dataset_that_does_not_travel_is_refused_with_the_cure(tmp_path: Path) -> None:
    """An open file in a dataset cannot go to a worker: the error says workers=0, and that works."""

    class Held(Pairs):
        def __init__(self) -> None:
            super().__init__(5)
            self.file = (tmp_path / "open").open("w")

    held = Held()
    with held.file:
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


def test_a_plugin_adds_a_kind_of_source(tmp_path: Path) -> None:
    entry = EntryPoint("numbers", "test_source_dataset:from_plugin", "rawpack.sources")
    file = tmp_path / "a.numbers"
    file.write_text("3 1 4 1 5")
    with mock.patch.object(registry, "entry_points", lambda group: [entry] if group == "rawpack.sources" else []):
        for k, options in enumerate(([], ["--source", "numbers"])):
            ran = run_here("pack", "--quiet", "--workers", 0, *options, file, tmp_path / f"s{k}")
            assert (ran.code, ran.err) == (0, ""), ran
            reader = Reader(tmp_path / f"s{k}")
            assert [int(reader[i]["image"][0, 0]) for i in range(5)] == [3, 1, 4, 1, 5]
            assert reader.fields["image"].dtype == "uint16"
        with pytest.raises(UsageError, match=r"no source of kind 'tape'.*arrays.*folder.*numbers"):
            open_source(file, "tape")


def test_two_plugins_that_claim_a_path_are_asked_about(tmp_path: Path) -> None:
    """Whichever is installed first; and a plugin does not take the place of a kind of rawpack's own."""
    entries = [EntryPoint(name, "test_source_dataset:from_plugin", "rawpack.sources") for name in ("b", "a", "folder")]
    file = tmp_path / "a.numbers"
    file.write_text("3")
    with mock.patch.object(registry, "entry_points", return_value=entries):
        with pytest.raises(UsageError, match=r"may be of kind a or b: --source a or --source b says which"):
            open_source(file)
        with pytest.raises(UsageError, match=r"is a file, not a folder"):
            open_source(file, "folder")


def test_a_plugin_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    """Whose fault it is stands in the error."""
    broken = EntryPoint("broken", "no_such_module_here:thing", "rawpack.sources")
    numbers = EntryPoint("numbers", "test_source_dataset:from_plugin", "rawpack.sources")
    for path, kind in ((tmp_path, "broken"), (tmp_path, None), (tmp_path / "a.numbers", None)):
        with (
            mock.patch.object(registry, "entry_points", return_value=[numbers, broken]),
            pytest.raises(UsageError, match=r"'broken' of no_such_module_here:thing cannot be loaded"),
        ):
            open_source(path, kind)


class Swapped:
    """A source of one's own, whose images and masks have the byte order that this machine has not."""

    info = SourceInfo(
        kind="swapped",
        root="<swapped>",
        fields={"mask": FieldKind("uint16", (4, 5, 1), mask=True), "number": FieldKind("float64")},
        image=ImageKind("uint16", (4, 5, 3)),
    )

    def __len__(self) -> int:
        return 3

    def key(self, i: int, /) -> str:
        return f"k{i}"

    def __getitem__(self, i: int, /) -> Item:
        image = np.arange(60).reshape(4, 5, 3) + 1000 * i
        other = ">" if sys.byteorder == "little" else "<"
        mask, number = (image[..., :1] + 7).astype(f"{other}u2"), np.array(i + 0.1, f"{other}f8")
        return Item(self.key(i), image.astype(f"{other}u2"), {"mask": mask, "number": number})

    def part(self, start: int, stop: int, /) -> Swapped:
        assert (start, stop) == (0, 3)
        return self

    def states(self) -> NDArray[np.int64]:
        return np.empty((0, 2), np.int64)


@pytest.mark.parametrize("layout", ["memmap", "hdf5"])
@pytest.mark.parametrize("size", ["keep", "8x10"])
def test_a_source_may_have_any_byte_order(layout: str, size: str, tmp_path: Path) -> None:
    """Images, masks and numbers of a source of one's own are the same values whichever byte comes first in them."""
    reader = reader_of(Swapped(), tmp_path / "s", workers=0, format=layout, size=size)
    for i in range(3):
        sample, step = reader[i], 1 if size == "keep" else 2
        wanted = np.arange(60).reshape(4, 5, 3) + 1000 * i
        np.testing.assert_array_equal(sample["mask"][::step, ::step], wanted[..., :1] + 7)
        assert np.abs(sample["image"][::step, ::step].astype(int) - wanted).max() <= (0 if size == "keep" else 15)
        assert sample["number"] == i + 0.1


def test_half_a_source_is_told_what_it_lacks() -> None:
    """An object that makes `Item`s and is no `Source` is refused by the names of what is missing, not as a dataset."""

    class Half(Pairs):
        def __getitem__(self, i: int, /) -> Any:
            return Item(f"{i}", np.zeros((2, 2, 3), np.uint8), {})

    with pytest.raises(UsageError, match=r"Half .*lacks info, key, part, states"):
        open_dataset(Half(3))


def test_a_key_that_utf8_cannot_hold_is_refused(tmp_path: Path) -> None:
    images = [np.zeros((4, 4, 3), np.uint8)] * 2
    with pytest.raises(UsageError, match=r"keys\[1\] is 'a\\udcff', which UTF-8 cannot encode"):
        rawpack_packer.pack(images, tmp_path / "store", keys=["b", "a\udcff"], workers=0)
    assert not (tmp_path / "store").exists()


# ---------------------------------------------------------------------------------------------- names, iterables


class Renamed:
    """Samples whose fields have other names than a store's."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        if self.kind == "dict":
            return {"img": picture(14, 11, i), "fine_label": i % 3, "score": i / 2}
        return i / 2, picture(14, 11, i), i % 3


@pytest.mark.parametrize("kind", ["dict", "tuple", "columns"])
def test_fields_get_other_names(kind: str, tmp_path: Path) -> None:
    """`names` maps a name to what samples or columns call it, or to its position in a tuple; other fields of dicts keep
    their names, other values of tuples are left out."""
    source: Any = Renamed(kind)
    names: dict[str, Any] = {"image": "img", "label": "fine_label"} if kind != "tuple" else {"label": 2, "image": 1}
    if kind == "columns":
        samples = [Renamed("dict")[i] for i in range(6)]
        source = {name: np.array([sample[name] for sample in samples]) for name in samples[0]}
    reader = reader_of(source, tmp_path / "s", names=names, workers=0)
    assert set(reader.fields) == {"image", "label", "key"} | (set() if kind == "tuple" else {"score"})
    for i in range(6):
        np.testing.assert_array_equal(reader[i]["image"], picture(14, 11, i))
        assert reader[i]["label"] == i % 3


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"image": "picture"}, "has no 'picture', which is asked for as 'image': it has 'img', 'fine_label', 'score'"),
        ({"image": "img", "score": "fine_label"}, "has a field 'score' already"),
    ],
)
def test_names_that_do_not_fit(names: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        rawpack_packer.pack(Renamed("dict"), tmp_path / "s", names=names, workers=0)
    assert not (tmp_path / "s").exists()


class Stream:
    """What can only be iterated, and counts how often that begins."""

    def __init__(self, count: int, told: int | None = None) -> None:
        self.count, self.told, self.begun = count, told or count, 0

    def __len__(self) -> int:
        return self.told

    def __iter__(self) -> Any:
        self.begun += 1
        return ({"image": picture(14, 11, i), "number": i} for i in range(self.count))


def test_an_iterable_with_a_length(tmp_path: Path) -> None:
    """Samples are read in order, in one pass after the looks at the first ones."""
    source = Stream(150)
    reader = reader_of(source, tmp_path / "s", workers=0, shard_size=1)
    assert reader.column("number").tolist() == list(range(150))
    np.testing.assert_array_equal(reader[149]["image"], picture(14, 11, 149))
    assert source.begun <= 4


def test_an_iterable_that_ends_early(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="it ended after 8 samples"):
        rawpack_packer.pack(Stream(8, told=10), tmp_path / "s", workers=0, strict=True)


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
@pytest.mark.parametrize("finished", [False, True])
def test_a_dataset_whose_code_changed_does_not_resume(finished: bool, wrapped: bool, tmp_path: Path) -> None:
    """The call is refused and says so, rather than keep the samples of the older code, also of the splits of a draw."""
    store = tmp_path / "store"

    def pack(dataset: Stopping, **options: Any) -> Any:
        if wrapped:
            return rawpack_packer.pack_splits(dataset, store, holdout={"val": 0.2}, workers=0, shard_size=1, **options)
        return rawpack_packer.pack(dataset, store, workers=0, shard_size=1, **options)

    if finished:
        pack(Stopping())
    else:
        with pytest.raises(PackError, match="rejected"):
            pack(Stopping(stop=50))
    with pytest.raises(UsageError, match="dataset returned other samples than now: its code or its data"):
        pack(Stopping(shift=1, stop=60 if finished else 50))
    if finished:
        pack(Stopping())
    else:
        pack(Stopping(stop=50), max_rejects=10)
    pack(Stopping(shift=1), restart=True)
    for folder in (store / "train", store / "val") if wrapped else (store,):
        (batch,) = Reader(folder).batches(60, workers=0)
        assert batch["image"][:, 0, 0, 0].tolist() == [int(number) + 1 for number in batch["number"]]


class Augmented:
    """A dataset that draws one of its samples at random."""

    def __init__(self, count: int, at: int | None) -> None:
        self.count, self.at, self.random = count, at, np.random.default_rng(0)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> dict[str, Any]:
        shift = self.random.integers(0, 200) if i == self.at else 0
        return {"image": np.full((8, 8, 3), shift, np.uint8), "number": i}


@pytest.mark.parametrize("count", [1, 2, 9, 30])
def test_a_dataset_that_differs_when_it_is_read_twice_is_spoken_of(count: int, tmp_path: Path) -> None:
    """The first, the middle and the last sample: a warning before anything is packed, and an error under strict."""
    for at in {0, count // 2, count - 1}:
        with pytest.warns(RuntimeWarning, match=f"differed when read twice, such as {at:08}: if its __getitem__"):
            rawpack_packer.pack(Augmented(count, at), tmp_path / f"{at}", workers=0)
        with pytest.raises(UsageError, match=r"differed when read twice.*or leave out strict=True"):
            rawpack_packer.pack(Augmented(count, at), tmp_path / f"strict {at}", workers=0, strict=True)
        assert not (tmp_path / f"strict {at}").exists()
    rawpack_packer.pack(Augmented(count, None), tmp_path / "steady", workers=0, strict=True)


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
