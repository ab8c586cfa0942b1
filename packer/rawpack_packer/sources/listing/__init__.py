"""Listings: files that name images and hold their fields.

| file | holds |
|---|---|
| `reading.py` | a CSV, TSV or JSON-lines file as a source, or as fields for samples that are packed already |
| `metadata.py` | a folder with a metadata.csv, which lists its images |
| `lines.py` | its rows and cells: an entry of `READERS` for each kind of file |
| `columns.py`, `paths.py` | its columns: what they hold, declared or inferred |
| `faults.py` | what is wrong with it: the first fault, with its place |
| `yolo.py` | images with a text file each, of boxes, polygons or keypoints |
| `ultralytics.py` | the data.yaml that says where they are |
| `voc.py` | Pascal VOC's folders and XML files |
| `coco.py`, `coco_json.py` | COCO's JSON of images, boxes and categories |
| `coco_objects.py`, `coco_masks.py` | its annotations as columns; its polygons and run lengths as masks |
| `points.py` | columns of keypoints and polygons |
"""

from __future__ import annotations
