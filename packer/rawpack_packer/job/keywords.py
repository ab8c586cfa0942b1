"""The keywords of the functions in `rawpack_packer`: declared and checked once, and named in their error messages.

All lower layers word their messages for the command line: `--shard-size '1x'`. For calls from Python, they are turned
into `shard_size='1x'`.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import PurePath
from typing import Any, Literal, TypedDict, TypeVar, get_args, get_type_hints

from rawpack.errors import RawpackError
from rawpack.system.home import expanded
from rawpack.system.keywords import unknown_keyword
from rawpack.system.standard_streams import fill_closed_streams
from rawpack_packer.engines import Engine
from rawpack_packer.job.options import Progress
from rawpack_packer.recipe.tables import format_names
from rawpack_packer.sources.kinds import Declared

Call = TypeVar("Call", bound=Callable[..., Any])


class RecipeKeywords(TypedDict, total=False):
    """What is done to images, and how they are stored. What is left out, or None, depends on the source.

    format: "memmap" (the default of `pack`), "hdf5", "lmdb", or one that an installed package adds.
    size: a side, which the shorter side is scaled to before the center is cut out; (height, width); or "keep". None is
        "keep" for arrays of one size, and for PIL images of one size that are all gray or all in color; else 256.
    crop: (x, y, width, height), cut out of the upright image before it is resized.
    fit: "cover" keeps proportions and cuts to the center, "stretch" distorts. interpolation: how images are resized.
    color: "yuv420" stores RGB as planes of YCgCo: memmap and hdf5 only.
    quality: of JPEG, 1 to 100; "keep", with size="keep", stores JPEG files unchanged: lmdb only, as are
    check: of unchanged JPEG files, "structure", which finds truncated ones, or "decode", which finds more but takes
        longer; and subsampling: of chroma.
    jpeg_tables: quantization tables of JPEG files: "jpegli" has less loss at the same size than "standard". lmdb only.
    compression: "none" or "gzip": hdf5 only, unless an added format has others. chunk: images per chunk, hdf5 only.
    shard_size: bytes of raw pixels in a shard, about: 1 << 30 or "1GiB".
    max_pixels: images with more are rejected. fast: decode large JPEGs at a reduced scale, with slightly other pixels.
    curate: add fields by which near duplicates, blurred, dark and blank images are found.
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
    jpeg_tables: Literal["standard", "jpegli"] | None
    compression: str | None
    chunk: int | None
    shard_size: int | str | None
    max_pixels: int | None
    fast: bool | None
    curate: bool | None


class SourceKeywords(TypedDict, total=False):
    """What a source is, and what is taken of it.

    Of a path:
    kind: "folder", "listing", "video", ..., or one that an installed package adds; None detects it. "folder" takes
        `train` and `val` as classes, and leaves out tables and other annotations.
    skip_unreadable: pack what can be read of a folder or an archive. The rest is rejected as "not_scanned", and counted
        in the summary as `unread`. Otherwise it is a PackError, with nothing written.
    path_column, key, images: of a listing, the column of paths, or how columns make them, "{id}_{start:06d}.mp4"; the
        column of keys; and the folder that relative paths start from.
    key_pattern: fields in the paths of a folder, an archive, a listing or videos, as "{person}/{label}_{n:d}.jpg"; of
        WebDataset, in its keys, as "{label}/{}".
    classes: of a listing, YOLO's files, WebDataset, RecordIO or HDF5, the path of a file of class names.
    array: of HDF5 and `.npz` files, which arrays are packed: {"image": "train/x", "label": "train/y"}. Of these and
        `.npy`, ":chw" after the images' name, or alone, says that their channels come first, and moves them to the end;
        ":hwc" keeps the axes as they are.
    labels: of an archive without class folders, the path of ImageNet's development kit, Kaggle's table or a list.
    prefix: of WebDataset, put the name or the number of its shard before each key, as "a-000/".
    image_column, label_column, columns: of Parquet files, the columns of images, of labels, and those that become
        fields.
    fps, every, start, end, max_frames: which frames of videos are taken.

    Of a dataset:
    image: of images that are arrays, "chw" where their channels come first, which moves them to the end, or "hwc" to
        keep the axes; or dtype and shape, with None where sizes differ: ("uint8", (None, None, 3)).
    classes: names of the labels. keys: one for each sample, instead of its number.
    names: what the values of samples that are tuples are called; two are (image, label). Or a dict, name -> what
        samples or columns call it, or its position in a tuple: {"image": "img", "label": "fine_label"}.

    Of a listing or dataset:
    fields: what fields are, where their first value does not show it: "float32", "float32[?,5]" for arrays that differ
        in length, "str"; "mask" for what moves with the image, "array" for what has its height and width and is no
        image; "xyxy", "xywh" or "yolo" for boxes; or (dtype, shape). Of HDF5 and files of arrays, "mask" and "array".
        Of WebDataset, the members that become fields: ["txt", "width=json.width"].
    """

    kind: str | None
    skip_unreadable: bool | None
    fields: Mapping[str, Declared] | Sequence[str] | None
    key_pattern: str | None
    path_column: str | None
    key: str | None
    images: str | os.PathLike[str] | None
    classes: Sequence[str] | os.PathLike[str] | None
    array: str | Sequence[str] | Mapping[str, str] | None
    labels: str | os.PathLike[str] | None
    prefix: Literal["names", "numbers"] | None
    image_column: str | None
    label_column: str | None
    columns: str | Sequence[str] | None
    fps: float | str | None
    every: int | None
    start: float | str | None
    end: float | str | None
    max_frames: int | None
    image: Literal["chw", "hwc"] | tuple[str, tuple[int | None, ...]] | None
    keys: Sequence[str] | None
    names: Sequence[str] | Mapping[str, str | int] | None


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
    max_rejects: float | str | None
    strict: bool | None
    restart: bool | None
    engine: Engine | Executor | None
    progress: Progress | bool | None


class PackKeywords(RecipeKeywords, SourceKeywords, RunKeywords, total=False):
    """All keywords: see `RecipeKeywords`, `SourceKeywords` and `RunKeywords`."""


class AppendKeywords(SourceKeywords, RunKeywords, total=False):
    """All but the recipe, which is the store's: see `SourceKeywords` and `RunKeywords`."""


class DeriveKeywords(RecipeKeywords, RunKeywords, total=False):
    """The keywords for stores made from stores: see `RecipeKeywords` and `RunKeywords`."""


class MeasuringKeywords(TypedDict, total=False):
    """How reading is measured.

    image_size: a side or (height, width), to which workers resize; needed where images differ in size.
    transform: steps of `rawpack.transforms` that the workers do, also as text: ["RandomResizedCrop(224)"].
    workers: how many to read with, one number or a list. Default: 1, 2, 4, ... up to the CPUs.
    """

    image_size: int | tuple[int, int] | None
    transform: Sequence[Any] | str | None
    workers: int | Sequence[int] | None


class PlanKeywords(SourceKeywords, MeasuringKeywords, total=False):
    """What is asked for, and what is tried.

    target: images per second that training consumes. disk: how much disk space the store may take, as "500GB".
    memory: how much memory files may take where the training runs. Default: most of what is free here.
    format, size, quality, jpeg_tables, color, compression: as of `pack`, one value or a list of those to try. Default:
        all formats, size 256, quality [75, 90, 95], "standard", "rgb", "none".
    batch: samples in a batch. Default: 256.
    budget: about how long planning may take: 60, "45s", "5min". Default: "60s".
    seed: of the sample. tmp: the folder for trial stores, on the disk to be measured.
    """

    target: float | None
    disk: int | str | None
    memory: int | str | None
    format: str | list[str] | None
    size: int | tuple[int, int] | Literal["keep"] | list[Any] | None
    quality: int | Literal["keep"] | list[Any] | None
    jpeg_tables: Literal["standard", "jpegli"] | list[str] | None
    color: Literal["rgb", "gray", "yuv420"] | list[str] | None
    compression: str | list[str] | None
    batch: int | None
    budget: float | str | None
    seed: int | None
    tmp: str | os.PathLike[str] | None


class BenchKeywords(MeasuringKeywords, total=False):
    """What is measured, and for how long.

    batch: samples in a batch, one number or a list. Default: 256.
    rounds: how often each row is measured, in turn with the others. Default: 5.
    seconds: how long each measurement takes. Default: 0.5.
    cold: whether to read from the disk as well. Default: True.
    where: a condition, as for `Reader.select`; only these samples are read.
    """

    batch: int | Sequence[int] | None
    rounds: int | None
    seconds: float | None
    cold: bool | None
    where: str | None


def names_of(keywords: Any) -> frozenset[str]:
    """The names that one of these declarations has."""
    return frozenset(keywords.__optional_keys__)


_GROUPS = (RecipeKeywords, SourceKeywords, MeasuringKeywords, PlanKeywords, BenchKeywords, RunKeywords)
"""Those that describe their keywords, in the order in which `help` shows them."""


def takes_paths(function: Call, others: Sequence[inspect.Parameter] = ()) -> Call:
    """Expand a leading `~` in whatever a function takes as a path, by the types of its parameters: `str | PathLike`,
    lists of these, and the values of a dict of splits. Lists of samples are data, which stay as they are.

    others: keywords that it takes besides its own parameters.
    """
    own = [*inspect.signature(function).parameters.values()]
    kinds = {one.name: str(one.annotation) for one in (*own, *others)}
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
    def called(*args: Any, **given: Any) -> Any:
        placed = [at_home(one.name, value) for one, value in zip(own, args, strict=False)] + [*args[len(own) :]]
        return function(*placed, **{name: at_home(name, value) for name, value in given.items()})

    return called  # type: ignore[return-value] # it takes and gives the same


def from_python(*keywords: Any, elsewhere: Mapping[str, str] | None = None) -> Callable[[Call], Call]:
    """Make a function one that users call from Python, with these keywords as well as its own parameters.

    It never gives a file that it writes the descriptor of a closed standard stream.

    `help` shows all of them, with their descriptions. An unknown keyword is a TypeError that suggests the nearest one,
    or the function that takes it (`elsewhere`). Messages name keywords instead of options. Paths are those of
    `takes_paths`.
    """

    def decorate(function: Call) -> Call:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind != one.VAR_KEYWORD]
        others = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__)
            for keyword in keywords
            for name, kind in keyword.__annotations__.items()
        ]
        known = [one.name for one in (*own, *others)]

        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:
                    if elsewhere and name in elsewhere:
                        raise TypeError(f"{function.__name__}() has no keyword {name!r}: use {elsewhere[name]}")
                    raise unknown_keyword(function.__name__, name, known)
            fill_closed_streams()
            try:
                return at_home(*args, **given)
            except RawpackError as error:
                theirs = [*error.verbatim, *(text for one in (*args, *given.values()) for text in _texts(one))]
                error.args = (in_python(str(error), theirs), *error.args[1:])
                raise

        called.__signature__ = signature.replace(parameters=[*own, *others])  # type: ignore[attr-defined]
        at_home = takes_paths(function, others)
        groups = [one for one in _GROUPS if any(names_of(one) <= names_of(keyword) for keyword in keywords)]
        called.__doc__ = "\n\n".join(inspect.cleandoc(one.__doc__ or "") for one in (function, *groups))
        return called  # type: ignore[return-value] # it takes and gives the same

    return decorate


_OTHERS = {
    **dict.fromkeys(
        ("skip_existing", "other_libraries", "numbered", "keep_labels", "skip_unknown", "stale_copies"), bool
    ),
    **dict.fromkeys(
        ("scratch", "seed", "per_class", "limit", "where", "splits", "holdout", "split_by", "to", "split"), str
    ),
}
"""Keywords of single functions."""
_MEASURING = dict.fromkeys(
    ("target", "disk", "memory", "budget", "tmp", "batch", "image_size", "transform", "rounds", "seconds"), str
)
_RENAMED = {"source": "kind", "field": "fields", "path": "path_column"}
_TAKES: dict[str, Callable[[str], Any]] = {
    "splits": lambda text: text.split(","),
    "holdout": lambda text: dict(one.split("=", 1) for one in text.split(",")),
    "fields": lambda text: dict([text.split(":", 1)]) if ":" in text else [text],
}
"""Keywords whose values are neither text nor numbers."""
_SAME = "same command"
_KEPT = "\u27e6{}\u27e7"
"""Stands for a text of a user while a message is reworded: brackets that no message has."""
_MOST_TEXTS = 1000
"""Longer lists are samples, keys or rows, which messages name one of at most."""


def _texts(value: Any) -> Iterator[str]:
    """The texts in what a user gave; of a path, its parts and what they make together, as messages name them."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, str | os.PathLike) and isinstance(text := os.fspath(value), str):
        path = PurePath(text)
        yield from (text, str(path), *map(str, path.parents), path.name, path.stem)
    elif isinstance(value, list | tuple) and len(value) <= _MOST_TEXTS:
        for one in value:
            yield from _texts(one)


def in_python(message: str, theirs: Iterable[str] = ()) -> str:
    """A message that names options, with keywords instead; `commands` stay, and so does what users wrote themselves.

    "--shard-size '1x'" becomes "shard_size='1x'", "--size keep" "size='keep'", "--restart" "restart=True", and an
    option without a value, such as "--crop", "crop=". theirs: texts of users, which may look like all of that.
    """
    kept = sorted({text for text in theirs if "--" in text or _SAME in text}, key=len, reverse=True)
    for k, text in enumerate(kept):
        message = message.replace(text, _KEPT.format(k))
    types: dict[str, Any] = {**get_type_hints(PackKeywords), **_OTHERS, **_MEASURING}
    words = {word for one in types.values() for arg in get_args(one) for word in get_args(arg) if isinstance(word, str)}
    words |= {*format_names(), "local", "dask", "ray", "folder", "video", "yolo", "archive", "listing", "webdataset"}
    value = rf"'[^']*'|:\w+|-?\d(?:[^\s:;]*[^\s:;,.)])?|\w+[:=,][^\s;]*\w|(?:{'|'.join(sorted(words))})\b(?!\|)"

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
    message = re.sub(option, keyword, message).replace(_SAME, "same call")
    message = message.replace("HEIGHTxWIDTH (224x160)", "(height, width)").replace(
        "width), or keep", "width), or 'keep'"
    )
    for k, text in enumerate(kept):
        message = message.replace(_KEPT.format(k), text)
    return message
