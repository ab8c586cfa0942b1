"""Parquet files, and the Arrow files of Hugging Face's `save_to_disk`: rows with an image.

| file | holds |
|---|---|
| `layout.py` | which files a path stands for, and their splits |
| `tables.py` | a file: its columns, its rows in batches of bounded size, and their values |
| `source.py` | which columns are packed, and the rows that a worker reads, as a source |

Only `layout.py` is loaded without pyarrow, which comes with `rawpack[parquet]`.
"""

from __future__ import annotations
