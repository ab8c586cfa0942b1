"""Folders of further images, or masks, for those of a folder: files with the same paths, but for their extensions.

`--images target=clean` gives the sample `a/001.jpg` a field `target` from the file `clean/a/001.png`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import SourceInfo, given_options
from rawpack_packer.sources.declared import words_of
from rawpack_packer.sources.fields import PIXEL_WORDS, FieldKind, Fields, PixelWord, check_names
from rawpack_packer.sources.files import NOT_SCANNED, FolderPart, bad_name, text_of
from rawpack_packer.sources.folder_scan import FolderScan
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.table.columns import NO_FILE, Files, texts_of
from rawpack_packer.text import count, plain

Folders = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | Sequence[str]
"""`--images`: the folder of the images, of a listing and the like; or, of a folder, NAME=FOLDER, several of these, or a
mapping."""
UNPAIRED = "unpaired"


def one_folder(images: Folders) -> str | os.PathLike[str]:
    """The folder of the images of a source that has one. Raises UsageError where several are named."""
    if isinstance(images, list | tuple) and len(images) == 1:
        images = images[0]
    if isinstance(images, str | os.PathLike):
        return images
    raise UsageError(f"{opt.images}: several folders, NAME=FOLDER, are for a source that is a folder of images")


def in_split(images: Folders, split: str) -> Folders:
    """The folders of further images of a split: those of that name below them."""
    if isinstance(images, str | os.PathLike):
        return images if "=" not in os.fspath(images) else in_split(_named(images), split)
    if not isinstance(images, Mapping) and not all("=" in text for text in map(os.fspath, images)):
        return images
    named = _named(images)
    return {name: os.path.join(folder, split) for name, folder in named.items()}  # noqa: PTH118 - as written


def with_partners(
    files: FolderPart, info: SourceInfo, images: Folders, fields: Fields, scan: Callable[[str], FolderScan]
) -> tuple[FolderPart, SourceInfo]:
    """The files of a folder with their partners, and what is known of them. fields: which are masks, as NAME:mask.
    scan: of a folder.

    Raises UsageError where a folder is not there or lies in the other, none of its files belongs to an image, or two
    belong to one.
    """
    folders, words = _named(images), words_of(fields)
    said = dict(word.partition(":")[::2] for word in words)
    for name, word in said.items():
        if name not in folders or word not in PIXEL_WORDS:
            raise UsageError(
                f"{opt.fields(f'{name}:{word}')}: of a folder of images, {opt.images('NAME=FOLDER')} names folders of "
                f"further images, and {opt.fields('NAME:mask')} says which of them contain masks (NAME:flow and "
                "NAME:disparity, which contain distances in pixels)"
            )
    kinds, columns, alone, problems = dict[str, FieldKind](), dict[str, Files](), 0, list[str]()
    for name, folder in folders.items():
        columns[name], left = _partners(files, folder, scan)
        there = np.flatnonzero(columns[name].states[:, 0] != NO_FILE).tolist()
        role: PixelWord = next((role for role in PIXEL_WORDS if said.get(name) == role), "image")
        kinds[name] = first_pixels(role, name, columns[name].value, there)
        alone += len(left)
        if left:
            problems.append(f"{count(len(left), 'file')} of {plain(folder)} without an image, left out: {left[0]}")
    return replace(files, further=columns), replace(
        info,
        fields={**info.fields, **kinds},
        paths=(*info.paths, *(one.root for one in columns.values())),
        options=given_options(images=[f"{name}={folder}" for name, folder in folders.items()], field=words),
        counts={**info.counts, UNPAIRED: alone},
        problems=(*info.problems, *problems),
    )


def _named(images: Folders) -> dict[str, str]:
    """Field -> its folder. Raises UsageError."""
    if isinstance(images, Mapping):
        pairs = [(str(name), "=", os.fspath(folder)) for name, folder in images.items()]
    else:
        texts = [images] if isinstance(images, str | os.PathLike) else images
        pairs = [os.fspath(text).partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(
                f"{opt.images(plain(name))}: of a folder of images, write NAME=FOLDER for a folder of further images, "
                "such as target=clean"
            )
        if [one[0] for one in pairs].count(name) > 1:
            raise UsageError(f"{opt.images}: {plain(name)} is given twice")
    check_names(name for name, _, _ in pairs)
    return {name: folder for name, _, folder in pairs}


def _partners(files: FolderPart, folder: str, scan: Callable[[str], FolderScan]) -> tuple[Files, list[str]]:
    """The partners of files in a folder, and those that belong to none."""
    where, shown = os.path.abspath(os.path.expanduser(folder)), plain(folder)  # noqa: PTH100, PTH111 - may be empty
    if f"{os.path.realpath(where)}/".startswith(f"{os.path.realpath(files.root)}/"):
        raise UsageError(
            f"{opt.images(shown)} is in {plain(files.root)}, of which all images are samples: give the folder that "
            "contains the first images alone"
        )
    found, numbers, twice = scan(where).files(), dict[bytes, int](), dict[bytes, int]()
    for k in np.flatnonzero(found.states[:, 0] != NOT_SCANNED).tolist():
        stem = _stem(found.path(k))
        if bad_name(stem) is None and numbers.setdefault(stem, k) != k:
            twice[stem] = k
    stems = [_stem(files.path(i)) for i in range(len(files))]
    at = np.array([numbers.get(stem, -1) for stem in stems], np.int64)
    if (at < 0).all():
        holds = f"contains {found.key(0)}" if numbers else "contains no image or .npy"
        raise UsageError(
            f"{opt.images(shown)}: no image of {plain(files.root)} has a partner there: the first image is "
            f"{plain(files.key(0))}, and {shown} {plain(holds)}. Both need the same path, but for the extension; a "
            f"listing (.csv) with {opt.fields('NAME:image')} pairs others"
        )
    for stem in stems if twice else ():
        if stem in twice:
            one, two = (plain(found.key(k)) for k in (numbers[stem], twice[stem]))
            raise UsageError(f"{opt.images(shown)}: {one} and {two} belong to the same image: take out one of them")
    paths = [text_of(found.path(k) if k >= 0 else stem) for k, stem in zip(at.tolist(), stems, strict=True)]
    states = np.where(at[:, None] >= 0, found.states[at], NO_FILE)
    left = sorted({*numbers.values()} - {*at.tolist()})
    return Files(where, texts_of(paths), states), [plain(found.key(k)) for k in left]


def _stem(path: bytes) -> bytes:
    return os.path.splitext(path)[0]  # noqa: PTH122 - of a path, with its folders
