#!/usr/bin/env python3
"""Make the table of ways to train in docs/how-to/which-line.md from the tests that are marked with `way`.

    python scripts/make_ways.py [--check]

With --check nothing is written; the exit code is 1 where the table is not what the tests say.
"""

from __future__ import annotations

import ast

from made import write
from rooms import ROOT, parse

PAGE = ROOT / "docs" / "how-to" / "which-line.md"
BEGIN, END = "<!-- made by scripts/make_ways.py -->\n", "<!-- end of what is made -->\n"


def ways() -> list[tuple[str, str, str, str]]:
    """Framework, way, what happens after a kill, and the test, of each mark; by framework."""
    found = []
    for path in sorted((ROOT / "tests").glob("*/test_*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(parse(text)) if "@way(" in text else ():
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "way":
                    framework, how, after = (ast.literal_eval(one) for one in mark.args)
                    found.append((framework, how, after, f"{path.relative_to(ROOT)}::{node.name}"))
    return sorted(found, key=lambda row: row[0])


def make() -> str:
    """The page, with the table of today."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = ["| framework | way | after a kill | test |", "|---|---|---|---|"]
    lines += [
        f"| {framework} | {how} | {then} | `{test.rpartition('/')[2]}` |" for framework, how, then, test in ways()
    ]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + after


if __name__ == "__main__":
    write(PAGE, make, __doc__)
