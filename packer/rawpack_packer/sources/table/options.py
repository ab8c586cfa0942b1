"""What users say of a table: of Parquet, TFRecord, MDS and litdata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rawpack_packer.sources.base import given_options
from rawpack_packer.sources.declared import declared_fields, split_arrays, words_of
from rawpack_packer.sources.fields import Fields
from rawpack_packer.sources.table.choose import Classes, ColumnChoice, named_columns, named_file


@dataclass(frozen=True)
class TableOptions:
    """See above. Raises UsageError where it is used."""

    fields: Fields = ()
    """What columns hold, where their types do not show it, as of `open_list`."""
    key_column: str | None = None
    classes: Classes | None = None
    """Names of labels, or else of boxes, that are numbers without names."""
    image_column: str | None = None
    label_column: str | None = None
    columns: str | Sequence[str] | None = None
    """Those that become fields; None for all that can."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Fields that are no images."""
        return split_arrays(self.fields)[1]

    def choice(self) -> ColumnChoice:
        """The columns that are named, and what fields are."""
        return ColumnChoice(
            self.image_column,
            self.label_column,
            self.key_column,
            named_columns(self.columns),
            declared_fields(split_arrays(self.fields)[0]),
        )

    def given(self, shown: Sequence[str] = ()) -> dict[str, str]:
        """See `SourceInfo.options`. shown: declarations that values show."""
        names = named_columns(self.columns)
        return given_options(
            field=(*words_of(self.fields), *shown),
            key_column=self.key_column,
            classes=named_file(self.classes),
            image_column=self.image_column,
            label_column=self.label_column,
            columns=None if names is None else ",".join(names),
        )
