"""The options of `Reader.batches`: the values that users give, each checked by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rawpack.checks import flag, names, one_of, seconds, size_of, whole_number
from rawpack.errors import UsageError
from rawpack.order.from_column import FromColumn
from rawpack.order.launcher import Ranks, ranks_of
from rawpack.order.sampled import Indices
from rawpack.order.shuffled import Blocks
from rawpack.pixels.aspects import Size
from rawpack.system.user import did_you_mean, suggesting

if TYPE_CHECKING:
    from rawpack.transforms.plan import Transform

Backend = Literal["process", "thread"]
Sampler = Indices | Callable[[int], Indices] | FromColumn
DecodeOption = bool | Literal["planes"]
_EXAMPLE = 'Buckets([(512, 512), (384, 680)]), sizes as (height, width), or Buckets("auto")'
_MOST = 256


@suggesting
@dataclass(frozen=True)
class Buckets:
    """For `image_size=` of `Reader.batches`: all images of a batch come in one of several sizes, each image in the one
    in which it loses least.

        reader.batches(64, image_size=Buckets([(512, 512), (384, 680)]))

    sizes: (height, width) of each, or sides of squares; "auto" chooses them by the images.
    area: for "auto": the sizes have about as many pixels as an image of this size has: a side, or (height, width). None
        means the median of the images.
    """

    sizes: Sequence[int | tuple[int, int]] | Literal["auto"] = "auto"
    _: KW_ONLY
    area: int | tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.sizes, str):
            if self.sizes != "auto":
                raise UsageError(f"Buckets({self.sizes!r}): pass {_EXAMPLE}")
            object.__setattr__(self, "area", None if self.area is None else size_of(self.area, "area"))
            return
        object.__setattr__(self, "sizes", _checked(self.sizes))
        if self.area is not None:
            raise UsageError('area= is for Buckets("auto"): leave it out, or leave the sizes out')


@suggesting
@dataclass(frozen=True)
class Workers:
    """For `workers=` of `Reader.batches`: how many workers, of which kind.

        reader.batches(256, workers=Workers(8, backend="thread"))

    number: 0 does the work in this process; None chooses by the CPUs available to this process and the store.
    backend: "process" or "thread"; None uses threads where workers only copy rows, processes where they decode.
    timeout: seconds without progress after which a worker is considered dead, and replaced; None means 120. Steps of
        your own count for all samples of a slice together: of a batch or a part of it, and where small samples are made
        many at a time, of several batches, up to 12 MB.
    """

    number: int | None = None
    _: KW_ONLY
    backend: Backend | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        one_of("backend", self.backend, "process", "thread", None)
        if isinstance(self.number, str):
            raise UsageError(f"workers={self.number!r} must be a number, None for one that suits, or Workers(...)")
        if self.number is not None:
            object.__setattr__(self, "number", whole_number("workers", self.number, 0))
        if self.timeout is not None:
            object.__setattr__(self, "timeout", seconds("timeout", self.timeout))
        for name in ("backend", "timeout"):
            if self.number == 0 and getattr(self, name) is not None:
                raise UsageError(f"{name}={getattr(self, name)!r} has no effect with 0 workers: leave it out")


SizeOption = int | tuple[int, int] | Buckets | None


@dataclass(frozen=True)
class Options:
    """What was asked of `Reader.batches`, by its keywords. What is wrong by itself is refused here, in one form each;
    what the store must fit, when batches are made."""

    batch_size: int
    shuffle: bool | Literal["block"] | Blocks
    sampler: Sampler | None
    seed: int
    drop_last: bool
    fields: Sequence[str] | None
    image_size: SizeOption | Mapping[str, SizeOption]
    transform: Transform | None
    decode: DecodeOption | Mapping[str, DecodeOption]
    workers: int | Workers | None
    ranks: Literal["auto"] | tuple[int, int] | Ranks | None
    ragged: Literal["list", "pad"] | int

    def __post_init__(self) -> None:
        if not isinstance(self.shuffle, Blocks | bool | np.bool_) and not is_word(self.shuffle, "block"):
            raise UsageError(f"shuffle={self.shuffle!r} must be True, False, 'block' or Blocks(...)")
        if not isinstance(self.ragged, str):
            whole_number("ragged", self.ragged, 1)
        elif self.ragged not in ("list", "pad"):
            raise UsageError(f"ragged={self.ragged!r} must be 'list', 'pad', or a length to pad to")
        ranks, drop_last = ranks_of(self.ranks), flag("drop_last", self.drop_last)
        if drop_last and ranks is not None and ranks.last is not None:
            raise UsageError(f"drop_last=True leaves out what {ranks!r} divides: leave out one of them")
        checked = {
            "batch_size": whole_number("batch_size", self.batch_size, 1),
            "shuffle": Blocks() if is_word(self.shuffle, "block") else self.shuffle,
            "seed": whole_number("seed", self.seed, -(1 << 63), (1 << 63) - 1),
            "drop_last": drop_last,
            "fields": None if self.fields is None else names("fields", self.fields),
            "workers": self.workers if isinstance(self.workers, Workers) else Workers(self.workers),
            "ranks": ranks,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.sampler is not None:
            _check_undivided(self.sampler)
            if self.shuffle is not False:
                raise UsageError("sampler= is its own order: leave out shuffle=")


def _check_undivided(sampler: Any) -> None:
    """Raise UsageError for a sampler that divides samples between ranks, such as torch's DistributedSampler. With
    `ranks`, they would be divided twice; without, all epochs would be the same, as nobody calls its set_epoch()."""
    if hasattr(sampler, "num_replicas"):
        raise UsageError(
            f"sampler={type(sampler).__name__}(...) divides the samples between ranks, which batches() does itself: "
            f'leave it out, and pass shuffle={bool(getattr(sampler, "shuffle", False))}, ranks="auto"'
        )


def is_word(value: object, word: str) -> bool:
    return isinstance(value, str) and value == word


def by_field(name: str, value: Any, allowed: Sequence[str], default: Any) -> dict[str, Any]:
    """What is asked of each of these fields: of all the same, unless `value` is a dict by field. default: of those that
    the dict does not name."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(allowed, value)
    for field in value:
        if field not in allowed:
            there = f"the fields that it is for: {', '.join(allowed)}" if allowed else "none that it could be for"
            raise UsageError(f"{name}= names {field!r}; the batch has {there}{did_you_mean(str(field), allowed)}")
    return {field: value.get(field, default) for field in allowed}


def _checked(asked: object) -> tuple[Size, ...]:
    if not isinstance(asked, Sequence) or not asked:
        raise UsageError(f"Buckets({asked!r}): pass a list of sizes: {_EXAMPLE}")
    sizes = list[Size]()
    for one in asked:
        try:
            size = size_of(one, "sizes")
        except UsageError:
            raise UsageError(f"Buckets has {one!r}, which is not a size: pass {_EXAMPLE}") from None
        if size in sizes:
            raise UsageError(f"Buckets has {size[0]}x{size[1]} twice: pass each size once")
        sizes.append(size)
    if len(sizes) > _MOST:
        raise UsageError(f"Buckets has {len(sizes)} sizes: pass at most {_MOST}")
    return tuple(sizes)
