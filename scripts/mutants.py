#!/usr/bin/env python3
"""Draw small faults from all modules by a seed, and count, room by room, how many the nearest tests catch.

    .venv/bin/python scripts/mutants.py                          600 mutants: hours, at idle priority
    .venv/bin/python scripts/mutants.py --count 60 --room order  60 mutants of rooms whose names contain "order"
    .venv/bin/python scripts/mutants.py --compare A.jsonl B.jsonl

An operator, a constant or a condition is changed in one place, and `scripts/tests_for.py` names the tests to run. The
outcomes are appended to a file, build/mutants.jsonl unless --out names another: a run that was stopped resumes there.
The same seed draws the same places from the same code, so that two states of the tests can be compared. Faults that
people thought of, each with the test that must catch it, are in mutations.toml.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from mutate import LEFT_OUT, ROOT, pytest
from rooms import modules, room_of
from tests_for import nearest

SWAPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*",
    ast.Div: "*", ast.Mod: "+", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<", ast.And: "or",
    ast.Or: "and",
}  # fmt: skip
"""An operator -> what is written in its place."""


class Mutant(msgspec.Struct, frozen=True):
    """One fault: the bytes from `start` to `end` of a module's source, and what replaces them."""

    module: str
    start: int
    end: int
    text: str

    @property
    def room(self) -> str:
        return f"{self.module.partition('.')[0]}.{room_of(self.module) or '__init__'}"

    def source(self) -> bytes:
        """The module's source with the fault."""
        intact = modules()[self.module].read_bytes()
        return intact[: self.start] + self.text.encode() + intact[self.end :]

    def describe(self) -> str:
        """Where it is, and what is written for what."""
        path = modules()[self.module]
        intact = path.read_bytes()
        line = intact.count(b"\n", 0, self.start) + 1
        return f"{path.relative_to(ROOT)}:{line}: {intact[self.start : self.end].decode()} -> {self.text}"


class Outcome(msgspec.Struct, frozen=True):
    """What the tests said of a mutant. caught: False also where they found no end, which `test` then says."""

    mutant: Mutant
    room: str
    what: str
    caught: bool
    test: str
    seconds: float


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


def run(mutants: list[Mutant], out: Path) -> None:
    """Run the nearest tests on each mutant that the file has no outcome of."""
    out.parent.mkdir(parents=True, exist_ok=True)
    known = {outcome.mutant for outcome in read(out)} if out.exists() else set()
    with tempfile.TemporaryDirectory(prefix="rawpack-mutants-") as folder, out.open("a") as file:
        Path(folder).chmod(0o755)  # some tests run as another user
        copy = shutil.copytree(ROOT, Path(folder) / "checkout", symlinks=True, ignore=LEFT_OUT)
        for number, mutant in enumerate(mutants, 1):
            if mutant in known:
                continue
            began, (caught, test) = time.monotonic(), _outcome(mutant, copy)
            outcome = Outcome(mutant, mutant.room, mutant.describe(), caught, test, time.monotonic() - began)
            file.write(msgspec.json.encode(outcome).decode() + "\n")
            file.flush()
            said = f"caught by {test}" if caught else f"NOT CAUGHT {test}"
            print(f"{number}/{len(mutants)} {outcome.what} ... {said} ({outcome.seconds:.0f} s)", flush=True)


def _outcome(mutant: Mutant, copy: Path) -> tuple[bool, str]:
    """Whether the nearest tests catch it, and which does, or why none does."""
    path = modules()[mutant.module]
    place = copy / path.relative_to(ROOT)
    try:
        place.write_bytes(mutant.source())
        try:
            tests = nearest(path)
        except ValueError:
            return False, "no test is near"
        code, said = pytest(copy, tests)
    finally:
        place.write_bytes(path.read_bytes())
    if code == -1:
        return True, "a wait without an end"
    if code == 0:
        return False, ""
    failed = next((line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))), "")
    failed = failed.partition("[")[0]
    if not failed:
        return True, "the tests do not start"
    return (True, failed) if pytest(copy, [failed])[0] == 0 else (False, f"{failed} fails without it, too")


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
    parser.add_argument("--list", action="store_true", help="list them, and run nothing")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="compare two runs, and run nothing")
    asked = parser.parse_args()
    if asked.compare:
        sys.exit(0 if show(*asked.compare) else "fewer are caught")
    mutants = drawn(asked.seed, asked.count, asked.room)
    if asked.list:
        print("\n".join(mutant.describe() for mutant in mutants))
        return
    os.nice(19)
    run(mutants, asked.out)
    show(asked.out)


if __name__ == "__main__":
    main()
