"""How many functions of `rawpack_packer.sources` it takes to pack a folder, a CSV and tar shards of 200 JPEGs each.

scripts/bench/walks.py            the counts
scripts/bench/walks.py --list     the functions, room by room
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from PIL import Image

_IMAGES = 200
_SHARDS = 4
_CLASSES = ("cat", "dog")


def _make(folder: Path) -> dict[str, str]:
    """Make the three sources in a folder. Name -> what is packed."""
    lines = ["path,label"]
    for i in range(_IMAGES):
        name = f"photos/{_CLASSES[i % 2]}/{i:03d}.jpg"
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 48), (i, 255 - i, 128)).save(file)
        lines.append(f"{name},{_CLASSES[i % 2]}")
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "shards").mkdir()
    files = sorted((folder / "photos").rglob("*.jpg"), key=lambda file: file.name)
    for k in range(_SHARDS):
        with tarfile.open(folder / f"shards/{k:03d}.tar", "w") as shard:
            for file in files[k::_SHARDS]:
                label = folder / "label.cls"
                label.write_text(str(_CLASSES.index(file.parent.name)))
                shard.add(file, file.name)
                shard.add(label, f"{file.stem}.cls")
    return {"photos/": "photos", "data.csv": "data.csv", "shards/*.tar": "shards/*.tar"}


@contextmanager
def _called(below: str) -> Iterator[set[CodeType]]:
    """The functions of files below a folder that are called meanwhile."""
    functions = set[CodeType]()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(below) and code.co_flags & 1:  # neither modules nor classes
            functions.add(code)

    sys.setprofile(profile)
    try:
        yield functions
    finally:
        sys.setprofile(None)


def walk(pack: Callable[[], object], below: Path) -> dict[str, list[str]]:
    """File -> the names of its functions that packing calls, without lambdas and comprehensions."""
    with _called(f"{below}/") as functions:
        pack()
    named = [code for code in functions if not code.co_name.startswith("<")]
    files: dict[str, list[str]] = {}
    for code in sorted(named, key=lambda code: (code.co_filename, code.co_firstlineno)):
        files.setdefault(str(Path(code.co_filename).relative_to(below)), []).append(code.co_qualname)
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the functions")
    shown = parser.parse_args().list
    import rawpack_packer
    from rawpack_packer import sources

    below = Path(sources.__file__).parent
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, source in _make(folder).items():
            store = folder / f"store-{len(name)}"
            files = walk(partial(rawpack_packer.pack, str(folder / source), store, workers=0), below)
            rooms = Counter[str]()
            for file, functions in files.items():
                rooms[file.partition("/")[0]] += len(functions)
            parts = ", ".join(f"{room} {count}" for room, count in rooms.most_common())
            print(f"{name}: {sum(rooms.values())} functions ({parts})")
            for file, functions in files.items() if shown else ():
                print(f"  {file}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
