"""An HDF5 file that was made by hand as a source."""

from __future__ import annotations

import os
from pathlib import Path

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import Fields, with_roles, words_of
from rawpack_packer.sources.hdf5 import look
from rawpack_packer.sources.hdf5.part import Hdf5Column, Hdf5File, Hdf5Images, KeptOpen
from rawpack_packer.sources.named_arrays import Arrays, check_named_once, named_arrays, shown_arrays
from rawpack_packer.sources.table.choose import ColumnChoice
from rawpack_packer.sources.table.columns import RowNumbers
from rawpack_packer.sources.table.labels import LABEL, LABEL_KIND, NO_COUNTS, Classes, named_file, number_labels
from rawpack_packer.sources.table.named_files import named_files
from rawpack_packer.sources.table.source import TableSource, unique_keys
from rawpack_packer.text import plain


class Hdf5Source(TableSource):
    """The rows of the data sets of an HDF5 file as a `Source`.

    Images are arrays, stored as they are, or image files as uint8 of variable length or opaque bytes. The only data set
    that can be images is them; `label` is the one of that name, or the only one of whole numbers; the others of as many
    rows are fields. Labels that are texts are the names of classes. Texts in a data set `key` are keys; without one,
    samples are numbered.

    `info.counts`: unlabelled, empty_classes, columns_left_out.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        array: Arrays = (),
        fields: Fields = (),
        classes: Classes | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
        key_column: str | None = None,
        progress: Scanning = unseen,
    ) -> None:
        """array: what the image, the label and the fields are, as image=train/x,label=train/y; what is named is packed,
        and nothing else. `:chw` after the name of images, or alone, moves their channels to the end; `:hwc` keeps the
        axes as they are. image_column, label_column, key_column: the data sets of these, beside which the others stay
        fields. fields: which of them are masks, and which are no images: {"seg": "mask", "depth": "array"}. classes:
        names of labels that are numbers. progress: called with the number of samples.

        Raises UsageError where the file is damaged or hostile, or where something has to be named.
        """
        files = named_files(Path(path).absolute())
        named, file = named_arrays(array), Hdf5File(files.paths[0], files.state(0))
        check_named_once(named, image_column, label_column)
        root = plain(os.fsencode(file.path))
        looked = look.look(Path(file.path), named, ColumnChoice(image_column, label_column, key_column))
        file.check()
        chosen = looked.chosen
        labels = None if looked.labels is None else number_labels(looked.labels, classes, where=root)
        if labels is None and classes is not None:
            raise UsageError(f"{opt.classes} names labels, and {root} has none: name them by {opt.label_column}")
        kinds = {name: kind for name, (_, kind) in chosen.fields.items()}
        kinds = kinds if labels is None else {LABEL: LABEL_KIND, **kinds}
        keys = None if looked.keys is None else unique_keys(looked.keys, root, key_column is not None)
        info = SourceInfo(
            kind="hdf5",
            root=root,
            paths=(file.path,),
            fields=with_roles(kinds, fields, chosen.image_kind, root),
            image=chosen.image_kind,
            numbered=keys is None,
            options=given_options(
                array=shown_arrays(named),
                field=words_of(fields),
                classes=named_file(classes),
                image_column=image_column,
                label_column=label_column,
                key_column=key_column,
            ),
            counts={**NO_COUNTS, "columns_left_out": len(chosen.left_out)},
            problems=chosen.left_out,
        )
        rows, kept = range(chosen.rows), KeptOpen()
        images = Hdf5Images(Hdf5Column(file, chosen.image, rows, kept), chosen.chw)
        columns = {name: Hdf5Column(file, one, rows, kept) for name, (one, _) in chosen.fields.items()}
        super().__init__(info, keys or RowNumbers(rows), images, columns, files.states, labels=labels)
        progress(chosen.rows)


def is_hdf5(path: Path) -> bool:
    """Whether a file is HDF5, by its name."""
    return path.suffix.lower() in (".h5", ".hdf5", ".hdf", ".he5")
