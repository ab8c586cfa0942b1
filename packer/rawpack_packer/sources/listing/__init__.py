"""Listings: files that name images and hold their fields.

| file | holds |
|---|---|
| `reading.py` | a CSV, TSV or JSON-lines file as a source, or as fields for samples that are packed already |
| `metadata.py` | a folder with a metadata.csv, which lists its images |
| `lines.py` | its rows and cells: an entry of `READERS` for each kind of file |
| `columns.py`, `paths.py` | its columns: what they hold, declared or inferred |
| `faults.py` | what is wrong with it: the first fault, with its place |
| `points.py` | columns of keypoints and polygons |
"""

from __future__ import annotations
