"""The target "parquet": tables with the images' files in a column, and the features that Hugging Face datasets shows.

Needs the extra `parquet`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.system import writing
from rawpack_packer.errors import need
from rawpack_packer.exporting.card import Card
from rawpack_packer.exporting.shards import ShardTarget
from rawpack_packer.exporting.target import contents, extension_for, split_key
from rawpack_packer.options import opt
from rawpack_packer.sources import Item
from rawpack_packer.sources.compatible_stores import IMAGE, KEY, LABEL
from rawpack_packer.sources.exported import OF_TABLES
from rawpack_packer.sources.fields import Boxes
from rawpack_packer.sources.store import store_rows

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_BYTES = 100_000_000
"""Images of a row group, which is read as a whole."""
_LIST = ".list.element"
"""What Parquet adds to the name of a column of lists."""
_SMALL = "zstd"
"""The compression of all but images, which are compressed already."""


class ParquetTarget(ShardTarget[dict[str, Any]]):
    """See `Target`. A prepared sample is a row: column -> value."""

    to = "parquet"
    _FILE = "{split}-{number:05d}-of-{count:05d}.parquet"
    _SHARD_BYTES = 500_000_000
    _IMAGE_BYTES, _FIELD_BYTES = 40, 20
    _OWN_BYTES, _OWN_FIELD_BYTES = 1500, 600

    def check(self) -> None:
        need("pyarrow", "parquet", opt.to("parquet"))
        for name, field in self._fields.items():
            if self.suffixes.get(name) == ".npy":
                raise UsageError(
                    f"field {name} is {field.dtype} {field.shape}, and a table of images stores JPEG and PNG files "
                    "only; use --to webdataset"
                )

    @cached_property
    def _fields(self) -> Mapping[str, Field]:
        """Field of each column: the image, the key, and the others."""
        fields = dict(store_rows(self._source).stores[0].fields)
        return {IMAGE: fields.pop(IMAGE), KEY: fields.pop(KEY, Field(kind="text", dtype="str")), **fields}

    @cached_property
    def _features(self) -> dict[str, dict[str, Any]]:
        """What each column is, in the words of Hugging Face datasets."""
        return {name: self._feature(name, field) for name, field in self._fields.items()}

    @cached_property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        about = {"huggingface": json.dumps({"info": {"features": self._features}}), OF_TABLES: json.dumps(self.said())}
        return pa.schema([(name, _arrow_type(field)) for name, field in self._fields.items()], about)

    def _feature(self, name: str, field: Field) -> dict[str, Any]:
        """What a column is, in the words of Hugging Face datasets."""
        if field.in_shards:
            return {"_type": "Image"}
        if name == LABEL and self._source.info.classes is not None:
            return {"names": self._source.info.classes, "_type": "ClassLabel"}
        feature: dict[str, Any] = {"dtype": "string" if field.kind == "text" else field.dtype, "_type": "Value"}
        for length in reversed(field.shape):
            feature = {"feature": feature, **({} if length is None else {"length": length}), "_type": "Sequence"}
        return feature

    def card(self, folder: str = "") -> Card:
        samples, size, memory_bytes = np.array([*map(_sizes, self._paths)]).sum(axis=0).tolist()
        return Card(self.split, folder, samples, size, memory_bytes, self._features, self._source.info.classes or ())

    def _prepare(self, row: int, item: Item) -> dict[str, Any]:
        values: dict[str, Any] = {KEY: item.key, **item.fields}
        stem, end = split_key(item.key)
        name = re.split(r"[/\\]", stem)[-1]
        for field, data in contents(item, self.suffixes):
            suffix = extension_for(end, self.suffixes[field]) if field == IMAGE else self.suffixes[field]
            values[field] = {"bytes": data, "path": name + suffix}
        return values

    @contextmanager
    def _open(self, path: Path) -> Iterator[Callable[[dict[str, Any]], object]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        small = [name + _LIST * len(field.shape) for name, field in self._fields.items() if not field.in_shards]
        paths, data = ([f"{name}.{part}" for name in self.suffixes] for part in ("path", "bytes"))
        rows: list[dict[str, Any]] = []
        held = 0
        # Opened here, because Arrow takes no name that is not UTF-8.
        with writing.create(path) as file, pq.ParquetWriter(
            file, self._schema, compression=dict.fromkeys(small + paths, _SMALL) | dict.fromkeys(data, "none"),
            use_dictionary=small, write_statistics=small,
        ) as writer:  # fmt: skip

            def flush() -> None:
                nonlocal held
                columns = [_column([row[name] for row in rows], field) for name, field in self._fields.items()]
                writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
                rows.clear()
                held = 0

            def add(row: dict[str, Any]) -> None:
                nonlocal held
                rows.append(row)
                held += sum(len(row[name]["bytes"]) for name in self.suffixes)
                if held >= _GROUP_BYTES:
                    flush()

            yield add
            if rows:
                flush()


def _sizes(path: Path) -> tuple[int, int, int]:
    """Rows of a table, bytes of its file, and of its columns before compression."""
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        about = pq.read_metadata(file)
    groups = map(about.row_group, range(about.num_row_groups))
    return about.num_rows, path.stat().st_size, sum(group.total_byte_size for group in groups)


def _arrow_type(field: Field) -> pa.DataType:
    import pyarrow as pa

    if field.in_shards:
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    made = pa.string() if field.kind == "text" else pa.from_numpy_dtype(np.dtype(field.dtype))
    for length in reversed(field.shape):
        made = pa.list_(made, -1 if length is None else length)
    return made


def _column(values: Sequence[Any], field: Field) -> pa.Array:
    """The values of a column, at least one."""
    import pyarrow as pa

    if field.in_shards or field.kind == "text":
        return pa.array(values, _arrow_type(field))
    arrays: list[NDArray[Any]] = [
        np.asarray(value.rows if isinstance(value, Boxes) else value, field.dtype) for value in values
    ]
    made = pa.array(np.concatenate([one.reshape(-1) for one in arrays]))
    for length in reversed(field.shape):
        if length is None:  # the first, of a ragged field
            made = pa.ListArray.from_arrays(np.cumsum([0, *map(len, arrays)], dtype=np.int32), made)
        else:
            made = pa.FixedSizeListArray.from_arrays(made, length)
    return made
