"""Further images, or masks, for those of a folder: in another folder by the same paths, or next to them by a pattern.

`--images target=clean` gives the sample `a/001.jpg` a field `target` from the file `clean/a/001.png`, and
`--images 'mask=*_mask.png'` a field `mask` from `a/001_mask.png`, which then is no sample.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import given_options
from rawpack_packer.sources.declared import words_of
from rawpack_packer.sources.fields import PIXEL_WORDS, FieldKind, Fields, PixelWord, check_names
from rawpack_packer.sources.files import NOT_SCANNED, bad_name, text_of
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.folder_scan import FolderScan
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.table.columns import NO_FILE, Files, texts_of
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import count, plain

Folders = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | Sequence[str]
"""`--images`: the folder of the images, of a listing and the like; or, of a folder, NAME=FOLDER, several of these, or a
mapping."""
UNPAIRED = "unpaired"
_WORDS = re.compile(rb"(?<=\d)[A-Za-z]+$"), re.compile(rb"[ _.-][^ _./-]+$")


def ending(stem: bytes) -> bytes:
    """The last word of a name without its extension: `_left` of `000_left`, `L` of `000L`; b"" where it has only
    one."""
    return next((word[0] for look in _WORDS if (word := look.search(stem)) and word.start()), b"")


def unsuffixed(name: bytes) -> bytes:
    """A file name without its extension."""
    return name.rpartition(b".")[0] or name


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
    return {name: folder if "*" in folder else os.path.join(folder, split) for name, folder in named.items()}  # noqa: PTH118 - as written


def with_partners(table: Table, images: Folders, fields: Fields, scan: Callable[[str], FolderScan]) -> Table:
    """The table of a folder with the partners of its files; those that a pattern fits are no samples any more.
    fields: which are masks, as NAME:mask. scan: of a folder.

    Raises UsageError where a folder is not there or lies in the other, none of its files belongs to an image, or two
    belong to one.
    """
    folders, words = _named(images), words_of(fields)
    roles = dict(word.partition(":")[::2] for word in words)
    for name, word in roles.items():
        if name not in folders or word not in PIXEL_WORDS:
            raise UsageError(
                f"{opt.fields(name + (word and f':{word}'))}: of a folder of images, {opt.images('NAME=FOLDER')} names "
                f"folders of further images, and {opt.fields('NAME:mask')} says which of them contain masks (NAME:flow "
                "and NAME:disparity, which contain distances in pixels)"
            )
    kinds, columns, alone, problems = dict[str, FieldKind](), dict[str, Files](), 0, list[str]()
    table, beside = _without(table, {name: text for name, text in folders.items() if "*" in text})
    for name, folder in folders.items():
        columns[name], left = beside.get(name) or _partners(table.rows.images, folder, scan)
        rows = np.flatnonzero(columns[name].states[:, 0] != NO_FILE).tolist()
        role: PixelWord = next((role for role in PIXEL_WORDS if roles.get(name) == role), "image")
        kinds[name] = first_pixels(role, name, columns[name].value, rows)
        alone += len(left)
        if left:
            problems.append(f"{count(len(left), 'file')} of {plain(folder)} without an image, left out: {left[0]}")
    info = table.info
    info = replace(
        info,
        fields={**info.fields, **kinds},
        paths=tuple(dict.fromkeys((*info.paths, *(column.root for column in columns.values())))),
        options=given_options(images=[f"{name}={folder}" for name, folder in folders.items()], field=words),
        counts={**info.counts, UNPAIRED: alone},
        problems=(*info.problems, *problems),
    )
    states = np.concatenate([table.file_states, *(column.states for column in columns.values())])
    return table.joined(columns).but(info=info, file_states=states)


def _without(table: Table, patterns: Mapping[str, str]) -> tuple[Table, dict[str, tuple[Files, list[str]]]]:
    """The table of the files that no pattern fits; and for each pattern their partners, and the files that belong to
    none. Raises UsageError where a pattern fits no partner of an image, or all images."""
    if not patterns:
        return table, {}
    files: FolderFiles = table.rows.images
    paths, numbers = [files.path(i) for i in range(len(files))], dict[str, dict[bytes, int]]()
    rest = dict.fromkeys(range(len(files)))
    for name, pattern in patterns.items():
        before, after = (os.fsencode(text).lower() for text in pattern.split("*", 1))
        if b"*" in after or b"/" in before + after:
            raise UsageError(
                f"{opt.images(plain(f'{name}={pattern}'))}: write one *, which stands for the image's name"
            )
        numbers[name] = {}
        for i, path in enumerate(paths):
            folder, slash, last = path.rpartition(b"/")
            fits = last.lower().startswith(before) and last.lower().endswith(after) and len(last) > len(before + after)
            if fits and files.states[i, 0] != NOT_SCANNED:
                numbers[name][folder + slash + last[len(before) : len(last) - len(after)]] = i
                rest.pop(i, None)
    partners, stems = dict[str, tuple[Files, list[str]]](), [_stem(paths[i]) for i in rest]
    for name, pattern in patterns.items():
        others = numbers[name]
        at = [others.get(stem, others.get(stem[: len(stem) - len(ending(stem))], -1)) for stem in stems]
        partners[name] = _matched(files, others, stems, at)
        if max(at, default=-1) < 0:
            raise UsageError(
                f"{opt.images(plain(f'{name}={pattern}'))}: no image of {plain(files.folder)} has such a file next to "
                "it, where * stands for the image's name without the extension, or without its last word"
            )
    return table.take(np.array([*rest], np.int64)), partners


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


def _partners(files: FolderFiles, folder: str, scan: Callable[[str], FolderScan]) -> tuple[Files, list[str]]:
    """The partners of files in a folder, and those that belong to none."""
    where, shown = os.path.abspath(os.path.expanduser(folder)), plain(folder)  # noqa: PTH100, PTH111 - may be empty
    if f"{os.path.realpath(where)}/".startswith(f"{os.path.realpath(files.folder)}/"):
        raise UsageError(
            f"{opt.images(shown)} is in {plain(files.folder)}, of which all images are samples: give the folder that "
            "contains the first images alone"
        )
    others, numbers, twice = scan(where).files(), dict[bytes, int](), dict[bytes, int]()
    for k in np.flatnonzero(others.states[:, 0] != NOT_SCANNED).tolist():
        stem = _stem(others.path(k))
        if bad_name(stem) is None and numbers.setdefault(stem, k) != k:
            twice[stem] = k
    stems = [_stem(files.path(i)) for i in range(len(files))]
    at = [numbers.get(stem, -1) for stem in stems]
    if max(at) < 0:
        holds = f"contains {others.key(0)}" if numbers else "contains no image or .npy"
        raise UsageError(
            f"{opt.images(shown)}: no image of {plain(files.folder)} has a partner there: the first image is "
            f"{plain(files.key(0))}, and {shown} {plain(holds)}. Both need the same path, but for the extension; a "
            f"listing (.csv) with {opt.fields('NAME:image')} pairs others"
        )
    for stem in stems if twice else ():
        if stem in twice:
            first, second = (plain(others.key(k)) for k in (numbers[stem], twice[stem]))
            raise UsageError(
                f"{opt.images(shown)}: {first} and {second} belong to the same image: take out one of them"
            )
    return _matched(others, numbers, stems, at)


def _matched(
    files: FolderFiles, numbers: Mapping[bytes, int], stems: Sequence[bytes], at: Sequence[int]
) -> tuple[Files, list[str]]:
    """The partners of images among files, and the files that belong to no image.

    numbers: of the files that are partners, by their stems. stems: of the images. at: the number of the partner of
    each, -1 for none.
    """
    paths = [text_of(files.path(k) if k >= 0 else stem) for k, stem in zip(at, stems, strict=True)]
    rows = np.array(at, np.int64)
    states = np.where(rows[:, None] >= 0, files.states[rows], NO_FILE)
    left = [plain(files.key(k)) for k in sorted({*numbers.values()} - {*at})]
    return Files(files.folder, texts_of(paths), states), left


def _stem(path: bytes) -> bytes:
    return os.path.splitext(path)[0]  # noqa: PTH122 - of a path, with its folders
