"""Exceptions that end the work of a child process or thread, on their way to who waits for it.

There they are raised as what they are, with the child's traceback as their cause. A fault of our own code must look
like one wherever it happens: never like a damaged file, a lack of memory, or a process that died.
"""

from __future__ import annotations

import traceback

from rawpack.errors import WorkerError


class ChildTraceback(Exception):  # noqa: N818 - it is no error of its own
    """The traceback of an exception in the child that raised it: the cause of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\nIn the child process or thread:\n{self.text.rstrip()}"


def pack(error: Exception) -> bytes:
    """An exception and its traceback, as `unpack` takes them; one that cannot be pickled as a `WorkerError`."""
    import cloudpickle

    text = "".join(traceback.format_exception(error))
    try:
        packed: bytes = cloudpickle.dumps((error, text))
        cloudpickle.loads(packed)  # some exceptions can be pickled and not loaded
    except Exception:
        packed = cloudpickle.dumps((_plain(error, text), text))
    return packed


def unpack(data: bytes | bytearray) -> Exception:
    """The exception, to be raised."""
    import cloudpickle

    error: Exception
    error, text = cloudpickle.loads(data)
    error.__cause__ = ChildTraceback(text)
    return error


def _plain(error: Exception, text: str) -> WorkerError:
    return WorkerError(f"{type(error).__name__}: {error}\n\nIn the worker:\n{text}")
