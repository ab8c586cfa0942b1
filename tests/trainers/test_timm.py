"""timm trains from a store: the scripts of docs/how-to/train-with-timm-and-ultralytics.md, run as they are.

Every picture has a single color, which says its number and its class. So a test knows what timm was given from the
tensors alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import chdir
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import save
from running import run_here
from ways import way

from rawpack import Reader
from rawpack.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop, ToCHW

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(find_spec("timm") is None, reason="needs timm"),
    pytest.mark.filterwarnings("ignore::Warning:timm", "ignore::Warning:torchvision", "ignore::Warning:torch"),
]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-with-timm-and-ultralytics.md"
PER_CLASS = 16
"""Pictures, of which 4 are for validation: 24 remain for training, three batches."""
TRAINED, VALIDATED = 24, 8
IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).reshape(2, 1, 3, 1, 1)
PAIR = ("image", "label")


@pytest.fixture(scope="module", autouse=True)
def _importable() -> None:
    from trainers.scripts.with_torchvision import make_torchvision_importable

    make_torchvision_importable()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photos/` and, packed by the command of the page, `sets/`."""
    folder = tmp_path_factory.mktemp("timm")
    for number in range(2 * PER_CLASS):
        color = np.full((70, 90, 3), (7 * number, 200 * (number % 2), 99), np.uint8)
        save(folder / "photos" / ("cat", "dog")[number % 2] / f"{number:03}.png", color)
    command = re.findall(r"^\$ rawpack (pack .*)$", PAGE.read_text("utf-8"), re.MULTILINE)[0]
    with chdir(folder):
        ran = run_here(*command.split(), "--workers", 0)
    assert ran.code == 0, ran
    return folder


def numbers_in(images: Any, labels: Any) -> list[int]:
    """The numbers of normalized pictures (n, 3, H, W), which have one color each that also says the label."""
    mean, deviation = IMAGENET
    colors = (images.numpy() * deviation + mean) * 255
    assert np.abs(colors - colors[:, :, :1, :1]).max() < 0.01
    red, green, blue = colors[:, :, 0, 0].round().astype(int).T
    assert (blue == 99).all()
    assert (green == 200 * labels.numpy()).all()
    assert (red % 7 == 0).all()
    return [int(number) for number in red // 7]


def test_the_scripts_of_the_page(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """timm's Mixup is handed each sample once an epoch, normalized with the mean of the model and with its own label;
    the model learns, and each sample of the validation counts once. The diff is that of the script."""
    from timm.data import Mixup
    from timm.data.loader import PrefetchLoader

    handed: list[list[int]] = []
    plain: Callable[..., Any] = Mixup.__call__

    def watched(self: Any, images: Any, labels: Any) -> Any:
        handed.append(numbers_in(images, labels))
        return plain(self, images, labels)

    monkeypatch.setattr(Mixup, "__call__", watched)
    monkeypatch.chdir(place)
    text = PAGE.read_text("utf-8")
    blocks = re.findall(r"^```python needs=timm\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    assert not any("class " in block for block in blocks)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
    assert [len(batch) for batch in handed] == [8] * 6
    first, second = (list(chain.from_iterable(epoch)) for epoch in (handed[:3], handed[3:]))
    assert len(set(first)) == TRAINED
    assert sorted(first) == sorted(second)
    assert first != second
    validated = [number for batch in namespace["val_loader"] for number in numbers_in(*batch)]
    assert sorted(first + validated) == list(range(2 * PER_CLASS))
    printed = re.findall(r"^epoch (\d): (\d) of 8 correct$", capsys.readouterr().out, re.MULTILINE)
    assert [epoch for epoch, _ in printed] == ["0", "1"]
    assert int(printed[1][1]) > VALIDATED // 2
    assert isinstance(namespace["loader"], PrefetchLoader)
    [diff] = re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert all(line.startswith("-") or line[1:] in blocks[0].splitlines() for line in diff.splitlines())


def test_prefetch_loader(place: Path) -> None:
    """timm's PrefetchLoader makes of bytes what Normalize makes, in the same order."""
    import torch
    from timm.data.loader import PrefetchLoader

    crop = [RandomResizedCrop(48), RandomHorizontalFlip()]

    def loader(transform: list[Any]) -> Any:
        options: dict[str, Any] = {"shuffle": True, "drop_last": True, "workers": 0, "transform": transform}
        return Reader(place / "sets" / "train").batches(8, **options).torch(as_tuple=PAIR)

    fetched = PrefetchLoader(loader(crop), device=torch.device("cpu"))
    expected = loader([*crop, Normalize(*IMAGENET.reshape(2, 3).tolist()), ToCHW()])
    assert len(fetched) == 3
    for _ in range(2):
        for (images, labels), (ours, numbers) in zip(fetched, expected, strict=True):
            torch.testing.assert_close(images, ours, rtol=0, atol=1e-5)
            assert labels.tolist() == numbers.tolist()
            assert len(numbers_in(images, labels)) == 8


@way("timm", "`create_loader` of `rawpack.integrations.timm`", "to the sample")
def test_a_loop_that_was_killed_resumes(place: Path) -> None:
    """The state of what `create_loader` returns counts the batches that the loop got, not the one that timm prepares:
    the rest of the epoch and the next are what was not trained on. `mixup_enabled` may be read and set."""
    from rawpack.integrations.timm import PrefetchedBatches, create_loader

    def made() -> PrefetchedBatches:
        return create_loader(Reader(place / "sets" / "train"), 48, 8, True, device="cpu", workers=0)

    undisturbed = made()
    epochs = [[numbers_in(*pair) for pair in undisturbed] for _ in range(3)]
    assert [len(set(chain.from_iterable(epoch))) for epoch in epochs] == [TRAINED] * 3
    for taken in (1, 2, 3):
        loader = made()
        assert [numbers_in(*pair) for pair in loader] == epochs[0]
        iterator = iter(loader)
        got = [numbers_in(*next(iterator)) for _ in range(taken)]
        resumed = made()
        resumed.load_state_dict(loader.state_dict())
        assert resumed.state_dict() == loader.state_dict()
        rest = [numbers_in(*pair) for pair in resumed]
        assert (got, rest) == (epochs[1], epochs[2]) if taken == 3 else got + rest == epochs[1]
    loader.mixup_enabled = loader.mixup_enabled
