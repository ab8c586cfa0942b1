"""The options of an export that only some targets take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rawpack.disk.splits import is_split_name, read_splits
from rawpack.errors import DamagedStoreError, UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.options.values import parse_bytes

_SPLIT = "train"


@dataclass(frozen=True)
class ExportOptions:
    """See `api.export`. The defaults apply to every target."""

    numbered: bool = False
    shard_size: int | str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if self.split is not None and not is_split_name(self.split):
            raise UsageError(f"{opt.split(repr(self.split))}: must be a name such as train or val")
        _ = self.shard_bytes

    @property
    def shard_bytes(self) -> int | None:
        return None if self.shard_size is None else parse_bytes(opt.shard_size, str(self.shard_size))

    @property
    def given(self) -> dict[str, bool]:
        """Option, as a user writes it -> whether it was given."""
        return {
            "numbered": self.numbered,
            "shard_size": self.shard_size is not None,
            "split": self.split is not None,
        }

    def split_of(self, store: Path) -> str:
        """The name of the split that a store is: as given, else that of its set, else train."""
        if self.split is not None:
            return self.split
        try:
            found = read_splits(store.parent)
        except DamagedStoreError:
            return _SPLIT
        return store.name if found is not None and store.name in found.splits else _SPLIT
