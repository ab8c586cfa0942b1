"""The header that is kept from one file to the next never changes what the next one is: as if each came first."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from pictures import picture
from PIL import Image

from rawpack.errors import DecodeError
from rawpack.jpeg import header
from rawpack.jpeg.header import read_header


def jpeg(seed: int, side: int = 40, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(side, side, seed)).save(file, "JPEG", **options)
    return file.getvalue()


def alone(data: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    """What a file's header is where no other came before."""
    with monkeypatch.context() as patch:
        patch.setattr(header, "_last", (b"", b"", 0, None))
        return found(data)


def found(data: bytes) -> object:
    try:
        return read_header(memoryview(data))
    except DecodeError as error:
        return error.reason, error.detail


def test_codes_that_differ_from_file_to_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimized codes of several lengths, standard ones, and another size or quality between them."""
    files = [jpeg(seed, optimize=seed % 3 > 0, quality=(60, 90)[seed // 9 % 2]) for seed in range(40)]
    files += [jpeg(1, 48, optimize=True), jpeg(2, optimize=True), jpeg(3, progressive=True), jpeg(4, optimize=True)]
    offsets = set()
    for data in files:
        offsets.add(found(data).scan_offset)  # type: ignore[attr-defined]
        assert found(data) == alone(data, monkeypatch)
    assert len(offsets) > 10


@pytest.mark.parametrize("options", [{"optimize": True}, {}, {"progressive": True}, {"restart_marker_rows": 1}])
def test_damage_is_found_behind_a_header_that_was_kept(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of the header changed in several ways, and the file cut off at each of them."""
    first, second = jpeg(1, **options), jpeg(2, **options)
    ends = read_header(memoryview(second)).scan_offset + 6
    random = np.random.default_rng(0)
    for at in range(ends):
        for value in (0x00, 0xFF, 0xC4, 0xDA, int(random.integers(256))):
            changed = second[:at] + bytes([value]) + second[at + 1 :]
            found(first)
            assert found(changed) == alone(changed, monkeypatch), (at, value)
        found(first)
        assert found(second[:at]) == alone(second[:at], monkeypatch), at
