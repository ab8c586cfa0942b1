"""Asks HDF5 or LMDB what a shard holds, in a separate process, because a damaged file may crash the library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import cloudpickle

from rawpack.disk.tables import resolve
from rawpack.errors import RawpackError, WorkerError
from rawpack.store.store import Store
from rawpack.system.child import Channel, Child, Heartbeat
from rawpack_packer.recipe.tables import output_format

_TIMEOUT_S = 600.0
_END_S = 5.0


def probe_shard(store: Store, number: int, name: str) -> str | None:
    """What the format's own library finds wrong with field `name` of a shard; None if nothing is."""
    if not output_format(store.manifest.format).compare:
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
    """Runs in the child process."""
    path, number, name = work
    store = Store(Path(path))
    shard = store.manifest.shards[number]
    file = store.path / shard.files[shard.fields[name].file].name
    compare = resolve(output_format(store.manifest.format).compare)
    try:
        answer: str | None = compare(store, number, name, file)
    except RawpackError as error:
        answer = str(error)
    except Exception as error:
        answer = f"{store.manifest.format.upper()} cannot read it: {error}"
    channel.send(cloudpickle.dumps(answer))
