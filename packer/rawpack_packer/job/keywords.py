"""The keywords of the functions in `rawpack_packer`: declared once, checked, and used as the words of their errors.

Everything below these functions words messages for the command line: `--shard-size '1x'`. A call from Python says
`shard_size='1x'` instead.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Literal, TypedDict, TypeVar, get_args, get_type_hints

from rawpack.errors import RawpackError
from rawpack_packer.engines import Engine
from rawpack_packer.job.options import Progress
from rawpack_packer.recipe.tables import format_names
from rawpack_packer.sources.kinds import Declared

Call = TypeVar("Call", bound=Callable[..., Any])


class RecipeKeywords(TypedDict, total=False):
    """What is done to images, and how they are stored. What is left out, or None, depends on the source.

    format: "memmap" (the default of `pack`), "hdf5", "lmdb", or one that an installed package adds.
    size: a side, which the shorter side is scaled to before the center is cut out; (height, width); or "keep". None is
        256 for pictures, and "keep" for arrays and for PIL images of one size that are all gray or all in color.
    crop: (x, y, width, height), cut out of the upright image before it is resized.
    fit: "cover" keeps proportions and cuts to the center, "stretch" distorts. interpolation: how images are resized.
    color: "yuv420" stores RGB as planes of YCbCr: memmap and hdf5 only.
    quality: of JPEG, 1 to 100; "keep", with size="keep", stores JPEG files unchanged: lmdb only, as are
    check: how unchanged JPEG files are checked; and subsampling: of chroma.
    compression: "none" or "gzip": hdf5 only, unless an added format has others. chunk: images per chunk, hdf5 only.
    shard_size: bytes of raw pixels in a shard, about: 1 << 30 or "1GiB".
    max_pixels: images with more are rejected. fast: decode large JPEGs at a reduced scale, with slightly other pixels.
    """

    format: str | None
    size: int | tuple[int, int] | Literal["keep"] | None
    crop: tuple[int, int, int, int] | str | None
    fit: Literal["cover", "stretch"] | None
    interpolation: Literal["area", "linear", "cubic", "lanczos", "nearest"] | None
    color: Literal["rgb", "gray", "yuv420"] | None
    quality: int | Literal["keep"] | None
    check: Literal["structure", "decode"] | None
    subsampling: Literal["420", "422", "440", "444"] | None
    compression: str | None
    chunk: int | None
    shard_size: int | str | None
    max_pixels: int | None
    fast: bool | None


class SourceKeywords(TypedDict, total=False):
    """What a source is, and what is taken of it.

    Of a path:
    kind: "folder", "listing", "video", ..., or one that an installed package adds; None detects it. "folder" takes
        `train` and `val` as classes.
    skip_unreadable: pack what can be read of a folder. The rest is rejected as "not_scanned", and counted in the
        summary as `unread`. Otherwise it is a PackError, with nothing written.
    key, images: of a listing, the column of keys, and the folder that relative paths start from.
    classes: of a listing or YOLO's files, the path of a file of class names.
    fps, every, start, end, max_frames: which frames of videos are taken.

    Of a dataset:
    image: dtype and shape of images that are arrays and differ in size: ("uint8", (None, None, 3)).
    classes: names of the labels. keys: one for each sample, instead of its number.
    names: what the values of samples that are tuples are called; two are (image, label).

    Of a listing or dataset:
    fields: what fields are, where their first value does not show it: "float32", "float32[?,5]" for arrays that differ
        in length, "str", "mask"; "xyxy", "xywh" or "yolo" for boxes; or (dtype, shape).
    """

    kind: str | None
    skip_unreadable: bool | None
    fields: Mapping[str, Declared] | Sequence[str] | None
    key: str | None
    images: str | os.PathLike[str] | None
    classes: Sequence[str] | os.PathLike[str] | None
    fps: float | str | None
    every: int | None
    start: float | str | None
    end: float | str | None
    max_frames: int | None
    image: tuple[str, tuple[int | None, ...]] | None
    keys: Sequence[str] | None
    names: Sequence[str] | None


class RunKeywords(TypedDict, total=False):
    """How a job runs. None of it changes a byte of the store.

    workers: processes, which get a dataset by cloudpickle; 0 packs in this process; None starts one for each CPU.
    max_rejects: the largest share of samples that may be rejected, or from 1 on their number; also "1%". Default: 0.01.
    strict: stop at the first sample that cannot be packed.
    restart: delete what an earlier run left, and begin again. Of an append that did not finish, the store stays.
    engine: what packs instead of local workers: `rawpack_packer.engines.DaskEngine("tcp://...")`, `RayEngine("auto")`,
        or any `concurrent.futures.Executor`, which stays yours to shut down.
    progress: True shows a bar, or lines where nobody watches; None or False shows nothing. Or an object that is called
        as the job advances, see `rawpack_packer.job.Progress`.
    """

    workers: int | None
    max_rejects: float | str
    strict: bool
    restart: bool
    engine: Engine | Executor | None
    progress: Progress | bool | None


class PackKeywords(RecipeKeywords, SourceKeywords, RunKeywords, total=False):
    """All keywords: see `RecipeKeywords`, `SourceKeywords` and `RunKeywords`."""


class AppendKeywords(SourceKeywords, RunKeywords, total=False):
    """All but the recipe, which is the store's: see `SourceKeywords` and `RunKeywords`."""


class DeriveKeywords(RecipeKeywords, RunKeywords, total=False):
    """The keywords for stores made from stores: see `RecipeKeywords` and `RunKeywords`."""


def names_of(keywords: Any) -> frozenset[str]:
    """The names that one of these declarations has."""
    return frozenset(keywords.__optional_keys__)


def from_python(*keywords: Any) -> Callable[[Call], Call]:
    """Make a function one that users call from Python, with these keywords as well as its own parameters.

    An unknown keyword is a TypeError that suggests the nearest one; messages name keywords instead of options.
    """

    def decorate(function: Call) -> Call:
        own = [name for name, one in inspect.signature(function).parameters.items() if one.kind != one.VAR_KEYWORD]
        known = [*own, *(name for one in keywords for name in sorted(names_of(one)))]

        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:
                    near = difflib.get_close_matches(name, known, 1)
                    hint = f". Did you mean {near[0]!r}?" if near else ""
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
            try:
                return function(*args, **given)
            except RawpackError as error:
                error.args = (in_python(str(error)), *error.args[1:])
                raise

        return called  # type: ignore[return-value] # it takes and gives the same

    return decorate


_OTHERS = {
    **dict.fromkeys(("skip_existing", "other_libraries", "numbered", "keep_labels"), bool),
    **dict.fromkeys(("scratch", "seed", "prefix", "per_class", "limit", "splits", "holdout"), str),
}
"""Keywords of single functions."""
_RENAMED = {"source": "kind", "field": "fields"}
_TAKES: dict[str, Callable[[str], Any]] = {
    "splits": lambda text: text.split(","),
    "holdout": lambda text: dict(one.split("=", 1) for one in text.split(",")),
    "fields": lambda text: dict([text.split(":", 1)]),
}
"""Keywords whose values are neither text nor numbers."""


def in_python(message: str) -> str:
    """A message that names options, with keywords instead; `commands` stay.

    "--shard-size '1x'" becomes "shard_size='1x'", "--size keep" "size='keep'", "--restart" "restart=True", and an
    option without a value, such as "--crop", "crop=".
    """
    types: dict[str, Any] = {**get_type_hints(PackKeywords), **_OTHERS}
    words = {word for one in types.values() for arg in get_args(one) for word in get_args(arg) if isinstance(word, str)}
    words |= {*format_names(), "local", "dask", "ray", "folder", "video", "yolo"}
    value = rf"'[^']*'|-?\d(?:[^\s:;]*[^\s:;,.)])?|\w+[:=,][^\s;]*\w|(?:{'|'.join(sorted(words))})\b"

    def keyword(found: re.Match[str]) -> str:
        option, text = found["option"] or "", found["value"]
        name = _RENAMED.get(option, option.replace("-", "_"))
        if name not in types:
            return found[0]
        if types[name] is bool or bool in get_args(types[name]):
            return f"{name}=True"
        if text is None:
            return f"{name}="
        text = text.strip("'")
        takes = _TAKES.get(name) if re.search("[:=,]", text) else None
        return f"{name}={text if re.fullmatch('-?[0-9.]+', text) else repr(takes(text) if takes else text)}"

    option = rf"`[^`]*`|(?<![\w/-])--(?P<option>[a-z]+(?:-[a-z]+)*)(?: (?P<value>{value}))?"
    return re.sub(option, keyword, message).replace("same command", "same call")
