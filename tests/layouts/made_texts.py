"""Layouts of images with texts: captions, conversations, and what img2dataset writes."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from cases_beside import parquet
from layout import Layout, Samples, copied, lines, of_files, pixels, png, pngs, samples_of

COUNT = 6


def _captions(n: int) -> list[str]:
    """None for the first image, then one, two, three."""
    return [f'a "photo" of thing {n}, view {k}: ünï \u2603' for k in range(n % 4)]


def _conversation(n: int) -> list[dict[str, str]]:
    turns = [("human", f"<image>\nWhat is this? {n}"), ("gpt", 'A "thing", ünï.')] * (1 + n % 3)
    return [{"from": who, "value": what} for who, what in turns]


_COCO = {
    "info": {"year": 2017}, "licenses": [],
    "images": [{"id": 1000 - n, "file_name": f"{n:012}.png", "height": 24, "width": 32} for n in range(COUNT)],
    "annotations": [
        {"image_id": 1000 - n, "id": 10 * n + k, "caption": caption}
        for n in reversed(range(COUNT)) for k, caption in enumerate(_captions(n))
    ],
}  # fmt: skip
"""As COCO has it: annotations of all images in one list, in no order."""
_LLAVA = [
    {"id": f"{n:012}", "image": f"coco/train2017/{n:012}.png", "conversations": _conversation(n)} for n in range(COUNT)
]


def _of_files(root: Path) -> Samples:
    found = {}
    for path in sorted(root.glob("laion/*/*.jpg")):
        about = json.loads(path.with_suffix(".json").read_text())
        about |= {"image": pixels(path), "caption": path.with_suffix(".txt").read_text()}
        found[path.stem] = {name: about[name] for name in about if name not in ("key", "status", "error_message")}
    assert len(found) == 7  # the last of eight images was not found
    return found


def _of_shards(root: Path) -> Samples:
    members = {}
    for path in sorted(root.glob("laion/*.tar")):
        with tarfile.open(path) as tar:
            members |= {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    return {
        name.removesuffix(".jpg"): {"image": pixels(data), "caption": members[name.replace(".jpg", ".txt")].decode()}
        for name, data in members.items()
        if name.endswith(".jpg")
    }


def _of_tables(root: Path) -> Samples:
    import pyarrow.parquet as pq

    rows = [row for path in sorted(root.glob("laion/*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert len(rows) == 8
    return {
        row.pop("key"): {
            "image": pixels(row.pop("jpg")),
            **{name: "" if value is None else value for name, value in row.items()},
        }
        for row in rows
        if row["status"] == "success"
    }


def _parquet() -> Mapping[str, bytes | str]:
    value = {"dtype": "string", "_type": "Value"}
    columns = {
        "image": [{"bytes": png(n), "path": f"{n}.png"} for n in range(COUNT)],
        "caption": [*map(_captions, range(COUNT))],
        "filename": [f"{n}.png" for n in range(COUNT)],
    }
    about = {"image": {"_type": "Image"}, "caption": {"feature": value, "_type": "Sequence"}, "filename": value}
    return {"flickr/data/test-00000-of-00001.parquet": parquet(columns, about)}


LAYOUTS = (
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
        {**pngs("coco/val2017/{:012}.png", COUNT), "coco/annotations/captions_val2017.json": json.dumps(_COCO)},
        samples_of("{:012}.png", COUNT, lambda n: {"captions": _captions(n), "image_id": 1000 - n}),
    ),
    of_files(
        "JSON Lines with lists of captions",
        {
            **pngs("photos/{}.png", COUNT),
            "captions.jsonl": lines(
                *(
                    json.dumps({"path": f"photos/{n}.png", "captions": _captions(n), "score": n / 2})
                    for n in range(COUNT)
                )
            ),
        },
        samples_of("photos/{}.png", COUNT, lambda n: {"captions": _captions(n), "score": n / 2}),
    ),
    of_files(
        "LLaVA's JSON of conversations",
        {
            **pngs("llava/coco/train2017/{:012}.png", COUNT),
            "llava/llava_instruct.json": json.dumps(_LLAVA, indent=2),
        },
        samples_of(
            "coco/train2017/{:012}.png",
            COUNT,
            lambda n: {"id": f"{n:012}", "conversations": json.dumps(_conversation(n), ensure_ascii=False)},
        ),
    ),
    Layout("what img2dataset writes as `files`", copied("img2dataset/files", "laion"), _of_files, ("pyarrow",)),
    Layout("what img2dataset writes as `webdataset`", copied("img2dataset/webdataset", "laion"), _of_shards),
    Layout("what img2dataset writes as `parquet`", copied("img2dataset/parquet", "laion"), _of_tables, ("pyarrow",)),
    of_files(
        "Hugging Face's Parquet with lists of captions",
        _parquet,
        samples_of("{}.png", COUNT, lambda n: {"caption": _captions(n), "filename": f"{n}.png"}),
        ("pyarrow",),
    ),
)
