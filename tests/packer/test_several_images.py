"""Several images in a sample, from every kind of source: they are those that were written, and what is missing,
undeclared or ambiguous is said.

`target` is twice as large as `image`, and `depth` has 16 bits.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from archived import tar
from folders import rejects_of
from numpy.typing import NDArray
from pictures import encoded, picture
from PIL import Image
from running import run_here

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack_packer.sources import open_source

COUNT = 4
IMAGES = np.stack([picture(24, 32, i) for i in range(COUNT)])
TARGETS = 255 - IMAGES.repeat(2, 1).repeat(2, 2)
DEPTHS = np.random.default_rng(0).integers(0, 1 << 16, (COUNT, 24, 32)).astype(np.uint16)
ALL = {"image": IMAGES, "target": TARGETS, "depth": DEPTHS}
FILES = {name: [encoded(one) for one in values] for name, values in ALL.items()}
WORDS = {"target": "image", "depth": "image"}
Given = tuple[Any, dict[str, Any]]
"""A source, and the options that it is packed with."""


def written(folder: Path, names: Sequence[str] = tuple(ALL)) -> Path:
    """A folder of the files, `target1.png` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for i, data in enumerate(FILES[name]):
            (folder / f"{name}{i}.png").write_bytes(data)
    return folder


def from_csv(folder: Path) -> Given:
    lines = ["path,target,depth", *(f"image{i}.png,target{i}.png,depth{i}.png" for i in range(COUNT))]
    path = written(folder / "x") / "set.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, {"fields": ["target:image", "depth:image"]}


def from_paths(folder: Path) -> Given:
    where = written(folder / "x")
    return [{name: str(where / f"{name}{i}.png") for name in ALL} for i in range(COUNT)], {"fields": WORDS}


def channels_first(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(np.moveaxis(values, -1, 1)) if values.ndim == 4 else values


def from_npz(arrays: dict[str, Any], **options: Any) -> Callable[[Path], Given]:
    def made(folder: Path) -> Given:
        np.savez(folder / "set.npz", **arrays)
        return folder / "set.npz", {"fields": WORDS, **options}

    return made


def from_hdf5(arrays: dict[str, Any], **options: Any) -> Callable[[Path], Given]:
    """Arrays; lists of bytes as uint8 of variable length."""

    def made(folder: Path) -> Given:
        with h5py.File(folder / "set.h5", "w") as file:
            for name, values in arrays.items():
                if isinstance(values, list):
                    made = file.create_dataset(name, (len(values),), h5py.vlen_dtype(np.uint8))
                    for i, data in enumerate(values):
                        made[i] = np.frombuffer(data, np.uint8)
                else:
                    file[name] = values
        return folder / "set.h5", {"fields": WORDS, **options}

    return made


def table_of(kind: str) -> Callable[[Path], Given]:
    """Parquet of paths, or as Hugging Face writes it."""

    def made(folder: Path) -> Given:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        where = written(folder / "x", tuple(ALL) if kind == "paths" else ())
        held = {}
        for name, files in FILES.items():
            stored = [None if kind == "paths" else data for data in files]
            held[name] = [{"bytes": data, "path": f"{name}{i}.png"} for i, data in enumerate(stored)]
        table = pa.table({name: pa.array(rows, struct) for name, rows in held.items()})
        if kind == "hugging face":
            about = json.dumps({"features": {name: {"_type": "Image"} for name in ALL}})
            table = table.replace_schema_metadata({b"huggingface": b'{"info": %s}' % about.encode()})
        parquet.write_table(table, where / "set.parquet")
        return where / "set.parquet", {"fields": WORDS}

    return made


def npy(values: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def from_webdataset(
    names: dict[str, str], fields: Sequence[str], arrays: dict[str, NDArray[Any]] = ALL, lacks: str = ""
) -> Callable[[Path], Given]:
    """names: suffix of a member -> what it is. lacks: a member that is not there."""

    def made(folder: Path) -> Given:
        members = {
            f"{i}.{suffix}": npy(arrays[name][i]) if suffix.endswith("npy") else FILES[name][i]
            for i in range(COUNT)
            for suffix, name in names.items()
            if f"{i}.{suffix}" != lacks
        }
        (folder / "set.tar").write_bytes(tar(members))
        return folder / "set.tar", {"fields": fields}

    return made


def from_pairs(below: Sequence[str] = ("",), **options: Any) -> Callable[[Path], Given]:
    """Folders of files that are named alike. below: the folder of each sample, by turns."""

    def made(folder: Path) -> Given:
        for name, files in FILES.items():
            for i, data in enumerate(files):
                path = folder / name / below[i * len(below) // COUNT] / f"{i}.{'jpg' if name == 'image' else 'png'}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        images = {name: folder / name for name in WORDS}
        return folder / "image", {"images": images, **options}

    return made


FIRST = {name: channels_first(values) for name, values in ALL.items()}
MEMBERS = {"left.png": "image", "right.png": "target", "depth.png": "depth"}
NAMED = ["image=left.png", "target=right.png:image", "depth.png:image"]
SOURCES: dict[str, Callable[[Path], Given]] = {
    "csv": from_csv,
    "dict of lists": lambda _: (
        {"image": list(IMAGES), "target": FILES["target"], "depth": list(DEPTHS)},
        {"fields": WORDS},
    ),
    "dict channels first": lambda _: (dict(FIRST), {"fields": WORDS, "image": "chw"}),
    "list of PIL": lambda _: (
        [{name: Image.fromarray(values[i]) for name, values in ALL.items()} for i in range(COUNT)],
        {"fields": WORDS},
    ),
    "list of paths": from_paths,
    "npz named": from_npz(
        {"x": FIRST["image"], "y": FIRST["target"], "z": DEPTHS}, array="image=x:chw,target=y,depth=z"
    ),
    "hdf5 named": from_hdf5(
        {"a/x": IMAGES, "a/y": FIRST["target"], "b/z": DEPTHS}, array="image=a/x,target=a/y:chw,depth=b/z"
    ),
    "hdf5 arrays and files": from_hdf5({**ALL, "target": FILES["target"]}),
    "parquet paths": table_of("paths"),
    "hugging face": table_of("hugging face"),
    "webdataset": from_webdataset(MEMBERS, NAMED),
    "webdataset arrays": from_webdataset(
        {"png": "image", "target.npy": "target", "d.npy": "depth"}, ["target.npy:image", "depth=d.npy:image"]
    ),
    "pairs in classes": from_pairs(["cat", "dog/old"]),
}


def packed(folder: Path, given: Given, name: str = "store", **options: Any) -> Reader:
    source, said = given
    rawpack_packer.pack(source, folder / name, workers=0, **{"size": "keep", **said, **options})
    return Reader(folder / name)


def refused(folder: Path, given: Given, **options: Any) -> str:
    """What an error says; nothing is written."""
    with pytest.raises(UsageError) as found:
        packed(folder, given, "refused", **options)
    assert not (folder / "refused").exists()
    return str(found.value)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_further_images(kind: str, tmp_path: Path) -> None:
    """All images of all samples are those that were written, each with the size, channels and dtype of its own."""
    reader = packed(tmp_path, SOURCES[kind](tmp_path))
    assert len(reader) == COUNT
    assert {name for name, field in reader.fields.items() if field.kind == "image"} == set(ALL)
    assert reader.fields["target"].dtype == "uint8"
    assert reader.fields["depth"].exact
    assert reader.fields["depth"].dtype == "uint16"
    for i in range(COUNT):
        sample = reader[i]
        for name, values in ALL.items():
            np.testing.assert_array_equal(sample[name].reshape(values[i].shape), values[i], f"{name} of sample {i}")


# ------------------------------------------------------------------------------------------------ what is missing


def rejects(folder: Path) -> dict[str, str]:
    return {found["key"]: f"{found['reason']}: {found['detail']}" for found in rejects_of(folder / "store")}


def without(kind: str, folder: Path, i: int) -> Given:
    """A source whose sample i has no target."""
    if kind == "pairs":
        given = from_pairs()(folder)
        (folder / "target" / f"{i}.png").unlink()
        return given
    if kind == "webdataset":
        return from_webdataset(MEMBERS, NAMED, lacks=f"{i}.right.png")(folder)
    return from_hdf5({**FILES, "target": [b"" if k == i else data for k, data in enumerate(FILES["target"])]})(folder)


@pytest.mark.parametrize(
    ("kind", "missing", "said"),
    [
        ("pairs", 0, "bad_field: target: there is no image 0.* in target"),
        ("webdataset", 0, "bad_field: target: the sample has no member .right.png"),
        ("hdf5", 2, "empty: target: set.h5, row 2: there is no image"),
    ],
)
def test_a_sample_without_its_partner_is_rejected(kind: str, missing: int, said: str, tmp_path: Path) -> None:
    """The reject names the field and the file, also of the first sample; all others are packed."""
    reader = packed(tmp_path, without(kind, tmp_path, missing), max_rejects=1)
    assert [*rejects(tmp_path).values()] == [said]
    kept = [i for i in range(COUNT) if i != missing]
    for i, k in enumerate(kept):
        np.testing.assert_array_equal(reader[i]["target"], TARGETS[k])


def test_a_listing_names_the_line_of_a_missing_file(tmp_path: Path) -> None:
    """As for the images themselves, nothing is packed from a listing that is wrong, or from a list in Python."""
    listing, paths = from_csv(tmp_path), from_paths(tmp_path)
    (tmp_path / "x" / "target2.png").unlink()
    assert "set.csv: line 4, column 2 (target): there is no file target2.png below" in refused(tmp_path, listing)
    assert f"target of sample 2: there is no file {tmp_path}/x/target2.png; correct" in refused(tmp_path, paths)


def test_a_damaged_further_image_rejects_its_sample(tmp_path: Path) -> None:
    """The first one, too: another sample shows what the images are."""
    given = from_csv(tmp_path)
    (tmp_path / "x" / "target0.png").write_bytes(FILES["target"][0][:300])
    (tmp_path / "x" / "depth1.png").write_bytes(b"no image")
    assert len(packed(tmp_path, given, max_rejects=2)) == COUNT - 2
    found = rejects(tmp_path)
    assert found["image0.png"].startswith(("truncated: target: ", "corrupt: target: "))
    assert found["image1.png"].startswith("not_an_image: depth: ")


def test_gray_files_become_rgb_as_the_first_images_do(tmp_path: Path) -> None:
    """Of files, the recipe decides the colors of all images: gray ones among others are no reject."""
    given = from_csv(tmp_path)
    (tmp_path / "x" / "target0.png").write_bytes(encoded(TARGETS[0][..., 0]))
    reader = packed(tmp_path, given)
    np.testing.assert_array_equal(reader[0]["target"], TARGETS[0][..., :1].repeat(3, 2))
    np.testing.assert_array_equal(reader[1]["target"], TARGETS[1])
    gray = packed(tmp_path, given, "gray", color="gray")
    assert gray.fields["target"].shape[2] == gray.fields["image"].shape[2] == 1
    np.testing.assert_array_equal(gray[0]["target"][..., 0], TARGETS[0][..., 0])


def test_16_bits_stay_as_they_were_in_the_first_image(tmp_path: Path) -> None:
    """A 16-bit gray PNG as `image` is a picture of 8 bits; as a further image it keeps its values."""
    (tmp_path / "set.csv").write_text("path,depth\n" + "".join(f"depth{i}.png,depth{i}.png\n" for i in range(COUNT)))
    written(tmp_path, ["depth"])
    reader = packed(tmp_path, (tmp_path / "set.csv", {"fields": ["depth:image"]}))
    assert (reader.fields["image"].dtype, reader.fields["image"].shape[2]) == ("uint8", 3)
    np.testing.assert_array_equal(reader[1]["depth"][..., 0], DEPTHS[1])


# ------------------------------------------------------------------------------------------------- what is ambiguous


MIXED = {"image": IMAGES, "target": FIRST["target"]}
TARGET: dict[str, Any] = {"fields": {"target": "image"}}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda folder: (MIXED, TARGET), "np.moveaxis"),
        (from_npz(MIXED, **TARGET), "target=target:chw"),
        (lambda folder: ({"image": FIRST["image"], "target": TARGETS}, {**TARGET, "image": "chw"}),
         "seem to have their channels last"),
        (from_webdataset({"png": "image", "t.npy": "target"}, ["t.npy:image"], FIRST),
         "(3, 48, 64), and images have their channels last"),
    ],
)  # fmt: skip
def test_axes_are_asked_about(made: Callable[[Path], Given], said: str, tmp_path: Path) -> None:
    """Where the channels of one image are first and those of the other last, the error says what to write."""
    assert said in refused(tmp_path, made(tmp_path))


def test_two_images_and_nothing_said(tmp_path: Path) -> None:
    """None of the two is taken in silence: the error says how both are packed, and that works."""
    path, _ = from_webdataset({"left.png": "image", "right.png": "target"}, [])(tmp_path)
    said = refused(tmp_path, (path, {}))
    assert "fields=['image=left.png']" in said
    assert "fields={'right.png': 'image'} packs another with it" in said
    assert len(packed(tmp_path, (path, {"kind": "archive"}), "apart")) == 2 * COUNT
    given = path, {"fields": ["image=left.png", "right.png:image"]}
    np.testing.assert_array_equal(packed(tmp_path, given)[3]["right"], TARGETS[3])
    arrays = from_hdf5({"x": IMAGES, "y": TARGETS}, fields=())(tmp_path)
    said = refused(tmp_path, arrays)
    assert "several columns of images" in said
    assert "fields={'y': 'image'} stores another as a further image" in said


def test_arrays_that_look_like_images_are_told(tmp_path: Path) -> None:
    """An array that nobody declared is stored as plain numbers, with a line that says what it may be; declared as one
    of these, it is no longer told."""
    arrays = {"image": IMAGES, "label": np.arange(COUNT), "camera": TARGETS, "depth": DEPTHS}
    summary = rawpack_packer.pack(arrays, tmp_path / "store", workers=0)
    told = [line for line in summary.info.problems if "looks like images" in line]
    assert [line.split(",")[0] for line in told] == ["'camera'", "'depth'"]
    assert "fields={'camera': 'image'}, camera:mask, or camera:array" in told[0]
    assert Reader(tmp_path / "store").fields["camera"].kind == "number"
    fields = {"camera": "image", "depth": "array"}
    assert rawpack_packer.pack(arrays, tmp_path / "said", workers=0, fields=fields).info.problems == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Image.fromarray(TARGETS[0]), "fields={'target': 'image'}, or 'mask' where its pixels are labels"),
        (FILES["target"][0], "of an image file, pass fields={'target': 'image'}"),
    ],
)
def test_what_nobody_declared(value: Any, said: str, tmp_path: Path) -> None:
    """A PIL image, or the bytes of a file, next to the image is no field until somebody says what it is."""
    assert said in refused(tmp_path, ([{"image": IMAGES[0], "target": value}], {}))


# ----------------------------------------------------------------------------------------------------- folders of pairs


def test_pairs_by_the_command(tmp_path: Path) -> None:
    """The command takes the option several times; masks are named by `--field`; files without an image are counted."""
    given = from_pairs(["cat", "dog"])(tmp_path)
    (tmp_path / "target" / "dog" / "9.png").write_bytes(FILES["target"][0])
    store = tmp_path / "store"
    images = [word for name in WORDS for word in ("--images", f"{name}={tmp_path / name}/")]
    ran = run_here("pack", "-j", 0, "--size", "keep", *images, "--field", "depth:mask", given[0], store)
    assert ran.code == 0, ran.err
    assert "dog/9.png" in ran.out + ran.err
    reader = Reader(store)
    assert {name: field.kind for name, field in reader.fields.items() if field.in_shards} == {
        "image": "image", "target": "image", "depth": "mask",
    }  # fmt: skip
    assert reader.classes == ("cat", "dog")
    for i in range(COUNT):
        np.testing.assert_array_equal(reader[i]["depth"][..., 0], DEPTHS[i])
    assert open_source(given[0], **given[1]).info.counts["unpaired"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"images": {"image": "target"}}, "every sample has a field 'image' already"),
        ({"images": {"target": "image/b"}}, "of which all images are samples"),
        ({"images": {"target": "other"}}, "the first image is 0.jpg, and other contains x/0.png. Both need the same"),
        ({"images": {"target": "double"}}, "0.jpeg and 0.png belong to the same image: take out one of them"),
        ({"images": {"target": "empty"}}, "and empty contains no image"),
    ],
)
def test_wrong_pairs_are_refused(
    options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, _ = from_pairs()(tmp_path)
    for path in ("image/b/7.png", "other/x/0.png", "double/0.png", "double/0.jpeg"):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_bytes(FILES["image"][0])
    (tmp_path / "empty").mkdir()
    assert said in refused(tmp_path, (source, options))


# ------------------------------------------------------------------------------------------------- where it is no word


def test_listed_videos_have_no_further_images(tmp_path: Path) -> None:
    """All frames of a video would have the same image: that is said before any video is opened."""
    pytest.importorskip("av")
    written(tmp_path, ["target"])
    (tmp_path / "a.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (tmp_path / "set.csv").write_text("path,target\na.mp4,target0.png\n")
    said = refused(tmp_path, (tmp_path / "set.csv", {"fields": ["target:image"]}))
    assert "lists videos, and all frames of a video would have the same image" in said
