"""What a system did when things went wrong, in words for the cells of a table."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from drawing.figures import Row


def said(row: Row | None, words: Callable[[Row], str]) -> str:
    return "" if row is None else words(row)


def failed(row: Row) -> str:
    """An error, in words; the message of a process that hung already says so."""
    return plain(row["error"]) if row["error"].startswith("hangs") else f"fails: {plain(row['error'])}"


def checked(row: Row) -> str:
    """One epoch, in words."""
    if "error" in row:
        return failed(row)
    if "left_out" in row:
        return f"not tried: {row['left_out']}"
    faults = [
        f"{row[key]:,} {words}"
        for key, words in (("missing", "missing"), ("repeated", "repeated"), ("wrong", "with wrong pixels"))
        if row.get(key)
    ]
    if faults:
        return f"{', '.join(faults)} of {row['samples']:,}"
    return "yes" if "difference" in row else f"all {row['samples']:,} once"


def kept(row: Row) -> str:
    if "error" in row:
        return failed(row)
    return "unchanged" if not row["changed"] else f"{row['changed']} of {row['kept']} changed"


def killed_worker(row: Row) -> str:
    if "error" in row:
        return failed(row)
    if not row["workers"]:
        return "no worker processes"
    return f"raises {kind(row['raised'])}" if "raised" in row else f"continues: {checked(row)}"


def resumed(row: Row) -> str:
    if "error" in row:
        return failed(row)
    if not row["offered"]:
        return "not offered"
    return "exactly" if not (row["missing"] or row["repeated"]) else checked(row)


def killed_packer(row: Row) -> tuple[str, str, str]:
    """What reading finds after the kill, what packing again does, and what reading finds after that."""
    if "error" in row:
        return f"packing fails: {plain(row['error'])}", "", ""
    left, again = row["left"], row["again"]
    if "error" in left:
        found = f"refused: {kind(left['error'])}"
    elif left["missing"] or left["wrong"]:
        found = f"opens without an error; {checked(left)}"
    else:
        found = "complete"
    if row["finished"]:
        found = f"had already finished; {found}"
    if "error" in again:
        return found, f"refuses: {plain(again['error'])}", ""
    share = row["again_s"] / row["whole_s"]
    return found, f"succeeds in {row['again_s']:.1f} s ({share:.0%} of a full run)", checked(row["after"])


def plain(text: str) -> str:
    """An error's message, made safe and short for a cell."""
    return textwrap.shorten(text.replace("|", "/").replace("<", "‹").replace(">", "›"), 90, placeholder=" ...")


def kind(text: str) -> str:
    """The class of an exception, without its module; all of a message that does not begin with one."""
    found = re.match(r"(?:\w+\.)*(\w+(?:Error|Exception)): ", text)
    return found[1] if found else plain(text)
