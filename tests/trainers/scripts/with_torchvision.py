"""Runs a script where torchvision's C++ operators do not fit the torch that is installed, and without a network.

    with_torchvision.py SCRIPT [FILE]

PyPI's torchvision is built for CUDA, and cannot be imported with a CPU build of torch. Its operators are declared
first, and nms, the only one that the trainers call, is computed in Python. Where they load, nothing is replaced.

FILE: gets a line of JSON for each batch that Ultralytics trains on. The first connection ends the process.
"""

import importlib.util
import json
import os
import runpy
import socket
import sys
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch

OPERATORS = ("roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool", "deform_conv2d")


def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Indices of the boxes (k, 4) to keep, best first: those that overlap no better one by more than `threshold`."""
    kept: list[int] = []
    for index in scores.argsort(descending=True).tolist():
        box, others = boxes[index], boxes[kept]
        sides = (torch.minimum(box[2:], others[:, 2:]) - torch.maximum(box[:2], others[:, :2])).clamp(min=0)
        shared = sides.prod(1)
        areas = (others[:, 2:] - others[:, :2]).prod(1) + (box[2:] - box[:2]).prod()
        if not (shared > threshold * (areas - shared)).any():
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64)


@cache
def make_torchvision_importable() -> torch.library.Library | None:
    """Declare the operators unless they load. They exist as long as the result, which is kept."""
    spec = importlib.util.find_spec("torchvision")
    assert spec is not None
    assert spec.submodule_search_locations
    try:
        torch.ops.load_library(Path(spec.submodule_search_locations[0]) / "_C.so")
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", nms, "CPU")
        for name in ("qnms", "qroi_align", *OPERATORS, *(f"_{name}_backward" for name in OPERATORS)):
            library.define(f"{name}(Tensor x) -> Tensor")  # never called
        import torchvision.extension

        torchvision.extension._has_ops = lambda: True
        return library
    return None


def end(*address: object) -> NoReturn:
    """End at once, as an error might be caught."""
    os.write(2, f"a connection: {address}\n".encode())
    os._exit(97)


def write_down_batches(file: Path) -> None:
    """Write down the files of each batch that Ultralytics trains on, and classes and central colors of its boxes."""
    from ultralytics.models.yolo.detect import DetectionTrainer

    plain = DetectionTrainer.preprocess_batch

    def preprocess_batch(self: Any, batch: dict[str, Any]) -> Any:
        side = torch.tensor([batch["img"].shape[3], batch["img"].shape[2]])
        boxes = []
        for image, label, box in zip(batch["batch_idx"], batch["cls"], batch["bboxes"], strict=True):
            x, y = (box[:2] * side).long()
            boxes.append([int(image), int(label), *batch["img"][int(image), :, y, x].tolist()])
        with file.open("a") as out:
            out.write(json.dumps({"files": [Path(name).name for name in batch["im_file"]], "boxes": boxes}) + "\n")
        return plain(self, batch)

    DetectionTrainer.preprocess_batch = preprocess_batch


if __name__ == "__main__":
    make_torchvision_importable()
    socket.socket.connect = socket.getaddrinfo = end  # type: ignore[method-assign,assignment]
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # Ultralytics behaves differently in its own tests
    if len(sys.argv) > 2:
        write_down_batches(Path(sys.argv[2]))
    script = sys.argv[1]
    sys.argv = [script]
    sys.path[0] = str(Path(script).absolute().parent)
    runpy.run_path(script, run_name="__main__")
