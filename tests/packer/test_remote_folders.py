"""MDS, litdata and LeRobot behind URLs: the store is that of the folder on the disk, and each file is fetched once."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from folders import files_of
from reading import SOAK
from running import pack, run_here
from videos import looked_through_here  # noqa: F401

import rawpack
from rawpack_packer.testing.engines import check_files, settled_files

pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")

from store_server import Server, find_by_itself, serving

FIXTURES = Path(__file__).parents[1] / "support" / "fixtures"
SETS = (
    "mds/splits/train", "mds/packed/gz", "mds/packed/zstd", "litdata/dicts", "litdata/packed/batch",
    "lerobot/v30/arms", "lerobot/v21/arms",
)  # fmt: skip
SMALL = ("--size", 16)


@pytest.fixture(scope="module")
def sets() -> dict[str, dict[str, bytes]]:
    return {name: files_of(FIXTURES / name) for name in SETS}


@pytest.fixture
def server(sets: dict[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as started:
        for name, files in sets.items():
            started.put_folder(f"bucket/{name}", files)
        find_by_itself(started, monkeypatch)
        yield started


@pytest.fixture(params=["http", "s3"])
def bucket(server: Server, request: pytest.FixtureRequest) -> str:
    """The URL of what the server has."""
    return f"{server.url}/bucket" if request.param == "http" else "s3://bucket"


SCHEMES = {"mds/packed/zstd": ["s3"], "litdata/packed/batch": ["http"], "lerobot/v30/arms": ["s3"]}
"""By which a set is asked for; in a long run, each by both."""


@pytest.mark.usefixtures("looked_through_here")
@pytest.mark.parametrize(
    ("bucket", "name"),
    [(scheme, name) for name in SETS for scheme in (("http", "s3") if SOAK else SCHEMES.get(name, ()))],
    indirect=["bucket"],
)
def test_the_store_is_that_of_the_folder(server: Server, bucket: str, name: str, tmp_path: Path) -> None:
    """By the URL of the index, which says what it is, or by that of the folder and its kind."""
    kind = name.partition("/")[0]
    index, options = ("meta/info.json", ()) if kind == "lerobot" else ("index.json", SMALL)
    pack(FIXTURES / name, tmp_path / "near", *options)
    pack(f"{bucket}/{name}/{index}", tmp_path / "far", *options)
    check_files(settled_files(tmp_path / "far"), settled_files(tmp_path / "near"))
    files = [path for path in (FIXTURES / name).rglob("*.*") if path.name != index]
    if kind == "lerobot":  # videos of two cameras have the same names
        assert all(server.asked(path.name) for path in files if path.suffix == ".mp4")
    else:
        assert all(server.asked(path.name) == 1 for path in files)
    if kind == "lerobot":  # four frames of the 37
        options = ("--episodes", "4")
        pack(FIXTURES / name, tmp_path / "near", "--restart", *options)
    pack(f"{bucket}/{name}/", tmp_path / "folder", "--source", kind, *options)
    check_files(settled_files(tmp_path / "folder"), settled_files(tmp_path / "near"))


def test_each_video_is_fetched_once(server: Server, tmp_path: Path) -> None:
    url = "s3://bucket/lerobot/v21/arms/meta/info.json"
    pack(url, tmp_path / "far", "--columns", "observation.images.top,action")
    assert [server.asked(f"top/episode_{k:06d}.mp4") for k in range(5)] == [1] * 5
    assert server.asked("observation.images.wrist") == 0


def test_what_is_no_index(server: Server, tmp_path: Path) -> None:
    server.put_folder("bucket/other", {"index.json": b"{}"})
    ran = run_here("pack", f"{server.url}/bucket/other/index.json", tmp_path / "store")
    assert ran.code == 2
    assert "does not say what it is" in ran.err
    for options in (("--source", "mds", "mds/nothing/"), ("lerobot/v30/other/meta/info.json",)):
        ran = run_here("pack", *options[:-1], f"{server.url}/bucket/{options[-1]}", tmp_path / "store")
        assert (ran.code, "there is no file" in ran.err) == (2, True), ran


@pytest.mark.parametrize("name", ["mds/splits/train", "litdata/dicts"])
def test_a_shard_that_was_not_uploaded(server: Server, bucket: str, name: str, tmp_path: Path) -> None:
    """It is said to be missing, with its URL and the index that names it, and not to be damaged."""
    root = f"{bucket}/{name}"
    shard = max(path.name for path in (FIXTURES / name).iterdir() if path.name != "index.json")
    del server.files[f"bucket/{name}/{shard}"]
    server.files[f"bucket/{name}/{shard}/part"] = b"of 1 byte"
    ran = run_here("pack", f"{root}/index.json", tmp_path / "store")
    said = f"rawpack: there is no file {root}/{shard}: {root}/index.json names it: copy it too"
    stays, error = ran.err.split("\n", 1)
    assert "that were fetched stay in" in stays
    assert (ran.code, error.startswith(said)) == (2, True), ran.err


def test_a_shard_that_was_decompressed(server: Server, bucket: str, tmp_path: Path) -> None:
    """One file of each shard is enough, compressed or not; where neither is there, both are named."""
    root = f"{bucket}/mds/packed/gz"
    pack(FIXTURES / "mds/packed/gz", tmp_path / "near", *SMALL)
    raw, packed = "bucket/mds/packed/gz/shard.00001.mds", "bucket/mds/packed/gz/shard.00001.mds.gz"
    server.files[raw] = gzip.decompress(server.files.pop(packed))
    pack(f"{root}/index.json", tmp_path / "far", *SMALL)
    near, far = rawpack.Reader(tmp_path / "near"), rawpack.Reader(tmp_path / "far")
    assert len(near) == len(far)
    for one, other in zip(near, far, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])
    del server.files[raw]
    ran = run_here("pack", f"{root}/index.json", tmp_path / "none")
    said = f"there is no file {root}/shard.00001.mds.gz or {root}/shard.00001.mds: {root}/index.json names it"
    assert (ran.code, said in ran.err) == (2, True), ran.err
