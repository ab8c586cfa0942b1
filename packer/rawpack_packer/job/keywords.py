"""The keywords of the functions in `rawpack_packer`: declared and checked once."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from rawpack.system.files import fill_closed_streams
from rawpack.system.user import expanded, unknown_keyword
from rawpack_packer.job.keyword_types import RecipeKeywords, RunKeywords, SourceKeywords
from rawpack_packer.job.options import RunOptions, parse_run_options
from rawpack_packer.options import OPTIONS
from rawpack_packer.text import speaking_python

Call = TypeVar("Call", bound=Callable[..., Any])


class PackKeywords(RecipeKeywords, SourceKeywords, RunKeywords, total=False):
    """All keywords: see `RecipeKeywords`, `SourceKeywords` and `RunKeywords`."""


class AppendKeywords(SourceKeywords, RunKeywords, total=False):
    """All but the recipe, which is the store's: see `SourceKeywords` and `RunKeywords`."""


class DeriveKeywords(RecipeKeywords, RunKeywords, total=False):
    """The keywords for stores made from stores: see `RecipeKeywords` and `RunKeywords`."""


class MeasuringKeywords(TypedDict, total=False):
    """How reading is measured.

    image_size: a side or (height, width), to which workers resize; needed where images differ in size. Where samples
        have several images, also a dict by field: {"image": 64, "target": 256}.
    transform: steps of `rawpack.transforms` that the workers do, also as text: ["RandomResizedCrop(224)"].
    """

    image_size: int | tuple[int, int] | Mapping[str, int | tuple[int, int]] | None
    transform: Sequence[Any] | str | None


class PlanKeywords(SourceKeywords, MeasuringKeywords, total=False):
    """What is asked for, and what is tried.

    target: images per second that training on one machine consumes. disk: how much disk space the whole store may take,
        as "500GB".
    memory: how much memory files may take where the training runs. Default: most of what is free here.
    format, size, fit, quality, jpeg_tables, color, compression: as of `pack`, one value or a list of those to try.
        Default: all formats, size 256, "cover", quality [75, 90, 95], "jpegli", "rgb", ["none", "zstd"]. What JPEG
        loses is the mean over all pictures of a sample.
    batch: samples in a batch. Default: 256. workers: how many to read with. Default: as many as CPUs.
    budget: about how long planning may take: 60, "45s", "5min". Default: "60s".
    seed: of the sample. tmp: the folder for trial stores, on the disk to be measured.
    """

    target: float | None
    disk: int | str | None
    memory: int | str | None
    format: str | list[str] | None
    size: int | tuple[int, int] | Literal["keep"] | Mapping[str, Any] | list[Any] | None
    fit: Literal["cover", "stretch", "whole"] | list[str] | None
    quality: int | Literal["keep"] | list[Any] | None
    jpeg_tables: Literal["jpegli", "standard"] | list[str] | None
    color: Literal["rgb", "gray", "ycgco420"] | list[str] | None
    compression: str | list[str] | None
    batch: int | None
    workers: int | None
    budget: float | str | None
    seed: int | None
    tmp: str | os.PathLike[str] | None


class BenchKeywords(MeasuringKeywords, total=False):
    """What is measured, and for how long.

    batch: samples in a batch, one number or a list. Default: 256.
    workers: how many to read with, one number or a list. Default: 1, 2, 4, ... up to the CPUs.
    rounds: how many rounds, each of which measures every row once. Default: 5.
    seconds: how long each measurement takes. Default: 0.5.
    cold: whether to read from the disk as well. Default: True.
    where: a condition, as for `Reader.select`; only these samples are read.
    """

    batch: int | Sequence[int] | None
    workers: int | Sequence[int] | None
    rounds: int | None
    seconds: float | None
    cold: bool | None
    where: str | None


def names_of(keywords: Any) -> frozenset[str]:
    """The names that one of these declarations has."""
    return frozenset(keywords.__optional_keys__)


def by_group(options: Mapping[str, Any]) -> tuple[RunOptions, dict[str, Any], dict[str, Any]]:
    """The keywords that are given by group, checked: how to run, what describes the source, and the recipe."""
    run, source_options, recipe = (
        {name: value for name, value in options.items() if name in names_of(kind) and value is not None}
        for kind in (RunKeywords, SourceKeywords, RecipeKeywords)
    )
    return parse_run_options(**run), source_options, recipe


_GROUPS = (RecipeKeywords, SourceKeywords, MeasuringKeywords, PlanKeywords, BenchKeywords, RunKeywords)
"""Those that describe their keywords, in the order in which `help` shows them."""


def takes_paths(function: Call, others: Sequence[inspect.Parameter] = ()) -> Call:
    """Expand a leading `~` in whatever a function takes as a path, by the types of its parameters: `str | PathLike`,
    lists of these, and the values of a dict of splits. Lists of samples are data, which stay as they are.

    others: keywords that it takes besides its own parameters.
    """
    parameters = [*inspect.signature(function).parameters.values()]
    kinds = {parameter.name: str(parameter.annotation) for parameter in (*parameters, *others)}
    paths = {name for name, kind in kinds.items() if re.search(r"\b(PathLike|Named|Data)\b", kind)}
    several = {name for name, kind in kinds.items() if "Sequence[Named]" in kind}

    def at_home(name: str, value: Any) -> Any:
        if name in paths and isinstance(value, str | os.PathLike):
            return expanded(value)
        if name in several and isinstance(value, list | tuple):
            return [at_home(name, one) for one in value]
        if name in paths and type(value) is dict:
            return {key: expanded(one) if isinstance(one, str | os.PathLike) else one for key, one in value.items()}
        return value

    @functools.wraps(function)
    def wrapper(*args: Any, **given: Any) -> Any:
        placed = [at_home(one.name, value) for one, value in zip(parameters, args, strict=False)] + [
            *args[len(parameters) :]
        ]
        return function(*placed, **{name: at_home(name, value) for name, value in given.items()})

    return wrapper  # type: ignore[return-value] # it takes and gives the same


def from_python(*keywords: Any, elsewhere: Mapping[str, str] | None = None) -> Callable[[Call], Call]:
    """Make a function one that users call from Python, with these keywords as well as its own parameters.

    It never gives a file that it writes the descriptor of a closed standard stream.

    `help` shows all of them, with their descriptions. An unknown keyword is a TypeError that suggests the nearest one,
    or the function that takes it (`elsewhere`). Paths are those of `takes_paths`.
    """

    def decorate(function: Call) -> Call:
        signature = inspect.signature(function)
        parameters = [one for one in signature.parameters.values() if one.kind != one.VAR_KEYWORD]
        others = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__)
            for keyword in keywords
            for name, kind in keyword.__annotations__.items()
        ]
        known = [one.name for one in (*parameters, *others)]

        @functools.wraps(function)
        def wrapper(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:
                    if elsewhere and name in elsewhere:
                        raise TypeError(f"{function.__name__}() has no keyword {name!r}: use {elsewhere[name]}")
                    meant = [one.name for one in OPTIONS.values() if name in one.meant_by and one.name in known]
                    raise unknown_keyword(function.__name__, name, known, meant)
            fill_closed_streams()
            with speaking_python():
                return at_home(*args, **given)

        wrapper.__signature__ = signature.replace(parameters=[*parameters, *others])  # type: ignore[attr-defined]
        at_home = takes_paths(function, others)
        groups = [one for one in _GROUPS if any(names_of(one) <= names_of(keyword) for keyword in keywords)]
        wrapper.__doc__ = "\n\n".join(inspect.cleandoc(one.__doc__ or "") for one in (function, *groups))
        return wrapper  # type: ignore[return-value] # it takes and gives the same

    return decorate
