"""What rawpack does not read stops with the section of a page that packs it; the lines there do."""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from pictures import encoded, picture
from PIL import Image
from running import run_here
from tfrecords import tfrecord

import rawpack_packer
from rawpack import Reader

COUNT = 6
ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/how-to/what-is-not-read.md"


def jpeg(seed: int, **options: Any) -> bytes:
    return encoded(picture(24, 32, seed), "JPEG", **options)


def code_of(section: str) -> str:
    """The Python of a section of the page."""
    text = (ROOT / PAGE).read_text("utf-8")
    inside = re.split(r"^## ", text, flags=re.MULTILINE)
    (found,) = [one for one in inside if one.startswith(section)]
    return "\n".join(re.findall(r"^```python\n(.*?)^```", found, re.MULTILINE | re.DOTALL))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is in a folder of its own, as `store/` is."""
    monkeypatch.chdir(tmp_path)


def write_lmdb(values: dict[bytes, bytes]) -> None:
    with lmdb.open("set.lmdb", map_size=1 << 26) as database, database.begin(write=True) as write:
        for key, value in values.items():
            write.put(key, value)


def write_files(suffix: str) -> None:
    Path("set").mkdir()
    for n in range(2):
        (Path("set") / f"{n}{suffix}").write_bytes(b"x")


UNREAD: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a pickle": (lambda: Path("set.pkl").write_bytes(pickle.dumps([1])), "set.pkl", "pickles"),
    "FFCV's": (lambda: Path("set.beton").write_bytes(b"x"), "set.beton", "ffcv"),
    "a folder of .npy": (lambda: write_files(".npy"), "set", "arrays-in-files-of-their-own"),
    "a folder of .mat": (lambda: write_files(".mat"), "set", "matlab"),
    "an LMDB of pickles": (
        lambda: write_lmdb({b"%d" % n: pickle.dumps({"img": jpeg(n)}) for n in range(2)}), "set.lmdb", "lmdb"),
    "an LMDB of pixels": (
        lambda: write_lmdb({b"%d" % n: picture(270, 480, n).tobytes() for n in range(2)}), "set.lmdb", "lmdb"),
    "TFRecord of pixels": (
        lambda: Path("set.tfrecord").write_bytes(tfrecord([{"image_raw": bytes(48), "height": 4}])), "set.tfrecord",
        "tfrecord"),
}  # fmt: skip


def test_cifar_is_packed_by_the_dataset_of_torchvision() -> None:
    """Its folder, also one split of it, which lies there or not."""
    Path("cifar-10-batches-py").mkdir()
    (Path("cifar-10-batches-py") / "data_batch_1").write_bytes(pickle.dumps({b"data": picture(32, 32, 0)}))
    for path in ("cifar-10-batches-py", "cifar-10-batches-py/test"):
        ran = run_here("pack", path, "other/")
        assert (ran.code, Path("other").exists()) == (2, False)
        assert "rawpack.pack(torchvision.datasets.CIFAR10('.', download=True), 'store/')" in ran.err


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_stops_with_its_section(name: str) -> None:
    """Whatever is in the file, one line on stderr, and nothing is written: no shape, name or class is guessed."""
    write, path, section = UNREAD[name]
    write()
    ran = run_here("pack", path, "other/")
    assert (ran.code, ran.out, ran.err.count("\n"), Path("other").exists()) == (2, "", 1, False), ran
    assert path in ran.err
    assert f"see {PAGE}#{section}" in ran.err


def test_the_pages_that_messages_name_exist() -> None:
    """So do the sections, by the addresses that GitHub gives them."""
    files = [path for room in ("packer/rawpack_packer", "reader/rawpack") for path in (ROOT / room).rglob("*.py")]
    named = {one for path in files for one in re.findall(r"docs/[\w/-]+\.md(?:#[\w-]+)?", path.read_text("utf-8"))}
    assert f"{PAGE}#lmdb" in named
    for address in sorted(named):
        page, _, section = address.partition("#")
        heads = re.findall(r"^#+ (.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        sections = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
        assert section in {"", *sections}, address


def test_the_lines_for_ffcv_read_its_file() -> None:
    """By its header: JPEG files, raw pixels, and numbers."""
    images = [jpeg(n) if n % 2 else picture(24, 32, n).tobytes() for n in range(COUNT)]
    row = np.dtype([("", [("", "?"), ("", "<u2"), ("", "<u2"), ("", "<u8")]), ("", "<i8"), ("", "<f8")], align=True)
    head = b"".join(
        bytes([kind]) + name.ljust(16, b"\0") + bytes(1024) for kind, name in ((2, b"img"), (1, b"label"), (0, b"x"))
    )
    at = 24 + len(head) + COUNT * row.itemsize
    starts = [at + sum(map(len, images[:n])) for n in range(COUNT)]
    rows = np.array([((n % 2 == 0, 32, 24, starts[n]), n % 3, n / 4) for n in range(COUNT)], row)
    table = np.array([(n, starts[n], len(images[n])) for n in range(COUNT)], "<u8")
    header = struct.pack("<HHIQQ", 2, 3, 1 << 21, COUNT, at + sum(map(len, images)))
    Path("set.beton").write_bytes(b"".join([header, head, rows.tobytes(), *images, table.tobytes()]))
    names: dict[str, Any] = {"np": np}
    exec(compile(code_of("FFCV"), "<page>", "exec"), names)
    data = names["Beton"]("set.beton")
    rawpack_packer.pack(data, "store", size="keep", workers=0, names={"image": "img", "label": "label"})
    reader = Reader("store/")
    for n in range(COUNT):
        wanted = np.asarray(Image.open(io.BytesIO(images[n]))) if n % 2 else picture(24, 32, n)
        np.testing.assert_array_equal(reader[n]["image"], wanted)
        assert (reader[n]["label"], reader[n]["x"]) == (n % 3, n / 4)
