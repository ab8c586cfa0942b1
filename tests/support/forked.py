"""Scripts and command lines in forks of one process that has loaded rawpack: each is a process of its own, and takes a
fifth of the time of a new Python.

As a program it reads a JSON list of code, arguments and environment per line, runs the code in a fork, and answers with
a line of exit code, stdout and stderr. A fork ends as a program does, but for what the interpreter itself would do.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from running import Ran

_RUNS_S = 280
_COMMAND = "from rawpack_packer.cli import main\nmain()\n"


class Forks:
    """See above."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, code: str, *args: object, **variables: str) -> Ran:
        """Run a script with these arguments. variables: go into its environment."""
        from running import Ran  # not in the program

        program = self._process
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps([code, [str(arg) for arg in args], variables]) + "\n")
        program.stdin.flush()
        return Ran(*json.loads(program.stdout.readline()))

    def command(self, *words: object, before: str = "", **variables: str) -> Ran:
        """Run the command. before: what the process does first."""
        return self.run(f"{before}\n{_COMMAND}", *words, **variables)


@contextmanager
def forks(environment: Mapping[str, str], *launcher: str) -> Iterator[Forks]:
    """launcher: the words of a command that starts the program. environment: FORKS_SYNC has what is packed reach the
    disk."""
    with subprocess.Popen(
        [*launcher, sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
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
    # Before the forks.
    from unsynced import leave_unsynced

    import rawpack.workers.pool  # noqa: F401
    import rawpack_packer.api
    import rawpack_packer.cli.pack
    import rawpack_packer.job.summary  # noqa: F401

    if "FORKS_SYNC" not in os.environ:
        leave_unsynced()
    for line in sys.stdin:
        answer: Any = _run(*json.loads(line))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
