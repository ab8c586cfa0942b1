"""Stops where a folder of images also holds what describes them: packed as a folder, the images would lose it.

That is so for

- a table (`beside.TABLES`) in a folder that holds images, in one above it up to the source, or in a class folder
  without images;
- a file such as `a.json`, `a.xml` or `a.txt` next to the image `a.jpg`, or in another folder whose files are named as
  the images;
- COCO's JSON anywhere; and where there are no class folders, any other .json or .xml that names an image, and a .txt
  that lists images with labels;
- a folder such as `masks`, whose images are named as those of a folder next to it: it is no class.

Whoever names the kind of the source, as by `--source folder`, packs the images alone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer.sources.base import SourceInfo
from rawpack_packer.sources.beside import PICKLES, Beside, Located
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.folder_part import FolderPart
from rawpack_packer.text import listed, plain

Head = Callable[[bytes, int], bytes]
"""The first bytes of a file, by its path below the source; b"" where it cannot be read."""
_HEAD = 1 << 18
_MOST_HITS = 1000
_MOST_TRIED = 200
_MOST_LISTS = 16
"""Files with names of images, of which none need be here: each look goes through all names."""
_MOST_MASKS = 4
_MOST_COMMANDS = 4
_MOST_SHOWN = 3
_NO_BOXES = ("captions_", "panoptic_", "image_info_")
"""How the names of those of COCO's JSON files begin that have no boxes."""
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"\\]{1,400})"')
_NAMED = re.compile(rb"""[^\s"'<>,;/\\]{1,250}\.(?:jpe?g|png|webp|bmp|tiff?|gif)\b""", re.IGNORECASE)
_COCO = (
    (re.compile(rb'"images"\s*:\s*\['), b'"file_name"'),
    (re.compile(rb'"annotations"\s*:\s*\['), b'"image_id"'),
    (re.compile(rb'"categories"\s*:\s*\['), b'"supercategory"'),
)
_MASKS = re.compile(r"(annotation|depth|ground_?truth|gt|label|mask|segmentation|segmentationclass|trimap)s?", re.I)
"""Names of folders of images that belong to other images."""
_OF_MASK = re.compile(rb"[_-](mask|label|gt|seg|depth)s?$", re.IGNORECASE)
"""Ends of the names of such images, without the extension."""
_YOLO = re.compile(rb"\s*\d+(\s+-?\d*\.?\d+([eE]-?\d+)?){4,}\s*")
_DST = re.compile(r"`rawpack pack ((?:[^`])*?) DST`")


class AnnotatedError(UsageError):
    """What describes the images is next to them, and the kind of the source was not given."""

    def asked(self, destination: str, other: Sequence[str] = ()) -> AnnotatedError:
        """The same error, where more is known of what the user asked for: see `DividedError`."""
        verb, end = (other[1], list(other[3:])) if other else ("pack", [destination])
        tail = plain("".join(f" {shlex.quote(one)}" for one in end))
        return AnnotatedError(_DST.sub(lambda found: f"`rawpack {verb} {found[1]}{tail}`", str(self)))


def refuse_annotations(
    path: str | os.PathLike[str], beside: Beside, part: FolderPart, info: SourceInfo, head: Head
) -> None:
    """Raise AnnotatedError where a folder, or an archive of one, also holds what describes its images.

    path: of the source, as the user wrote it. beside, part, info: what the scan found.
    """
    takes_labels = info.kind == "archive" and not info.classes
    shown_path = shown(os.fspath(path)) if is_url(path) else os.fspath(path)  # a URL without its password
    seen = _Seen(shown_path, beside, info.kind, head, _ImageNames(part).locate, takes_labels)
    filled = {part.folders[k] for k in np.unique(part.folder_of).tolist()}
    empty = set(info.empty_classes)
    tables = [one for one in beside.tables if _is_relevant(_folder_of(one), filled, empty)]
    classes = len(info.classes or ()) - len(empty)
    found = (
        _coco(seen)
        or _tables(seen, [*tables, *beside.above])
        or _pairs(seen)
        or _apart(seen)
        or _singles(seen, labeled=classes > 1)
        or _masks(seen, part, info.classes or ())
    )
    if found:
        raise AnnotatedError(found)


def refuse_above(path: str | os.PathLike[str], splits: Sequence[str]) -> None:
    """Raise AnnotatedError where a folder that is divided into splits holds, next to them, what describes their images.

    Looks at the entries of the folder, and of the folders in it that are no splits.
    """
    root, beside = os.fspath(path), Beside()
    folders = [""]
    for folder in folders:
        try:
            with os.scandir(os.path.join(root, folder)) as entries:  # noqa: PTH118
                for entry, _ in zip(entries, range(_MOST_TRIED * 10), strict=False):
                    name = entry.name
                    if name.startswith("."):
                        continue
                    if entry.is_dir():
                        folders += [] if folder or name in splits else [name]
                    elif entry.is_file():
                        beside.add(os.fsencode(name), os.path.splitext(name)[1].lower(), entry.stat().st_size)  # noqa: PTH122
        except OSError:
            continue  # the scan of the splits reports why, if it matters
        beside.end(os.fsencode(os.path.join(folder, "")) if folder else b"", ())  # noqa: PTH118

    def locate(name: str, stem: bool) -> str | None:
        return _located_on_disk(root, ["", *splits, *folders[1:]], name, stem)

    seen = _Seen(root, beside, "folder", lambda one, size: _head_on_disk(root, one, size), locate)
    if found := _coco(seen) or _tables(seen, beside.tables):
        raise AnnotatedError(found)


def refuse_tables(path: str | os.PathLike[str]) -> None:
    """Raise AnnotatedError where the Parquet files of a folder have no images, and the images are files below it."""
    from rawpack_packer.sources.parquet.columns import holds_images

    folder, where = Path(path), plain(os.fspath(path))
    tables = sorted(one for one in folder.glob("*.parquet"))
    if not tables or holds_images(folder) is not False:
        return
    of_folder = next((one for one in tables if (folder / one.stem).is_dir()), None)
    if of_folder is None:
        seen = _Seen(os.fspath(path), Beside(), "folder", lambda one, size: b"", lambda name, stem: None)
        if _holds_image(os.fspath(path)):
            raise AnnotatedError(_tables(seen, [os.fsencode(one.name) for one in tables]))
        return
    tar = f'for d in {shlex.quote(os.fspath(path))}/*/; do tar --sort=name -cf "${{d%/}}.tar" -C "$d" .; done'
    pattern = os.path.join(os.fspath(path), "*.tar")  # noqa: PTH118
    raise AnnotatedError(
        f"{where} holds {plain(of_folder.name)} and the folder {plain(of_folder.stem)}, as img2dataset writes files "
        f"with their captions: `{plain(tar)}` makes WebDataset shards of them, and "
        f"{command('--source', 'webdataset', '--field', 'caption=txt:str', pattern)} packs images with captions; "
        "--source folder packs the images alone"
    )


def _holds_image(path: str) -> bool:
    from rawpack_packer.sources.folder import first_image

    return bool(first_image(Path(path)).samples)


@dataclass(frozen=True)
class _Seen:
    """What there is to judge, and how it is named."""

    path: str
    """As the user wrote it, and as commands name it."""
    beside: Beside
    kind: str
    head: Head
    locate: Located
    takes_labels: bool = False
    """Whether it is an archive without class folders, for which there is an option of labels."""

    @property
    def where(self) -> str:
        return plain(self.path)

    @property
    def in_archive(self) -> bool:
        return self.kind == "archive"

    @property
    def alone(self) -> str:
        return f"; --source {self.kind} packs the images alone"

    @property
    def unpacked(self) -> str:
        """The folder that commands name: that of an archive after it has been unpacked."""
        return "FOLDER" if self.in_archive else self.path

    def below(self, path: bytes) -> str:
        """A path below the source, as a command names it."""
        return os.path.join(self.unpacked, os.fsdecode(path))  # noqa: PTH118 - as the user wrote it

    @property
    def first(self) -> str:
        return "unpack it into a FOLDER, and " if self.in_archive else ""


class _ImageNames:
    """Finds images by their names, in the memory that a scan has anyway."""

    def __init__(self, part: FolderPart) -> None:
        self._part = part

    def locate(self, name: str, stem: bool) -> str | None:
        """See `Located`."""
        try:
            last = os.fsencode(name.rpartition("/")[2])
        except UnicodeEncodeError:  # half of a surrogate pair, from a table
            return None
        i = next(self.rows(last, stem), None)
        return None if i is None else text_of(self._part.path(i))

    def rows(self, name: bytes, stem: bool) -> Iterator[int]:
        """The images of this name, or with `stem` of this name without the extension: the first thousand or so."""
        part, at = self._part, -1
        wanted = name + b"." if stem else name
        for _ in range(_MOST_HITS if name else 0):
            at = part.names.find(wanted, at + 1)
            if at < 0:
                return
            i = int(np.searchsorted(part.ends, at))
            found = part.names[at : int(part.ends[i + 1])] if int(part.ends[i]) == at else b""
            if found and (found.rpartition(b".")[0] if stem else found) == name:
                yield i


def command(*words: str) -> str:
    """A command that packs a path, as messages have it."""
    return f"`{plain(shlex.join(['rawpack', 'pack', *words]))} DST`"


def _coco(seen: _Seen) -> str:
    files = [one for one in seen.beside.singles if one.lower().endswith(b".json")][:_MOST_TRIED]
    heads = {one: seen.head(one, _HEAD) for one in files}
    found = [one for one in files if any(key.search(heads[one]) and word in heads[one] for key, word in _COCO)]
    if not found:
        return ""
    with_boxes = [one for one in found if not text_of(one).rpartition("/")[2].startswith(_NO_BOXES)]
    here = {one: _coco_command(seen, one, heads[one]) for one in with_boxes}
    commands = [one for one in here.values() if one] or [command(seen.below(one)) for one in with_boxes]
    names = listed([text_of(one) for one in found], _MOST_SHOWN)
    it = "COCO's JSON" if len(found) == 1 else "COCO's JSON files"
    if not commands:
        return (
            f"{seen.where} holds {it} {names}, without boxes, and a folder is packed without it: rawpack reads no "
            "captions or panoptic masks of COCO; write captions into a listing, a .csv with the columns path and "
            f"caption{seen.alone}"
        )
    return (
        f"{seen.where} holds {it} {names}, and a folder is packed without boxes: {seen.first}"
        f"{' or '.join(commands[:_MOST_COMMANDS])} packs images with their boxes{seen.alone}"
    )


def _coco_command(seen: _Seen, file: bytes, head: bytes) -> str:
    """The command that packs a COCO file; "" where it names no image of the source."""
    named = _FILE_NAME.search(head)
    name = text_of(named[1]) if named else ""
    image = seen.locate(name, False) if name else None
    if image is None:
        return ""
    from rawpack_packer.sources.listing.coco import folder_of_images

    if not seen.in_archive:
        path = Path(seen.below(file))
        if (folder_of_images(path, name) / name).is_file():
            return command(seen.below(file))
    if not image.endswith(name):
        return ""
    return command("--images", seen.below(os.fsencode(image.removesuffix(name).rstrip("/"))), seen.below(file))


def _tables(seen: _Seen, tables: Sequence[bytes]) -> str:
    if not tables:
        return ""
    first, more = tables[0], len(tables) - 1
    name = plain(text_of(first)) + (f" and {more:,} more" if more else "")
    what = f"the table {name}" if not more else f"the tables {name}"
    what = f"{seen.where} holds {what} next to its images, and a folder is packed without {'them' if more else 'it'}"
    # Here, as these import `folder`, which imports this.
    from rawpack_packer.sources.listing.metadata import lists_files
    from rawpack_packer.sources.listing.table_beside import table_command

    if not seen.in_archive and lists_files(Path(seen.below(first))):
        return f"{what}: {command(os.path.dirname(seen.below(first)) or '.')} takes its columns{seen.alone}"  # noqa: PTH120
    if seen.in_archive and text_of(first).rpartition("/")[2].startswith("metadata."):
        return f"{what}: {seen.first}{command(os.path.dirname(seen.below(first)))} takes its columns{seen.alone}"  # noqa: PTH120
    if first.lower().endswith(b".parquet"):
        return (
            f"{what}: {seen.first}save it as .csv, or name it metadata.parquet and its column of paths file_name"
            f"{seen.alone}"
        )
    options, columns = table_command(first, seen.head(first, _HEAD), seen.unpacked, seen.locate)
    label = "" if "label" in columns else " (a column of classes must be called label)"
    labels = ", or --labels FILE gives each image its class, by lines of NAME CLASS" if seen.takes_labels else ""
    fields = f"{command(*options, seen.below(first))} packs its columns as fields"
    return f"{what}: {seen.first}{fields}{label}{labels}{seen.alone}"


def _pairs(seen: _Seen) -> str:
    if not seen.beside.pairs:
        return ""
    suffix = min(seen.beside.pairs, key=lambda one: (one in PICKLES, one))
    file, image = seen.beside.pairs[suffix]
    others = [one for one in seen.beside.pairs if one != suffix]
    what = f"{seen.where} holds {plain(text_of(file))} for the image {plain(text_of(image))}"
    what += f" (also {listed(others, 5)})" if others else ""
    what += ", and a folder is packed without such files"
    return f"{what}: {_cure(seen, suffix, _member(file, suffix), seen.head(file, _HEAD))}{seen.alone}"


def _member(file: bytes, suffix: str) -> str:
    """How `--field` names such files as members of WebDataset shards: "json:str", "json=jpg.json:str" of a.jpg.json."""
    member, name = text_of(file).rpartition("/")[2].partition(".")[2].lower(), suffix[1:]
    named = member if member == name else f"{name}={member}"
    return named if suffix == ".npy" else f"{named}:str"


def _cure(seen: _Seen, suffix: str, member: str, head: bytes) -> str:
    """What to do with one file for each image. member: see `_member`."""
    if seen.in_archive:
        if suffix in PICKLES:
            return (
                "a pickle can run code when it is read, so rawpack never reads it: write its values as .json, and "
                f"{command('--source', 'webdataset', '--field', 'json:str', seen.path)} packs them"
            )
        field = "label=cls" if suffix == ".cls" else member
        if re.search(r"\.zip\b", seen.path, re.IGNORECASE):
            return f"write it as a tar, and {command('--source', 'webdataset', '--field', field, 'x.tar')} packs them"
        told = command("--source", "webdataset", "--field", field, seen.path)
        return f"{told} packs them as a field, if each is next to its image in the archive (tar --sort=name)"
    if suffix == ".txt" and head.strip() and all(map(_YOLO.fullmatch, head.strip().splitlines()[:-1] or [head])):
        return f"{command('--source', 'yolo', seen.path)} packs them as YOLO's boxes"
    if suffix == ".xml" and b"<annotation" in head:
        images, xml = seen.below(b"JPEGImages"), seen.below(b"Annotations")
        return (
            f"move the images into {plain(images)} and the .xml files into {plain(xml)}, and {command(seen.path)} "
            "packs Pascal VOC's boxes"
        )
    if suffix in PICKLES:
        return "a pickle can run code when it is read: read it in Python, and pass the samples to rawpack_packer.pack"
    labelme = suffix == ".json" and b'"shapes"' in head and b'"imagePath"' in head
    boxes = " (labelme's; as COCO's JSON, its boxes are boxes)" if labelme else ""
    tar = shlex.join(["tar", "--sort=name", "-cf", "shards.tar", "-C", seen.path, "."])
    options = ("--source", "webdataset", *(() if suffix == ".cls" else ("--field", member)), "shards.tar")
    return f"`{plain(tar)}` and then {command(*options)} packs them as a field{boxes}"


def _apart(seen: _Seen) -> str:
    for (folder, suffix), names in seen.beside.apart.items():
        images = list[str]()
        for number, name in enumerate(names):
            if number == 2 and not images:
                break
            stem = text_of(name.rpartition(b".")[0])
            images += [one for one in (seen.locate(stem, True) or seen.locate(stem, False),) if one]
        if len(images) < 2 or 2 * len(images) < len(names):
            continue
        holds, beside = seen.below(folder.rstrip(b"/")), images[0].rpartition("/")[0]
        what = (
            f"{plain(holds)} holds {suffix} files that are named as the images in {plain(beside) or 'the folder'}, and "
            "a folder is packed without them"
        )
        head = seen.head(folder + names[0], _HEAD)
        cure = "write what they say into a listing, a .csv with a column path"
        if suffix == ".xml" and b"<annotation" in head:
            cure = (
                "name the folder of images JPEGImages and that of the .xml files Annotations, and "
                f"{command(seen.unpacked)} packs Pascal VOC's boxes"
            )
        elif suffix == ".txt" and all(map(_YOLO.fullmatch, head.strip().splitlines()[:-1] or [head])):
            options = ("--source", "yolo", "--images", seen.below(os.fsencode(beside)), "--labels", holds)
            cure = f"{command(*options, seen.unpacked)} packs them as YOLO's boxes"
        return f"{what}: {seen.first}{cure}{seen.alone}"
    return ""


def _singles(seen: _Seen, *, labeled: bool) -> str:
    """labeled: whether folders give the images classes: then CVAT's files count only."""
    tried = 0
    for file in seen.beside.singles[:_MOST_TRIED]:
        head = seen.head(file, _HEAD)
        of_cvat = b"<annotations" in head and b"<image " in head
        if labeled and not of_cvat:
            continue
        words = [text_of(found[0]) for found, _ in zip(_NAMED.finditer(head), range(_MOST_SHOWN), strict=False)]
        tried += bool(words)
        if tried > _MOST_LISTS:
            break
        if not any(seen.locate(word, False) for word in words):
            continue
        what = f"{seen.where} holds {plain(text_of(file))}, which names its images, and a folder is packed without it"
        if not file.endswith(b".txt"):
            cure = "make it COCO's JSON, or a listing, a .csv with a column path"
            if of_cvat:
                cure = "export it from CVAT again, as COCO or YOLO, and pack that"
            return f"{what}: {cure}{seen.alone}"
        line = text_of(head.lstrip().partition(b"\n")[0]).strip()
        path, _, label = line.partition("\t") if "\t" in line else line.partition(" ")
        image = seen.locate(path, False)
        if image is None or not label.strip():
            continue
        given = os.path.join(os.path.dirname(text_of(file)), path) == image  # noqa: PTH118, PTH120
        folder = seen.below(os.fsencode(image.removesuffix(path).rstrip("/")))
        options = () if given or not image.endswith(path) else ("--images", folder)
        return f"{what}: {seen.first}{command(*options, seen.below(file))} packs its labels{seen.alone}"
    return ""


def _masks(seen: _Seen, part: FolderPart, classes: Sequence[str]) -> str:
    for name in (one for one in classes if _MASKS.fullmatch(one)):
        inside = {k for k, folder in enumerate(part.folders) if folder.startswith(os.fsencode(name) + b"/")}
        images, pairs = _ImageNames(part), list[tuple[int, int]]()
        some = np.flatnonzero(np.isin(part.folder_of, list(inside)))[:_MOST_MASKS].tolist()
        for i in some:
            stem = part.path(i).rpartition(b"/")[2].rpartition(b".")[0]
            rows = (k for last in {stem, _OF_MASK.sub(b"", stem)} for k in images.rows(last, True))
            pairs += [(i, k) for k in islice((k for k in rows if part.folder_of[k] not in inside), 1)]
        if some and 2 * len(pairs) >= len(some):
            mask, image = (plain(text_of(part.path(k))) for k in pairs[0])
            return (
                f"{seen.where} holds {mask} for the image {image}, and a folder is packed with {plain(name)} as a "
                f"class: {seen.first}write a listing, a .csv with the columns path and mask, and "
                f"{command('--field', 'mask:mask', 'LIST.csv')} packs images with their masks; --source {seen.kind} "
                "packs all folders as classes"
            )
    return ""


def _is_relevant(folder: bytes, filled: set[bytes], empty: set[str]) -> bool:
    """Whether a table in this folder may be about the images: see the top of this module."""
    if any(one.startswith(folder) for one in filled):
        return True
    return text_of(folder.partition(b"/")[0]) in empty


def _folder_of(path: bytes) -> bytes:
    return path[: path.rfind(b"/") + 1]


def _located_on_disk(root: str, folders: Sequence[str], name: str, stem: bool) -> str | None:
    for folder in folders:
        for end in (".jpg", ".jpeg", ".png", ".JPEG", ".JPG", ".PNG", ".webp", ".tif", ".bmp") if stem else ("",):
            relative = os.path.join(folder, name + end)  # noqa: PTH118
            if "\0" not in name and name and os.path.isfile(os.path.join(root, relative)):  # noqa: PTH113, PTH118
                return relative
    return None


def _head_on_disk(root: str, path: bytes, size: int) -> bytes:
    try:
        with open(os.path.join(os.fsencode(root), path), "rb") as file:  # noqa: PTH118
            return file.read(size)
    except OSError:
        return b""
