"""Parquet files, and the Arrow files of Hugging Face's `save_to_disk`: rows with an image.

| file | holds |
|---|---|
| `layout.py` | which files a path stands for, and their splits |
| `tables.py` | a file: its columns, and its rows in batches of bounded size |
| `columns.py` | which columns become image, label, key and fields |
| `part.py` | the rows that a worker reads, as samples |
| `source.py` | all of it as a source |

pyarrow is imported inside functions only: it comes with `rawpack[parquet]`.
"""

from __future__ import annotations
