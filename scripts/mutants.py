#!/usr/bin/env python3
"""Draw small faults from all modules by a seed, and count, room by room, how many the nearest tests catch.

    .venv/bin/python scripts/mutants.py                          600 mutants: two hours, at idle priority
    .venv/bin/python scripts/mutants.py --count 60 --room order  60 mutants of rooms whose names contain "order"
    .venv/bin/python scripts/mutants.py --every                  with the tests of all files, which are recorded first
    .venv/bin/python scripts/mutants.py --survivors A.jsonl --out B.jsonl    those that no test has caught in a run
    .venv/bin/python scripts/mutants.py --compare B.jsonl A.jsonl

An operator, a constant or a condition is changed in one place, and of the files that `scripts/tests_for.py` names, the
tests run that execute this place, half a minute of them at most, fast ones first; where none does, as it is executed on
import or by other processes, those of these files. The outcomes are appended to a file, build/mutants.jsonl unless
--out names another: a run that was stopped resumes there. The same seed draws the same places from the same code.

To compare two states of the tests, run the mutants with the later one, and what survives there with the earlier one, in
a checkout of that: what the later one catches cannot be lost. Faults that people thought of, each with the test that
must catch it, are in mutations.toml.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from executed import Chosen, Recorder, Test, forked, reached
from mutate import LEFT_OUT, ROOT
from rooms import modules, room_of
from tests_for import homes, nearest

SWAPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*",
    ast.Div: "*", ast.Mod: "+", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<", ast.And: "or",
    ast.Or: "and",
}  # fmt: skip
"""An operator -> what is written in its place."""
TESTS_S = 30
"""Seconds that the tests of a mutant may take that passes them all."""
_FILE_S = 0.5
"""To begin with a file of tests takes so long."""
_AROUND = 200
RECORD_S = 1800
"""Seconds for one file of tests while its lines are recorded."""


class Mutant(msgspec.Struct, frozen=True):
    """One fault: the bytes from `start` to `end` of a module's source, and what replaces them."""

    module: str
    start: int
    end: int
    text: str

    @property
    def room(self) -> str:
        return f"{self.module.partition('.')[0]}.{room_of(self.module) or '__init__'}"

    def source(self, intact: bytes) -> bytes:
        """The module's source with the fault."""
        return intact[: self.start] + self.text.encode() + intact[self.end :]

    def describe(self) -> str:
        """Where it is, and what is written for what."""
        path = modules()[self.module]
        intact = path.read_bytes()
        line = intact.count(b"\n", 0, self.start) + 1
        return f"{path.relative_to(ROOT)}:{line}: {intact[self.start : self.end].decode()} -> {self.text}"


class Outcome(msgspec.Struct, frozen=True):
    """What the tests said of a mutant. test: the one that catches it, or why none does. tests: how many ran; those that
    `executed` it, or others of the nearest files. around: the source before and after the place, by which it is found
    in another state of the code."""

    mutant: Mutant
    room: str
    what: str
    caught: bool
    test: str
    seconds: float
    tests: int = 0
    executed: bool = False
    around: tuple[str, str] = ("", "")


def places(module: str, path: Path) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its source."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1] + (
            node.end_col_offset or 0
        )

    def between(left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Mutant]:
        low, high = span(left)[1], span(right)[0]
        at = source.find(old.encode(), low, high)
        # Comments and brackets may stand between two operands; an operator that they contain is none.
        if at >= 0 and b"#" not in source[low:high]:
            yield Mutant(module, at, at + len(old.encode()), new)

    def visit(node: ast.AST) -> Iterator[Mutant]:
        # Which positions an f-string's parts have depends on the version of Python.
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.If) and ast.unparse(node.test).endswith("CHECKING")
        ):
            return
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield from between(left, right, _written(op), SWAPPED[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPPED and not _is_type(node):
                yield from between(left, right, _written(op), SWAPPED[type(op)])
            case ast.BoolOp(op=op, values=[left, right, *_]):
                yield from between(left, right, _written(op), SWAPPED[type(op)])
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                low, high = span(test)
                yield Mutant(module, low, high, f"not ({source[low:high].decode()})")
            case ast.Constant(value=bool() as value):
                yield Mutant(module, *span(node), str(not value))
            case ast.Constant(value=int() as value):
                yield Mutant(module, *span(node), str(value + 1))
        for name, child in ast.iter_fields(node):
            if name not in ("annotation", "returns", "type_params", "decorator_list"):
                for inner in child if isinstance(child, list) else [child]:
                    if isinstance(inner, ast.AST):
                        yield from visit(inner)

    yield from visit(ast.parse(source))


def _written(op: ast.AST) -> str:
    """How an operator is written."""
    shown = ast.unparse(
        ast.Compare(ast.Name("a"), [op], [ast.Name("b")])
        if isinstance(op, ast.cmpop)
        else ast.BoolOp(op, [ast.Name("a"), ast.Name("b")])
        if isinstance(op, ast.boolop)
        else ast.BinOp(ast.Name("a"), op, ast.Name("b"))  # type: ignore[arg-type]
    )
    return shown[2:-2]


def _is_type(node: ast.BinOp) -> bool:
    """Whether it looks like a union of types, as `int | None` is."""
    sides = (node.left, node.right)
    return isinstance(node.op, ast.BitOr) and any(
        (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Name | ast.Subscript | ast.Attribute) and ast.unparse(side)[0].isupper())
        or (isinstance(side, ast.Name) and side.id in ("int", "str", "float", "bytes", "bool", "list", "dict", "tuple"))
        for side in sides
    )


def drawn(seed: int, count: int, room: str) -> list[Mutant]:
    """`count` mutants of all modules whose rooms contain `room`, drawn by the seed."""
    every = [mutant for module, path in sorted(modules().items()) for mutant in places(module, path)]
    every = [mutant for mutant in every if room in mutant.room]
    return random.Random(seed).sample(every, min(count, len(every)))


def run(mutants: list[Mutant], out: Path, here: dict[Mutant, Mutant], files: list[str]) -> None:
    """Run tests of these files, or of the nearest, on each mutant that the file has no outcome of. here: mutants of
    another state of the code -> the same in this checkout."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.touch()
    with (
        tempfile.TemporaryDirectory(prefix="rawpack-mutants-", ignore_cleanup_errors=True) as folder,
        out.open("a") as file,
    ):
        Path(folder).chmod(0o755)  # some tests run as another user
        tests = Tests(Path(shutil.copytree(ROOT, Path(folder) / "checkout", symlinks=True, ignore=LEFT_OUT)), files)
        for number, mutant in enumerate(mutants, 1):
            if any(outcome.mutant == mutant for outcome in read(out)):  # of a run beside this one, too
                continue
            outcome = tests.outcome(mutant, number, here.get(mutant, mutant))
            file.write(msgspec.json.encode(outcome).decode() + "\n")
            file.flush()
            said = f"caught by {outcome.test}" if outcome.caught else f"NOT CAUGHT {outcome.test}"
            print(
                f"{number}/{len(mutants)} {outcome.what} ... {said} ({outcome.tests} tests, {outcome.seconds:.0f} s)",
                flush=True,
            )


class Tests:
    """The tests of a copy of the checkout, and what they execute."""

    def __init__(self, copy: Path, files: list[str]) -> None:
        self._copy, self._files, self._tests = copy, files, dict[str, list[Test]]()
        hashed = hashlib.sha256()
        for path in sorted(path for top in ("reader", "packer", "tests") for path in (copy / top).rglob("*.py")):
            hashed.update(f"{path.relative_to(copy)} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
        self._records = ROOT / "build" / "executed" / hashed.hexdigest()[:16]
        self._records.mkdir(parents=True, exist_ok=True)

    def outcome(self, mutant: Mutant, number: int, here: Mutant) -> Outcome:
        """What they say of a mutant, which is that number of a run. here: the same in this checkout."""
        intact = modules()[here.module].read_bytes()
        around = (intact[: here.start][-_AROUND:], intact[here.end :][:_AROUND])
        chosen, executed = self._chosen(here, intact)
        began, (caught, test, ran) = time.monotonic(), self._run(here, number, intact, chosen)
        seconds, texts = time.monotonic() - began, [text.decode(errors="ignore") for text in around]
        what = f"{here.describe()}"
        return Outcome(mutant, mutant.room, what, caught, test, round(seconds, 1), ran, executed, (texts[0], texts[1]))

    def _chosen(self, mutant: Mutant, intact: bytes) -> tuple[list[Test], bool]:
        """The tests to run, and whether they execute the place."""
        path = modules()[mutant.module]
        try:
            near = set(nearest(path))
        except ValueError:
            near = set()
        every = [test for file in self._files or sorted(near) for test in self._recorded(file)]
        name, lines = str(path.relative_to(ROOT)), reached(intact, intact.count(b"\n", 0, mutant.start) + 1)
        executing = [test for test in every if test.executes(name, lines)]
        # The first of each function of tests, then the second of each: the cases of one differ less.
        turns, order = Counter[str](), []
        for test in sorted(executing or every, key=lambda test: test.seconds):
            function = test.name.partition("[")[0]
            file = function.partition("::")[0]
            order.append((not test.executes(name), turns[function], file not in near, test.seconds, file, test))
            turns[function] += 1
        chosen, files, spent = list[Test](), set[str](), 0.0
        for *_, file, test in sorted(order, key=lambda each: each[:4]):
            spent += test.seconds + (0 if file in files else _FILE_S)
            if spent <= TESTS_S or not chosen:
                chosen.append(test)
                files.add(file)
        return chosen, bool(executing) and lines is not None

    def _recorded(self, file: str) -> list[Test]:
        """The tests of a file that pass, with what they execute."""
        if file in self._tests:
            return self._tests[file]
        record = self._records / f"{file.replace('/', '.')}.json"
        if not record.exists():
            began = time.monotonic()
            noted = forked(self._copy, [file], Recorder(self._copy), RECORD_S) or b"[[], []]"
            tests, failed = msgspec.json.decode(noted, type=tuple[list[Test], list[str]])
            seconds = f"{time.monotonic() - began:.0f} s"
            print(f"{file}: {len(tests)} tests recorded ({seconds})", *(f"\n  it fails: {name}" for name in failed))
            whole = record.with_suffix(f".{os.getpid()}")
            whole.write_bytes(msgspec.json.encode(tests))
            whole.replace(record)
        self._tests[file] = msgspec.json.decode(record.read_bytes(), type=list[Test])
        return self._tests[file]

    def _run(self, mutant: Mutant, number: int, intact: bytes, chosen: list[Test]) -> tuple[bool, str, int]:
        """Whether tests catch a mutant, which does, or why none does, and how many ran."""
        if not chosen:
            return False, "no test is near", 0
        path = modules()[mutant.module]
        place = self._copy / path.relative_to(ROOT)
        try:
            place.write_bytes(mutant.source(intact))
            # Compiled modules are told apart by times and sizes: no two mutants have the same.
            os.utime(place, (number, number))
            answer = self._answer(chosen)
        finally:
            shutil.copy2(path, place)
        if answer is None or answer == ("", 0):
            return True, "a wait without an end" if answer is None else "the tests do not start", 0
        failed, ran = answer
        if not failed or self._answer([Test(failed, TESTS_S, {})]) == ("", 1):
            return bool(failed), failed, ran
        # It fails without the fault, too: on a busy machine, where it waits for something.
        return self._run(mutant, number, intact, [test for test in chosen if test.name != failed])

    def _answer(self, chosen: list[Test]) -> tuple[str, int] | None:
        """The first of some tests that fails, and how many ran; None where they find no end."""
        files = sorted({test.name.partition("::")[0] for test in chosen})
        answer = forked(self._copy, files, Chosen(chosen), 120 + 5 * sum(test.seconds for test in chosen))
        return None if answer is None else msgspec.json.decode(answer or b'["", 0]', type=tuple[str, int])


def elsewhere(outcomes: list[Outcome]) -> dict[Mutant, Mutant]:
    """Mutants of another state of the code -> the same in this checkout, which has the source around them once."""
    found = {}
    for outcome in outcomes:
        mutant, (before, after) = outcome.mutant, outcome.around
        old = outcome.what.rpartition(f" -> {mutant.text}")[0].partition(": ")[2]
        path = modules().get(mutant.module)
        source = path.read_bytes() if path else b""
        # As much of what is around it as there is here, a few lines at least.
        for size in (_AROUND, 80, 40):
            text = (before[-size:] + old + after[:size]).encode()
            if source.count(text) == 1:
                start = source.index(text) + len(before[-size:].encode())
                found[mutant] = Mutant(mutant.module, start, start + len(old.encode()), mutant.text)
                break
    return found


def read(path: Path) -> list[Outcome]:
    """The outcomes that a file has."""
    return [msgspec.json.decode(line, type=Outcome) for line in path.read_bytes().splitlines()]


def show(*files: Path) -> bool:
    """Print, for each room, how many are caught by each file; False where a later one catches fewer of the same."""
    outcomes = [{outcome.mutant: outcome for outcome in read(file)} for file in files]
    common = set(outcomes[0]).intersection(*outcomes)
    counts = [Counter(each[mutant].room for mutant in common if each[mutant].caught) for each in outcomes]
    rooms = Counter(outcomes[0][mutant].room for mutant in common)
    for room, total in sorted(rooms.items()):
        print(f"{room:32} {total:4}", *(f"{count[room]:6}" for count in counts))
    print(f"{'all':32} {len(common):4}", *(f"{count.total():6}" for count in counts))
    for mutant in sorted(common, key=lambda mutant: (mutant.module, mutant.start)):
        before, after = outcomes[0][mutant], outcomes[-1][mutant]
        if before.caught and not after.caught:
            print(f"not caught any more: {before.what}, by {before.test}")
    return all(counts[0][room] <= counts[-1][room] for room in rooms)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", default="", help="only rooms whose names contain this")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants.jsonl")
    parser.add_argument("--every", action="store_true", help="tests of every file, the nearest ones first")
    parser.add_argument("--backwards", action="store_true", help="from the last on: for a second run beside the first")
    parser.add_argument("--list", action="store_true", help="list them, and run nothing")
    parser.add_argument("--survivors", type=Path, metavar="FILE", help="only those that were not caught in this run")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="compare two runs, and run nothing")
    asked = parser.parse_args()
    if asked.compare:
        sys.exit(0 if show(*asked.compare) else "fewer are caught")
    places_here = dict[Mutant, Mutant]()
    if asked.survivors:
        survivors = [outcome for outcome in read(asked.survivors) if not outcome.caught]
        places_here = elsewhere(survivors)
        mutants = list(places_here)
        print(f"{len(survivors) - len(mutants)} of {len(survivors)} survivors are in code that this checkout has not")
    else:
        mutants = drawn(asked.seed, asked.count, asked.room)
    if asked.list:
        print("\n".join(places_here.get(mutant, mutant).describe() for mutant in mutants))
        return
    os.nice(19)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    mutants = mutants[:: -1 if asked.backwards else 1]
    run(mutants, asked.out, places_here, sorted(homes(), reverse=asked.backwards) if asked.every else [])
    show(asked.out)


if __name__ == "__main__":
    main()
