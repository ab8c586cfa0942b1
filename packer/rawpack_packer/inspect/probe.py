"""Asks HDF5 or LMDB what a shard holds, in a separate process, because a damaged file may crash the library."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rawpack.disk.tables import resolve
from rawpack.errors import RawpackError
from rawpack.store.store import Store
from rawpack.system.failure import is_no_fault_of_data
from rawpack.system.isolated import ChildDiedError, IsolatedCalls
from rawpack_packer.recipe.tables import output_format

_TIMEOUT_S = 600.0


class ShardProbe:
    """Asks about the shards of one store, in a process that is kept as long as it finds nothing wrong."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._calls = IsolatedCalls(_TIMEOUT_S)

    def complaint(self, number: int, name: str) -> str | None:
        """What the format's own library finds wrong with field `name` of a shard; None if nothing is."""
        if not output_format(self._store.manifest.format).compare:
            return None
        kept = self._calls.is_running
        found = self._ask(number, name)
        # Again in a new process: an earlier shard may have harmed this one.
        return self._ask(number, name) if found and kept else found

    def close(self) -> None:
        """End the process."""
        self._calls.close()

    def _ask(self, number: int, name: str) -> str | None:
        try:
            found = self._calls.call(_compare, self._store.path, number, name)
        except ChildDiedError as died:
            found = f"{self._store.manifest.format.upper()} crashes or hangs when it reads it ({died})"
        if found:
            self.close()
        return found


def _compare(path: Path, number: int, name: str) -> str | None:
    """What `complaint` says. Runs in the child process."""
    store = _opened(path)
    shard = store.manifest.shards[number]
    file = store.path / shard.files[shard.fields[name].file].name
    compare = resolve(output_format(store.manifest.format).compare)
    try:
        found: str | None = compare(store, number, name, file)
    except RawpackError as error:
        return str(error)
    except Exception as error:  # h5py and lmdb raise many types for broken files
        if is_no_fault_of_data(error):
            raise
        return f"{store.manifest.format.upper()} cannot read it: {error}"
    return found


@lru_cache(1)
def _opened(path: Path) -> Store:
    """The store, whose manifest is read once for all of its shards."""
    return Store(path)
