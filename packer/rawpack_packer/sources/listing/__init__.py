"""Listings: what images there are, and their fields, said in files.

| file | holds |
|---|---|
| `reading.py` | a CSV, TSV or JSON-lines file: a column of paths, and others |
| `lines.py` | its lines and rows |
| `columns.py`, `numbers.py`, `paths.py` | its columns: what they hold, by look or by word |
| `cells.py`, `place.py` | what a cell holds; where a column stands |
| `faults.py` | what is wrong with it, the first twenty faults at once |
| `yolo.py` | a folder with a text file of boxes for each image |
| `coco.py` | COCO's JSON of images, boxes and categories |
| `table.py` | what comes of all of them: an array for each column |
"""

from __future__ import annotations

from rawpack_packer.sources.listing.coco import CocoSource
from rawpack_packer.sources.listing.faults import BadListingError
from rawpack_packer.sources.listing.lines import SUFFIXES
from rawpack_packer.sources.listing.reading import ListingSource
from rawpack_packer.sources.listing.yolo import YoloSource, is_yolo

__all__ = ["SUFFIXES", "BadListingError", "CocoSource", "ListingSource", "YoloSource", "is_yolo"]
