"""Read rawpack stores: open one, iterate batches. And make them: `pack` and the other verbs of the `rawpack` command.

import rawpack

rawpack.pack("photos/", "dst/")
batches = rawpack.Reader("dst/").batches(512, shuffle=True)
for epoch in range(90):
    for batch in batches:
        batch["image"], batch["label"], batch["index"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rawpack.errors import (
    DamagedStoreError,
    DecodeError,
    MissingExtraError,
    PackError,
    RawpackError,
    StoreError,
    UnfinishedStoreError,
    UsageError,
    WorkerError,
)

if TYPE_CHECKING:
    from rawpack.batches import Batches
    from rawpack.choose.options import Buckets, Workers
    from rawpack.inspection import look
    from rawpack.order.from_column import Balanced, Weighted
    from rawpack.order.launcher import Ranks
    from rawpack.order.shuffled import Blocks
    from rawpack.reader import Reader
    from rawpack.store.opening import Cache
    from rawpack_packer.api import (
        append,
        bench,
        convert,
        describe,
        doctor,
        export,
        merge,
        pack,
        pack_splits,
        plan,
        relabel,
        subset,
        verify,
        view,
        warm,
    )

__version__ = "0.1.0"

__all__ = [
    "Balanced",
    "Batches",
    "Blocks",
    "Buckets",
    "Cache",
    "DamagedStoreError",
    "DecodeError",
    "MissingExtraError",
    "PackError",
    "Ranks",
    "RawpackError",
    "Reader",
    "StoreError",
    "UnfinishedStoreError",
    "UsageError",
    "Weighted",
    "WorkerError",
    "Workers",
    "append",
    "bench",
    "convert",
    "describe",
    "doctor",
    "export",
    "look",
    "merge",
    "pack",
    "pack_splits",
    "plan",
    "relabel",
    "subset",
    "verify",
    "view",
    "warm",
]


_READING = {
    "Balanced": "rawpack.order.from_column",
    "Batches": "rawpack.batches",
    "Blocks": "rawpack.order.shuffled",
    "Buckets": "rawpack.choose.options",
    "Cache": "rawpack.store.opening",
    "Ranks": "rawpack.order.launcher",
    "Reader": "rawpack.reader",
    "Weighted": "rawpack.order.from_column",
    "Workers": "rawpack.choose.options",
    "look": "rawpack.inspection",
}
"""Loaded when they are asked for: workers import this package too, and need none of them."""
_MODULES = ("integrations", "order", "targets", "transforms")
"""The same, for `import rawpack` and then `rawpack.transforms.Normalize`."""

if not TYPE_CHECKING:  # type checkers know all names

    def __getattr__(name: str) -> Any:
        """What reads stores, or a function of the packer, which a training job never loads."""
        if name in _MODULES:
            return import_module(f"rawpack.{name}")
        if name not in __all__:
            raise _unknown(name)
        if name in _READING:
            value = globals()[name] = getattr(import_module(_READING[name]), name)
            return value
        try:
            from rawpack_packer import api
        except ImportError as error:
            raise MissingExtraError(
                f"rawpack.{name} needs the package rawpack_packer, which cannot be imported here ({error}); "
                "`pip install rawpack` installs it with everything that it needs"
            ) from error
        return getattr(api, name)

    def _unknown(name: str) -> Exception:
        """The error for a name that is not here. Of a step it is no AttributeError, of which `from rawpack import ...`
        would show nothing."""
        from rawpack.system.user import did_you_mean

        if name[:1].isupper() and name in import_module("rawpack.transforms").__all__:
            return UsageError(f"rawpack has no {name}: write rawpack.transforms.{name}")
        hint = did_you_mean(name, __all__) if name[:1].isalpha() else ""
        return AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")

    def __dir__() -> list[str]:
        return [*__all__, *_MODULES, "__version__"]
