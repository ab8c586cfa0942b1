"""Streaming and litdata, where they are installed: what they write now is what they read, and the lines that pack what
rawpack does not read do so. Neither is a test dependency, since both bring torch."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from PIL import Image

import rawpack
from rawpack.errors import UsageError
from rawpack_packer.sources import open_source

pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore")]  # streaming leaves files open
COUNT = 40


def jpeg(i: int) -> bytes:
    return encoded(picture(20 + i % 3, 30, i), "JPEG")


def mds(root: Path, **options: Any) -> Any:
    """What streaming reads of what it wrote."""
    streaming = pytest.importorskip("streaming")
    columns = {"image": "jpeg", "class": "int", "text": "str", "array": "ndarray", "score": "float32", "pil": "pil"}
    with streaming.MDSWriter(out=str(root), columns=columns, size_limit=30_000, **options) as out:
        for i in range(COUNT):
            array = np.arange(i % 4 + 1, dtype=np.int32)
            pil = Image.fromarray(picture(8, 9, i))
            out.write({"image": jpeg(i), "class": i, "text": f"t{i}", "array": array, "score": i / 4, "pil": pil})
    return streaming.StreamingDataset(local=str(root), batch_size=1)


def sample(i: int) -> dict[str, Any]:
    array = np.arange(i % 4 + 1, dtype=np.int32)
    image = Image.open(io.BytesIO(jpeg(i))).convert("RGB")
    return {"image": image, "class": i, "text": f"t{i}", "array": array, "raw": jpeg(i)}


def pickled(i: int) -> dict[str, Any]:
    return {"image": sample(i)["image"], "class": i, "about": np.int64(i)}


def litdata(root: Path, fn: Callable[[int], Any] = sample, **options: Any) -> Any:
    """As `mds`."""
    lit = pytest.importorskip("litdata")
    lit.optimize(fn, list(range(COUNT)), str(root), num_workers=1, chunk_size=7, **options)
    return lit.StreamingDataset(str(root), shuffle=False)


def pixels(value: Any) -> str:
    """SHA-256 of the pixels of a PIL image, an array or a file."""
    image = Image.open(io.BytesIO(value)) if isinstance(value, bytes) else value
    return hashlib.sha256(np.asarray(image).tobytes()).hexdigest()


@pytest.mark.parametrize("options", [
    {}, *({"compression": one} for one in ("br:4", "bz2", "gz:1", "snappy", "zstd:7")),
    {"hashes": ["blake2b", "md5", "sha256", "xxh128", "xxh32", "xxh3_64"]},
])  # fmt: skip
def test_mds(options: Mapping[str, Any], tmp_path: Path) -> None:
    theirs = mds(tmp_path / "set", **options)
    source = open_source(tmp_path / "set", image_column="image", fields={"pil": "image"})
    assert len(source) == len(theirs) == COUNT
    for i in range(COUNT):
        mine, one = source[i], theirs[i]
        assert pixels(mine.image) == pixels(one["image"])
        assert pixels(mine.fields["pil"]) == pixels(one["pil"])
        assert (mine.fields["label"], mine.fields["text"]) == (one["class"], one["text"])
        np.testing.assert_array_equal(mine.fields["array"], one["array"])  # type: ignore[arg-type]
        assert mine.fields["score"] == one["score"]


@pytest.mark.parametrize("options", [
    {}, *({"compression": "zstd:3", "compression_level": one} for one in ("chunk", "batch", "sample")),
])  # fmt: skip
def test_litdata(options: Mapping[str, Any], tmp_path: Path) -> None:
    theirs = litdata(tmp_path / "theirs", **options)
    shutil.copytree(tmp_path / "theirs", tmp_path / "set")  # litdata removes compressed chunks that it has read
    source = open_source(tmp_path / "set", image_column="image", fields={"raw": "image"})
    assert len(source) == len(theirs) == COUNT
    for i in range(COUNT):
        mine, one = source[i], theirs[i]
        assert pixels(mine.image) == pixels(one["image"])
        assert mine.fields["raw"] == bytes(one["raw"])
        assert (mine.fields["label"], mine.fields["text"]) == (one["class"], one["text"])
        np.testing.assert_array_equal(mine.fields["array"], one["array"])  # type: ignore[arg-type]
    again = open_source(tmp_path / "theirs", image_column="image", columns="text")
    assert [again[i].fields["text"] for i in range(COUNT)] == [f"t{i}" for i in range(COUNT)]


@pytest.mark.parametrize("library", ["streaming", "litdata"])
def test_the_lines_pack_what_is_pickled(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip(library)
    if library == "litdata":
        litdata(tmp_path / "set", pickled)
    else:
        columns = {"image": "jpeg", "class": "int", "about": "pkl"}
        with package.MDSWriter(out=str(tmp_path / "set"), columns=columns) as out:
            for i in range(COUNT):
                out.write({"image": jpeg(i), "class": i, "about": {"a": i}})
    with pytest.raises(UsageError) as refused:
        open_source(tmp_path / "set")
    lines = re.sub(r"(?m)^ {4}", "", str(refused.value).partition("\n\n")[2])
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    reader = rawpack.Reader(tmp_path / "store")
    assert [reader[i]["label"] for i in range(COUNT)] == [*range(COUNT)]
    assert {"about", "label"} <= {*reader.fields}
