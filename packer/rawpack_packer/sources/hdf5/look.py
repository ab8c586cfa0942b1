"""Looks at an HDF5 file in a child process, since a hostile file can crash or hang the HDF5 library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.system.failure import is_no_fault_of_data
from rawpack.system.isolated import ChildDiedError, IsolatedCalls
from rawpack_packer.errors import reason_of, stop_if_of_any_file
from rawpack_packer.sources.hdf5.choosing import DataSetChoice, choose_data_sets
from rawpack_packer.sources.hdf5.opening import (
    TEXT,
    DataSet,
    RefusedError,
    data_sets,
    described,
    ends_early,
    open_data_set,
    open_file,
    texts_of,
)
from rawpack_packer.sources.table.choose import ColumnChoice
from rawpack_packer.text import plain
from rawpack_packer.voice import in_python, speaking_python

if TYPE_CHECKING:
    import h5py

_TIMEOUT_S = 300.0
Wanted = tuple[dict[str, str], ColumnChoice]
"""What the user named: see `named_arrays`, and `choose`."""


@dataclass(frozen=True)
class Looked:
    """What is in a file, and what is packed of it."""

    chosen: DataSetChoice
    labels: NDArray[np.int64] | tuple[str, ...] | None
    """(n,): numbers or names."""
    keys: tuple[str, ...] | None


def look(path: Path, named: Mapping[str, str], wanted: ColumnChoice) -> Looked:
    """What is packed of a file. named: see `named_arrays`. Raises UsageError where it cannot be read, or where the
    user has to name something."""
    found = _in_child(path, (dict(named), wanted))
    assert isinstance(found, Looked)
    return found


def listed_data_sets(path: Path) -> list[DataSet]:
    """All data sets of a file. Raises UsageError where it cannot be read."""
    found = _in_child(path, None)
    assert isinstance(found, list)
    return found


def _in_child(path: Path, wanted: Wanted | None) -> Looked | list[DataSet]:
    try:
        with IsolatedCalls(_TIMEOUT_S) as child:
            return child.call(_look_there, path, wanted, in_python())
    except ChildDiedError as died:
        where = plain(str(path))
        raise UsageError(f"{where} crashes or hangs the HDF5 library ({died}): it is damaged; copy it again") from None


def _look_there(path: Path, wanted: Wanted | None, python: bool) -> Looked | list[DataSet]:
    """`look_here`, in the child process."""
    with speaking_python(python):
        return look_here(path, wanted)


def look_here(path: Path, wanted: Wanted | None) -> Looked | list[DataSet]:
    """What `look` finds, or all data sets if `wanted` is None, in this process."""
    where = plain(str(path))
    try:
        with open_file(str(path)) as file:
            if ends_early(str(path), file.userblock_size):
                raise UsageError(
                    f"{where}: another HDF5 file follows its end, as if they were joined by cat: split them"
                )
            found = data_sets(file)
            if wanted is None:
                return found

            def by_name(name: str) -> DataSet | None:
                try:
                    return described(file, name, open_data_set(file, name).id)
                except KeyError:
                    return None
                except RefusedError as error:
                    raise UsageError(f"{where}: {plain(name)}: {error}") from None

            def is_image_file(one: DataSet) -> bool:
                from rawpack_packer.images import sniff

                first = bytes(np.asarray(open_data_set(file, one.name)[0]).tobytes()[:32])
                return sniff(first) is not None

            named, columns = wanted
            chosen = choose_data_sets(found, columns, named, where, by_name=by_name, is_image_file=is_image_file)
            labels = None if chosen.label is None else _column(file, chosen.label, where)
            keys = None if chosen.key is None else _column(file, chosen.key, where)
            return Looked(chosen, labels, None if keys is None else tuple(map(str, keys)))
    except UsageError:
        raise
    except Exception as error:  # h5py raises many types for broken files
        if is_no_fault_of_data(error):
            raise
        if isinstance(error, OSError):
            stop_if_of_any_file(error, where)
            if error.errno is not None and error.strerror:
                raise UsageError(f"{where} cannot be read: {reason_of(error)}") from None
        raise UsageError(f"{where} cannot be read as HDF5: {fault_of(error, str(path))}") from None


def _column(file: h5py.File, one: DataSet, where: str) -> NDArray[np.int64] | tuple[str, ...]:
    """All values of a data set of whole numbers or texts. Raises UsageError."""
    values = open_data_set(file, one.name)[()].reshape(-1)
    if one.holds != TEXT:
        return np.asarray(values, np.int64)
    texts = list(texts_of(values))
    if None in texts:
        raise UsageError(f"{where}: {one}: text {texts.index(None)} is not UTF-8")
    return tuple(str(text) for text in texts)


def fault_of(error: BaseException, path: str) -> str:
    """What h5py says of broken bytes, in one printable line that does not name the folder."""
    text = str(error.args[0] if error.args else "").replace(path, Path(path).name).splitlines()
    return plain(f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__)
