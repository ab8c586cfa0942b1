"""What to type for a source that no kind understands: one line says what was seen, and a few lines of Python, made of
what was seen, pack it."""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import AdvisedError
from rawpack_packer.options import opt
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.pickles import BadPickleError, read_pickle
from rawpack_packer.text import count, listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.folder import NoImageError
    from rawpack_packer.sources.hdf5.file import DataSet

_INSTEAD = {
    "archives of this kind are not read: unpack it first, then give its folder; tar and zip are":
        (".7z", ".rar", ".cab", ".iso", ".cpio", ".lz", ".lzma"),
    "an .idx lists what another file contains: give the .rec or .tar next to it":
        (".idx",),
    "an index.json lists it: give the folder that has both":
        (".mds",),
    "read it in Python, and pass the samples to rawpack.pack":
        (".beton", ".mat", ".bin"),
    "if it is a compressed tar archive, add {archive}; decompress it otherwise":
        (".gz", ".bz2", ".xz", ".zst"),
}  # fmt: skip
"""What to do with files that are not read -> their suffixes."""
_TRUST = "  # a pickle can run code: only if you trust it"
_LOADERS = {
    ".npy": ("numpy as np", "np.load(paths[i])"),
    ".npz": ("numpy as np", "np.load(paths[i])[{name!r}]"),
    ".pkl": ("pickle", "pickle.loads(paths[i].read_bytes())"),
    ".pickle": ("pickle", "pickle.loads(paths[i].read_bytes())"),
    ".pt": ("torch", "torch.load(paths[i], weights_only=True)"),
    ".h5": ("h5py", "h5py.File(paths[i])[{name!r}][()]"),
    ".dcm": ("pydicom", "pydicom.dcmread(paths[i]).pixel_array"),
    ".nii": ("nibabel, numpy as np", "np.asarray(nibabel.load(paths[i]).dataobj)"),
    ".exr": ("cv2", "cv2.imread(str(paths[i]), cv2.IMREAD_UNCHANGED)"),
}
"""Suffix of files that may be an image each -> what is imported, and how one is read."""
_BETON = {0: "'<f8'", 1: "'<i8'", 2: "[('raw', '?'), ('w', '<u2'), ('h', '<u2'), ('at', '<u8')]"}
"""FFCV's number of a kind of field -> how its metadata are written."""
_CIFAR = re.compile(r"cifar-(10|100)-(python|binary|batches-py|batches-bin)(\.tar\.gz)?")
_LIMIT = 1 << 26
"""Bytes of a file that are looked at."""
_LOOKED_AT = 100
_LABEL = re.compile(r"label|class|target|^y$", re.IGNORECASE)


def advised(seen: str, code: str) -> AdvisedError:
    """seen: one printable line. code: lines of Python."""
    lines = [f"    {line}".rstrip() for line in code.splitlines()]
    return AdvisedError("\n".join([f"{seen}. These lines of Python pack it:", "", *lines]))


def _class(seen: str, modules: str, before: str, count: str, item: str, more: str = ", workers=0") -> AdvisedError:
    """Lines with a class whose sample i is `item`."""
    return advised(
        seen,
        f"import {modules}, rawpack\n\n{before}\nclass Samples:\n    def __len__(self): return {count}\n"
        f"    def __getitem__(self, i): return {item}\nrawpack.pack(Samples(), 'store/'{more})",
    )


def refuse_file(file: Path, kinds: Collection[str]) -> None:
    """Raise UsageError for a file of no known kind. kinds: those that can be named."""
    from rawpack_packer.sources.listing.lines import SUFFIXES

    where, suffix = plain(os.fspath(file)), file.suffix.lower()
    _refuse_container(file)
    for instead, suffixes in _INSTEAD.items():
        if suffix in suffixes:
            raise UsageError(f"{where}: {instead.format(archive=opt.kind('archive'))}")
    raise UsageError(
        f"cannot tell what kind of source {where} is. A source is a folder of images or videos; a video; a "
        f"listing ({', '.join(sorted(SUFFIXES))}); COCO's .json; Ultralytics' .yaml; arrays (.npy, .npz, IDX, .h5); an "
        "LMDB; an archive (.tar, .zip, .tar.gz, .tar.bz2); Parquet; a .rec; TFRecord; or a store. If it is one, name "
        f"its kind: {opt.kind('|'.join(kinds))}"
    )


def of_cifar(path: Path) -> AdvisedError | None:
    """For a folder or archive of CIFAR-10 or CIFAR-100, or a split in it, which torchvision reads; None for others."""
    for whole in (path, path.parent):
        if match := _CIFAR.fullmatch(whole.name):
            data = f"CIFAR{match[1]}"
            return advised(
                f"{plain(os.fspath(whole))} is CIFAR-{match[1]}, which is read by torchvision and not by rawpack",
                f"import rawpack\nfrom torchvision.datasets import {data}\n\n"
                f"rawpack.pack({data}({os.fspath(whole.parent)!r}, train=True, download=True), 'store/', workers=0)",
            )
    return None


def refuse_folder(folder: Path, error: NoImageError) -> None:
    """Raise UsageError for a folder without images, if anything is known of what it holds."""
    from rawpack_packer.sources.array_files import ARRAYS, HDF5, files_in

    if cifar := of_cifar(folder):
        raise cifar
    suffixes, classes = error.suffixes, error.has_folders
    where = plain(os.fspath(folder))
    entries = list[Path]()
    with suppress(OSError):
        entries = sorted(folder.iterdir())[:_LOOKED_AT]
    for one in entries:
        inner = Listing(one)
        if files_in(inner, ARRAYS) or files_in(inner, HDF5):
            raise UsageError(f"no image in {where}: it contains a folder of arrays; give that: {plain(os.fspath(one))}")
    each = max((one for one in suffixes if one in _LOADERS), key=suffixes.__getitem__, default="")
    if classes or suffixes.get(each, 0) < 2:
        for one in entries:
            _refuse_container(one)
    if not each:
        for instead, ends in [*_INSTEAD.items()][:-1]:
            if {*ends} & {*suffixes}:
                if ".mds" in suffixes and (index := folder / "index.json").is_file():
                    instead = f"{plain(os.fspath(index))} is not MDS's, which has 'shards': copy that of these files"
                raise UsageError(f"no image in {where}: {error.what}; {instead}")
        return
    (modules, load), name = _LOADERS[each], _first_array(folder, each)
    label, named = (", 'label': paths[i].parent.name", "\nnames = sorted({path.parent.name for path in paths})")
    raise _class(
        f"no image in {where}: it contains {count(suffixes[each], 'file')} with {each}",
        f"pathlib, {modules}",
        f"paths = sorted(pathlib.Path({os.fspath(folder)!r}).rglob('*{each}'))" + named * classes,
        "len(paths)",
        f"{{'image': {load.format(name=name)}{label * classes}}}",
        ", classes=names" * classes + ", keys=[path.as_posix() for path in paths]",
    )


def _first_array(folder: Path, suffix: str) -> str:
    """The name of the array that may be the image, in the first of such files; "" where arrays have no names."""
    first = next(folder.rglob(f"*{suffix}"), folder)
    with suppress(OSError, ValueError, LookupError, StopIteration):
        if suffix == ".npz":
            with np.load(first) as arrays:
                return str(arrays.files[0])
        if suffix == ".h5":
            from rawpack_packer.sources.hdf5.file import LookAt

            with LookAt(first.absolute()) as look:
                return next(one.name for one in look.data_sets() if len(one.shape) > 1)
    return ""


def streamed(
    seen: str, package: str, how: str, images: Sequence[Any], labels: Sequence[Any], more: str
) -> AdvisedError:
    """Of a data set of MosaicML Streaming or of litdata, whose index says which columns these are. seen: why rawpack
    does not read it. how: it is opened. more: keywords of `pack`."""
    return advised(
        seen,
        f"import rawpack\nfrom {package} import StreamingDataset\n\n"
        f"data = StreamingDataset({how}){_TRUST}\n"
        f"rawpack.pack(data, 'store/'{_names(images, labels)}{more}, workers=0)",
    )


def _names(images: Sequence[Any], labels: Sequence[Any]) -> str:
    """The argument `names` for samples that have these images and whole numbers; "" where it is not needed."""
    pairs = {"image": images[:1], "label": _likely(labels)}
    names = {role: found[0] for role, found in pairs.items() if found}
    return f", names={names!r}" if names not in ({"image": "image", "label": "label"}, {"image": 0, "label": 1}) else ""


def _likely(labels: Sequence[Any]) -> list[Any]:
    """The most likely label, if there is any."""
    return sorted(labels, key=lambda name: not _LABEL.search(str(name)))[:1]


def _named(sample: Any) -> str:
    """The argument `names` for samples such as this one, a dict or a tuple."""
    from rawpack_packer.images import sniff

    values = sample if isinstance(sample, dict) else dict(enumerate(sample)) if isinstance(sample, tuple | list) else {}
    files = [name for name, value in values.items() if isinstance(value, bytes) and sniff(value)]
    arrays = [name for name, value in values.items() if np.ndim(value) > 1]
    return _names([*files, *arrays], [name for name, value in values.items() if type(value) is int]) if values else ""


def _refuse_container(file: Path) -> None:
    """Raise UsageError for a file of another tool that holds many images."""
    name, made = file.name.lower(), None
    try:
        if name.endswith(".beton"):
            made = _of_beton(file)
        elif name.endswith(".mat"):
            made = _of_mat(file)
        elif name.endswith((".pkl", ".pickle", ".joblib", ".pt", ".pth")):
            made = _of_pickle(file)
    except (OSError, ValueError, LookupError, struct.error, EOFError) as error:
        raise UsageError(
            f"{plain(os.fspath(file))} is damaged, or of another form than is known ({plain(str(error))}): read it in "
            "Python, and pass the samples to rawpack.pack"
        ) from error
    if made is not None:
        raise made


def _of_pickle(file: Path) -> AdvisedError:
    """Of a pickle: looked into without running it."""
    value, where, data, names = None, os.fspath(file), "data", ""
    with suppress(BadPickleError):
        value = read_pickle(file.read_bytes()) if file.stat().st_size <= _LIMIT else None
    library = {".pt": "torch", ".pth": "torch", ".joblib": "joblib"}.get(file.suffix.lower(), "pickle")
    load = {
        "torch": "torch.load({!r}, weights_only=True)",
        "joblib": f"joblib.load({{!r}}){_TRUST}",
        "pickle": f"pickle.loads(pathlib.Path({{!r}}).read_bytes()){_TRUST}",
    }[library]
    columns = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, tuple) else {}
    images = [name for name, one in columns.items() if np.ndim(one) > 1]
    labels = [name for name, one in columns.items() if np.ndim(one) == 1 and np.asarray(one).dtype.kind in "iu"]
    if images:
        label = "".join(f", 'label': data[{name!r}]" for name in _likely(labels))
        data = f"{{'image': data[{images[0]!r}]{label}}}"
    elif isinstance(value, list) and value:
        names = _named(value[0])
    holds = "" if value is None else f", and contains a {type(value).__name__}"
    return advised(
        f"{plain(where)} is a pickle, which can run code when it is read{holds}",
        f"import {'pathlib, ' * (library == 'pickle')}{library}, rawpack\n\ndata = {load.format(where)}\n"
        f"rawpack.pack({data}, 'store/'{names})",
    )


def _of_beton(file: Path) -> AdvisedError:
    """Of FFCV's file, by its header."""
    where = os.fspath(file)
    with file.open("rb") as opened:
        version, count, _, samples, table = struct.unpack("<HHIQQ", opened.read(24))
        heads = [opened.read(1041) for _ in range(count)]
    fields = {head[1:17].rstrip(b"\0").decode(): head[0] for head in heads}
    if version != 2 or 2 not in fields.values() or not {*fields.values()} <= {*_BETON}:
        raise ValueError(f"version {version}, with {len(fields)} fields")
    dtype = ", ".join(f"({name!r}, {_BETON[kind]})" for name, kind in fields.items())
    image = next(name for name, kind in fields.items() if kind == 2)
    others = "".join(f", {name!r}: rows[i][{name!r}]" for name, kind in fields.items() if kind != 2)
    return _class(
        f"{plain(where)} is FFCV's, and has {count(samples, 'sample')} with {plain(', '.join(fields))}",
        "numpy as np",
        f"file = np.memmap({where!r}, np.uint8, 'r')\n"
        f"rows = np.ndarray({samples}, np.dtype([{dtype}], align=True), file, {24 + 1041 * count})\n"
        f"sizes = {{int(at): int(size) for _, at, size in file[{table}:].view('<u8').reshape(-1, 3)}}\n"
        "def image(raw, w, h, at):\n    data = file[at : int(at) + sizes[int(at)]]\n"
        "    return data.reshape(h, w, 3) if raw else data.tobytes()",
        "len(rows)",
        f"{{'image': image(*rows[i][{image!r}]){others}}}",
    )


def _of_mat(file: Path) -> AdvisedError:
    """Of MATLAB's file, by the names and axes of its arrays; without SciPy, which reads older ones, as SVHN's."""
    where, shapes, load, whole = os.fspath(file), dict[str, tuple[int, ...]](), "loadmat({!r})", ""
    with file.open("rb") as opened:
        is_hdf5 = opened.read(10) == b"MATLAB 7.3"
    if is_hdf5:  # with all axes in reverse order
        from rawpack_packer.sources.hdf5.file import LookAt

        with LookAt(file.absolute()) as look:
            shapes, load, whole = {one.name: one.shape for one in look.data_sets()}, "h5py.File({!r})", "[()]"
    else:
        with suppress(ImportError):
            shapes = {name: shape for name, shape, _ in import_module("scipy.io").whosmat(where)}
    image = max(shapes, key=lambda name: len(shapes[name]), default="X")
    axes = len(shapes.get(image, (0,) * 4))
    count = shapes[image][0 if is_hdf5 else -1] if shapes else 0
    labels = _likely([name for name, shape in shapes.items() if name != image and math.prod(shape) == count])
    order = (0, *range(axes - 1, 0, -1)) if is_hdf5 else (axes - 1, *range(axes - 1))
    label = f", 'label': data[{(labels or ['y'])[0]!r}]{whole}.ravel().astype(int)" if labels or not shapes else ""
    return advised(
        f"{plain(where)} is MATLAB's" + "".join(f", {plain(name)} {shape}" for name, shape in [*shapes.items()][:8]),
        ("import h5py, rawpack\n" if is_hdf5 else "import rawpack\nfrom scipy.io import loadmat\n")
        + f"\ndata = {load.format(where)}\n"
        f"rawpack.pack({{'image': data[{image!r}]{whole}.transpose{order}{label}}}, 'store/')",
    )


def of_lmdb(path: str, seen: str, item: str, names: str = "", but: bytes = b"") -> AdvisedError:
    """For an LMDB. path: its folder, or the file. item: what `value`, that of a key, becomes. but: the end of keys that
    are no samples."""
    left_out = f" and not key.endswith({but!r})" if but else ""
    return _class(
        seen,
        "lmdb, numpy as np" if "np." in item else "lmdb, pickle",
        f"read = lmdb.open({path!r}, readonly=True, lock=False, subdir={os.path.isdir(path)}).begin()\n"  # noqa: PTH112
        f"keys = [key for key in read.cursor().iternext(values=False) if not key.startswith(b'__'){left_out}]",
        "len(keys)",
        item,
        f"{names}, keys=[key.decode() for key in keys], workers=0",
    )


def of_pickles(path: str, seen: str, value: Any) -> AdvisedError:
    """For an LMDB of pickles. value: of the first key; None where it must not be read."""
    return of_lmdb(path, seen, f"pickle.loads(read.get(keys[i])){_TRUST}", "" if value is None else _named(value))


def of_bytes(path: str, seen: str, value: bytes) -> AdvisedError:
    """For an LMDB of values that may be pixels. value: of the first key."""
    side = math.isqrt(len(value) // 3)
    shape = (side, side, 3) if side and side * side * 3 == len(value) else (len(value),)
    return of_lmdb(path, seen, f"np.frombuffer(read.get(keys[i]), np.uint8).reshape({shape})")


def of_numbers(path: str, end: str, values: Collection[bytes | None]) -> AdvisedError:
    """For an LMDB of image files with numbers beside them. end: of the keys of numbers. values: of these keys."""
    sizes = [len(value or b"") for value in values]
    dtype = {8: "float64", 4: "float32"}.get(math.gcd(8, *sizes), "uint8")
    beside = f"read.get(keys[i].rpartition(b'.')[0] + b'.{end}')"
    return of_lmdb(
        path,
        f"{plain(path)} has image files, and beside each a key .{end} whose value is no text, of {min(sizes):,} to "
        f"{max(sizes):,} bytes",
        f"{{'image': read.get(keys[i]), {end!r}: np.frombuffer({beside}, np.{dtype})}}",
        f", fields={{{end!r}: '{dtype}[?]'}}",
        f".{end}".encode(),
    )


def of_groups(path: str, data_sets: Collection[DataSet]) -> AdvisedError | None:
    """For an HDF5 file with a group for each sample; None for any other."""
    groups: dict[str, dict[str, DataSet]] = {}
    for one in data_sets:
        group, _, name = one.name.rpartition("/")
        groups.setdefault(group, {})[name] = one
    above, names = {group.rpartition("/")[0] for group in groups}, {tuple(one) for one in groups.values()}
    if len(groups) < 2 or "" in groups or len(above) > 1 or len(names) > 1:
        return None
    first, parent = next(iter(groups.values())), above.pop()
    every = {name: [one[name] for one in groups.values()] for name in first}
    images = [name for name, sets in every.items() if all(one.is_one_image or len(one.shape) > 1 for one in sets)]
    labels = _likely([name for name, one in first.items() if not one.shape and one.is_whole])
    fields = [f"'image': data[keys[i]][{name!r}][()]" for name in images[:1]]
    fields += [f"'label': int(data[keys[i]][{name!r}][()])" for name in labels]
    if not images:
        return None
    return _class(
        f"{plain(path)} has a group for each of {count(len(groups), 'sample')}, with {listed([*first], 8)}",
        "h5py",
        f"data = h5py.File({path!r}){f'[{parent!r}]' if parent else ''}\nkeys = sorted(data)",
        "len(keys)",
        f"{{{', '.join(fields)}}}",
        ", keys=keys, workers=0",
    )
