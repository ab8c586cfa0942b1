"""Messages between this process and its workers: small values, never pixels."""

from __future__ import annotations

import msgspec

from rawpack.system.times import Times


class Task(msgspec.Struct, frozen=True, array_like=True):
    """Fill rows `start` .. `stop` of a slot."""

    number: int
    slot: int
    size: int
    """Bytes of the slot."""
    keep: bool
    """Whether the slot will be used again. Then the worker keeps its mapping, and the descriptor comes only with the
    first task that names the slot; otherwise it comes with every task."""
    rows: int
    """Rows of the whole batch."""
    start: int
    stop: int
    careful: bool
    """Do one sample at a time, and note each before it is begun: this slice has killed a worker before."""
    bucket: int = 0
    """Of the batch."""
    seed: int = 0
    epoch: int = 0
    first: int = -1
    """Of `Seeds`."""
    forget: tuple[int, ...] = ()
    """Slots that will not be used again, to be unmapped."""


class SliceDone(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A task is done."""

    number: int
    times: Times
    waited_for_disk: bool
    """Whether pages were missing from the page cache, so that readahead is worthwhile."""


class SliceFailed(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """A task raised."""

    number: int
    what: str
    """The error to raise, with the sample, the exception and the worker's traceback."""


Reply = SliceDone | SliceFailed
encode = msgspec.msgpack.Encoder().encode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
