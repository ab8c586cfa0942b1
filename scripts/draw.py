#!/usr/bin/env python3
"""Draw tables and plots from the JSON files of `python scripts/compare` and `scripts/bench/run.py`.

    scripts/draw.py results.json                             print the tables
    scripts/draw.py results.json --out docs/explanation      update the pages and plots there

The pages are compared.md for `python scripts/compare`; performance.md, and growth.svg, for the benchmark. All rows are
printed; the benchmark's page has those with a target.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from drawing import plots, results
from drawing.benchmark import RECIPE, benchmark, recipe, targets
from drawing.figures import Result
from drawing.pages import replace


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, help="the JSON file of either")
    parser.add_argument("--out", type=Path, help="folder of the pages and plots")
    asked = parser.parse_args()
    if not asked.results.is_file():
        parser.error(f"{asked.results} does not exist: name the file that --json wrote")
    result: Result = json.loads(asked.results.read_text())
    if "tables" in result:
        draw_benchmark(result, asked.out)
    else:
        draw_comparison(result, asked.out)


def draw_comparison(result: Result, out: Path | None) -> None:
    for title, text in [*results.everything(result), ("machine", results.about(result))]:
        print(f"{title}\n\n{text}\n")
    if out:
        page = out / "compared.md"
        for name in ("recipe", "read", "pack", "behavior", "install"):
            # A result of some parts does not replace the others; rates are a plot.
            if made := results.tables(result, name):
                text = "\n\n".join(f"**{title}**\n\n{text}" for title, text in made)
                # Measured in a run of its own, or in that of the others.
                replace(page, name, f"{text}\n\n{results.about(result)}" if name == "recipe" else text)
        if any(results.PARTS[row["measure"]] != "recipe" for row in result["rows"]):
            replace(page, "about", results.about(result))
        plots.draw_cores(result, out / "compared-cores.svg")
        plots.draw_disk(result, out / "compared-disk.svg")


def draw_benchmark(result: Result, out: Path | None) -> None:
    text = benchmark(result)
    print(text)
    if out:
        plots.draw_growth(result, out / "growth.svg")
        names = [table["table"] for table in result["tables"]]
        if any(name.startswith(RECIPE) for name in names):
            replace(out / "performance.md", "recipe", recipe(result))
        # A result of nothing but curves, or but these, does not replace the rows of the others.
        if any(not name.startswith(("growth", RECIPE)) for name in names):
            replace(out / "performance.md", "bench", targets(result))


if __name__ == "__main__":
    main()
