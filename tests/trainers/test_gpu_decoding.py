"""Batches of files for decoders on a GPU: in tensors and in torch's DataLoader, and the loops of the page.

The loops of docs/how-to/gpu-decoding.md run as they are, on the CPU; the page itself compares the crops with the batch
of pixels. Those whose decoder is not installed are skipped.
"""

from __future__ import annotations

import importlib.util
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
    exec(compile("\n".join(run), str(PAGE), "exec"), {"__name__": "__docs__"})


def test_files_are_handed_over(folder: Path) -> None:
    """The adapters for torch leave files as they are, each a tensor without a copy or a warning, and index them with
    the samples that they belong to; so does torch's DataLoader, aligned as ever."""
    batches = Reader(folder / "store").batches(8, **ASKED)
    loaders = [batches.torch(as_tuple=("image", "label", "boxes"))]
    loaders.append(torch.utils.data.DataLoader(batches, batch_size=None))
    if importlib.util.find_spec("tensordict"):
        loaders.append(batches.tensordict())
    epochs = []
    for loader in (batches, *loaders):
        batches.set_epoch(0)
        epochs.append(list(loader))
    plain, tuples, loaded, *dicts = epochs
    files = [[file.tobytes() for file in batch["image"]] for batch in plain]
    for expected, (found, label, boxes) in zip(files, tuples, strict=True):
        assert isinstance(found, EncodedFiles)
        assert [file.tobytes() for file in found] == expected
        assert label.dtype == boxes.dtype == torch.int64
        assert tuple(boxes.shape) == (8, 4)
        assert torch.from_numpy(found[0]).data_ptr() == found[0].ctypes.data
    assert [[file.tobytes() for file in batch["image"]] for batch in loaded] == files
    assert all(file.ctypes.data % 64 == 0 for batch in loaded for file in batch["image"])
    for one in dicts:
        assert [[bytes(file) for file in batch["image"]] for batch in one] == files
        assert [[bytes(file) for file in batch[2:5]["image"]] for batch in one] == [these[2:5] for these in files]
