"""Transforms of Albumentations and torchvision as steps, against steps of rawpack that do the same."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rectangles import KINDS, check_alike, objects, read

import rawpack_packer
from rawpack import Reader, UsageError, Workers
from rawpack import transforms as t

FIELDS = ["image", "label", *(name for name in KINDS if name != "depth")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    path = tmp_path_factory.mktemp("objects") / "s"
    rawpack_packer.pack([objects(i) for i in range(11)], path, fields=KINDS, format="memmap", workers=0)
    return Reader(path)


def test_albumentations(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flip and a crop move pixels and annotations as ours do, and a chain does not depend on workers."""
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")  # it would ask a server for its newest version
    albumentations = pytest.importorskip("albumentations")

    def composed(*steps: Any) -> t.Albumentations:
        boxes = albumentations.BboxParams("pascal_voc", label_fields=["class_name"])
        points = albumentations.KeypointParams("xy", remove_invisible=False)
        return t.Albumentations(albumentations.Compose(steps, bbox_params=boxes, keypoint_params=points))

    flip, crop = composed(albumentations.HorizontalFlip(p=1)), composed(albumentations.CenterCrop(30, 30))
    check_alike(made(reader, flip, workers=2), made(reader, t.RandomHorizontalFlip(1.0)), FIELDS)
    others = [name for name in FIELDS if name != "polygons"]
    check_alike(made(reader, crop), made(reader, t.CenterCrop(30)), others)
    chain = composed(albumentations.RandomCrop(30, 30), albumentations.Affine(rotate=(-20, 20), p=1))
    check_alike(made(reader, chain, workers=2), made(reader, chain), FIELDS)


def test_torchvision(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes that leave take their numbers along, a chain does not depend on workers, and what it cannot move is
    refused."""
    monkeypatch.syspath_prepend(str(Path(sys.prefix) / "torchvision"))  # see test_resample_torchvision.py
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    from trainers.scripts.with_torchvision import make_torchvision_importable

    make_torchvision_importable()
    from torchvision.transforms import v2

    fields = ["image", "mask", "depth", "boxes", "number"]
    flip = t.Torchvision(v2.RandomHorizontalFlip(p=1))
    check_alike(made(reader, flip, fields=fields), made(reader, t.RandomHorizontalFlip(1.0), fields=fields), fields)
    chain = t.Torchvision(v2.Compose([v2.RandomCrop(30), v2.RandomHorizontalFlip(), v2.SanitizeBoundingBoxes()]))
    # Threads: a new process would not have the operators that were declared above.
    threads = made(reader, chain, fields=fields, workers=Workers(2, backend="thread"))
    check_alike(threads, made(reader, chain, fields=fields), fields)
    assert threads[0]["image"].shape == (30, 30, 3)
    with pytest.raises(UsageError, match="cannot move 'polygons'"):
        made(reader, chain)


def made(reader: Reader, *steps: Any, **options: Any) -> list[dict[str, Any]]:
    """The samples of an epoch, one by one."""
    return read(reader, *steps, **{"fields": FIELDS, **options})
