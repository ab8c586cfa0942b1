"""The token that tells workers on other machines which run a destination belongs to.

These workers can outlive their run: no system ends them with it, and not every cluster can be asked to. So a run leaves
its token in the destination and takes it back when it ends; after a kill, the next run takes it back. A worker checks
the token now and then, and before it gives a file its name, and stops if the token is not its run's. A token that was
taken back leaves a mark in a file name, so that a worker that begins too late stops at once, instead of waiting for a
token that a slow network may hide.
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
"""NFS may hide a new file for a while, although it lists a folder again when that is opened."""


def begin(destination: Path) -> str:
    """Make the destination the caller's, who holds its lock. Returns the token of the run."""
    token = secrets.token_hex(8)
    files.write_whole(destination / WORK / RUN, token.encode(), destination / WORK / f"{RUN}.tmp")
    return token


def end(destination: Path) -> None:
    """Stop the workers of whatever run the destination belongs to, and those that have not begun yet."""
    token = _token(destination)
    if token is not None and token.isalnum():
        # Renaming works on a full disk, and the mark appears as the token goes.
        with contextlib.suppress(OSError):
            (destination / WORK / RUN).replace(_mark(destination, token))
    (destination / WORK / RUN).unlink(missing_ok=True)


def check(destination: Path, token: str) -> None:
    """Raise PackError where the destination no longer belongs to this run."""
    if _token(destination) != token:
        raise _ended(destination)


def await_token(destination: Path, token: str) -> None:
    """As `check`, on a machine that may see the destination late. Raises PackError too where it is missing, or is
    another folder."""
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
    """Have a network file system ask its server for a folder's contents, as it does when the folder is opened."""
    try:
        os.close(os.open(folder, os.O_RDONLY))
    except OSError:
        return  # whoever looks for a file in it reports what is wrong


def _ended(destination: Path) -> PackError:
    return PackError(f"the run that asked for this part of {destination} has ended")


def _mark(destination: Path, token: str) -> Path:
    return destination / WORK / f"ended-{token}"


def _token(destination: Path) -> str | None:
    try:
        return (destination / WORK / RUN).read_text("ascii", "replace")
    except FileNotFoundError:
        return None
