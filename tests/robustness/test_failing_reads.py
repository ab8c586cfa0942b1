"""Reads of sources and of stores that fail, at any of them: nobody gets a wrong sample, or one less, without being
told; and once the disk is well again, the same command makes what it would have made.

RAWPACK_SEED repeats the draws of a run that failed.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from failing_reads import ALL_FILES, MAP, ONCE, OPEN, READ, STAT, THIS_FILE, Failing, Fault, Ran, failing
from folders import rejects_of
from pictures import linked
from running import environment
from store_server import find_by_itself, serving

pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")
pytest.importorskip("pyarrow", reason="rawpack[parquet] is not installed: no pyarrow")

from command_lines import LINES, Scene

from rawpack import Reader

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD and /proc"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc: a library of C comes between rawpack and reads"),
]

SEED = os.environ.get("RAWPACK_SEED") or os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex[:8]
READING = tuple(line.replace("-j 2", "-j 0") for line in LINES if not line.startswith("view"))
"""In one process, as the workers' reads are the same."""
SHORT = 0
ERRORS = {
    OPEN: (errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE),
    READ: (SHORT, errno.EIO, errno.ESTALE, errno.EACCES),
    MAP: (errno.EIO, errno.ESTALE, errno.EACCES),
    STAT: (errno.EIO, errno.ESTALE, errno.EACCES),
}
NOTHING = Fault("", 0)


@dataclass(frozen=True)
class Undisturbed:
    """What a line does where all reads succeed."""

    code: int
    files: dict[str, bytes]


class Faults:
    """Runs lines in which reads fail."""

    def __init__(self, scene: Scene, folder: Path, failing: Failing) -> None:
        self.scene, self.folder, self.failing, self._numbers = scene, folder, failing, iter(range(1_000_000))
        self._undisturbed: dict[str, Undisturbed] = {}

    def new(self) -> Path:
        folder = self.folder / f"{next(self._numbers)}" / "results"
        folder.mkdir(parents=True)
        (folder.parent / "tmp").mkdir()
        return folder

    def run(self, line: str, folder: Path, fault: Fault = NOTHING) -> Ran:
        own = folder.parent
        variables = {"TMPDIR": f"{own / 'tmp'}", "RAWPACK_CACHE": f"{own / 'cache'}"}
        return self.failing.run(self.scene.words(line, folder), fault, variables)

    def undisturbed(self, line: str) -> Undisturbed:
        if line not in self._undisturbed:
            folder = self.new()
            self._undisturbed[line] = Undisturbed(self.run(line, folder).code, self.scene.results(folder))
        return self._undisturbed[line]

    def under(self, word: str, folder: Path) -> str:
        """Where the files are that a word of a line stands for: an image may be beside its listing."""
        if word[0] == "=":
            return str(folder / "changed")
        place, own = str(self.scene.place(word[1:])), str(self.scene.root / word[1:])
        return own if place.startswith(own) else place

    def fail(self, line: str, dice: random.Random) -> None:
        """Run a line in which a read fails, and then again."""
        wanted = self.undisturbed(line)
        word = dice.choice([word for word in line.split() if word[0] in "@=" and word != "@http"])
        for kind in dice.sample([*ERRORS], len(ERRORS)):
            folder = self.new()
            if count := self.run(line, folder, Fault(self.under(word, folder), kind)).count:
                break
        else:
            return  # it reads nothing of that
        folder = self.new()
        fault = Fault(
            self.under(word, folder), kind, dice.randint(1, count), dice.choice(ERRORS[kind]),
            dice.choice((ONCE, THIS_FILE, ALL_FILES)),
        )  # fmt: skip
        ran = self.run(line, folder, fault)
        drawn = f"RAWPACK_SEED={SEED}: {line}\n{fault}\n{ran}"
        assert ran.failed, drawn
        assert "Traceback" not in ran.err, drawn
        assert ran.code in (0, 1, 2), drawn
        if line.startswith("inspect --verify"):
            assert ran.code, drawn
        elif ran.code:
            assert ran.err.count("rawpack: "), drawn
        else:
            self.check(folder, wanted, drawn)
        if not ran.code and line.startswith("append"):
            return  # which refuses to append the same again
        again = self.run(line, folder)
        drawn += f"\nand again: {again}"
        assert again.code == wanted.code, drawn
        self.check(folder, wanted, drawn)

    def check(self, folder: Path, wanted: Undisturbed, drawn: str) -> None:
        files = self.scene.results(folder)
        assert files.keys() == wanted.files.keys(), drawn
        assert [name for name in files if files[name] != wanted.files[name]] == [], drawn


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    root, code = tmp_path_factory.mktemp("faults"), Path(__file__).parents[1] / "support" / "failing_reads.c"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", root / "reads.so", code, "-ldl"], check=True)
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        find_by_itself(server, patch)
        (root / "scene").mkdir()
        with failing(root / "reads.so", root, environment()) as runner:
            yield Faults(Scene(root / "scene", server), root, runner)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(4))
def test_four_reads_that_fail(faults: Faults, number: int) -> None:
    """Of four command lines that are drawn."""
    faults.fail(random.Random(SEED).sample(READING, 4)[number], random.Random(f"{SEED} {number}"))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", READING)
@pytest.mark.parametrize("number", range(20))
def test_twenty_reads_of_each(faults: Faults, line: str, number: int) -> None:
    faults.fail(line, random.Random(f"{SEED} {line} {number}"))


# ---------------------------------------------------------------------------------------------- what is lost, and when


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 files, so that one that cannot be read does not stop a job."""
    return linked(tmp_path_factory.mktemp("many") / "set", 200, (12, 12))


def packing(faults: Faults, many: Path, store: Path, fault: Fault, *options: str) -> Ran:
    words = ["pack", "-q", "-j", "0", "-s", "8", "--shard-size", "1", *options, str(many), str(store)]
    return faults.failing.run(words, fault, {})


@pytest.fixture(scope="module")
def whole(faults: Faults, many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their store where no read fails."""
    store = tmp_path_factory.mktemp("whole") / "store"
    assert packing(faults, many, store, NOTHING).code == 0
    return store


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE])
def test_a_fault_that_passes_costs_no_sample(
    faults: Faults, many: Path, whole: Path, tmp_path: Path, number: int
) -> None:
    """A read that fails once is made again at once."""
    fault = Fault(str(many / "class 1"), OPEN if number == errno.EMFILE else READ, 20, number)
    ran = packing(faults, many, tmp_path / "store", fault, "--max-rejects", "100%")
    assert (ran.code, ran.failed) == (0, 1), ran
    names = ("store.json", "shard-00000.npy", "rejects.jsonl")
    for name in names:
        assert (tmp_path / "store" / name).read_bytes() == (whole / name).read_bytes()


def test_a_fault_that_lasts_is_said(faults: Faults, many: Path, tmp_path: Path) -> None:
    """Where the limit allows a file that cannot be read, a line says so, also if quiet."""
    fault = Fault(str(many), READ, 20, errno.EIO, THIS_FILE)
    ran = packing(faults, many, tmp_path / "store", fault)
    assert ran.code == 0, ran
    assert [reject["reason"] for reject in rejects_of(tmp_path / "store")] == ["unreadable"]
    assert "rawpack: 1 image could not be read, and is not in the store: see " in ran.err
    assert packing(faults, many, tmp_path / "store", NOTHING, "--restart").err == ""
    assert len(Reader(tmp_path / "store")) == 200


def test_what_can_be_read_again_is_packed_when_the_job_resumes(
    faults: Faults, many: Path, whole: Path, tmp_path: Path
) -> None:
    """Files that cannot be read are rejected as `unreadable`, never as corrupt, and stop the job if they are too many.
    The same command tries them again: those that are readable by then are packed, and nothing else is done twice."""
    store, fault = tmp_path / "store", Fault(str(many / "class 0"), READ, 5, errno.EIO, THIS_FILE)
    ran = packing(faults, many, store, fault, "--max-rejects", "0")
    assert (ran.code, "unreadable 1" in ran.err, Path(ran.path).name in ran.err) == (1, True, True), ran
    shards = {path.name: path.stat().st_mtime_ns for path in store.glob("shard-*")}
    ran = packing(faults, many, store, replace(fault, at=1), "--max-rejects", "0")
    assert (ran.code, "unreadable 1" in ran.err) == (1, True), ran
    assert packing(faults, many, store, NOTHING, "--max-rejects", "0").code == 0
    assert rejects_of(store) == []
    assert (store / "store.json").read_bytes() == (whole / "store.json").read_bytes()
    assert len([name for name, time in shards.items() if (store / name).stat().st_mtime_ns == time]) == len(shards) - 1
