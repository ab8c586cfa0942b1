"""The token that tells workers on other machines which run a destination belongs to.

These workers can outlive their run: no system ends them with it, and not every cluster can be asked to. So a run leaves
a file with its token in its name, and renames it when it ends; after a kill, the next run does. A worker looks for the
file now and then, and before it gives a file of its own its name, and stops where it is gone. The new name is a mark,
so that a worker that begins too late stops at once, instead of waiting for a file that a slow network may hide.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

from rawpack.errors import PackError
from rawpack_packer.destination.layout import WORK

_RUN, _ENDED = "run-", "ended-"
_SEEN_WITHIN_S = 20.0
"""NFS may hide a new file for a while, although it lists a folder again when that is opened."""


def begin(destination: Path) -> str:
    """Make the destination the caller's, who holds its lock. Returns the token of the run."""
    token = secrets.token_hex(8)
    (destination / WORK / f"{_RUN}{token}").touch()
    return token


def end(destination: Path) -> None:
    """Stop the workers of whatever run the destination belongs to, and those that have not begun yet."""
    for run in (destination / WORK).glob(f"{_RUN}*"):
        # Renaming works on a full disk, and the mark appears as the token goes.
        with contextlib.suppress(OSError):
            run.replace(run.with_name(f"{_ENDED}{run.name.removeprefix(_RUN)}"))
        run.unlink(missing_ok=True)


def check(destination: Path, token: str) -> None:
    """Raise PackError where the destination no longer belongs to this run."""
    if not _is_running(destination, token):
        raise PackError(f"the run that asked for this part of {destination} has ended")


def await_token(destination: Path, token: str) -> None:
    """As `check`, on a machine that may see the destination late. Raises PackError too where it is missing, or is
    another folder."""
    if not destination.is_dir():
        raise PackError(f"{destination} is not here: every machine must see the destination at the same path")
    until = time.monotonic() + _SEEN_WITHIN_S
    while not _is_running(destination, token):
        if (destination / WORK / f"{_ENDED}{token}").exists():
            check(destination, token)
        if time.monotonic() >= until:
            raise PackError(
                f"{destination} is another folder here than where the job runs, or its run has ended: every machine "
                "must see the destination at the same path"
            )
        look_again(destination / WORK)
        time.sleep(0.2)


def look_again(folder: Path) -> None:
    """Have a network file system ask its server for a folder's contents, as it does when the folder is opened."""
    with contextlib.suppress(OSError):  # whoever looks for a file in it reports what is wrong
        os.close(os.open(folder, os.O_RDONLY))


def _is_running(destination: Path, token: str) -> bool:
    try:
        # Opened, because a network file system asks its server then.
        os.close(os.open(destination / WORK / f"{_RUN}{token}", os.O_RDONLY))
    except FileNotFoundError:
        return False
    return True
