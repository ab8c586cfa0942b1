"""Processes whose standard streams are closed, as a daemon's or a cron job's may be, read and pack as others do."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import flip
from forked import Forks
from pictures import picture, save
from reading import Truth
from running import command, environment

import rawpack_packer
from rawpack_packer.api import verify

ALL = "<&- >&- 2>&-"
CLOSED = (">&-", "2>&-", ALL)
"""What a shell is told, to close a stream and all of them."""
IMAGES = 8


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams") / "images"
    for number in range(IMAGES):
        save(folder / str(number % 2) / f"{number}.png", picture(20, 24, number))
    return folder


@pytest.fixture(scope="module")
def store(images: Path) -> Path:
    rawpack_packer.pack(images, images.with_name("store"), size=16, workers=0)
    return images.with_name("store")


def closing(streams: str) -> str:
    """Code that closes streams of its process, as they are where Python starts without them."""
    code = "import os, sys\n"
    for number, (name, told) in enumerate({"stdin": "<&-", "stdout": " >&-", "stderr": "2>&-"}.items()):
        if told in f" {streams}":
            code += f"os.close({number})\nsys.{name} = sys.__{name}__ = None\n"
    return code


def python(forks: Forks, streams: str, folder: Path, text: str) -> Any:
    """Run a script with these streams closed; what it left in `found`, or its traceback."""
    left = folder / "found.json"
    code = (
        "import json, os, sys, traceback\nfound = None\ntry:\n"
        + "".join(f"    {line}\n" for line in text.splitlines())
        + f"except BaseException:\n    found = traceback.format_exc()\njson.dump(found, open({str(left)!r}, 'w'))\n"
    )
    assert forks.run(closing(streams) + code).code == 0
    return json.loads(left.read_text())


TRAIN = """
import rawpack
workers = rawpack.Workers(2, backend="process")
batches = rawpack.Reader({store!r}, preload=True).batches(2, workers=workers, shuffle=True)
rows = [row for _ in range(2) for batch in batches for row in batch["index"].tolist()]
links = []
for number in range(3):
    if os.path.lexists(f"/proc/self/fd/{{number}}"):
        links.append(os.readlink(f"/proc/self/fd/{{number}}"))
found = sorted(rows), links
"""


@pytest.mark.parametrize("streams", CLOSED)
def test_workers_start(forks: Forks, streams: str, store: Path, tmp_path: Path) -> None:
    """Worker processes start and serve whole epochs, and nothing that they are given has the number of a stream."""
    found = python(forks, streams, tmp_path, TRAIN.format(store=str(store)))
    assert isinstance(found, list), found
    rows, links = found
    assert rows == sorted([*range(IMAGES)] * 2)
    assert not [link for link in links if "socket" in link or "memfd" in link]


@pytest.mark.parametrize("form", ["memmap", "hdf5", "lmdb"])
def test_what_libraries_print_gets_into_no_file(forks: Forks, form: str, tmp_path: Path) -> None:
    """A store that such a process packs by itself holds its images, and not what C libraries print to descriptors."""
    text = f"""
import numpy as np, rawpack
class Noisy:
    def __len__(self):
        return 70
    def __getitem__(self, i):
        for number in range(3):
            try:
                os.write(number, b"libpng warning: iCCP: known incorrect sRGB profile")
            except OSError:
                pass
        return {{"image": np.full((16, 16, 3), i, np.uint8), "label": i}}
rawpack.pack(Noisy(), {str(tmp_path / "store")!r}, format={form!r}, size=16, workers=0)
"""
    assert python(forks, ALL, tmp_path, text) is None
    assert verify(tmp_path / "store") == []
    if form == "memmap":
        assert np.array_equal(Truth(tmp_path / "store").images[:, 0, 0, 0], np.arange(70))


def test_the_command_runs(forks: Forks, images: Path, store: Path, tmp_path: Path) -> None:
    """`pack` with workers does what it always does, and prints to the streams that are open; so does `inspect`."""
    words = ["pack", "--size", 16, "--workers", 2, images]
    for streams in (">&-", "2>&-"):
        ran = forks.command(*words, tmp_path / streams, before=closing(streams))
        assert (ran.code, "read it" in ran.out, "8 images" in ran.err) == (0, streams == "2>&-", streams == ">&-")
    shell = f"exec {shlex.join(map(str, [*command(), *words, tmp_path / ALL]))} {ALL}"
    assert subprocess.run(["sh", "-c", shell], timeout=100, env=environment(), check=False).returncode == 0
    for streams in CLOSED:
        assert np.array_equal(Truth(tmp_path / streams).images, Truth(store).images)
    flip(tmp_path / ALL / "shard-00000.npy", -1)
    assert forks.command("inspect", "--verify", tmp_path / ALL, before=closing(ALL)).code == 1
