"""Asking HDF5 or LMDB itself what a shard holds, in a process of its own: a damaged file may end that process."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from rawpack.errors import RawpackError, WorkerError
from rawpack.store.store import Store
from rawpack.system.child import Channel, Child, Heartbeat
from rawpack_packer.writers.lmdb import key_of

_TIMEOUT_S = 600.0
_END_S = 5.0


def probe_shard(store: Store, number: int, name: str) -> str | None:
    """What is wrong with field `name` of a shard as its own library sees it; None where all is well."""
    if store.manifest.format == "memmap":
        return None
    library = store.manifest.format.upper()
    child = Child(_main, (str(store.path), number, name))
    try:
        child.channel.socket.settimeout(_TIMEOUT_S)
        received = child.channel.receive()
        if received is None:
            status = child.process.wait(_END_S)
            if words := child.last_words():
                raise WorkerError(f"{library} cannot be asked (exit status {status}); the process said:\n{words}")
            return f"{library} dies of reading it (exit status {status})"
    except (TimeoutError, subprocess.TimeoutExpired):
        return f"{library} does not end reading it within {_TIMEOUT_S:g} s"
    finally:
        child.kill()
    answer: str | None = cloudpickle.loads(received[0])
    return answer


def _main(channel: Channel, notes: Heartbeat, work: tuple[str, int, str], descriptors: list[int]) -> None:
    """What runs in the probe."""
    path, number, name = work
    store = Store(Path(path))
    shard = store.manifest.shards[number]
    file = store.path / shard.files[shard.fields[name].file].name
    compare = {"hdf5": _compare_hdf5, "lmdb": _compare_lmdb}[store.manifest.format]
    try:
        answer = compare(store, number, name, file)
    except RawpackError as error:
        answer = str(error)
    except Exception as error:
        answer = f"{store.manifest.format.upper()} cannot read it: {error}"
    channel.send(cloudpickle.dumps(answer))


def _compare_hdf5(store: Store, number: int, name: str, file: Path) -> str | None:
    import h5py

    reader, rows = store.reader(number, name), store.manifest.shards[number].rows
    with h5py.File(file, "r") as shard:
        link = shard.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            return f"{name} is a link to elsewhere"
        data = shard[name]
        if data.external or data.is_virtual:
            return f"{name} lies outside the file"
        field = store.fields[name]
        if data.dtype != np.dtype(field.dtype) or (field.uniform and data.shape != (rows, *field.stored_shape)):
            return f"its dataset holds {data.dtype} {data.shape}; the manifest says {field.dtype} {field.shape}"
        start = 0
        for row in range(rows):
            expected = reader.stored(row)
            if field.uniform:
                found = np.asarray(data[row]).reshape(-1).view(np.uint8)
            else:
                count = len(expected) // data.dtype.itemsize
                found = np.asarray(data[start : start + count]).view(np.uint8)
                start += count
            if not np.array_equal(found, expected):
                return f"its dataset and the index differ at row {row}"
    return None


def _compare_lmdb(store: Store, number: int, name: str, file: Path) -> str | None:
    import lmdb

    reader, rows = store.reader(number, name), store.manifest.shards[number].rows
    with (
        lmdb.open(str(file), subdir=False, readonly=True, lock=False, readahead=False) as env,
        env.begin(buffers=True) as txn,
    ):
        packed = rows * sum(field.in_shards for field in store.fields.values())
        if env.stat()["entries"] != packed:
            return f"its database has {env.stat()['entries']} entries; {packed} were packed"
        for row in range(rows):
            value: Any = txn.get(key_of(row, name))
            if value is None or not np.array_equal(np.frombuffer(value, np.uint8), reader.stored(row)):
                return f"its database and the index differ at row {row}"
    return None
