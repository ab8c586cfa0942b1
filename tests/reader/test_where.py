"""Conditions of `select(where=)`: what they choose, against Python's own evaluation of them, and what they refuse."""

from __future__ import annotations

import json
import re
from typing import Any

import cv2
import numpy as np
import pytest
import running
from draws import tries
from hypothesis import given, settings
from hypothesis import strategies as st

from rawpack import Reader, look
from rawpack.errors import UsageError

_SAMPLES = 60
_CLASSES = ("cat", "dog", 'o\'neill, "x"')


@pytest.fixture(scope="module")
def samples() -> list[dict[str, Any]]:
    """What the store is packed from, and what conditions are evaluated on."""
    random = np.random.default_rng(0)
    return [
        {
            "label": int(random.integers(-1, 3)),
            "score": round(float(random.random()), 1),
            "small": int(random.integers(0, 256)),
            "big": int(random.integers(-(2**62), 2**62)),
            "flag": bool(random.integers(2)),
            "caption": ["a cat", "two dogs", "", "naïve café", "CAT"][int(random.integers(5))],
            "points": random.random((int(random.integers(4)), 4)).tolist(),
            "corner": random.integers(-5, 5, 3).tolist(),
        }
        for _ in range(_SAMPLES)
    ]


@pytest.fixture(scope="module")
def reader(samples: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("where")
    lines = []
    for i, sample in enumerate(samples):
        cv2.imwrite(str(folder / f"{i:03}.png"), np.full((4, 4, 3), i, np.uint8))
        label = "" if sample["label"] < 0 else _CLASSES[sample["label"]]
        lines.append(json.dumps(sample | {"path": f"{i:03}.png", "label": label or None}))
    (folder / "list.jsonl").write_text("\n".join(lines))
    types = ["score:float32", "small:uint8", "corner:int16[3]", "points:float32[?,4]"]
    return Reader(running.pack(folder / "list.jsonl", folder / "store", *(f"--field={one}" for one in types)))


def _chosen(reader: Reader, text: str) -> list[int]:
    return [int(i) for i in reader.select(where=text).column("small")]


@pytest.mark.parametrize(
    "text",
    [
        "score == 0.7",
        "0.2 < score <= 0.6",
        "flag == True",
        "small // 7 == 3 or small / 2 == 5.5",
        "big > 4611686018427387903 - 4000000000000000000",
        "big in (1.5, {big})",
        "small in {{163, 155.0, 1000, -1}}",
        "small > -1 and small < 100000000000000000000",
        "caption in ('CAT', '')",
        "'é' in caption or caption.startswith('two') or caption.endswith('CAT')",
        "caption < 'b'",
        "len(points) > 1",
        "abs(corner[0]) > 2 and corner[-1] != corner[1]",
        "label != 0 and 100 // label == 50",
        "index >= 10 and index % 3 == 0",
    ],
)
def test_it_chooses_what_python_would(reader: Reader, samples: list[dict[str, Any]], text: str) -> None:
    text = text.format(big=samples[7]["big"])
    expected = []
    for i, sample in enumerate(samples):
        values = sample | {"index": i, "score": np.float32(sample["score"])}
        if eval(text, {"len": len, "abs": abs}, values):
            expected.append(sample["small"])
    assert _chosen(reader, text) == expected
    assert len(expected) > 0, text


def test_classes_go_by_name_and_by_number(reader: Reader, samples: list[dict[str, Any]]) -> None:
    assert reader.classes is not None
    first = _CLASSES.index(reader.classes[0])
    for text, labels in (
        ("label == 'dog'", [1]),
        ("'dog' != label", [-1, 0, 2]),
        ("label in ('cat', 'dog')", [0, 1]),
        (f"label == {_CLASSES[2]!r}", [2]),
        ("label == -1", [-1]),
        ("label == 0", [first]),
    ):
        assert _chosen(reader, text) == [sample["small"] for sample in samples if sample["label"] in labels]


def test_long_lists_are_exact(reader: Reader, samples: list[dict[str, Any]]) -> None:
    for name in ("big", "small"):
        wanted = [one[name] for one in samples[:30]]
        near = [*wanted[::2], *(one + 1 for one in wanted[1::2])]
        expected = [one["small"] for one in samples if one[name] in near]
        assert _chosen(reader, f"{name} in {near}") == expected


def test_it_chooses_among_what_was_selected(reader: Reader) -> None:
    few = reader.select([40, 3, 3, 17])
    kept = few.select(where="store_row != 17 and index < 3")
    assert kept.column("key") == [reader.column("key")[i] for i in (40, 3, 3)]
    assert kept.column("store_row").tolist() == [40, 3, 3]
    assert look(few).find("index in (1, 3)").tolist() == [1, 3]
    assert len(reader.select(where="score > 2")) == 0


NUMBERS = ["small", "label", "corner[1]", "big", "small//-3", "corner[1]%-3", "label-7//2", "3", "-7", "1000"]
NUMBER, OPERATOR = st.sampled_from(NUMBERS), st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
CONDITION = st.recursive(
    st.one_of(
        st.tuples(NUMBER, OPERATOR, NUMBER).map(" ".join),
        st.tuples(NUMBER, st.sampled_from(["in [3]", "in [1000, -7]"])).map(" ".join),
        st.sampled_from(["flag", "'a' in caption"]),
    ),
    lambda inner: st.one_of(
        inner.map(lambda text: f"not ({text})"),
        st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda p: f"({p[0]}){p[1]}({p[2]})"),
    ),
    max_leaves=4,
)


@given(CONDITION)
@settings(max_examples=tries(160))
def test_any_condition_chooses_what_python_would(reader: Reader, samples: list[dict[str, Any]], text: str) -> None:
    number = {k: reader.classes.index(name) for k, name in enumerate(_CLASSES)} if reader.classes else {}
    expected = [one["small"] for one in samples if eval(text, {}, one | {"label": number.get(one["label"], -1)})]
    assert _chosen(reader, text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("label = 3", "write == to compare"),
        ("score and flag", "'score' is a number, where a condition is needed"),
        ("skore > 1", "'skore' is no field of the store, which has label, score"),
        ("image > 1", "'image' is image data in shards"),
        ("label in ('cat', 'bird')", "has no class of the store: 'bird'"),
        ("caption == 3", "compares a text with a number"),
        ("corner[3] > 1", "is no number: corner has shape (3,)"),
        ("flag is True", "use == or !="),
        ("big * 1000 > 0", "has whole numbers that are too large"),
        ("2 ** 100 > small", "is not allowed"),
        ("__import__('os').system('true')", "is not allowed"),
        ("caption.__class__ == 1", "is not allowed"),
        ("flag\x00", "is not a condition"),
        ("(" * 3000 + "flag" + ")" * 3000, "is not a condition"),
        ("not " * 2000 + "flag", "too many parts inside one another"),
        ("flag or " * 20_000 + "flag", "must be a condition"),
    ],
)
def test_it_refuses_by_name(reader: Reader, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"^where=.*{re.escape(words)}"):
        reader.select(where=text)
