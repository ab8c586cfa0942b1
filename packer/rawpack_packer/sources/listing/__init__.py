"""Listings: files that name images and hold their fields.

| file | holds |
|---|---|
| `reading.py` | a listing file as a source, or as fields for samples that are packed already |
| `metadata.py`, `parts.py`, `img2dataset.py` | folders that are listings: with a metadata.csv, of Parquet files, of img2dataset |
| `lines.py` | its rows and cells: an entry of `READERS` for each kind of file; the paths in it; and what is wrong with it |
| `columns.py` | its columns: what they hold, declared or inferred |
| `captions.py`, `objects.py` | rows that are texts or boxes of one image |
"""

from __future__ import annotations
