"""Images whose channels come first are never stored turned: every source of arrays asks, and does what is answered.

What is right is said by numpy's own moves of axes.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from running import pack, reader_of
from test_source_arrays import idx

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack_packer.sources import dataset_forms, open_dataset, open_source

COUNT = 20


def first(*shape: int) -> NDArray[np.uint8]:
    """Images (channels, height, width)."""
    return np.random.default_rng(sum(shape)).integers(0, 256, (COUNT, *shape), np.uint8)


def last(images: NDArray[Any]) -> NDArray[Any]:
    """The same as (height, width, channels)."""
    return images.transpose(0, 2, 3, 1)


def stored(store: Path) -> NDArray[Any]:
    (batch,) = Reader(store).batches(COUNT, workers=0)
    images: NDArray[Any] = batch["image"]
    return images


def written(folder: Path, kind: str, images: NDArray[Any]) -> Path:
    """A file of arrays with these images."""
    path = folder / f"set.{kind}"
    if kind == "npy":
        np.save(path, images)
    elif kind == "npz":
        np.savez(path, images=images, label=np.arange(COUNT) % 3)
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file["images"], file["label"] = images, np.arange(COUNT) % 3
    else:
        path.write_bytes(gzip.compress(idx(images)))
    return path


@pytest.mark.parametrize("kind", ["npy", "npz", "h5", "gz"])
def test_a_file_of_arrays_does_what_is_said(kind: str, tmp_path: Path) -> None:
    images = first(3, 24, 32)
    path = written(tmp_path, kind, images)
    store = pack(path, tmp_path / "s", "--array", ":chw")
    np.testing.assert_array_equal(stored(store), last(images))
    assert ("label" in Reader(store).fields) == (kind in ("npz", "h5"))
    rawpack_packer.pack(path, tmp_path / "kept", array=":hwc", workers=0)
    np.testing.assert_array_equal(stored(tmp_path / "kept"), images)


def test_the_axes_follow_a_name(tmp_path: Path) -> None:
    """`image=NAME:chw` turns the array of that name, next to others; a name that ends so is a name first."""
    images = first(3, 16, 16)
    arrays = {"source": images, "target": np.arange(COUNT), "odd:chw": last(images)}
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(UsageError, match="--array image=source:chw moves"):
        open_source(tmp_path / "set.npz", array="image=source,label=target")
    for array in ("image=source:chw,label=target", "image=odd:chw,label=target"):
        source = open_source(tmp_path / "set.npz", array=array)
        assert source.info.options["--array"] == array
        for i in range(COUNT):
            np.testing.assert_array_equal(source[i].image, last(images)[i])
            assert source[i].fields["label"] == i


class Tensor:
    """As torch's tensors are: a shape, and numpy's view of it."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values, self.shape = values, values.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self.values


class Tuples:
    """As torch's `TensorDataset`, or a dataset with `ToTensor`."""

    def __init__(self, images: NDArray[Any]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        return Tensor(self.images[i]), i % 3


DATASETS: dict[str, Any] = {
    "tuples of tensors": Tuples,
    "dicts": lambda images: [{"image": image, "label": i} for i, image in enumerate(images)],
    "columns": lambda images: {"image": images, "label": np.arange(COUNT)},
    "an array": lambda images: images,
    "a list": list,
}


@pytest.mark.parametrize(("kind", "dtype"), [*((kind, np.uint8) for kind in DATASETS), ("an array", np.float32)])
def test_a_dataset_asks_and_does_what_is_said(kind: str, dtype: Any, tmp_path: Path) -> None:
    """Nothing is written before `image=` says where the channels are, also of floats from 0 to 1."""
    images = first(3, 24, 32)
    images = images if dtype == np.uint8 else (images / np.float32(255)).astype(np.float32)
    given, store = DATASETS[kind](images), tmp_path / "s"
    with pytest.raises(UsageError, match="image='chw' moves them to the end, image='hwc' keeps the axes"):
        rawpack_packer.pack(given, store, workers=0)
    assert not store.exists()
    rawpack_packer.pack(given, store, image="chw", workers=0)
    np.testing.assert_array_equal(stored(store), last(images))
    rawpack_packer.pack(given, tmp_path / "kept", image="hwc", workers=0)
    np.testing.assert_array_equal(stored(tmp_path / "kept"), images)


def test_gray_images_among_them_have_no_channels_to_turn(tmp_path: Path) -> None:
    images = first(3, 24, 32)
    given = [image[0] if i == 5 else image for i, image in enumerate(images)]
    rawpack_packer.pack(given, tmp_path / "s", image="chw", workers=0)
    wanted = last(images)
    wanted[5] = images[5, 0, :, :, None]
    np.testing.assert_array_equal(stored(tmp_path / "s"), wanted)


def test_a_dataset_may_say_it_itself() -> None:
    """An attribute `image` of the dataset is as good; any other text in it says nothing."""
    images = first(3, 24, 32)
    given = Tuples(images)
    given.image = "chw"  # type: ignore[attr-defined]
    np.testing.assert_array_equal(open_dataset(given)[3].image, last(images)[3])
    given.image = "cover.jpg"  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="image='chw' moves"):
        open_dataset(given)


@pytest.mark.parametrize(
    ("shape", "asks"),
    [
        ((1, 28, 28), True), ((3, 32, 3), True), ((4, 4, 64), True), ((13, 64, 64), True), ((512, 7, 7), True),
        ((32, 48, 3), False), ((4, 4, 3), False), ((5, 8, 20), False), ((24, 20, 131), False), ((8, 8, 8), False),
        ((3, 5, 6, 7), False), ((9,), False),
    ],
)  # fmt: skip
def test_which_shapes_ask(shape: tuple[int, ...], asks: bool) -> None:
    """Those whose first axis may be the channels; gray images, and (height, width, channels), are as they are."""
    images = first(*shape)
    if asks:
        with pytest.raises(UsageError, match="their channels first"):
            open_dataset(images)
        return
    np.testing.assert_array_equal(np.reshape(open_dataset(images)[5].image, shape), images[5])


def test_a_declared_shape_says_it_where_it_can(tmp_path: Path) -> None:
    """None stands where height and width are; a shape of whole numbers is asked like any other."""
    images = first(3, 24, 32)
    reader = reader_of(Tuples(images), tmp_path / "s", image=("uint8", (3, None, None)), workers=0)
    assert reader.fields["image"].shape == (None, None, 3)
    for i in range(COUNT):
        np.testing.assert_array_equal(reader[i]["image"], last(images)[i])
    with pytest.raises(UsageError, match="image='chw' moves"):
        rawpack_packer.pack(Tuples(images), tmp_path / "t", image=("uint8", (3, 24, 32)), workers=0)


def test_what_is_no_array_has_no_axes(tmp_path: Path) -> None:
    """`image="chw"` next to files, and of images with two axes, is refused and not ignored."""
    for given, words in (([b"\xff\xd8\xff"], "is for images that are arrays"), (first(24, 32), "no channels to move")):
        with pytest.raises(UsageError, match=words):
            rawpack_packer.pack(given, tmp_path / "s", image="chw", workers=0)
    with pytest.raises(UsageError, match="write image='chw' or image='hwc'"):
        rawpack_packer.pack(first(3, 24, 32), tmp_path / "s", image="cwh", workers=0)


@pytest.mark.parametrize("kind", ["array", "npy"])
def test_one_image_is_not_packed_as_its_rows(kind: str, tmp_path: Path) -> None:
    """An array (height, width, 3) alone is refused with what to type for one image, which then packs, and for
    gray images, which then pack too."""
    image, store, options = first(24, 3), tmp_path / "s", {"image": "hwc"}
    given: Any = image
    if kind == "npy":
        given, options = tmp_path / "a.npy", {"array": ":hwc"}
        np.save(given, image)
    with pytest.raises(UsageError, match=r"seems to be that of one image.*20 gray images of 24x\d: array\[None\] is"):
        rawpack_packer.pack(given, store, workers=0)
    assert not store.exists()
    rawpack_packer.pack(image[None], store, workers=0)
    np.testing.assert_array_equal(Reader(store)[0]["image"], image)
    rawpack_packer.pack(given, tmp_path / "gray", workers=0, **options)
    np.testing.assert_array_equal(stored(tmp_path / "gray")[..., 0], image)


def test_gray_images_and_small_matrices_need_no_word(tmp_path: Path) -> None:
    """(samples, height, width) packs as ever; also three columns with labels beside them, and matrices of 3x3."""
    for given in (first(28, 28), first(3, 3), first(4, 4), first(24, 2), [*first(24, 3)]):
        assert len(open_dataset(given)) == COUNT
    assert len(open_dataset({"image": first(24, 3), "label": np.arange(COUNT)})) == COUNT


@pytest.mark.parametrize("kind", ["tuple", "of lists"])
def test_columns_without_names_are_told_how_to_get_them(kind: str, tmp_path: Path) -> None:
    """`pack((x, y), dst)` writes nothing; what its error says to type packs images with their labels."""
    images, labels = last(first(3, 24, 32)), np.arange(COUNT) % 3
    source: Any = (images, labels) if kind == "tuple" else (labels.tolist(), [*images])
    with pytest.raises(UsageError, match="give columns by their names, as ") as refused:
        rawpack_packer.pack(source, tmp_path / "s", workers=0)
    assert not (tmp_path / "s").exists()
    words = str(refused.value).partition("names, as ")[2]
    rawpack_packer.pack(eval(words, {"source": source}), tmp_path / "s", workers=0)
    np.testing.assert_array_equal(stored(tmp_path / "s"), images)
    assert Reader(tmp_path / "s").column("label").tolist() == labels.tolist()


def test_samples_in_a_list_are_no_columns() -> None:
    """Two samples stay two samples: images of one height, gray and in color; pairs with a label; short videos."""
    color, gray = last(first(3, 24, 32))[0], first(24, 32)[0]
    for given in ([color, gray], (color, color), [(color, 1), (color, 2)], [first(3, 24, 32)] * 2, ["a.png", "b.png"]):
        dataset_forms.check_not_columns(given)
    assert len(open_dataset([(color, 1), (color, 2)])) == 2
