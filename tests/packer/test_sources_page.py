"""What `docs/reference/sources.md` and `rawpack doctor` say of each kind of source is so."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from unittest import mock

import cv2
import h5py
import lmdb
import numpy as np
import pytest
from archived import tar
from make_source_docs import FACTS
from pictures import picture, save
from running import pack, run_here
from videos import encode

import rawpack_packer
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


def images_in(folder: Path) -> Path:
    for i in range(4):
        save(folder / f"{i}.jpg", picture(20, 30, i))
    return folder


def tar_of(path: Path, names: dict[str, bytes]) -> Path:
    path.write_bytes(gzip.compress(tar(names)) if path.suffix == ".gz" else tar(names))
    return path


def example(kind: str, folder: Path) -> Path:
    """A small source of this kind."""
    photos = images_in(folder / "images")
    files = {path.name: path.read_bytes() for path in sorted(photos.iterdir())}
    if kind == "arrays":
        np.save(folder / "a.npy", np.stack([picture(20, 30, i) for i in range(4)]))
        return folder / "a.npy"
    if kind == "hdf5":
        with h5py.File(folder / "x.h5", "w") as file:
            file["image"], file["label"] = np.stack([picture(20, 30, i) for i in range(4)]), np.arange(4)
        return folder / "x.h5"
    if kind == "lmdb":
        with lmdb.open(str(folder / "x.lmdb"), map_size=1 << 24) as env, env.begin(write=True) as txn:
            txn.put(b"num-samples", b"4")
            for i, data in enumerate(files.values(), 1):
                txn.put(b"image-%09d" % i, data)
                txn.put(b"label-%09d" % i, b"text")
        return folder / "x.lmdb"
    if kind == "coco":
        about = {"images": [{"id": i, "file_name": name} for i, name in enumerate(files)], "annotations": []}
        (photos / "c.json").write_text(json.dumps(about | {"categories": [{"id": 1, "name": "cat"}]}))
        return photos / "c.json"
    if kind == "folder":
        return photos
    if kind in ("cvat", "labelme"):
        return FIXTURES / kind / {"cvat": "export", "labelme": "photos"}[kind]
    if kind == "listing":
        (photos / "l.csv").write_text("path,score\n" + "".join(f"{name},1\n" for name in files))
        return photos / "l.csv"
    if kind == "parquet":
        return FIXTURES / "huggingface" / "checkout" / "data" / "train-00000-of-00002.parquet"
    if kind == "mds":
        return FIXTURES / "mds" / "splits" / "train"
    if kind == "litdata":
        return FIXTURES / "litdata" / "pairs"
    if kind == "lerobot":
        return FIXTURES / "lerobot" / "v30" / "arms"
    if kind == "recordio":
        return FIXTURES / "recordio" / "plain.rec"
    if kind == "tfrecord":
        return FIXTURES / "tfrecord" / "imagenet" / "train-00000-of-00002"
    if kind == "store":
        return pack(photos, folder / "store", "--format", "lmdb")
    if kind == "video":
        return encode(folder / "v.mp4", "mpeg4", 4)
    if kind == "archive":
        return tar_of(folder / "a.tar", files)
    if kind == "voc":
        (folder / "VOC2012" / "Annotations").mkdir(parents=True)
        images_in(folder / "VOC2012" / "JPEGImages")
        for name in files:
            text = (
                f"<annotation><filename>{name}</filename><size><width>30</width><height>20</height></size></annotation>"
            )
            (folder / "VOC2012" / "Annotations" / f"{name[:-4]}.xml").write_text(text)
        return folder / "VOC2012"
    if kind == "webdataset":
        members = {f"{i}.{end}": data for i, data in enumerate(files.values()) for end, data in
                   (("jpg", data), ("cls", b"1"))}  # fmt: skip
        return tar_of(folder / "w.tar", members)
    assert kind == "yolo", f"the tests have no source of kind {kind}"
    (folder / "labels").mkdir()
    for name in files:
        (folder / "labels" / f"{name[:-4]}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    return folder


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_source_of_each_kind(kind: str, tmp_path: Path) -> None:
    """It is detected, gives its last sample first, and gives image files where the page says so."""
    source = open_source(example(kind, tmp_path))
    assert source.info.kind == kind
    last, first = source[len(source) - 1], source[0]
    assert first.key != last.key
    kept = isinstance(first.image, bytes)
    assert kept == (FACTS[kind].keeps == "yes" or kind == "store")
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
            path = tar_of(tmp_path / "c.tar.gz", {"0.jpg": b"x", "0.cls": b"1"})
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
        told = rawpack_packer.api.doctor()["sources"]
    assert "save_to_disk (pip install 'rawpack[parquet]')" in shown
    assert "(for compressed tar: pip install 'rawpack[archives]')" in shown
    assert not told["parquet"]["extra_installed"]
    assert told["folder"]["extra"] is None
