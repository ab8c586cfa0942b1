"""Listings: files that name images and hold their fields.

| file | holds |
|---|---|
| `reading.py` | a listing file as a source, or as fields for samples that are packed already |
| `metadata.py` | folders that are listings |
| `lines.py` | its rows and cells: an entry of `READERS` for each kind; its paths, and what is wrong with it |
| `columns.py` | its columns: what they hold, declared or inferred |
| `objects.py` | rows that are boxes or texts of one image |
"""

from __future__ import annotations
