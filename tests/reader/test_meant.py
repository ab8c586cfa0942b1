"""What somebody nearly wrote: each door that does not know a name says which one is near, and each habit of another
library what it is called here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rawpack_packer
from rawpack import Balanced, Cache, Reader, UsageError, look
from rawpack.epoch import dataloader
from rawpack.system import user
from rawpack.transforms import Lambda, Normalize, RandomHorizontalFlip, Views


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of 12 frames of a video, with a label, and texts."""
    where, rows = tmp_path_factory.mktemp("meant") / "store", np.arange(12)
    columns: dict[str, Any] = {
        "image": np.zeros((12, 8, 8, 3), np.uint8), "label": [["cat", "dog"][row % 2] for row in rows],
        "video": rows // 12, "frame": rows, "second": rows / 4.0, "captions": [["a", "b"]] * 12,
    }  # fmt: skip
    rawpack_packer.pack(columns, where, workers=0)
    return Reader(where)


DOORS: dict[str, tuple[str, Callable[[Reader], Any]]] = {
    "fields": ("image", lambda reader: reader.batches(4, fields=["img"])),
    "column": ("label", lambda reader: reader.column("lable")),
    "where": ("label", lambda reader: reader.select(where="lable == 1")),
    "class in where": ("dog", lambda reader: reader.select(where="label == 'dgo'")),
    "class": ("dog", lambda reader: reader.select(classes=["dgo"])),
    "image_size": ("image", lambda reader: reader.batches(4, image_size={"imge": 8})),
    "Lambda": ("label", lambda reader: reader.batches(4, transform=[Lambda(np.negative, field="lable")])),
    "Balanced": ("label", lambda reader: reader.batches(4, sampler=Balanced("lable"))),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_nearest_name_is_named(reader: Reader, door: str) -> None:
    """Wherever a field or a class is named, a wrong name is answered with the right one."""
    meant, call = DOORS[door]
    with pytest.raises(UsageError, match=rf"\. Did you mean '{meant}'\?$"):
        call(reader)


def test_and_or_and_not_are_words(reader: Reader) -> None:
    """The operators of numpy, of SQL and of a shell are answered with Python's words."""
    for where, cure in (
        ("(frame > 3) & (frame < 5)", "write 'and' instead"),
        ("~(frame > 3)", "write 'not' instead"),
        ("frame > 3 && frame < 5", "write and, or, not"),
        ("frame > 3 AND frame < 5", "write and, or, not"),
        ("key like 'a%'", "write 'dog' in key"),
        ("frame between 1 and 3", "or 1 <= score <= 2"),
    ):
        with pytest.raises(UsageError, match=cure):
            reader.select(where=where)


def test_a_limit_is_no_folder() -> None:
    """A size in place of the folder of a cache is refused, by both doors. A folder may still be called so."""
    for limit in ("10GB", "1.5 TiB", "64b"):
        for door in (Cache, lambda cache: Reader("memory://bucket/store", cache=cache)):
            with pytest.raises(UsageError, match=rf"pass a limit as Cache\(limit='{limit}'\)"):
                door(limit)
    for folder in ("./10GB", Path("10GB"), "2024", "10GBs"):
        assert Cache(folder).folder == folder


def test_attributes_of_other_loaders_say_what_to_write(reader: Reader) -> None:
    """They are still missing for `hasattr`, as trainers ask it; what the table says to write is there."""
    batches = reader.batches(4)
    for names, reader_line, batches_line in dataloader._ATTRIBUTES:
        for name in names.split():
            for owner, line in ((reader, reader_line), (batches, batches_line or reader_line)):
                assert not hasattr(owner, name)
                words = f"no attribute {name!r}: write {line.format(name=name)}"
                with pytest.raises(AttributeError, match=re.escape(words)):
                    getattr(owner, name)
        for line in filter(None, (reader_line, batches_line)):
            code = line.format(name="shape").split(", or ")[0]
            if "torch" not in code and "..." not in code:
                eval(code, {"reader": reader, "batches": batches, "batch": next(iter(batches)), "i": 0})


def test_what_is_no_number_of_a_sample(reader: Reader) -> None:
    """Each says how to find a field, and a key; so does a key in place of a condition."""
    indices: list[Any] = ["a/1.jpg", 1.0, None, (0, 1)]
    for index in indices:
        with pytest.raises(TypeError, match=r"reader.column\(name\).*look\(reader\).find\(key=...\)"):
            reader[index]
    with pytest.raises(UsageError, match=re.escape("to find a text in keys: find(key='cat/1.jpg')")):
        look(reader).find("cat/1.jpg")
    with pytest.raises(UsageError, match=re.escape("rawpack.look(rawpack.Reader(path))")):
        look("store")  # type: ignore[arg-type]


class Sequential:
    """As torch's: its base is `torch.nn.Module`."""

    def __call__(self, image: Any) -> Any:
        return image


Module = type("Module", (Sequential,), {"__module__": "torch.nn.modules.module"})


MISPLACED: list[tuple[Any, str]] = [
    (RandomHorizontalFlip, "in transform= is a class, not a step: write RandomHorizontalFlip(), with brackets"),
    (Normalize, "write Normalize(...), with brackets"),
    (Sequential, "write Sequential(), with brackets"),
    (type("Own", (Module,), {})(), "Own in transform= is a module of torch, for tensors"),
]


@pytest.mark.parametrize(("step", "line"), MISPLACED)
def test_what_is_nearly_a_step(reader: Reader, step: Any, line: str) -> None:
    """It is refused before a worker gets it, wherever a step or a function may be."""
    alone = f"pass [{line.partition('write ')[2].partition(',')[0]}]" if isinstance(step, type) else line
    for call, words in (
        (lambda: reader.batches(4, transform=[step]), line),
        (lambda: reader.batches(4, transform=(np.negative, step)), line),
        (lambda: Views(2, [step]), line),
        (lambda: reader.batches(4, transform=step), alone),
    ):
        with pytest.raises(UsageError, match=re.escape(words)):
            call()


def test_what_no_shell_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first part that begins with `$` is a folder only where there is one; every door takes paths through here."""
    monkeypatch.chdir(tmp_path)
    for name in ("$HOME/store", "${DATA}"):
        first = name.partition("/")[0]
        for door in (Reader, lambda path: rawpack_packer.pack({"image": np.zeros((1, 8, 8, 3), np.uint8)}, path)):
            with pytest.raises(UsageError, match=re.escape(f"{name}: no shell replaced {first}")):
                door(name)
        assert not (tmp_path / first).exists()
        assert user.expanded(f"./{name}") == f"./{name}"
        (tmp_path / first).mkdir()
        assert user.expanded(name) == name
