"""Options that several commands share, each declared once: what is stored, where it comes from, how a run works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import click

from rawpack.errors import UsageError
from rawpack_packer import api
from rawpack_packer.cli.command import Decorator, UserPath, option, together
from rawpack_packer.engines import ENGINES
from rawpack_packer.job import PREFIXES
from rawpack_packer.recipe import CHECKS, COLORS, FITS, INTERPOLATIONS, JPEG_TABLES, format_names
from rawpack_packer.sources import KINDS, OPTIONS


# ---------------------------------------------------------------------------------------------- the recipe
class _OptionRow(NamedTuple):
    names: tuple[str, ...]
    group: str
    values: click.Choice[str] | click.IntRange | str
    """A type, or a metavar."""
    help: str
    default: str
    """Of a new store, in words: what is left out is decided with the source."""
    kept: str | None = "as in the store"
    """Of a store made of stores; None where that has no such option."""


_RECIPE = (
    _OptionRow(("-s", "--size"), "Image", "N|HxW|keep",
                "256: scale the shorter side to 256 and cut out the center square. 224x160: scale to cover 224 high, "
                "160 wide, and cut out the center. keep: store each image at its own size.",
                "256; keep for arrays and stores", "keep"),
    _OptionRow(("--crop",), "Image", "X,Y,W,H",
                "Cut this box out of each image before resizing: left, top, width, height in pixels, such as "
                "186,0,114,30. Note the order: --size is height by width, --crop is not.",
                "the whole image", "the whole image"),
    _OptionRow(("--fit",), "Image", click.Choice(FITS),
                "cover: keep proportions and cut out the center. stretch: distort to the size.", "cover", "cover"),
    _OptionRow(("--interpolation",), "Image", click.Choice(INTERPOLATIONS),
                "How images are resized. area shrinks without aliasing, and enlarges bilinearly.", "area", "area"),
    _OptionRow(("--color",), "Image", click.Choice(COLORS),
                "rgb: three channels. gray: one. yuv420: full brightness and a quarter of the color, 1.5 bytes a "
                "pixel, read as rgb (memmap and hdf5).",
                "rgb; gray for gray arrays; as in the store for stores"),
    _OptionRow(("--max-pixels",), "Image", click.IntRange(1),
                "Reject images whose header declares more pixels than this.", "178000000", None),
    _OptionRow(("-f", "--format"), "Format", click.Choice(format_names()),
                "memmap: raw pixels in .npy files, the fastest to read. hdf5: raw pixels in HDF5. lmdb: JPEG in "
                "LMDB, the smallest.",
                "memmap"),
    _OptionRow(("--quality",), "Format", "1-100|keep",
                "JPEG quality in lmdb stores. keep: with --size keep, store JPEG files as they are.",
                "90; keep for the JPEG files of a store", "keep where possible, else as in the store, else 90"),
    _OptionRow(("--check",), "Format", click.Choice(CHECKS),
                "How to check JPEG files that are stored as they are. structure: finds truncated files without "
                "decoding them, but hardly any damage inside the compressed data. decode: also finds what a decoder "
                "notices, which is not all.",
                "structure", None),
    _OptionRow(("--subsampling",), "Format", "420|422|440|444", "Chroma subsampling in lmdb stores.", "420"),
    _OptionRow(("--jpeg-tables",), "Format", click.Choice(JPEG_TABLES),
                "Quantization tables of JPEG in lmdb stores. jpegli: those of jpegli, with less loss at the same size; "
                "packing is a little slower.",
                "standard"),
    _OptionRow(("--compression",), "Format", click.Choice(["none", "gzip"]), "Compression in hdf5 stores.", "none"),
    _OptionRow(("--chunk",), "Format", click.IntRange(1), "Images per chunk in hdf5 stores.", "1"),
    _OptionRow(("--shard-size",), "Format", "BYTES",
                "About how many bytes of raw pixels a shard holds, such as 1GB; it has at least 64 samples.", "256MiB"),
)  # fmt: skip


def recipe_option(known: _OptionRow, *python_name: str, help: str, **settings: Any) -> Decorator:
    """One of them, declared for a command."""
    kind = {"metavar": known.values} if isinstance(known.values, str) else {"type": known.values}
    return option(*known.names, *python_name, group=known.group, help=help, **kind, **settings)


recipe_options = together(
    *(recipe_option(one, help=f"{one.help} [default: {one.default}]") for one in _RECIPE),
    option(
        "--fast", is_flag=True, group="Image",
        help="Decode large JPEGs at a reduced scale: faster, with slightly different pixels.",
    ),
    option(
        "--curate", is_flag=True, group="Image",
        help="Measure each image, so that `rawpack inspect --html` shows near duplicates, and blurred, dark and blank "
        "images: fields phash, sharpness, brightness, entropy and one_color.",
    ),
)  # fmt: skip
"""What is done to an image before it is stored."""
kept_recipe_options = together(
    *(recipe_option(one, help=f"{one.help} [default: {one.kept}]") for one in _RECIPE if one.kept is not None)
)
"""The same for a store that is made of stores: what is left out stays as it is."""
tried_recipe_options = together(
    *(
        recipe_option(
            next(one for one in _RECIPE if one.names[-1] == f"--{name}"), plural, multiple=True,
            help=f"{what} to try; may be repeated. [default: {default}]",
        )
        for name, plural, what, default in (
            ("size", "sizes", "Size", "256"),
            ("color", "colors", "Color", "rgb"),
            ("format", "formats", "Format", "all"),
            ("quality", "qualities", "JPEG quality of lmdb", "75, 90, 95"),
            ("jpeg-tables", "jpeg_tables", "Quantization tables of lmdb", "standard"),
            ("compression", "compressions", "Compression of hdf5", "none"),
        )
    )
)  # fmt: skip
"""Those that `rawpack plan` tries several values of."""


where_option = option(
    "--where", group="Selection", metavar="CONDITION",
    help="Only samples whose fields match, such as \"score > 0.5 and label in ('cat', 'dog')\". Fields, numbers and "
    "texts, comparisons, in, and, or, not, + - * / // %, len(), abs(), field[0], .startswith(), .endswith().",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- the source
source_options = together(
    option(
        "--source", "kind", group="Source", metavar="KIND",
        help=f"What SRC is: {', '.join(sorted(KINDS))}, or a kind from a plugin. With folder, train/ and val/ count as "
        "classes, and tables and other annotations next to the images are left out. [default: detected from SRC]",
    ),
    option(
        "--skip-unreadable", group="Source", is_flag=True,
        help="Leave out folders and files below SRC that cannot be read. They are listed as rejects, and the exit code "
        "is 1. [default: stop before anything is written]",
    ),
    option(
        "--field", "fields", group="Source", multiple=True, metavar="NAME[:DTYPE]",
        help="The type of a column of a listing or Parquet file, if its values do not tell: score:float32, "
        "vector:float32[4], name:str, seg:mask; for boxes boxes:xyxy, boxes:xywh or boxes:yolo. Of HDF5 and .npz too: "
        "seg:mask for a mask, pose:array for an array that has the image's height and width and is no image. Of "
        "WebDataset, a "
        "member or an entry of its JSON that becomes a field: txt, json.width, caption=txt:str. Of VOC and COCO, "
        "masks: SegmentationClass:mask; semantic:mask, instances:mask. May be repeated.",
    ),
    option(
        "--key-pattern", group="Source", metavar="PATTERN",
        help="Fields in the paths of images or videos: S{subject:03d}A{label:03d}.avi, {person}/{label}_{n:d}.jpg. "
        "{name} is a text, {name:d} a whole number, {name:f} a float, {} not stored; texts of label are classes.",
    ),
    option(
        "--path", "path_column", group="Source", metavar="COLUMN",
        help="The column of paths of a listing, or how columns make them: {id}_{start:06d}.mp4. [default: path, "
        "file_name, filename, filepath or file]",
    ),
    option(
        "--key", group="Source", metavar="COLUMN",
        help="The column of a listing or Parquet file that names samples. [default: the paths]",
    ),
    option(
        "--images", group="Source", type=UserPath(), metavar="DIR",
        help="Folder that relative paths in a listing or in COCO's JSON start from [default: the file's own]; for "
        "YOLO's text files, the folder of the images.",
    ),
    option(
        "--classes", group="Source", type=UserPath(), metavar="FILE",
        help="Class names, one per line, in the order of their numbers, for a listing, YOLO's files, WebDataset, "
        "RecordIO or HDF5. [default: for a listing and WebDataset, the sorted names among the labels]",
    ),
    option(
        "--prefix", group="Source", type=click.Choice(PREFIXES),
        help="Put the name of its WebDataset shard, or the shard's number from 0, and / in front of each key, for "
        "shards that share keys. [default: no prefix]",
    ),
    option(
        "--labels", group="Source", type=UserPath(), metavar="FILE|DIR",
        help="Classes of the images of an archive without class folders: ImageNet's development kit, Kaggle's "
        "LOC_val_solution.csv, or a text file with a class per line, in the order of the images' names. For a folder "
        "of images, the folder of YOLO's text files.",
    ),
    option(
        "--array", group="Source", multiple=True, metavar="NAME=ARRAY,...",
        help="Which arrays of an HDF5 or .npz file are packed, and as what: image=train/x,label=train/y. :chw after "
        "the images' name (image=train/x:chw), or alone, also for .npy, says that channels come first, and moves them "
        "to the end; :hwc keeps the axes as they are. [default: all arrays, where the names or shapes tell]",
    ),
    option(
        "--image-column", group="Source", metavar="COLUMN",
        help="The column of images of a Parquet file that has several.",
    ),
    option(
        "--label-column", group="Source", metavar="COLUMN",
        help="The column of labels of a Parquet file, stored as label. [default: label, or the only one with classes]",
    ),
    option(
        "--columns", group="Source", metavar="NAME,...",
        help="The columns of a Parquet file that become fields, besides image and label. [default: all that can]",
    ),
    option("--fps", group="Video", metavar="N", help="Frames per second to take, such as 2 or 29.97. [default: all]"),
    option("--every", group="Video", type=click.IntRange(1), help="Take every Nth frame. [default: 1]"),
    option("--start", group="Video", metavar="TIME", help="Take frames from this time on: 90, 1.5 or 0:01:30."),
    option("--end", group="Video", metavar="TIME", help="Take frames before this time."),
    option("--max-frames", group="Video", type=click.IntRange(1), help="Take at most N frames of each video."),
)  # fmt: skip
"""What SRC is, and what is taken of it: `--source`, and the options of its kinds, those of `sources.OPTIONS`."""


def take_source_options(options: dict[str, Any]) -> dict[str, Any]:
    """What `source_options` added to a command's options: taken out of them."""
    return {name: options.pop(name) for name in ("kind", *OPTIONS) if name in options}


# ---------------------------------------------------------------------------------------------- the run
def workers_option(help: str, *, least: int = 0, **settings: Any) -> Decorator:
    return option("-j", "--workers", type=click.IntRange(least), help=help, **settings)


dry_run_option = option("--dry-run", is_flag=True, help="Estimate size and time from a few samples, and write nothing.")
max_rejects_option = option(
    "--max-rejects", default="1%", show_default=True, metavar="SHARE|N",
    help="How many samples may be rejected because they cannot be read: a share such as 1% or 0.01, or a number.",
)  # fmt: skip


def quiet_option_for(what: str) -> Decorator:
    return option("-q", "--quiet", is_flag=True, help=f"Print nothing but {what}.")


quiet_option = quiet_option_for("errors")
json_option = option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _output_file(ctx: click.Context, param: click.Parameter, path: str | None) -> Path | None:
    """A file to be written that a user named. Raises UsageError at once where it cannot be written."""
    if path is None or ctx.resilient_parsing:
        return None
    file = Path(path)
    if not path or os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise UsageError(f"{path or repr(path)} is a folder; name a file")
    existed = os.path.lexists(path)
    try:
        file.open("ab").close()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: there is no folder {file.parent}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}; name another file") from None
    if not existed:
        file.unlink()
    return file


def _report_file(ctx: click.Context, param: click.Parameter, path: str | None) -> Path | None:
    """The same for a report. Raises MissingExtraError where none can be drawn."""
    if path is not None and not ctx.resilient_parsing:
        api.check_report(param.opts[0])
    return _output_file(ctx, param, path)


grid_option = option("--grid", callback=_output_file, type=UserPath(), metavar="FILE",
                     help="Draw a contact sheet of random samples, such as sheet.png.")  # fmt: skip
html_option = option("--html", callback=_report_file, type=UserPath(), metavar="FILE",
                     help="Write an HTML report, such as report.html. Needs rawpack[report].")  # fmt: skip
png_option = option("--png", callback=_report_file, type=UserPath(), metavar="FILE",
                    help="Write only the plots, such as plots.png. Needs rawpack[report].")  # fmt: skip
_job_options = together(
    workers_option("Worker processes; 0 packs in this process. With --engine local only. [default: one per CPU]"),
    option(
        "--engine", type=click.Choice(ENGINES), default="local", show_default=True,
        help="Where to pack: on this machine or on a cluster, whose workers must see SRC and DST at the same paths.",
    ),
    option(
        "--address", metavar="ADDRESS",
        help="Address of the cluster: tcp://host:8786 of a Dask scheduler; auto, host:6379 or ray://host:10001 for "
        "Ray.",
    ),
    option(
        "--engine-timeout", type=click.FloatRange(0, 10_000_000, min_open=True), metavar="SECONDS",
        help="How long to wait for the cluster to answer, and then for a worker to take a part. [default: 10 and 60]",
    ),
    max_rejects_option,
    option("--strict", is_flag=True, help="Stop at the first sample that cannot be packed."),
)  # fmt: skip


def job_options(restart: str = "Delete what an earlier run left in DST, and start over.") -> Decorator:
    """How a job runs; see `output.take_job_options`. restart: what `--restart` does."""
    return together(_job_options, option("--restart", is_flag=True, help=restart), quiet_option, json_option)
