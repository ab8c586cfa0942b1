"""Annotations beside images: what a folder would lose in silence stops the command, which says what to type instead."""

from __future__ import annotations

import io
import json
import re
import shlex
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived import tar as tarred
from archived import zipped
from folders import files_of
from pictures import encoded
from running import run_here, stop_of

import rawpack
from rawpack import Reader
from rawpack.errors import UsageError
from rawpack_packer.sources import AnnotatedError, open_source

SMALL = ("--workers", 0, "--size", 8, "--quiet")


RED = np.full((10, 10, 3), (255, 0, 0), np.uint8)
JPEG = encoded(RED, "JPEG")
VOC_XML = (
    "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox>"
    "</object></annotation>"
)
_TAGS = ((271, 2, 1), (330, 4, 1))
"""Of a TIFF directory: the maker of the camera, and where further images are."""
RAW = struct.pack("<4sIH", b"II*\0", 8, 2) + b"".join(struct.pack("<HHII", *tag, 0) for tag in _TAGS) + bytes(4)
Files = Mapping[str, str | bytes]


def coco(*names: str) -> str:
    """COCO's JSON of these images, with a box in the first."""
    images = [{"id": i, "file_name": name, "width": 10, "height": 10} for i, name in enumerate(names)]
    box = {"id": 1, "image_id": 0, "category_id": 1, "bbox": [1, 1, 3, 3], "area": 9, "iscrowd": 0}
    return json.dumps({"info": {}, "images": images, "annotations": [box], "categories": [{"id": 1, "name": "cat"}]})


def images(*names: str) -> dict[str, str | bytes]:
    return dict.fromkeys(names, JPEG)


def write(root: Path, files: Files) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return root


def tar(path: Path, files: Files) -> Path:
    path.write_bytes(tarred(files))
    return path


def parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), file)
    return file.getvalue()


CLASSES = images("cat/0.jpg", "cat/1.jpg", "dog/0.jpg")
# ---------------------------------------------------------------------------------------------- layouts that pack

PACKS: dict[str, tuple[Files, str, str, int, tuple[str, ...] | None]] = {
    "usual neighbors": (
        CLASSES
        | dict.fromkeys(
            (
                "README", "README.md", "readme.txt", "LICENSE", "LICENSE.txt", "requirements.txt", "Thumbs.db",
                ".DS_Store", "synset_words.txt", "wnids.txt", "cat/notes.txt", "cat/.hidden.json",
            ),
            "words of all kinds",
        )
        | {"classes.txt": "cat\ndog\n", "labels.txt": "cat\ndog\n"}
        | {"dataset-metadata.json": '{"title": "x"}', "args.json": "{}", "config.json": '{"a": 1}'}
        | {"class_to_idx.json": '{"cat": 0, "dog": 1}', "empty.csv": "", "train.py": "print()", "best.pt": "x"},
        "", "folder", 3, ("cat", "dog"),
    ),
    "ILSVRC train, with lists": (
        images("n01440764/n01440764_10026.JPEG", "n01443537/n01443537_2.JPEG")
        | {"train.txt": "n01440764/n01440764_10026.JPEG 0\nn01443537/n01443537_2.JPEG 1\n"}
        | {"LOC_synset_mapping.txt": "n01440764 tench, Tinca tinca\n"},
        "", "folder", 2, ("n01440764", "n01443537"),
    ),
    "split of class folders in JSON": (
        CLASSES | {"split_zhou.json": '{"train": [["cat/0.jpg", 0, "cat"]]}'}, "", "folder", 3, ("cat", "dog"),
    ),
    "raw files that begin as TIFF": (
        images("0.jpg", "1.jpg") | {"0.nef": RAW, "1.nef": RAW, "scan": encoded(RED, "TIFF")}, "", "folder",
        3, None,
    ),
    "an archive with usual neighbors": (
        {"a.tar": tarred(CLASSES | {"classes.txt": "cat\ndog\n", "README.md": "x", "LICENSE": "x"})}, "a.tar",
        "archive", 3, ("cat", "dog"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKS)
def test_layouts_that_lose_nothing_pack_as_they_are(name: str, tmp_path: Path) -> None:
    """Class folders, splits, shards, YOLO, VOC and archives, with their usual neighbors, need no option."""
    files, inside, kind, samples, classes = PACKS[name]
    root = write(tmp_path / "data", files)
    source = open_source(root / inside)
    assert (source.info.kind, len(source)) == (kind, samples)
    if classes is not None:
        assert source.info.classes == classes


def test_a_database_and_labels_from_elsewhere_stop_nothing(tmp_path: Path) -> None:
    """An LSUN database packs as before, and so does Kaggle's archive of validation images with labels of its own."""
    with lmdb.open(str(tmp_path / "bedroom_val_lmdb"), map_size=1 << 20) as database, database.begin(write=True) as put:
        for i in range(2):
            put.put(f"{i:040x}".encode(), encoded(RED, "WEBP"))
    assert len(open_source(tmp_path / "bedroom_val_lmdb")) == 2
    names = ["ILSVRC2012_val_00000001", "ILSVRC2012_val_00000002"]
    table = "ImageId,PredictionString\n" + "".join(f"{name},n0{i} 1 2 3 4\n" for i, name in enumerate(names))
    (tmp_path / "LOC_val_solution.csv").write_text(table)
    tar(tmp_path / "val.tar", {f"{name}.JPEG": JPEG for name in names} | {"LOC_val_solution.csv": table})
    given = open_source(tmp_path / "val.tar", labels_file=tmp_path / "LOC_val_solution.csv")
    assert given.info.classes == ("n00", "n01")


# ---------------------------------------------------------------------------------------------- layouts that stop

STOPS: dict[str, tuple[Files, str, str, tuple[str, ...]]] = {
    "COCO's captions": (
        images("val2017/0.jpg")
        | {
            "annotations/captions_val2017.json": json.dumps(
                {"images": [{"id": 1, "file_name": "0.jpg"}], "annotations": [{"image_id": 1, "caption": "a"}]}
            )
        },
        "", "COCO's JSON annotations/captions_val2017.json", ("captions",),
    ),
    "COCO elsewhere": (
        images("pictures/0.jpg") | {"meta/all.json": coco("0.jpg")}, "", "COCO's JSON meta/all.json", ("boxes",),
    ),
    "a CSV of paths": (
        images("0.jpg", "1.jpg") | {"labels.csv": "path,label\n0.jpg,cat\n1.jpg,dog\n"}, "",
        "contains the table labels.csv next to its images", ("label",),
    ),
    "a TSV in a class": (CLASSES | {"cat/x.tsv": "file\ttext\n0.jpg\ta\n"}, "", "cat/x.tsv", ("text",)),
    "img2dataset's shards": (
        {f"0000{k}.tar": tarred({f"{k}0.jpg": JPEG, f"{k}0.txt": "a cat", f"{k}0.json": "{}"}) for k in range(2)}
        | {f"0000{k}_stats.json": "{}" for k in range(2)}
        | {f"0000{k}.parquet": parquet({"url": ["u"], "caption": ["a cat"], "key": [f"{k}0"]}) for k in range(2)},
        "", "contains members .txt, .json for the images", ("txt", "json"),
    ),
    "VOC's XML files beside the images": (
        images("0.jpg") | {"0.xml": VOC_XML}, "", "see docs/how-to/pack-detection-datasets.md#pascal-voc", (),
    ),
    "classes in folders of a tar": (
        {"x.tar": tarred({f"{i}.jpg": JPEG for i in range(70)} | {"0.cls": "1"})}, "x.tar", "0.cls for the image", (),
    ),
    "an ImageFolder in an archive": (
        {"x.tar": tarred(images("x/0.jpg") | {"x/metadata.csv": "file_name,text\n0.jpg,a\n"})}, "x.tar",
        "unpack it, and pack the folder", (),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("others", "stops"),
    [
        (("images/0.jpg", "images/1.jpg", "masks/0.png", "masks/1.png"), "mask"),
        (
            ("images/0.jpg", "images/1.jpg", "annotations/0_mask.png", "annotations/1_mask.png"),
            "see docs/how-to/pack-a-listing.md#masks",
        ),
        (("images/0.jpg", "images/1.jpg", "masks/carnival.png", "masks/theatre.png"), ""),
        (("left/0.jpg", "left/1.jpg", "right/0.png", "right/2.png"), ""),
        (("left/0.jpg", "right/0.jpg", "straight/0.jpg"), ""),
    ],
)
def test_a_folder_of_masks_or_partners_is_no_class(others: tuple[str, ...], stops: str, tmp_path: Path) -> None:
    """A folder of masks, depths or partners next to the one of their images stops, and the command in the error packs
    them; classes whose files have the same names, or a class that happens to be called so, do not."""
    pngs = {name: encoded(RED, "PNG") for name in others if name.endswith(".png")}
    write(tmp_path / "data", images(*others) | pngs)
    ran = run_here("pack", *SMALL, tmp_path / "data", tmp_path / "store")
    assert ran.code == (2 if stops else 0), ran.err
    assert stops in ran.err
    assert (tmp_path / "store").exists() != bool(stops)
    if stops == "mask":
        assert stops in packed_as_told(ran.err)


@pytest.mark.parametrize("name", STOPS)
def test_what_would_be_lost_stops_and_says_what_to_type(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit code 2, nothing written; the command in it then packs the annotations as fields, and `--source`
    the images alone."""
    files, inside, words, fields = STOPS[name]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my data", files)
    path = str(Path("my data") / inside)
    before = files_of(tmp_path)
    ran = run_here("pack", *SMALL, path, "store")
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert words in ran.err
    assert files_of(tmp_path) == before
    (kind,) = re.findall(r"--source (\w+) (?:packs the images alone|'my data')", ran.err)[-1:]
    assert kind in ("archive", "folder", "webdataset")
    if fields:
        assert packed_as_told(ran.err) >= set(fields)
    ran = run_here("pack", *SMALL, "--source", kind, path, "alone")
    assert ran.code == 0, ran.err
    assert {*Reader(tmp_path / "alone").fields} <= {"image", "label", "key"}


def packed_as_told(message: str) -> set[str]:
    """The fields of the store that the commands in a message make."""
    for command in re.findall("`([^`]+)`", message):
        words = shlex.split(command)
        if words[:2] != ["rawpack", "pack"]:
            subprocess.run(command, shell=True, check=True)
            continue
        ran = run_here("pack", *SMALL, *words[2:])
        assert ran.code == 0, ran.err
        return set(Reader(words[-1]).fields)
    raise AssertionError(message)


@pytest.mark.parametrize("archived", [False, True])
def test_what_is_above_splits_stops_the_splits(archived: bool, tmp_path: Path) -> None:
    """`--splits` loses no labels either: a table next to the folders of a competition stops it."""
    root = write(tmp_path / "data", images("train/0.jpg", "test/1.jpg") | {"labels.csv": "id,breed\n0,cat\n"})
    if archived:
        (tmp_path / "data.zip").write_bytes(zipped(files_of(root)))
    source = tmp_path / "data.zip" if archived else root
    for options in ((), ("--splits", "train,test")):
        ran = run_here("pack", *SMALL, *options, source, tmp_path / "sets")
        assert (ran.code, ran.out) == (2, "")
        assert "labels.csv" in ran.err
        assert not (tmp_path / "sets").exists()
    kind = "archive" if archived else "folder"
    ran = run_here("pack", *SMALL, "--source", kind, "--splits", "train,test", source, tmp_path / "sets")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("answers.txt", "train/0.jpg 1\ntrain/1.jpg 0\ntest/2.jpg 1\n"),
        ("per_image.lst", "1\n0\n1\n"),
        ("y.json", "[1, 0, 1]"),
        ("truth.mat", b"MATLAB 5.0 MAT-file, of anything"),
    ],
)
def test_a_list_above_splits_stops_where_no_folders_are_classes(name: str, data: bytes | str, tmp_path: Path) -> None:
    """Whatever it is called: it names half of the images, has as many rows, or is a file of arrays."""
    flat = write(tmp_path / "flat", images("train/0.jpg", "train/1.jpg", "test/2.jpg") | {name: data})
    for options in ((), ("--splits", "train,test")):
        ran = run_here("pack", *SMALL, *options, flat, tmp_path / "sets")
        assert (ran.code, ran.out) == (2, "")
        assert name in ran.err
        assert not (tmp_path / "sets").exists()
    kept = run_here("pack", *SMALL, "--source", "folder", "--splits", "train,test", flat, tmp_path / "sets")
    assert kept.code == 0, kept.err
    labeled = images("train/a/0.jpg", "train/b/1.jpg", "test/a/2.jpg", "test/b/3.jpg") | {name: data}
    ran = run_here("pack", *SMALL, "--splits", "train,test", write(tmp_path / "labeled", labeled), tmp_path / "two")
    assert ran.code == 0, ran.err


def test_boxes_of_splits_stop_the_splits(tmp_path: Path) -> None:
    """`--splits` of COCO's folder, or of Roboflow's, packs images with their boxes, or stops where a split has none."""
    own = images("train2017/0.jpg", "val2017/1.jpg") | {"annotations/instances_val2017.json": coco("1.jpg")}
    write(tmp_path / "coco", own)
    write(tmp_path / "robo", images("train/0.jpg", "valid/1.jpg"))
    for split, name in (("train", "0.jpg"), ("valid", "1.jpg")):
        write(tmp_path / "robo", {f"{split}/_annotations.coco.json": coco(name)})
    ran = run_here("pack", *SMALL, "--splits", "train2017,val2017", tmp_path / "coco", tmp_path / "sets")
    assert (ran.code, ran.out) == (2, "")
    assert "COCO's JSON" in ran.err
    assert not (tmp_path / "sets").exists()
    ran = run_here("pack", *SMALL, "--splits", "train,valid", tmp_path / "robo", tmp_path / "sets")
    assert ran.code == 0, ran.err
    assert all("boxes" in Reader(tmp_path / "sets" / split).fields for split in ("train", "valid"))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.jsonl", b'{"a": "\\ud800", "b": [1]}\n'),
        ("x.csv", b'\xff\xfe"\0,b\n1'),
        ("metadata.parquet", b"PAR1 is not all"),
        ("all.json", b'{"images": [{"file_name": "'),
    ],
)
def test_files_that_cannot_be_read_stop_too(name: str, data: bytes, tmp_path: Path) -> None:
    root = write(tmp_path / "data", images("0.jpg") | {name: data})
    ran = run_here("pack", *SMALL, root, tmp_path / "store")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1), ran
    assert not (tmp_path / "store").exists()


def test_python_plan_and_append_stop_too(tmp_path: Path) -> None:
    """Each door into the packer stops, in its own words, and names the command that helps there."""
    root = write(tmp_path / "data", images("0.jpg") | {"labels.csv": "path,label\n0.jpg,cat\n"})
    plain = write(tmp_path / "plain", images("0.jpg"))
    with pytest.raises(AnnotatedError, match=r"; kind='folder' packs the images alone"):
        rawpack.pack(root, tmp_path / "store", workers=0)
    with pytest.raises(UsageError, match=r"labels.csv"):
        rawpack.plan(root, budget=1)
    rawpack.pack(plain, tmp_path / "store", workers=0, size=8)
    ran = run_here("append", "--workers", 0, root, tmp_path / "store")
    command = shlex.join(["rawpack", "append", f"{root}/labels.csv", f"{tmp_path}/store"])
    assert (ran.code, f"`{command}`" in ran.err) == (2, True), ran.err
    assert f"`rawpack plan {root}/labels.csv`" in stop_of("plan", "--quiet", root)
    assert rawpack.pack(root, tmp_path / "alone", workers=0, size=8, kind="folder").manifest.samples == 1


def test_the_summary_names_what_was_skipped(tmp_path: Path) -> None:
    write(tmp_path / "data", CLASSES | {"a.md": "x", "b.md": "x", "cat/c.json": "{}", "LICENSE": "x"})
    ran = run_here("pack", *SMALL[:4], tmp_path / "data", tmp_path / "store")
    assert "files that are not images, skipped: 4 (.md 2, no suffix 1, .json 1)" in ran.out
    ran = run_here("pack", *SMALL, "--json", "--source", "folder", tmp_path / "data", tmp_path / "again")
    assert json.loads(ran.out)["skipped"] == {".md": 2, "": 1, ".json": 1}
    tar(tmp_path / "x.tar", {"0.jpg": JPEG, "0.txt": "a", "0.json": "{}", "1.jpg": JPEG, "1.txt": "b"})
    ran = run_here("pack", *SMALL[:4], "--source", "webdataset", tmp_path / "x.tar", tmp_path / "shards")
    assert "members that --field does not name, left out: 3 (.txt 2, .json 1)" in ran.out
    ran = run_here("pack", *SMALL[:4], "--field", "txt", tmp_path / "x.tar", tmp_path / "texts")
    assert "members that --field does not name, left out: 1 (.json 1)" in ran.out


@pytest.mark.parametrize(
    ("path", "files", "line"),
    [
        ("set", {"apart/0.pts": "a", "apart/1.pts": "b"}, ".pts files with the names of images, left out: apart/0.pts"),
        ("set", {"a.lst": "a\n" * 10}, "1 file that may describe the images, left out: a.lst"),
        (
            "set",
            images(*(f"cat/a{k}{end}.jpg" for k in range(2) for end in ("", "_edited"))),
            "may belong together, and each image is a sample",
        ),
        ("set.tar", {"cat/0.txt": "a"}, "1 .txt file with the name of an image, left out: cat/0.txt for cat/0.jpg"),
    ],
)
def test_files_that_may_be_labels_are_named_whatever_is_printed(
    path: str, files: Files, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the summary, on the standard error where there is none unless all are packed, and as an error by --strict; not
    with the kind."""
    monkeypatch.chdir(tmp_path)
    layout = images(*(f"{name}/{k}.jpg" for name in ("cat", "dog") for k in range(5))) | files
    tar(Path(path), layout) if path.endswith(".tar") else write(Path(path), layout)
    is_lost = "left out" in line
    line += ".*; --source (folder|archive) keeps it so"
    for number, options in enumerate(((), ("--json",), ("-q", "--dry-run"))):
        ran = run_here("pack", "--workers", 0, "--size", 8, *options, path, f"out{number}")
        assert ran.code == 0, ran.err
        words = re.sub(r"\s+", " ", ran.out if not options else ran.err)
        assert bool(re.search(line, words)) == (is_lost or not options), (options, ran)
    assert re.search(f"{line}; or leave out --strict", stop_of("pack", "--workers", 0, "--strict", path, "strict"))
    kind = "archive" if path.endswith(".tar") else "folder"
    ran = run_here("pack", "--workers", 0, "--size", 8, "--strict", "-q", "--source", kind, path, "alone")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_coco_with_its_first_image_missing_is_still_found(tmp_path: Path) -> None:
    """The folder of COCO's images is found although the first that the JSON lists is missing, which is what is said;
    without its entry, the splits are packed."""
    root = write(tmp_path / "coco", images("images/train2017/1.jpg", "images/val2017/2.jpg"))
    files = {"train": coco("gone.jpg", "1.jpg"), "val": coco("2.jpg")}
    write(root, {f"annotations/instances_{split}2017.json": text for split, text in files.items()})
    words = ("pack", *SMALL, "--splits", "train2017,val2017", root, tmp_path / "store")
    assert f"$.images[0].file_name: there is no file gone.jpg below {root}/images/train2017" in stop_of(*words)
    write(root, {"annotations/instances_train2017.json": coco("1.jpg")})
    ran = run_here(*words)
    assert ran.code == 0, ran
    assert len(Reader(tmp_path / "store/train2017")[0]["boxes"]) == 1


@pytest.mark.parametrize("words", [("--source", "coco", "coco"), ("coco/annotations",)])
def test_folders_of_coco_are_told_how_to_be_packed(tmp_path: Path, words: Sequence[str]) -> None:
    """Where the folder of COCO or of its JSON files is given as one source, the message has the command for its
    splits."""
    root = write(tmp_path / "coco", images("images/train2017/0.jpg", "images/val2017/1.jpg"))
    write(root, {f"annotations/instances_{name}2017.json": coco(f"{i}.jpg") for i, name in enumerate(("train", "val"))})
    folder, splits = tmp_path / words[-1], "train2017,val2017"
    said = stop_of("pack", *SMALL, *words[:-1], folder, tmp_path / "store")
    assert f"`rawpack pack --splits {splits} {folder} DST` packs COCO's images with their boxes" in said
    ran = run_here("pack", *SMALL, "--splits", splits, folder, tmp_path / "store")
    assert (ran.code, len(Reader(tmp_path / "store/val2017")[0]["boxes"])) == (0, 1), ran
