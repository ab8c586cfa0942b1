"""Tables and plots of what `python scripts/compare --json` wrote, and of `scripts/bench/run.py --json`.

    python scripts/compare/draw.py results.json                               print the tables
    python scripts/compare/draw.py results.json --out docs/explanation        put them into compared.md, draw the plots
    python scripts/compare/draw.py --bench bench.json --out docs/explanation  put its rows into performance.md
    python scripts/compare/draw.py results.json --readme README.md            put the main lines there

In a page, what is between `<!-- NAME:begin -->` and `<!-- NAME:end -->` is replaced.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench_tables import benchmark
from figures import Result
from plots import draw_cores, draw_disk
from result_tables import about, everything, lines, tables


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", help="JSON that `python scripts/compare` wrote")
    parser.add_argument("--bench", type=Path, help="JSON that scripts/bench/run.py wrote")
    parser.add_argument("--out", type=Path, help="the folder with compared.md and performance.md; plots go there")
    parser.add_argument("--readme", type=Path, help="a page with the markers `compared`")
    asked = parser.parse_args()
    for path in (asked.results, asked.bench):
        if path is not None and not path.is_file():
            parser.error(f"{path} is not there: name the file that --json wrote")
    result: Result | None = json.loads(asked.results.read_text()) if asked.results else None
    bench: Result | None = json.loads(asked.bench.read_text()) if asked.bench else None
    if result is None and bench is None:
        parser.error("name a result, or one of the benchmark by --bench")
    if result is not None:
        for title, text in [*everything(result), ("machine", about(result))]:
            print(f"{title}\n\n{text}\n")
        if asked.out:
            page = asked.out / "compared.md"
            for name in ("read", "pack", "pace", "behavior", "install"):
                replace(page, name, "\n\n".join(f"**{title}**\n\n{text}" for title, text in tables(result, name)))
            replace(page, "about", about(result))
            draw_cores(result, asked.out / "compared-cores.svg")
            draw_disk(result, asked.out / "compared-disk.svg")
        if asked.readme:
            replace(asked.readme, "compared", lines(result))
    if bench is not None:
        text = benchmark(bench)
        print(text)
        if asked.out:
            replace(asked.out / "performance.md", "bench", text)


def replace(page: Path, name: str, made: str) -> None:
    """Put what was made between the page's markers."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = page.read_text("utf-8")
    if begin not in text or end not in text:
        raise SystemExit(f"{page} lacks {begin} or {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{made}\n\n{end}{after}", "utf-8")


if __name__ == "__main__":
    main()
