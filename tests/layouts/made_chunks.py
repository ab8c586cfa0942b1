"""Layouts of other loaders: MDS and litdata, as their own packages wrote them."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

from layout import Layout, Samples, copied, pixels


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


def _layout(have: str, fixture: str, folder: str, splits: tuple[str, ...] = ("",)) -> Layout:
    def samples(root: Path) -> Samples:
        return {
            f"{split}{i:08d}": {"image": pixels(image), "label": int.from_bytes(label, "little")}
            for split in splits
            for i, (image, label) in enumerate(_values(root / folder / split))
        }

    return Layout(have, copied(fixture, folder), samples)


LAYOUTS = (
    _layout("MDS of MosaicML Streaming: shards and an `index.json`", "mds/splits/train", "set"),
    _layout("MDS in folders of splits", "mds/splits", "set", ("train/", "val/")),
    _layout("what `litdata.optimize` writes: chunks and an `index.json`", "litdata/dicts", "set"),
    _layout("the same, whose samples are tuples of an image and a label", "litdata/pairs", "pairs"),
)
