"""Asks HDF5 or LMDB what a shard holds, in a separate process, because a damaged file may crash the library."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import cloudpickle

from rawpack.disk.tables import resolve
from rawpack.errors import RawpackError
from rawpack.store.store import Store
from rawpack.system.channel import Channel
from rawpack.system.child import Child
from rawpack.system.failure import is_no_fault_of_data
from rawpack.system.heartbeat import Heartbeat
from rawpack_packer.recipe.tables import output_format

_TIMEOUT_S = 600.0


class ShardProbe:
    """Asks about the shards of one store, in a process that is kept as long as it finds nothing wrong."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._child: Child | None = None
        self._library = store.manifest.format.upper()

    def complaint(self, number: int, name: str) -> str | None:
        """What the format's own library finds wrong with field `name` of a shard; None if nothing is."""
        if not output_format(self._store.manifest.format).compare:
            return None
        kept = self._child is not None
        found = self._ask(number, name)
        # Again in a new process: an earlier shard may have harmed this one.
        return self._ask(number, name) if found and kept else found

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _ask(self, number: int, name: str) -> str | None:
        if self._child is None:
            self._child = Child(_main, str(self._store.path))
        found = self._answer(self._child, number, name)
        if found:
            self.close()
        return found

    def _answer(self, child: Child, number: int, name: str) -> str | None:
        with contextlib.suppress(OSError):  # it is dead, which `receive` will see
            child.channel.send(cloudpickle.dumps((number, name)))
        try:
            received = child.receive(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"{self._library} does not end reading it within {_TIMEOUT_S:g} s"
        if received is None:
            return f"{self._library} dies of reading it (exit status {child.status()})"
        answer: str | None = cloudpickle.loads(received)
        return answer


def _main(channel: Channel, notes: Heartbeat, path: str, descriptors: list[int]) -> None:
    """Runs in the child process."""
    store = Store(Path(path))
    compare = resolve(output_format(store.manifest.format).compare)
    while (received := channel.receive()) is not None:
        number, name = cloudpickle.loads(received[0])
        shard = store.manifest.shards[number]
        file = store.path / shard.files[shard.fields[name].file].name
        try:
            answer: str | None = compare(store, number, name, file)
        except RawpackError as error:
            answer = str(error)
        except Exception as error:  # h5py and lmdb raise many types for broken files
            if is_no_fault_of_data(error):
                raise
            answer = f"{store.manifest.format.upper()} cannot read it: {error}"
        channel.send(cloudpickle.dumps(answer))
