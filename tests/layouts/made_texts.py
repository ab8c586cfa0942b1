"""Layouts of images with texts: captions, conversations, and what img2dataset writes."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from layout import Layout, Samples
from pictures import encoded, picture, save
from PIL import Image

COUNT = 6
FIXTURES = Path(__file__).parents[1] / "support/fixtures"


def _captions(n: int) -> list[str]:
    """None for the first image, then one, two, three."""
    return [f'a "photo" of thing {n}, view {k}: ünï \u2603' for k in range(n % 4)]


def _pixels(path: Path) -> Any:
    return np.asarray(Image.open(path))


# ---------------------------------------------------------------------------------------------- COCO


def _coco(root: Path) -> None:
    """As COCO has it: annotations of all images in one list, in no order, next to those with boxes."""
    images = [{"id": 1000 - n, "file_name": f"{n:012}.png", "height": 20, "width": 30} for n in range(COUNT)]
    for n in range(COUNT):
        save(root / "coco/val2017" / f"{n:012}.png", picture(20, 30, n))
    annotations = [
        {"image_id": 1000 - n, "id": 10 * n + k, "caption": caption}
        for n in reversed(range(COUNT))
        for k, caption in enumerate(_captions(n))
    ]
    about = {"info": {"year": 2017}, "licenses": [], "images": images, "annotations": annotations}
    (root / "coco/annotations").mkdir()
    (root / "coco/annotations/captions_val2017.json").write_text(json.dumps(about))


def _of_coco(root: Path) -> Samples:
    about = json.loads((root / "coco/annotations/captions_val2017.json").read_text())
    return {
        image["file_name"]: {
            "image": _pixels(root / "coco/val2017" / image["file_name"]),
            "captions": [one["caption"] for one in about["annotations"] if one["image_id"] == image["id"]],
            "image_id": image["id"],
        }
        for image in about["images"]
    }


# ---------------------------------------------------------------------------------------------- listings


def _json_lines(root: Path) -> None:
    lines = []
    for n in range(COUNT):
        save(root / "photos" / f"{n}.png", picture(20, 30, n))
        lines.append(json.dumps({"path": f"photos/{n}.png", "captions": _captions(n), "score": n / 2}) + "\n")
    (root / "captions.jsonl").write_text("".join(lines))


def _of_json_lines(root: Path) -> Samples:
    rows = map(json.loads, (root / "captions.jsonl").read_text().splitlines())
    return {row.pop("path"): {"image": _pixels(root / "photos" / f"{n}.png"), **row} for n, row in enumerate(rows)}


def _llava(root: Path) -> None:
    rows = []
    for n in range(COUNT):
        save(root / "llava/coco/train2017" / f"{n:012}.png", picture(20, 30, n))
        turns = [("human", f"<image>\nWhat is this? {n}"), ("gpt", 'A "thing", ünï.')] * (1 + n % 3)
        conversations = [{"from": who, "value": what} for who, what in turns]
        rows.append(
            {"id": f"{n:012}", "image": f"coco/train2017/{n:012}.png", "conversations": conversations}
        )  # fmt: skip
    (root / "llava/llava_instruct.json").write_text(json.dumps(rows, indent=2))


def _of_llava(root: Path) -> Samples:
    rows = json.loads((root / "llava/llava_instruct.json").read_text())
    return {
        row["image"]: {
            "image": _pixels(root / "llava" / row["image"]),
            "id": row["id"],
            "conversations": json.dumps(row["conversations"], ensure_ascii=False),
        }
        for row in rows
    }


# ---------------------------------------------------------------------------------------------- img2dataset


def img2dataset(root: Path, form: str) -> None:
    """As img2dataset itself wrote it: the last of eight images was not found."""
    shutil.copytree(FIXTURES / "img2dataset" / form, root / "laion")


def _of_files(root: Path) -> Samples:
    found = {}
    for path in sorted(root.glob("laion/*/*.jpg")):
        about = json.loads(path.with_suffix(".json").read_text())
        about |= {"image": _pixels(path), "caption": path.with_suffix(".txt").read_text()}
        found[path.stem] = {name: about[name] for name in about if name not in ("key", "status", "error_message")}
    assert len(found) == 7
    return found


def _of_shards(root: Path) -> Samples:
    members = {}
    for path in sorted(root.glob("laion/*.tar")):
        with tarfile.open(path) as tar:
            members |= {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    return {
        name.removesuffix(".jpg"): {
            "image": np.asarray(Image.open(io.BytesIO(data))),
            "caption": members[name.replace(".jpg", ".txt")].decode(),
        }
        for name, data in members.items()
        if name.endswith(".jpg")
    }


def _of_tables(root: Path) -> Samples:
    import pyarrow.parquet as pq

    rows = [row for path in sorted(root.glob("laion/*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert len(rows) == 8
    return {
        row.pop("key"): {
            "image": np.asarray(Image.open(io.BytesIO(row.pop("jpg")))),
            **{name: "" if value is None else value for name, value in row.items()},
        }
        for row in rows
        if row["status"] == "success"
    }


# ---------------------------------------------------------------------------------------------- Parquet


def _parquet(root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = [{"bytes": encoded(picture(20, 30, n)), "path": f"{n}.png"} for n in range(COUNT)]
    table = pa.table(
        {
            "image": pa.array(images, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            "caption": pa.array([_captions(n) for n in range(COUNT)], pa.list_(pa.string())),
            "filename": [f"{n}.png" for n in range(COUNT)],
        }
    )
    value = {"dtype": "string", "_type": "Value"}
    features = {
        "image": {"_type": "Image"}, "caption": {"feature": value, "_type": "Sequence"}, "filename": value
    }  # fmt: skip
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    (root / "flickr/data").mkdir(parents=True)
    pq.write_table(table.replace_schema_metadata(about), root / "flickr/data/test-00000-of-00001.parquet")


def _of_parquet(root: Path) -> Samples:
    import pyarrow.parquet as pq

    rows = pq.read_table(root / "flickr/data/test-00000-of-00001.parquet").to_pylist()
    return {
        row["image"]["path"]: {
            "image": np.asarray(Image.open(io.BytesIO(row["image"]["bytes"]))),
            "caption": row["caption"],
            "filename": row["filename"],
        }
        for row in rows
    }


def _flickr(root: Path) -> None:
    """With bars and blanks, as Kaggle's copy has it."""
    (root / "flickr").mkdir()
    lines = ["image_name| comment_number| comment"]
    for n in range(3):
        Image.fromarray(picture(24, 32, n)).save(root / f"flickr/{n}.png")
        lines += [f"{n}.png| {k}| Caption {k} , of image {n} ." for k in range(n + 1)]
    (root / "results.csv").write_text("\n".join(lines))


def _of_flickr(root: Path) -> Samples:
    samples = dict[str, dict[str, Any]]()
    for line in (root / "results.csv").read_text().splitlines()[1:]:
        name, _, text = line.split("| ")
        pixels = np.asarray(Image.open(root / f"flickr/{name}"))
        samples.setdefault(name, {"image": pixels, "comment": []})["comment"].append(text)
    return samples


LAYOUTS = (
    Layout("Flickr30k's `results.csv`, a row for each caption", _flickr, _of_flickr),
    Layout("COCO's captions", _coco, _of_coco),
    Layout("JSON Lines with lists of captions", _json_lines, _of_json_lines),
    Layout("LLaVA's JSON of conversations", _llava, _of_llava),
    Layout("what img2dataset writes as `files`", partial(img2dataset, form="files"), _of_files, needs=("pyarrow",)),
    Layout("what img2dataset writes as `webdataset`", partial(img2dataset, form="webdataset"), _of_shards),
    Layout(
        "what img2dataset writes as `parquet`", partial(img2dataset, form="parquet"), _of_tables, needs=("pyarrow",)
    ),
    Layout("Hugging Face's Parquet with lists of captions", _parquet, _of_parquet, needs=("pyarrow",)),
)
