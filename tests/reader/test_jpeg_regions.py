"""Boxes of JPEGs by nvImageCodec: the pixels and the refusals of the plain path, and nothing on stderr."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from running import run_here

from rawpack import Reader, Workers, jpeg
from rawpack.errors import DecodeError
from rawpack.jpeg import choice, with_nvimgcodec
from rawpack.jpeg.captured_stderr import captured_stderr
from rawpack.jpeg.decoder import Box, Pixels
from rawpack.transforms import RandomCrop

OPENED = choice.open_regions()
installed = pytest.mark.skipif(isinstance(OPENED, str), reason=f"nvImageCodec does not work here: {OPENED}")
SAMPLING = {"444": 0, "422": 1, "420": 2}


@pytest.fixture(autouse=True)
def fresh_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test chooses anew, without what the environment says."""
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    choice.region_decoder.cache_clear()
    yield
    choice.region_decoder.cache_clear()


def scene(height: int, width: int, seed: int = 0) -> Pixels:
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([np.sin(x / 9) * 60 + y % 90, np.cos(y / 13) * 50 + 128, (x + y) % 200], axis=2)
    noise = np.random.default_rng(seed).integers(0, 25, (height, width, 3))
    return np.asarray((smooth + noise).clip(0, 255), np.uint8)


def encode(image: Pixels, subsampling: str = "420", quality: int = 90, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "jpeg", quality=quality, subsampling=SAMPLING[subsampling], **options)
    return file.getvalue()


def whole(data: bytes) -> Pixels:
    """By Pillow's own libjpeg: an oracle that shares no code with the product."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_what_is_not_installed_does_not_count_as_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another package of NVIDIA's is there: `doctor` speaks of the decoder only if it fails."""
    other = ModuleType("nvidia")
    other.__path__ = []
    monkeypatch.setitem(sys.modules, "nvidia", other)
    monkeypatch.delitem(sys.modules, "nvidia.nvimgcodec", raising=False)
    assert str(choice.open_regions.__wrapped__()).startswith("ModuleNotFoundError: ")


def sliced(image: Pixels, box: Box) -> Pixels:
    y, x, h, w = box
    return image[y : y + h, x : x + w]


def boxes_of(height: int, width: int, count: int, seed: int = 0) -> Iterator[Box]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        h, w = (int(rng.integers(1, side + 1)) for side in (height, width))
        yield int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1)), h, w


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[Box]:
    """Regions are tried for boxes of any size; the list has those that were decoded so."""
    monkeypatch.setattr(with_nvimgcodec, "_MOST_SHARE", 1.0)
    monkeypatch.setattr(with_nvimgcodec, "_LEAST_SAVED", 0)
    return spy(monkeypatch)


def spy(monkeypatch: pytest.MonkeyPatch) -> list[Box]:
    decoded: list[Box] = []
    decode = with_nvimgcodec.RegionDecoder.decode

    def noted(self: with_nvimgcodec.RegionDecoder, data: memoryview, box: Box) -> Pixels | None:
        part = decode(self, data, box)
        if part is not None:
            decoded.append(box)
        return part

    monkeypatch.setattr(with_nvimgcodec.RegionDecoder, "decode", noted)
    return decoded


@installed
@settings(max_examples=150, deadline=None)
@given(
    st.integers(9, 200),
    st.integers(9, 200),
    st.sampled_from([*SAMPLING]),
    st.integers(30, 100),
    st.sampled_from([{}, {"restart_marker_rows": 1}, {"restart_marker_blocks": 3}, {"optimize": True}]),
    st.integers(0, 99),
)
def test_a_region_is_the_whole_sliced(
    height: int, width: int, subsampling: str, quality: int, options: dict[str, object], seed: int
) -> None:
    """Any box, size, sampling and quality, with and without restart markers: bit for bit the image, sliced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(with_nvimgcodec, "_MOST_SHARE", 1.0)
        patch.setattr(with_nvimgcodec, "_LEAST_SAVED", 0)
        decoded = spy(patch)
        data = encode(scene(height, width, seed), subsampling, quality, **options)
        expected = whole(data)
        for box in boxes_of(height, width, 4, seed):
            np.testing.assert_array_equal(jpeg.decode(data, box=box), sliced(expected, box))
        if not any(option.startswith("restart") for option in options):  # cut files are not decoded by regions
            assert len(decoded) == sum(box[3] >= 16 for box in boxes_of(height, width, 4, seed))


def damaged(data: bytes, seed: int) -> bytes:
    """Cut off, cut off and ended again, a foreign marker, changed bytes, or a header that lies about the height."""
    rng = np.random.default_rng(seed)
    start = jpeg.read_header(data).scan_offset
    at, height_at = int(rng.integers(start, len(data) - 4)), jpeg.read_header(data).height_offset
    return [
        lambda: data[:at],
        lambda: data[:at] + b"\xff\xd9",
        lambda: data[:at] + bytes((0xFF, rng.integers(1, 255))) + data[at + 2 :],
        lambda: data[:at] + rng.bytes(4) + data[at + 4 :],
        lambda: data[:height_at] + int(rng.integers(1, 400)).to_bytes(2, "big") + data[height_at + 2 :],
    ][seed % 5]()


def decoded_or_refused(data: bytes, box: Box | None) -> Pixels | DecodeError:
    try:
        return jpeg.decode(data, box=box)
    except DecodeError as error:
        return error


@installed
@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}], ids=["plain", "restart"])
def test_damage_never_changes_a_result(options: dict[str, object], always: list[Box]) -> None:
    """Where the plain path decodes a damaged file, boxes have its pixels; where it refuses, a box is refused with the
    same words, or the damage is outside of it and it has the pixels of the intact file."""
    intact = encode(scene(128, 90), **options)
    refused = accepted = 0
    for seed in range(250):
        data = damaged(intact, seed)
        expected = decoded_or_refused(data, None)
        height, width = jpeg.read_header(data)[:2]
        for box in boxes_of(height, width, 4, seed):
            part = decoded_or_refused(data, box)
            if isinstance(part, DecodeError):
                assert str(part) == str(expected)
                refused += 1
                continue
            accepted += 1
            if not isinstance(expected, DecodeError):
                np.testing.assert_array_equal(part, sliced(expected, box))
            elif seed % 5 != 3:  # changed bytes may be valid codes of other pixels
                assert box[0] + box[2] <= 128
                # If the header lies about the height, the color of the last row has no neighbor below.
                kept = box[0], box[1], min(box[2], height - 1 - box[0]), box[3]
                np.testing.assert_array_equal(part[: kept[2]], sliced(whole(intact), kept))
    assert refused > 100
    assert accepted > 100
    assert options or always


@installed
def test_regions_are_for_small_boxes_of_usual_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for large boxes, small images, progressive files, grayscale, scales, and files that can be cut."""
    decoded = spy(monkeypatch)
    image = scene(375, 500)
    data, small = encode(image), (100, 120, 190, 200)
    for other, box, options in [
        (data, (0, 0, 300, 400), {}),
        (encode(scene(256, 256)), (20, 10, 100, 190), {}),
        (encode(image, progressive=True), small, {}),
        (encode(image, restart_marker_rows=1), small, {}),
        (data, small, {"color": "gray"}),
        (data, small, {"scale": 2}),
    ]:
        jpeg.decode(other, box=box, **options)  # type: ignore[arg-type]
        assert not decoded
    np.testing.assert_array_equal(jpeg.decode(data, box=small), sliced(whole(data), small))
    assert decoded == [small]


@installed
def test_the_variable_turns_regions_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """RAWPACK_JPEG names the library that decodes everything."""
    decoded = spy(monkeypatch)
    monkeypatch.setenv(choice.VARIABLE, "simplejpeg")
    data, box = encode(scene(375, 500)), (100, 120, 190, 200)
    np.testing.assert_array_equal(jpeg.decode(data, box=box), sliced(whole(data), box))
    assert not decoded
    assert choice.region_decoder() is None


def test_without_the_library_boxes_are_decoded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the speed changes, and the reason is reported."""
    monkeypatch.setitem(sys.modules, "nvidia", None)
    monkeypatch.delitem(sys.modules, "nvidia.nvimgcodec", raising=False)
    choice.open_regions.cache_clear()
    try:
        data, box = encode(scene(375, 500)), (100, 120, 190, 200)
        np.testing.assert_array_equal(jpeg.decode(data, box=box), sliced(whole(data), box))
        why_not = choice.open_regions()
        assert isinstance(why_not, str)
        assert "nvidia" in why_not
    finally:
        choice.open_regions.cache_clear()


@installed
def test_threads_may_share_it(always: list[Box]) -> None:
    """Whoever finds it busy decodes the whole image: no thread waits, and all pixels are right."""
    data = encode(scene(300, 400))
    expected, boxes = whole(data), list(boxes_of(300, 400, 60))
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda box: jpeg.decode(data, box=box), boxes))
    for part, box in zip(parts, boxes, strict=True):
        np.testing.assert_array_equal(part, sliced(expected, box))
    assert always
    always.clear()
    with captured_stderr(lambda line: False):
        jpeg.decode(data, box=boxes[0])
    assert not always


@installed
def test_it_is_quiet_and_starts_no_thread_also_after_a_fork(tmp_path: Path) -> None:
    """Loading it, decoding intact and damaged files, and decoding in a fork of the process print nothing."""
    path = tmp_path / "scene.jpg"
    path.write_bytes(encode(scene(375, 500)))
    code = (
        "import os, sys\n"
        "from rawpack import jpeg\n"
        "from rawpack.errors import DecodeError\n"
        "from rawpack.jpeg import choice\n"
        "data, box = open(sys.argv[1], 'rb').read(), (100, 120, 190, 200)\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "part = jpeg.decode(data, box=box)\n"
        "assert choice.region_decoder() is not None\n"
        "middle = len(data) // 2\n"
        "for bad in (data[:middle] + b'\\xff\\xd9', data[:middle] + b'\\xff\\xd3' + data[middle + 2:]):\n"
        "    try:\n"
        "        jpeg.decode(bad, box=(300, 0, 60, 60))\n"
        "    except DecodeError:\n"
        "        continue\n"
        "    sys.exit('damage was not found')\n"
        "assert len(os.listdir('/proc/self/task')) == before\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(0 if (jpeg.decode(data, box=box) == part).all() else 1)\n"
        "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != choice.VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ran = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@installed
def test_workers_crop_photographs_that_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random crops of a store packed with `--quality keep`, by worker processes, have the pixels that
    decoding everything gives."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for k in range(6):
        (tmp_path / "photos" / "a" / f"{k}.jpg").write_bytes(encode(scene(500, 400, k)))
    ran = run_here("pack", tmp_path / "photos", tmp_path / "store", "--format", "lmdb", "--quality", "keep")
    assert ran.code == 0, ran.err
    reader = Reader(tmp_path / "store")
    crops = {}
    ways: list[tuple[Any, str]] = [(Workers(2, backend="process"), ""), (0, "simplejpeg")]
    for workers, only in ways:
        monkeypatch.setenv(choice.VARIABLE, only)
        choice.region_decoder.cache_clear()
        batches = reader.batches(2, seed=3, workers=workers, transform=[RandomCrop(150)])
        crops[only] = {
            int(row): np.array(crop) for b in batches for row, crop in zip(b["index"], b["image"], strict=True)
        }
    assert len(crops["simplejpeg"]) == 6
    for row, crop in crops["simplejpeg"].items():
        np.testing.assert_array_equal(crops[""][row], crop)
