"""The contract of sources, as tests to inherit."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from rawpack.errors import DecodeError
from rawpack_packer import api
from rawpack_packer.destination.journal import REASONS
from rawpack_packer.sources import FieldKind, Item, Samples, Source, SourceChangedError, SourceInfo, Table
from rawpack_packer.sources.base import image_file_of
from rawpack_packer.sources.fields import Boxes, Fractions, are_texts, check_names
from rawpack_packer.sources.table.columns import Numbers
from rawpack_packer.sources.table.foreign import as_table
from rawpack_packer.testing.engines import check_files, settled_files

Read = Item | DecodeError


class SourceConformance:
    """Subclass it as `Test...` and write `open`. Best with a few samples, some of which cannot be read."""

    def open(self, folder: Path) -> Source | Table:
        """Open the source. `folder` is each test's own, empty at the first call; later calls open the same samples."""
        raise NotImplementedError

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]] | None:
        """Key and image of every sample in order, known without this source; an image None is not compared. Return None
        where nothing is known."""
        return None

    def change(self, folder: Path) -> bool:
        """Change a file that sample 0 is read from, after the source was opened. Return False if there are no files."""
        return False

    # ------------------------------------------------------------------------------------------ before reading

    def test_is_a_source(self, tmp_path: Path) -> None:
        """The source has all members of `Source`, at least one sample, and info with names that a store can have."""
        source = self.open(tmp_path)
        assert isinstance(source, Source), (
            f"{type(source).__name__} lacks a member of rawpack_packer.sources.Source"
        )
        info = source.info
        assert isinstance(info, SourceInfo), f"info is a {type(info).__name__}"
        assert len(source) > 0, "a source without samples raises UsageError when it is opened"
        check_names(info.fields)
        assert all(isinstance(kind, FieldKind) for kind in info.fields.values()), f"fields are {info.fields}"
        assert info.root.isprintable(), f"root {info.root!r} has characters that no message can show"
        assert all(line.isprintable() for line in info.problems), f"problems {info.problems}: one printable line each"
        if info.classes is not None:
            assert len(set(info.classes)) == len(info.classes), f"classes {info.classes}: a name is there twice"
        assert set(info.empty_classes) <= set(info.classes or ()), (
            f"empty_classes {info.empty_classes}: not all are classes"
        )

    def test_is_the_same_when_opened_again(self, tmp_path: Path) -> None:
        """Opened twice, the source has the same info, keys and states, so that another process can resume a run."""
        one, two = self.open(tmp_path), self.open(tmp_path)
        assert one.info == two.info, f"{one.info} when opened first, {two.info} then"
        assert _keys(one) == _keys(two), "keys differ when it is opened again"
        assert np.array_equal(one.states(), two.states()), "states differ when it is opened again"

    def test_refuses_numbers_outside(self, tmp_path: Path) -> None:
        """In the source and in its parts, sample -1, sample n and parts outside 0 to n raise IndexError."""
        source = self.open(tmp_path)
        count = len(source)
        for samples in (source, source.part(0, count), source.part(0, 1)):
            for i in (-1, len(samples)):
                _raises_index_error(lambda samples=samples, i=i: samples[i], f"sample {i} of {len(samples)}")
                _raises_index_error(lambda samples=samples, i=i: samples.key(i), f"key {i} of {len(samples)}")
        for start, stop in ((-1, 0), (0, count + 1), (1, 0)):
            _raises_index_error(lambda start=start, stop=stop: source.part(start, stop), f"part {start} to {stop}")

    def test_keys_are_unique_texts(self, tmp_path: Path) -> None:
        """Keys are unique and can be encoded as UTF-8."""
        keys = _keys(self.open(tmp_path))
        assert len(set(keys)) == len(keys), f"keys are there twice: {sorted(k for k in keys if keys.count(k) > 1)[:5]}"
        for key in keys:
            key.encode()

    def test_states_are_sizes_and_times(self, tmp_path: Path) -> None:
        """States are int64, (n, 2)."""
        states = self.open(tmp_path).states()
        assert states.dtype.name == "int64", f"states are {states.dtype}"
        assert states.shape == (len(states), 2), f"states have shape {states.shape}"

    # ------------------------------------------------------------------------------------------ samples

    def test_samples_are_what_info_says(self, tmp_path: Path) -> None:
        """Each sample has its key and exactly the fields of info, of the declared kinds; labels number the classes."""
        source = self.open(tmp_path)
        for i in range(len(source)):
            item = _read(source, i)
            if isinstance(item, Item):
                assert item.key == source.key(i), f"sample {i} has key {item.key!r}, and key({i}) is {source.key(i)!r}"
                _check_item(item, source.info)

    def test_samples_are_the_expected_ones(self, tmp_path: Path) -> None:
        """Keys, order and images are those of `expected`."""
        source = self.open(tmp_path)
        expected = self.expected(tmp_path)
        if expected is None:
            return
        assert _keys(source) == [key for key, _ in expected], "keys or their order are not the expected ones"
        for i, (key, image) in enumerate(expected):
            item = _read(source, i)
            assert image is None or (isinstance(item, Item) and _equal(item.image, image)), f"image of {key!r} differs"

    def test_what_cannot_be_read_has_a_reason(self, tmp_path: Path) -> None:
        """A sample that cannot be read raises DecodeError with a documented reason and without an absolute path."""
        source = self.open(tmp_path)
        for i in range(len(source)):
            error = _read(source, i)
            if isinstance(error, DecodeError):
                assert error.reason in REASONS, f"sample {i}: reason {error.reason!r} is none of {', '.join(REASONS)}"
                assert str(tmp_path) not in error.detail, (
                    f"sample {i}: rejects must not name {tmp_path}: {error.detail}"
                )

    def test_a_sample_is_the_same_each_time(self, tmp_path: Path) -> None:
        """Read backwards, and again from a source opened anew, every sample is the same."""
        source = self.open(tmp_path)
        first = _all(source)
        for samples in (source, self.open(tmp_path)):
            for i in reversed(range(len(first))):
                assert _same(_read(samples, i), first[i]), f"sample {i} differs when it is read again"

    def test_parts_are_equal_to_the_whole(self, tmp_path: Path) -> None:
        """However the source is divided, its parts have the samples of the whole."""
        source = self.open(tmp_path)
        whole, keys, count = _all(source), _keys(source), len(source)
        assert len(source.part(0, 0)) == len(source.part(count, count)) == 0, "an empty part has samples"
        for size in sorted({1, 2, 3, max(count // 2, 1), count}):
            for start in range(0, count, size):
                stop = min(start + size, count)
                part = source.part(start, stop)
                assert len(part) == stop - start, f"part {start} to {stop} has {len(part)} samples"
                for i in range(len(part)):
                    assert part.key(i) == keys[start + i], f"key {i} of part {start} to {stop} is not that of the whole"
                    assert _same(_read(part, i), whole[start + i]), f"sample {i} of part {start} to {stop} differs"

    def test_parts_can_be_sent(self, tmp_path: Path) -> None:
        """A part that was pickled for a worker, before or after it was read, has the same samples."""
        source = self.open(tmp_path)
        whole, count = _all(source), len(source)
        part = source.part(count // 3, count)
        for _ in range(2):
            sent = pickle.loads(cloudpickle.dumps(part))
            for i in range(len(sent)):
                assert _same(_read(sent, i), whole[count // 3 + i]), f"sample {i} of a part that was pickled differs"
                _read(part, i)

    def test_workers_pack_what_one_process_packs(self, tmp_path: Path) -> None:
        """Two worker processes make the store of one process, byte for byte."""
        folder = tmp_path / "source"
        folder.mkdir()
        source = self.open(folder)
        for workers in (0, 2):
            api.pack(source, tmp_path / f"{workers}", workers=workers, max_rejects=len(source), shard_size=1)
        check_files(settled_files(tmp_path / "2"), settled_files(tmp_path / "0"))

    def test_a_change_is_noticed(self, tmp_path: Path) -> None:
        """A file that changes while it is packed raises SourceChangedError; opened again, it has other states."""
        source = self.open(tmp_path)
        states, part = source.states(), source.part(0, 1)
        if not self.change(tmp_path):
            return
        try:
            part[0]
        except SourceChangedError:
            pass
        else:
            raise AssertionError("sample 0 was read from a file that changed since the source was opened")
        assert not np.array_equal(self.open(tmp_path).states(), states), "states do not show that a file changed"

    # ------------------------------------------------------------------------------------------ optional

    def test_what_is_optional_agrees_with_the_samples(self, tmp_path: Path) -> None:
        """Labels, groups, unread samples, probes, videos and image files of the source match its samples."""
        source = as_table(self.open(tmp_path))
        count, whole = len(source), _all(source)
        if (labels := source.labels) is not None:
            assert labels.shape == (count,), f"labels have shape {labels.shape}, for {count} samples"
            for i, item in enumerate(whole):
                if isinstance(item, Item):
                    assert int(np.asarray(item.fields["label"])) == labels[i], f"label {i} is not sample {i}'s"
        assert all(isinstance(source.group(i), str) for i in range(count)), "a group is not a str"
        for i in source.unread.tolist():
            assert isinstance(whole[i], DecodeError), f"sample {i} is unread and can be read"
        probes = source.probes()
        assert ((probes >= 0) & (probes < count)).all(), "probes() has other rows"
        assert (np.diff(probes) > 0).all(), "probes() does not ascend"
        if (videos := source.videos()) is not None:
            assert len(videos.numbers) == count, f"videos() has {len(videos.numbers)} numbers, for {count} samples"
        part = source.part(0, count)
        for i, item in enumerate(whole):
            found = image_file_of(part, i)
            if found is not None and isinstance(item, Item) and isinstance(item.image, bytes):
                path, offset, size = found
                read = Path(path).read_bytes()[offset : offset + size]
                assert len(read) == size, f"image_file({i}) goes beyond the end of its file"
                assert size != len(item.image) or read == item.image, f"image_file({i}) is not the image"

    # ------------------------------------------------------------------------------------------ as a table

    def test_rows_that_are_taken_are_those_of_the_whole(self, tmp_path: Path) -> None:
        """Whatever rows are taken, of the source or of rows that were taken before, they are those of the whole, read
        here or by another process; so are their keys, labels and states."""
        table = as_table(self.open(tmp_path))
        count, whole, keys = len(table), _all(table), _keys(table)
        every = np.arange(count)
        for rows in (every[::2], every[1::2], every[-1:], every[count // 3 :], every[:0]):
            taken = table.take(rows)
            _check_rows(taken, rows, whole, keys)
            _check_rows(pickle.loads(cloudpickle.dumps(taken.part(0, len(rows)))), rows, whole, keys)
            again = np.arange(len(rows))[::-2][::-1]
            _check_rows(taken.take(again), rows[again], whole, keys)
            if table.labels is not None and taken.labels is not None:
                assert np.array_equal(taken.labels, table.labels[rows]), f"labels of rows {rows.tolist()} differ"
            if table.row_states is not None and taken.row_states is not None:
                assert np.array_equal(taken.row_states, table.row_states[rows]), f"states of {rows.tolist()} differ"

    def test_rows_in_another_order_are_those_of_the_whole(self, tmp_path: Path) -> None:
        """Rows that are put in another order, and parts of them, are those of the whole."""
        table = as_table(self.open(tmp_path))
        whole, keys = _all(table), _keys(table)
        order = np.random.default_rng(len(table)).permutation(len(table))
        ordered = table.ordered(order)
        _check_rows(ordered, order, whole, keys)
        _check_rows(ordered.take(np.arange(len(table))[1:]), order[1:], whole, keys)

    def test_columns_that_are_joined_take_the_place_of_others(self, tmp_path: Path) -> None:
        """A further column has its value in each sample, whether the source has a field of that name or not; all else
        stays."""
        table = as_table(self.open(tmp_path))
        whole = _all(table)
        for name in ("joined", *([*table.info.fields][:1] if table.rows.classes is None else ())):
            joined = table.joined({name: Numbers(np.arange(len(table)))})
            for i, item in enumerate(_all(joined)):
                if isinstance(item, Item):
                    before = whole[i]
                    assert isinstance(before, Item)
                    assert int(np.asarray(item.fields[name])) == i, f"sample {i} has another value of {name}"
                    others = {k: value for k, value in before.fields.items() if k != name}
                    assert all(_equal(value, item.fields[k]) for k, value in others.items()), f"sample {i} differs"

    def test_numbers_as_keys_and_other_classes(self, tmp_path: Path) -> None:
        """Keys become numbers; classes in another order give each label its new number, and none to those left out."""
        table = as_table(self.open(tmp_path))
        count, keys = len(table), [f"{n:08d}" for n in range(7, 7 + len(table))]
        assert _keys(table.numbered_from(7)) == keys, "keys are not the numbers"
        classes = table.info.classes
        if classes is None or "label" not in table.info.fields:
            return
        names = [*classes[1:], "another"]
        changed = table.with_classes(names)
        for i in range(count):
            before, after = _read(table, i), _read(changed, i)
            if isinstance(before, Item) and isinstance(after, Item):
                label = int(np.asarray(before.fields["label"]))
                wanted = names.index(classes[label]) if label > 0 else -1
                assert int(np.asarray(after.fields["label"])) == wanted, f"the label of sample {i} is not {wanted}"


def _check_rows(samples: Samples, rows: Any, whole: Sequence[Read], keys: Sequence[str]) -> None:
    assert _keys(samples) == [keys[row] for row in rows.tolist()], f"keys of rows {rows.tolist()} differ"
    for i, row in enumerate(rows.tolist()):
        assert _same(_read(samples, i), whole[row]), f"sample {i} of rows {rows.tolist()} is not sample {row}"


def _raises_index_error(call: Any, what: str) -> None:
    try:
        call()
    except IndexError:
        return
    raise AssertionError(f"{what}: no IndexError")


def _keys(samples: Samples) -> list[str]:
    return [samples.key(i) for i in range(len(samples))]


def _read(samples: Samples, i: int) -> Read:
    """Sample i, or the error for why it cannot be read. Any other exception is a bug of the source."""
    try:
        return samples[i]
    except DecodeError as error:
        return error


def _all(samples: Samples) -> list[Read]:
    return [_read(samples, i) for i in range(len(samples))]


def _same(one: Read, two: Read) -> bool:
    if isinstance(one, DecodeError) or isinstance(two, DecodeError):
        return (
            isinstance(one, DecodeError)
            and isinstance(two, DecodeError)
            and (one.reason, one.detail) == (two.reason, two.detail)
        )
    if (one.key, one.file_bytes, list(one.fields)) != (two.key, two.file_bytes, list(two.fields)):
        return False
    return _equal(one.image, two.image) and all(_equal(value, two.fields[name]) for name, value in one.fields.items())


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, Boxes) and isinstance(two, Boxes):
        return (one.form, one.size) == (two.form, two.size) and _equal(one.rows, two.rows)
    if isinstance(one, Fractions) and isinstance(two, Fractions):
        return _equal(one.rows, two.rows)
    if isinstance(one, bytes | str) or isinstance(two, bytes | str):
        return type(one) is type(two) and bool(one == two)
    a, b = np.asarray(one), np.asarray(two)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _check_item(item: Item, info: SourceInfo) -> None:
    where = f"sample {item.key!r}"
    assert set(item.fields) == set(info.fields), f"{where} has fields {sorted(item.fields)}, info {sorted(info.fields)}"
    assert isinstance(item.image, bytes | np.ndarray), f"{where}: the image is a {type(item.image).__name__}"
    if info.image is not None and isinstance(item.image, np.ndarray):
        assert item.image.dtype == info.image.dtype, f"{where}: {item.image.dtype}, info says {info.image.dtype}"
        assert _fits(item.image.shape, info.image.shape), f"{where}: {item.image.shape}, info says {info.image.shape}"
    for name, kind in info.fields.items():
        value = item.fields[name]
        if kind.is_texts:
            assert are_texts(value), f"{where}: {name} is a {type(value).__name__}, info says a list of texts"
        elif kind.dtype == "str":
            assert isinstance(value, str), f"{where}: {name} is a {type(value).__name__}, info says str"
        elif isinstance(value, Boxes):
            assert value.form == kind.boxes, f"{where}: {name} has boxes {value.form}, info says {kind.boxes}"
        elif isinstance(value, Fractions):
            assert kind.follows in ("keypoints", "polygons"), f"{where}: {name} has fractions, info says {kind}"
        elif not kind.is_pixels:
            assert _fits(np.shape(value), kind.shape), f"{where}: {name} is {np.shape(value)}, info says {kind.shape}"
    if info.classes is not None and "label" in item.fields:
        label = int(np.asarray(item.fields["label"]))
        assert -1 <= label < len(info.classes), f"{where}: label {label}, of {len(info.classes)} classes"


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(n is None or m == n for m, n in zip(shape, expected, strict=True))
