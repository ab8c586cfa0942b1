"""Draw tables and plots from the JSON files of `python scripts/compare` and `scripts/bench/run.py`.

    python scripts/compare/draw.py results.json                               print the tables
    python scripts/compare/draw.py results.json --out docs/explanation        update compared.md and the plots
    python scripts/compare/draw.py --bench bench.json --out docs/explanation  update performance.md
    python scripts/compare/draw.py results.json --readme README.md            update the short table in README

In a page, the text between `<!-- NAME:begin -->` and `<!-- NAME:end -->` is replaced.
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
    parser.add_argument("results", type=Path, nargs="?", help="JSON file of `python scripts/compare`")
    parser.add_argument("--bench", type=Path, help="JSON file of scripts/bench/run.py")
    parser.add_argument("--out", type=Path, help="folder of compared.md, performance.md and the plots")
    parser.add_argument("--readme", type=Path, help="page with the markers `compared`")
    asked = parser.parse_args()
    for path in (asked.results, asked.bench):
        if path is not None and not path.is_file():
            parser.error(f"{path} does not exist: name the file that --json wrote")
    result: Result | None = json.loads(asked.results.read_text()) if asked.results else None
    bench: Result | None = json.loads(asked.bench.read_text()) if asked.bench else None
    if result is None and bench is None:
        parser.error("name a result of scripts/compare, or one of scripts/bench with --bench")
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
    """Replace the text between the page's markers of this name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = page.read_text("utf-8")
    if begin not in text or end not in text:
        raise SystemExit(f"{page} needs the markers {begin} and {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{made}\n\n{end}{after}", "utf-8")


if __name__ == "__main__":
    main()
