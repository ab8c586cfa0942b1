"""What Python and a notebook show of a reader and of its batches, and what is said where there is no store."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from running import Packed

import rawpack_packer
from rawpack import RawpackError, Reader, StoreError, Workers
from rawpack.epoch import notebook


def thumbnails(html: str) -> list[Any]:
    """The images inside a piece of HTML, BGR."""
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html)
    return [cv2.imdecode(np.frombuffer(base64.b64decode(one), np.uint8), cv2.IMREAD_COLOR) for one in found]


def test_reprs_are_short_and_say_what_is_there(packed: Packed) -> None:
    """Of a reader and of batches; to show batches calls nothing of the user's own."""
    store = packed("memmap", "--size", 48)
    reader = Reader(store)
    fields = "image: uint8 48x48x3, label: int64 scalar, key: str scalar"
    assert repr(reader) == f"Reader({store}: memmap, 75 samples; {fields})"
    batches = reader.batches(6, shuffle=True, seed=3, workers=Workers(2, backend="process"), fields=["image", "key"])
    assert repr(batches) == (
        "Batches(13 batches of 6 an epoch, shuffled, seed=3, 2 worker processes; "
        "image: uint8 6x48x48x3, key: str 6, index: int64 6)"
    )
    alone = repr(reader.batches(100, workers=0, image_size=(20, 30), ranks=(1, 2)))
    assert "1 batch of 75 an epoch, sequential, rank 1 of 2, no workers; image: uint8 75x20x30x3" in alone
    epochs = []
    sampled = reader.batches(3, sampler=lambda epoch: epochs.append(epoch) or [1, 2])
    drawn = len(epochs)
    assert "sampled" in repr(sampled)
    assert "sampled" in sampled._repr_html_()
    assert len(epochs) == drawn


@pytest.mark.parametrize(("layout", "size"), [("memmap", 160), ("lmdb", "keep")])
def test_a_notebook_shows_thumbnails(packed: Packed, layout: str, size: object) -> None:
    """Of four samples spread over the store, for a reader, a selection and batches, with the fields; however large the
    images are."""
    reader = Reader(packed(layout, "--size", size))
    for shown in (reader, reader.select(range(20, 60)), reader.batches(6, image_size=160, workers=2)):
        html = shown._repr_html_()
        assert len(sides := [max(image.shape) for image in thumbnails(html)]) == 4
        assert max(sides) == 96
        assert ">image</td>" in html
        assert len(html) < 60_000
    first = thumbnails(reader._repr_html_())[0]
    expected = cv2.resize(reader[0]["image"], first.shape[1::-1], interpolation=cv2.INTER_AREA)[..., ::-1]
    assert np.abs(first - expected.astype(int)).mean() < 8


def test_names_are_escaped(tmp_path: Path) -> None:
    """Names of classes and folders are text, never HTML."""
    samples = [{"image": np.zeros((8, 8, 3), np.uint8), "label": 0}] * 3
    rawpack_packer.pack(samples, tmp_path / "a&b", workers=0, classes=["<script>alert(1)</script>", "x"])
    html = Reader(tmp_path / "a&b")._repr_html_() + Reader(tmp_path / "a&b").batches(2, workers=0)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "a&amp;b" in html
    assert notebook._text("x\udc80<") == "x?&lt;"


def test_a_notebook_shows_damaged_stores(packed: Packed, tmp_path: Path) -> None:
    """A missing, shorter or changed shard never raises: the sample is named with what is wrong."""
    path = shutil.copytree(packed("lmdb", "--size", 48), tmp_path / "store")
    reader = Reader(path)
    shards = sorted(path.glob("shard-*"))
    shards[-1].unlink()
    assert "sample 74: " in reader._repr_html_()
    for shard in shards[:-1]:
        shard.write_bytes(shard.read_bytes()[:100])
    assert thumbnails(reader._repr_html_()) == []
    path = shutil.copytree(packed("memmap", "--size", 48), tmp_path / "gone")
    reader = Reader(path)
    shutil.rmtree(path)
    assert "image" in reader._repr_html_()
    assert "image" in reader.batches(4)._repr_html_()


def said(path: Path) -> str:
    """What is said of a path that is no store."""
    with pytest.raises(RawpackError) as raised:
        Reader(path)
    assert type(raised.value) is StoreError
    return str(raised.value)


def test_what_is_no_store_says_how_to_make_one(packed: Packed, tmp_path: Path) -> None:
    """An image or a folder of images gets the command and the call; a file of a store, the store's name; a misspelled
    path, the stores beside it."""
    assert said(tmp_path).endswith("The folder is empty")
    folder = tmp_path / "my photos"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(b"\xff\xd8")
    for path in (folder, folder / "photo.jpg"):
        assert f"`rawpack pack '{folder}' store/`" in said(path)
        assert f"rawpack.pack({str(folder)!r}, 'store/')" in said(path)
    assert "is a file; a store is the folder that `rawpack pack` made" in said(folder / "photo.jpg")
    for name in ("train-224", "other"):
        shutil.copytree(packed("memmap", "--size", 48), tmp_path / name)
    store = tmp_path / "train-224"
    for file in [store / "store.json", next(store.glob("shard-*")), next(store.glob("*/*")), tmp_path / "tran-224"]:
        assert said(file).endswith(f"Did you mean {store}?")
    assert f"{tmp_path}/other or {tmp_path}/train-224?" in said(tmp_path / "zzz")
    assert "does not exist" in said(tmp_path / "none" / "such")
