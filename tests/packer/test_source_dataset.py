"""Any dataset packs: what has a length and gives number i, in this process or in workers, and what plugins bring."""

from __future__ import annotations

import io
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
from pictures import encoded, picture, save
from PIL import Image, ImageOps
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


class Named(NamedTuple):
    label: int
    image: Any


@dataclass
class Record:
    label: int
    image: Any


IMAGES = np.stack([picture(14, 11, i) for i in range(70)])
ROWS = [(i % 2, image) for i, image in enumerate(IMAGES)]
FORMS: dict[str, Any] = {
    "methods": Pairs(70),
    "dicts": [{"label": label, "image": image} for label, image in ROWS],
    "named tuples": [Named(*row) for row in ROWS],
    "dataclasses": [Record(*row) for row in ROWS],
    "columns": {"image": IMAGES, "label": (np.arange(70) % 2).astype(np.uint8)},
    "structured": np.array(ROWS, [("label", np.int64), ("image", np.uint8, (14, 11, 3))]),
}


@pytest.mark.parametrize(("form", "workers"), [("methods", 2), ("columns", 2), *((form, 0) for form in FORMS)])
def test_what_is_a_dataset(form: str, workers: int, tmp_path: Path) -> None:
    """Arrays are stored as they are, and labels are found, whoever packs; no label is taken for an image."""
    reader = reader_of(FORMS[form], tmp_path / "s", workers=workers, shard_size=1)
    assert (len(reader), reader.fields["image"].shape, reader.fields["label"].dtype) == (70, (14, 11, 3), "int64")
    assert reader.classes == (Pairs.classes if form == "methods" else None)
    for i, sample in enumerate(reader):
        np.testing.assert_array_equal(sample["image"], IMAGES[i])
        assert (sample["label"], sample["key"]) == (i % 2, f"{i:08d}")


def test_arrays_alone_and_an_open_npz_are_datasets(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).random((9, 6, 2, 2))
    np.savez(tmp_path / "a.npz", image=whole)
    with np.load(tmp_path / "a.npz") as opened:
        for name, given in (("array", whole), ("npz", opened)):
            reader = reader_of(given, tmp_path / name, workers=0)
            np.testing.assert_array_equal([one["image"] for one in reader], whole)


def transparent(mode: str) -> Image.Image:
    """A PIL image of a mode that holds more than 8 bits of color."""
    rgb, alpha = Image.fromarray(picture(9, 7, 3)), Image.fromarray(picture(9, 7, 8)[..., 0])
    if mode == "RGB":  # of which one color is transparent
        file = io.BytesIO()
        rgb.save(file, "PNG", transparency=rgb.getpixel((0, 0)))
        return Image.open(file)
    if mode == "I;16":
        return Image.fromarray(np.asarray(alpha).astype(np.uint16) * 251)
    if mode == "P":
        image = rgb.quantize(4)
        image.info["transparency"] = bytes([255, 0, 100, 255])
        return image
    image = rgb.convert(mode)
    image.putalpha(alpha)
    return image


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16", "RGB"])
def test_a_pillow_image_is_seen_as_its_file_is(mode: str, tmp_path: Path) -> None:
    """What is transparent lies on white and 16 bits become 8, in a PIL image made or opened, as in its PNG file."""
    image, file = transparent(mode), io.BytesIO()
    assert image.mode == mode
    image.save(file, "PNG")
    given = [image, Image.open(file), file.getvalue()]
    made, opened, wanted = (one["image"] for one in reader_of(given, tmp_path / "s", workers=0, size="keep"))
    np.testing.assert_array_equal(made, wanted)
    np.testing.assert_array_equal(opened, wanted)


@pytest.mark.parametrize(("kind", "grey"), [("PNG", True), ("TIFF", False)])
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


def test_paths_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of paths, relative ones too, is a dataset of pictures, and masks may be paths. A row without one is
    rejected; a first mask that is missing stops packing."""
    given = [save(tmp_path / f"{i}.png", picture(30, 40, i)) for i in range(4)]
    monkeypatch.chdir(tmp_path)
    reader = reader_of([*given, "0.png", ""], tmp_path / "s", workers=0, max_rejects=1, size=20)
    assert (len(reader), reader.fields["image"].shape) == (5, (20, 20, 3))
    assert [one["reason"] for one in rejects_of(tmp_path / "s")] == ["unreadable"]
    assert str(tmp_path) not in (tmp_path / "s" / "rejects.jsonl").read_text()

    masks = [np.full((30, 40), i, np.uint8) for i in range(4)]
    paths = [save(tmp_path / f"m{i}.png", mask) for i, mask in enumerate(masks)]
    columns = {"image": given, "mask": [*map(str, paths)]}
    reader = reader_of(columns, tmp_path / "masks", workers=0, fields={"mask": "mask"}, size="keep")
    np.testing.assert_array_equal([one["mask"][..., 0] for one in reader], masks)
    paths[0].unlink()
    with pytest.raises(UsageError, match=f"mask of sample 0: there is no file {paths[0]}"):
        rawpack_packer.pack(columns, tmp_path / "no", workers=0, fields={"mask": "mask"})


def test_files_that_are_missing_are_named_before_packing(tmp_path: Path) -> None:
    """The first few of them, how many there are, and the first sample."""
    there = str(save(tmp_path / "0.png", picture(30, 40, 0)))
    columns = {"image": [there] * 10, "depth": [there, *(f"{tmp_path}/gone{k}.png" for k in range(8)), there]}
    with pytest.raises(UsageError, match=r"depth of sample 1: there is no file .*gone0\.png") as refused:
        rawpack_packer.pack(columns, tmp_path / "s", workers=0, max_rejects=9, size=20, fields={"depth": "image"})
    assert "8 files are missing: " in str(refused.value)
    assert "gone4.png, and 3 more; " in str(refused.value)
    assert not (tmp_path / "s").exists()


def test_a_sample_that_raises_is_rejected_with_the_exception(tmp_path: Path) -> None:
    """The first one too; of megabytes that are no UTF-8, rejects.jsonl has the beginning; too many stop the run."""
    store, errors = tmp_path / "s", {0: "no sample today", 7: "\udcff" + "x" * 2_000_000}

    def made(i: int) -> Any:
        if i in errors:
            raise RuntimeError(errors[i])
        return picture(14, 11, i)

    given = Made(20, made)
    with pytest.raises(PackError, match="source_error 2"):
        rawpack_packer.pack(given, store, workers=1)
    rawpack_packer.pack(given, store, workers=1, max_rejects=2)
    np.testing.assert_array_equal(Reader(store)[0]["image"], picture(14, 11, 1))
    first, long = rejects_of(store)
    assert (first["sample"], first["reason"], first["detail"]) == (0, "source_error", "RuntimeError: no sample today")
    assert (long["sample"], long["detail"][:23]) == (7, "RuntimeError: \\udcffxxx")
    assert verify(store) == []


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


@pytest.mark.parametrize("mode", ["L", "RGB", "1", "P", "CMYK"])
def test_pillow_images_of_one_mode_and_one_size_stay_so(mode: str, tmp_path: Path) -> None:
    """Without a size, PIL images that are all alike keep theirs, grey ones one channel, and make batches."""
    images = [Image.fromarray(picture(28, 26, i)).convert(mode) for i in range(5)]
    (batch,) = reader_of(images, tmp_path / "s", workers=0).batches(5)
    for i, image in enumerate(images):
        wanted = np.asarray(image.convert("L" if mode in ("L", "1") else "RGB")).reshape(28, 26, -1)
        np.testing.assert_array_equal(batch["image"][i], wanted)


GREY, COLOR = Image.fromarray(picture(8, 8, 1)[..., 0]), Image.fromarray(picture(8, 8, 1))


@pytest.mark.parametrize(
    ("images", "options", "shape"),
    [
        ([encoded(picture(30, 40, 1))], {}, (256, 256, 3)),
        ([picture(30, 40, 1)], {}, (30, 40, 3)),
        ([COLOR, COLOR.resize((8, 9))], {}, (256, 256, 3)),
        ([GREY], {"color": "rgb"}, (8, 8, 3)),
        ([COLOR], {"color": "gray"}, (8, 8, 1)),
    ],
)
def test_images_get_the_size_of_photographs_only_where_they_are_some(
    images: list[Any], options: dict[str, Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Files and PIL images that differ do; arrays, and PIL images that are alike, keep what is not asked otherwise."""
    assert reader_of(images, tmp_path / "s", workers=0, **options).fields["image"].shape == shape


NO_PICTURE = Image.fromarray(np.full((8, 8), 1000, np.int32))


@pytest.mark.parametrize("odd", [COLOR, NO_PICTURE], ids=["color", "no picture"])
def test_an_odd_image_among_gray_ones_is_rejected_with_the_cure(odd: Any, tmp_path: Path) -> None:
    """One PIL image in many that has colors, or no range of values, is neither changed nor lost without a word."""
    given = Made(400, lambda i: odd if i == 137 else GREY)
    rawpack_packer.pack(given, tmp_path / "s", workers=0)
    (line,) = rejects_of(tmp_path / "s")
    assert (line["sample"], f"mode {odd.mode}; others are grey" in line["detail"]) == (137, True), line
    if odd is COLOR:
        assert len(reader_of(given, tmp_path / "cured", workers=0, color="rgb")) == 400


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_of_another_size_than_was_seen_stops_with_what_to_pass(workers: int, tmp_path: Path) -> None:
    """Where one image in many has another size, none is lost: packing stops, and every way that it names packs."""
    given = Made(40, lambda i: picture(9 if i == 12 else 12, 8, i))
    with pytest.raises(PackError) as stopped:
        rawpack_packer.pack(given, tmp_path / "s", workers=workers)
    assert "sample 00000012 is an image of 9x8 (height x width)" in str(stopped.value)
    found = re.findall(r"image=(\(.*?\)\)|\S+)|(size=\d+)", str(stopped.value))
    sized, kept, seen = (eval(f"dict({way if way else f'image={shape}'})") for shape, way in found)
    reader = reader_of(given, tmp_path / "sized", workers=0, **sized)
    assert (len(reader), reader.fields["image"].shape) == (40, (256, 256, 3))
    for i, sample in enumerate(reader_of(given, tmp_path / "kept", workers=0, **kept)):
        np.testing.assert_array_equal(sample["image"], given[i])
    assert len(reader_of(given, tmp_path / "seen", workers=0, max_rejects=1, **seen)) == 39


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
        (Pairs(-1), {}, "its len() raises ValueError"),
        (Made(3, {}.__getitem__), {}, "each of its first 3 samples raises an exception, source[0] KeyError: 0"),
        ([NO_PICTURE], {}, "mode I, no picture: pass np.asarray(image)"),
        ([Image.fromarray(np.ones((4, 5), np.float32))], {}, "mode F, no picture"),
        ([np.ma.masked_less(picture(4, 4, 0), 100)], {}, "the image is a MaskedArray"),
        ([{"image": picture(4, 4, 0), "x": 2**70}], {}, "its first value is int beyond 64 bits"),
        ([np.zeros((3, 32, 32), np.float32)], {"size": 20, "image": "hwc"}, "transpose each to height, width"),
        ([{"image": picture(4, 4, 0), "y": 1}], {"fields": {"y": "float32[?,?]"}}, "only the first length"),
        ([np.zeros((4, 4), np.float32)], {"format": "lmdb"}, "format='memmap' or format='hdf5'"),
        ([np.zeros((4, 4, 3), np.uint8)], {"color": "gray"}, "keep their channels"),
        ([{"image": np.zeros((2, 2)), "index": 1}], {}, "rename it, for example to 'index_'"),
        ([{"image": np.zeros((2, 2)), "Score": 1, "score": 1}], {}, "differ only in case"),
        (Pairs(3), {"keys": ["a", "b", "b"]}, "keys[2] is 'b', as keys[1] is"),
        (Pairs(2), {"keys": ["b", "a\udcff"]}, "keys[1] is 'a\\udcff', which UTF-8 cannot encode"),
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


from_plugin.accepts = lambda path: str(path).endswith(".numbers")  # type: ignore[attr-defined]


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
        ({"folder": NUMBERS}, file, "folder", r"is a file, not a folder"),
        ({"numbers": NUMBERS, "broken": "no_such:thing"}, file, None, r"'broken' of no_such:thing cannot be loaded"),
    ):
        with plugins(**installed), pytest.raises(UsageError, match=words):
            open_source(path, kind)


@pytest.mark.parametrize("name", ["image", "label", "caption"])
def test_other_values_are_not_taken_for_those_of_a_finished_store(name: str, tmp_path: Path) -> None:
    """A call with other arrays of the same shape, or other texts beside them, is refused; it does not return the store
    of the first ones."""
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 10, 3), np.uint8)
    old = {"image": images, "label": np.zeros(9, int), "caption": ["old"] * 9}
    new = {"image": images[::-1], "label": np.ones(9, int), "caption": ["new"] * 9}
    first: dict[str, Any] = {"image": images, name: old[name]}
    rawpack_packer.pack(first, tmp_path / "store", workers=0)
    assert rawpack_packer.pack(first, tmp_path / "store", workers=0).already
    with pytest.raises(UsageError, match=r"the source differs|returned other samples than now"):
        rawpack_packer.pack(first | {name: new[name]}, tmp_path / "store", workers=0)


def stopping(shift: int = 0, stop: int = 60, random: np.random.Generator | None = None) -> Made:
    """Samples of which those from `stop` on cannot be read, and whose code, `shift`, may change."""

    def make(i: int) -> dict[str, Any]:
        if i >= stop:
            raise OSError("the disk is gone")
        more = shift if random is None else int(random.integers(200))
        return {"image": np.full((12, 16, 3), i + more, np.uint8), "label": i % 3, "number": i}

    return Made(60, make)


@pytest.mark.parametrize(("wrapped", "stop"), [(False, 50), (False, 60), (True, 60)])
def test_a_dataset_whose_code_changed_does_not_resume(wrapped: bool, stop: int, tmp_path: Path) -> None:
    """The call is refused and says so, rather than keep the samples of the older code, also of the splits of a draw,
    and of an append that stopped."""
    store = tmp_path / "store"

    def pack(dataset: Made, **options: Any) -> None:
        if wrapped:
            rawpack_packer.pack_splits(dataset, store, holdout={"val": 0.2}, workers=0, shard_size=1, **options)
        else:
            rawpack_packer.pack(dataset, store, workers=0, shard_size=1, **options)

    with nullcontext() if stop == 60 else pytest.raises(PackError, match="rejected"):
        pack(stopping(stop=stop))
    with pytest.raises(UsageError, match="dataset returned other samples than now: its code or its data"):
        pack(stopping(shift=1, stop=stop))
    pack(stopping(shift=1), restart=True)
    for folder in (store / "train", store / "val") if wrapped else (store,):
        (batch,) = Reader(folder).batches(60, workers=0)
        assert batch["image"][:, 0, 0, 0].tolist() == [int(number) + 1 for number in batch["number"]]
    if not wrapped:
        keys = [f"more {i}" for i in range(60)]
        with pytest.raises(PackError, match="rejected"):
            rawpack_packer.append(stopping(stop=50), store, keys=keys, workers=0)
        with pytest.raises(UsageError, match="returned other samples than now"):
            rawpack_packer.append(stopping(shift=1, stop=50), store, keys=keys, workers=0)


@pytest.mark.parametrize(("count", "at"), [(1, 0), (30, 15), (30, 29)])
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
    packed = rawpack_packer.pack(steady, tmp_path / "steady", workers=0, strict=True)
    assert "of the dataset's images" in str(packed.in_words())  # what files it reads is not known


@pytest.mark.filterwarnings("ignore:.*differed when read twice:RuntimeWarning")
def test_a_random_dataset_resumes(tmp_path: Path) -> None:
    """Samples that differ at each read show no change: the run resumes, and a finished store is left as it is."""
    with pytest.raises(PackError, match="rejected"):
        rawpack_packer.pack(stopping(stop=50, random=np.random.default_rng(0)), tmp_path / "store", workers=0)
    again = stopping(stop=50, random=np.random.default_rng(1))
    done = rawpack_packer.pack(again, tmp_path / "store", workers=0, max_rejects=10)
    assert len(Reader(tmp_path / "store")) == 50
    finished = rawpack_packer.pack(again, tmp_path / "store", workers=0, max_rejects=10)
    assert (finished.already, finished.digest) == (True, done.digest)
