"""Each line of "I have ..." packs by its command, and has the keys, labels and fields that other code finds."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import made_arrays
import made_labels
import made_objects
import numpy as np
import pytest
from cases import recorded
from childless import without_children
from layout import Layout, Samples
from running import run_here

import rawpack

_PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/i-have.md"
LAYOUTS: tuple[Layout, ...] = (*made_arrays.LAYOUTS, *made_labels.LAYOUTS, *made_objects.LAYOUTS)


def lines() -> dict[str, str]:
    """What one has -> the command or line of Python that packs it, from the tables of the page."""
    found: dict[str, str] = {}
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("| "))]
        if line.startswith("|") and len(cells) > 1 and (command := re.fullmatch(r"`(.+)`", cells[1])):
            assert cells[0] not in found, f"{cells[0]} stands twice on the page"
            found[cells[0]] = command[1].replace("\\|", "|")
    return found


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
    """The line of the page, with each image in its own size, so that pixels and boxes compare with the files."""
    for module in layout.needs:
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    names = layout.make(tmp_path)
    line = re.sub("^rawpack pack (--fit whole )?", "rawpack pack --size keep ", lines()[layout.have])
    line = re.sub(r"^(rawpack\.pack\(.*)\)$", r"\1, size='keep')", line)
    if line.startswith("rawpack.pack("):
        exec(line, {"rawpack": rawpack, **(names or {})})
    else:
        program, *words = shlex.split(line)
        assert program == "rawpack"
        with without_children():
            ran = run_here(*words)
        assert ran.code == 0, ran.err
    if layout.samples is None:
        _as_recorded(tmp_path, layout.have)
    else:
        _same(tmp_path / "store", layout.samples(tmp_path))


def _as_recorded(folder: Path, have: str) -> None:
    """The store, or the first split: keys, labels and numbers of boxes."""
    answers, names = recorded(), (f"pages: {have}{more}" for more in (": one split", ": with its options", ""))
    record, store = next(answers[name] for name in names if name in answers), folder / "store"
    reader = rawpack.Reader(store if (store / "store.json").exists() else store / "train")
    samples = [_named(reader, reader[n]) for n in range(min(len(reader), 6))]
    assert len(reader) == record["samples"]
    assert [one["key"].removeprefix(f"{folder}/") for one in samples] == record["keys"]
    assert [one["label"] for one in samples if "label" in one] == record.get("labels", [])
    assert [len(one["boxes"]) for one in samples if "boxes" in one] == record.get("boxes", [])


def _same(store: Path, samples: Samples) -> None:
    """A store, or each split of `split/key` keys."""
    found: dict[str, dict[str, Any]] = {}
    parts = [store] if (store / "store.json").exists() else sorted(path for path in store.iterdir() if path.is_dir())
    for part in parts:
        reader = rawpack.Reader(part)
        for n in range(len(reader)):
            sample = _named(reader, reader[n])
            key = sample.pop("key")
            found[key if part == store else f"{part.name}/{key}"] = sample
    assert sorted(found) == sorted(samples)
    for key, wanted in samples.items():
        assert sorted(found[key]) == sorted(wanted), key
        for name, value in wanted.items():
            got = found[key][name]
            if name == "image":
                np.testing.assert_array_equal(got, value, err_msg=key)
            elif isinstance(value, np.ndarray | float):
                np.testing.assert_allclose(got, value, rtol=1e-6, err_msg=f"{key} {name}")
            else:
                assert got == value, (key, name)


def _named(reader: rawpack.Reader, sample: dict[str, Any]) -> dict[str, Any]:
    """A sample, with labels by the names of their classes."""
    found = {name: value for name, value in sample.items() if name != "index"}
    if classes := reader.classes:
        if "label" in found:
            found["label"] = classes[found["label"]] if found["label"] >= 0 else None
        if "labels" in found:
            found["labels"] = [classes[n] for n in found["labels"]]
    return found
