"""Pickles: an image and a label are those that Python's unpickler makes; anything else is refused, and never run."""

from __future__ import annotations

import collections
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawpack_packer.sources.pickles import BadPickleError, read_pickle

IMAGE = b"\x00\xff image"
VALUES: list[Any] = [
    (IMAGE, 3),
    ([IMAGE], [-5, 2**70]),
    (IMAGE, ("text \u00e9", None, True, False, 1.5)),
    list(range(300)),
    [[], (), [[1], [2, [3]]]],
]
LABELS = [np.array(7), np.array([[7]], np.uint8), np.array([7], ">i4"), np.array([1.5]), np.array([True])]
LABELS.append(np.arange(12).reshape(3, 4))
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


class Evil:
    """Its pickle calls a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values_are_read_as_python_reads_them(protocol: int) -> None:
    for value in VALUES:
        data = pickle.dumps(value, protocol)
        assert read_pickle(data) == pickle.loads(data) == value
    assert read_pickle(pickle.dumps({"a": 1, "b": {}}, protocol)) == {}  # seen, and not read


def test_old_and_odd_pickles_are_read_as_python_reads_them() -> None:
    """Python 2 has bytes for texts; a list may be added to after it was put in the memo."""
    data = b"\x80\x02U\x03\x00\xff\nq\x01K\x09\x86q\x02."
    assert read_pickle(data) == pickle.loads(data, encoding="bytes") == (b"\x00\xff\n", 9)
    data = b"(]p0\n(I1\nI2\neg0\nt."
    assert read_pickle(data) == pickle.loads(data) == ([1, 2], [1, 2])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays_are_read_as_python_reads_them(protocol: int) -> None:
    for label in LABELS:
        image, found = read_pickle(pickle.dumps(([IMAGE], label), protocol))
        assert image == [IMAGE]
        assert (found.shape, found.dtype) == (label.shape, label.dtype)
        assert (found == label).all()
    _, number = read_pickle(pickle.dumps((IMAGE, np.int64(5)), protocol))
    assert (number, type(number)) == (5, int)


@pytest.mark.parametrize("protocol", PROTOCOLS)
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
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"(Vtrue\nios\nsystem\n.", "INST"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "NEWOBJ"),
        (b"I0\nQ.", "BINPERSID"),
        (b"(VO\nI1\ntR.", "damaged"),
        (b"cnumpy\ndtype\n}Vname\nVnumpy ndarray\nsb.", "a way that is not read"),
        (b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(VO8\ntRC\x08\0\0\0\0\0\0\0\0tR.", "not numbers"),
        (b"cnumpy.core.numeric\n_frombuffer\n(C\1\1cnumpy\ndtype\n(Vu1\ntR(I99999999999\ntVC\ntR.", "damaged"),
        (b"c__builtin__\nbytes\n(I99999999999\ntR.", "builtin"),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "a way that is not read"),
        (b"", "damaged"),
        (pickle.dumps((IMAGE, 1)) + bytes(1), "1 bytes follow its end"),
        (b"\x8d" + (1 << 62).to_bytes(8, "little") + b"x.", "damaged"),
        (b"I" + b"9" * 5000 + b"\n.", "damaged"),
    ],
)  # fmt: skip
def test_hostile_pickles_are_refused(data: bytes, message: str) -> None:
    """Calls, dtypes that would make numpy read anything, lengths that are not there, memory for nothing."""
    with pytest.raises(BadPickleError, match=message):
        read_pickle(data)


def test_small_pickles_take_neither_forever_nor_all_memory() -> None:
    """Whatever they share, nest or repeat: few instructions, and no more is made than an image and a label."""
    for data in (b"]" * 1_200_000 + b".", b"}" + b")" + b"\x85" * 300_000 + b"I1\ns."):
        with pytest.raises(BadPickleError, match="more than 1,024 instructions"):
            read_pickle(data)
    itself: list[Any] = read_pickle(b"]p0\ng0\na.")
    assert type(itself[0]) is list
    doubled = b"(]p0\n" + b"".join(b"(g%d\ng%d\nlp%d\n" % (i, i, i + 1) for i in range(60)) + b"t."
    assert len(read_pickle(doubled)) == 61
    text = b"(X\x40\x42\x0f\x00" + b"x" * 10**6 + b"q\x00c_codecs\nencode\nq\x01Vlatin1\nq\x02"
    assert not any(isinstance(one, bytes) for one in read_pickle(text + b"h\x01h\x00h\x02\x86R" * 150 + b"t."))


def test_states_of_arrays_are_checked() -> None:
    """An array that declares more values than it brings, and a dtype with fields, are refused."""
    good = pickle.dumps(np.arange(3, dtype=np.uint8), 2)
    assert b"K\x03\x85" in good
    with pytest.raises(BadPickleError, match="damaged"):
        read_pickle(good.replace(b"K\x03\x85", b"K\x63\x85"))
    for strange in (np.zeros(2, [("a", "u1")]), np.array(["x", None], object), np.array(["text"])):
        with pytest.raises(BadPickleError):
            read_pickle(pickle.dumps(strange))


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
def test_every_prefix_and_every_changed_byte_gives_an_answer() -> None:
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
