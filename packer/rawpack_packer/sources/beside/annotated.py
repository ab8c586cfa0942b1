"""Stops where a folder of images also holds what describes them: packed as a folder, the images would lose it.

That is so for

- a table (`beside.TABLES`) in a folder that holds images, in one above it up to the source, or in a class folder
  without images;
- a file such as `a.json`, `a.xml` or `a.txt` next to the image `a.jpg`, or in another folder whose files are named as
  the images;
- COCO's JSON anywhere; and where there are no class folders, any other .json or .xml that names an image, and a .txt
  that lists images with labels;
- a folder such as `masks` or `trainannot`, whose images are named as those of a folder next to it: it is no class;
- a single folder such as `images`, in which the classes are.

A command that is printed packs what it says as it is typed, or fails; it loses no labels that the folders give without
saying so. Where the columns of a table are not clear, none is printed.

Whoever names the kind of the source, as by `--source folder`, packs the images alone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import SourceInfo
from rawpack_packer.sources.beside import (
    ENDS,
    HEAD,
    MOST_COMMANDS,
    MOST_SHOWN,
    PICKLES,
    Beside,
    Head,
    ImageNames,
    ImagesOnDisk,
    Seen,
    command,
    folder_of,
)
from rawpack_packer.sources.beside.not_classes import container_as_class, masks_as_class, masks_of_splits
from rawpack_packer.sources.beside.tables import plain_list_cure, tables_beside
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.folder_part import FolderPart
from rawpack_packer.text import listed, plain

_MOST_TRIED = 200
_MOST_LISTS = 16
"""Files with names of images, of which none need be here: each look goes through all names."""
_NO_BOXES = ("captions_", "panoptic_", "image_info_")
"""How the names of those of COCO's JSON files begin that have no boxes."""
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"\\]{1,400})"')
_NAMED = re.compile(rb"""[^\s"'<>,;/\\]{1,250}\.(?:jpe?g|png|webp|bmp|tiff?|gif)\b""", re.IGNORECASE)
_COCO = (
    (re.compile(rb'"images"\s*:\s*\['), b'"file_name"'),
    (re.compile(rb'"annotations"\s*:\s*\['), b'"image_id"'),
    (re.compile(rb'"categories"\s*:\s*\['), b'"supercategory"'),
)
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
    path: str | os.PathLike[str], beside: Beside, part: FolderPart, info: SourceInfo, head: Head, packed: str = ""
) -> None:
    """Raise AnnotatedError where a folder, or an archive of one, also holds what describes its images.

    path: of the source, as the user wrote it. beside, part, info: what the scan found. packed: the folder in an archive
    that is packed, as a command names it.
    """
    takes_labels = info.kind == "archive" and not info.classes
    # URLs without their passwords.
    shown_path, packed = (shown(one) if is_url(one) else one for one in (os.fspath(path), packed))
    numbers, counts = np.unique(part.folder_of, return_counts=True)
    filled = {part.folders[k]: n for k, n in zip(numbers.tolist(), counts.tolist(), strict=True)}
    empty = set(info.empty_classes)
    labeled = len(info.classes or ()) - len(empty) > 1
    seen = Seen(shown_path, beside, info.kind, ImageNames(part, head), takes_labels, filled, labeled=labeled)
    tables = [one for one in beside.tables if _is_relevant(folder_of(one), filled, empty)]
    found = (
        _coco(seen)
        or tables_beside(seen, [*tables, *beside.above])
        or _pairs(seen)
        or _apart(seen)
        or _singles(seen)
        or masks_as_class(seen, part, info.classes or ())
        or container_as_class(seen, packed or shown_path)
    )
    if found:
        raise AnnotatedError(found)


def refuse_above(path: str | os.PathLike[str], splits: Sequence[str]) -> None:
    """Raise AnnotatedError where a folder that is divided into splits holds, next to them, what describes their images.

    Looks at the entries of the folder, and of the folders in it that are no splits.
    """
    root, beside = os.fspath(path), Beside()
    folders, held = [""], dict[str, list[str]]()
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
                        if folder and name.lower().endswith(ENDS):
                            held.setdefault(folder, []).append(name)
                        beside.add(os.fsencode(name), os.path.splitext(name)[1].lower(), entry.stat().st_size)  # noqa: PTH122
        except OSError:
            continue  # the scan of the splits reports why, if it matters
        beside.end(os.fsencode(os.path.join(folder, "")) if folder else b"", ())  # noqa: PTH118
    seen = Seen(root, beside, "folder", ImagesOnDisk(root, ["", *splits, *folders[1:]]))
    others = {folder: sorted(names) for folder, names in held.items()}
    if found := _coco(seen) or tables_beside(seen, beside.tables) or masks_of_splits(seen, others, splits):
        raise AnnotatedError(found)


def refuse_tables(path: str | os.PathLike[str]) -> None:
    """Raise AnnotatedError where the Parquet files of a folder have no images, and the images are files below it."""
    # Here, as the folder of images imports this.
    from rawpack_packer.sources.folder import holds_image
    from rawpack_packer.sources.parquet import holds_images

    folder, where = Path(path), plain(os.fspath(path))
    tables = sorted(one for one in folder.glob("*.parquet"))
    if not tables or holds_images(folder) is not False:
        return
    of_folder = next((one for one in tables if (folder / one.stem).is_dir()), None)
    if of_folder is None:
        seen = Seen(os.fspath(path), Beside(), "folder", ImagesOnDisk(os.fspath(path), ()))
        if holds_image(folder):
            raise AnnotatedError(tables_beside(seen, [os.fsencode(one.name) for one in tables]))
        return
    tar = f'for d in {shlex.quote(os.fspath(path))}/*/; do tar --sort=name -cf "${{d%/}}.tar" -C "$d" .; done'
    pattern = os.path.join(os.fspath(path), "*.tar")  # noqa: PTH118
    raise AnnotatedError(
        f"{where} holds {plain(of_folder.name)} and the folder {plain(of_folder.stem)}, as img2dataset writes files "
        f"with their captions: `{plain(tar)}` makes WebDataset shards of them, and "
        f"{command('--source', 'webdataset', '--field', 'caption=txt:str', pattern)} packs images with captions; "
        f"{opt.kind('folder')} packs the images alone"
    )


def _coco(seen: Seen) -> str:
    files = [one for one in seen.beside.singles if one.lower().endswith(b".json")][:_MOST_TRIED]
    heads = {one: seen.images.head(one, HEAD) for one in files}
    found = [one for one in files if any(key.search(heads[one]) and word in heads[one] for key, word in _COCO)]
    if not found:
        return ""
    with_boxes = [one for one in found if not text_of(one).rpartition("/")[2].startswith(_NO_BOXES)]
    here = {one: _coco_command(seen, one, heads[one]) for one in with_boxes}
    commands = [one for one in here.values() if one] or [command(seen.below(one)) for one in with_boxes]
    names = listed([text_of(one) for one in found], MOST_SHOWN)
    it = "COCO's JSON" if len(found) == 1 else "COCO's JSON files"
    if not commands:
        return (
            f"{seen.where} holds {it} {names}, without boxes, and a folder is packed without it: rawpack reads no "
            "captions or panoptic masks of COCO; write captions into a listing, a .csv with the columns path and "
            f"caption{seen.alone}"
        )
    return (
        f"{seen.where} holds {it} {names}, and a folder is packed without boxes: {seen.first}"
        f"{' or '.join(commands[:MOST_COMMANDS])} packs images with their boxes{seen.alone}"
    )


def _coco_command(seen: Seen, file: bytes, head: bytes) -> str:
    """The command that packs a COCO file; "" where it names no image of the source."""
    named = _FILE_NAME.search(head)
    name = text_of(named[1]) if named else ""
    image = seen.images.locate(name, False) if name else None
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


def _pairs(seen: Seen) -> str:
    if not seen.beside.pairs:
        return ""
    suffix = min(seen.beside.pairs, key=lambda one: (one in PICKLES, one))
    file, image = seen.beside.pairs[suffix]
    others = [one for one in seen.beside.pairs if one != suffix]
    what = f"{seen.where} holds {plain(text_of(file))} for the image {plain(text_of(image))}"
    what += f" (also {listed(others, 5)})" if others else ""
    what += ", and a folder is packed without such files"
    cure = _cure(seen, suffix, _member(file, suffix), seen.images.head(file, HEAD))
    if seen.labeled and "--key-pattern" not in cure:
        cure += (
            "; that loses the folders' classes: a listing, a .csv with the columns path, label and what these files "
            "say, keeps both"
        )
    return f"{what}: {cure}{seen.alone}"


def _member(file: bytes, suffix: str) -> str:
    """How `--field` names such files as members of WebDataset shards: "json:str", "json=jpg.json:str" of a.jpg.json."""
    member, name = text_of(file).rpartition("/")[2].partition(".")[2].lower(), suffix[1:]
    named = member if member == name else f"{name}={member}"
    return named if suffix == ".npy" else f"{named}:str"


def _cure(seen: Seen, suffix: str, member: str, head: bytes) -> str:
    """What to do with one file for each image. member: see `_member`."""
    if seen.in_archive:
        if suffix in PICKLES:
            return (
                "a pickle can run code when it is read, so rawpack never reads it: write its values as .json, and "
                f"{command('--source', 'webdataset', '--field', 'json:str', seen.path)} packs them"
            )
        field = "label=cls" if suffix == ".cls" else member
        keeps = [] if suffix == ".cls" else seen.keeps_classes
        if re.search(r"\.zip\b", seen.path, re.IGNORECASE):
            told = command("--source", "webdataset", "--field", field, *keeps, "x.tar")
            return f"write it as a tar, and {told} packs them"
        told = command("--source", "webdataset", "--field", field, *keeps, seen.path)
        return f"{told} packs them as a field, if each is next to its image in the archive (tar --sort=name)"
    if suffix == ".txt" and head.strip() and all(map(_YOLO.fullmatch, head.strip().splitlines()[:-1] or [head])):
        return f"{command('--source', 'yolo', seen.path)} packs them as YOLO's boxes"
    if suffix == ".xml" and b"<annotation" in head:
        return _moved_voc(seen)
    if suffix in PICKLES:
        return "a pickle can run code when it is read: read it in Python, and pass the samples to rawpack_packer.pack"
    labelme = suffix == ".json" and b'"shapes"' in head and b'"imagePath"' in head
    boxes = " (labelme's; as COCO's JSON, its boxes are boxes)" if labelme else ""
    tar = shlex.join(["tar", "--sort=name", "-cf", "shards.tar", "-C", seen.path, "."])
    options = [] if suffix == ".cls" else ["--field", member, *seen.keeps_classes]
    told = command("--source", "webdataset", *options, "shards.tar")
    kept = ", with the folders as classes" if "--key-pattern" in options else ""
    return f"`{plain(tar)}` and then {told} packs them as a field{kept}{boxes}"


def _apart(seen: Seen) -> str:
    for (folder, suffix), names in seen.beside.apart.items():
        images = list[str]()
        for number, name in enumerate(names):
            if number == 2 and not images:
                break
            stem = text_of(name.rpartition(b".")[0])
            images += [one for one in (seen.images.locate(stem, True) or seen.images.locate(stem, False),) if one]
        if len(images) < 2 or 2 * len(images) < len(names):
            continue
        holds, beside = seen.below(folder.rstrip(b"/")), images[0].rpartition("/")[0]
        what = (
            f"{plain(holds)} holds {suffix} files that are named as the images in {plain(beside) or 'the folder'}, and "
            "a folder is packed without them"
        )
        head = seen.images.head(folder + names[0], HEAD)
        cure = "write what they say into a listing, a .csv with a column path"
        if suffix == ".xml" and b"<annotation" in head:
            cure = _voc_cure(seen, folder, os.fsencode(os.path.join(beside, "") if beside else ""))  # noqa: PTH118
        elif suffix == ".txt" and all(map(_YOLO.fullmatch, head.strip().splitlines()[:-1] or [head])):
            options = ("--source", "yolo", "--images", seen.below(os.fsencode(beside)), "--labels-dir", holds)
            cure = f"{command(*options, seen.unpacked)} packs them as YOLO's boxes"
        return f"{what}: {seen.first}{cure}{seen.alone}"
    return ""


def _voc_cure(seen: Seen, annotations: bytes, images: bytes) -> str:
    """What to do with Pascal VOC's XML files. annotations, images: their folders, each ending in "/" or b""."""
    root = _above(annotations)
    of_voc = [_above(one) for one, suffix in seen.beside.apart if suffix == ".xml" and one.endswith(b"Annotations/")]
    ready = [one for one in of_voc if any(folder.startswith(one + b"JPEGImages/") for folder in seen.filled or ())]
    if ready:
        commands = [command(seen.below(one).rstrip("/")) for one in ready[:MOST_COMMANDS]]
        return f"{' or '.join(commands)} packs Pascal VOC's boxes"
    if images and _above(images) == root:
        return (
            "name the folder of images JPEGImages and that of the .xml files Annotations, and "
            f"{command(seen.below(root).rstrip('/'))} packs Pascal VOC's boxes"
        )
    return _moved_voc(seen)


def _moved_voc(seen: Seen) -> str:
    images, xml = seen.below(b"JPEGImages"), seen.below(b"Annotations")
    return (
        f"move the images into {plain(images)} and the .xml files into {plain(xml)}, and {command(seen.unpacked)} "
        "packs Pascal VOC's boxes"
    )


def _above(folder: bytes) -> bytes:
    return folder_of(folder.rstrip(b"/"))


def _singles(seen: Seen) -> str:
    """Where folders give the images classes, CVAT's files count only."""
    tried = 0
    for file in seen.beside.singles[:_MOST_TRIED]:
        head = seen.images.head(file, HEAD)
        of_cvat = b"<annotations" in head and b"<image " in head
        if seen.labeled and not of_cvat:
            continue
        words = [text_of(found[0]) for found, _ in zip(_NAMED.finditer(head), range(MOST_SHOWN), strict=False)]
        tried += bool(words)
        if tried > _MOST_LISTS:
            break
        if not any(seen.images.locate(word, False) for word in words):
            continue
        what = f"{seen.where} holds {plain(text_of(file))}, which names its images, and a folder is packed without it"
        if not file.endswith(b".txt"):
            cure = "make it COCO's JSON, or a listing, a .csv with a column path"
            if of_cvat:
                cure = "export it from CVAT again, as COCO or YOLO, and pack that"
            return f"{what}: {cure}{seen.alone}"
        if cure := plain_list_cure(seen, file):
            return f"{what}: {seen.first}{cure}{seen.alone}"
    return ""


def _is_relevant(folder: bytes, filled: Collection[bytes], empty: set[str]) -> bool:
    """Whether a table in this folder may be about the images: see the top of this module."""
    if any(one.startswith(folder) for one in filled):
        return True
    return text_of(folder.partition(b"/")[0]) in empty
