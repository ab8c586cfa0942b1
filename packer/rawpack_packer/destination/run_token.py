"""Which run a destination belongs to, as workers on other machines see it.

They outlive the run that started them: no system ends them with it, and not every cluster can be asked to. So a run
leaves its token in the destination, and takes it back when it ends; the next run does so too where one was killed, and
leaves its own. A worker that does not find its run's token stops, and in any case before it gives a file its name. What
a run took back stays as a mark with the token in its name, so that a worker which begins only now knows at once that it
is too late, and does not wait for a token that a slow network may hide.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

from rawpack.errors import PackError
from rawpack_packer.destination import files
from rawpack_packer.destination.layout import RUN, WORK

_SEEN_WITHIN_S = 20.0
"""NFS may not know for a while of a file that was missing before, though folders are looked at again when opened.
"""


def begin(destination: Path) -> str:
    """Make the destination the caller's, who holds its lock; gives the token of the run."""
    token = secrets.token_hex(8)
    files.write_whole(destination / WORK / RUN, token.encode(), destination / WORK / f"{RUN}.tmp")
    return token


def end(destination: Path) -> None:
    """Have the workers of whatever run the destination belongs to stop, and those that are still to begin not begin."""
    token = _token(destination)
    if token is not None and token.isalnum():
        # A new name takes no space of a disk that is full, and is there when the old one has gone.
        with contextlib.suppress(OSError):
            (destination / WORK / RUN).replace(_mark(destination, token))
    (destination / WORK / RUN).unlink(missing_ok=True)


def check(destination: Path, token: str) -> None:
    """Raise PackError where the destination does not belong to this run any more."""
    if _token(destination) != token:
        raise _ended(destination)


def await_token(destination: Path, token: str) -> None:
    """As `check`, for a machine that sees the destination for the first time, maybe late. Raises PackError where it is
    not there, or is another folder."""
    if not destination.is_dir():
        raise PackError(f"{destination} is not here: every machine must see the destination at the same path")
    until = time.monotonic() + _SEEN_WITHIN_S
    while (found := _token(destination)) is None and time.monotonic() < until:
        if _mark(destination, token).exists():
            raise _ended(destination)
        look_again(destination / WORK)
        time.sleep(0.2)
    if found is None:
        raise PackError(
            f"{destination} is another folder here than where the job runs, or its run has ended: every machine must "
            "see the destination at the same path"
        )
    check(destination, token)


def look_again(folder: Path) -> None:
    """Have a network's file system ask its server what is in a folder now: it does when the folder is opened."""
    try:
        os.close(os.open(folder, os.O_RDONLY))
    except OSError:
        return  # whoever looks for a file in it will say what is wrong


def _ended(destination: Path) -> PackError:
    return PackError(f"the run that asked for this part of {destination} has ended")


def _mark(destination: Path, token: str) -> Path:
    return destination / WORK / f"ended-{token}"


def _token(destination: Path) -> str | None:
    try:
        return (destination / WORK / RUN).read_text("ascii", "replace")
    except FileNotFoundError:
        return None
