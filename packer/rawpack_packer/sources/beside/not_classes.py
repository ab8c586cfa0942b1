"""First-level folders that are no classes, though a folder is packed with them as such: of masks, or of all images."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from rawpack_packer.options.naming import opt
from rawpack_packer.sources.beside import ImageNames, Seen, command
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.folder_part import FolderPart
from rawpack_packer.text import count, plain

_CONTAINERS = frozenset({"images", "image", "imgs", "img", "jpegimages", "data", "photos", "pictures", "files"})
_MOST_MASKS = 4
_MASKS = re.compile(
    r"((?P<of>.+?)([ _-]|(?=annot)))?"
    r"(annot|annotation|depth|ground_?truth|gt|label|mask|seg|segmentation|segmentationclass|trimap)s?",
    re.IGNORECASE,
)
"""Names of folders of images that belong to other images, alone or after the name of what they belong to."""
_OF_MASK = re.compile(rb"[_-](mask|label|gt|seg|depth|l)s?$", re.IGNORECASE)
"""Ends of the names of such images, without the extension."""


def masks_as_class(seen: Seen, part: FolderPart, classes: Sequence[str]) -> str:
    """The error for a folder whose images are named as those of another folder; "" where there is none."""
    names = ImageNames(part, seen.images.head)
    tops = {text_of(folder.partition(b"/")[0]) for folder in seen.filled or ()}
    for name in filter(_MASKS.fullmatch, classes):
        inside = [k for k, folder in enumerate(part.folders) if folder.startswith(os.fsencode(name) + b"/")]
        masks = np.flatnonzero(np.isin(part.folder_of, inside))[:_MOST_MASKS].tolist()
        if pair := _mask_and_image(name, [part.path(i) for i in masks], names.paths, tops):
            return (
                f"{seen.where} holds {pair[0]} for the image {pair[1]}, and a folder is packed with {plain(name)} as a "
                f"class: {seen.first}write a listing, a .csv with the columns path and mask, and "
                f"{command('--field', 'mask:mask', 'LIST.csv')} packs images with their masks; {opt.kind(seen.kind)} "
                "packs all folders as classes"
            )
    return ""


def masks_of_splits(seen: Seen, folders: Mapping[str, Sequence[str]], splits: Sequence[str]) -> str:
    """The error for a folder next to splits, whose images are named as theirs; "" where there is none.

    folders: those that are no splits, with the names of some files.
    """

    def images_of(stem: bytes) -> Iterable[str]:
        return filter(None, [seen.images.locate(text_of(stem), True)])

    for name in filter(_MASKS.fullmatch, folders):
        masks = [os.fsencode(f"{name}/{file}") for file in folders[name][:_MOST_MASKS]]
        if pair := _mask_and_image(name, masks, images_of, splits):
            return (
                f"{seen.where} holds {pair[0]} for the image {pair[1]}, and the splits are packed without it: write a "
                "listing for each split, a .csv with the columns path and mask, and "
                f"{command('--field', 'mask:mask', 'LIST.csv')} packs images with their masks{seen.alone}"
            )
    return ""


def _mask_and_image(
    folder: str, masks: Sequence[bytes], images_of: Callable[[bytes], Iterable[str]], tops: Collection[str]
) -> tuple[str, str] | None:
    """The first of some files of a folder and the image that it is the mask of, printable, if at least half of them
    have an image.

    images_of: the paths of the images of a name, without its extension. tops: the first-level folders of images that
    count; "" stands for images in none.
    """
    match, pairs = _MASKS.fullmatch(folder), list[tuple[str, str]]()
    folders = {folder, *tops} - {""}
    for mask in masks:
        stem = mask.rpartition(b"/")[2].rpartition(b".")[0]
        for image in (image for one in dict.fromkeys([stem, _OF_MASK.sub(b"", stem)]) for image in images_of(one)):
            top = image.partition("/")[0] if "/" in image else ""
            if match and top in tops and top != folder and _may_have(match["of"], top, folders):
                pairs.append((plain(text_of(mask)), plain(image)))
                break
    return pairs[0] if pairs and 2 * len(pairs) >= len(masks) else None


def _may_have(masks_of: str | None, top: str, tops: Collection[str]) -> bool:
    """Whether the images of a folder may have their masks in `train_masks`: those of `train` and `train_images`, of a
    folder that holds images by its name, and of the only other one.

    Where files are numbered in each class, those of a class called shipping_labels have the names of all others.
    """
    if _MASKS.fullmatch(top):
        return False
    if masks_of is None or len(tops) <= 2 or is_container(top):
        return True
    rest = top.lower().removeprefix(masks_of.lower())
    return rest == "" or (rest != top.lower() and is_container(rest.lstrip(" _-")))


def container_as_class(seen: Seen, packed: str) -> str:
    """The error for one folder that holds all classes, and would become the only class; "" where it is none.

    packed: the folder that is packed, as a command names it, also in an archive.
    """
    filled = [folder for folder in seen.filled or () if folder]
    name = only_container({text_of(folder.partition(b"/")[0]) for folder in filled})
    classes = {folder.split(b"/")[1] for folder in filled if folder.count(b"/") > 1}
    if not name or len(classes) < 2:
        return ""
    path, shown = os.fsdecode(filled[0].partition(b"/")[0]), sorted(map(text_of, classes))
    below = command(os.path.join(packed, path))  # noqa: PTH118 - as the user wrote it
    if seen.in_archive and re.search("[?#]", packed):
        below = "the path of that folder in the archive"
    return (
        f"all images in {seen.where} are in {plain(name)}, which would be their only class, but it holds "
        f"{count(len(classes), 'folder')} of images, such as {plain(shown[0])}: "
        f"{below} packs these as classes; {opt.kind(seen.kind)} packs one "
        "class"
    )


def is_container(name: str) -> bool:
    """Whether a folder of this name may hold all images."""
    return name.lower() in _CONTAINERS


def only_container(filled: Iterable[str]) -> str:
    """The folder that holds all images, by its name; "" where there are several, or the only one may be a class.

    filled: the first-level folders that hold images.
    """
    names = [*filled]
    return names[0] if len(names) == 1 and is_container(names[0]) else ""
