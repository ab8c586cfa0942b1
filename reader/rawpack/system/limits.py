"""Limits on what a process may use, as `ulimit` sets them, where one of them is why the system refused."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rawpack.errors import RawpackError

_LIMITS = {
    errno.EMFILE: ("", "open files (ulimit -n)"),
    errno.EFBIG: ("RLIMIT_FSIZE", "file sizes (ulimit -f)"),
    errno.ENOMEM: ("RLIMIT_AS", "addresses (ulimit -v)"),
    errno.EAGAIN: ("", "processes (ulimit -u, or of the container)"),
}
"""Error -> the limit that is behind it if it is set, or always; and in words."""


def limit_behind(error: OSError) -> str:
    """The limit of this process that explains an error, with its cure; "" where none does."""
    if error.errno not in _LIMITS:
        return ""
    name, words = _LIMITS[error.errno]
    return f"a limit on {words} is too low: raise it" if not name or _is_set(name) else ""


def _is_set(name: str) -> bool:
    with suppress(ImportError, AttributeError):  # not on Windows
        import resource

        return bool(resource.getrlimit(getattr(resource, name))[0] != resource.RLIM_INFINITY)
    return False


@contextmanager
def refused(kind: type[RawpackError], what: str) -> Iterator[None]:
    """Raise `kind` for an OSError within the block, with what was refused, and the limit that explains it."""
    try:
        yield
    except OSError as error:
        raise kind(": ".join(filter(None, [what, str(error), limit_behind(error)]))) from error
