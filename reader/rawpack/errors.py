"""Every error that rawpack raises on purpose.

RawpackError
├── UsageError            usage error: an option or argument makes no sense (also a ValueError)
├── StoreError            a store cannot be opened or read
│   ├── UnfinishedStoreError    packing did not finish
│   └── DamagedStoreError       the files are not the ones that were packed
├── DecodeError           an image cannot be decoded; `reason` is a code that a program can count
├── WorkerError           a worker failed; the message has the sample and the worker's traceback
├── PackError             packing ran and stopped: too many rejects, a full disk, a failed check
└── MissingExtraError     an optional dependency is not installed (also an ImportError)

A message says what is wrong, with the value, the path, and the cure.
"""

from __future__ import annotations


class RawpackError(Exception):
    """The root: `except RawpackError` catches everything that rawpack raises on purpose."""


class UsageError(RawpackError, ValueError):
    """An option or argument that makes no sense here."""


class StoreError(RawpackError):
    """A store cannot be opened or read."""


class UnfinishedStoreError(StoreError):
    """A store whose packing did not finish: there is no manifest yet."""


class DamagedStoreError(StoreError):
    """A store whose files are not the ones that were packed."""


class DecodeError(RawpackError):
    """An image cannot be decoded. `reason` is one of `rawpack_packer.destination.journal.REASONS`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[DecodeError], tuple[str, str]]:
        return type(self), (self.reason, self.detail)


class WorkerError(RawpackError):
    """A worker failed on a sample, or the workers kept dying."""


class PackError(RawpackError):
    """Packing ran and could not finish."""


class MissingExtraError(RawpackError, ImportError):
    """An optional dependency is missing. The message names the extra that brings it."""
