"""What is in a folder or a store, and whether anything was written there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb


def files_of(root: Path) -> dict[str, bytes]:
    """Every file below a folder: path with slashes -> contents."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def states_of(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below a folder: path -> inode, mtime in ns, size. Equal states mean that nothing was written."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            state = (Path(folder) / name).stat()
            path = (Path(folder) / name).relative_to(root).as_posix()
            found[path] = (state.st_ino, state.st_mtime_ns, state.st_size)
    return found


def settled(store: Path) -> dict[str, bytes]:
    """The files of a store, or of a set of them, that must be the same in every run: all but provenance."""
    return {name: data for name, data in files_of(store).items() if "provenance" not in name}


def finished_shards(store: Path) -> dict[str, tuple[int, int, int]]:
    """The shards whose part has a record, as `states_of` has them: no other run packs these parts again."""
    found = {}
    # A run that ends while this looks takes its folder along.
    with suppress(FileNotFoundError):
        for record in (store / ".rawpack").glob("part-*.done"):
            for shard in store.glob(f"shard-{record.stem.removeprefix('part-')}.*"):
                state = shard.stat()
                found[shard.name] = (state.st_ino, state.st_mtime_ns, state.st_size)
    return found


def rejects_of(store: Path) -> list[dict[str, Any]]:
    """The lines of the newest file of rejects."""
    name = json.loads((store / "store.json").read_text("utf-8"))["rejects"]["file"]["name"]
    return [json.loads(line) for line in (store / name).read_text("utf-8").splitlines()]


def lmdb_values(store: Path) -> list[bytes]:
    """The image files in the shards of an LMDB store, in order, by liblmdb alone."""
    values = []
    for shard in sorted(store.glob("shard-*.lmdb")):
        with lmdb.open(str(shard), subdir=False, readonly=True, lock=False) as env, env.begin() as transaction:
            values += [bytes(value) for key, value in transaction.cursor() if key.isdigit()]
    return values


def changed(path: Path, change: Any) -> Path:
    """The JSON of a file with something changed in it."""
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
    return path


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Flip bits of one byte of a file; a negative place counts from its end."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def overwrite(place: Any, count: int = 0) -> None:
    """Make zeros of the first bytes of a stored value, or of all. place: as `Reader.where_is` has it."""
    with place.file.open("r+b") as file:
        file.seek(place.offset)
        file.write(bytes(count or place.bytes))
