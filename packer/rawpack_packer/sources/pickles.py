"""Reads pickles of numbers, texts, bytes, lists, tuples, dicts and numpy arrays, and nothing else.

A pickle is a program: Python's own unpickler imports what it names and calls it. Even one that knows numpy alone would
trust the state of a dtype, which can make numpy read memory that is not its own. So no unpickler runs here. The
standard library's `pickletools.genops` takes a pickle apart without running it and checks that what it declares is
there. This module builds plain values from the parts: it imports no name and calls nothing that a pickle names. Any
other name is refused. What is built is no larger than the pickle says with its own bytes, and is nested to a limit.
"""

from __future__ import annotations

import codecs
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MARK = object()
_MOST_NESTED = 32
_CORE = tuple(f"numpy.{core}.{name}" for core in ("core", "_core") for name in ("multiarray", "numeric"))
_RECONSTRUCT = {f"{module} _reconstruct" for module in _CORE}
_SCALAR = {f"{module} scalar" for module in _CORE}
_FROM_BUFFER = {f"{module} _frombuffer" for module in _CORE}
_BYTES = {"__builtin__ bytes", "builtins bytes"}
_KNOWN = {"numpy ndarray", "numpy dtype", "_codecs encode", *_RECONSTRUCT, *_SCALAR, *_FROM_BUFFER, *_BYTES}
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_BYTE_STRINGS = {"STRING", "BINSTRING", "SHORT_BINSTRING"}
"""Texts of Python 2, which are bytes."""
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT, _GET = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
_FORMS = {"b1", "?", "f2", "f4", "f8"} | {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}


class BadPickleError(ValueError):
    """A pickle that is damaged, or holds what is not read. The message says which, in the third person."""


@dataclass(frozen=True)
class _Global:
    """What a pickle would import: "module name"."""

    text: str


class _Dtype:
    """A dtype of numbers. Its byte order comes after it was made."""

    def __init__(self, form: Any) -> None:
        text = form.decode("latin-1") if isinstance(form, bytes) else form
        if not isinstance(text, str) or text.lstrip("<>=|") not in _FORMS:
            raise BadPickleError(f"it holds an array of {str(text)[:20]!r}, which is no type of numbers")
        self.numpy = np.dtype(text)

    def set_state(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) >= 5 else None
        text = order.decode("latin-1") if isinstance(order, bytes) else order
        if text not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise BadPickleError("it holds an array whose type is no type of numbers")
        if text == "<":
            self.numpy = self.numpy.newbyteorder("<")
        elif text == ">":
            self.numpy = self.numpy.newbyteorder(">")


class _Array:
    """An array, which has its values once its state was set."""

    def __init__(self) -> None:
        self.values: NDArray[Any] | None = None

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise BadPickleError("it holds an array without its values")
        _, shape, dtype, fortran, data = state
        self.values = _numbers(data, dtype, shape, "F" if fortran is True else "C")


def read_pickle(data: bytes) -> Any:
    """The value of a pickle: arrays of numbers as numpy arrays, texts of Python 2 as bytes. Raises BadPickleError."""
    machine = _Machine()
    try:
        for opcode, arg, at in pickletools.genops(data):
            if opcode.name == "STOP":
                if at is not None and at + 1 < len(data):
                    raise BadPickleError(f"{len(data) - at - 1:,} bytes follow its end")
                (value,) = machine.stack
                return _plain(value, {})
            machine.step(opcode.name, arg)
    except BadPickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise BadPickleError(f"it is damaged ({type(error).__name__})") from None
    raise BadPickleError("it is damaged: it has no end")


class _Machine:
    """The values that a pickle has made so far."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, arg: Any) -> None:
        """Do what one opcode says."""
        push, pop = self.stack.append, self.stack.pop
        if name in _VALUES:
            push(arg)
        elif name == "BYTEARRAY8":
            push(bytes(arg))
        elif name in _BYTE_STRINGS:
            push(arg.encode("latin-1"))
        elif name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name in _PUT:
            self._memo[len(self._memo) if arg is None else arg] = self.stack[-1]
        elif name in _GET:
            push(self._memo[arg])
        elif name == "MARK":
            push(_MARK)
        elif name in _TUPLES:
            count = _TUPLES[name]
            push(tuple([pop() for _ in range(count)][::-1]))
        elif name == "TUPLE":
            push(tuple(self._marked()))
        elif name in ("EMPTY_LIST", "LIST"):
            push(self._marked() if name == "LIST" else [])
        elif name in ("EMPTY_DICT", "DICT"):
            push({})
            if name == "DICT":
                made = pop()
                _set_items(made, self._marked())
                push(made)
        elif name in ("APPEND", "APPENDS"):
            values = [pop()] if name == "APPEND" else self._marked()
            _of(list, self.stack[-1]).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = [pop(), pop()][::-1] if name == "SETITEM" else self._marked()
            _set_items(_of(dict, self.stack[-1]), values)
        elif name == "GLOBAL":
            push(_global(arg))
        elif name == "STACK_GLOBAL":
            attribute, module = pop(), pop()
            push(_global(f"{_of(str, module)} {_of(str, attribute)}"))
        elif name == "REDUCE":
            args, function = pop(), pop()
            push(_reduce(_of(_Global, function).text, _of(tuple, args)))
        elif name == "BUILD":
            state, made = pop(), self.stack[-1]
            if not isinstance(made, _Dtype | _Array):
                raise BadPickleError("it holds an object that is no array")
            made.set_state(state)
        elif name not in ("PROTO", "FRAME"):
            raise BadPickleError(f"it has an instruction that is not read, {name}")

    def _marked(self) -> list[Any]:
        """What was made since the last mark, which goes."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError("no mark")
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} for {kind.__name__}")
    return value


def _global(text: str) -> _Global:
    if text not in _KNOWN:
        shown = ".".join(text.split(" "))[:100]
        raise BadPickleError(f"it would import {shown!r}, and only arrays and plain values are read")
    return _Global(text)


def _set_items(made: dict[Any, Any], values: list[Any]) -> None:
    for key, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(key, str | bytes | int):
            raise BadPickleError("it has a dict whose keys are neither texts nor whole numbers")
        made[key] = value


def _reduce(name: str, args: tuple[Any, ...]) -> Any:
    """What calling a name would make."""
    if name in _RECONSTRUCT and args[0] == _Global("numpy ndarray") and args[1] == (0,):
        return _Array()
    if name == "numpy dtype":
        return _Dtype(args[0])
    if name in _SCALAR:
        made = _numbers(args[1], args[0], (1,), "C")
        return made[0].item()
    if name in _FROM_BUFFER:
        data, dtype, shape, order = args
        found = _Array()
        found.values = _numbers(data, dtype, shape, "F" if order == "F" else "C")
        return found
    if name == "_codecs encode" and args[1:] == ("latin1",):
        return _of(str, args[0]).encode("latin-1")
    if name in _BYTES and not args:
        return b""
    raise BadPickleError(f"it uses {name.replace(' ', '.')} in a way that is not read")


def _numbers(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    if isinstance(data, str):
        data = codecs.encode(data, "latin-1")
    if not all(type(length) is int and length >= 0 for length in _of(tuple, shape)) or len(shape) > 16:
        raise BadPickleError("it holds an array of a shape that no array has")
    values = np.frombuffer(_of(bytes, data), _of(_Dtype, dtype).numpy).reshape(shape, order=order)
    return values.astype(values.dtype.newbyteorder("="))


def _plain(value: Any, done: dict[int, Any], depth: int = 0) -> Any:
    """A value with its arrays as arrays. Raises BadPickleError for one that is nested too deep, as in itself.

    done: what was made of each list, tuple and dict so far by its id, since one may occur many times.
    """
    if depth > _MOST_NESTED:
        raise BadPickleError(f"it is nested more than {_MOST_NESTED} times")
    if isinstance(value, _Array):
        if value.values is None:
            raise BadPickleError("it holds an array without its values")
        return value.values
    if isinstance(value, _Dtype | _Global) or value is _MARK:
        raise BadPickleError("it holds a type, not a value")
    if type(value) not in (list, tuple, dict):
        return value
    if id(value) not in done:
        values = value.values() if isinstance(value, dict) else value
        made = [_plain(one, done, depth + 1) for one in values]
        done[id(value)] = dict(zip(value, made, strict=True)) if isinstance(value, dict) else type(value)(made)
    return done[id(value)]
