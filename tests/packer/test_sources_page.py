"""What `docs/reference/sources.md` and `rawpack doctor` say of each kind of source is so."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest import mock

import cv2
import every_kind
import numpy as np
import pytest
from archived import tar
from make_source_docs import FACTS
from running import run_here

from rawpack import MissingExtraError
from rawpack_packer.sources import KINDS, open_source

FIXTURES = Path(__file__).parents[1] / "support" / "fixtures"
PACKAGES = {
    "lerobot": "pyarrow",
    "tfrecord": "google_crc32c",
    "archives": "rapidgzip",
    "parquet": "pyarrow",
    "video": "av",
    "yolo": "yaml",
}
"""Extra -> the module that it brings."""


KEPT = {
    "cvat": "cvat/export",
    "labelme": "labelme/photos",
    "lerobot": "lerobot/v30/arms",
    "litdata": "litdata/pairs",
    "mds": "mds/splits/train",
    "parquet": "huggingface/checkout/data/train-00000-of-00002.parquet",
    "recordio": "recordio/plain.rec",
    "tfrecord": "tfrecord/imagenet/train-00000-of-00002",
}
"""Kind -> a source that its own tools have written."""
CALLED = {"arrays": "npz", "listing": "csv"}
"""Kind -> what it is called by `every_kind.made`."""


def example(kind: str, folder: Path) -> Path:
    """A small source of this kind."""
    if kind in KEPT:
        return FIXTURES / KEPT[kind]
    files = every_kind.pictures(*(f"{i}.png" for i in range(4)))
    if kind == "archive":  # without folders
        (folder / "a.tar").write_bytes(tar(dict(files)))
        return folder / "a.tar"
    made: Path = every_kind.made(CALLED.get(kind, kind), folder / "made", [0, 1, 1, 0], files)
    return made


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_source_of_each_kind(kind: str, tmp_path: Path) -> None:
    """It is detected, gives its last sample first, and gives image files where the page says so."""
    source = open_source(example(kind, tmp_path))
    assert source.info.kind == kind
    last, first = source[len(source) - 1], source[0]
    assert first.key != last.key
    kept = isinstance(first.image, bytes)
    assert kept == (FACTS[kind].keeps != "no" and kind != "lerobot")
    if kept:
        assert cv2.imdecode(np.frombuffer(bytes(first.image), np.uint8), 1) is not None


@pytest.mark.parametrize("kind", [kind for kind in sorted(KINDS) if KINDS[kind].extra])
def test_what_needs_an_extra(kind: str, tmp_path: Path) -> None:
    """Without the package, the error names the extra; what does not need it can be read."""
    row, path = KINDS[kind], example(kind, tmp_path)
    if row.extra_for:
        with mock.patch.dict("sys.modules", {PACKAGES[row.extra]: None}):
            assert len(open_source(path)) > 0
        if row.extra == "archives":
            path = tmp_path / "c.tar.gz"
            path.write_bytes(gzip.compress(tar({"0.jpg": b"x", "0.cls": b"1"})))
        elif kind in ("mds", "litdata"):
            path = FIXTURES / kind / "packed" / {"mds": "zstd", "litdata": "batch"}[kind]
        else:
            (path / "data.yaml").write_text("names: [cat]\n")
    with (
        mock.patch.dict("sys.modules", {PACKAGES[row.extra]: None}),
        pytest.raises(MissingExtraError, match=rf"rawpack\[{row.extra}\]"),
    ):
        open_source(path, kind=kind)


def test_doctor_lists_the_sources() -> None:
    """Each kind with what it reads, and the extra that is missing."""
    shown = run_here("doctor").out
    for name, kind in KINDS.items():
        assert f"{name} " in shown
        assert kind.reads in shown
    extras = {"parquet": {"pyarrow": None}, "archives": {"rapidgzip": None}}
    with mock.patch("rawpack_packer.inspect.doctor._requirements", return_value=extras):
        shown = run_here("doctor").out
    assert "save_to_disk (pip install 'rawpack[parquet]')" in shown
    assert "(for compressed tar: pip install 'rawpack[archives]')" in shown
