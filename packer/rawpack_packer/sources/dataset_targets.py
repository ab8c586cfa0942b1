"""Targets of detection datasets, as torchvision's have them: what they hold as fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.fields import Boxes, FieldKind, as_array
from rawpack_packer.sources.table.choose import LABEL
from rawpack_packer.sources.table.objects import BOXES

TARGETS = (LABEL, "target")
"""What targets are called in samples: a tuple's second value is a label."""
_CROWDS, _INSTANCES, _OBJECT = "crowds", "instances", "object"
_OF_IMAGES = ("image_id", "size", "orig_size")
"""Entries that belong to the image, and not to its boxes."""


def with_targets(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample with the fields of its target, if it has one: a dict of `boxes` and `labels`, or a list of COCO's
    annotations. An empty list stays, since it may be anything. Raises DecodeError for a target that is damaged."""
    for name in TARGETS:
        target, fields = sample.get(name), None
        if isinstance(target, Mapping) and BOXES in target:
            fields = _of_arrays(target)
        elif isinstance(target, list) and target and all(isinstance(one, Mapping) and "bbox" in one for one in target):
            fields = of_annotations(target)
        if fields is not None:
            return {**{other: value for other, value in sample.items() if other != name}, **fields}
    return sample


def of_annotations(target: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`boxes` of left, top, width, height and category, and `crowds`, the boxes of crowds."""
    try:
        rows = [(*one["bbox"], one.get("category_id", -1)) for one in target]
        boxes = np.array(rows, np.float32).reshape(-1, 5)
    except (TypeError, ValueError) as error:
        raise DecodeError("bad_field", f"bbox and category_id are not five numbers: {error}") from error
    crowd = np.array([bool(one.get("iscrowd", 0)) for one in target], bool)
    return {BOXES: Boxes(boxes[~crowd], "xywh"), _CROWDS: Boxes(boxes[crowd], "xywh")}


def _of_arrays(target: Mapping[str, Any]) -> dict[str, Any]:
    """`boxes` of left, top, right, bottom and class; masks (n, H, W) as `instances`, one mask (H, W) that has for each
    pixel the number of its object, and `object`, the number of each box; the others as they are."""
    boxes = _numbers(target, BOXES).reshape(-1, 4)
    others = {str(name): value for name, value in target.items() if name not in (BOXES, "labels", "masks")}
    if "labels" in target:
        labels = _numbers(target, "labels").reshape(-1, 1)
        if len(labels) != len(boxes):
            raise DecodeError("bad_field", f"it has {len(boxes)} boxes and {len(labels)} labels")
        boxes = np.concatenate([boxes, labels], axis=1)
    if "image_id" in others and (number := as_array(others["image_id"])) is not None and number.size == 1:
        others["image_id"] = int(number.reshape(-1)[0])
    if "masks" in target:
        masks = _numbers(target, "masks")
        numbers = np.arange(1, len(boxes) + 1, dtype=np.uint16)
        if masks.ndim != 3 or len(masks) != len(boxes):
            raise DecodeError("bad_field", f"it has {len(boxes)} boxes and masks of shape {masks.shape}")
        painted = ((masks != 0) * numbers[:, None, None]).max(axis=0, initial=0)
        others |= {_INSTANCES: painted.astype(np.uint16), _OBJECT: numbers.astype(np.int64)}
    return {BOXES: Boxes(boxes.astype(np.float32), "xyxy"), **others}


def _numbers(target: Mapping[str, Any], name: str) -> NDArray[Any]:
    array = as_array(target[name])
    if array is None or array.size % (4 if name == BOXES else 1):
        raise DecodeError("bad_field", f"{name} of its target are no numbers of boxes")
    return array


def target_kinds(sample: Mapping[str, Any]) -> dict[str, FieldKind | str]:
    """What fields of targets are, by those of a sample; empty for a sample without a target."""
    boxes = sample.get(BOXES)
    if not isinstance(boxes, Boxes):
        return {}
    kinds = dict[str, FieldKind | str]()
    for name, value in sample.items():
        array = as_array(value) if not isinstance(value, Boxes) else None
        if isinstance(value, Boxes):
            kinds[name] = FieldKind("float32", (None, value.rows.shape[1]), boxes=value.form)
        elif name == _INSTANCES:
            kinds[name] = "mask"
        elif name == "keypoints" and array is not None and array.ndim == 3:
            kinds[name] = FieldKind("float32", (None, *array.shape[1:]), follows="keypoints")
        elif name not in ("image", *_OF_IMAGES) and array is not None and array.shape[:1] == (len(boxes.rows),):
            kinds[name] = FieldKind(array.dtype.name, (None, *array.shape[1:]), follows="rows")
    return kinds


def by_category(boxes: Boxes, categories: Sequence[int]) -> Boxes:
    """Boxes with the numbers of classes in place of COCO's ids of categories, which are sorted. Raises DecodeError."""
    ids = boxes.rows[:, 4]
    if len(strange := ids[~np.isin(ids, categories)]):
        raise DecodeError("bad_field", f"category_id {strange[0]:g} is none of the {len(categories)} categories")
    return Boxes(np.column_stack([boxes.rows[:, :4], np.searchsorted(categories, ids)]), boxes.form, boxes.size)
