"""`rawpack export` for Hugging Face: the data card of tables, folders of images, and what `datasets` loads of both.

The oracles are PyYAML, json, pyarrow, Pillow and, where it is installed, `datasets`.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from folders import states_of
from pictures import encoded, picture
from PIL import Image
from running import run_here

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.disk.manifest import seal

yaml = pytest.importorskip("yaml")
NAMES = ["cat", "no", "1", "a: b", "é\u2028\x85\x7f\tx", "#'\"\\", "文 😀", "null", "~"]
"""Names of classes that YAML would take for something else, or that are no text in it."""
SPLITS = {"train": 12, "val-2": 5}


def samples_of(split: str) -> list[dict[str, Any]]:
    """JPEG files, with a field of every kind that a table holds; the last has no class."""
    count = SPLITS[split]
    return [
        {
            "image": encoded(picture(20, 30, i), "JPEG"),
            "label": i % len(NAMES) if i < count - 1 else -1,
            "text": f"{i} 文{split[0]}",
            "yes": bool(i % 2),
            "half": np.float16(i / 4),
            "vector": np.arange(6, dtype=np.int16).reshape(2, 3) - i,
            "boxes": np.array([[1, 2, 9, 8, k] for k in range(i % 3)], np.float32).reshape(-1, 5),
            "seg": np.full((20, 30), i, np.uint8),
        }
        for i in range(count)
    ]


FIELDS = {"boxes": "xyxy[5]", "seg": "mask"}
KEEP: dict[str, Any] = {"size": "keep", "quality": "keep", "format": "lmdb", "workers": 0}


@pytest.fixture(scope="module")
def set_of_splits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits, of classes whose names are hard to write down."""
    root = tmp_path_factory.mktemp("set")
    for split in SPLITS:
        rawpack_packer.pack(samples_of(split), root / split, fields=FIELDS, classes=NAMES, **KEEP)
    (root / "splits.json").write_bytes(seal(json.dumps({"splits": [*SPLITS]}, indent=1).encode()))
    return root


@pytest.fixture(scope="module")
def hub(set_of_splits: Path) -> Path:
    folder = set_of_splits.parent / f"{set_of_splits.name} hub"
    done = rawpack_packer.export(set_of_splits, folder, to="parquet", shard_size="3kB", workers=1)
    assert (done.samples, done.splits) == (17, (*SPLITS,))
    return folder


@pytest.fixture(scope="module")
def folders(set_of_splits: Path) -> Path:
    """As files."""
    folder = set_of_splits.parent / f"{set_of_splits.name} folders"
    rawpack_packer.export(set_of_splits, folder, workers=1)
    return folder


def test_the_card_says_columns_classes_splits_and_files(hub: Path) -> None:
    """As YAML and pyarrow read them: the columns of the tables, every name of a class as it is, the samples and bytes
    of each split, and files that are there."""
    _, text, body = (hub / "README.md").read_text("utf-8").split("---\n", 2)
    assert body.startswith("\n# Dataset\n")
    head = yaml.safe_load(text)
    columns = {one["name"]: one for one in head["dataset_info"]["features"]}
    files = {split: sorted((hub / split).glob("*.parquet")) for split in SPLITS}
    assert all(len(some) > 1 for some in files.values())
    assert [*columns] == pq.read_schema(files["train"][0]).names
    assert columns["label"]["dtype"]["class_label"]["names"] == {str(i): name for i, name in enumerate(NAMES)}
    assert columns["image"]["dtype"] == columns["seg"]["dtype"] == "image"
    assert columns["boxes"]["sequence"] == {"sequence": "float32", "length": 5}
    assert columns["vector"] == {"name": "vector", "sequence": {"sequence": "int16", "length": 3}, "length": 2}
    assert [columns[name]["dtype"] for name in ("key", "text", "yes", "half")] == ["string"] * 2 + ["bool", "float16"]
    splits = [(one["name"], one["num_examples"]) for one in head["dataset_info"]["splits"]]
    assert splits == [("train", 12), ("val_2", 5)]
    assert head["dataset_info"]["download_size"] == sum(one.stat().st_size for some in files.values() for one in some)
    (config,) = head["configs"]
    for one, split in zip(config["data_files"], SPLITS, strict=True):
        assert sorted(hub.glob(one["path"])) == files[split]


@pytest.mark.parametrize("to", ["parquet", "files"])
def test_datasets_loads_it(hub: Path, folders: Path, set_of_splits: Path, tmp_path: Path, to: str) -> None:
    """The folder of tables by its card, with all splits, and that of images as an `imagefolder`: labels, also of no
    class, all other fields, and masks as images."""
    datasets = pytest.importorskip("datasets")
    if to == "parquet":
        loaded = datasets.load_dataset(str(hub), cache_dir=str(tmp_path))
        assert [*loaded] == ["train", "val_2"]
        assert loaded["train"].features["label"].names == NAMES
    else:
        loaded = datasets.load_dataset("imagefolder", data_dir=str(folders / "train"), cache_dir=str(tmp_path))
    for split, one in zip(SPLITS, loaded.values(), strict=to == "parquet"):
        reader, samples = Reader(set_of_splits / split), samples_of(split)
        assert set(one.column_names) == {"image", "key", *samples[0]}
        for row, sample, packed in zip(one, samples, reader, strict=True):
            named = NAMES[sample["label"]] if sample["label"] >= 0 else None
            assert row["label"] == (named if to == "files" else sample["label"])
            assert (row["text"], row["yes"], row["half"]) == (sample["text"], sample["yes"], sample["half"])
            assert (row["vector"], row["boxes"]) == (sample["vector"].tolist(), sample["boxes"].tolist())
            assert np.array_equal(np.asarray(row["image"]), np.asarray(Image.open(io.BytesIO(sample["image"]))))
            assert np.array_equal(np.asarray(row["seg"]), packed["seg"][..., 0])


def test_a_set_resumes_and_its_card_stays(hub: Path, set_of_splits: Path, tmp_path: Path) -> None:
    """A second run writes nothing, also where the card was edited."""
    shutil.copytree(hub, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("mine")
    before = states_of(tmp_path / "copy")
    again = rawpack_packer.export(set_of_splits, tmp_path / "copy", to="parquet", shard_size="3kB", workers=1)
    assert (again.already, states_of(tmp_path / "copy")) == (True, before)


def test_a_folder_of_others_is_refused_for_a_set(set_of_splits: Path, tmp_path: Path) -> None:
    """A card of something else: nothing is written. --split names what one store is."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    before = states_of(tmp_path)
    with pytest.raises(UsageError, match=r"contains .*README\.md"):
        rawpack_packer.export(set_of_splits, tmp_path / "mine", to="parquet")
    with pytest.raises(UsageError, match="has splits: name"):
        rawpack_packer.export(set_of_splits, tmp_path / "out", to="parquet", split="train")
    assert states_of(tmp_path) == before


def same(was: Reader, now: Reader) -> None:
    """All samples, classes and fields."""
    assert (now.classes, {**now.fields}) == (was.classes, {**was.fields})
    for one, two in zip(was, now, strict=True):
        assert one.keys() == two.keys()
        assert all(np.array_equal(value, two[name]) for name, value in one.items())


@pytest.mark.parametrize("to", ["parquet", "files"])
def test_a_set_that_was_exported_packs_again_to_the_same_set(
    set_of_splits: Path, hub: Path, folders: Path, tmp_path: Path, to: str
) -> None:
    """Whatever the splits are called: the same classes, and the same samples under the same keys."""
    source = hub if to == "parquet" else folders
    rawpack_packer.pack_splits(source, tmp_path / "again", splits=[*SPLITS], **KEEP)
    for split in SPLITS:
        same(Reader(set_of_splits / split), Reader(tmp_path / "again" / split))


def test_a_folder_says_all_by_its_listing(tmp_path: Path) -> None:
    """Packed as it is, without any option: folders in keys are neither classes nor splits, nor names of kinds; a sample
    without a class has none again; classes without samples and the order of all stay."""
    keys = ["train/b.jpg", "val/a.jpg", "images/x.jpg", "labels/train/y.jpg", "val/c.jpg"]
    rows = [
        {"image": picture(8, 8, i), "label": label, "depth": picture(8, 8, i), "subset": ["train", "val"][i % 2]}
        for i, label in enumerate([2, -1, 0, 2, -1])
    ]
    said = {"depth": "image", "subset": "str"}
    rawpack_packer.pack(rows, tmp_path / "store", keys=keys, classes=["val", "never", "train"], fields=said, workers=0)
    rawpack_packer.export(tmp_path / "store", tmp_path / "out", workers=1)
    ran = run_here("pack", "--workers", 0, "--size", 8, tmp_path / "out", tmp_path / "again")
    assert (ran.code, "not images" in ran.out) == (0, False), ran.err
    same(Reader(tmp_path / "store"), Reader(tmp_path / "again"))
