"""Batches of files for decoders on a GPU: in tensors and in torch's DataLoader, and the loops of the page.

The loops of docs/how-to/gpu-decoding.md run as they are, on the CPU; the page itself compares the crops with the batch
of pixels. Those whose decoder is not installed are skipped.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from pictures import picture, save

import rawpack_packer
from rawpack import Reader
from rawpack.transforms import RandomCrop
from rawpack.workers.besides import EncodedFiles

torch = pytest.importorskip("torch", reason="torch is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "gpu-decoding.md"
ASKED: dict[str, Any] = {"decode": False, "shuffle": True, "transform": [RandomCrop(90)]}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ of all sizes and kinds of JPEG, one of them gray, and store/ that has kept them."""
    root = tmp_path_factory.mktemp("files")
    for i in range(24):
        options = {"progressive": i % 3 == 0, "subsampling": i % 3}
        pixels = picture(100 + 3 * i, 160 - 2 * i, i)
        save(root / "photos" / "ab"[i % 2] / f"{i}.jpg", pixels[..., 1] if i == 5 else pixels, **options)
    rawpack_packer.pack(root / "photos", root / "store", format="lmdb", size="keep", quality="keep", workers=0)
    return root


@pytest.mark.parametrize("needs", ["nvidia.nvimgcodec", "torchcodec", "nvidia.dali"])
def test_the_loops_of_the_page(needs: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each runs to its end, with the loader of the page."""
    try:
        importlib.import_module(needs)
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"{needs} is not installed, or does not fit this torch: {error}")
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```python([^\n]*)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    run = [code for words, code in blocks if "needs=" not in words or f"needs={needs}" in words.split()]
    assert len(run) == 4
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for code in run:
        exec(compile(code, str(PAGE), "exec"), namespace)


def files_of(batches: Any) -> list[list[bytes]]:
    return [[file.tobytes() for file in batch["image"]] for batch in batches]


def test_tensors(folder: Path) -> None:
    """The adapter for torch leaves files as they are; each is a tensor without a copy, and without a warning."""
    batches = Reader(folder / "store").batches(8, **ASKED)
    expected = files_of(batches)
    batches.set_epoch(0)
    for files, batch in zip(expected, batches.torch(as_tuple=("image", "label", "boxes")), strict=True):
        found, label, boxes = batch
        assert isinstance(found, EncodedFiles)
        assert [file.tobytes() for file in found] == files
        assert label.dtype == boxes.dtype == torch.int64
        assert tuple(boxes.shape) == (8, 4)
        assert torch.from_numpy(found[0]).data_ptr() == found[0].ctypes.data


def test_tensordict(folder: Path) -> None:
    """Files are indexed with the samples that they belong to."""
    pytest.importorskip("tensordict", reason="tensordict is not installed")
    batches = Reader(folder / "store").batches(8, **ASKED)
    expected = files_of(batches)
    batches.set_epoch(0)
    for files, batch in zip(expected, batches.tensordict(), strict=True):
        assert [bytes(file) for file in batch["image"]] == files
        assert [bytes(file) for file in batch[2:5]["image"]] == files[2:5]


def test_dataloader(folder: Path) -> None:
    """torch's DataLoader hands over files too, aligned as ever."""
    batches = Reader(folder / "store").batches(4, **ASKED)
    expected = files_of(batches)
    batches.set_epoch(0)
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    found = list(loader)
    assert sorted(files_of(found)) == sorted(expected)
    assert all(file.ctypes.data % 64 == 0 for batch in found for file in batch["image"])
