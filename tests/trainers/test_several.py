"""What torch and JAX get of samples with several images, and the page about them, run as it is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import run_here
from several import NAMES, PICTURES, check_batch, first_of, others_of, stores_in

from rawpack import Reader

PAGE = Path(__file__).parents[2] / "docs/how-to/pack-several-images.md"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(stores_in(tmp_path_factory.mktemp)("memmap"))


def test_tensors_of_torch(reader: Reader) -> None:
    """Each image has its channels first and its own dtype, int32 for uint16; `dtype=` converts pictures, and leaves
    values as they are, which a half would not hold."""
    torch = pytest.importorskip("torch")
    for batch in reader.batches(16, workers=0).torch():
        images = {name: batch[name].movedim(1, -1).numpy() for name in NAMES}
        assert images["depth"].dtype == np.int32
        images["depth"] = images["depth"].astype(np.uint16)
        check_batch(images, batch["number"])
    batch = next(iter(reader.batches(16, workers=0).torch(dtype="float16")))
    halves = {name for name in NAMES if batch[name].dtype == torch.float16}
    assert halves == {*PICTURES}
    np.testing.assert_array_equal(batch["depth"][3].movedim(0, -1).numpy(), others_of(first_of(3, (12, 16)))["depth"])


def test_arrays_of_jax(reader: Reader) -> None:
    """Each image has its own shape and dtype."""
    pytest.importorskip("jax")
    for batch in reader.batches(16, workers=0).jax():
        assert check_batch(batch, batch["number"]) == len(batch["number"])


def test_the_scripts_of_the_page_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Super-resolution from 24 to 96 pixels learns, and two views of each image train an encoder."""
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for language, code in re.findall(r"^```(python|console).*?\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S):
        if language == "python":
            exec(code, namespace)
            continue
        for command in re.findall(r"^\$ rawpack (.*)$", code, re.MULTILINE):
            workers = ["--workers", "0"] if command.startswith("pack") else []
            typed, _, asks_code = command.partition(";")  # `echo "exit code $?"`, after one that stops
            assert run_here(*shlex.split(typed), *workers).code == (2 if asks_code else 0), command
    assert namespace["losses"][-1] < namespace["losses"][0]
