"""Bytes are resized to the pixels of torchvision's tensors, to the bit, with antialias and without.

scripts/test puts torchvision into a folder of its own: where its operators do not fit the torch that is installed,
other trainers fail to import it.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rawpack import native
from rawpack.native import calls
from rawpack.pixels.resample import resample

torch: Any = pytest.importorskip("torch")
torch.set_num_threads(1)  # threads that wait for each other take most of the time of small images
integers = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") or platform.machine() in ("aarch64", "arm64")
pytestmark = pytest.mark.skipif(not integers, reason="no integer path: torch resizes bytes in floats on this machine")

Box = tuple[int, int, int, int]
ResizedCrop = Callable[[Any, Box, tuple[int, int], bool], Any]


@pytest.fixture
def resized_crop(monkeypatch: pytest.MonkeyPatch) -> ResizedCrop:
    """What makes (N, C, height, width) of a box (y, x, height, width) of a tensor (N, C, H, W): torchvision, or torch,
    by which torchvision resizes."""
    monkeypatch.syspath_prepend(str(Path(sys.prefix) / "torchvision"))
    if find_spec("torchvision") is None:
        return lambda tensor, box, size, antialias: torch.nn.functional.interpolate(
            tensor[..., box[0] : box[0] + box[2], box[1] : box[1] + box[3]], size, mode="bilinear", antialias=antialias
        )
    from trainers.scripts.with_torchvision import make_torchvision_importable

    make_torchvision_importable()
    from torchvision.transforms.v2 import functional

    return lambda tensor, box, size, antialias: functional.resized_crop(tensor, *box, list(size), antialias=antialias)


@pytest.fixture(params=["native", "NumPy"])
def _made_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "NumPy":
        monkeypatch.setattr(calls, "library", lambda: None)
    elif native.library() is None:
        pytest.skip(f"the native core is {native.state()}")


def shapes(random: np.random.Generator, count: int) -> Iterator[tuple[Box, tuple[int, int]]]:
    """Boxes and sizes: any, one axis kept, enlarged, and shrunk by up to 60 times; sides of 1 to 400."""
    for index in range(count):
        height, width = random.integers(1, 401, 2).tolist()
        size = random.integers(1, (401, 60, 20, 8)[index % 4], 2).tolist()
        if index % 4 == 3:
            height, width = np.minimum(size * random.uniform(1, 60, 2), 400).astype(int).tolist()
        if index % 5 == 0:
            size[index % 2] = (height, width)[index % 2]
        if index % 7 == 0:
            height, width = (min(side, 24) for side in (height, width))
        # torch fails to make a single pixel of contiguous colors.
        yield (*random.integers(0, 4, 2).tolist(), height, width), (max(size[0], 2), size[1])


def image_of(random: np.random.Generator, box: Box, channels: int, index: int) -> NDArray[np.uint8]:
    """Noise, or nothing but black and white, somewhat larger than the box."""
    image = random.integers(0, 256, (box[0] + box[2] + 2, box[1] + box[3] + 3, channels), dtype=np.uint8)
    return image if index % 3 else (image > 127).astype(np.uint8) * 255


@pytest.mark.usefixtures("_made_by")
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_crops_are_resized_as_by_torchvision(resized_crop: ResizedCrop, channels: int, antialias: bool) -> None:
    """150 shapes, of contiguous tensors, of channels_last ones, and of several images."""
    random = np.random.default_rng(channels)
    for index, (box, size) in enumerate(shapes(random, 150)):
        image = image_of(random, box, channels, index)
        last = torch.from_numpy(image).permute(2, 0, 1)[None]
        made = resample(image[box[0] : box[0] + box[2], box[1] : box[1] + box[3]], size, antialias=antialias)
        two = torch.cat([last, last])
        for tensor in (last, last.contiguous(), two.contiguous(memory_format=torch.channels_last)):
            theirs = resized_crop(tensor, box, size, antialias)[-1].permute(1, 2, 0).numpy()
            assert (theirs == made).all(), (box, size, antialias)
