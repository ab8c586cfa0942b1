"""Listings: files that name images and hold their fields.

| file | holds |
|---|---|
| `reading.py` | a CSV, TSV or JSON-lines file, or a plain list of paths, as a source |
| `lines.py` | its rows and cells: a row of `READERS` for each kind of file |
| `columns.py`, `numbers.py`, `paths.py` | its columns: what they hold, declared or inferred |
| `faults.py` | what is wrong with it, the first twenty faults at once |
| `yolo.py` | a folder with a text file of boxes for each image |
| `coco.py` | COCO's JSON of images, boxes and categories |
| `table.py` | what all of them become: an array for each column |
"""

from __future__ import annotations

from rawpack_packer.sources.listing.coco import CocoSource
from rawpack_packer.sources.listing.faults import BadListingError
from rawpack_packer.sources.listing.lines import SUFFIXES
from rawpack_packer.sources.listing.reading import ListingSource
from rawpack_packer.sources.listing.yolo import YoloSource, is_yolo

__all__ = ["SUFFIXES", "BadListingError", "CocoSource", "ListingSource", "YoloSource", "is_yolo"]
