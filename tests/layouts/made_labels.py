"""Layouts whose labels stand in tables and lists beside the images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archived import zipped
from cases import write
from cases_beside import parquet
from layout import Layout, Samples, lines, of_files, png, pngs, samples_of, shot

_BREEDS = ("beagle", "pug", "vizsla") * 2
_WNIDS = ("n01440764", "n02123045", "n03425413") * 2
_FOUND = ("NV", "MEL", None, "BCC")
_KINDS = ("MEL", "NV", "BCC")
_UCF = ("ApplyEyeMakeup", "ApplyLipstick", "Archery")
_DRIVES = {"one.avi": "rain", "two.avi": "sun", "three.avi": "rain"}
_DOGS = {
    **pngs("train/{:05x}cdf.png", 6),
    "labels.csv": lines("id,breed", *(f"{n:05x}cdf,{_BREEDS[n]}" for n in (4, 0, 2, 5, 1, 3))),
}
"""Dog breeds and the like: names without the extension, in an order of their own."""
_OF_DOGS = samples_of("{:05x}cdf.png", 6, lambda n: {"label": _BREEDS[n]})
_DOWNLOADED = {
    **_DOGS,
    **pngs("test/{:05x}.png", 6),
    "sample_submission.csv": lines(f"id,{','.join(_BREEDS[:3])}", "0f,0.3,0.3,0.4"),
}
"""As it is downloaded: also with the images of the test set, and a table that is no list of labels."""
_IN_EXCEL = "\r\n".join(
    ["path;label;note", *(f'photos/{n}.png;{_BREEDS[n]};"größer; {n}"' for n in range(5)), ""]
).encode("utf-8-sig")
"""With a byte order mark, semicolons and CR LF, as the European Excel saves "CSV UTF-8"."""


def _encode(root: Path, videos: Mapping[str, Sequence[int]]) -> None:
    """Writes videos of two frames."""
    from videos import encode

    for path, numbers in videos.items():
        encode(root / path, "ffv1", 2, format="bgr0", numbers=[*numbers])


def _ucf(have: str, name: str, groups: tuple[int, ...], line: str) -> Layout:
    """UCF101's lists. line: of the list."""
    places = {
        f"{one}/v_{one}_g{group:02}_c01.avi": (number, group) for number, one in enumerate(_UCF, 1) for group in groups
    }

    def make(root: Path) -> None:
        _encode(root / "UCF-101", places)
        classes = "".join(f"{n} {one}\r\n" for n, one in enumerate(_UCF, 1))
        listed = lines(*(line.format(path=path, number=number) for path, (number, _) in places.items()))
        write(root / "ucfTrainTestlist", {"classInd.txt": classes, name: listed})

    return Layout(have, make, _frames("UCF-101", {path: path.split("/")[0] for path in places}), ("av",))


def _frames(folder: str, labels: Mapping[str, str]) -> Callable[[Path], Samples]:
    """What all frames of videos are: path -> the label of each."""

    def samples(root: Path) -> Samples:
        import av

        found = dict[str, Mapping[str, Any]]()
        for video, (path, label) in enumerate(labels.items()):
            with av.open(str(root / folder / path)) as opened:
                for n, frame in enumerate(opened.decode(video=0)):
                    image = frame.to_ndarray(format="rgb24")
                    times = {"video": video, "frame": n, "pts_seconds": float(frame.time or 0)}
                    found[f"{path}#{n:06}"] = {"image": image, "label": label, **times}
        return found

    return samples


def _class_videos(root: Path) -> None:
    _encode(root / "videos", {f"{label}/{path}": (n, 7) for n, (path, label) in enumerate(_DRIVES.items())})


def _labeled_videos(root: Path) -> None:
    _encode(root / "videos", {path: (n, 7) for n, path in enumerate(_DRIVES)})
    write(root, {"labels.csv": lines("video,label", *map(",".join, _DRIVES.items()))})


def _parquet_of_paths() -> Mapping[str, bytes | str]:
    columns = {"path": [f"photos/{n}.png" for n in range(5)], "label": [*_BREEDS[:5]], "age": [*range(5)]}
    return {**pngs("photos/{}.png", 5), "table.parquet": parquet(columns)}


def _solution(n: int) -> str:
    return f"ILSVRC2012_val_{n:08}," + "".join(f"{_WNIDS[n]} {n} 2 30 40 " for _ in range(1 + n % 2))


LAYOUTS = (
    of_files(
        "a table with a column of 0 and 1 for each class, as of ISIC",
        {
            **pngs("images/ISIC_{:07}.png", 4),
            "truth.csv": lines(
                f"image,{','.join(_KINDS)}",
                *(f"ISIC_{n:07},{','.join(str(float(k == found)) for k in _KINDS)}" for n, found in enumerate(_FOUND)),
            ),
        },
        samples_of("ISIC_{:07}.png", 4, lambda n: {kind: float(kind == _FOUND[n]) for kind in _KINDS}),
    ),
    of_files(
        "a folder for each class",
        {f"photos/{('cat', 'dog')[n % 2]}/{n:03}.png": png(n) for n in range(8)},
        {f"{label}/{n:03}.png": {"image": shot(n), "label": label} for n, label in enumerate(("cat", "dog") * 4)},
    ),
    of_files(
        "a folder with a `metadata.csv`, as Hugging Face's ImageFolder",
        {
            **pngs("photos/{:04}.png", 6),
            "photos/metadata.csv": lines(
                "file_name,text,label", *(f'{n:04}.png,"A dog, no. {n}",{_BREEDS[n]}' for n in (3, 1, 5, 0, 2, 4))
            ),
        },
        samples_of("{:04}.png", 6, lambda n: {"text": f"A dog, no. {n}", "label": _BREEDS[n]}),
    ),
    of_files("a folder and a table of names and classes, as of Kaggle", _DOGS, _OF_DOGS),
    of_files(
        "Kaggle's zip with `train/`, `test/` and `labels.csv` in it",
        {"dogs.zip": zipped(_DOWNLOADED)},
        _OF_DOGS,
    ),
    of_files(
        "ILSVRC's `val` folder and Kaggle's `LOC_val_solution.csv`",
        {
            **pngs("val/ILSVRC2012_val_{:08}.JPEG", 6),
            "LOC_val_solution.csv": lines("ImageId,PredictionString", *map(_solution, reversed(range(6)))),
        },
        samples_of("ILSVRC2012_val_{:08}.JPEG", 6, lambda n: {"label": _WNIDS[n]}),
    ),
    of_files(
        "a table of paths from Excel, with semicolons",
        {**pngs("photos/{}.png", 5), "table.csv": _IN_EXCEL},
        samples_of("photos/{}.png", 5, lambda n: {"label": _BREEDS[n], "note": f"größer; {n}"}),
    ),
    of_files(
        "a Parquet of paths",
        _parquet_of_paths,
        samples_of("photos/{}.png", 5, lambda n: {"label": _BREEDS[n], "age": n}),
        ("pyarrow",),
    ),
    of_files(
        "a table of paths whose classes are in another column than `label`",
        {
            **pngs("photos/{}.png", 5),
            "animals.csv": lines("filename,age,species", *(f"photos/{n}.png,{3 * n},{_BREEDS[n]}" for n in range(5))),
        },
        samples_of("photos/{}.png", 5, lambda n: {"age": 3 * n, "label": _BREEDS[n]}),
    ),
    of_files(
        "a list of names without the extension",
        {**pngs("images/a_{}.png", 5), "test.txt": lines("a_3", "a_0", "a_4")},
        {f"a_{n}.png": {"image": shot(n)} for n in (3, 0, 4)},
    ),
    Layout(
        "videos in a folder for each class",
        _class_videos,
        _frames("videos", {f"{label}/{path}": label for path, label in sorted(_DRIVES.items())}),
        ("av",),
    ),
    Layout("videos and a table of their labels", _labeled_videos, _frames("videos", _DRIVES), ("av",)),
    _ucf("UCF101's `trainlist01.txt`", "trainlist01.txt", (8, 9), "{path} {number}"),
    _ucf("UCF101's `testlist01.txt`, without labels", "testlist01.txt", (1,), "{path}"),
)
