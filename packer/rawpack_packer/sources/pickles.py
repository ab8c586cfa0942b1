"""Reads the pickles of folder2lmdb, each an image file and its label, without running them.

A pickle is a program: Python's own unpickler imports what it names and calls it. Here, `pickletools.genops` takes it
apart, and only the instructions that such a pickle needs are followed. What it would call stays a name and arguments,
until the value is made by own code: numpy's would trust the state of a dtype, and read memory that is not its own.
"""

from __future__ import annotations

import pickletools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

_MOST_INSTRUCTIONS = 1 << 10
"""A pickle of folder2lmdb has fewer than 50."""
_CORE = re.compile(r"numpy\._?core\.(multiarray|numeric) (_reconstruct|scalar|_frombuffer)|numpy (ndarray|dtype)")
_ENCODE = "_codecs encode"
_FORM = re.compile(r"[<>=|]?(b1|[iuf][1248])")
_MARK = object()
_CONSTANTS = {"MARK": _MARK, "NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
"""Instructions that bring a value."""


class BadPickleError(ValueError):
    """A pickle that is damaged, or holds what is not read. The message says which, in the third person."""


@dataclass(eq=False)
class _Import:
    """What a pickle would import, its arguments if it is called, and the state that the result is given."""

    name: str
    args: Any = None
    state: Any = None

    def value(self) -> Any:
        """Raises BadPickleError, and ValueError, TypeError and the like where it does not fit."""
        match self.name.rpartition(" ")[2], self.args, self.state:
            case "encode", (str(text), "latin1"), None:
                return text.encode("latin-1")
            case "scalar", (dtype, data), None:
                return _array(data, dtype, (1,))[0].item()
            case "_frombuffer", (data, dtype, shape, _), None:
                return _array(data, dtype, shape)
            case "_reconstruct", tuple(), (_, shape, dtype, _, data):
                return _array(data, dtype, shape)
        raise BadPickleError(f"it uses {self.name.replace(' ', '.')} in a way that is not read")


def read_pickle(data: bytes) -> Any:
    """The value of a pickle: bytes, texts and whole numbers, lists and tuples of these, and numpy arrays as far as they
    are an image, a label, or in a list of such; dicts are empty. Raises BadPickleError."""
    stack, memo = list[Any](), dict[int, Any]()
    try:
        for number, (opcode, arg, at) in enumerate(pickletools.genops(data)):
            if number >= _MOST_INSTRUCTIONS:
                raise BadPickleError(f"it has more than {_MOST_INSTRUCTIONS:,} instructions")
            if opcode.name == "STOP" and at is not None and at + 1 < len(data):
                raise BadPickleError(f"{len(data) - at - 1:,} bytes follow its end")
            _follow(opcode.name, arg, stack, memo)
        return _plain(stack.pop(), 2)
    except BadPickleError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, MemoryError) as error:
        raise BadPickleError(f"it is damaged ({type(error).__name__})") from error


def _follow(name: str, arg: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Follow one instruction. Raises BadPickleError, and as `_Import.value`."""
    match name:
        case "PROTO" | "FRAME" | "STOP":
            pass
        case _ if name in _VALUES:
            stack.append(bytes(arg) if isinstance(arg, bytearray) else arg)
        case "BINSTRING" | "SHORT_BINSTRING":  # of Python 2
            stack.append(arg.encode("latin-1"))
        case _ if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        case "EMPTY_LIST" | "EMPTY_DICT":
            stack.append([] if name == "EMPTY_LIST" else {})
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            stack[-int(name[-1]) :] = [tuple(stack[-int(name[-1]) :])]
        case "TUPLE" | "LIST" | "DICT" | "APPENDS" | "SETITEMS":
            start = max(i for i, value in enumerate(stack) if value is _MARK)
            items, stack[start:] = stack[start + 1 :], []
            if name in ("TUPLE", "LIST", "DICT"):
                stack.append({"TUPLE": tuple(items), "LIST": items, "DICT": {}}[name])
            elif name == "APPENDS":
                stack[-1].extend(items)
        case "APPEND":
            value = stack.pop()
            stack[-1].append(value)
        case "SETITEM":
            del stack[-2:]
        case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
            memo[len(memo) if arg is None else arg] = stack[-1]
        case "GET" | "BINGET" | "LONG_BINGET":
            stack.append(memo[arg])
        case "GLOBAL" | "STACK_GLOBAL":
            called = arg if name == "GLOBAL" else " ".join(reversed((stack.pop(), stack.pop())))
            if called != _ENCODE and not _CORE.fullmatch(called):
                shown = called.replace(" ", ".")[:100]
                raise BadPickleError(f"it would import {shown!r}, and only arrays and plain values are read")
            stack.append(_Import(called))
        case "REDUCE":
            args = stack.pop()
            stack.append(_Import(stack.pop().name, args))
        case "BUILD":
            state = stack.pop()
            stack[-1].state = state
        case _:
            raise BadPickleError(f"it has an instruction that is not read, {name}")


def _plain(value: Any, depth: int) -> Any:
    """A value with the results of its calls, which are an image or a label: in lists and tuples of two at most."""
    if isinstance(value, _Import):
        return value.value()
    if isinstance(value, list | tuple) and len(value) <= 2 and depth:
        return type(value)([_plain(item, depth - 1) for item in value])
    return value


def _array(data: Any, dtype: _Import, shape: tuple[int, ...]) -> Any:
    """An array of numbers. Raises as `_Import.value`."""
    form: Any = dtype.args[0]
    order: Any = dtype.state[1] if dtype.state else "="
    if not isinstance(form, str) or not _FORM.fullmatch(form) or order not in ("<", ">", "=", "|"):
        raise BadPickleError("it contains an array of what are not numbers")
    data = data.value() if isinstance(data, _Import) else data
    return np.frombuffer(data, np.dtype(form).newbyteorder(order)).reshape(shape)
