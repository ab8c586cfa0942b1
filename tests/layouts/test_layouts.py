"""Each line of "I have ..." packs by its command, and has the keys, labels and fields that are recorded of it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import recorded
from cases_pages import lines
from childless import without_children
from layout import LAYOUTS, Layout
from running import run_here

import rawpack


def test_every_line_of_the_page_is_tried() -> None:
    assert sorted(lines()) == sorted(layout.have for layout in LAYOUTS)


def test_every_line_uses_the_default_size() -> None:
    """Which has a size that fits on disks; and no object is cut off."""
    assert not [line for line in lines().values() if "size" in line]
    assert {"--fit whole" in line for have, line in lines().items() if "oxes" in have and ".pack(" not in line} == {
        True
    }


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: re.sub(r"\W+", "-", layout.have))
def test_packs_by_one_command(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of the page, with each image in its own size: keys, labels, numbers of boxes and other fields are those
    that the corpus records. Of splits, the first one is compared."""
    for module in layout.needs:
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    names = layout.lay(tmp_path)
    line = re.sub("^rawpack pack (--fit whole )?", "rawpack pack --size keep ", lines()[layout.have])
    line = re.sub(r"^(rawpack\.pack\(.*)\)$", r"\1, size='keep')", line)
    if line.startswith("rawpack.pack("):
        exec(line, {"rawpack": rawpack, **names})
    else:
        program, *words = shlex.split(line)
        assert program == "rawpack"
        with without_children():
            ran = run_here(*words)
        assert ran.code == 0, ran.err
    store = tmp_path / "store"
    reader = rawpack.Reader(store if (store / "store.json").exists() else store / "train")
    samples = [_named(reader, reader[n]) for n in range(len(reader))]
    answers, names = recorded(), (f"pages: {layout.have}{more}" for more in (": one split", ": with its options", ""))
    record = next(answers[name] for name in names if name in answers)
    assert len(samples) == record["samples"]
    assert [one["key"].removeprefix(f"{tmp_path}/") for one in samples[:6]] == record["keys"]
    labels = [one["label"] for one in samples[:6] if "label" in one]
    np.testing.assert_equal(labels, record.get("labels", []))
    boxes = [len(one["boxes"]) for one in samples[:6] if "boxes" in one]
    assert boxes == [len(rows) for rows in record.get("boxes", [])]
    for sample, values in zip(samples, record.get("values", []), strict=False):
        for name, value in values.items():
            found = sample[name]
            assert (
                found == value
                if isinstance(found, str | list)
                else np.allclose(np.ravel(found), np.ravel(value), atol=1e-4)
            ), name


def _named(reader: rawpack.Reader, sample: dict[str, Any]) -> dict[str, Any]:
    """A sample, with its label by the name of its class."""
    found = {name: value for name, value in sample.items() if name != "index"}
    if reader.classes and found.get("label", -1) >= 0:
        found["label"] = reader.classes[found["label"]]
    return found
