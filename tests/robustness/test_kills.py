"""Every command, killed by KILL, TERM or INT at a random moment, itself or a child of it: the same command again does
the rest, to the bytes of a run that nobody killed, and nothing is left behind.

RAWPACK_SEED repeats the draws of a run that failed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest
from forked import COMMAND, Forks, forks
from running import environment
from store_server import find_by_itself, serving

pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")
pytest.importorskip("pyarrow", reason="rawpack[parquet] is not installed: no pyarrow")

from command_lines import LINES, Scene

from rawpack import Reader

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and /proc"),
    pytest.mark.own_processes,
]

SEED = os.environ.get("RAWPACK_SEED") or os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex[:8]
ENDS_S = 120
"""Within which a process that was not killed ends on any machine."""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float
    killed: str = ""
    """Which signal it or a child of it was sent; empty where it ended before."""
    itself: bool = False
    """Whether it was sent to the command, rather than to a child."""


@dataclass
class Run:
    """One folder in which a line is run, again and again."""

    scene: Scene
    line: str
    folder: Path
    forks: Forks
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    """In the environment of all its processes, wherever they are."""

    def __post_init__(self) -> None:
        for path in (self.folder, self.results, self.temporary):
            path.mkdir()
        self.words = self.scene.words(self.line, self.results)

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def _variables(self) -> dict[str, str]:
        caches = {"RAWPACK_CACHE": self.folder / "cache", "TMPDIR": self.temporary}
        return {name: str(path) for name, path in caches.items()} | {"RAWPACK_MARK": self.mark}

    def __call__(self, kill: tuple[float, signal.Signals, random.Random | None] | None = None) -> Ran:
        """Run the line. kill: after so many seconds, by which signal; a child that is drawn, or, for None, itself."""
        start, killed, itself = monotonic(), "", False
        with self.forks.started(COMMAND, *self.words, **self._variables()) as fork:
            if kill is not None and not fork.ends_within(kill[0]):
                killed, itself = self._send(fork.pid, kill[1], kill[2])
            ran = fork.wait()
        return Ran(ran.code, ran.out, ran.err, monotonic() - start, killed, itself)

    def _send(self, pid: int, number: signal.Signals, dice: random.Random | None) -> tuple[str, bool]:
        try:
            process = psutil.Process(pid)
            children = process.children(recursive=True)
            if dice is not None and children:
                dice.choice(children).send_signal(number)
                return number.name, False
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return "", False
        return number.name, True

    def left(self) -> list[str]:
        """What is left of its processes once they had time to end, and of its temporary files."""
        _, alive = psutil.wait_procs(list(self._processes()), timeout=ENDS_S)
        files = [path.relative_to(self.folder).as_posix() for path in self.temporary.rglob("*")]
        return [*map(str, alive), *files]

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("RAWPACK_MARK") == self.mark:
                    yield process


@dataclass(frozen=True)
class Undisturbed:
    """How a line ends that nobody kills."""

    ran: Ran
    files: dict[str, bytes]


class Kills:
    """Runs lines, and kills them."""

    def __init__(self, scene: Scene, folder: Path, forks: Forks) -> None:
        self.scene, self.folder, self.forks, self._numbers = scene, folder, forks, iter(range(1_000_000))
        self._undisturbed: dict[str, Undisturbed] = {}

    def run(self, line: str) -> Run:
        return Run(self.scene, line, self.folder / f"{next(self._numbers)}", self.forks)

    def undisturbed(self, line: str) -> Undisturbed:
        if line not in self._undisturbed:
            run = self.run(line)
            ran = run()
            assert ran.code == (1 if "@damaged" in line and line.startswith("inspect") else 0), (line, ran)
            assert run.left() == [], line
            self._undisturbed[line] = Undisturbed(ran, self.scene.results(run.results))
        return self._undisturbed[line]

    def kill(self, line: str, dice: random.Random) -> None:
        """Run a line, kill it in time, and run it again."""
        wanted = self.undisturbed(line)
        share, child = dice.uniform(0.2, 1), dice if dice.random() < 0.2 else None
        number = dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        for _ in range(8):
            run = self.run(line)
            ran = run((share * wanted.ran.seconds, number, child))
            if ran.killed:
                break
            share *= 0.7  # the machine is less busy than it was
        else:
            pytest.fail(f"it always ended before it was killed: {line}")
        when = f"to {'it' if ran.itself else 'a child'} after {share:.0%}"
        self._run_again(run, ran, wanted, f"{ran.killed} {when}: {line}")

    def _run_again(self, run: Run, ran: Ran, wanted: Undisturbed, drawn: str) -> None:
        line = run.line
        drawn += f"\n{ran.code} {ran.err}"
        print(f"RAWPACK_SEED={SEED}: {drawn}")
        self._check_killed(run, ran, wanted, drawn)
        # Only a child was killed, or the command after its commit: an append adds nothing twice, and says so.
        twice = line.startswith("append") and (ran.code == 0 or self._is_new(run, wanted))
        again = run()
        drawn += f"\nand again: {again.code} {again.err}"
        assert again.code == wanted.ran.code or (twice and "already has" in again.err), drawn
        assert "Traceback" not in again.err, drawn
        self._check_files(run, wanted, drawn)
        assert "--json" not in line or again.out == wanted.ran.out
        assert run.left() == [], drawn

    def _check_killed(self, run: Run, ran: Ran, wanted: Undisturbed, drawn: str) -> None:
        if ran.itself:
            number = signal.Signals[ran.killed]
            assert ran.code in {-number, 128 + number, wanted.ran.code}, drawn
        else:
            assert ran.code in (0, 1, wanted.ran.code), drawn
            if ran.code == 0:
                self._check_files(run, wanted, drawn)
        assert ran.killed == "SIGINT" or "Traceback" not in ran.err, drawn
        if "=store" in run.line:
            self._check_store(run, wanted, drawn)

    def _check_store(self, run: Run, wanted: Undisturbed, drawn: str) -> None:
        """A store that is changed in place is the old one or the new one, and reads."""
        changed = run.results / "changed"
        name = next(word[1:] for word in run.line.split() if word.startswith("="))
        manifest = (changed / "store.json").read_bytes()
        old, new = (self.scene.path(name) / "store.json").read_bytes(), wanted.files["changed/store.json"]
        assert manifest in (old, new), drawn
        reader = Reader(changed, verify=True)
        for batch in reader.batches(64, workers=0, fields=[*reader.fields]):
            assert batch

    def _is_new(self, run: Run, wanted: Undisturbed) -> bool:
        """Whether the store that the line changes has the manifest that it ends with."""
        manifest = run.results / "changed" / "store.json"
        return manifest.exists() and manifest.read_bytes() == wanted.files.get("changed/store.json")

    def _check_files(self, run: Run, wanted: Undisturbed, drawn: str) -> None:
        files = self.scene.results(run.results)
        assert files.keys() == wanted.files.keys(), drawn
        assert [name for name in files if files[name] != wanted.files[name]] == [], drawn


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kills]:
    root = tmp_path_factory.mktemp("kills")
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        find_by_itself(server, patch)
        (root / "scene").mkdir()
        with forks(environment()) as forked:
            yield Kills(Scene(root / "scene", server), root, forked)


KILLED = tuple(line for line in LINES if not line.startswith("view"))
"""All but the one that ends only when it is interrupted."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(6))
def test_six_kills(kills: Kills, number: int) -> None:
    """Of six command lines that are drawn."""
    kills.kill(random.Random(SEED).sample(KILLED, 6)[number], random.Random(f"{SEED} {number}"))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", KILLED)
@pytest.mark.parametrize("number", range(10))
def test_ten_kills_of_each(kills: Kills, line: str, number: int) -> None:
    kills.kill(line, random.Random(f"{SEED} {line} {number}"))
