"""Layouts whose labels or texts stand in tables, lists and files beside the images; videos; what img2dataset writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archived import zipped
from cases import Files, write
from cases_beside import parquet
from layout import Layout, Samples, copied, lines, of_files, png, pngs, samples_of, shot

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


def _videos(folder: str, table: str = "") -> Callable[[Path], None]:
    """Videos of two frames. folder: of each, with its label where it has {}."""

    def make(root: Path) -> None:
        for n, (path, label) in enumerate(_DRIVES.items()):
            _encode(root, {f"{folder.format(label)}/{path}": (n, 7)})
        write(root, {"labels.csv": table} if table else {})

    return make


def _parquet_of_paths() -> Files:
    columns = {"path": [f"photos/{n}.png" for n in range(5)], "label": [*_BREEDS[:5]], "age": [*range(5)]}
    return {**pngs("photos/{}.png", 5), "table.parquet": parquet(columns)}


def _solution(n: int) -> str:
    return f"ILSVRC2012_val_{n:08}," + "".join(f"{_WNIDS[n]} {n} 2 30 40 " for _ in range(1 + n % 2))


_COUNT = 6


def _captions(n: int) -> list[str]:
    """None for the first image, then one, two, three."""
    return [f'a "photo" of thing {n}, view {k}: ünï \u2603' for k in range(n % 4)]


def _conversation(n: int) -> list[dict[str, str]]:
    turns = [("human", f"<image>\nWhat is this? {n}"), ("gpt", 'A "thing", ünï.')] * (1 + n % 3)
    return [{"from": who, "value": what} for who, what in turns]


_COCO = {
    "info": {"year": 2017}, "licenses": [],
    "images": [{"id": 1000 - n, "file_name": f"{n:012}.png", "height": 24, "width": 32} for n in range(_COUNT)],
    "annotations": [
        {"image_id": 1000 - n, "id": 10 * n + k, "caption": caption}
        for n in reversed(range(_COUNT)) for k, caption in enumerate(_captions(n))
    ],
}  # fmt: skip
"""As COCO has it: annotations of all images in one list, in no order."""
_LLAVA = [
    {"id": f"{n:012}", "image": f"coco/train2017/{n:012}.png", "conversations": _conversation(n)} for n in range(_COUNT)
]


def _captions_in_parquet() -> Files:
    value = {"dtype": "string", "_type": "Value"}
    columns = {
        "image": [{"bytes": png(n), "path": f"{n}.png"} for n in range(_COUNT)],
        "caption": [*map(_captions, range(_COUNT))],
        "filename": [f"{n}.png" for n in range(_COUNT)],
    }
    about = {"image": {"_type": "Image"}, "caption": {"feature": value, "_type": "Sequence"}, "filename": value}
    return {"flickr/data/test-00000-of-00001.parquet": parquet(columns, about)}


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
        _videos("videos/{}"),
        _frames("videos", {f"{label}/{path}": label for path, label in sorted(_DRIVES.items())}),
        ("av",),
    ),
    Layout(
        "videos and a table of their labels",
        _videos("videos", lines("video,label", *map(",".join, _DRIVES.items()))),
        _frames("videos", _DRIVES),
        ("av",),
    ),
    _ucf("UCF101's `trainlist01.txt`", "trainlist01.txt", (8, 9), "{path} {number}"),
    _ucf("UCF101's `testlist01.txt`, without labels", "testlist01.txt", (1,), "{path}"),
    of_files(
        "Flickr30k's `results.csv`, a row for each caption",
        {
            **pngs("flickr/{}.png", 3),
            "results.csv": lines(
                "image_name| comment_number| comment",
                *(f"{n}.png| {k}| Caption {k} , of image {n} ." for n in range(3) for k in range(n + 1)),
            ),
        },
        samples_of("{}.png", 3, lambda n: {"comment": [f"Caption {k} , of image {n} ." for k in range(n + 1)]}),
    ),
    of_files(
        "COCO's captions",
        {**pngs("coco/val2017/{:012}.png", _COUNT), "coco/annotations/captions_val2017.json": json.dumps(_COCO)},
        samples_of("{:012}.png", _COUNT, lambda n: {"captions": _captions(n), "image_id": 1000 - n}),
    ),
    of_files(
        "JSON Lines with lists of captions",
        {
            **pngs("photos/{}.png", _COUNT),
            "captions.jsonl": lines(
                *(
                    json.dumps({"path": f"photos/{n}.png", "captions": _captions(n), "score": n / 2})
                    for n in range(_COUNT)
                )
            ),
        },
        samples_of("photos/{}.png", _COUNT, lambda n: {"captions": _captions(n), "score": n / 2}),
    ),
    of_files(
        "LLaVA's JSON of conversations",
        {
            **pngs("llava/coco/train2017/{:012}.png", _COUNT),
            "llava/llava_instruct.json": json.dumps(_LLAVA, indent=2),
        },
        samples_of(
            "coco/train2017/{:012}.png",
            _COUNT,
            lambda n: {"id": f"{n:012}", "conversations": json.dumps(_conversation(n), ensure_ascii=False)},
        ),
    ),
    *(
        Layout(f"what img2dataset writes as `{form}`", copied(f"img2dataset/{form}", "laion"), needs=("pyarrow",))
        for form in ("files", "webdataset", "parquet")
    ),
    of_files(
        "Hugging Face's Parquet with lists of captions",
        _captions_in_parquet,
        samples_of("{}.png", _COUNT, lambda n: {"caption": _captions(n), "filename": f"{n}.png"}),
        ("pyarrow",),
    ),
)
