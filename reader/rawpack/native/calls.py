"""One function for each kernel of the native core: what its C takes, checked before it is called.

The C checks the same again. It takes addresses, so whoever fills them in keeps the memory behind them alive, and
mapped, until the call returns. Calls release Python's lock, and several threads may call at a time.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.native import library

IMAGE = np.dtype(
    [
        ("pixels", np.uintp),  # address of the image's first row
        ("end", np.uintp),  # address of the first byte that must not be read: the end of the mapping
        ("stride", np.int64),  # bytes from row to row, of Y if these are planes
        ("height", np.int32),
        ("width", np.int32),
        ("box", np.int32, 4),  # y, x, height, width: the part that is used, within the image
        ("scaled", np.int32, 2),  # height, width that this part is resized to
        ("at", np.int32, 2),  # y, x of the result's first pixel in the resized part; outside of it is `fill`
        ("flips", np.int32),  # 1 left and right, 2 top and bottom, of the result
        ("planes", np.int32),  # 1: Y, Cg, Co of YCgCo 4:2:0 without gaps, read as RGB; 0: pixels
    ],
    align=True,
)
LONGEST_SOURCE = 65536
LONGEST_RESULT = 16384
_BAD_SIZES, _NO_MEMORY = 1, 2
_OTHER_MARKERS = _TOO_STRONG = 3
_PACKED_IMAGE, _PACKED_PLACE, _PACKED_RESULT = map(struct.Struct, ("@PPq12i", "@PPq6i", "@PPP8i"))
"""One of IMAGE; its fields up to "box"; and what resample.c has of the result."""
_PACKED_DIFFERENCES = struct.Struct("@PP7q2i")
MOST_FACTOR = 31
"""Of a change of color."""
_CHANGE_BYTES = 16

_NUMBERS = slice(6, 18)  # the fields of 32 bits, in a row of them
_LIMITS = f"sides, box and scaled must be 1 to {LONGEST_SOURCE}, its corner from 0, flips 0 to 3, planes 0 or 1"
_ANY = np.iinfo(np.int32)
_LEAST = np.array([1, 1, 0, 0, 1, 1, 1, 1, _ANY.min, _ANY.min, 0, 0], np.int32)
_MOST = np.array([LONGEST_SOURCE] * 8 + [_ANY.max, _ANY.max, 3, 1], np.int32)


class Resampling:
    """Crops, resizes, flips and converts n images of bytes into out, all at once or one by one: `resample` has the
    arguments. What is the same for all images is checked when this is made."""

    def __init__(
        self,
        images: NDArray[np.void],
        out: NDArray[Any],
        *,
        planar: bool = False,
        antialias: bool = True,
        fill: int = 0,
        tables: NDArray[Any] | None = None,
        lines: NDArray[np.float64] | None = None,
        changes: NDArray[np.float64] | None = None,
        lanes: bool = True,
    ) -> None:
        core = library()
        if core is None:
            raise RuntimeError("The native core is not loaded: rawpack doctor says why.")
        height, width, channels = _shape(images, out, planar)
        _check_tables(out, tables, channels)
        if lines is not None and (
            tables is None or out.dtype != np.float32 or lines.dtype != np.float64 or lines.shape != (channels, 2)
        ):
            raise ValueError(f"lines must be ({channels}, 2) of float64, beside tables of float32: {lines.shape}")
        if not 0 <= fill <= 255:
            raise ValueError(f"fill is a byte, 0 to 255: {fill}")
        self._images, self._bytes, self._channels = images, images.view(np.uint8).data, channels
        if changes is None:
            changes = np.empty((len(images), 0, 2))
        _check_changes(changes, len(images))
        self._call, self._kept = core.rawpack_resample_recolored, (out, tables, lines, changes)
        self._changes = changes.ctypes.data, changes.shape[1]
        self._places = images.ctypes.data, out.ctypes.data, height * width * channels * out.itemsize
        given = (0 if values is None else values.ctypes.data for values in (tables, lines))
        flags = (planar, antialias, fill, lanes)
        self._result = (*given, height, width, channels, out.itemsize, *map(int, flags))

    def make(self) -> None:
        """Make them all. Raises ValueError where one does not fit, MemoryError."""
        _check_images(self._images, self._channels)
        self._make(0, len(self._images))

    def make_of(self, i: int, pixels: NDArray[np.uint8]) -> None:
        """Make image i of all of these pixels, (h, w, C), whatever it has as "pixels" to "box"."""
        if not 0 <= i < len(self._images):
            raise ValueError(f"There is no image {i}: there are {len(self._images)}")
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != self._channels:
            raise ValueError(f"pixels must be bytes, (h, w, {self._channels}): {pixels.dtype} {pixels.shape}")
        (height, width, channels), at = pixels.shape, pixels.__array_interface__["data"][0]
        stride, *within = pixels.strides
        if pixels.flags.c_contiguous:  # then strides of axes of one value may be any numbers
            stride, within = width * channels, [channels, 1]
        if within != [channels, 1] or stride < width * channels:
            raise ValueError(f"The pixels of a row must be one after another: strides {pixels.strides}")
        end = at + (height - 1) * stride + width * channels
        _PACKED_PLACE.pack_into(self._bytes, i * IMAGE.itemsize, at, end, stride, height, width, 0, 0, height, width)
        self._make(i, 1)

    def _make(self, first: int, count: int) -> None:
        at, to, each = self._places
        result = _PACKED_RESULT.pack(to + first * each, *self._result)
        changes, each = self._changes
        pointer = ctypes.c_void_p(changes + first * each * _CHANGE_BYTES)
        code = self._call(
            ctypes.c_int64(count), ctypes.c_void_p(at + first * IMAGE.itemsize), result, ctypes.c_int32(each), pointer
        )
        if code == _BAD_SIZES:
            _check_images(self._images[first : first + count], self._channels)
        _raise_for(code)


def resample(images: NDArray[np.void], out: NDArray[Any], **options: Any) -> None:
    """Crop, resize, flip and convert n images of bytes into out; docs/explanation/native.md has the definition.

    images: (n,) of IMAGE, of 1 or 3 channels, all as many as out; planes count as 3.
    out: (n, height, width, channels), or (n, channels, height, width) if planar; C-contiguous; 1, 2 or 4 bytes a value.
    options, see `Resampling`:
    tables: (channels, 256) of out's dtype, the value that each byte becomes; None: out is uint8, bytes as they are.
    lines: (channels, 2), a scale and a shift of bytes that, in float64 and rounded, give the very float32 values of
        tables, which takes half the time of looking them up; None where there are none. Not checked.
    fill: the byte that stands where the resized box does not reach; it goes through the tables too.
    changes: (n, count, 2), changes of color after the flips, as `recolor` has them for each image; None for none.
    lanes: False keeps to plain C, for tests.

    Raises ValueError where something does not fit, MemoryError, and RuntimeError without the native core.
    """
    Resampling(images, out, **options).make()


def resample_one(
    image: NDArray[np.uint8],
    scaled: tuple[int, int],
    window: tuple[int, int, int, int],
    out: NDArray[np.uint8],
    *,
    antialias: bool = True,
) -> bool:
    """Resize one image to `scaled` (height, width), and write the window (top, left, height, width) of it to out: as
    `resample`, whose checks of arrays take as long as resizing one image.

    image: (H, W, C) with 1 or 3 channels; out: (height, width, C). Returns False, and does nothing, without the core,
    or where pixels are not one after the other in each row, or sides are too long. Raises MemoryError, RuntimeError.
    """
    core, (height, width, channels), (stride, *within) = library(), image.shape, image.strides
    if core is None or channels not in (1, 3) or image.dtype != np.uint8 or out.dtype != np.uint8:
        return False
    if height == 1:
        stride = width * channels  # NumPy's may be any number, such as a negative one after a flip
    if within != [channels, 1] or stride < width * channels:
        return False
    if out.shape != (*window[2:], channels) or not out.flags.c_contiguous or not out.flags.writeable:
        return False
    if max(height, width, *scaled) > LONGEST_SOURCE or max(window[2:]) > LONGEST_RESULT:
        return False
    first = image.__array_interface__["data"][0]
    end = first + (height - 1) * stride + width * channels
    record = _PACKED_IMAGE.pack(first, end, stride, height, width, 0, 0, height, width, *scaled, *window[:2], 0, 0)
    _make_one(core, record, out, antialias)
    return True


def rgb_of_planes(
    stored: NDArray[np.uint8], size: tuple[int, int], box: tuple[int, int, int, int], out: NDArray[np.uint8]
) -> bool:
    """Write the box (y, x, height, width) of planes of YCgCo 4:2:0 (n,), of an image of `size` (height, width), to out,
    (height, width, 3), as RGB.

    Returns False, and does nothing, without the core or its vectors (NumPy is faster than plain C), where out is not in
    C order, or where sides are too long. Raises ValueError where the planes are not of that size, or the box is not
    within it; MemoryError, RuntimeError.
    """
    core = library()
    if core is None or not core.rawpack_lanes() or not (out.flags.c_contiguous and out.flags.writeable):
        return False
    if max(size) > LONGEST_SOURCE or max(box[2:]) > LONGEST_RESULT:
        return False
    height, width = size
    count = height * width + 2 * -(-height // 2) * -(-width // 2)
    if stored.shape != (count,) or stored.dtype != np.uint8 or not stored.flags.c_contiguous:
        raise ValueError(f"planes of {height}x{width} are {count} bytes, in a row: {stored.shape} of {stored.dtype}")
    if out.shape != (*box[2:], 3) or out.dtype != np.uint8:
        raise ValueError(f"out must be uint8 {(*box[2:], 3)}: {out.dtype} {out.shape}")
    first = stored.__array_interface__["data"][0]
    record = _PACKED_IMAGE.pack(first, first + count, width, height, width, *box, *box[2:], 0, 0, 0, 1)
    _make_one(core, record, out, antialias=False)
    return True


def recolor(image: NDArray[np.uint8], changes: NDArray[np.float64], *, lanes: bool = True) -> bool:
    """Change the colors of one image in place; reader/native/color.c has the definition.

    image: (H, W, C) with 1 or 3 channels. changes: (count, 2), a kind and a factor for each change, in their order: 0
    brightness, 1 contrast, 2 saturation, with a factor of at least 0; 3 hue, with what is added to H, a whole number
    from 0 to 255. lanes: False keeps to plain C, for tests.

    Returns False, and does nothing, without the core, where a factor is above MOST_FACTOR, or where the image is not in
    C order. Raises ValueError where something does not fit.
    """
    core = library()
    if core is None or not (image.flags.c_contiguous and image.flags.writeable):
        return False
    if image.dtype != np.uint8 or image.ndim != 3:
        raise ValueError(f"image must be uint8 (H, W, C): {image.dtype} {image.shape}")
    _check_changes(changes[np.newaxis], 1)
    height, width, channels = image.shape
    pixels, first = (ctypes.c_void_p(array.__array_interface__["data"][0]) for array in (image, changes))
    code = core.rawpack_recolor(pixels, ctypes.c_int64(height * width), channels, len(changes), first, int(lanes))
    if code == _BAD_SIZES:
        raise ValueError(f"The native core refused an image {image.shape}, or these changes: {changes.tolist()}")
    if code not in (0, _TOO_STRONG):
        _raise_for(code)
    return bool(code == 0)


def _make_one(core: ctypes.CDLL, record: bytes, out: NDArray[np.uint8], antialias: bool) -> None:
    """Make out, (height, width, C), of an image as IMAGE has it."""
    address = out.__array_interface__["data"][0]
    result = _PACKED_RESULT.pack(address, 0, 0, *out.shape, 1, 0, antialias, 0, 1)
    if code := core.rawpack_resample(ctypes.c_int64(1), record, result):
        _raise_for(code)


def undo(
    stored: NDArray[np.uint8],
    planes: tuple[int, int, int],
    box: tuple[int, int, int, int],
    out: NDArray[Any],
    *,
    lanes: bool = True,
) -> bool:
    """Undo differences of rows of bytes, as `rawpack.pixels.bands` defines them.

    stored: the bytes (n,) of all planes. planes: how many, 1 or 3 (G, R - G, B - G), rows of each, bytes of a row.
    box: y, x, height, width, in rows and bytes. out: height * width * planes bytes in C order, of any shape.
    lanes: False keeps to plain C, for tests.

    Returns False, and does nothing, without the core. Raises ValueError where something does not fit.
    """
    core, (count, rows, values), (y, x, height, width) = library(), planes, box
    if core is None:
        return False
    size = len(stored)
    if stored.dtype != np.uint8 or stored.ndim != 1 or not stored.flags.c_contiguous:
        raise ValueError(f"stored must be contiguous bytes (n,): {stored.dtype} {stored.shape}")
    if size != count * rows * values or count not in (1, 3):
        raise ValueError(f"{size} bytes are not {count} planes of {rows} x {values} bytes")
    if min(y, x, height - 1, width - 1) < 0 or y + height > rows or x + width > values:
        raise ValueError(f"box {box} is not within {rows} rows of {values} bytes")
    if out.nbytes != height * width * count or not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError(f"out must be in C order, writable, and of the box: {out.dtype} {out.shape}")
    at, to = stored.__array_interface__["data"][0], out.__array_interface__["data"][0]
    _raise_for(core.rawpack_undo(_PACKED_DIFFERENCES.pack(at, to, size, rows, values, *box, count, lanes)))
    return True


def row_ends(data: memoryview, scan: int, rows: int, end: int) -> list[int] | None:
    """Where each of the first `end` rows of blocks ends in a JPEG: at its restart marker, the last of all `rows` at the
    end marker.

    data: the file, flat bytes. scan: where its entropy-coded data begins. Returns None unless there are exactly these
    markers, in order, and the file ends with its end marker. Raises ValueError where something does not fit, and
    RuntimeError without the core.
    """
    core, size = library(), len(data)
    if core is None:
        raise RuntimeError("The native core is not loaded: rawpack doctor says why.")
    if not (0 <= scan <= size and 0 < end <= rows):
        raise ValueError(f"a JPEG of {size} bytes with {rows} rows of blocks from byte {scan} on has no {end} rows")
    at, ends = np.frombuffer(data, np.uint8).__array_interface__["data"][0], (ctypes.c_int64 * end)()
    code = core.rawpack_row_ends(ctypes.c_void_p(at), *map(ctypes.c_int64, (size, scan, rows, end)), ends)
    if code == _OTHER_MARKERS:
        return None
    _raise_for(code)
    return list(ends)


def _raise_for(code: int) -> None:
    if code == _NO_MEMORY:
        raise MemoryError("No memory for the tables and rows that resizing needs.")
    if code == _BAD_SIZES:
        raise ValueError("The native core refused the sizes of an image or of the result.")
    if code:
        raise RuntimeError(f"The native core returned {code}.")


def _shape(images: NDArray[np.void], out: NDArray[Any], planar: bool) -> tuple[int, int, int]:
    if images.dtype != IMAGE or images.ndim != 1 or not (images.flags.c_contiguous and images.flags.aligned):
        raise ValueError(f"images must be a contiguous array (n,) of IMAGE: {images.shape} of {images.dtype}")
    if out.ndim != 4 or len(out) != len(images):
        raise ValueError(f"out must have 4 axes, the first for {len(images)} images: {out.shape}")
    if not (out.flags.c_contiguous and out.flags.writeable and out.flags.aligned):
        raise ValueError("out must be C-contiguous, aligned and writable.")
    channels, height, width = out.shape[1:] if planar else (out.shape[3], out.shape[1], out.shape[2])
    if channels not in (1, 3):
        raise ValueError(f"Only images of 1 or 3 channels, not {channels}: out is {out.shape}, planar={planar}")
    if not (1 <= height <= LONGEST_RESULT and 1 <= width <= LONGEST_RESULT):
        raise ValueError(f"out must have sides from 1 to {LONGEST_RESULT} pixels: {out.shape}")
    return height, width, channels


def _check_tables(out: NDArray[Any], tables: NDArray[Any] | None, channels: int) -> None:
    if tables is None:
        if out.dtype != np.uint8:
            raise ValueError(f"Without tables, out must be uint8: {out.dtype}")
        return
    if tables.shape != (channels, 256) or tables.dtype != out.dtype:
        raise ValueError(f"tables must be ({channels}, 256) of {out.dtype}: {tables.shape} of {tables.dtype}")
    if out.itemsize not in (1, 2, 4) or out.dtype.hasobject:
        raise ValueError(f"out must have values of 1, 2 or 4 bytes: {out.dtype}")
    if not (tables.flags.c_contiguous and tables.flags.aligned):
        raise ValueError("tables must be C-contiguous and aligned.")


def _check_changes(changes: NDArray[np.float64], n: int) -> None:
    if changes.dtype != np.float64 or changes.ndim != 3 or changes.shape[::2] != (n, 2):
        raise ValueError(f"changes must be float64 ({n}, count, 2): {changes.dtype} {changes.shape}")
    if not (changes.flags.c_contiguous and changes.flags.aligned):
        raise ValueError("changes must be C-contiguous and aligned.")


def _check_images(images: NDArray[np.void], channels: int) -> None:
    """ValueError for the first image that the C would refuse."""
    numbers = images.view(np.int32).reshape(len(images), IMAGE.itemsize // 4)[:, _NUMBERS]
    _refuse((numbers < _LEAST) | (numbers > _MOST), images, _LIMITS)
    sides = numbers[:, :2]
    _refuse(numbers[:, 2:4] + numbers[:, 4:6] > sides, images, "its box must lie within it")
    # Divided, not multiplied: strides and addresses may be any numbers of 64 bits.
    pixels, end, stride, planes = (images[name] for name in ("pixels", "end", "stride", "planes"))
    others, halves = sides[:, 0] - 1, (sides.astype(np.int64) + 1) // 2
    _refuse((planes == 1) & ((stride != sides[:, 1]) | (channels != 3)), images, "planes have no gaps, and make RGB")
    chroma = planes * 2 * halves[:, 0] * halves[:, 1]
    spare = (end - pixels).view(np.int64) - chroma - sides[:, 1] * np.where(planes, 1, channels)
    _refuse((pixels == 0) | (end < pixels) | (spare < 0), images, "it ends beyond what may be read")
    beyond = (stride > spare // np.maximum(others, 1)) & (others > 0)
    _refuse((stride < 0) | beyond, images, "its rows must follow each other, within what may be read")


def _refuse(wrong: NDArray[np.bool_], images: NDArray[np.void], rule: str) -> None:
    if wrong.any():
        first = int(np.flatnonzero(wrong.reshape(len(images), -1).any(axis=1))[0])
        values = {name: images[first][name].tolist() for name in IMAGE.names or () if name not in ("pixels", "end")}
        raise ValueError(f"Image {first} of the call cannot be resampled: {rule}. {values}")
