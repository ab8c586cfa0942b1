"""The tables of a result as Markdown: installation, what training sees, packing, reading, pacing, behavior."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from drawing.figures import KINDS, WAYS, Result, Row, median, ordered, ratio, spread, values
from drawing.verdicts import checked, kept, killed_packer, killed_worker, plain, resumed, said


def everything(result: Result) -> list[tuple[str, str]]:
    return [table for name in ("install", *MAKERS) for table in tables(result, name)]


def tables(result: Result, name: str) -> list[tuple[str, str]]:
    """The tables of one part of the result, as pairs of title and Markdown; none for parts without rows."""
    if name == "install":
        return installation(result)
    rows = [row for row in result["rows"] if PARTS[row["measure"]] == name]
    return [table for table in MAKERS[name](rows) if table[1]]


def packing(rows: list[Row]) -> Iterator[tuple[str, str]]:
    for kind, called in KINDS.items():
        mine = [row for row in rows if row["kind"] == kind]
        more = {"MB per 1,000 images": partial(per_thousand, mine)}
        yield f"Packing, {called}", measured(mine, "bare loop", "{:.2f}", more)


def reading(rows: list[Row]) -> Iterator[tuple[str, str]]:
    for (kind, crop), called in WAYS.items():
        mine = [row for row in rows if (row["kind"], row["crop"]) == (kind, crop)]
        more = {
            "first batch, s": partial(median, mine, quantity="first_batch_s", shape="{:.2f}"),
            "memory, MB": partial(median, mine, quantity="memory_bytes", shape="{:,.0f}", times=1e-6),
        }
        yield f"Reading, {called}", measured(mine, "bare limit", "{:.3f}", more)


def training(rows: list[Row]) -> Iterator[tuple[str, str]]:
    for kind, called in KINDS.items():
        every = [row for row in rows if row["kind"] == kind]
        mine = [row for row in every if row["measure"] == "recipe"]
        checks = {row["system"]: checked(row) for row in every if row["measure"] == "recipe_check"}
        more: dict[str, Callable[[Row], str]] = {
            "first batch, s": partial(median, mine, quantity="first_batch_s", shape="{:.2f}"),
            "each sample once, right values": partial(_check_of, checks),
        }
        title = f"Random-resized-crop 224, flip and normalize to float32, from {called}, 256 px"
        yield title, measured(mine, "bare limit", "{:.3f}", more)


def _check_of(checks: Mapping[str, str], row: Row) -> str:
    """What the check found of this row's system; empty where it was not made."""
    return checks.get(row["system"], "")


def measured(rows: list[Row], limit: str, cpu: str, more: Mapping[str, Callable[[Row], str]]) -> str:
    """Systems and limits, fastest first. cpu: the format of the CPU seconds. more: further columns."""
    head = ("system", "images/s", f"vs. {limit}", "vs. rawpack", "CPU s per 1,000 images", *more)
    cells = [
        (
            system_name(row), spread(rows, row, "images_per_s"), ratio(rows, row, limit=True),
            ratio(rows, row, limit=False), median(rows, row, "cpu_s_per_1000", cpu),
            *(cell(row) for cell in more.values()),
        )
        for row in ordered(rows)
    ]  # fmt: skip
    return markdown(head, cells) + failures(rows)


def pacing(rows: list[Row]) -> Iterator[tuple[str, str]]:
    for kind, called in KINDS.items():
        every = [row for row in rows if row["kind"] == kind]
        mine = [row for row in every if "paced" in row]
        if mine:
            wanted = [point["wanted"] for point in mine[0]["paced"]]
            cells = [
                (row["system"], *(f"{point['images_per_s']:,.0f} ({point['cores']:.1f})" for point in row["paced"]))
                for row in sorted(mine, key=lambda row: -row["paced"][-1]["images_per_s"])
            ]
            head = ("system", *(f"{rate:,} wanted" for rate in wanted))
            yield (
                f"Images/s that a step of fixed duration gets (cores in use), {called}",
                markdown(head, cells) + failures(every),
            )


def behaving(rows: list[Row]) -> Iterator[tuple[str, str]]:
    names = list(dict.fromkeys(row["system"] for row in rows))
    by = {(row["system"], row["measure"]): row for row in rows if row["measure"] != "check"}
    checks = {name: [row for row in rows if row["system"] == name and row["measure"] == "check"] for name in names}
    head: tuple[str, ...]
    head = ("system", "each sample once, correct pixels", "16 kept batches", "after a worker is killed",
            "/dev/shm of 1 MB", "resumes in mid-epoch")  # fmt: skip
    cells = [
        (
            name,
            "; ".join(dict.fromkeys(checked(row) for row in checks[name])),
            said(by.get((name, "kept")), kept),
            said(by.get((name, "kill_worker")), killed_worker),
            said(by.get((name, "small_shm")), checked),
            said(by.get((name, "resume")), resumed),
        )
        for name in names
    ]
    yield "When things go wrong", markdown(head, cells)
    killed = [by[name, "killed_packer"] for name in names if (name, "killed_packer") in by]
    head = ("system", "reading the partial store", "packing again", "reading after that")
    yield "When packing is killed halfway", markdown(head, [(row["system"], *killed_packer(row)) for row in killed])


def installation(result: Result) -> list[tuple[str, str]]:
    used = {row["system"]: row["version"] for row in result["rows"] if "version" in row}
    cells = [
        (name, str(len(one["distributions"])), f"{one['bytes'] / 1e6:,.0f}")
        for name, one in sorted(result["environments"].items(), key=lambda item: item[1]["bytes"])
    ]
    text = markdown(("environment", "packages", "MB"), cells)
    if used:
        text += "\n\nVersions: " + ", ".join(f"{name} {version}" for name, version in used.items()) + "."
    for name, reason in result["left_out"].items():
        text += f"\n\nLeft out: {name}, which could not be installed: {reason.splitlines()[-1]}"
    return [("Installation, with NumPy, OpenCV and simplejpeg", text)]


PARTS = {
    "pack": "pack", "read": "read", "pace": "pace", "recipe": "recipe", "recipe_check": "recipe",
    **dict.fromkeys(("check", "kept", "kill_worker", "resume", "killed_packer", "small_shm"), "behavior"),
}  # fmt: skip
MAKERS: dict[str, Callable[[list[Row]], Iterable[tuple[str, str]]]] = {
    "recipe": training, "pack": packing, "read": reading, "pace": pacing, "behavior": behaving,
}  # fmt: skip


def system_name(row: Row) -> str:
    return f"*{row['system']}*" if row.get("limit") else str(row["system"])


def per_thousand(rows: list[Row], row: Row) -> str:
    found = values(rows, row["system"], "disk_bytes")
    return f"{found[0] / row['images'] / 1e3:,.1f}" if found else ""


def failures(rows: list[Row]) -> str:
    errors = {row["system"]: row["error"] for row in rows if "error" in row}
    return "".join(f"\n\n{name} failed: {plain(error)}" for name, error in errors.items())


def markdown(head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A table, or "" if it has no rows."""
    found = list(cells)
    lines = [head, ("---",) * len(head), *found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if found else ""


def about(result: Result) -> str:
    """When, where and with which settings, as a paragraph."""
    machine, settings = result["machine"], result["settings"]
    of = f", which repeat {settings['photographs']:,} photographs" if settings.get("photographs") else ""
    text = (
        f"Measured on {result['date']} with rawpack {result['rawpack']} on {machine['cpus']} CPUs ({machine['cpu']}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['os']}, Python {machine['python']}, load at the start "
        f"{machine['load_at_start']:.1f}. {settings['images']:,} raw images and {settings['images'] // 2:,} JPEG "
        f"files{of}, batches of {settings['batch']}, {settings['workers']} workers; reading is the median of "
        f"{settings['rounds']} round{'s' * (settings['rounds'] != 1)}, with the lowest and the highest. Made by "
        f"`{result['command']}`."
    )
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
