"""Golden stores: what a version has packed is read by every later one, and by whoever has only the pages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import golden
import pytest
import readers_by_docs as by_docs
from folders import settled
from running import run_here

from rawpack.disk.tables import CODECS, FORMATS

VERSIONS = sorted(golden.GOLDEN.parent.iterdir())
STORES = [
    pytest.param(version, name, id=f"{version.name}-{name}")
    for version in VERSIONS
    for name in golden.stores_in(version)
]
NODE = shutil.which("node")


def expected(version: Path = golden.GOLDEN) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((version / "expected.json").read_text("utf-8"))
    return about


def manifests() -> list[dict[str, Any]]:
    return [by_docs.read_sealed(store / "store.json")[0] for store in golden.stores_in(golden.GOLDEN).values()]


@pytest.mark.parametrize(("version", "name"), STORES)
def test_a_golden_store_gives_what_it_gave(version: Path, name: str) -> None:
    """Its digest, and every value of every sample, are what they were when it was packed; it is sound."""
    gave = expected(version)["stores"][name]
    assert f"xxh3-128:{by_docs.read_sealed(version / name / 'store.json')[1]}" == gave["digest"]
    assert golden.in_one(golden.sums_of(version / name)) == gave["sums"]
    ran = run_here("inspect", "--verify", version / name)
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.parametrize("name", golden.LOSSLESS)
def test_what_is_kept_without_loss_is_what_was_packed(name: str) -> None:
    """Pixels, numbers, boxes and texts are those of the source, which is computed anew."""
    fields = by_docs.read_sealed(golden.GOLDEN / name / "store.json")[0]["fields"]
    samples, found = golden.LOSSLESS[name](), golden.sums_of(golden.GOLDEN / name)
    assert set(samples[0]) == set(fields) == set(found)
    for field, sums in found.items():
        assert sums == [golden.sum_of(sample[field], fields[field]["dtype"]) for sample in samples], field


def test_there_is_one_of_each() -> None:
    """Every format, encoding, kind of field and feature, several shards, several folders of columns, rejects. None is
    there that nobody compares."""
    for version in VERSIONS:
        assert set(golden.stores_in(version)) == set(expected(version)["stores"])
    all_of = manifests()
    fields = [field for manifest in all_of for field in manifest["fields"].values()]
    assert {manifest["format"] for manifest in all_of} == set(FORMATS)
    assert {field["encoding"] for field in fields} == set(CODECS)
    assert {field["kind"] for field in fields} == {"image", "mask", "number", "ragged", "text"}
    assert {field.get("follows") for field in fields} == {None, "rows", "keypoints", "polygons"}
    assert {name for manifest in all_of for name in manifest.get("features", ())} == {
        "several-images", "several-texts", "value-ranges"
    }  # fmt: skip
    assert {"uint8", "uint16", "int16", "int64", "float16", "float32", "float64", "bool", "str"} == {
        field["dtype"] for field in fields
    }
    assert {manifest["recipe"].get("jpeg_tables") for manifest in all_of if manifest["format"] == "lmdb"} == {
        "jpegli", None
    }  # fmt: skip
    for what in ("shards", "columns"):
        assert max(len(manifest[what]) for manifest in all_of) == 2
    assert max(manifest["rejects"]["count"] for manifest in all_of) == 1
    assert sum(path.stat().st_size for path in golden.GOLDEN.rglob("*") if path.is_file()) < 450_000


@pytest.mark.parametrize("name", golden.AGAIN)
def test_packing_today_makes_the_same_bytes(name: str, tmp_path: Path) -> None:
    """The same source gives the same files, wherever libraries are those of the golden store: so a change of what is
    written never happens by accident. A run that was killed and resumed had made them as an undisturbed one does."""
    here = golden.versions()
    then = {what: expected()["made_with"][what] for what in here}
    if here != then:
        pytest.skip(f"made with {then}, and here are {here}")
    golden.AGAIN[name](tmp_path / name)
    for part, store in golden.stores_in(tmp_path).items():
        made, kept = (
            by_docs.read_sealed(path / "store.json")[0]["recipe"]["libraries"] for path in (store, golden.GOLDEN / part)
        )
        if made != kept:
            pytest.skip(f"packed by {kept}, and here are {made}")
    assert settled(tmp_path / name) == settled(golden.GOLDEN / name)


def read_by(*command: str | Path) -> dict[str, dict[str, list[str]]]:
    """What a program prints that reads stores by the pages."""
    ran = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, dict[str, list[str]]] = json.loads(ran.stdout)
    return found


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_the_pages_are_enough_to_read_every_golden_store() -> None:
    """A script without any library, written from `docs/format/` alone, reads the values that `rawpack.Reader` reads.

    JPEG files it returns as they are, and frames of zstd only where this Node.js has zstd.
    """
    stores = golden.stores_in(golden.GOLDEN)
    has_zstd = subprocess.run(
        [str(NODE), "-e", "process.exit(require('zlib').zstdDecompressSync ? 0 : 1)"], check=False
    )
    for name, found in read_by(str(NODE), Path(__file__).with_name("read_by_docs.mjs"), *stores.values()).items():
        fields = by_docs.read_sealed(Path(name) / "store.json")[0]["fields"]
        left_out = {field for field, about in fields.items() if about["encoding"] == "jpeg"}
        if has_zstd.returncode:
            left_out |= {field for field, about in fields.items() if "zstd" in about["encoding"]}
        truth = golden.sums_of(Path(name))
        assert set(found) == set(truth) - left_out, name
        assert found == {field: truth[field] for field in found}, name


def test_other_tools_read_golden_stores_by_the_pages() -> None:
    """numpy, h5py, lmdb and Pillow, in a process that cannot import rawpack, read what is not compressed by zstd."""
    stores = [
        store
        for store, manifest in zip(golden.stores_in(golden.GOLDEN).values(), manifests(), strict=True)
        if not any("zstd" in field["encoding"] for field in manifest["fields"].values())
    ]
    assert len(stores) > 15
    for name, found in read_by(sys.executable, by_docs.__file__, *stores).items():
        truth = golden.sums_of(Path(name))
        assert found == {field: truth[field] for field in found}, name
