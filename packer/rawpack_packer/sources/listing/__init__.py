"""Listings: files that name images and hold their fields.

| file | holds |
|---|---|
| `reading.py` | a CSV, TSV or JSON-lines file as a source |
| `metadata.py` | a folder with a metadata.csv, which lists its images |
| `lines.py` | its rows and cells: a row of `READERS` for each kind of file |
| `columns.py`, `numbers.py`, `paths.py` | its columns: what they hold, declared or inferred |
| `faults.py` | what is wrong with it: the first fault, with its place |
| `points.py` | columns of keypoints and polygons |
| `table.py` | what all of them become: an array for each column |
"""

from __future__ import annotations
