"""Pickles: plain values and arrays are those that Python's unpickler makes; anything else is refused, and never run."""

from __future__ import annotations

import collections
import os
import pickle
import pickletools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawpack_packer.sources.pickles import BadPickleError, read_pickle

VALUES: list[Any] = [
    ([b"\x00\xff image"], 3),
    {"a": [1, -5, 2**70, 1.5, True, None], b"b": ("text \u00e9", b""), 3: {}},
    [[], (), {}, [[1], [2, [3]]], list(range(1500))],
]
ARRAYS = [
    np.arange(12, dtype=np.uint8).reshape(3, 4),
    np.asfortranarray(np.arange(12, dtype=">i4").reshape(3, 4)),
    np.array([1.5, np.inf], "<f8"),
    np.array(7),
    np.zeros((0, 3), np.float32),
    np.array([True, False]),
]


class Evil:
    """Its pickle calls a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", VALUES)
def test_plain_values_are_read_as_python_reads_them(value: Any, protocol: int) -> None:
    """In every protocol that there is."""
    data = pickle.dumps(value, protocol)
    assert read_pickle(data) == pickle.loads(data) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("array", ARRAYS)
def test_arrays_are_read_as_python_reads_them(array: np.ndarray[Any, Any], protocol: int) -> None:
    """Dtype, byte order, order of axes and the values; and numbers of numpy."""
    found = read_pickle(pickle.dumps({"a": array, "n": np.int64(5)}, protocol))
    assert found["a"].shape == array.shape
    assert found["a"].dtype == array.dtype.newbyteorder("=")
    assert (found["a"] == array).all()
    assert (found["n"], type(found["n"])) == (5, int)


def test_pickles_of_python_2_have_bytes_for_texts() -> None:
    """As `pickle.load(file, encoding="bytes")` gives them."""
    data = b"\x80\x02}q\x01(U\x04dataq\x02U\x03\x00\xff\nq\x03U\x06labelsq\x04]q\x05(K\x06K\x09eu."
    assert read_pickle(data) == pickle.loads(data, encoding="bytes") == {b"data": b"\x00\xff\n", b"labels": [6, 9]}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_code_of_a_pickle_runs(tmp_path: Path, protocol: int) -> None:
    """Whatever it would call, by whichever instruction; the name is in the message."""
    left = tmp_path / "ran"
    for evil in (
        Evil(os.mkdir, str(left)),
        Evil(eval, f"__import__('os').mkdir({str(left)!r})"),
        [np.arange(3), Evil(os.mkdir, str(left))],
        {"a": collections.OrderedDict(a=1)},
    ):
        with pytest.raises(BadPickleError, match=r"would import|not read"):
            read_pickle(pickle.dumps(evil, protocol))
    assert not left.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"cnumpy\nload\n(V/etc/passwd\ntR.", "numpy.load"),
        (b"cos\nsystem\n(Vtrue\ntR.", "os.system"),
        (b"(Vtrue\nios\nsystem\n.", "INST"),
        (b"(cos\nsystem\nVtrue\no.", "OBJ"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "NEWOBJ"),
        (b"\x80\x02cnumpy\nndarray\n)}\x92.", "NEWOBJ_EX"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"I0\nQ.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"(VO\nI1\ntR.", "damaged"),
        (b"]}Va\nI1\nsb.", "damaged"),
        (b"cnumpy\ndtype\n}Vname\nVnumpy ndarray\nsb.", "no array"),
        (b"cnumpy\nndarray\n(I1\ntR.", "a way that is not read"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I99999999999\ntVb\ntR.", "a way that is not read"),
        (b"cnumpy\ndtype\n(VO8\ntR.", "no type of numbers"),
        (b"c__builtin__\nbytes\n(I99999999999\ntR.", "a way that is not read"),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "a way that is not read"),
        (b"cnumpy\ndtype\n.", "contains a type"),
        (b"}(I1\nI2\nI3\nu.", "damaged"),
        (b"", "damaged"),
        (b"0.", "not read"),
        (b"}((I1\ntI2\nu.", "keys are neither"),
        (b"]p0\ng0\na.", "nested"),
        (b"(" * 200 + b"t" * 200 + b".", "nested"),
        (b"I1\nr\xff\xff\xff\x7f.", "place 2,147,483,647"),
        (b"I1\np99999999999999\n.", "place 99,999,999,999,999"),
        (b"](p0\nt.", "not just made"),
        (b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.", "damaged"),
        (b"\x8d" + struct.pack("<Q", 1 << 62) + b"x.", "damaged"),
        (b"B" + struct.pack("<I", (1 << 32) - 1) + b"x.", "damaged"),
        (b"I" + b"9" * 5000 + b"\n.", "damaged"),
    ],
)  # fmt: skip
def test_hostile_pickles_are_refused(data: bytes, message: str) -> None:
    """Calls, dtypes that would make numpy read anything, lengths that are not there, circles, memory for nothing."""
    with pytest.raises(BadPickleError, match=message):
        read_pickle(data)


def nested(tuples: int) -> bytes:
    """A dict whose only key is a tuple in a tuple in a tuple."""
    return b"})" + b"\x85" * (tuples - 1) + b"I1\ns."


def squared(tuples: int) -> bytes:
    """A dict whose only key is a tuple that stands for two of a tuple that stands for two, and so on."""
    return b"})p0\n" + b"".join(b"g%d\n\x86p%d\n" % (i, i + 1) for i in range(tuples)) + b"I1\ns."


def hidden(tuples: int, hiding: bytes) -> bytes:
    """The same, but tuples are put in the memo after another instruction, which leaves them where they are."""
    return squared(tuples).replace(b")p0", b")" + hiding + b"p0").replace(b"\x86p", b"\x86" + hiding + b"p")


def encoded(calls: int) -> bytes:
    """One long text, made bytes again and again."""
    again = b"h\x01h\x00h\x02\x86R"
    begin = b"(X\x40\x42\x0f\x00" + b"x" * 10**6 + b"q\x00"
    return begin + b"c_codecs\nencode\nq\x01Vlatin1\nq\x02" + again * calls + b"t."


def arrays(calls: int) -> bytes:
    """The bytes of one array, made an array again and again."""
    begin = b"(B\x40\x42\x0f\x00" + bytes(10**6) + b"q\x00cnumpy.core.numeric\n_frombuffer\nq\x01"
    again = b"h\x01(h\x00h\x02(J\x40\x42\x0f\x00tVC\ntR"
    return begin + b"cnumpy\ndtype\n(Vu1\ntRq\x02" + again * calls + b"t."


def doubled(lists: int, rest: bytes) -> bytes:
    """A list that stands for two of a list that stands for two, and so on; and what is done with it."""
    made = [b"(g%d\ng%d\nlp%d\n" % (i, i, i + 1) for i in range(lists)]
    return b"(]p0\n" + b"".join(made) + rest % lists + b"t."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (nested(300_000), "1,000 tuples"),
        (squared(100), "in several places"),
        *[(hidden(100, hiding), "not just made") for hiding in (b"(e", b"(u", b"Nb", b"p200\n")],
        (b"]" * 1_200_000 + b"a" * 1_199_999 + b".", "instructions"),
        (b"(" + b"}" * 1_200_000 + b"t.", "instructions"),
        (encoded(900), "more bytes than it has"),
        (arrays(300), "more bytes than it has"),
        (doubled(60, b"cnumpy\ndtype\ng%d\n\x85R"), "an array of something"),
        (doubled(60, b"}g%d\nI1\ns"), "damaged"),
    ],
    ids=["deep", "squared", *"abcd", "lists", "dicts", "encoded", "arrays", "shown", "hashed"],
)
def test_small_pickles_take_neither_forever_nor_all_memory(data: bytes, message: str) -> None:
    """Whatever they share, nest or repeat."""
    with pytest.raises(BadPickleError, match=message):
        read_pickle(data)


def test_nothing_is_left_of_a_hostile_pickle() -> None:
    """One that gives what stands for numpy's names other attributes does not change how the next one is read."""
    array = np.arange(5)
    for name in ("numpy\nndarray", "numpy\ndtype", "numpy.core.multiarray\n_reconstruct"):
        for state in ("}Vname\nV_codecs encode\ns", "(N}V__call__\nI1\nst"):
            with pytest.raises(BadPickleError, match="no array"):
                read_pickle(f"c{name}\n{state}b.".encode())
    assert (read_pickle(pickle.dumps(array)) == array).all()


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_batch_as_large_as_the_largest_of_cifar_is_read(protocol: int) -> None:
    """50,000 names and twice as many labels."""
    count = 50_000
    batch: dict[bytes, Any] = {b"fine_labels": list(range(count)), b"coarse_labels": list(range(count))}
    batch |= {b"filenames": [b"%d.png" % i for i in range(count)], b"data": np.zeros((count, 3), np.uint8)}
    found = read_pickle(pickle.dumps(batch, protocol))
    assert (found.pop(b"data") == batch.pop(b"data")).all()
    assert found == batch


@pytest.mark.parametrize("rest", [pickle.dumps({"b": 2}), bytes(1)])
def test_what_follows_a_pickle_is_an_error(rest: bytes) -> None:
    """Two batches that were joined do not become one of them."""
    with pytest.raises(BadPickleError, match=rf"{len(rest)} bytes follow its end"):
        read_pickle(pickle.dumps({"a": 1}) + rest)


def test_states_of_arrays_are_checked() -> None:
    """An array that declares more values than it brings, and a dtype with fields, are refused."""
    array = np.arange(3, dtype=np.uint8)
    good = pickle.dumps(array, 2)
    assert b"K\x03\x85" in good
    with pytest.raises(BadPickleError, match="damaged"):
        read_pickle(good.replace(b"K\x03\x85", b"K\x63\x85"))
    for strange in (
        np.zeros(2, [("a", "u1")]),
        np.array(["x", None], object),
        np.array(["text"]),
        np.zeros(2, "M8[s]"),
    ):
        with pytest.raises(BadPickleError):
            read_pickle(pickle.dumps(strange))


def test_many_references_to_one_list_stay_one_list() -> None:
    """A few hundred bytes that stand for 10 ** 25 values cost nothing."""
    data = b"]p0\n" + b"".join(b"(" + b"g%d\n" % (i - 1) * 10 + b"lp%d\n" % i for i in range(1, 26))
    assert len(data) < 2000
    found = read_pickle(b"(" + data + b"t.")[-1]
    for _ in range(25):
        assert len(found) == 10
        found = found[0]
    assert found == []


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
def test_every_prefix_and_every_changed_byte_gives_an_answer() -> None:
    """A value or BadPickleError, and no other exception."""
    data = pickle.dumps(([b"bytes of an image"], np.array(3)), 2)
    assert len(list(pickletools.genops(data))) > 20
    random = np.random.default_rng(0)
    broken, refused = [data[:n] for n in range(len(data))], 0
    for at in range(len(data)):
        for value in random.integers(0, 256, 4).tolist():
            broken.append(data[:at] + bytes([value]) + data[at + 1 :])
    for one in broken:
        try:
            read_pickle(one)
        except BadPickleError:
            refused += 1
    assert refused > len(data)
