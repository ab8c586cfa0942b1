"""An HDF5 file that was made by hand as a source."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.archives.files import archive_files
from rawpack_packer.sources.base import BaseSource, Scanning, SourceInfo, given_options, unseen, without_samples
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.hdf5 import look
from rawpack_packer.sources.hdf5.part import Hdf5File, Hdf5Part, KeptOpen
from rawpack_packer.sources.kinds import Fields, with_roles, words_of
from rawpack_packer.sources.listing.columns import Classes, classes_of
from rawpack_packer.sources.listing.table import no_classes
from rawpack_packer.sources.named_arrays import LABEL, Arrays, named_arrays, shown_arrays
from rawpack_packer.text import plain

Rows = NDArray[np.int64]


class Hdf5Source(BaseSource):
    """The rows of the data sets of an HDF5 file as a `Source`.

    Images are arrays, stored as they are, or image files as uint8 of variable length or opaque bytes. The only data set
    that can be images is them; `label` is the one of that name, or the only one of whole numbers; the others of as many
    rows are fields. Labels that are texts are the names of classes.

    `info.counts`: unlabelled, empty_classes, columns_left_out.
    """

    _all: Hdf5Part

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        array: Arrays = (),
        fields: Fields = (),
        classes: Classes | None = None,
        progress: Scanning = unseen,
    ) -> None:
        """array: what the image, the label and the fields are, as image=train/x,label=train/y; what is named is packed,
        and nothing else. `:chw` after the name of images, or alone, moves their channels to the end; `:hwc` keeps the
        axes as they are. fields: which fields are masks, and which are no images: {"seg": "mask", "depth": "array"}.
        classes: names of labels that are numbers. progress: called with the number of samples.

        Raises UsageError where the file is damaged or hostile, or where something has to be named.
        """
        files = archive_files(Path(path).absolute())
        wanted, file = named_arrays(array), Hdf5File(files.paths[0], files.state(0))
        root = plain(os.fsencode(file.path))
        looked = look.look(Path(file.path), wanted)
        file.check()
        chosen = looked.chosen
        labels, names = _labels(looked, classes, root)
        kinds = {name: column.kind for name, column in chosen.fields.items() if column.kind is not None}
        kinds = with_roles(kinds, fields, chosen.image_kind, root)
        empty = () if names is None or labels is None else without_samples(names, labels)
        self._states = files.states
        self._all = Hdf5Part(file, chosen, 0, chosen.rows, labels, KeptOpen())
        self.info = SourceInfo(
            kind="hdf5",
            root=root,
            paths=(file.path,),
            fields={**({} if labels is None else {LABEL: FieldKind("int64")}), **kinds},
            image=chosen.image_kind,
            classes=names,
            empty_classes=empty,
            numbered=True,
            options=given_options(
                array=shown_arrays(wanted),
                field=words_of(fields),
                classes=classes if isinstance(classes, str | os.PathLike) else None,
            ),
            counts={
                "unlabelled": 0 if labels is None else int((labels == -1).sum()),
                "empty_classes": len(empty),
                "columns_left_out": len(chosen.left_out),
            },
            problems=chosen.left_out,
        )
        progress(chosen.rows)

    def labels(self) -> Rows | None:
        """See `HasLabels`."""
        return self._all.labels

    def states(self) -> Rows:
        """Of the file."""
        return self._states


def is_hdf5(path: Path) -> bool:
    """Whether a file is HDF5, by its name."""
    return path.suffix.lower() in (".h5", ".hdf5", ".hdf", ".he5")


def _labels(looked: look.Looked, classes: Classes | None, root: str) -> tuple[Rows | None, tuple[str, ...] | None]:
    """The label of each sample, and the names of the classes. Raises UsageError."""
    names = None if classes is None else classes_of(classes)
    if looked.names is not None:
        names = names or tuple(sorted({name for name in looked.names if name}))
        known = {name: number for number, name in enumerate(names)}
        strange = next((name for name in looked.names if name and name not in known), None)
        if strange is not None:
            raise UsageError(f"{root}: the label {plain(strange)!r} is none of {len(names)} classes")
        return np.array([known[name] if name else -1 for name in looked.names], np.int64), names
    if names is not None and looked.numbers is None:
        raise UsageError(
            f"{opt.classes} names labels, and {root} has none: name them, {opt.array('image=NAME,label=NAME')}"
        )
    if names is not None and looked.numbers is not None:
        wrong = looked.numbers[no_classes(looked.numbers, len(names))]
        if len(wrong):
            raise UsageError(f"{root} has label {wrong[0]}; there are {len(names)} classes, counted from 0")
    return looked.numbers, names
