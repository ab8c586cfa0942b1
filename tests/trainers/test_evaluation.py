"""Evaluation on several ranks, by torch, Lightning and Accelerate: each sample counts once, and no rank waits for a
batch that another does not have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trained import numbered_store, numbers_of, run_script, steps_in

for name in ("accelerate", "lightning"):
    pytest.importorskip(name)
SCRIPT = Path(__file__).parent / "scripts" / "evaluate.py"
WAYS = ("torch", "accelerate", "lightning")


@pytest.mark.parametrize(("ranks", "samples", "size"), [(2, 13, 4), (4, 9, 2)], ids=str)
def test_each_sample_counts_once(tmp_path: Path, ranks: int, samples: int, size: int) -> None:
    """Two or four ranks, whose shares are uneven, and of which some would have no batch in the last step: with `valid`,
    all make the same number of steps, with calls that wait for all of them in each, and count each sample once."""
    store = numbered_store(tmp_path / "store", samples)
    words = (store, tmp_path / "seen", size)
    printed = run_script(SCRIPT, *words, ranks=ranks, timeout=200, preloaded=("lightning", "accelerate"))
    found = [json.loads(text.splitlines()[-1]) for text in printed]
    everything = list(range(samples))
    for way in WAYS:
        assert numbers_of(steps_in(tmp_path / "seen" / way), 0) == everything
        assert [one["found"][way] for one in found] == [[sum(everything), samples]] * ranks
    assert [one["found"]["logged"] for one in found] == [samples] * ranks
    assert [one["steps"] for one in found] == [dict.fromkeys(WAYS, -(-samples // (size * ranks)))] * ranks
