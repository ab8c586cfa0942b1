"""Data sets of boxes: COCO's JSON, Pascal VOC's folders, and YOLO's text files.

| file | holds |
|---|---|
| `coco.py` | COCO's JSON of images, boxes and categories |
| `coco_objects.py` | its annotations as columns; its polygons and run lengths as masks |
| `voc.py` | Pascal VOC's folders and XML files |
| `yolo.py` | images with a text file each, of boxes, polygons or keypoints |
| `ultralytics.py` | the data.yaml that says where they are |
"""

from __future__ import annotations
