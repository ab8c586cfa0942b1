"""Layouts of other loaders: MDS and litdata, as their own packages wrote them."""

from __future__ import annotations

import io
import shutil
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from layout import Layout, Samples
from PIL import Image

_FIXTURES = Path(__file__).resolve().parents[1] / "support" / "fixtures"


def _copied(name: str, to: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        shutil.copytree(_FIXTURES / name, root / to)

    return make


def _values(folder: Path) -> list[tuple[bytes, bytes]]:
    """The image and the label of each sample of all shards: of MDS after the length of the image, and the label first;
    of litdata after both lengths."""
    found = []
    for path in sorted(path for path in folder.iterdir() if path.name != "index.json"):
        data = path.read_bytes()
        starts = struct.unpack_from(f"<{int.from_bytes(data[:4], 'little') + 1}I", data, 4)
        samples = [data[start:end] for start, end in pairwise(starts)]
        is_mds = path.suffix == ".mds"
        found += [(one[12:], one[4:12]) if is_mds else (one[8:-8], one[-8:]) for one in samples]
    return found


def _samples(folder: Path, prefix: str = "") -> Samples:
    return {
        f"{prefix}{i:08d}": {
            "image": np.asarray(Image.open(io.BytesIO(image))),
            "label": int.from_bytes(label, "little"),
        }
        for i, (image, label) in enumerate(_values(folder))
    }


LAYOUTS = (
    Layout(
        "MDS of MosaicML Streaming: shards and an `index.json`",
        _copied("mds/splits/train", "set"),
        lambda root: _samples(root / "set"),
    ),
    Layout(
        "MDS in folders of splits",
        _copied("mds/splits", "set"),
        lambda root: {**_samples(root / "set/train", "train/"), **_samples(root / "set/val", "val/")},
    ),
    Layout(
        "what `litdata.optimize` writes: chunks and an `index.json`",
        _copied("litdata/dicts", "set"),
        lambda root: _samples(root / "set"),
    ),
    Layout(
        "the same, whose samples are tuples of an image and a label",
        _copied("litdata/pairs", "pairs"),
        lambda root: _samples(root / "pairs"),
    ),
)
