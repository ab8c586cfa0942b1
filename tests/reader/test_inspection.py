"""`look(reader).find`, `where_is`, `shapes`, `stores`, `damaged` and `rejects`, against the files themselves, `str` and
`json`."""

from __future__ import annotations

import io
import json
import shutil
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, save
from PIL import Image
from running import FORMATS, Packed, pack, run_here

import rawpack
from rawpack import Reader, UsageError, look


def test_shapes_are_those_of_the_samples(packed: Packed) -> None:
    for size in (40, "keep"):
        reader = Reader(packed("memmap", "--size", size))
        wanted = [reader[k]["image"].shape for k in range(75)]
        assert [tuple(shape) for shape in look(reader).shapes("image").tolist()] == wanted
        some = reader.select([5, 60, 5 + 6])
        assert [tuple(shape) for shape in look(some).shapes("image").tolist()] == [wanted[k] for k in (5, 60, 11)]
        with pytest.raises(UsageError, match="no image or mask"):
            look(reader).shapes("label")


@pytest.mark.parametrize("form", sorted(FORMATS))
@pytest.mark.parametrize("size", [40, "keep"])
def test_where_is_names_the_bytes(packed: Packed, form: str, size: object) -> None:
    """Raw pixels as they are, JPEG files whole, of compressed chunks the one that holds the sample's first bytes."""
    if (form, size) == ("hdf5-chunk4", "keep"):
        pytest.skip("--chunk counts images of one size")
    reader = Reader(packed(form, "--size", size)).select([40, 0, 1, 74])
    for row in (0, 1, 2, 3, -1):
        place = look(reader).where_is(row)["image"]
        image = reader[row]["image"]
        data = place.file.read_bytes()[place.offset : place.offset + place.bytes]
        assert len(data) == place.bytes
        encoding = reader.fields["image"].encoding
        if encoding == "raw":
            assert data == image.tobytes()
        elif encoding == "jpeg":
            assert np.abs(np.int64(Image.open(io.BytesIO(data)).convert("RGB")) - image).max() <= 3
        else:
            assert image.tobytes()[:1000] in zlib.decompress(data)
    with pytest.raises(IndexError):
        look(reader).where_is(4)


def test_find_by_condition_and_key(packed: Packed, tmp_path: Path) -> None:
    """In any case of letters, among all samples or those selected; not where one key ends and the next begins."""
    reader = Reader(packed("memmap", "--size", 40))
    keys, labels = reader.column("key"), reader.column("label")
    assert look(reader).find().tolist() == list(range(75))
    assert look(reader).find("label == 2").tolist() == [k for k in range(75) if labels[k] == 2]
    for part in ("/", keys[7], keys[7].upper(), "о", "not there", ".jpg", keys[3][-4:] + keys[4][:4], ""):
        wanted = [k for k in range(75) if part.lower() in keys[k].lower()]
        assert look(reader).find(key=part).tolist() == wanted, part
    both = [k for k in range(75) if labels[k] == 2 and "1" in keys[k]]
    assert look(reader).find("label == 2", key="1").tolist() == both
    some = reader.select(range(74, 40, -1))
    assert look(some).find(key="1").tolist() == [k for k, row in enumerate(range(74, 40, -1)) if "1" in keys[row]]
    short = ["".join(letters) for n in range(1, 5) for letters in product("aB", repeat=n)]
    rawpack.pack({"image": np.zeros((len(short), 8, 8, 3), np.uint8)}, tmp_path / "s", keys=short, workers=0)
    for part in ("aa", "aba", "babb"):
        found = look(Reader(tmp_path / "s")).find(key=part)
        assert found.tolist() == [k for k, key in enumerate(short) if part in key.lower()], part


def test_stores_are_what_their_folders_are(packed: Packed, tmp_path: Path) -> None:
    """Whatever a reader has of them; a changed label is another digest."""
    folders = [packed("memmap", "--size", 40), packed("lmdb", "--size", 40)]
    reader = Reader([*folders]).select([3, 80])
    for folder, one in zip(folders, reader.stores, strict=True):
        beside = ("store.json", "provenance.json", "provenance.npy")
        files = [path for path in folder.rglob("*") if path.is_file() and path.name not in beside]
        assert (one.path, one.samples, one.rejects) == (str(folder), 75, 0)
        assert one.bytes == sum(path.stat().st_size for path in files)
        assert one.fields["image"].shape == (40, 40, 3)
    shutil.copytree(folders[0], tmp_path / "copy")
    (tmp_path / "new.csv").write_text(f"key,label\n{Reader(folders[0]).column('key')[0]},other\n")
    assert Reader(tmp_path / "copy").stores[0].digest == reader.stores[0].digest
    assert run_here("relabel", "--quiet", "--from", tmp_path / "new.csv", tmp_path / "copy").code == 0
    assert Reader(tmp_path / "copy").stores[0].digest != reader.stores[0].digest


def test_the_index_is_the_position_and_rows_are_those_of_the_store(packed: Packed, tmp_path: Path) -> None:
    reader = Reader(packed("memmap", "--size", 40))
    assert reader.column("index").tolist() == reader.column("store_row").tolist() == list(range(75))
    some = reader.select([40, 3, 71])
    assert some.column("index").tolist() == [int(some[k]["index"]) for k in range(3)] == [0, 1, 2]
    some.column("store_row")[:] = 0  # of a copy
    assert some.column("store_row").tolist() == [40, 3, 71]
    columns = {"image": np.zeros((9, 8, 8, 3), np.uint8), "video": [0] * 9, "frame": range(9)}
    rawpack.pack(columns, tmp_path / "store", workers=0)
    frames = Reader(tmp_path / "store")
    assert frames.clips(4).column("store_row").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(UsageError, match="differs from epoch to epoch"):
        frames.clips(4, per_video=2).column("store_row")
    assert frames.clips(4, per_video=2).column("index").tolist() == [0, 1]


@pytest.mark.parametrize("form", ["memmap", "lmdb", "hdf5"])
def test_damaged_names_what_was_changed(images: Path, tmp_path: Path, form: str) -> None:
    """By one bit, in the sample that has it and in no other."""
    store = pack(images, tmp_path / "store", "--size", 40, "--format", form)
    place = look(Reader(store)).where_is(8)["image"]
    with place.file.open("r+b") as file:
        file.seek(place.offset + place.bytes // 2)
        changed = file.read(1)[0] ^ 1
        file.seek(-1, 1)
        file.write(bytes([changed]))
    reader = Reader(store)
    assert [look(reader).damaged(row) for row in (7, 8, 9)] == [[], ["image"], []]
    some = reader.select([9, 8])
    assert [look(some).damaged(row) for row in (0, 1, -1)] == [[], ["image"], ["image"]]
    with pytest.raises(IndexError):
        look(some).damaged(2)


def test_rejects_and_curation_are_those_of_the_pack(tmp_path: Path) -> None:
    for k in range(3):
        save(tmp_path / "in" / f"{k}.png", picture(30, 30, k))
    (tmp_path / "in" / "bad\u202e.jpg").write_bytes(b"no image")
    (tmp_path / "in" / "empty.jpg").write_bytes(b"")
    ran = run_here("pack", "--quiet", "--curate", "--max-rejects", 2, tmp_path / "in", tmp_path / "store")
    assert ran.code == 0
    lines = (tmp_path / "store" / "rejects.jsonl").read_text("utf-8").splitlines()
    reader = Reader(tmp_path / "store")
    assert reader.rejects == [json.loads(line) for line in lines]
    assert sorted(one["reason"] for one in reader.rejects) == ["empty", "not_an_image"]
    wanted = [np.asarray(Image.fromarray(picture(30, 30, k)).convert("L")).mean() for k in range(3)]
    np.testing.assert_allclose(look(reader).curation["brightness"], wanted, atol=1)
    assert look(reader.select([2])).curation["sharpness"].tolist() == reader.column("sharpness")[2:].tolist()
