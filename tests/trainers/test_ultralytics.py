"""Ultralytics trains from a store: `train_yolo.py` of docs/how-to/train-with-timm-and-ultralytics.md, run as it is.

Boxes are red (class 0) and blue (class 1) on gray, so that pixels say whether a box is where it belongs. Otherwise,
Ultralytics' own dataset, which reads the files, says what is right.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from running import run_here
from trained import run_script

from rawpack import Reader, UsageError

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(find_spec("ultralytics") is None, reason="needs ultralytics"),
    pytest.mark.filterwarnings(*(f"ignore::Warning:{name}" for name in ("ultralytics", "torchvision", "torch"))),
]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-with-timm-and-ultralytics.md"
WITH_TORCHVISION = Path(__file__).parent / "scripts" / "with_torchvision.py"
TRAIN, VAL = 12, 5
COLORS = ((220, 30, 30), (30, 30, 220))
TURNED = "006.jpg"
"""A picture that its EXIF data turns by a quarter, as phones write them."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set in `set/`, `store/`, packed by the command of the page, and `train_yolo.py`."""
    folder = tmp_path_factory.mktemp("ultralytics")
    for split, numbers in (("train", range(TRAIN)), ("val", range(TRAIN, TRAIN + VAL))):
        for number in numbers:
            save_sample(folder / "set", split, number)
    settings = f"path: {folder / 'set'}\ntrain: images/train\nval: images/val\nnames:\n  0: red\n  1: blue\n"
    (folder / "set" / "data.yaml").write_text(settings)
    text = PAGE.read_text("utf-8")
    [command] = re.findall(r"^\$ rawpack (pack --source yolo .*)$", text, re.MULTILINE)
    with chdir(folder):
        ran = run_here(*command.split(), "--workers", 0)
    assert ran.code == 0, ran
    [code] = re.findall(r"^```python needs=ultralytics notest\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (folder / "train_yolo.py").write_text(code)
    return folder


def save_sample(root: Path, split: str, number: int) -> None:
    """A picture with 0 to 2 boxes, in other places in each, and its file of labels."""
    shape = 5 * number % TRAIN  # in the order of their names, their proportions rise and fall
    height, width = 200 + 9 * shape, 320 - 13 * shape
    pixels = np.full((height, width, 3), 90 + number, np.uint8)
    lines = []
    for k in range(number % 3):
        left, top = 8 + 90 * k + number, 20 + 30 * k + 3 * number
        wide, high = 40 + number, 50 + 2 * number
        pixels[top : top + high, left : left + wide] = COLORS[(k + number) % 2]
        center = (left + wide / 2) / width, (top + high / 2) / height
        lines.append(" ".join(map(str, [(k + number) % 2, *center, wide / width, high / height])))
    for kind in ("images", "labels"):
        (root / kind / split).mkdir(parents=True, exist_ok=True)
    name = f"{number:03}.png"
    if f"{number:03}.jpg" == TURNED:
        name, exif = TURNED, Image.Exif()
        exif[0x0112] = 6  # shown turned to the right, so it is saved turned to the left
        Image.fromarray(np.rot90(pixels)).save(root / "images" / split / name, quality=95, exif=exif)
    else:
        Image.fromarray(pixels).save(root / "images" / split / name)
    (root / "labels" / split / f"{number:03}.txt").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of the page for work without a network, with a font in its folder."""
    import matplotlib

    folder = tmp_path_factory.mktemp("config")
    (folder / "Ultralytics").mkdir()
    font = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    shutil.copy(font, folder / "Ultralytics" / "Arial.ttf")
    return {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_CONFIG_DIR": str(folder)}


@pytest.fixture
def page(place: Path, offline: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, in its folder."""
    from trainers.scripts.with_torchvision import make_torchvision_importable

    make_torchvision_importable()
    for name, value in offline.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    import train_yolo

    return train_yolo


def both(page: ModuleType, place: Path, split: str, **options: Any) -> tuple[Any, Any]:
    """Ultralytics' dataset over the files, and that of the page."""
    from ultralytics.cfg import get_cfg
    from ultralytics.data import YOLODataset

    from rawpack.integrations.ultralytics import images_of_store

    options = {"imgsz": 160, "hyp": get_cfg(), "augment": False, "batch_size": 4} | options
    options |= {"data": {"path": place / "set", "names": {0: "red", 1: "blue"}, "nc": 2}, "task": "detect"}
    images = str(place / "set" / "images" / split)
    return YOLODataset(images, cache=options.pop("cache", False), **options), images_of_store()(
        Reader("store/"), images, **options
    )


def tolerance(sample_file: str) -> int:
    """How far values may differ: two decoders of JPEG round differently, PNG is exact."""
    return 3 if Path(sample_file).name == TURNED else 0


def assert_same(ours: dict[str, Any], theirs: dict[str, Any], atol: int) -> None:
    """Two samples are the same, but for differences of the pixels up to `atol`."""
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        one, other = np.asarray(ours[name]), np.asarray(value)
        assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        if name == "img":
            assert np.abs(one.astype(int) - other).max() <= atol
        else:
            assert np.array_equal(one, other), name


@pytest.mark.parametrize("options", [{}, {"rect": True, "pad": 0.5}, {"imgsz": 400}, {"classes": [1]}], ids=str)
def test_samples_are_those_of_the_files(page: ModuleType, place: Path, options: dict[str, Any]) -> None:
    """Without augmentation, each sample is that of Ultralytics' own dataset: pixels, boxes, shapes, file. Also in
    validation, which sorts by shape, where images are enlarged, and with a choice of classes."""
    theirs, ours = both(page, place, "train", **options)
    assert len(ours) == len(theirs) == TRAIN
    for i in range(TRAIN):
        atol = tolerance(theirs.im_files[i])
        assert_same(ours[i], theirs[i], atol)
        for mode in ((True,), (False,), (True, True)):
            (image, *shapes), (expected, *others) = (dataset.load_image(i, *mode) for dataset in (ours, theirs))
            assert shapes == others
            assert np.abs(image.astype(int) - expected).max() <= atol


def test_an_image_that_is_not_in_the_store(page: ModuleType, place: Path, tmp_path: Path) -> None:
    """A data set with an image more than the store is refused, by the name of the image."""
    for folder in ("images", "labels"):
        shutil.copytree(place / "set" / folder / "val", tmp_path / "set" / folder / "val")
    shutil.copy(tmp_path / "set" / "images" / "val" / "013.png", tmp_path / "set" / "images" / "val" / "new.png")
    with pytest.raises(UsageError, match=r"images/val/new\.png"):
        both(page, tmp_path, "val")


def test_the_script_of_the_page(place: Path, offline: dict[str, str], tmp_path: Path) -> None:
    """Trains and validates for an epoch without any connection, on each image once, and writes weights. Each box that
    the model is given has the color of its class, though the files are black by then: pixels come from the store."""
    run = shutil.copytree(place, tmp_path / "run")
    (run / "set" / "data.yaml").write_text((place / "set" / "data.yaml").read_text().replace(str(place), str(run)))
    for image in (run / "set" / "images").rglob("*.*"):
        with Image.open(image) as opened:
            size, exif = opened.size, opened.getexif()
        Image.new("RGB", size).save(image, exif=exif)
    with chdir(run):
        [printed] = run_script(WITH_TORCHVISION, "train_yolo.py", "batches.jsonl", timeout=280, **offline)
    batches = [json.loads(line) for line in (run / "batches.jsonl").read_text().splitlines()]
    assert [len(batch["files"]) for batch in batches] == [4, 4, 4]
    trained = sorted(name for batch in batches for name in batch["files"])
    assert trained == sorted(path.name for path in (run / "set" / "images" / "train").iterdir())
    boxes = [box for batch in batches for box in batch["boxes"]]
    assert len(boxes) >= 6
    assert {label for _, label, *_ in boxes} == {0, 1}
    assert all((red > blue + 50, blue > red + 50)[label] for _, label, red, _, blue in boxes)
    assert re.search(rf"all +{VAL} +4 ", printed), printed
    assert len(list(run.rglob("weights/last.pt"))) == 1


def test_the_trainer_survives_its_pickle(place: Path, offline: dict[str, str], tmp_path: Path) -> None:
    """Ultralytics pickles the class of the trainer for the process of each GPU. One such process trains on the CPU,
    with a class that is not in any module there."""
    (tmp_path / "store").symlink_to(place / "store")
    script = tmp_path / "launch.py"
    script.write_text(
        f"""
from rawpack import Reader
from rawpack.integrations.ultralytics import store_trainer
from ultralytics.utils.dist import generate_ddp_file

options = dict(model="yolo11n.yaml", data={str(place / "set" / "data.yaml")!r}, imgsz=64, batch=4, epochs=1)
options |= dict(device="cpu", plots=False, val=False)
print(generate_ddp_file(store_trainer(Reader("store/"))(overrides=options)))
"""
    )
    with chdir(tmp_path):
        [printed] = run_script(WITH_TORCHVISION, script, timeout=280, **offline)
        script.unlink()
        run_script(WITH_TORCHVISION, printed.split()[-1], "batches.jsonl", timeout=280, **offline)
    assert len((tmp_path / "batches.jsonl").read_text().splitlines()) == 3
