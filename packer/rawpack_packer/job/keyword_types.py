"""The keywords of the functions in `rawpack_packer`, for editors and type checkers.

Made from the table of options by scripts/make_keywords.py. Change the table, not this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rawpack_packer.engines import Engine
    from rawpack_packer.job.options import Progress
    from rawpack_packer.sources.fields import Declared


class RecipeKeywords(TypedDict, total=False):
    """What is done to images, and how they are stored. What is left out, or None, depends on the source.

    size: a side, which the shorter side is scaled to before the center is cut out; (height, width); or "keep". Where
        samples have several images, also a dict by field: {"image": 64, "target": 256}. None is "keep" for arrays of
        one size, and for PIL images of one size that are all gray or all in color; else 256.
    crop: (x, y, width, height), cut out of the upright image before it is resized.
    fit: "cover" keeps proportions and cuts to the center, "stretch" distorts, "whole" keeps proportions and cuts
        nothing: the size is then that of the shorter side, and images differ in size.
    interpolation: how images are resized.
    color: "ycgco420" stores RGB as planes of YCgCo: memmap and hdf5 only.
    depth: bits of a value: 16 stores the values of 16-bit PNG and TIFF files as uint16, in memmap and hdf5; 8, the
        default, stores their upper 8 bits.
    max_pixels: images with more are rejected.
    format: "memmap" (the default of `pack`), "hdf5", "lmdb", or one that an installed package adds.
    quality: of JPEG, 1 to 100; "keep", with size="keep", stores JPEG files unchanged: lmdb only.
    check: of unchanged JPEG files, "structure", which finds truncated ones, or "decode", which finds more but takes
        longer: lmdb only.
    subsampling: of chroma: lmdb only.
    jpeg_tables: how JPEG files are encoded: "jpegli" takes fewer bytes for the same loss than "standard", which is the
        default for subsampling="440" only. lmdb only.
    compression: "none", "zstd" (memmap only) or "gzip" (hdf5 only), unless an added format has others.
    chunk: images per chunk: hdf5 only.
    shard_size: bytes of raw pixels in a shard, about: 1 << 30 or "1GiB".
    fast: decode large JPEGs at a reduced scale, with slightly other pixels.
    curate: add fields by which near duplicates, blurred, dark and blank images are found, of several images by the
        first.
    """

    size: int | tuple[int, int] | Literal["keep"] | Mapping[str, int | tuple[int, int] | str] | None
    crop: tuple[int, int, int, int] | str | None
    fit: Literal["cover", "stretch", "whole"] | None
    interpolation: Literal["area", "bilinear", "bicubic", "lanczos", "nearest"] | None
    color: Literal["rgb", "gray", "ycgco420"] | None
    depth: Literal[8, 16] | None
    max_pixels: int | None
    format: str | None
    quality: int | Literal["keep"] | None
    check: Literal["structure", "decode"] | None
    subsampling: Literal["420", "422", "440", "444"] | None
    jpeg_tables: Literal["jpegli", "standard"] | None
    compression: str | None
    chunk: int | None
    shard_size: int | str | None
    fast: bool | None
    curate: bool | None


class SourceKeywords(TypedDict, total=False):
    """What a source is, and what is taken of it.

    kind: of a path: "folder", "listing", "video", ..., or one that an installed package adds; None detects it. "folder"
        takes `train` and `val` as classes and leaves out tables and other annotations.
    skip_unreadable: pack what can be read of a folder, an archive or WebDataset shards. The rest is rejected as
        "not_scanned", and counted in the summary as `unread`. Otherwise it is a PackError, with nothing written.
    limit: at most this many samples, evenly spaced over the source.
    fields: of a listing, a table or a dataset, what fields are, where their first value does not show it: "float32",
        "float32[?,5]" for arrays that differ in length, "str", "str[?]" for lists of texts; "image" for a further image
        of the sample, "flow" or "disparity" for one whose values are distances in pixels, "mask" for labels of its
        pixels, "array" for what has its height and width and is no image; "xyxy", "xywh" or "yolo" for boxes; or
        (dtype, shape). HDF5 and files of arrays: "image", "flow", "disparity", "mask" and "array". WebDataset: the
        members to store as fields: ["txt", "width=json.width"]. LMDB: "boxes=txt:yolo", keys whose values are float64
        rows of boxes.
    key_pattern: fields in the paths of a folder, an archive, a listing or videos, as "{person}/{label}_{n:d}.jpg".
    path_column: of a listing, the column of paths, or how columns make them, "{id}_{start:06d}.mp4".
    key_column: of a listing, Parquet, HDF5 or `.npz` file, the column of keys.
    images: of a listing, the folder that relative paths start from. For a folder, {"target": "clean/"}: folders with a
        further image for each, a file of the same path but for its extension; or patterns such as "*_clean.png", in
        which * stands for the name of the image next to it.
    classes: of class folders, a listing, YOLO's files, WebDataset, RecordIO or HDF5, a file of class names; of a
        dataset, names of the labels.
    prefix: of WebDataset, put the name or the number of its shard before each key, as "a-000/".
    labels_file: of a folder or an archive, the path of a table of names and classes, such as Kaggle's, of ImageNet's
        development kit, or of a list.
    label_depth: of a folder, an archive or videos, how deep below the source the class folders are: 2 takes `cat` of
        `animals/cat/0.jpg`.
    labels_dir: of images, the folder of YOLO's text files.
    array: of HDF5 and `.npz` files, which arrays are packed: {"image": "train/x", "label": "train/y"}. For these and
        `.npy`, ":chw" after the images' name, or alone, says that their channels come first and moves them to the end;
        ":hwc" keeps the axes as they are.
    image_column: of Parquet, HDF5 and `.npz` files, the column of images.
    label_column: of a listing, Parquet, HDF5 or `.npz` file, of `labels_file` or a dataset, the column of labels.
    columns: of Parquet files, those that become fields.
    episodes: of LeRobot, the episodes to pack: "0:50" or a list of numbers.
    fps: of videos, frames per second to take.
    frame_step: of videos, every Nth frame is taken.
    start: of videos, the time of the first frame, in seconds or as 0:01:30.
    end: of videos, the time before which frames are taken.
    max_frames: of each video, at most this many frames.
    image: of a dataset whose images are arrays, "chw" where their channels come first, which moves them to the end, or
        "hwc" to keep the axes; or dtype and shape, with None where sizes differ: ("uint8", (None, None, 3)).
    keys: of a dataset, a key for each sample, instead of its number.
    names: of a dataset, what the values of samples that are tuples are called; two are (image, label). Or a dict, name
        -> what samples or columns call it, or its position in a tuple: {"image": "img", "label": "fine_label"}.
    """

    kind: str | None
    skip_unreadable: bool | None
    limit: int | None
    fields: Mapping[str, Declared] | Sequence[str] | None
    key_pattern: str | None
    path_column: str | None
    key_column: str | None
    images: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | Sequence[str] | None
    classes: Sequence[str] | os.PathLike[str] | None
    prefix: Literal["names", "numbers"] | None
    labels_file: str | os.PathLike[str] | None
    label_depth: int | None
    labels_dir: str | os.PathLike[str] | None
    array: str | Sequence[str] | Mapping[str, str] | None
    image_column: str | None
    label_column: str | None
    columns: str | Sequence[str] | None
    episodes: str | Sequence[int] | None
    fps: float | str | None
    frame_step: int | None
    start: float | str | None
    end: float | str | None
    max_frames: int | None
    image: Literal["chw", "hwc"] | tuple[str, tuple[int | None, ...]] | None
    keys: Sequence[str] | None
    names: Sequence[str] | Mapping[str, str | int] | None


class RunKeywords(TypedDict, total=False):
    """How a job runs. None of it changes a byte of the store.

    workers: processes, which get a dataset by cloudpickle; 0 packs in this process; None starts one for each CPU.
    engine: what packs instead of local workers: `rawpack_packer.engines.DaskEngine("tcp://...")`, `RayEngine("auto")`,
        or any `concurrent.futures.Executor`, which stays yours to shut down.
    max_rejects: the largest share of samples that may be rejected, or from 1 on their number; also "1%". Default: 0.01.
    strict: stop at the first sample that cannot be packed, and at anything that may be a mistake.
    restart: delete what an earlier run left and begin again. The store itself stays if an append did not finish.
    progress: True shows a bar, or lines where nobody watches; None or False shows nothing. Or an object that is called
        as the job advances, see `rawpack_packer.job.Progress`.
    """

    workers: int | None
    engine: Engine | Executor | None
    max_rejects: float | str | None
    strict: bool | None
    restart: bool | None
    progress: Progress | bool | None
