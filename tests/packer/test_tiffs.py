"""TIFFs of every layout, written by tifffile: each is read right or refused."""

from __future__ import annotations

import io
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import image_corpus as corpus
import numpy as np
import pytest
import tifffile
from image_corpus import Pixels
from numpy.typing import NDArray
from reading import SOAK

from rawpack.errors import DecodeError
from rawpack_packer.images import decode_image, read_header

COLORS = {"minisblack": 1, "miniswhite": 1, "rgb": 3, "palette": 1, "separated": 4}
"""tifffile's name of a photometric interpretation -> samples of color."""
UNSAID, PREMULTIPLIED, ALPHA = 0, 1, 2
"""What tag 338 says of the first sample that is not color."""
READ = {
    *(("minisblack", 1, (), bits) for bits in (1, 2, 4, 8, 12, 16)),
    *(("miniswhite", 1, (), bits) for bits in (1, 2, 4, 8, 16)),
    *(("rgb", 3, (), bits) for bits in (8, 16)),
    *(("rgb", 4, (first,), bits) for first in (UNSAID, PREMULTIPLIED, ALPHA) for bits in (8, 16)),
    *(("separated", 4, (), bits) for bits in (8, 16)),
    ("palette", 1, (), 8), ("minisblack", 2, (ALPHA,), 8),
}  # fmt: skip
"""(photometric interpretation, samples, extra samples, bits) that must be read, as the documentation says."""


@dataclass(frozen=True)
class Layout:
    """How the samples of a TIFF are stored."""

    photometric: str
    samples: int
    extra: tuple[int, ...]
    bits: int
    planar: bool
    tiled: bool
    big_endian: bool
    compression: str | None
    predictor: bool


def layouts(bits: int) -> Iterator[Layout]:
    """All that tifffile writes without other packages: odd depths only uncompressed and in little endian."""
    packings: list[tuple[str | None, bool]] = [(None, False)]
    if bits in (8, 16):
        packings += [("adobe_deflate", False), ("adobe_deflate", True), ("lzma", True)]
    for photometric, samples in itertools.product(COLORS, range(1, 6)):
        extras = samples - COLORS[photometric]
        if extras < 0 or (photometric == "palette" and (bits != 8 or extras)):
            continue
        for first in (UNSAID, PREMULTIPLIED, ALPHA)[: 3 if extras else 1]:
            extra = (first, *[UNSAID] * (extras - 1)) if extras else ()
            for planar, tiled, big_endian in itertools.product(*((False, True),) * 3):
                if (planar and samples == 1) or (big_endian and bits not in (8, 16)):
                    continue
                for packing in packings:
                    yield Layout(photometric, samples, extra, bits, planar, tiled, big_endian, *packing)


def stored(layout: Layout) -> NDArray[Any]:
    """Samples (H, W, n); premultiplied colors are no brighter than their alpha."""
    values = corpus.scene16(4)[..., [0, 1, 2, 3, 0][: layout.samples]] >> (16 - layout.bits)
    if layout.extra[:1] == (PREMULTIPLIED,):
        colors = COLORS[layout.photometric]
        alpha = values[..., colors : colors + 1] / (2**layout.bits - 1)
        values = np.concatenate([(values[..., :colors] * alpha).astype(np.uint16), values[..., colors:]], axis=2)
    dtype = "u1" if layout.bits <= 8 else ">u2" if layout.big_endian else "<u2"
    return np.ascontiguousarray(values.astype(dtype))


PALETTE = np.random.default_rng(4).integers(0, 256, (3, 256)).astype(np.uint16) * 257


def expected(values: NDArray[Any], layout: Layout) -> Pixels:
    """RGB (H, W, 3) of the samples, by the specification: alpha on white, 16 bits without their low byte."""
    colors = COLORS[layout.photometric]
    if layout.photometric == "palette":
        return (PALETTE.T[values[..., 0]] >> 8).astype(np.uint8)
    levels = values * (255 / (2**layout.bits - 1)) if layout.bits <= 8 else (values >> (layout.bits - 8)).astype(float)
    color = levels[..., :colors]
    if layout.photometric == "miniswhite":
        color = 255 - color
    if layout.photometric == "separated":
        color = (255 - color[..., :3]) * (255 - color[..., 3:]) / 255
    if layout.extra[:1] in ((PREMULTIPLIED,), (ALPHA,)):
        alpha = levels[..., colors : colors + 1] / 255
        color = np.minimum(255, (color if layout.extra[0] == PREMULTIPLIED else color * alpha) + 255 * (1 - alpha))
    return np.broadcast_to(np.rint(color), (*color.shape[:2], 3)).astype(np.uint8)


def written(values: NDArray[Any], layout: Layout) -> bytes:
    """The file; samples of depths that numpy does not have are packed here."""
    file, (height, width) = io.BytesIO(), values.shape[:2]
    options: dict[str, Any] = {"photometric": layout.photometric, "metadata": None, "bitspersample": layout.bits}
    options["byteorder"] = ">" if layout.big_endian else "<"
    options |= {"tile": (16, 32)} if layout.tiled else {"rowsperstrip": 10}
    if layout.samples > 1:
        options |= {"planarconfig": "separate" if layout.planar else "contig", "extrasamples": layout.extra}
    if layout.compression:
        options |= {"compression": layout.compression, "predictor": layout.predictor, "compressionargs": {"level": 1}}
    if layout.photometric == "palette":
        options["colormap"] = PALETTE
    data = values.transpose(2, 0, 1) if layout.planar else values if layout.samples > 1 else values[..., 0]
    if layout.bits in (8, 16):
        tifffile.imwrite(file, data, **options)
        return file.getvalue()
    rows, columns = (16, 32) if layout.tiled else (10, width)
    padding = ((0, -height % rows), (0, -width % columns), (0, 0)) if layout.tiled else ((0, 0),) * 3
    pieces = [
        packed(plane[y : y + rows, x : x + columns], layout.bits)
        for part in (np.split(values, layout.samples, axis=2) if layout.planar else [values])
        for plane in [np.pad(part, padding)]
        for y in range(0, height, rows)
        for x in range(0, width, columns)
    ]
    tifffile.imwrite(file, iter(pieces), shape=data.shape, dtype=data.dtype, **options)
    return file.getvalue()


def packed(values: NDArray[Any], bits: int) -> bytes:
    """Samples of a strip or tile, without gaps, each row from a new byte on."""
    wide = np.unpackbits(values.astype(">u2").view(np.uint8).reshape(len(values), -1, 2), axis=2)
    return np.packbits(wide[..., 16 - bits :].reshape(len(values), -1), axis=1).tobytes()


def chosen(bits: int) -> list[Layout]:
    """What must be read, as it is mostly stored, and of all other layouts each fifth, or each 17th of the depths
    that are also compressed, from another one on for each depth; all of them in a soak test."""
    every = list(layouts(bits))
    plain = [one for one in every if as_kind(one) in READ and one == replace(one, **PLAIN)]
    step = 17 if bits in (8, 16) else 5
    return every if SOAK else list(dict.fromkeys(plain + every[bits % step :: step]))


PLAIN: dict[str, Any] = {
    "planar": False, "tiled": False, "big_endian": False, "compression": None, "predictor": False,
}  # fmt: skip


def as_kind(layout: Layout) -> tuple[str, int, tuple[int, ...], int]:
    return layout.photometric, layout.samples, layout.extra, layout.bits


@pytest.mark.parametrize("bits", range(1, 17) if SOAK else [1, 2, 4, 7, 8, 12, 13, 16])
def test_a_tiff_is_read_right_or_refused(bits: int) -> None:
    """Of each color, depth, order of bytes and compression, with and without alpha, in strips, tiles and planes."""
    wrong, read = [], set()
    for layout in chosen(bits):
        values = stored(layout)
        data = written(values, layout)
        try:
            image = decode_image(data, read_header(data), color="rgb")
        except DecodeError as error:
            if error.reason != "unsupported":
                wrong.append(f"{layout}: {error}")
            continue
        if not layout.planar and not layout.big_endian:
            read.add(as_kind(layout))
        off = np.abs(image.astype(int) - expected(values, layout)).max()
        if off > (1 if layout.extra else 0):
            wrong.append(f"{layout}: {off} levels off")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])
    assert {case for case in READ if case[-1] == bits} <= read


@pytest.mark.parametrize(("photometric", "bits"), [("rgb", 8), ("rgb", 16), ("separated", 8), ("separated", 16)])
def test_planes_are_read(photometric: str, bits: int) -> None:
    """RGB and CMYK in strips and tiles, with their samples side by side or in planes, in either byte order."""
    for planar, tiled, big_endian in itertools.product(*((False, True),) * 3):
        layout = Layout(photometric, COLORS[photometric], (), bits, planar, tiled, big_endian, "adobe_deflate", True)
        values = stored(layout)
        data = written(values, layout)
        np.testing.assert_array_equal(decode_image(data, read_header(data), color="rgb"), expected(values, layout))


def test_alpha_that_no_tag_tells_of_is_never_mistaken() -> None:
    """A fourth plane may be anything: without the tag, the file is refused."""
    rgba = np.dstack([corpus.scene(), corpus.alpha()])
    planes = [np.ascontiguousarray(rgba[..., c]).tobytes() for c in range(4)]
    tags = {284: (3, [2]), 278: (4, [corpus.HEIGHT])}
    data = corpus.tiff(planes, channels=4, bits=8, photometric=2, extra=tags)
    with pytest.raises(DecodeError, match="unsupported"):
        decode_image(data, read_header(data), color="rgb")


def test_low_bit_first_is_read() -> None:
    """All bytes of samples with their bits reversed, as tag 266 says, before they are inflated."""
    body = np.frombuffer(zlib.compress(corpus.scene().tobytes()), np.uint8)
    reversed_bits = np.packbits(np.unpackbits(body), bitorder="little").tobytes()
    tags = {266: (3, [2]), 259: (3, [8])}
    data = corpus.tiff([reversed_bits], channels=3, bits=8, photometric=2, extra=tags)
    np.testing.assert_array_equal(decode_image(data, read_header(data), color="rgb"), corpus.scene())
