"""The contract of formats and codecs, as tests to inherit.

    class TestMine(FormatConformance):
        def pack(self, images, folder): ...         # with your format, by rawpack_packer.pack
        def read_back(self, store): ...             # without rawpack

rawpack's own formats pass the same tests.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack import Workers
from rawpack.errors import RawpackError
from rawpack.formats import FieldReader
from rawpack.reader import Reader
from rawpack.store.store import Store
from rawpack.store.stores import Stores

Pixels = NDArray[np.uint8]
_COUNT = 70
"""Samples: more than `--shard-size 1` puts into one shard, which is 64."""
_SIZE = (22, 17)
_SIZES = ((22, 17), (9, 31), (16, 16), (1, 5), (40, 3))
"""Height and width: odd ones too."""
_FLIPS = 12


class _Folders(Protocol):
    """pytest's `tmp_path_factory`."""

    def mktemp(self, basename: str, numbered: bool = True) -> Path: ...


class FormatConformance(ABC):
    """The tests of one format. In a test module, subclass it with a name that begins with "Test"."""

    one_size: ClassVar[bool] = True
    """Whether the format can store images of one size; if not, their tests are left out."""
    different_sizes: ClassVar[bool] = True
    """Whether the format can store images of different sizes."""

    @abstractmethod
    def pack(self, images: Sequence[Pixels], folder: Path) -> Path:
        """Pack RGB images (H, W, 3) in this order, as they are, into a new store inside `folder`, and return its path.

        Pass `shard_size="1"`, so that there are two shards. The same images must make the same bytes.
        """

    @abstractmethod
    def read_back(self, store: Path) -> Iterable[Pixels]:
        """Every image of the store, in order, (H, W, 3). Use code that shares nothing with rawpack, such as the
        format's own tools, numpy and Pillow. Read what is not in the shards from `store.json` and `columns-1/`."""

    def check_image(self, read: Pixels, packed: Pixels) -> None:
        """Fail unless an image that was read is the one that was packed. Override it where packing loses something."""
        np.testing.assert_array_equal(read, packed)

    def check_read_back(self, read: Pixels, other: Pixels) -> None:
        """Fail unless an image equals what `read_back` returns. Override it where decoders may differ."""
        np.testing.assert_array_equal(read, other)

    # ------------------------------------------------------------------------------------------ the promises

    def test_images_come_back(self, tmp_path_factory: _Folders) -> None:
        """Every image is read as it was packed, at its index, with its shape."""
        for images, path in self._stores(tmp_path_factory):
            reader = Reader(path)
            assert len(reader) == len(images)
            for i, image in enumerate(images):
                read = reader[i]["image"]
                assert (read.shape, read.dtype) == (image.shape, image.dtype)
                self.check_image(read, image)

    def test_images_can_be_read_without_rawpack(self, tmp_path_factory: _Folders) -> None:
        """Other tools read the same images in the same order."""
        for images, path in self._stores(tmp_path_factory):
            reader, others = Reader(path), list(self.read_back(path))
            assert len(others) == len(images)
            for i, other in enumerate(others):
                self.check_read_back(reader[i]["image"], other)

    def test_checksums_are_of_the_stored_bytes(self, tmp_path_factory: _Folders) -> None:
        """The index has the xxh3_64 of what `FieldReader.stored` returns for each sample."""
        for _, path in self._stores(tmp_path_factory):
            sums = np.load(path / "columns-1" / "image.xxh3.npy").tolist()
            rows = [xxhash.xxh3_64_intdigest(reader.stored(row).tobytes()) for reader, row in _rows(path)]
            assert rows == sums

    def test_a_part_is_the_part_of_the_whole(self, tmp_path_factory: _Folders) -> None:
        """A box of an image has the pixels that the whole image has there."""
        for _, path in self._stores(tmp_path_factory):
            for reader, row in list(_rows(path))[::7]:
                whole = reader.read(row)
                height, width = reader.shape(row)[:2]
                assert whole.shape == reader.shape(row)
                for y, x in ((0, 0), (height // 2, width // 3), (height - 1, width - 1)):
                    h, w = max(1, (height - y) // 2), max(1, (width - x) // 2)
                    np.testing.assert_array_equal(reader.read(row, (y, x, h, w)), whole[y : y + h, x : x + w])

    def test_a_scale_halves_the_sides(self, tmp_path_factory: _Folders) -> None:
        """Read at 1/2, 1/4 or 1/8, an image has its sides divided by that, rounded up."""
        for _, path in self._stores(tmp_path_factory):
            for reader, row in list(_rows(path))[:5]:
                height, width, channels = reader.shape(row)
                for scale in (2, 4, 8):
                    small = reader.read(row, None, scale)
                    assert small.shape == (-(-height // scale), -(-width // scale), channels)

    def test_many_rows_are_read_in_one_call(self, tmp_path_factory: _Folders) -> None:
        """Any rows, in any order and repeated, are written where they were asked for, and nothing else is written."""
        for _, path in self._stores(tmp_path_factory, different=False):
            store = Store(path)
            reader, count = store.reader(0, "image"), store.manifest.shards[0].rows
            rows = np.array([count - 1, 0, 3, 3, count // 2], np.int64)
            out = np.zeros((len(rows), *reader.shape(0)), np.uint8)
            reader.read_into(rows, out)
            wanted = np.stack([reader.read(row) for row in rows.tolist()])
            np.testing.assert_array_equal(out, wanted)
            scattered = np.full((9, *reader.shape(0)), 7, np.uint8)
            at = np.array([8, 1, 2, 5, 0], np.int64)
            reader.read_into(rows, scattered, at)
            np.testing.assert_array_equal(scattered[at], wanted)
            assert (scattered[[3, 4, 6, 7]] == 7).all()
            reader.read_into(rows[:0], out[:0])

    def test_rows_outside_the_shard_are_refused(self, tmp_path_factory: _Folders) -> None:
        """A row that the shard does not have is an IndexError, never another sample."""
        for _, path in self._stores(tmp_path_factory):
            store = Store(path)
            reader, count = store.reader(0, "image"), store.manifest.shards[0].rows
            for row in (-1, count, 1 << 40):
                for ask in (reader.read, reader.shape, reader.stored):
                    _raises(IndexError, ask, row)
                if store.fields["image"].uniform:
                    out = np.zeros((2, *reader.shape(0)), np.uint8)
                    _raises(IndexError, reader.read_into, np.array([0, row], np.int64), out)

    def test_threads_read_at_once(self, tmp_path_factory: _Folders) -> None:
        """One reader serves any number of threads, and each gets the sample that it asked for."""
        for _, path in self._stores(tmp_path_factory):
            rows = list(_rows(path))
            alone = [reader.read(row).copy() for reader, row in rows]
            with ThreadPoolExecutor(4) as pool:
                together = list(pool.map(lambda one: one[0].read(one[1]).copy(), rows * 4))
            for k, image in enumerate(together):
                np.testing.assert_array_equal(image, alone[k % len(rows)])

    def test_worker_processes_read_the_same(self, tmp_path_factory: _Folders) -> None:
        """Shuffled batches from two worker processes hold the images that this process reads."""
        for _, path in self._stores(tmp_path_factory, different=False):
            reader, seen = Reader(path), list[int]()
            batches = reader.batches(16, shuffle=True, seed=3, workers=Workers(2, backend="process"))
            batches.set_epoch(0)
            for batch in batches:
                seen += batch["index"].tolist()
                for k, row in enumerate(batch["index"].tolist()):
                    np.testing.assert_array_equal(batch["image"][k], reader[row]["image"])
            assert sorted(seen) == list(range(len(reader)))

    def test_a_changed_byte_never_passes(self, tmp_path_factory: _Folders) -> None:
        """Whichever byte of a shard changes, each sample that passes its checksum is read as it was packed; all others
        raise a RawpackError."""
        for number, (_, path) in enumerate(self._stores(tmp_path_factory)):
            before = [reader.read(row).copy() for reader, row in _rows(path)]
            copy = tmp_path_factory.mktemp("changed") / str(number)
            shutil.copytree(path, copy)
            shard = sorted(copy.glob("shard-*"))[0]
            data = bytearray(shard.read_bytes())
            for at in np.linspace(0, len(data) - 1, _FLIPS).astype(int).tolist():
                data[at] ^= 255
                shard.write_bytes(data)
                for i, image in _intact(copy):
                    np.testing.assert_array_equal(image, before[i])
                data[at] ^= 255

    def test_a_shorter_file_is_refused(self, tmp_path_factory: _Folders) -> None:
        """A shard that was cut off raises a RawpackError."""
        for number, (_, path) in enumerate(self._stores(tmp_path_factory)):
            copy = tmp_path_factory.mktemp("cut") / str(number)
            shutil.copytree(path, copy)
            shard = sorted(copy.glob("shard-*"))[0]
            shard.write_bytes(shard.read_bytes()[:-1])
            _raises(RawpackError, lambda copy=copy: Reader(copy)[0])

    def test_the_same_images_make_the_same_bytes(self, tmp_path_factory: _Folders) -> None:
        """Packed again, all files but the provenance are equal, byte for byte."""
        for images, path in self._stores(tmp_path_factory):
            again = self.pack(images, tmp_path_factory.mktemp("again"))
            assert _files(again) == _files(path)

    # ------------------------------------------------------------------------------------------ what they need

    def _stores(self, folders: _Folders, *, different: bool = True) -> Iterator[tuple[list[Pixels], Path]]:
        """The images and the store of each kind, packed once for the class. different: with images of several sizes."""
        kinds = {"one": [_SIZE] * self.one_size, "several": list(_SIZES) * (self.different_sizes and different)}
        packed: dict[str, tuple[list[Pixels], Path]] = type(self).__dict__.get("_packed", {})
        type(self)._packed = packed
        for kind, sizes in kinds.items():
            if sizes and kind not in packed:
                images = [_image(*sizes[i % len(sizes)], i) for i in range(_COUNT)]
                packed[kind] = images, self.pack(images, folders.mktemp(kind))
            if sizes:
                yield packed[kind]

    _packed: ClassVar[dict[str, tuple[list[Pixels], Path]]]


def _image(height: int, width: int, number: int) -> Pixels:
    """A smooth image, other for each number, with a little noise: (height, width, 3)."""
    random = np.random.default_rng(number)
    y, x = np.mgrid[:height, :width]
    planes = [128 + 90 * np.sin((y * a + x * b) / 9 + number) for a, b in ((1, 0), (0, 1), (1, 1))]
    return (np.stack(planes, 2) + random.integers(-3, 4, (height, width, 3))).astype(np.uint8)


def _rows(path: Path) -> Iterator[tuple[FieldReader, int]]:
    """The reader and the row of each image of a store."""
    store = Store(path)
    for number, shard in enumerate(store.manifest.shards):
        for row in range(shard.rows):
            yield store.reader(number, "image"), row


def _intact(path: Path) -> Iterator[tuple[int, Pixels]]:
    """The images of a store that pass their checksums, with their numbers."""
    stores = Stores([Store(path)])
    for i in range(len(stores)):
        try:
            stores.check("image", i)
            reader, row = stores.reader_of("image", i)
            image = reader.read(row)
        except RawpackError:
            continue
        yield i, image


def _raises(kind: type[Exception], ask: Callable[..., Any], *args: Any) -> None:
    """Fail unless `ask(*args)` raises."""
    try:
        found = ask(*args)
    except kind:
        return
    raise AssertionError(f"{ask} returned {found!r} and did not raise {kind.__name__}")


def _files(path: Path) -> dict[str, bytes]:
    """The files of a store but the provenance, by their paths in it."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {
        file.relative_to(path).as_posix(): file.read_bytes() for file in files if not file.name.startswith("provenance")
    }
