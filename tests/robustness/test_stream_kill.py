"""A run that packs a stream and is killed, while it takes samples and while it packs them, and the same call with a new
stream that goes on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from folders import settled
from forked import Forks
from stream_child import COUNT, samples

import rawpack_packer
from rawpack import Reader

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL, fork and /proc"),
    pytest.mark.own_processes,
]

SOAK = bool(os.environ.get("RAWPACK_SOAK"))


def as_generated(store: Path) -> None:
    reader = Reader(store)
    assert (len(reader), reader.classes) == (COUNT, ("cat", "dog"))
    for i, wanted in enumerate(samples()):
        np.testing.assert_array_equal(reader[i]["image"], wanted["image"])
        assert (reader[i]["n"], reader.classes[reader[i]["label"]]) == (i, wanted["label"])


def test_a_run_killed_at_any_step_goes_on_to_the_very_same_bytes(forks: Forks, tmp_path: Path) -> None:
    """Before every file that is opened, renamed, removed or synced; without --soak, before some. What had not been
    synced may be torn. Once all samples were taken, a run that goes on reads only the first ones of the stream."""
    rawpack_packer.pack(samples(), tmp_path / "undisturbed", workers=0, shard_size=1)
    as_generated(tmp_path / "undisturbed")
    (tmp_path / "killed").mkdir()
    code = "import signal, stream_child\nsignal.alarm(0)  # long where all steps are tried\nstream_child.main()"
    ran = forks.run(code, tmp_path / "killed", 0, 1 if SOAK else 11)
    assert (ran.code, ran.err) == (0, "")
    turns = [json.loads(line) for line in ran.out.splitlines()]
    assert len(turns) >= (60 if SOAK else 6)
    for at, what, killed, again, read in turns:
        assert (killed, again) == (-9, 0), what
        assert settled(tmp_path / "killed" / f"{at}") == settled(tmp_path / "undisturbed"), what
        assert read in (16, COUNT), what
    assert {read for *_, read in turns} == {16, COUNT}
