"""Build the site, as scripts/site asks for it, into a folder for its version."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent))

import rawpack  # noqa: E402
from publishing.checking import broken  # noqa: E402
from publishing.plain import write_plain  # noqa: E402
from publishing.staging import stage  # noqa: E402

_TO_NEWEST = """\
<!doctype html>
<meta charset="utf-8">
<title>rawpack</title>
<meta http-equiv="refresh" content="0; url={newest}/">
<a href="{newest}/">rawpack {newest}</a>
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/site", description="Build the documentation as a site.")
    parser.add_argument(
        "--version", default=rawpack.__version__, help="what this version is called; default: %(default)s"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/site"), help="folder of all versions; default: %(default)s"
    )
    asked = parser.parse_args()
    if not re.fullmatch(r"\w[\w.+-]*", asked.version):
        parser.error(f"--version {asked.version}: letters, digits, '.', '+' and '-' make a name of a folder")
    pages = asked.out / asked.version
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        stage(source)
        options = ["-W", "--keep-going", "-q", "-E", "-c", _HERE, "-d", Path(folder, "read")]
        named = [f"-Dversion={asked.version}", f"-Drelease={asked.version}", f"-Dhtml_title=rawpack {asked.version}"]
        code = build_main([*map(str, options), *named, str(source), str(pages)])
    write_plain(pages)
    lines = broken(pages)
    print("".join(f"no such page or anchor: {line}\n" for line in lines), end="", file=sys.stderr)
    if code or lines:
        return 1
    newest = list_versions(asked.out)
    print(f"{pages}/index.html; {asked.out}/index.html leads to {newest}")
    return 0


def list_versions(out: Path) -> str:
    """Write versions.json, newest first, and a page that leads to the newest, whose name is returned. Numbers come
    before names such as "main"."""

    def age(name: str) -> tuple[bool, list[int], str]:
        return name[0].isdigit(), [int(number) for number in re.findall(r"\d+", name)], name

    names = sorted((file.parent.name for file in out.glob("*/objects.inv")), key=age, reverse=True)
    (out / "versions.json").write_text(json.dumps(names) + "\n", "utf-8")
    (out / "index.html").write_text(_TO_NEWEST.format(newest=names[0]), "utf-8")
    return names[0]


if __name__ == "__main__":
    sys.exit(main())
