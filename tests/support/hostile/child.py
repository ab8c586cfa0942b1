"""Reads hostile stores, one after another, in a process that may die of it.

Started as `python -P hostile/child.py FOLDER...`, the folders being where rawpack and rawpack_packer lie. One line of
JSON in (a `Job`), one line of JSON out (what went wrong). The parent watches over time and death.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import sysconfig
import traceback
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path[:0] = [*sys.argv[1:], str(Path(__file__).parents[1])]

import numpy as np  # noqa: E402
from causes import accident  # noqa: E402
from kept_children import kept_children  # noqa: E402

from rawpack import Reader  # noqa: E402
from rawpack.errors import RawpackError  # noqa: E402
from rawpack.store.store import Store  # noqa: E402
from rawpack_packer.inspect.describe import describe  # noqa: E402
from rawpack_packer.inspect.verify import verify  # noqa: E402

ADDRESS_SPACE = 2 << 30
"""More than the process has when it starts: an absurd allocation then is a MemoryError, which counts as a failure."""
GROWTH, GROWTH_PER_BYTE = 64 << 20, 10
"""A case may grow the resident memory by so much, and so many times the size of its store."""
BATCH = 16
IMAGE_SIZE = (8, 8)

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NEVER = (
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.system", "os.exec", "os.posix_spawn", "os.fork", "shutil.", "socket.connect", "pickle.find_class",
)  # fmt: skip
Sample = dict[str, Any]


class Progress:
    """An audit hook: what a case opens outside its store, or does to any file."""

    def __init__(self) -> None:
        around = (__file__, sys.prefix, sys.base_prefix, "/proc", "/sys")
        known = [*sys.argv[1:], *sys.path, *around, *sysconfig.get_paths().values()]
        self._libraries = [os.path.realpath(path) for path in known if path]
        self._store: str | None = None
        self._seen: list[str] = []
        sys.addaudithook(self._hook)

    def begin(self, store: Path) -> None:
        self._seen, self._store = [], os.path.realpath(store)

    def end(self) -> list[str]:
        self._store = None
        return self._seen

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self._store is None:
            return
        if event.startswith(_NEVER) and not isinstance(args[0], int):  # a descriptor was opened before
            self._seen.append(f"{event} {args!r}"[:300])
        elif event == "open" and isinstance(args[0], str | bytes):
            self._opened(os.fsdecode(args[0]), args[2] if isinstance(args[2], int) else 0)
        elif event in ("os.listdir", "os.scandir") and isinstance(args[0], str | bytes):
            self._opened(os.fsdecode(args[0]), 0)

    def _opened(self, path: str, flags: int) -> None:
        head, tail = os.path.split(path)
        real = os.path.join(os.path.realpath(head), tail) if flags & os.O_NOFOLLOW else os.path.realpath(path)  # noqa: PTH118
        if real == os.devnull:
            return
        # A file of a store may be a link: it is read where that leads.
        if not flags & _WRITING and _below(os.path.abspath(path), self._store or ""):  # noqa: PTH100 - links stay
            return
        if not any(_below(real, root) for root in (self._store or "", *self._libraries)):
            self._seen.append(f"opened {path} ({real})")
        elif flags & _WRITING and _below(real, self._store or ""):
            self._seen.append(f"opened {path} for writing")


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


class Case:
    """One store read in every way; `problems` is what should not have happened."""

    def __init__(self, path: Path, expected: list[Sample]) -> None:
        self.path, self.expected = path, expected
        self.problems: list[str] = []
        self.refusals: list[str] = []
        self.differs = False

    def run(self, check: bool) -> None:
        reader = self._try(lambda: Reader(self.path))
        if reader is not None:
            samples = self._samples(reader)
            self._try(lambda: self._batches(reader, samples))
        if check:
            self._try(self._inspect)
        if self.differs and not self.problems:
            found = self._try(lambda: next(iter(verify(self.path, quick=False, tick=lambda _: None)), None))
            if found is None and not self.refusals:
                self.problems.append("other data than was packed, and the full check finds nothing wrong")

    def _try(self, action: Any) -> Any:
        try:
            return action()
        except RawpackError as error:
            self.refusals.append(f"{type(error).__name__}: {error}"[:500])
            # What a library says may be told of in another error's words; a bug in between may not.
            if (cause := accident(error)) is not None:
                self._failed(cause, "hidden in " + type(error).__name__)
        except BaseException as error:
            self._failed(error, "raised")
        return None

    def _failed(self, error: BaseException, how: str) -> None:
        trace = "".join(traceback.format_exception(error))
        self.problems.append(f"{how}: {type(error).__name__}: {str(error)[:300]}\n{trace[-1500:]}")

    def _samples(self, reader: Reader) -> list[Sample | None]:
        samples: list[Sample | None] = []
        if len(reader) > 2 * len(self.expected):
            self.problems.append(f"{len(reader)} samples in a store of {len(self.expected)}")
            return samples
        for row in range(len(reader)):
            sample = self._try(lambda row=row: reader[row])
            samples.append(sample and {name: _brief(value) for name, value in sample.items()})
            if len(self.problems) > 2:
                break
            if sample is not None:
                self._compare(reader, row, sample)
        return samples

    def _compare(self, reader: Reader, row: int, sample: Sample) -> None:
        for name, field in reader.fields.items():
            value = sample[name]
            if field.kind == "text":
                fits = isinstance(value, str)
            else:
                fits = value.dtype == field.dtype and len(value.shape) == len(field.shape)
                fits = fits and all(want in (None, have) for want, have in zip(field.shape, value.shape, strict=True))
            if not fits:
                self.problems.append(f"{name} of row {row} is no {field.dtype} {field.shape}: {np.shape(value)}")
            # A grey JPEG field of colour files is a sound store of other images.
            other = field.kind == "image" and field.encoding == "jpeg" and field.shape[2] != 3
            self.differs |= not other and (row >= len(self.expected) or not _same(self.expected[row].get(name), value))

    def _batches(self, reader: Reader, samples: list[Sample | None]) -> None:
        sized = any(field.in_shards and not field.uniform for field in reader.fields.values())
        size = IMAGE_SIZE if sized else None
        for batch in reader.batches(BATCH, workers=0, fields=list(reader.fields), image_size=size):
            for at, row in enumerate(batch["index"].tolist()):
                sample = samples[row] if row < len(samples) else None
                for name, field in reader.fields.items():
                    if sample is None or (field.in_shards and sized):
                        continue
                    if not _same(sample[name], _brief(batch[name][at])):
                        self.problems.append(f"{name} of row {row} differs between a batch and a sample")
                        return

    def _inspect(self) -> None:
        store = Store(self.path)
        str(describe(store))
        found = [f"{problem.where}: {problem.what}" for problem in verify(self.path, quick=False, tick=lambda _: None)]
        self.refusals += found[:5]


def _brief(value: Any) -> Any:
    """A long text's hash in its place: what is kept for comparison shall not count as the reader's memory."""
    return hash(value) if isinstance(value, str) and len(value) > 1000 else value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return bool(a == b)
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def _resident(kind: str) -> int:
    """Bytes: "VmRSS" now, "VmHWM" at its highest since `_forget_peak`, "VmSize" the address space."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind + ":"):
            return int(line.split()[1]) << 10
    raise LookupError(kind)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _size_of(store: Path) -> int:
    return sum(path.lstat().st_size for path in store.rglob("*"))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    progress, known, limited = Progress(), dict[str, list[Sample]](), False
    warnings.simplefilter("error")
    with answers, ExitStack() as stack:
        for line in sys.stdin:
            job = json.loads(line)
            if job["sound"] not in known:
                reader = Reader(job["sound"])
                known[job["sound"]] = [reader[row] for row in range(len(reader))]
            if not limited:
                resource.setrlimit(resource.RLIMIT_AS, (_resident("VmSize") + ADDRESS_SPACE,) * 2)
                # What reads damaged HDF5 and LMDB are forks, under the same limit.
                stack.enter_context(kept_children())
                limited = True
            case = Case(Path(job["path"]), known[job["sound"]])
            allowed = GROWTH + GROWTH_PER_BYTE * _size_of(case.path)
            _forget_peak()
            before = _resident("VmRSS")
            progress.begin(case.path)
            case.run(job["check"])
            touched = progress.end()
            grown = _resident("VmHWM") - before
            if job["check"]:
                touched = [one for one in touched if not one.startswith("pickle.")]
            if grown > allowed:
                case.problems.append(f"memory grew by {grown} bytes; {allowed} are allowed for this store")
            problems = case.problems + [f"touched: {one}" for one in touched]
            answers.write(json.dumps(problems[:5]) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
