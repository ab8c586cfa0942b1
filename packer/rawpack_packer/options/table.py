"""The table of options: each is one row here, whatever asks for it."""

from __future__ import annotations

from functools import cache, partial

from rawpack_packer.options.option import (
    CHECKS,
    COLORS,
    DEPTHS,
    FITS,
    INTERPOLATIONS,
    JPEG_TABLES,
    SUBSAMPLINGS,
    Option,
    as_text,
    at_least_1,
    one_of,
    parse_bytes,
    parse_crop,
    parse_quality,
    parse_sizes,
    stored_as,
)

_recipe = partial(Option, group="recipe", heading="Image")
_of_format = partial(Option, group="recipe", heading="Format")
_source = partial(Option, group="source", heading="Source")
_of_files = partial(Option, group="source", heading="Folders and archives")
_of_table = partial(Option, group="source", heading="Listings and tables")
_of_shards = partial(Option, group="source", heading="WebDataset")
_of_arrays = partial(Option, group="source", heading="Arrays")
_of_boxes = partial(Option, group="source", heading="Detection")
_video = partial(Option, group="source", heading="Video")
_run = partial(Option, group="run", heading="Run")


def _literal(values: tuple[str, ...]) -> str:
    return f"Literal[{', '.join(repr(one) for one in values)}]".replace("'", '"')


_INTERPOLATION_WORDS = {"linear": "bilinear", "cubic": "bicubic"}

RECIPE: tuple[Option, ...] = (
    _recipe(
        name="size", flags=("-s", "--size"), metavar="N|HxW|keep",
        meant_by=("resolution", "resize", "dim", "shape", "image_size", "img_size", "height", "width"),
        short="256: square; 224x160: height x width; keep",
        help="256: scale the shorter side to 256 and cut out the center square. 224x160: scale to cover 224 high, 160 "
        "wide, and cut out the center. keep: store each image at its own size. image=64 and target=256: one for each "
        "image of a sample; repeat the option.",
        default="256; keep for arrays and stores", kept="keep", by_field=True,
        tried=("Size (of several images: image=64,target=256)", "256"),
        parse=lambda name, value: parse_sizes(name, as_text(value, "x")), initial="256",
        annotation='int | tuple[int, int] | Literal["keep"] | Mapping[str, int | tuple[int, int] | str]',
        doc='a side, which the shorter side is scaled to before the center is cut out; (height, width); or "keep". '
        'Where samples have several images, also a dict by field: {"image": 64, "target": 256}. '
        'None is "keep" for arrays of one size, and for PIL images of one size that are all gray or all in color; else '
        "256.",
    ),
    _recipe(
        name="crop", metavar="X,Y,W,H",
        short="Box to cut out first: left, top, width, height",
        help="Cut this box out of each image before resizing: left, top, width, height in pixels, such as "
        "186,0,114,30. Note the order: --size is height by width, --crop is not.",
        default="the whole image", kept="the whole image",
        parse=lambda name, value: parse_crop(name, as_text(value, ",")), annotation="tuple[int, int, int, int] | str",
        doc="(x, y, width, height), cut out of the upright image before it is resized.",
    ),
    _recipe(
        name="fit", choices=FITS, short="Crop to fill, stretch, or keep whole",
        help="cover: keep proportions and cut out the center. stretch: distort to the size. whole: keep proportions "
        "and cut nothing, so that images differ in size: --size 256 is the shorter side.",
        default="cover", kept="cover", tried=("Fit (whole: nothing is cut)", "cover"), parse=one_of(*FITS),
        initial="cover", annotation=_literal(FITS),
        doc='"cover" keeps proportions and cuts to the center, "stretch" distorts, "whole" keeps proportions and cuts '
        "nothing: the size is then that of the shorter side, and images differ in size.",
    ),
    _recipe(
        name="interpolation", choices=INTERPOLATIONS, meant_by=("resample", "filter"),
        short="area, bilinear, bicubic, lanczos or nearest", also=_INTERPOLATION_WORDS,
        help="How images are resized. area shrinks without aliasing and enlarges bilinearly.",
        default="area", kept="area", parse=stored_as(_INTERPOLATION_WORDS, INTERPOLATIONS), initial="area",
        annotation=_literal(INTERPOLATIONS),
        doc="how images are resized.",
    ),
    _recipe(
        name="color", choices=COLORS, meant_by=("mode", "grayscale", "channels"),
        short="Channels; ycgco420: 1.5 bytes a pixel",
        help="rgb: three channels. gray: one. ycgco420: full brightness and a quarter of the color, 1.5 bytes a pixel, "
        "read as rgb (memmap and hdf5).",
        default="rgb; gray for gray arrays; as in the store for stores", tried=("Color", "rgb"),
        parse=one_of(*COLORS), initial="rgb", annotation=_literal(COLORS),
        doc='"ycgco420" stores RGB as planes of YCgCo: memmap and hdf5 only.',
    ),
    _recipe(
        name="depth", choices=DEPTHS, meant_by=("bits", "bit_depth"), short="Bits of a value: 8 or 16",
        help="Bits of a value. 8: images of more are stored with their upper 8 bits. 16: the values of 16-bit PNG and "
        "TIFF files are stored as they are, as uint16 (memmap and hdf5, without zstd).",
        default="8; as in the store for stores", off="8", stored=str, initial="8", annotation="Literal[8, 16]",
        parse=lambda name, value: one_of(*DEPTHS)(name, as_text(value)),
        doc="bits of a value: 16 stores the values of 16-bit PNG and TIFF files as uint16, in memmap and hdf5; 8, the "
        "default, stores their upper 8 bits.",
    ),
    _recipe(
        name="max_pixels", least=1, short="Reject images of more pixels",
        help="Reject images whose header declares more pixels than this.",
        default="178000000", kept=None, parse=at_least_1, initial=178_000_000, stored=int, annotation="int",
        doc="images with more are rejected.",
    ),
    _of_format(
        name="format", flags=("-f", "--format"), choices=("memmap", "hdf5", "lmdb"),
        meant_by=("backend", "write_mode"),
        short="memmap and hdf5: raw pixels; lmdb: JPEG",
        help="memmap: raw pixels in .npy files. hdf5: raw pixels in HDF5, as fast to read. lmdb: JPEG in LMDB, the "
        "smallest.",
        default="memmap", tried=("Format", "all"), annotation="str",
        doc='"memmap" (the default of `pack`), "hdf5", "lmdb", or one that an installed package adds.',
    ),
    _of_format(
        name="quality", metavar="1-100|keep", meant_by=("jpeg_quality", "encode_quality"),
        short="JPEG quality in lmdb; keep: files as they are",
        help="JPEG quality in lmdb stores. keep: with --size keep, store JPEG files as they are.",
        default="90; keep for the JPEG files of a store", kept="keep where possible, else as in the store, else 90",
        tried=("JPEG quality of lmdb", "75, 90, 95"), of_some_formats=True, follows=True, stored=int,
        parse=lambda name, value: parse_quality(name, as_text(value)), initial="90", annotation='int | Literal["keep"]',
        doc='of JPEG, 1 to 100; "keep", with size="keep", stores JPEG files unchanged: lmdb only.',
    ),
    _of_format(
        name="check", choices=CHECKS,
        short="How to check JPEG files stored as they are",
        help="How to check JPEG files that are stored as they are. structure: finds truncated files without decoding "
        "them, but hardly any damage inside the compressed data. decode: also finds what a decoder notices, which is "
        "not all.",
        default="structure", kept=None, follows=True, parse=one_of(*CHECKS), annotation=_literal(CHECKS),
        doc='of unchanged JPEG files, "structure", which finds truncated ones, or "decode", which finds more but '
        "takes longer: lmdb only.",
    ),
    _of_format(
        name="subsampling", metavar="420|422|440|444", short="Of chroma in lmdb: 420, 422, 440 or 444",
        help="Chroma subsampling in lmdb stores.",
        default="420", of_some_formats=True, follows=True, stored=str, annotation=_literal(SUBSAMPLINGS),
        parse=lambda name, value: one_of(*SUBSAMPLINGS)(name, as_text(value).replace(":", "")), initial=SUBSAMPLINGS[0],
        doc="of chroma: lmdb only.",
    ),
    _of_format(
        name="jpeg_tables", choices=JPEG_TABLES,
        short="How lmdb encodes JPEG: jpegli or standard",
        help="How JPEG in lmdb stores is encoded. jpegli: with jpegli's quantization tables and optimized codes. "
        "standard: with the standard's, in 15 to 30% more bytes at the same PSNR.",
        default="jpegli; standard with --subsampling 440", tried=("Quantization tables of lmdb", "jpegli"),
        of_some_formats=True, off="standard", stored=str, parse=one_of(*JPEG_TABLES), initial=JPEG_TABLES[0],
        annotation=_literal(JPEG_TABLES),
        doc='how JPEG files are encoded: "jpegli" takes fewer bytes for the same loss than "standard", which is the '
        'default for subsampling="440" only. lmdb only.',
    ),
    _of_format(
        name="compression", choices=("none", "gzip", "zstd"), meant_by=("gzip", "compress", "zstd"),
        short="none, zstd (memmap) or gzip (hdf5)",
        help="Lossless compression: zstd in memmap stores, about half the bytes of pictures and a tenth of those of "
        "masks; gzip in hdf5 stores.",
        default="none", tried=("Compression of memmap and hdf5", "none, zstd"), of_some_formats=True, off="none",
        stored=str, annotation="str", parse=lambda name, value: as_text(value),
        doc='"none", "zstd" (memmap only) or "gzip" (hdf5 only), unless an added format has others.',
    ),
    _of_format(
        name="chunk", least=1, help="Images per chunk in hdf5 stores.", default="1", of_some_formats=True, follows=True,
        stored=int, parse=at_least_1, annotation="int", doc="images per chunk: hdf5 only.",
    ),
    _of_format(
        name="shard_size", metavar="BYTES", meant_by=("size_limit", "max_shard_size", "chunk_bytes", "maxsize"),
        short="About how many bytes of raw pixels in a shard",
        help="About how many bytes of raw pixels a shard contains, such as 1GB; it has at least 64 samples.",
        default="256MiB", stored=int, parse=lambda name, value: parse_bytes(name, as_text(value)), initial="256MiB",
        annotation="int | str", doc='bytes of raw pixels in a shard, about: 1 << 30 or "1GiB".',
    ),
    _recipe(
        name="fast", is_flag=True,
        short="Decode large JPEGs at a reduced scale",
        help="Decode large JPEGs at a reduced scale: faster, with slightly different pixels.", kept=None,
        initial=False, annotation="bool", doc="decode large JPEGs at a reduced scale, with slightly other pixels.",
    ),
    _recipe(
        name="curate", is_flag=True, meant_by=("dedupe", "dedup", "phash"),
        short="Find duplicates, blurred and dark images",
        help="Measure each image (the first, if a sample has several), so that `rawpack inspect --html` shows near "
        "duplicates, and blurred, dark and blank images: fields phash, sharpness, brightness, entropy and one_color.",
        kept=None,
        initial=False, annotation="bool",
        doc="add fields by which near duplicates, blurred, dark and blank images are found, of several images by the "
        "first.",
    ),
)  # fmt: skip
"""What is done to an image before it is stored."""

KINDS = (
    "archive", "arrays", "coco", "cvat", "folder", "hdf5", "labelme", "lerobot", "listing", "litdata", "lmdb", "mds",
    "parquet", "recordio", "store", "tfrecord", "video", "voc", "webdataset", "yolo",
)  # fmt: skip
"""The kinds of sources, without those that other packages add: `sources.KINDS` has their rows."""

SOURCE: tuple[Option, ...] = (
    _source(
        name="kind", flags=("--source",), metavar="KIND", meant_by=("type", "input_format"),
        short="What SRC is: folder, coco, video, ...",
        help=f"What SRC is: {', '.join(KINDS)}, or a kind from a plugin. With folder, train/ and val/ count as "
        "classes, and tables and other annotations next to the images are left out.",
        default="detected from SRC", annotation="str",
        doc='of a path: "folder", "listing", "video", ..., or one that an installed package adds; None detects it. '
        '"folder" takes `train` and `val` as classes and leaves out tables and other annotations.',
    ),
    _source(
        name="skip_unreadable", is_flag=True, meant_by=("ignore_errors", "skip_errors"),
        short="Leave out what cannot be read below SRC",
        help="Leave out folders and files below SRC that cannot be read. They are listed as rejects, and the exit code "
        "is 1.",
        default="stop before anything is written", annotation="bool",
        doc="pack what can be read of a folder, an archive or WebDataset shards. The rest is rejected as "
        '"not_scanned", and counted in the summary as `unread`. Otherwise it is a PackError, with nothing written.',
    ),
    _source(
        name="limit", least=1,
        meant_by=(
            "n", "num_samples", "max_samples", "max_images", "max_num", "head", "first", "take", "sample", "subset",
            "fraction", "share",
        ),
        short="At most N samples, evenly spaced over SRC",
        help="Pack at most N samples, evenly spaced over SRC, to try something out.", default="all", annotation="int",
        doc="at most this many samples, evenly spaced over the source.",
    ),
    _source(
        name="fields", flags=("--field",), multiple=True, metavar="NAME[:DTYPE]", meant_by=("dtype", "features"),
        short="Type of a column, or a further field",
        help="The type of a column of a listing or Parquet file, if its values do not tell: score:float32, "
        "vector:float32[4], name:str, seg:mask; for boxes boxes:xyxy, boxes:xywh or boxes:yolo. HDF5 and .npz too: "
        "seg:mask for a mask, pose:array for an array that has the image's height and width and is no image. "
        "WebDataset: a member, or a JSON entry, to store as a field: txt, json.width, caption=txt:str. VOC and "
        "COCO masks: SegmentationClass:mask; semantic:mask, instances:mask. target:image is another image of "
        "the sample, flow:flow and near:disparity are images of distances in pixels. May be repeated.",
        annotation="Mapping[str, Declared] | Sequence[str]",
        doc="of a listing, a table or a dataset, what fields are, where their first value does not show it: "
        '"float32", "float32[?,5]" for arrays that differ in length, "str", "str[?]" for lists of texts; '
        '"image" for a further image of the sample, "flow" or "disparity" for one whose values are distances in '
        'pixels, "mask" for labels of its pixels, "array" for what has its height '
        'and width and is no image; "xyxy", "xywh" or "yolo" for boxes; or (dtype, shape). HDF5 and files of '
        'arrays: "image", "flow", "disparity", "mask" and "array". WebDataset: the members to store as fields: ["txt", '
        '"width=json.width"]. LMDB: "boxes=txt:yolo", keys whose values are float64 rows of boxes.',
    ),
    _source(
        name="key_pattern", metavar="PATTERN",
        short="Fields in paths: {person}/{label}_{n:d}.jpg",
        help="Fields in the paths of images or videos: S{subject:03d}A{label:03d}.avi, "
        "{person}/{label}_{n:d}.jpg. {name} is a text, {name:d} a whole number, {name:f} a float, {} not "
        "stored; texts of label are classes.",
        annotation="str",
        doc='fields in the paths of a folder, an archive, a listing or videos, as "{person}/{label}_{n:d}.jpg".',
    ),
    _of_table(
        name="path_column", flags=("--path",), metavar="COLUMN",
        short="Column of paths, or how columns make them",
        help="The column of paths of a listing, or how columns make them: {id}_{start:06d}.mp4; {}.jpg by the first.",
        default="path, file_name, filename, filepath or file", annotation="str",
        doc='of a listing, the column of paths, or how columns make them, "{id}_{start:06d}.mp4".',
    ),
    _of_table(
        name="key_column", metavar="COLUMN",
        short="Column that names samples",
        help="The column that names the samples in a listing, Parquet, HDF5 or .npz file.",
        default="the paths", annotation="str", doc="of a listing, Parquet, HDF5 or `.npz` file, the column of keys.",
    ),
    _of_files(
        name="images", is_path=True, multiple=True, metavar="DIR|NAME=DIR|NAME=PATTERN",
        short="Folder of the images, or of further images",
        help="Folder that relative paths in a listing or in COCO's JSON start from [default: the file's own]; for "
        "YOLO's text files, the folder of the images. For a folder of images, target=clean/: the file "
        "clean/a/001.png is the further image target of SRC/a/001.jpg; may be repeated. target='*_clean.png': the file "
        "SRC/a/001_clean.png next to it, which then is no sample.",
        annotation="str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | Sequence[str]",
        doc='of a listing, the folder that relative paths start from. For a folder, {"target": "clean/"}: folders '
        "with a further image for each, a file of the same path but for its extension; or patterns such as "
        '"*_clean.png", in which * stands for the name of the image next to it.',
    ),
    _source(
        name="classes", is_path=True, metavar="FILE", meant_by=("class_names", "class_file"),
        short="Class names, one per line",
        help="Class names, one per line, in the order of their numbers, for class folders, a listing, YOLO's files, "
        "WebDataset, RecordIO or HDF5. For labels, lines may begin with numbers from 0 or 1, as UCF101's do.",
        default="for folders, a listing and WebDataset, the sorted names among the labels",
        annotation="Sequence[str] | os.PathLike[str]",
        doc="of class folders, a listing, YOLO's files, WebDataset, RecordIO or HDF5, a file of class names; of a "
        "dataset, names of the labels.",
    ),
    _of_shards(
        name="prefix", choices=("names", "numbers"),
        short="Put the shard's name or number before keys",
        help="Put the name of its WebDataset shard, or the shard's number from 0, and / in front of each key, for "
        "shards that share keys.",
        default="no prefix", annotation='Literal["names", "numbers"]',
        doc='of WebDataset, put the name or the number of its shard before each key, as "a-000/".',
    ),
    _of_files(
        name="labels_file", is_path=True, metavar="FILE",
        short="Table or list of the classes of images",
        help="Classes of the images of a folder or archive: a table with a column of the images' names and one of "
        "classes, such as Kaggle's, also one in the archive; ImageNet's development kit; or a text file with a class "
        "per line, in the order of the images' names.",
        annotation="str | os.PathLike[str]",
        doc="of a folder or an archive, the path of a table of names and classes, such as Kaggle's, of ImageNet's "
        "development kit, or of a list.",
    ),
    _of_files(
        name="label_depth", least=1, metavar="N", meant_by=("class_depth",),
        short="How deep the class folders are",
        help="How deep below SRC the folders are that are classes, of images or videos: 1 for SRC/cat/0.jpg, 2 for "
        "SRC/animals/cat/0.jpg.",
        default="1; deeper where a single folder contains several", annotation="int",
        doc="of a folder, an archive or videos, how deep below the source the class folders are: 2 takes `cat` of "
        "`animals/cat/0.jpg`.",
    ),
    _of_boxes(
        name="labels_dir", is_path=True, metavar="DIR",
        short="Folder of YOLO's text files",
        help="The folder of YOLO's text files, with the same subfolders as that of the images.",
        annotation="str | os.PathLike[str]", doc="of images, the folder of YOLO's text files.",
    ),
    _of_arrays(
        name="array", multiple=True, metavar="NAME=ARRAY,...",
        short="Arrays to pack: image=train/x,label=train/y",
        help="Arrays to pack from an HDF5 or .npz file, as NAME=ARRAY: image=train/x,label=train/y. :chw after "
        "the images' name (image=train/x:chw), or alone, also for .npy, says that channels come first and moves them "
        "to the end; :hwc keeps the axes as they are. LMDB: image=jpg:HEIGHTxWIDTH, keys whose values are pixels.",
        default="all arrays, where the names or shapes tell", annotation="str | Sequence[str] | Mapping[str, str]",
        doc='of HDF5 and `.npz` files, which arrays are packed: {"image": "train/x", "label": "train/y"}. For these '
        'and `.npy`, ":chw" after the images\' name, or alone, says that their channels come first and moves them to '
        'the end; ":hwc" keeps the axes as they are.',
    ),
    _of_table(
        name="image_column", metavar="COLUMN",
        short="Column of images, if there are several",
        help="The column of images of a Parquet, HDF5 or .npz file that has several.",
        annotation="str", doc="of Parquet, HDF5 and `.npz` files, the column of images.",
    ),
    _of_table(
        name="label_column", metavar="COLUMN",
        short="Column of labels; texts in it are classes",
        help="The column of labels, stored as label, of a listing, Parquet, HDF5 or .npz file, or of --labels-file. "
        "Texts in it are classes.",
        default="label, or the only one with classes", annotation="str",
        doc="of a listing, Parquet, HDF5 or `.npz` file, of `labels_file` or a dataset, the column of labels.",
    ),
    _of_table(
        name="columns", metavar="NAME,...",
        short="Columns of a Parquet file that become fields",
        help="The columns of a Parquet file that become fields, besides image and label.", default="all that can",
        annotation="str | Sequence[str]", doc="of Parquet files, those that become fields.",
    ),
    _source(
        name="episodes", metavar="N,N:M,...", meant_by=("episode", "episode_index"),
        short="Episodes of LeRobot: 0:50, or 0,3,10:20",
        help="The episodes of a LeRobot dataset to pack: 0:50, or 0,3,10:20. The last one of a range is left out.",
        default="all", annotation="str | Sequence[int]",
        doc='of LeRobot, the episodes to pack: "0:50" or a list of numbers.',
    ),
    _video(
        name="fps", metavar="N", short="Frames per second to take",
        help="Frames per second to take, such as 2 or 29.97.", default="all",
        annotation="float | str", doc="of videos, frames per second to take.",
    ),
    _video(
        name="frame_step", least=1, help="Take every Nth frame.", default="1", annotation="int",
        doc="of videos, every Nth frame is taken.",
    ),
    _video(
        name="start", metavar="TIME", short="Take frames from this time on: 90 or 0:01:30",
        help="Take frames from this time on: 90, 1.5 or 0:01:30.",
        annotation="float | str", doc="of videos, the time of the first frame, in seconds or as 0:01:30.",
    ),
    _video(
        name="end", metavar="TIME", help="Take frames before this time.", annotation="float | str",
        doc="of videos, the time before which frames are taken.",
    ),
    _video(
        name="max_frames", least=1, help="Take at most N frames of each video.", annotation="int",
        doc="of each video, at most this many frames.",
    ),
    Option(
        name="image", group="source", heading="", help="",
        annotation='Literal["chw", "hwc"] | tuple[str, tuple[int | None, ...]]',
        doc='of a dataset whose images are arrays, "chw" where their channels come first, which moves them to the '
        'end, or "hwc" to keep the axes; or dtype and shape, with None where sizes differ: ("uint8", (None, None, 3)).',
    ),
    Option(
        name="keys", group="source", heading="", help="", annotation="Sequence[str]",
        doc="of a dataset, a key for each sample, instead of its number.",
    ),
    Option(
        name="names", group="source", heading="", help="", annotation="Sequence[str] | Mapping[str, str | int]",
        doc="of a dataset, what the values of samples that are tuples are called; two are (image, label). Or a dict, "
        'name -> what samples or columns call it, or its position in a tuple: {"image": "img", "label": "fine_label"}.',
    ),
)  # fmt: skip
"""What a source is, and what is taken of it: which kind takes which, `sources.KINDS` says. Those without a heading are
of datasets in memory."""

RUN: tuple[Option, ...] = (
    _run(
        name="workers", flags=("-j", "--workers"), least=0,
        meant_by=("jobs", "num_workers", "n_jobs", "nproc", "processes", "num_processes", "threads", "num_threads",
                  "num_proc", "cpus", "parallel"),
        short="Worker processes; 0: pack in this process",
        help="Worker processes; 0 packs in this process. With --engine local only.", default="one per CPU",
        annotation="int",
        doc="processes, which get a dataset by cloudpickle; 0 packs in this process; None starts one for each CPU.",
    ),
    _run(
        name="engine", choices=("local", "dask", "ray"),
        short="Where to pack: here, or on a cluster",
        help="Where to pack: on this machine or on a cluster, whose workers must see SRC and DST at the same paths.",
        default="local", annotation="Engine | Executor",
        doc='what packs instead of local workers: `rawpack_packer.engines.DaskEngine("tcp://...")`, '
        '`RayEngine("auto")`, or any `concurrent.futures.Executor`, which stays yours to shut down.',
    ),
    _run(
        name="address", metavar="ADDRESS",
        short="Address of the cluster, as tcp://host:8786",
        help="Address of the cluster: tcp://host:8786 of a Dask scheduler; auto, host:6379 or ray://host:10001 for "
        "Ray.", annotation="", doc="",
    ),
    _run(
        name="engine_timeout", most_seconds=10_000_000, metavar="SECONDS",
        short="How long to wait for the cluster",
        help="How long to wait for the cluster to answer, and then for a worker to take a part.",
        default="20", annotation="", doc="",
    ),
    _run(
        name="max_rejects", metavar="SHARE|N", meant_by=("max_errors", "tolerance"),
        short="How many samples may be unreadable",
        help="How many unreadable samples to tolerate: a share such as 1% or 0.01, or a number. "
        "An unreadable video counts by its share of the files or bytes.",
        default="1%", annotation="float | str",
        doc='the largest share of samples that may be rejected, or from 1 on their number; also "1%". Default: 0.01.',
    ),
    _run(
        name="strict", is_flag=True, meant_by=("fail_fast",), short="Stop at a reject, and at a possible mistake",
        help="Stop at the first sample that cannot be packed, and at anything that may be a mistake.",
        annotation="bool",
        doc="stop at the first sample that cannot be packed, and at anything that may be a mistake.",
    ),
    _run(
        name="restart", is_flag=True, meant_by=("overwrite", "force"),
        short="Delete what an earlier run left, start over",
        help="Delete what an earlier run left in DST and start over.", annotation="bool",
        doc="delete what an earlier run left and begin again. The store itself stays if an append did not finish.",
    ),
    Option(
        name="progress", group="run", heading="", help="", annotation="Progress | bool",
        doc="True shows a bar, or lines where nobody watches; None or False shows nothing. Or an object that is "
        "called as the job advances, see `rawpack_packer.job.Progress`.",
    ),
)  # fmt: skip
"""How a job runs. None of it changes a byte of the store."""

OPTIONS: dict[str, Option] = {one.name: one for one in (*RECIPE, *SOURCE, *RUN)}

WRITER_GROUP = "rawpack.writers"
"""A group of entry points."""


@cache
def format_names() -> tuple[str, ...]:
    """The formats that can be written, with those of other packages; none is loaded."""
    from importlib.metadata import entry_points

    others = (entry.name for entry in entry_points(group=WRITER_GROUP))
    return tuple(dict.fromkeys((*OPTIONS["format"].choices, *others)))
