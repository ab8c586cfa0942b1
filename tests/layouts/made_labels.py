"""Layouts whose labels stand in tables and lists beside the images."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from layout import Layout, Samples
from pictures import picture
from PIL import Image

_BREEDS = ("beagle", "pug", "vizsla")
_WNIDS = ("n01440764", "n02123045", "n03425413")
_UCF = ("ApplyEyeMakeup", "ApplyLipstick", "Archery")


def _save(path: Path, n: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(24, 32, n)).save(path)


def _pixels(path: Path) -> Any:
    return np.asarray(Image.open(path))


def _rows(path: Path, **options: Any) -> list[dict[str, str]]:
    with path.open(newline="", **options) as file:
        return list(csv.DictReader(file, delimiter=";" if options else ","))


def _write(path: Path, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def _named_folders(root: Path) -> None:
    for n in range(8):
        _save(root / "photos" / ("cat", "dog")[n % 2] / f"{n:03}.png", n)


def _of_folders(root: Path) -> Samples:
    paths = sorted((root / "photos").rglob("*.png"))
    return {
        path.relative_to(root / "photos").as_posix(): {"image": _pixels(path), "label": path.parent.name}
        for path in paths
    }


def _image_folder(root: Path) -> None:
    for n in range(6):
        _save(root / "photos" / f"{n:04}.png", n)
    rows = [(f"{n:04}.png", f"A dog, no. {n}", _BREEDS[n % 3]) for n in (3, 1, 5, 0, 2, 4)]
    _write(root / "photos/metadata.csv", ("file_name", "text", "label"), rows)


def _of_image_folder(root: Path) -> Samples:
    return {
        row["file_name"]: {
            "image": _pixels(root / "photos" / row["file_name"]),
            "text": row["text"],
            "label": row["label"],
        }
        for row in _rows(root / "photos/metadata.csv")
    }


def _kaggle(root: Path) -> None:
    """Dog breeds and the like: names without the extension, in an order of their own."""
    for n in range(6):
        _save(root / "train" / f"{n:05x}cdf.png", n)
    _write(root / "labels.csv", ("id", "breed"), [(f"{n:05x}cdf", _BREEDS[n % 3]) for n in (4, 0, 2, 5, 1, 3)])


def _of_kaggle(root: Path) -> Samples:
    return {
        f"{row['id']}.png": {"image": _pixels(root / "train" / f"{row['id']}.png"), "label": row["breed"]}
        for row in _rows(root / "labels.csv")
    }


def _kaggle_zip(root: Path) -> None:
    """As it is downloaded: also with the images of the test set, and a table that is no list of labels."""
    _kaggle(root)
    _write(root / "sample_submission.csv", ("id", *_BREEDS), [("0f", 0.3, 0.3, 0.4)])
    with zipfile.ZipFile(root / "dogs.zip", "w") as archive:
        for path in (root / "labels.csv", root / "sample_submission.csv", *sorted((root / "train").iterdir())):
            archive.write(path, path.relative_to(root).as_posix())
            if path.suffix == ".png":
                archive.write(path, f"test/x{path.name}")
    (root / "labels.csv").rename(root / "unpacked.csv")


def _of_kaggle_zip(root: Path) -> Samples:
    (root / "unpacked.csv").rename(root / "labels.csv")
    return _of_kaggle(root)


def _ilsvrc(root: Path) -> None:
    rows = list[tuple[str, str]]()
    for n in range(1, 7):
        name = f"ILSVRC2012_val_{n:08}"
        _save(root / "val" / f"{name}.png", n)
        (root / "val" / f"{name}.png").rename(root / "val" / f"{name}.JPEG")
        rows.append((name, "".join(f"{_WNIDS[n % 3]} {n} 2 30 40 " for _ in range(1 + n % 2))))
    _write(root / "LOC_val_solution.csv", ("ImageId", "PredictionString"), rows[::-1])


def _of_ilsvrc(root: Path) -> Samples:
    return {
        f"{row['ImageId']}.JPEG": {
            "image": _pixels(root / "val" / f"{row['ImageId']}.JPEG"),
            "label": row["PredictionString"].split()[0],
        }
        for row in _rows(root / "LOC_val_solution.csv")
    }


def _excel(root: Path) -> None:
    """With a byte order mark, semicolons and CR LF, as the European Excel saves "CSV UTF-8"."""
    rows = ["path;label;note"]
    for n in range(5):
        _save(root / "photos" / f"{n}.png", n)
        rows.append(f'photos/{n}.png;{_BREEDS[n % 3]};"größer; {n}"')
    (root / "table.csv").write_bytes("\r\n".join([*rows, ""]).encode("utf-8-sig"))


def _of_excel(root: Path) -> Samples:
    return {
        row["path"]: {"image": _pixels(root / row["path"]), "label": row["label"], "note": row["note"]}
        for row in _rows(root / "table.csv", encoding="utf-8-sig")
    }


def _parquet_of_paths(root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for n in range(5):
        _save(root / "photos" / f"{n}.png", n)
    columns = {"path": [f"photos/{n}.png" for n in range(5)], "label": [_BREEDS[n % 3] for n in range(5)]}
    pq.write_table(pa.table({**columns, "age": [*range(5)]}), root / "table.parquet")


def _of_parquet_of_paths(root: Path) -> Samples:
    import pyarrow.parquet as pq

    rows = pq.read_table(root / "table.parquet").to_pylist()
    return {row.pop("path"): {"image": _pixels(root / f"photos/{n}.png"), **row} for n, row in enumerate(rows)}


def _species(root: Path) -> None:
    for n in range(5):
        _save(root / "photos" / f"{n}.png", n)
    rows = [(f"photos/{n}.png", n * 3, _BREEDS[n % 3]) for n in range(5)]
    _write(root / "animals.csv", ("filename", "age", "species"), rows)


def _of_species(root: Path) -> Samples:
    return {
        row["filename"]: {"image": _pixels(root / row["filename"]), "age": int(row["age"]), "label": row["species"]}
        for row in _rows(root / "animals.csv")
    }


def _stems(root: Path) -> None:
    for n in range(5):
        _save(root / "images" / f"a_{n}.png", n)
    (root / "test.txt").write_text("a_3\na_0\na_4\n")


def _of_stems(root: Path) -> Samples:
    lines = (root / "test.txt").read_text().splitlines()
    return {f"{line}.png": {"image": _pixels(root / "images" / f"{line}.png")} for line in lines}


def _ucf(name: str, groups: tuple[int, ...], line: str) -> Callable[[Path], None]:
    """UCF101's lists, with videos of two frames. line: of the list."""

    def make(root: Path) -> None:
        from videos import encode

        lists, lines = root / "ucfTrainTestlist", list[str]()
        lists.mkdir()
        (lists / "classInd.txt").write_bytes("".join(f"{n} {one}\r\n" for n, one in enumerate(_UCF, 1)).encode())
        for number, one in enumerate(_UCF, 1):
            for group in groups:
                path = f"{one}/v_{one}_g{group:02}_c01.avi"
                encode(root / "UCF-101" / path, "ffv1", 2, format="bgr0", numbers=[number, group])
                lines.append(line.format(path=path, number=number))
        (lists / name).write_text("".join(lines))

    return make


def _of_ucf(root: Path) -> Samples:
    lists = root / "ucfTrainTestlist"
    names = dict(line.split() for line in (lists / "classInd.txt").read_text().splitlines())
    (file,) = lists.glob("*list01.txt")
    labels = dict[str, str]()
    for line in file.read_text().splitlines():
        path, _, number = line.partition(" ")
        labels[path] = names[number] if number else path.split("/")[0]
    return _frames(root / "UCF-101", labels)


def _frames(folder: Path, labels: Mapping[str, str]) -> Samples:
    """What all frames of videos are: path -> the label of each."""
    import av

    found = dict[str, Mapping[str, Any]]()
    for video, (path, label) in enumerate(labels.items()):
        with av.open(str(folder / path)) as opened:
            for n, frame in enumerate(opened.decode(video=0)):
                image = frame.to_ndarray(format="rgb24")
                times = {"video": video, "frame": n, "pts_seconds": float(frame.time or 0)}
                found[f"{path}#{n:06}"] = {"image": image, "label": label, **times}
    return found


_DRIVES = {"one.avi": "rain", "two.avi": "sun", "three.avi": "rain"}


def _class_videos(root: Path) -> None:
    from videos import encode

    for number, (path, label) in enumerate(_DRIVES.items()):
        encode(root / "videos" / label / path, "ffv1", 2, format="bgr0", numbers=[number, 7])


def _of_class_videos(root: Path) -> Samples:
    paths = sorted(f"{label}/{path}" for path, label in _DRIVES.items())
    return _frames(root / "videos", {path: path.split("/")[0] for path in paths})


def _labeled_videos(root: Path) -> None:
    from videos import encode

    for number, path in enumerate(_DRIVES):
        encode(root / "videos" / path, "ffv1", 2, format="bgr0", numbers=[number, 7])
    _write(root / "labels.csv", ("video", "label"), [*_DRIVES.items()])


def _of_labeled_videos(root: Path) -> Samples:
    return _frames(root / "videos", _DRIVES)


_FOUND = ("NV", "MEL", None, "BCC")


def _isic(root: Path) -> None:
    rows = []
    for n, found in enumerate(_FOUND):
        _save(root / f"images/ISIC_{n:07}.png", n)
        rows.append((f"ISIC_{n:07}", *(float(name == found) for name in ("MEL", "NV", "BCC"))))
    _write(root / "truth.csv", ("image", "MEL", "NV", "BCC"), rows)


def _of_isic(root: Path) -> Samples:
    samples = {}
    for row in _rows(root / "truth.csv"):
        name = row.pop("image")
        values = {column: float(value) for column, value in row.items()}
        samples[f"{name}.png"] = {"image": _pixels(root / f"images/{name}.png"), **values}
    return samples


LAYOUTS = (
    Layout("a table with a column of 0 and 1 for each class, as of ISIC", _isic, _of_isic),
    Layout("a folder for each class", _named_folders, _of_folders),
    Layout("a folder with a `metadata.csv`, as Hugging Face's ImageFolder", _image_folder, _of_image_folder),
    Layout("a folder and a table of names and classes, as of Kaggle", _kaggle, _of_kaggle),
    Layout("Kaggle's zip with `train/`, `test/` and `labels.csv` in it", _kaggle_zip, _of_kaggle_zip),
    Layout("ILSVRC's `val` folder and Kaggle's `LOC_val_solution.csv`", _ilsvrc, _of_ilsvrc),
    Layout("a table of paths from Excel, with semicolons", _excel, _of_excel),
    Layout("a Parquet of paths", _parquet_of_paths, _of_parquet_of_paths, ("pyarrow",)),
    Layout("a table of paths whose classes are in another column than `label`", _species, _of_species),
    Layout("a list of names without the extension", _stems, _of_stems),
    Layout("videos in a folder for each class", _class_videos, _of_class_videos, ("av",)),
    Layout("videos and a table of their labels", _labeled_videos, _of_labeled_videos, ("av",)),
    Layout("UCF101's `trainlist01.txt`", _ucf("trainlist01.txt", (8, 9), "{path} {number}\n"), _of_ucf, ("av",)),
    Layout("UCF101's `testlist01.txt`, without labels", _ucf("testlist01.txt", (1,), "{path}\n"), _of_ucf, ("av",)),
)
