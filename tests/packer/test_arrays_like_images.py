"""An array field that has the height and width of its image is never left behind where the image moves.

Whoever packs says what it is: a mask, which moves too, or no image, which stays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from running import pack

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.transforms import (
    CenterCrop,
    ColorJitter,
    CutMix,
    RandAugment,
    RandomCrop,
    RandomHorizontalFlip,
    Resize,
    Step,
)

COUNT, HEIGHT, WIDTH = 12, 24, 32


class Shifted(Step):
    """A user's own step that moves images and says where points go."""

    def apply(self, image: Any, drawn: Any, out: Any = None) -> Any:
        return np.roll(image, 1, axis=1)

    def apply_mask(self, mask: Any, drawn: Any, out: Any = None) -> Any:
        return np.roll(mask, 1, axis=1)


MOVING: dict[str, Any] = {
    "crop": {"transform": [RandomCrop(8)]},
    "resize": {"transform": [Resize(12)]},
    "randaugment": {"transform": [RandAugment()]},
    "cutmix": {"transform": [CutMix(num_classes=3)]},
    "flip": {"transform": [RandomHorizontalFlip()]},
    "a step of one's own": {"transform": [Shifted()]},
    "image_size": {"image_size": 16},
}
STAYING: dict[str, Any] = {
    "nothing": {},
    "colors": {"transform": [ColorJitter(0.1)]},
    "the same size": {"image_size": (HEIGHT, WIDTH), "transform": [CenterCrop((HEIGHT, WIDTH)), Resize(HEIGHT)]},
}


def columns(shape: tuple[int, ...] = (HEIGHT, WIDTH), **more: Any) -> dict[str, Any]:
    images = np.stack([picture(HEIGHT, WIDTH, i) for i in range(COUNT)])
    other = np.arange(COUNT * np.prod(shape), dtype=np.float32).reshape(COUNT, *shape)
    return {"image": images, "label": np.arange(COUNT) % 3, "other": other, **more}


def packed(where: Path, given: Any, **options: Any) -> Path:
    rawpack_packer.pack(given, where, workers=0, **options)
    return where


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a field that looks like its images, of which nobody said what it is."""
    return packed(tmp_path_factory.mktemp("plain") / "s", columns())


@pytest.mark.parametrize("how", MOVING)
def test_what_moves_images_refuses_an_array_that_looks_like_them(how: str, plain: Path) -> None:
    """At once, with the field, both shapes and all three ways out; without the field, batches come."""
    with pytest.raises(UsageError) as refused:
        Reader(plain).batches(4, workers=0, **MOVING[how])
    for words in ("'other', float32 (24, 32)", "fields={'other': 'mask'}", "fields={'other': 'array'}", "with fields="):
        assert words in str(refused.value)
    batches = Reader(plain).batches(4, workers=0, fields=["image", "label"], **MOVING[how])
    assert "other" not in next(iter(batches))


@pytest.mark.parametrize("how", STAYING)
def test_what_leaves_pixels_in_place_takes_any_array(how: str, plain: Path) -> None:
    (batch,) = Reader(plain).batches(COUNT, workers=0, **STAYING[how])
    np.testing.assert_array_equal(batch["other"], columns()["other"])


@pytest.mark.parametrize(
    ("shape", "moves"),
    [
        ((HEIGHT, WIDTH, 3), True), ((3, HEIGHT, WIDTH), True), ((5, HEIGHT, WIDTH, 1), True),
        ((), False), ((HEIGHT,), False), ((HEIGHT, 3, WIDTH), False),
    ],
)  # fmt: skip
def test_the_size_may_stand_anywhere_in_the_shape(shape: tuple[int, ...], moves: bool, tmp_path: Path) -> None:
    """Second images, also with their channels first, and stacks of them; other arrays come with crops and flips."""
    store = packed(tmp_path / "s", columns(shape))
    how: dict[str, Any] = {"transform": [RandomCrop(8), RandomHorizontalFlip()], "workers": 0}
    if moves:
        with pytest.raises(UsageError, match="has the same height and width but would stay as it is"):
            Reader(store).batches(4, **how)
        return
    (batch,) = Reader(store).batches(COUNT, **how)
    np.testing.assert_array_equal(batch["other"], columns(shape)["other"])


def test_said_to_be_an_array_it_stays(tmp_path: Path) -> None:
    """Appended, converted and merged too; a field that is said to be an array in one of these only is another field."""
    store = packed(tmp_path / "s", columns(), fields={"other": "array"}, format="hdf5")
    rawpack_packer.append(columns(), store, fields={"other": "array"}, workers=0)
    rawpack_packer.convert(store, tmp_path / "converted", format="memmap", size=16, workers=0)
    both = [store, tmp_path / "converted"]
    rawpack_packer.merge(both, tmp_path / "merged", prefix="names", format="memmap", size=16, workers=0)
    for one in (*both, tmp_path / "merged"):
        assert Reader(one).fields["other"].array
        batch = next(iter(Reader(one).batches(COUNT, transform=[RandomCrop(8)], workers=0)))
        np.testing.assert_array_equal(batch["other"], columns()["other"])
    with pytest.raises(UsageError, match="declared as array there"):
        rawpack_packer.append(columns(), store, workers=0)


@pytest.mark.parametrize("alike", [True, False])
def test_where_sizes_may_differ_images_are_looked_at(alike: bool, tmp_path: Path) -> None:
    """With images kept at their own size, an array is refused if all that are looked at have its size."""
    given = [
        {"image": picture(HEIGHT, WIDTH if alike else WIDTH + i, i), "other": np.zeros((HEIGHT, WIDTH), np.float32)}
        for i in range(4)
    ]
    store = packed(tmp_path / "s", given, image=("uint8", (None, None, 3)))
    if alike:
        with pytest.raises(UsageError, match="has the same height and width"):
            Reader(store).batches(2, transform=[RandomCrop(8)])
    else:
        assert next(iter(Reader(store).batches(2, transform=[RandomCrop(8)], workers=0)))["other"].shape == (2, 24, 32)


def test_a_mix_is_as_careful_as_its_stores(plain: Path, tmp_path: Path) -> None:
    """Read together, a field is no image only where all stores say so."""
    said = packed(tmp_path / "s", columns(), fields={"other": "array"})
    for first, second in ((plain, said), (said, plain)):
        with pytest.raises(UsageError, match="'other': 'array'"):
            Reader([first, second]).batches(4, transform=[RandomHorizontalFlip()])
        with pytest.raises(UsageError, match="'other': 'array'"):
            Reader.mix({first: 1, second: 1}).batches(4, transform=[RandomHorizontalFlip()])
    Reader([said, said]).batches(4, transform=[RandomHorizontalFlip()])


@pytest.mark.parametrize("options", [{"size": 16}, {"crop": (2, 2, 8, 8)}])
def test_packing_does_not_leave_it_behind_either(options: dict[str, Any], tmp_path: Path) -> None:
    """A size or a crop that changes the image alone is refused, with the words; each of them packs."""
    with pytest.raises(UsageError, match=r"fields=\{'other': 'mask'\}.*fields=\{'other': 'array'\}"):
        packed(tmp_path / "s", columns(), **options)
    assert not (tmp_path / "s").exists()
    side = options.get("size", 8)
    masks = Reader(packed(tmp_path / "m", columns(), fields={"other": "mask"}, **options))
    assert masks.fields["other"].shape == (side, side, 1)
    (batch,) = Reader(packed(tmp_path / "a", columns(), fields={"other": "array"}, **options)).batches(COUNT, workers=0)
    np.testing.assert_array_equal(batch["other"], columns()["other"])
    packed(tmp_path / "same", columns(), size=(HEIGHT, WIDTH))


def test_files_of_images_are_measured_as_they_are_packed(tmp_path: Path) -> None:
    """Next to JPEG and PNG files, whose size nobody knows before, such samples are rejected with the words."""
    given = [
        {"image": encoded(picture(HEIGHT, width, 1)), "other": np.zeros((HEIGHT, WIDTH), np.float32)}
        for width in (WIDTH, WIDTH, WIDTH + 1)
    ]
    summary = rawpack_packer.pack(given, tmp_path / "s", size=16, workers=0, max_rejects=2)
    assert summary.manifest.rejects.reasons == {"bad_field": 2}
    assert "--field other:array says that it is no image" in (tmp_path / "s" / "rejects.jsonl").read_text()
    assert len(Reader(packed(tmp_path / "a", given, size=16, fields={"other": "array"}))) == 3
    assert len(Reader(packed(tmp_path / "k", given, size="keep"))) == 3


def test_a_store_that_is_converted_keeps_both_together(plain: Path, tmp_path: Path) -> None:
    """A convert that would resize the images alone is refused; one that leaves them is not."""
    with pytest.raises(UsageError, match="packed again with it from its source"):
        rawpack_packer.convert(plain, tmp_path / "s", size=16, workers=0)
    rawpack_packer.convert(plain, tmp_path / "s", format="hdf5", workers=0)


def test_files_of_arrays_may_have_masks(tmp_path: Path) -> None:
    """`--field NAME:mask` makes an array of an .npz or HDF5 file move with its image, also with channels first."""
    masks = (np.arange(COUNT * HEIGHT * WIDTH) % 7).reshape(COUNT, HEIGHT, WIDTH).astype(np.uint16)
    np.savez(path := tmp_path / "set.npz", image=columns()["image"].transpose(0, 3, 1, 2), seg=masks)
    options = ("--array", ":chw", "--field", "seg:mask")
    np.testing.assert_array_equal(Reader(pack(path, tmp_path / "whole", *options))[5]["seg"][..., 0], masks[5])
    fields = Reader(pack(path, tmp_path / "small", *options, "--size", 8)).fields
    assert (fields["seg"].kind, fields["seg"].shape[:2], fields["image"].shape[:2]) == ("mask", (8, 8), (8, 8))
