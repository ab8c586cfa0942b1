"""Scripts and command lines in forks of one process that has loaded rawpack: each is a process of its own, and takes a
fifth of the time of a new Python.

As a program it reads a JSON list of code, arguments and environment per line, runs the code in a fork, and answers with
its process id, and at its end with a line of exit code, stdout and stderr. A fork ends as a program does, but for what
the interpreter itself would do.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from running import Ran

_RUNS_S = 280
COMMAND = "from rawpack_packer.cli import main\nmain()\n"


class Fork:
    """A script that runs."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program
        self._ran: Ran | None = None
        self.pid = int(self._line())

    def _line(self) -> str:
        assert self._program.stdout is not None
        return self._program.stdout.readline()

    def wait(self) -> Ran:
        """How it ended."""
        from running import Ran  # not in the program

        if self._ran is None:
            self._ran = Ran(*json.loads(self._line()))
        return self._ran

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends in this time, and was reaped."""
        end = time.monotonic() + seconds
        try:
            while self._ran is None:
                os.kill(self.pid, 0)
                if time.monotonic() >= end:
                    return False
                time.sleep(0.005)
        except ProcessLookupError:
            pass
        return True

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Forks:
    """See above."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @contextmanager
    def started(self, code: str, *args: object, **variables: str) -> Iterator[Fork]:
        """A script with these arguments as a running process, which is ended with the block. variables: go into its
        environment. Only one runs at a time."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([code, [str(arg) for arg in args], variables]) + "\n")
        self._process.stdin.flush()
        fork = Fork(self._process)
        try:
            yield fork
        finally:
            if not fork.ends_within(0):
                fork.kill()
            fork.wait()

    def run(self, code: str, *args: object, **variables: str) -> Ran:
        """Run a script to its end."""
        with self.started(code, *args, **variables) as fork:
            return fork.wait()

    def command(self, *words: object, before: str = "", **variables: str) -> Ran:
        """Run the command. before: what the process does first."""
        return self.run(f"{before}\n{COMMAND}", *words, **variables)


@contextmanager
def forks(environment: Mapping[str, str], *launcher: str, loads: Sequence[str] = ()) -> Iterator[Forks]:
    """launcher: the words of a command that starts the program. environment: FORKS_SYNC has what is packed reach the
    disk. loads: what the program imports before it forks, too."""
    with subprocess.Popen(
        [*launcher, sys.executable, __file__, *loads], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
        env={**environment, "OPENBLAS_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        try:
            yield Forks(process)
        finally:
            process.kill()


def _run(code: str, args: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        child = os.fork()
        if not child:
            signal.alarm(_RUNS_S)
            os.environ.update(variables)
            tempfile.tempdir = None
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for number, file in enumerate((out, err), 1):
                os.dup2(file.fileno(), number)
            os._exit(_main(code, args))
        print(child, flush=True)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
        return status, texts[0], texts[1]


def _main(code: str, args: Sequence[str]) -> int:
    sys.argv, status = ["rawpack", *args], 0
    try:
        exec(compile(code, "<script>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()  # as where a program ends: a lease in a cache is given back
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # one that the code has closed
            stream.flush()
    return status


def main() -> None:
    # What most forks need, once for all of them: to pack a few images takes a fifth of the time that this takes.
    from importlib.metadata import entry_points

    from unsynced import leave_unsynced

    import rawpack.formats.codecs
    import rawpack.workers.pool  # noqa: F401
    import rawpack_packer.api
    import rawpack_packer.cli.pack
    import rawpack_packer.engines.local
    import rawpack_packer.job.job
    import rawpack_packer.job.summary
    import rawpack_packer.samples.encoders
    import rawpack_packer.writers.hdf5
    import rawpack_packer.writers.lmdb
    import rawpack_packer.writers.memmap  # noqa: F401

    for name in sys.argv[1:]:
        import_module(name)
    entry_points(group="rawpack.sources")
    gc.freeze()  # a collection would write to, and so copy, all that a fork shares with this process
    if "FORKS_SYNC" not in os.environ:
        leave_unsynced()
    for line in sys.stdin:
        answer: Any = _run(*json.loads(line))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
