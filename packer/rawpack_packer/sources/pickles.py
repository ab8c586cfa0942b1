"""Reads pickles of numbers, texts, bytes, lists, tuples, dicts and numpy arrays, and nothing else.

A pickle is a program: Python's own unpickler imports what it names and calls it. Two things prevent that here:

- `_check` looks at all instructions first, by the standard library's `pickletools.genops`, which takes a pickle apart
  without running it and checks that what it declares is there. Only what plain values need is let through, and only
  so much of it that the unpickler ends soon, and needs little more memory than the pickle.
- `_Unpickler` imports nothing. The few names that pickles of arrays have become a `_Function` each, which makes the
  value by its own code: numpy's would trust the state of a dtype, and read memory that is not its own.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_INSTRUCTIONS = 1 << 20
"""Those of CIFAR-100's larger file, 550,000, are enough for any that is looked into. The most that one of them makes,
besides the bytes that it has, is 300 bytes."""
_MOST_TUPLES = 1000
_MOST_NESTED = 32
_CORE = tuple(f"numpy.{core}.{name}" for core in ("core", "_core") for name in ("multiarray", "numeric"))
_MODULES = {
    **dict.fromkeys(("_reconstruct", "scalar", "_frombuffer"), _CORE),
    **dict.fromkeys(("ndarray", "dtype"), ("numpy",)),
    "encode": ("_codecs",),
    "bytes": ("__builtin__", "builtins"),
}
"""Each name that is read, and the modules that it may be of."""
_TUPLES = {"EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
_MAKE = _TUPLES | {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BYTEARRAY8", "NONE", "NEWTRUE", "NEWFALSE"),
    *("EMPTY_LIST", "LIST", "EMPTY_DICT", "DICT", "GLOBAL", "STACK_GLOBAL", "REDUCE"),
}
"""Instructions that leave a new value on the stack."""
_PUT, _GET = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
_CHANGE = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD"}
_ALLOWED = _MAKE | _PUT | _GET | _CHANGE | {"PROTO", "FRAME", "MARK", "STOP"}
_FORMS = {"b1", "?", "f2", "f4", "f8"} | {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}


class BadPickleError(ValueError):
    """A pickle that is damaged, or holds what is not read. The message says which, in the third person."""


def read_pickle(data: bytes) -> Any:
    """The value of a pickle: arrays of numbers as numpy arrays, texts of Python 2 as bytes. Raises BadPickleError."""
    try:
        _check(data)
        return _plain(_Unpickler(data).load(), {})
    except BadPickleError:
        raise
    except (
        *(pickle.UnpicklingError, EOFError, AttributeError, LookupError, TypeError, ValueError),
        *(ArithmeticError, MemoryError, RuntimeError),
    ) as error:
        raise BadPickleError(f"it is damaged ({type(error).__name__})") from error


def _check(data: bytes) -> None:
    """Refuse what must not reach the unpickler. Raises BadPickleError, and what `genops` raises of damage.

    The unpickler hashes the keys of dicts, and a tuple with all that is in it. If one tuple were in it in many places,
    this would take forever; if tuples were nested too deep, the stack would overflow. So no tuple is taken from the
    memo, and there are at most `_MOST_TUPLES` at any time.
    """
    memo, last, tuples = dict[int, str](), "", 0
    arg: Any
    for number, (opcode, arg, at) in enumerate(pickletools.genops(data)):
        name = opcode.name
        if name not in _ALLOWED:
            raise BadPickleError(f"it has an instruction that is not read, {name}")
        tuples += (name in _TUPLES) - (name == "REDUCE")  # which takes the tuple of its arguments
        if number >= _MOST_INSTRUCTIONS or tuples > _MOST_TUPLES:
            raise BadPickleError(f"it has more than {_MOST_INSTRUCTIONS:,} instructions or {_MOST_TUPLES:,} tuples")
        if name in _PUT:
            place = len(memo) if arg is None else arg
            # The unpickler allocates as many places as the number says.
            if not 0 <= place <= _MOST_INSTRUCTIONS:
                raise BadPickleError(f"it puts a value in place {place:,} of its memo")
            if last not in _MAKE:
                raise BadPickleError("it puts in its memo what it has not just made")
            memo[place] = last
        elif name in _GET and memo.get(arg) in _TUPLES:
            raise BadPickleError("it has one tuple in several places")
        elif name == "STOP" and at is not None and at + 1 < len(data):
            raise BadPickleError(f"{len(data) - at - 1:,} bytes follow its end")
        if name != "FRAME":
            last = name


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self._left = 2 * len(data)

    def find_class(self, module: str, name: str, /) -> _Function:
        if module not in _MODULES.get(name, ()):
            shown = f"{module}.{name}"[:100]
            raise BadPickleError(f"it would import {shown!r}, and only arrays and plain values are read")
        return _Function(name, self)

    def take(self, size: int) -> None:
        """Called before `size` bytes are made from those of the pickle, which become text and then an array at most."""
        self._left -= size
        if self._left < 0:
            raise BadPickleError("it makes more bytes than it has")


class _Inert:
    """What a pickle makes of a name. It can be given no attributes."""

    def __setstate__(self, state: Any) -> None:
        raise BadPickleError("it contains an object that is no array")


class _Function(_Inert):
    """What a pickle would import, and what calling it makes."""

    def __init__(self, name: str, reader: _Unpickler) -> None:
        self._name, self._reader = name, reader

    def __call__(self, *args: Any) -> Any:
        match self._name, args:
            case "_reconstruct", (_Function(_name="ndarray"), (0,), _):
                return _Array(self._reader)
            case "dtype", (form, *_):
                return _Dtype(form)
            case "scalar", (dtype, data):
                return _numbers(self._reader, data, dtype, (1,), "C")[0].item()
            case "_frombuffer", (data, dtype, shape, order):
                found = _Array(self._reader)
                found.values = _numbers(self._reader, data, dtype, shape, "F" if order == "F" else "C")
                return found
            case "encode", (str(text), "latin1"):
                self._reader.take(len(text))
                return text.encode("latin-1")
            case "bytes", ():
                return b""
        raise BadPickleError(f"it uses {_MODULES[self._name][0]}.{self._name} in a way that is not read")


class _Dtype(_Inert):
    """A dtype of numbers. Its byte order comes after it was made."""

    def __init__(self, form: Any) -> None:
        text = form.decode("latin-1") if isinstance(form, bytes) else form
        if not isinstance(text, str) or text.lstrip("<>=|") not in _FORMS:
            # Only a text is shown: a list may take forever to show.
            shown = repr(text[:20]) if isinstance(text, str) else "something"
            raise BadPickleError(f"it contains an array of {shown}, which is no type of numbers")
        self.numpy = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) >= 5 else None
        text: Any = order.decode("latin-1") if isinstance(order, bytes) else order
        if text not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise BadPickleError("it contains an array whose type is no type of numbers")
        if text in ("<", ">"):
            self.numpy = self.numpy.newbyteorder(text)


class _Array(_Inert):
    """An array, which has its values once its state was set."""

    def __init__(self, reader: _Unpickler) -> None:
        self.values: NDArray[Any] | None = None
        self._reader = reader

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise BadPickleError("it contains an array without its values")
        _, shape, dtype, fortran, data = state
        self.values = _numbers(self._reader, data, dtype, shape, "F" if fortran is True else "C")


def _numbers(reader: _Unpickler, data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    if not isinstance(data, bytes | bytearray) or not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise BadPickleError("it contains an array without its values")
    if len(shape) > 16 or not all(type(length) is int and length >= 0 for length in shape):
        raise BadPickleError("it contains an array of a shape that no array has")
    reader.take(len(data))
    values = np.frombuffer(data, dtype.numpy).reshape(shape, order=order)
    return values.astype(values.dtype.newbyteorder("="))


def _plain(value: Any, done: dict[int, Any], depth: int = 0) -> Any:
    """A value with its arrays as arrays. Raises BadPickleError for one that is nested too deep, as in itself.

    done: what was made of each list and the like so far by its id, since one may occur many times.
    """
    if depth > _MOST_NESTED:
        raise BadPickleError(f"it is nested more than {_MOST_NESTED} times")
    if isinstance(value, _Array) and value.values is not None:
        return value.values
    if isinstance(value, _Inert):
        raise BadPickleError("it contains a type, or an array without its values")
    if not isinstance(value, list | tuple | dict | bytearray):
        return value
    if id(value) not in done:
        if isinstance(value, dict):
            if not all(isinstance(key, str | bytes | int) for key in value):
                raise BadPickleError("it has a dict whose keys are neither texts nor whole numbers")
            made: Any = {key: _plain(one, done, depth + 1) for key, one in value.items()}
        elif isinstance(value, bytearray):
            made = bytes(value)
        else:
            made = type(value)([_plain(one, done, depth + 1) for one in value])
        done[id(value)] = made
    return done[id(value)]
