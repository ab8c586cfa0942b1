"""What most networks are trained with: a random-resized-crop, a flip, normalizing, to float32 (3, side, side).

For systems with no such transforms of their own: torchvision's, as its documentation recommends them, or OpenCV's where
torch is not installed.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import Any

import numpy as np

from systems.images import cropped, decoded
from systems.job import Job

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LEVELS = tuple(255 * m for m in MEAN), tuple(255 * s for s in STD)
"""The same for values from 0 to 255."""


def delivered(sample: Any, job: Job) -> Any:
    """An image as the job wants it: pixels (side, side, 3), or a tensor of floats (3, side, side) by torchvision.

    sample: what is stored, pixels (height, width, 3) or a JPEG file."""
    if not job.floats:
        return decoded(sample, job) if job.kind == "jpeg" else sample
    import torch

    # Channels last in memory, for which torch's resizing of bytes is fastest.
    return transform(job.side)(torch.from_numpy(pixels(sample, job)).permute(2, 0, 1))


def delivered_by_opencv(sample: Any, job: Job) -> Any:
    """The same as arrays, where there is no torch."""
    if not job.floats:
        return decoded(sample, job) if job.kind == "jpeg" else sample
    return normalized(cropped(pixels(sample, job), job.side, "random"))


def pixels(sample: Any, job: Job) -> Any:
    """A whole stored image, (height, width, 3)."""
    if job.kind == "raw":
        return sample
    import simplejpeg

    return simplejpeg.decode_jpeg(sample, "RGB")


def normalized(image: Any) -> Any:
    """Bytes (height, width, 3) as float32 (3, height, width)."""
    mean, std = (np.array(levels, np.float32) for levels in LEVELS)
    return np.ascontiguousarray(((image - mean) / std).transpose(2, 0, 1))


@cache
def transform(side: int) -> Any:
    """torchvision's recipe for tensors of bytes (3, height, width)."""
    import torch

    v2 = torchvision_transforms()
    # As in a DataLoader's workers: each system has its own.
    torch.set_num_threads(1)
    # Of arrays that only read a file or a map.
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    return v2.Compose(
        [
            v2.RandomResizedCrop(side, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )


def torchvision_transforms() -> Any:
    """torchvision.transforms.v2, which PyPI's wheel has for torch with CUDA only: with the CPU build of torch it stops
    at two operators that are missing, and that nothing here uses."""
    try:
        from torchvision.transforms import v2
    except RuntimeError:
        import torch

        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _defined.append(torch.library.Library("torchvision", "FRAGMENT"))
        for name in ("nms", "qnms"):
            _defined[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from torchvision.transforms import v2
    return v2


_defined: list[Any] = []
"""Keeps the operators: torch forgets them with the object that defined them."""
