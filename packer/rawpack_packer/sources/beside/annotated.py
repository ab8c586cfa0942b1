"""Stops where a folder of images also holds what describes them: packed as a folder, the images would lose it.

That is so for

- a table (`beside.TABLES`) in a folder that holds images, in one above it up to the source, or in a class folder
  without images;
- a file such as `a.json`, `a.xml` or `a.txt` next to the image `a.jpg`, or in another folder whose files are named as
  the images;
- COCO's JSON anywhere; and where there are no class folders, any other .json or .xml that names an image, and a .txt
  that lists images with labels;
- a folder such as `masks` or `trainannot`, whose images are named as those of a folder next to it: it is no class;
- files named as the images in a folder next to the source, or in that of its name next to the container that it is
  in, as `labels/train` is for `images/train`; COCO's JSON next to the source that lists its images; and a table there
  that has classes of them.

A command that is printed packs what it says as it is typed, or fails; it loses no labels that the folders give without
saying so. Where the columns of a table are not clear, none is printed.

Whoever names the kind of the source, as by `--source folder`, packs the images alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer.options import opt
from rawpack_packer.sources.beside import (
    ENDS,
    NEVER,
    NO_PICKLES,
    PICKLES,
    TABLES,
    AnnotatedError,
    Beside,
    ImageNames,
    ImagesOnDisk,
    Seen,
    command,
    folder_of,
    is_container,
    is_of_camera,
)
from rawpack_packer.sources.beside.tables import labels_cure, list_cure, refuse_listed
from rawpack_packer.sources.beside.twins import FIRST, MASKS, SECOND, refuse_twins
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.inflation import readable
from rawpack_packer.sources.look.listing import HEAD, Listing
from rawpack_packer.sources.pairs import ending
from rawpack_packer.text import count, listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.folder_scan import FolderScan
    from rawpack_packer.sources.table.table import Table

_FILES_PAGE = "see docs/how-to/pack-annotated-folders.md#one-file-for-each-image"
_TABLE_PAGE = "see docs/how-to/pack-annotated-folders.md#a-table-of-labels"
_LISTING = "see docs/how-to/pack-a-listing.md"
_COCO_PAGE = "see docs/how-to/pack-detection-datasets.md#coco-annotationsinstances_val2017json"
_VOC = "see docs/how-to/pack-detection-datasets.md#pascal-voc-vocdevkitvoc2012"
_YOLO_PAGE = "see docs/how-to/pack-detection-datasets.md#any-folder-of-images-and-folder-of-text-files"
_MOST_SHOWN = 3
_MOST_TRIED, _MOST_LISTED = 200, 2000
_MOST_NAMED, _FEW = 100_000, 3
_MOST_ASKED, _MOST_SIBLINGS, _MOST_OF_TABLE = 8, 64, 1 << 28
_ARRAYS = re.compile(
    rb"MATLAB 5\.0|\x89HDF\r\n|\x80[\x02-\x05][^\x00]|PK\x03\x04.{26}[^\x00]{0,200}(\.npy|/data\.pkl)", re.DOTALL
)
"""How files of arrays begin, of which only their readers know how many rows they have."""
_CHECKSUMS = re.compile(rb"\\?[0-9a-fA-F]{32,128} [ *]\S|(MD5|SHA\d+) \(")
"""How the files of md5sum and the like begin."""
_PROGRAM = re.compile(rb"(^|/)(make|docker)file$|\.(py|ipynb|sh|bash|bat|ps1|m|r|js|css|html?|tex|bib)$")
"""Suffixes of programs, pages and references: their lines are no rows, and where they name images, that is a line."""
_MOST_LISTS = 16
"""Files with names of images, of which none need be here: each look goes through all names."""
_CAPTIONS, _WITH_BOXES = "captions_", "instances_"
_NO_BOXES = (_CAPTIONS, "panoptic_", "image_info_")
"""How the names of those of COCO's JSON files begin that have no boxes."""
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"\\]{1,400})"')
_NAMED = re.compile(rb"""[^\s"'<>,;/\\]{1,250}\.(?:jpe?g|png|webp|bmp|tiff?|gif)\b""", re.IGNORECASE)
_COCO = (
    (re.compile(rb'"images"\s*:\s*\['), b'"file_name"'),
    (re.compile(rb'"annotations"\s*:\s*\['), b'"image_id"'),
    (re.compile(rb'"categories"\s*:\s*\['), b'"supercategory"'),
)
_YOLO = re.compile(rb"\s*\d+(\s+-?\d*\.?\d+([eE]-?\d+)?){4,}\s*")
_MOST_MASKS = 4


class OtherKindError(UsageError):
    """A folder that looks like one of images is of another kind, by what is next to them."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{plain(path)} is of kind {kind}: {opt.kind(kind)}")
        self.kind = kind


def refuse_annotations(path: str | os.PathLike[str], scan: FolderScan, table: Table) -> Table:
    """Raise AnnotatedError where a folder, or an archive of one, also holds what describes its images; OtherKindError
    where there is a kind of source that reads it. Returns the table with a line for what is packed nevertheless.

    path: of the source, as the user wrote it. scan: which the table is of.
    """
    beside, inside, info = scan.beside, scan.inside, table.info
    part: FolderFiles = table.rows.images
    path = shown(os.fspath(path)) if is_url(path) else os.fspath(path)  # without its password
    numbers, counts = np.unique(part.folder_of, return_counts=True)
    filled = {part.folders[k]: n for k, n in zip(numbers.tolist(), counts.tolist(), strict=True)}
    empty, classes = info.empty_classes, info.classes or ()
    labeled = len(classes) - len(empty) > 1
    seen = Seen(path, beside, info.kind, ImageNames(part, scan.head), filled, labeled, scan.depth)
    _refuse_coco(seen)
    folders = {folder_of(file) for file in beside.tables}
    folders = {one for one in folders if any(name.startswith(one) for name in filled) or _top(one) in empty}
    refuse_listed(seen, [*(file for file in beside.tables if folder_of(file) in folders), *beside.above])
    _refuse_pairs(seen)
    _refuse_apart(seen)
    _refuse_singles(seen)
    if inside:  # its folders are judged as those of the source are
        part = replace(part, folders=tuple(folder.removeprefix(inside) for folder in part.folders))
        filled = {folder.removeprefix(inside): n for folder, n in filled.items()}
        seen = msgspec.structs.replace(
            seen, path=seen.folder(inside), images=ImageNames(part, scan.head), filled=filled
        )
    lost = len(seen.lines)
    refuse_twins(seen, part)
    if not seen.in_archive and not is_url(path):
        _refuse_around(seen, part)
    masks = {name: _first_files(part, name) for name in classes if MASKS.fullmatch(name)}
    _refuse_masks(seen, masks, {_top(folder) for folder in filled})
    _refuse_look_alikes(seen, part)
    lines = tuple(f"{line}; {opt.kind(info.kind)} keeps it so" for line in seen.lines)
    doubts = (*info.doubts, *lines[lost:])  # of images, all of which are packed
    problems = (*info.problems, *lines[:lost])
    return table.but(info=replace(info, problems=problems, doubts=doubts, left_out=lines[:lost]))


def refuse_above(path: str | os.PathLike[str], splits: Sequence[str]) -> None:
    """Raise AnnotatedError where a folder that is divided into splits holds, next to them, what describes their images.

    Looks at the entries of the folder, and of the folders in it that are not splits.
    """
    root, beside, held = Listing.of(path), Beside(), dict[str, list[bytes]]()
    others = [name for name, is_dir in islice(root.names.items(), _MOST_LISTED) if is_dir and name not in splits]
    for folder in ("", *others):
        listing, below = (root / folder, f"{folder}/") if folder else (root, "")
        for name in [name for name, is_dir in islice(listing.names.items(), _MOST_LISTED) if not is_dir]:
            if folder and name.lower().endswith(ENDS):
                held.setdefault(folder, []).append(os.fsencode(below + name))
            with suppress(OSError):
                beside.add(os.fsencode(name), os.path.splitext(name)[1].lower(), os.path.getsize(listing.path / name))  # noqa: PTH122, PTH202
        beside.end(os.fsencode(below), ())
    seen = Seen(os.fspath(path), beside, "folder", ImagesOnDisk(root, ["", *splits, *others]))
    masks = {folder: sorted(files)[:_MOST_MASKS] for folder, files in held.items() if MASKS.fullmatch(folder)}
    _refuse_coco(seen)
    refuse_listed(seen, beside.tables)
    _refuse_masks(seen, masks, splits)
    filled, labeled = dict[bytes, int](), any(True in (root / split).names.values() for split in splits)
    with suppress(OSError, ValueError):  # who opens the split says so
        for split in splits:
            images = [name for name, _ in (root / split).all_names() if name.lower().endswith(ENDS)]
            filled[os.fsencode(f"{split}/")] = len(images)
    _refuse_singles(msgspec.structs.replace(seen, filled=filled, labeled=labeled))


def refuse_tables(listing: Listing) -> None:
    """Raise AnnotatedError where the Parquet files of a folder have no images, and the images are files below it."""
    # Here, as the folder of images imports this.
    from rawpack_packer.sources.folder import holds_image
    from rawpack_packer.sources.parquet import holds_images

    tables = sorted(os.fsencode(name) for name in listing.names if name.endswith(".parquet"))
    if tables and holds_images(listing) is False and holds_image(listing):
        seen = Seen(os.fspath(listing), Beside(), "folder", ImagesOnDisk(listing, [""]))
        refuse_listed(seen, tables)


def coco_splits(root: Listing) -> dict[str, tuple[Path, Path]]:
    """Name of a folder of images -> COCO's JSON, which lists them with boxes, and the folder. Files are looked for in
    the folder of all and in those in it; of several that list the same images, names decide."""
    from rawpack_packer.sources.detection.coco import MOST_LOOKED_FOR, folder_of_images

    folders = [root, *(root / name for name, is_dir in sorted(root.names.items())[:_MOST_TRIED] if is_dir)]
    every = [folder / name for folder in folders for name in sorted(folder.names) if name.lower().endswith(".json")]
    splits = dict[str, tuple[Path, Path]]()
    for file in sorted(every[:_MOST_TRIED], key=lambda one: not one.path.name.startswith(_WITH_BOXES)):
        names = [text_of(named[1]) for named in islice(_FILE_NAME.finditer(file.head), MOST_LOOKED_FOR)]
        if names and _is_coco(file.head) and not file.path.name.startswith(_NO_BOXES):
            folder = folder_of_images(file.path, names)
            if folder != root.path and any((folder / name).is_file() for name in names):
                splits.setdefault(folder.name, (file.path, folder))
    return splits


def command_of_coco(path: str) -> str:
    """What packs COCO's splits in a folder, or those whose JSON files are in it, and what it does; "" where there are
    none."""
    from rawpack_packer.sources.folder import split_order

    splits = sorted(coco_splits(Listing(path)), key=split_order)
    return f"{command('--splits', ','.join(splits), path)} packs COCO's images with their boxes" if splits else ""


def _is_coco(head: bytes) -> bool:
    return any(key.search(head) and word in head for key, word in _COCO)


def _refuse_coco(seen: Seen) -> None:
    from rawpack_packer.sources.folder import split_order

    files = [file for file in seen.beside.singles if file.lower().endswith(b".json")][:_MOST_TRIED]
    names = {file: text_of(file).rpartition("/")[2] for file in files if _is_coco(seen.images.head(file))}
    if not names:
        return
    with_boxes = [file for file, name in names.items() if not name.startswith(_NO_BOXES)]
    splits = [] if seen.in_archive or not with_boxes else sorted(coco_splits(Listing(seen.path)), key=split_order)
    read = with_boxes or [file for file, name in names.items() if name.startswith(_CAPTIONS)]
    commands = [(file, packs) for file in read if (packs := _coco_command(seen, file))]
    cure = _COCO_PAGE if read else "rawpack reads COCO's boxes and captions, and no panoptic masks"
    if len(splits) > 1:
        cure = f"{command('--splits', ','.join(splits), seen.path)} packs images with their boxes"
    elif commands:
        which = f" of {plain(text_of(commands[0][0]))}" if len(names) > 1 else ""
        cure = f"{commands[0][1]} packs images with their {'boxes' if with_boxes else 'captions'}{which}"
    what = f"COCO's JSON{' files' * (len(names) > 1)} {listed([*map(text_of, names)], _MOST_SHOWN)}"
    lost = f"packing the folder would ignore {'them' if len(names) > 1 else 'it'}"
    raise seen.error(what, seen.unpacked(cure), lost)


def _coco_command(seen: Seen, file: bytes) -> str:
    """The command that packs a COCO file; "" where it names no image of the source."""
    from rawpack_packer.sources.detection.coco import folder_of_images

    named = _FILE_NAME.search(seen.images.head(file))
    name = text_of(named[1]) if named else ""
    image = next(seen.images.paths(name, False), "")
    path = Path(seen.below(file))
    if image and not seen.in_archive and (folder_of_images(path, [name]) / name).is_file():
        return command(seen.below(file))
    return command("--images", seen.folder(image.removesuffix(name)), seen.below(file)) if image.endswith(name) else ""


def _format_of(suffix: str, head: bytes) -> str:
    """The format of a file that describes one image, by its beginning: "yolo", "voc", "pickle", "labelme", or ""."""
    if suffix in PICKLES:
        return "pickle"
    if suffix == ".txt" and head.strip() and all(map(_YOLO.fullmatch, head.strip().splitlines()[:-1] or [head])):
        return "yolo"
    if suffix == ".xml" and b"<annotation" in head:
        return "voc"
    return "labelme" if suffix == ".json" and b'"shapes"' in head and b'"imagePath"' in head else ""


def _refuse_pairs(seen: Seen) -> None:
    """Raise AnnotatedError, or OtherKindError, for files that are named as images next to them, and may be their
    labels. Others are a line: they are few, or the folders give the images classes."""
    formats = dict[str, str]()
    for suffix, (file, image) in seen.beside.pairs.items():
        head, (named, files) = seen.images.head(file), seen.beside.named[suffix]
        if is_of_camera(head):
            continue
        form, least = _format_of(suffix, head), min(files, sum(seen.filled.values()))
        if named >= min(_FEW, least) and 2 * named >= least and (form or not seen.labeled):
            formats[suffix] = form
            continue
        example = f"{plain(text_of(file))} for {plain(text_of(image))}"
        files_named = f"{count(named, f'{suffix} file')} with the name of an image"
        seen.lines.append(f"{files_named}, left out: {example}; {_FILES_PAGE}")
    if not formats:
        return
    if formats == {".json": "labelme"} and not seen.in_archive and not seen.labeled:
        raise OtherKindError(seen.path, "labelme")
    suffix = min(formats, key=lambda suffix: (suffix in PICKLES, suffix))
    (file, image), form = seen.beside.pairs[suffix], formats[suffix]
    others = [other for other in formats if other != suffix]
    what = f"{plain(text_of(file))} for the image {plain(text_of(image))}"
    what += f" (also {listed(others, 5)})" if others else ""
    cure = {"pickle": NO_PICKLES, "voc": _VOC, "yolo": _YOLO_PAGE}.get(form, _FILES_PAGE)
    if seen.in_archive and form != "pickle":
        cure = "see docs/how-to/pack-webdataset.md#fields"
    elif form == "labelme" or (form == "yolo" and _is_usual_yolo(Path(seen.path), text_of(file), text_of(image))):
        packs = "them as YOLO's boxes" if form == "yolo" else "labelme's boxes and polygons"
        packs += "; that loses the folders' classes" if seen.labeled else ""
        cure = f"{command('--source', form, seen.path)} packs {packs}"
    raise seen.error(what, cure, "packing the folder would ignore such files")


def _is_usual_yolo(root: Path, file: str, image: str) -> bool:
    """Whether a folder that is packed as YOLO's takes the boxes of an image from this file, and from no other."""
    from rawpack_packer.sources.detection.yolo import label_files

    return label_files(root, image) == [file]


def _refuse_apart(seen: Seen) -> None:
    """Raise AnnotatedError for files in another folder that are named as the images; where the folders give these
    classes, it is a line."""
    for (folder, suffix), names in seen.beside.apart.items():
        images = list[str]()
        for number, name in enumerate(names):
            if number == 2 and not images:
                break
            stem = text_of(name.rpartition(b".")[0])
            images += islice(chain(seen.images.paths(stem, True), seen.images.paths(stem, False)), 1)
        if len(images) < 2 or 2 * len(images) < len(names):
            continue
        head = seen.images.head(folder + names[0])
        if is_of_camera(head):
            continue
        beside, form = images[0].rpartition("/")[0], _format_of(suffix, head)
        if seen.labeled and not form:
            seen.lines.append(f"{suffix} files with the names of images, left out: {plain(text_of(folder + names[0]))}")
            continue
        cure = _LISTING
        if form == "voc":
            folders = [folder for folder, suffix in seen.beside.apart if suffix == ".xml"]
            roots = [folder.removesuffix(b"Annotations/") for folder in folders if folder.endswith(b"Annotations/")]
            roots = [root for root in roots if any(name.startswith(root + b"JPEGImages/") for name in seen.filled)]
            cure = f"{command(seen.folder(roots[0]))} packs Pascal VOC's boxes" if roots else _VOC
        elif form == "yolo":
            options = ("--source", "yolo", "--images", seen.below(beside), "--labels-dir", seen.folder(folder))
            cure = f"{command(*options, seen.path)} packs them as YOLO's boxes" if len(seen.filled) == 1 else _YOLO_PAGE
        what = f"{suffix} files that are named as the images in {plain(beside) or 'the folder'}, such as "
        what += plain(text_of(folder + names[0]))
        raise seen.error(what, seen.unpacked(cure), "packing the folder would ignore them")


def _refuse_around(seen: Seen, part: FolderFiles) -> None:
    """Raise AnnotatedError where what describes the images is not in the folder, but next to it."""
    folder = Listing(os.path.abspath(seen.path))  # noqa: PTH100 - a link keeps the folders that its path names
    images = [part.key(i) for i in range(min(_MOST_ASKED, len(part)))]
    for inner in (folder, folder.above) if is_container(folder.above.path.name) else (folder,):
        top, below = inner.above, folder.path.relative_to(inner.path)
        siblings = [name for name, is_dir in top.names.items() if is_dir and name != inner.path.name]
        for place in [Path(name, below) for name in siblings] if len(siblings) <= _MOST_SIBLINGS else ():
            if not (top / os.fspath(place)).is_dir or top.holds(os.fspath(place / images[0])):  # a copy of the images
                continue
            for suffix in (".txt", ".xml", ".json"):
                names = {image: (f"{os.path.splitext(image)[0]}{suffix}", f"{image}{suffix}") for image in images}  # noqa: PTH122
                found = {os.fspath(place / name): image for image in images for name in names[image]}
                found = {file: image for file, image in found.items() if (top / file).is_file}
                if not found or 2 * len({*found.values()}) < len(images):
                    continue
                head = next((head for file in found if (head := (top / file).head).strip()), b"")
                form = _format_of(suffix, head)
                if form or not (seen.labeled or is_of_camera(head)):
                    file, image = next(iter(found.items()))
                    image = os.fspath(folder.path.relative_to(top.path) / image)
                    cure = {"voc": _VOC, "yolo": _YOLO_PAGE}.get(form, _LISTING)
                    as_usual = form == "voc" and file.startswith("Annotations/") and image.startswith("JPEGImages/")
                    if as_usual or (form == "yolo" and _is_usual_yolo(top.path, file, image)):
                        cure = f"{command(_written(seen, top.path))} packs the images with them"
                    raise _around_error(seen, top.path / file, "is named as an image", "such files", cure)
        if not seen.labeled and len(siblings) < _MOST_LISTS:  # each of which is listed
            coco, images_of = coco_splits(top).get(folder.path.name, (None, None))
            if coco is not None and images_of == folder.path:
                cure = f"{command(_written(seen, coco))} packs images with their boxes"
                raise _around_error(seen, coco, "lists the images", "it", cure)
    tables = [] if seen.labeled else sorted(name for name, is_dir in folder.above.names.items() if not is_dir)
    tables = [name for name in tables if name.lower().endswith((*TABLES,)) and (folder.above / name).is_file]
    for table in [folder.above.path / name for name in tables[:_MOST_LISTS]]:
        # One with a single class may be a template of what is to be predicted.
        cure = labels_cure(seen, _written(seen, table), 2) if table.stat().st_size <= _MOST_OF_TABLE else ""
        if cure:
            raise _around_error(seen, table, "has labels of the images", "them", cure)


def _around_error(seen: Seen, file: Path, does: str, lost: str, cure: str) -> AnnotatedError:
    return AnnotatedError(
        f"{plain(_written(seen, file))} {does} in {plain(seen.path)}, and packing this folder alone would ignore "
        f"{lost}: {cure}; {opt.kind(seen.kind)} packs the images alone"
    )


def _written(seen: Seen, path: Path) -> str:
    """A path near the source, as the user wrote that one."""
    return os.path.normpath(Path(seen.path, os.path.relpath(path, os.path.abspath(seen.path))))  # noqa: PTH100


def _refuse_singles(seen: Seen) -> None:
    """Raise AnnotatedError for a list or a file of arrays that may have the labels of all images. Where folders give
    the images classes, it is a line, except for CVAT's."""
    tried, images, lists = 0, sum(seen.filled.values()), list[str]()
    for file in seen.beside.singles[:_MOST_TRIED]:
        head, name = readable(seen.images.head(file)), plain(text_of(file))
        if _CHECKSUMS.match(head):
            continue
        labeled = seen.labeled or bool(_PROGRAM.search(file.lower()) or head.startswith(b"#!"))
        of_cvat = b"<annotations" in head and b"<image " in head
        words = [*dict.fromkeys(text_of(match[0]) for match in islice(_NAMED.finditer(head), _MOST_NAMED))]
        tried += bool(words)
        if tried > _MOST_LISTS:
            break
        image = next((image for word in words[:_MOST_SHOWN] for image in seen.images.paths(word, False)), None)
        cure, what = "", f"{name}, which names its images"
        if image is None:
            rows = _rows(file, head)
            if labeled:
                lists += [name] if seen.labeled and rows == images >= _FEW else []
            elif rows is None or rows == images >= _FEW:
                what = f"{name}, which may have a row for each image" if rows else f"the array file {name}"
                cure = _TABLE_PAGE
        elif of_cvat:
            holds, beside = os.fsencode(image).rpartition(b"/")[0], folder_of(file)
            options = [] if holds in (beside[:-1], beside + b"images") else ["--images", seen.below(holds)]
            cure = f"{command(*options, seen.below(file))} packs CVAT's boxes and polygons"
        elif len(words) >= min(_MOST_NAMED, images / 2):
            if labeled:
                lists.append(name)
                continue
            cure = list_cure(seen, file) or _LISTING
        if cure:
            raise seen.error(what, seen.unpacked(cure))
    if lists:
        what = count(len(lists), "file")
        seen.lines.append(f"{what} that may describe the images, left out: {listed(lists, _MOST_SHOWN)}")


def _rows(file: bytes, head: bytes) -> int | None:
    """The rows of a list or a file of arrays, by its beginning; None for arrays of which only their reader knows it."""
    shape = re.search(rb"'shape': \((\d+)", head[:_MOST_LISTED]) if re.match(rb"\x93NUMPY|PK\x03\x04", head) else None
    if shape:
        return int(shape[1])
    if _ARRAYS.match(head):
        return None
    if len(head) >= HEAD or b"\0" in head or text_of(file).rpartition("/")[2].partition(".")[0].lower() in NEVER:
        return 0
    with suppress(ValueError, RecursionError):
        values = json.loads(head)
        return len(values) if isinstance(values, list | dict) else 0
    return sum(map(bool, map(bytes.strip, head.splitlines())))


def _top(folder: bytes) -> str:
    """The first-level folder that a folder is in; "" for the source itself."""
    return text_of(folder.partition(b"/")[0])


def _first_files(part: FolderFiles, name: str) -> list[bytes]:
    """The paths of some files of a first-level folder."""
    inside = [k for k, folder in enumerate(part.folders) if _top(folder) == name]
    return [part.path(i) for i in np.flatnonzero(np.isin(part.folder_of, inside))[:_MOST_MASKS].tolist()]


def _refuse_masks(seen: Seen, folders: Mapping[str, Sequence[bytes]], tops: Collection[str]) -> None:
    """Raise AnnotatedError for a folder whose images are named as those of another folder.

    folders: those that may hold masks by their names, with the paths of some files. tops: the first-level folders of
    images that count, such as splits; "" stands for images in none.
    """
    for name, masks in folders.items():
        match, pairs = MASKS.fullmatch(name), list[tuple[str, str]]()
        for mask in masks:
            stem = mask.rpartition(b"/")[2].rpartition(b".")[0]
            stems = dict.fromkeys([stem, stem[: len(stem) - len(ending(stem))]])
            for image in (image for one in stems for image in seen.images.paths(os.fsdecode(one), True)):
                top = image.partition("/")[0] if "/" in image else ""
                if match and top in tops and top != name and _may_have(match["of"], top, {name, *tops} - {""}):
                    pairs.append((text_of(mask), image))
                    break
        if pairs and 2 * len(pairs) >= len(masks):
            cure = "see docs/how-to/pack-a-listing.md#masks"
            if all(_same_below(*pair) for pair in pairs):
                depth = "depth" in name.lower()
                pack = _pair_command(seen, pairs[0][1], name, *(() if depth else ("--field", "mask:mask")))
                cure = f"{pack} packs images with their {'depths' if depth else 'masks'}"
            raise _partner_error(seen, pairs[0], name, cure)


def _partner_error(seen: Seen, pair: tuple[str, str], name: str, cure: str) -> AnnotatedError:
    """The error for a file that belongs to an image. pair: their paths. name: the first-level folder of the file."""
    what, cure = f"{plain(pair[0])} for the image {plain(pair[1])}", seen.unpacked(cure)
    if not seen.filled:
        return seen.error(what, cure, "packing the splits would ignore it")
    return seen.error(what, cure, f"{plain(name)} would be a class", "packs all folders as classes")


def _refuse_look_alikes(seen: Seen, part: FolderFiles) -> None:
    """Raise AnnotatedError for two folders, such as noisy and clean, or pics and pics_fg, whose images have the same
    names."""
    tops = sorted({_top(folder) for folder in seen.filled})
    if len(tops) != 2 or seen.in_archive:
        return
    held = {top: sum(n for name, n in seen.filled.items() if _top(name) == top) for top in tops}
    for first, second in (tops, tops[::-1]):
        files = [text_of(one) for one in _first_files(part, second)]
        stems = {one: one.rpartition("/")[2].rpartition(".")[0] for one in files}
        pairs = [(one, image) for one in files for image in seen.images.paths(stems[one], True) if image != one]
        pairs = [pair for pair in pairs if pair[1].startswith(f"{first}/") and _same_below(*pair)]
        # Classes may be numbered alike, and hardly ever are of another format each and called after one another.
        named = FIRST.fullmatch(first) and SECOND.fullmatch(second)
        ends = [{path.rpartition(".")[2].lower() for path in paths} for paths in zip(*pairs, strict=True)]
        other = held[first] == held[second] and second.startswith(first) and ends and not ends[0] & ends[1]
        if len(pairs) == len(files) > 0 and (named or other):
            cure = f"{_pair_command(seen, pairs[0][1], second)} packs images with their partners"
            raise _partner_error(seen, pairs[0], second, cure)


def _same_below(one: str, other: str) -> bool:
    """Whether two paths are the same below their first folders, but for their extensions."""
    below = [path.partition("/")[2].rpartition(".")[0] for path in (one, other)]
    return bool(below[0]) and below[0] == below[1]


def _pair_command(seen: Seen, image: str, folder: str, *options: str) -> str:
    """The command that packs the folder of an image with the files of another folder. options: besides `--images`."""
    name = "mask" if options else re.sub(r"\W", "_", folder.lower())
    return command("--images", f"{name}={seen.below(folder)}", *options, seen.below(image.partition("/")[0]))


def _may_have(masks_of: str | None, top: str, tops: Collection[str]) -> bool:
    """Whether the images of a folder may have their masks in `train_masks`: those of `train` and `train_images`, of a
    folder that holds images by its name, and of the only other one.

    Where files are numbered in each class, those of a class called shipping_labels have the names of all others.
    """
    if MASKS.fullmatch(top):
        return False
    if masks_of is None or len(tops) <= 2 or is_container(top):
        return True
    rest = top.lower().removeprefix(masks_of.lower())
    return rest == "" or (rest != top.lower() and is_container(rest.lstrip(" _-")))
