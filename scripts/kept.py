"""What scripts and tests find in each source file, kept in build/ for the next run: most files are the same then."""

from __future__ import annotations

import hashlib
import inspect
import marshal
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
_HERE = Path(__file__)
_ROOMS = _HERE.with_name("rooms.py")
FOLDER = ROOT / "build" / "kept"
_MOST = 5000
"""Where more texts than these are kept, those of before are dropped."""

T = TypeVar("T")


def of_each(find: Callable[[str], T], paths: Iterable[Path], folder: Path = FOLDER) -> dict[Path, T]:
    """What a function finds in the text of each file; `marshal` must be able to write it, and tuples of other types
    come back as tuples. It depends on the text alone, on Python, on the function's own file and on rooms.py."""
    code = Path(inspect.getsourcefile(find) or "")
    own = hashlib.sha256(b"\0".join([sys.version.encode(), code.read_bytes(), _HERE.read_bytes(), _ROOMS.read_bytes()]))
    file = folder / f"{code.stem}-{find.__name__}"
    try:
        before = marshal.loads(file.read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        before = {}
    now, results = {}, {}
    for path in paths:
        text, digest = path.read_text("utf-8"), own.copy()
        digest.update(text.encode())
        key = digest.digest()
        now[key] = results[path] = before[key] if key in before else find(text)
    if now.keys() - before.keys():
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as writable:  # another process may read it or write it, too
            marshal.dump((before if len(before) < _MOST else {}) | now, writable)
        Path(temporary).replace(file)
    return results
