"""What an error of rawpack's was raised for: a library's error or a check's, and no fault of its own code."""

from __future__ import annotations

import linecache
import traceback

_OURS = ("rawpack", "rawpack_packer")
_ACCIDENTS = (TypeError, AttributeError, LookupError, ZeroDivisionError, NameError, AssertionError)
"""What only a library or an explicit check may have raised. Other built-in errors are what functions of Python's own
raise for values: text that is no number, no JSON and no UTF-8, and numbers that are too large."""
_RAISING = ("raise ", "return _plain(_Unpickler(data).load()", "dtype = np.dtype(match")
"""How a line begins that raises errors of the data: explicitly, or by a library in C, which has no frame."""


def accident(error: BaseException) -> BaseException | None:
    """The first cause of an error that came up in our code, which does not say there that it raises it."""
    while (cause := error.__cause__) is not None:
        if isinstance(cause, _ACCIDENTS) and _is_ours(cause):
            return cause
        error = cause
    return None


def _is_ours(error: BaseException) -> bool:
    frame, line = [*traceback.walk_tb(error.__traceback__)][-1]
    module = frame.f_globals.get("__name__", "").partition(".")[0]
    return module in _OURS and not linecache.getline(frame.f_code.co_filename, line).lstrip().startswith(_RAISING)
