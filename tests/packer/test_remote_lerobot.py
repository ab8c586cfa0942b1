"""LeRobot datasets behind URLs: the store is that of the same folder on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import files_of
from running import pack, run_here

from rawpack_packer.testing.engines import check_files, settled_files

pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")

from store_server import Server, find_by_itself, serving

FIXTURES = Path(__file__).parents[1] / "support" / "fixtures" / "lerobot"
SETS = ["v30/arms", "v21/arms"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as started:
        for name in SETS:
            started.put_folder(f"bucket/{name}", files_of(FIXTURES / name))
        find_by_itself(started, monkeypatch)
        yield started


@pytest.mark.parametrize("name", SETS)
def test_the_store_is_that_of_the_folder(server: Server, name: str, tmp_path: Path) -> None:
    """By the URL of `info.json`, or by that of the folder and its kind; each file is fetched once."""
    pack(FIXTURES / name, tmp_path / "near")
    pack(f"s3://bucket/{name}/meta/info.json", tmp_path / "far")
    check_files(settled_files(tmp_path / "far"), settled_files(tmp_path / "near"))
    assert all(server.asked(path.name) for path in (FIXTURES / name).rglob("*.mp4"))
    pack(f"{server.url}/bucket/{name}/", tmp_path / "folder", "--source", "lerobot")
    check_files(settled_files(tmp_path / "folder"), settled_files(tmp_path / "near"))


def test_each_video_is_fetched_once(server: Server, tmp_path: Path) -> None:
    pack("s3://bucket/v21/arms/meta/info.json", tmp_path / "far", "--columns", "observation.images.top,action")
    assert [server.asked(f"top/episode_{k:06d}.mp4") for k in range(5)] == [1] * 5
    assert server.asked("observation.images.wrist") == 0


def test_what_is_not_there_is_named(server: Server, tmp_path: Path) -> None:
    ran = run_here("pack", f"{server.url}/bucket/v30/other/meta/info.json", tmp_path / "store")
    assert (ran.code, "there is no file" in ran.err) == (2, True)
    gone = "v30/arms/videos/observation.images.wrist/chunk-000/file-001.mp4"
    del server.files[f"bucket/{gone}"]
    ran = run_here("pack", "s3://bucket/v30/arms/meta/info.json", tmp_path / "store")
    said = f"there is no file s3://bucket/{gone}: s3://bucket/v30/arms/meta/info.json names it: copy it too, or"
    assert (ran.code, said in ran.err) == (2, True), ran.err
