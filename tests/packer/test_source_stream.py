"""Streams, such as generators, as sources: what they give is in the store, whatever happens on the way."""

from __future__ import annotations

import io
import itertools
import re
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from PIL import Image
from reading import run_script, script
from running import reader_of

import rawpack_packer
from rawpack import PackError, Reader, UsageError


def samples(count: int = 40) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {
            "image": picture(14, 11, i),
            "label": ("cat", "dog", "eel")[i % 3],
            "score": np.float32(i / 7),
            "caption": f"größer {i}",
            "box": [[0.0, 1.0, 2.0, float(i)]] * (i % 3),
            "mask": np.full((14, 11), i, np.uint8),
            "pose": np.arange(6.0).reshape(2, 3) + i,
        }


_FIELDS = {"mask": "mask", "box": "float32[?,4]"}


def same_as_generated(store: Path, count: int) -> None:
    reader = Reader(store)
    assert len(reader) == count
    for i, wanted in enumerate(samples(count)):
        got = reader[i]
        assert got["key"] == f"{i:08d}"
        np.testing.assert_array_equal(got["image"], wanted["image"])
        np.testing.assert_array_equal(got["mask"][..., 0], wanted["mask"])
        np.testing.assert_array_equal(got["pose"], wanted["pose"])
        np.testing.assert_array_equal(got["box"], np.reshape(wanted["box"], (-1, 4)))
        assert (reader.classes[got["label"]], got["caption"]) == (wanted["label"], wanted["caption"])
        assert got["score"] == wanted["score"]


def test_a_generator(tmp_path: Path) -> None:
    """All fields are as it gave them, classes are the names of the labels, and nothing is left beside the store."""
    done = rawpack_packer.pack(samples(), tmp_path / "s", fields=_FIELDS, workers=2)
    assert (done.manifest.samples, done.manifest.classes) == (40, ("cat", "dog", "eel"))
    same_as_generated(tmp_path / "s", 40)
    assert not (tmp_path / "s/.rawpack").exists()


class Iterable:
    """What can be iterated again, without a length; it says what its samples are."""

    classes = ("even", "odd")
    image = "chw"

    def __iter__(self) -> Iterator[Any]:
        return ((picture(4, 9, i).transpose(2, 0, 1), i % 2) for i in range(20))


class Counted(Iterable):
    def __len__(self) -> int:
        return 20


@pytest.mark.parametrize("kind", [Iterable, Counted])
def test_an_iterable(kind: Any, tmp_path: Path) -> None:
    """With a length, several processes pack it too; its attributes say what they say of a dataset."""
    reader = reader_of(kind(), tmp_path / "s", workers=2)
    assert reader.classes == ("even", "odd")
    assert reader.column("label").tolist() == [i % 2 for i in range(20)]
    np.testing.assert_array_equal(reader[13]["image"], picture(4, 9, 13))


def test_an_iterable_that_ends_before_its_length(tmp_path: Path) -> None:
    """It begins four times at most: samples are read in one pass after the looks at the first ones."""
    begun = []

    class Long(Counted):
        def __iter__(self) -> Iterator[Any]:
            begun.append(1)
            return itertools.islice(super().__iter__(), 8)

    with pytest.raises(PackError, match="it ended after 8 samples"):
        rawpack_packer.pack(Long(), tmp_path / "s", workers=0, strict=True)
    assert len(begun) <= 4


def _turned(n: int) -> Image.Image:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture(16, 24, n)).save(file, "PNG", exif=exif)
    return Image.open(file)


@pytest.mark.parametrize(
    "made",
    [
        lambda n: Image.fromarray(picture(16, 24, n)).convert("RGBA"),
        lambda n: Image.fromarray(np.uint16(picture(16, 24, n)[..., 0]) * 200),
        lambda n: Image.fromarray(picture(16 + n, 24, n)),
        lambda n: encoded(picture(16, 24, n)),
        lambda n: np.float32(picture(16, 24, n)),
        _turned,
    ],
)
def test_images_of_each_kind_are_packed_as_those_of_a_list(made: Any, tmp_path: Path) -> None:
    """Modes, sizes, transparency and EXIF of PIL images; bytes of files; arrays."""
    rawpack_packer.pack([made(n) for n in range(3)], tmp_path / "list", workers=0)
    rawpack_packer.pack((made(n) for n in range(3)), tmp_path / "stream", workers=0)
    wanted, got = Reader(tmp_path / "list"), Reader(tmp_path / "stream")
    assert got.fields == wanted.fields
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])


def test_paths_may_be_gone_when_they_are_packed(tmp_path: Path) -> None:
    """A stream that writes each image to the same file; what cannot be read is rejected."""

    def written() -> Iterator[Any]:
        path = tmp_path / "now.png"
        for n in range(6):
            Image.fromarray(picture(12, 12, n)).save(path)
            yield {"image": path if n % 2 else str(path), "n": n}
            path.unlink()
        yield {"image": tmp_path / "none.png", "n": 6}

    done = rawpack_packer.pack(written(), tmp_path / "s", size="keep", workers=0, max_rejects=1)
    assert done.manifest.rejects.reasons == {"unreadable": 1}
    reader = Reader(tmp_path / "s")
    for n in range(6):
        np.testing.assert_array_equal(reader[n]["image"], picture(12, 12, n))


def test_samples_that_cannot_be_packed_are_rejected(tmp_path: Path) -> None:
    """Other values than the first has, a picture whose file is cut short, and one that raises what is no UTF-8."""

    class Lazy(UserDict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise RuntimeError("\udcff")

    given: list[Any] = [(picture(40, 40, n), n) for n in range(7)]
    given[2], given[4] = (picture(40, 40, 2), object()), (picture(40, 40, 4), 4, 4)
    given[5] = (Image.open(io.BytesIO(encoded(picture(40, 40, 5))[:900])), 5)
    given[6] = Lazy({"image": 0})
    for name, source in (("list", given), ("stream", iter(given))):
        done = rawpack_packer.pack(source, tmp_path / name, workers=0, max_rejects=4)
        assert sum(done.manifest.rejects.reasons.values()) == 4
        assert Reader(tmp_path / name).column("label").tolist() == [0, 1, 3]


def test_names_keys_and_a_limit(tmp_path: Path) -> None:
    """Of a stream without an end, the first samples; no more is read."""
    counted, keys = itertools.count(), [f"k{n}" for n in range(5)]
    given = ((n, picture(4, 4, n), n / 2) for n in counted)
    names = ("label", "image", "half")
    reader = reader_of(given, tmp_path / "s", names=names, keys=keys, limit=5, workers=0)
    assert [reader[n]["key"] for n in range(5)] == keys
    assert reader.column("half").tolist() == [0, 0.5, 1, 1.5, 2]
    assert next(counted) == 5


def test_splits(tmp_path: Path) -> None:
    parts = {"train": samples(12), "val": ({**one, "label": "fox"} for one in samples(4))}
    rawpack_packer.pack_splits(parts, tmp_path / "s", fields=_FIELDS, workers=0)
    train, val = Reader(tmp_path / "s/train"), Reader(tmp_path / "s/val")
    assert train.classes == val.classes == ("cat", "dog", "eel", "fox")
    assert (len(train), val.column("label").tolist()) == (12, [3] * 4)
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["splits.json", "train", "val"]
    rawpack_packer.pack_splits(samples(20), tmp_path / "drawn", holdout={"val": 0.25}, fields=_FIELDS, workers=0)
    assert [len(Reader(tmp_path / "drawn" / name)) for name in ("train", "val")] == [15, 5]


def test_append(tmp_path: Path) -> None:
    rawpack_packer.pack(samples(10), tmp_path / "s", fields=_FIELDS, workers=0)
    rawpack_packer.append(itertools.islice(samples(25), 10, None), tmp_path / "s", fields=_FIELDS, workers=0)
    same_as_generated(tmp_path / "s", 25)
    assert not (tmp_path / "s/.rawpack").exists()


# ---------------------------------------------------------------------------------------------- what stops


_READ = samples(1)
next(_READ)
next(_READ, None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (iter(()), "gives no samples"),
        (_READ, "was read to its end before: pass one that begins anew"),
        (iter([3]), "the image is a single number"),
    ],
)
def test_what_is_no_stream_of_samples_is_refused(given: Any, words: str, tmp_path: Path) -> None:
    """By the first sample, and nothing is written."""
    with pytest.raises(UsageError, match=words):
        rawpack_packer.pack(given, tmp_path / "s", workers=0)
    assert not (tmp_path / "s").exists()


def packed(given: Any, store: Path, **options: Any) -> Any:
    return rawpack_packer.pack(given, store, fields=_FIELDS, workers=0, **options)


def _failing(stop: int) -> Iterator[Any]:
    yield from itertools.islice(samples(), stop)
    raise OSError("the line is dead")


def test_a_stream_that_raises_goes_on_with_a_new_one(tmp_path: Path) -> None:
    """What it gave stays; a new one is compared, and only the rest is taken."""
    with pytest.raises(PackError, match=r"stopped at sample 17: OSError: the line is dead; once that is fixed"):
        packed(_failing(17), tmp_path / "s")
    taken = next((tmp_path / "s/.rawpack/spool").iterdir()) / "samples"
    size = taken.stat().st_size
    with pytest.raises(PackError, match="stopped at sample 25"):
        packed(_failing(25), tmp_path / "s")
    assert size < taken.stat().st_size < 2 * size
    packed(samples(), tmp_path / "s")
    same_as_generated(tmp_path / "s", 40)


def _other(at: int, count: int = 40) -> Iterator[Any]:
    for i, one in enumerate(samples(count)):
        yield {**one, "caption": "other"} if i == at else one


def test_another_stream_is_refused_in_words(tmp_path: Path) -> None:
    """Where one was begun or packed: the first sample that differs, and what to do; restart begins again."""
    for _ in range(2):
        with pytest.raises(PackError, match="stopped at sample 17"):
            packed(_failing(17), tmp_path / "s")
        with pytest.raises(UsageError, match=r"an earlier run began: sample 12, counted from 0, is another .*restart"):
            packed(_other(12), tmp_path / "s")
    with pytest.raises(UsageError, match="it ended after 5 samples"):
        packed(samples(5), tmp_path / "s")
    packed(_other(12), tmp_path / "s", restart=True)
    assert Reader(tmp_path / "s")[12]["caption"] == "other"
    assert packed(_other(12), tmp_path / "s").already
    for options, words in (({"keys": ["a"]}, "keys= has 1"), ({"format": "hdf5"}, "format= was memmap")):
        with pytest.raises(UsageError, match=words):
            packed(_other(12), tmp_path / "s", **options)
        assert not (tmp_path / "s/.rawpack").exists()
    for other, words in ((samples(), "sample 12"), (_other(12, 30), "ended after 30"), (_other(12, 41), "after 40")):
        with pytest.raises(UsageError, match=f"a finished store was packed from: .*{words}"):
            packed(other, tmp_path / "s")
        assert not (tmp_path / "s/.rawpack").exists()


def test_one_run_at_a_time_reads_a_stream(tmp_path: Path) -> None:
    """A second one is refused while the first reads, and disturbs nothing."""

    def greedy() -> Iterator[Any]:
        for i, one in enumerate(samples()):
            if i == 9:
                with pytest.raises(UsageError, match="another run on this machine is reading a stream into"):
                    packed(samples(), tmp_path / "s")
            yield one

    packed(greedy(), tmp_path / "s")
    same_as_generated(tmp_path / "s", 40)


def test_a_damaged_spool_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keys= has 2 keys"):
        packed(samples(), tmp_path / "s", keys=["a", "b"])
    taken = next((tmp_path / "s/.rawpack/spool").iterdir()) / "samples"
    data = bytearray(taken.read_bytes())
    data[len(data) // 2] ^= 1
    taken.write_bytes(data)
    with pytest.raises((PackError, UsageError), match="was changed"):
        packed(samples(), tmp_path / "s")
    packed(samples(), tmp_path / "s", restart=True)
    same_as_generated(tmp_path / "s", 40)


def test_a_full_disk_names_the_bytes_of_the_stream(tmp_path: Path) -> None:
    """In a process whose files may have 64 kB."""
    path = script(
        tmp_path,
        """
import resource, signal
import numpy as np
import rawpack_packer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
random = np.random.default_rng(0)
rawpack_packer.pack((random.integers(0, 256, (64, 64, 3), np.uint8) for _ in range(30)), "s", workers=0)
""",
    )
    said = run_script(path).err
    assert "stopped: File too large; all samples of the generator are kept in" in said
    assert re.search(r"until the store is finished, 65\.\d kB so far; once that is fixed", said)


def test_memory_does_not_grow_with_the_stream(tmp_path: Path) -> None:
    """94 MB of samples, in a process that has at most 60 MB more than before."""
    path = script(
        tmp_path,
        """
import resource
import numpy as np
import rawpack_packer
rawpack_packer.pack((np.full((9, 9, 3), n, np.uint8) for n in range(9)), "small", workers=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
images = (np.full((512, 512, 3), n, np.uint8) for n in range(120))
rawpack_packer.pack(images, "large", workers=0, shard_size=8 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
""",
    )
    assert int(run_script(path).out) < 60_000


def test_files_as_datasets_has_them_undecoded(tmp_path: Path) -> None:
    files = [encoded(picture(8, 8, n)) for n in range(4)]
    (tmp_path / "3.png").write_bytes(files[3])
    given = [{"image": {"bytes": one, "path": f"{n}.png"}, "label": n} for n, one in enumerate(files[:3])]
    given.append({"image": {"bytes": None, "path": str(tmp_path / "3.png")}, "label": 3})
    for name, source in (("list", given), ("stream", iter(given))):
        reader = reader_of(source, tmp_path / name, size="keep", workers=0)
        for n in range(4):
            np.testing.assert_array_equal(reader[n]["image"], picture(8, 8, n))
