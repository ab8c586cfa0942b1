"""The pages of `rawpack inspect --html`, and of plan and bench: self-contained HTML files, without network or
script."""

from __future__ import annotations

import base64
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import cv2
import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

import rawpack
from rawpack import Reader
from rawpack.errors import PackError
from rawpack.store.store import Store
from rawpack.system import machine
from rawpack.system.writing import write_output
from rawpack_packer import text
from rawpack_packer.inspect import describe
from rawpack_packer.inspect.contact_sheet import class_name, image_names, thumbnail
from rawpack_packer.inspect.curation import NEAR, curation_of
from rawpack_packer.report.figures import Plot, Row, comparison, histogram, svg, write_png
from rawpack_packer.tune import bench, plan
from rawpack_packer.tune.bench import Bench
from rawpack_packer.tune.measure import number
from rawpack_packer.tune.plan import Plan
from rawpack_packer.tune.trial import Trial

_FRAME = "width:100%;height:40rem;border:0"
_SHOWN = ("cpu", "cpus", "cpu_quota", "memory_limit_bytes", "os", "python")


@cache
def _environment() -> jinja2.Environment:
    """Loads the templates of this package, and compiles each once."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rawpack_packer.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = text.size
    environment.filters["plain"] = lambda value, *, lines=False: text.plain(str(value), lines=lines)
    return environment


def filled(template: str, **values: Any) -> str:
    """A template of this package, filled. All values but `markupsafe.Markup` are escaped."""
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            machine=[
                (
                    name.removesuffix("_bytes").replace("_", " "),
                    text.size(value) if name.endswith("_bytes") and not isinstance(value, str) else value,
                )
                for name, value in machine.describe().items()
                if name in _SHOWN and value is not None
            ],
            version=rawpack.__version__,
            made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )


def _command() -> str:
    """What is running."""
    return text.plain(shlex.join(["rawpack", *sys.argv[1:]]))


def both(plot: Plot, title: str, name: str) -> Markup:
    """A plot as drawn for a wide page and for a phone; the page shows the one that fits."""
    return Markup('<figure class="wide">{}</figure>\n<figure class="narrow">{}</figure>').format(
        Markup(svg(plot, title, f"{name}-wide")), Markup(svg(plot, title, f"{name}-narrow", narrow=True))
    )


def picture(image: NDArray[np.uint8], *, lossless: bool = True) -> str:
    """A data URI of an image (H, W, C): PNG, or a JPEG of good quality."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.shape[2] == 3 else image
    done, data = cv2.imencode(".png" if lossless else ".jpg", bgr, [] if lossless else [cv2.IMWRITE_JPEG_QUALITY, 80])
    if not done:
        raise PackError(f"OpenCV cannot write an image of {image.shape}")
    kind = "png" if lossless else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data.tobytes()).decode()}"


_SIDE, _LARGE = 112, 240
"""Pixels of the longer side in a contact sheet, and of an image that was clicked on."""
_CLASSES, _EACH, _WITHOUT = 24, 8, 48
"""Classes shown, samples of each, and samples where there are no classes."""
_BARS, _REJECTS, _BINS, _GROUPS = 40, 24, 40, 24


@dataclass(frozen=True)
class Picture:
    """An image that a click enlarges."""

    name: str
    """Of its field."""
    uri: str
    width: int
    """Pixels of the page."""
    height: int


Shown = tuple[list[Picture], str]
"""The images of a sample, and its key."""


@dataclass(frozen=True)
class Sheet:
    """Samples of one class."""

    name: str
    count: int
    samples: Sequence[Shown]


@dataclass(frozen=True)
class FoundImages:
    """Images that `--curate` makes easy to find."""

    title: str
    words: str
    rows: Sequence[Sequence[tuple[Shown, str]]]
    """Of samples next to each other: what is shown, and what is said of each."""
    command: str
    """Makes a store without them."""


def write_html(path: Path, store: Store, described: Mapping[str, Any], verdict: str | None) -> None:
    """Write the page. described: what `describe` returns for the store. verdict: of a check, where one was asked
    for."""
    reader = Reader(store.path if store.origin is None else store.origin.remote.url)
    where, classes = described["path"], described["classes"] or {}
    bars = [] if describe.is_even(classes) else sorted(classes.items(), key=lambda one: -one[1])
    shown = bars if len(bars) <= _BARS else bars[: _BARS // 2] + bars[-_BARS // 2 :]
    sheets = list(_sheets(store, reader))
    named = [(name or describe.NO_CLASS, count) for name, count in classes.items() if count]
    page = filled(
        "store.html.jinja",
        command=_command(),
        title=(store.path.resolve().name if store.origin is None else where.rstrip("/").rpartition("/")[2]) or where,
        paths=[where],
        about=described,
        verdict=verdict,
        facts=list(_facts(described)),
        nouns=f"{described['noun']}s",
        images=image_names(reader),
        sheets=sheets,
        found=list(_found(store, reader)),
        classes_left_out=[(name, count) for name, count in named if name not in {sheet.name for sheet in sheets}],
        bars=[(name or describe.NO_CLASS, count, round(100 * count / bars[0][1], 1)) for name, count in shown],
        bars_left_out=len(bars) - len(shown),
        plots=[(title, both(plot, title, f"plot-{k}")) for k, (title, plot) in enumerate(_plots(store, described))],
        rejects=describe.first_rejects(store, _REJECTS),
        details=[*describe.rows_of(described), *((what, number) for number, what in describe.counts_of(described))],
    )
    write_output(path, page.encode())


def _facts(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The most important facts: (what is large on the page, what is small below it)."""
    size, noun = described["bytes"], described["noun"]
    yield f"{described['samples']:,}", noun if described["samples"] == 1 else f"{noun}s"
    if described["classes"] is not None:
        number, _, rest = describe.class_words(described["classes"], noun).partition(" ")
        yield number, rest
    yield text.size(size["store"]), f"{described['format']}, {text.count(described['shards'], 'shard')}"
    yield text.size(size["per_sample"]), f"per {noun}{describe.of_raw(described)}"
    rejects = described["rejects"]["count"]
    yield f"{rejects:,}", "reject" if rejects == 1 else "rejects"


def _sheets(store: Store, reader: Reader) -> Iterator[Sheet]:
    """Random samples class by class; where there are many classes, the largest and the smallest."""
    random, images = np.random.default_rng(0), len(image_names(reader))
    if store.manifest.classes is None or "label" not in store.fields:
        rows = np.sort(random.choice(len(store), min(max(1, _WITHOUT // images), len(store)), replace=False))
        yield Sheet("", len(store), [_sample(reader, row) for row in rows.tolist()])
        return
    labels = np.empty(len(store), np.int64)
    store.columns.take("label", np.arange(len(store)), labels)
    found, numbers = np.unique(labels, return_counts=True)
    order = np.argsort(-numbers, kind="stable")
    if len(order) > _CLASSES:
        order = np.concatenate([order[: _CLASSES // 2], order[-_CLASSES // 2 :]])
    for k in order.tolist():
        label = int(found[k])
        rows = np.flatnonzero(labels == label)
        chosen = np.sort(random.choice(rows, min(max(1, _EACH // images), len(rows)), replace=False))
        name = class_name(store.manifest.classes, label)
        yield Sheet(name, len(rows), [_sample(reader, row) for row in chosen.tolist()])


def _sample(reader: Reader, row: int) -> Shown:
    sample, names = reader[row], image_names(reader)
    return [_picture(name, sample[name], enlarge=len(names) > 1) for name in names], str(sample.get("key", row))


def _picture(name: str, image: NDArray[Any], *, enlarge: bool) -> Picture:
    large = thumbnail(image, _LARGE)
    height, width = large.shape[:2]
    scale = _SIDE / max(height, width)
    scale = scale if enlarge else min(1.0, scale)
    return Picture(name, picture(large, lossless=False), max(1, round(width * scale)), max(1, round(height * scale)))


def _found(store: Store, reader: Reader) -> Iterator[FoundImages]:
    """Near duplicates, leaks, and extremes, where the store was packed with `--curate`."""
    found = curation_of(reader)
    if found is None:
        return
    if found.groups:
        count = sum(map(len, found.groups))
        yield FoundImages(
            "Near duplicates",
            f"{text.count(count, 'image')} in {text.count(len(found.groups), 'group')}, whose perceptual hashes differ "
            f"in at most {NEAR} of 64 bits. The command keeps the first of each group.",
            [[(_sample(reader, row), "") for row in group[:_EACH]] for group in found.groups[:_GROUPS]],
            found.without_duplicates,
        )
    if found.leaks:
        others = {leak.split: Reader(store.path.parent / leak.split) for leak in found.leaks}
        pairs = [
            [(_sample(reader, leak.row), ""), (_sample(others[leak.split], leak.other), leak.split)]
            for leak in found.leaks[:_GROUPS]
        ]
        named = ", ".join(dict.fromkeys(leak.split for leak in found.leaks))
        count = len({leak.row for leak in found.leaks})
        yield FoundImages(
            "Leaks between splits",
            f"{text.count(count, 'image')} of this split {'is' if count == 1 else 'are'} nearly the same in {named}.",
            pairs,
            found.without_leaks,
        )
    for extremes in found.extremes:
        shown = [
            (_sample(reader, row), f"{value:,}") for row, value in zip(extremes.rows, extremes.values, strict=True)
        ]
        yield FoundImages(extremes.title, extremes.words, [shown], extremes.command)


def _plots(store: Store, described: Mapping[str, Any]) -> Iterator[tuple[str, Plot]]:
    """Titles and histograms."""
    nouns, images = f"{described['noun']}s", [name for name, field in store.fields.items() if field.kind == "image"]
    for name in images:
        of = name if len(images) > 1 else f"the stored {nouns}"
        if (shapes := _column(store, f"{name}.shape")) is not None:
            sides = shapes[:, :2].max(axis=1)
            yield from _binned(f"Longer side of {of}", sides, "pixels", lambda side: f"{side:,.0f}", nouns)
        sizes = _column(store, f"{name}.bytes")
        if sizes is not None and "bytes" in store.fields[name].codec.index:
            yield from _binned(f"Bytes of {of}", sizes, "bytes in the store", text.size, nouns)
    files = describe.source_files(store)
    yield from _binned("Bytes of the source's files", files, "bytes of a file", text.size, "files")


def _binned(
    title: str, values: NDArray[Any], what: str, unit: Callable[[float], str], of: str
) -> Iterator[tuple[str, Plot]]:
    """A histogram, unless all values are equal."""
    if len(np.unique(values)) < 2:
        return
    # A few giants must not squeeze everything else into one bar.
    most = float(np.quantile(values, 0.995))
    numbers, edges = np.histogram(np.minimum(values, most), bins=min(_BINS, len(np.unique(values))))
    yield title, histogram(edges.tolist(), numbers.tolist(), what, unit, of)


def _column(store: Store, name: str) -> NDArray[Any] | None:
    parts = [folder.arrays[name] for folder in store.columns.folders if name in folder.arrays]
    return np.concatenate(parts) if parts else None


def write(page: Path | None, plots: Path | None, done: Plan | Bench) -> None:
    """Write the page, and the plot alone; None leaves one out."""
    if page is not None:
        write_output(page, _page_of(done, _command()).encode())
    if plots is not None:
        write_png(plots, _plot_of(done))


def framed(done: Plan | Bench) -> str:
    """The page in a frame, whose styles and those of a notebook do not meet."""
    with text.speaking_python():
        page = escape(_page_of(done, None))
    return f'<iframe srcdoc="{page}" title="{escape(repr(done))}" sandbox style="{_FRAME}"></iframe>'


def _page_of(done: Plan | Bench, command: str | None) -> str:
    """command: what made it, if it was one."""
    values = _plan_values(done) if isinstance(done, Plan) else _bench_values(done)
    shown = both(_plot_of(done), "Speed and size", "comparison")
    return filled("tuning.html.jinja", command=command, noun=_noun_of(done), comparison=shown, **values)


def _plot_of(done: Plan | Bench) -> Plot:
    if isinstance(done, Plan):
        goals, augmentation = done.asked.goals, done.trials[0].training.setting.augmentation
        return comparison([_row(one, done) for one in done.trials], goals.target, goals.disk, done.noun, augmentation)
    return comparison(_rows(done), noun=_noun_of(done))


def _noun_of(done: Plan | Bench) -> str:
    nouns = {done.noun} if isinstance(done, Plan) else {meter.noun for meter in done.meters}
    return nouns.pop() if len(nouns) == 1 else "sample"


def _plan_values(done: Plan) -> dict[str, Any]:
    taken = done.recommendation.taken
    return {
        "title": Path(done.asked.source).name or done.asked.source,
        "paths": [done.asked.source],
        "about": f"{done.title()}. Each candidate was packed and read back on this machine.",
        "planned": True,
        "taken": taken and taken.candidate.name,
        "why": done.why,
        "facts": [] if taken is None else _figures_of(taken, done.noun),
        "take_command": None if taken is None else done.asked.command(taken),
        "trades": done.trades,
        "strips": [(one.key, [(crop, picture(crop.pixels)) for crop in one.crops]) for one in done.strips],
        "tables": [("All figures", "", _head(plan.HEAD, done.noun), _fastest_first(done))],
        "notes": done.notes(),
        "lost": done.lost(),
    }


def _fastest_first(done: Plan) -> list[tuple[str, ...]]:
    """The rows of its table, in the order of the plot."""
    speeds = [-one.training.images_per_s.median for one in done.trials]
    rows = list(done.rows())
    return [rows[k] for k in sorted(range(len(rows)), key=speeds.__getitem__)]


def _bench_values(done: Bench) -> dict[str, Any]:
    return {
        "title": "Reading speed",
        "paths": [str(meter.path) for meter in done.meters],
        "taken": None,
        "planned": False,
        "strips": [],
        "tables": [
            (name, bench.about(meter), _head(bench.HEAD, meter.noun), list(done.rows(meter)))
            for name, meter in zip(_names(done), done.meters, strict=True)
        ],
        "notes": done.notes(),
        "lost": [],
    }


def _head(names: tuple[str, ...], noun: str) -> list[str]:
    return [text.with_noun(name, noun) for name in names]


def _figures_of(taken: Trial, noun: str) -> list[tuple[str, str]]:
    """The size, speed and loss of what is recommended: (what is large on the page, what is small below it)."""
    speed, loss, setting = taken.rate, taken.loss, taken.training.setting
    place = "memory" if taken.fits else "the disk"
    return [
        (text.size(taken.store_bytes), "the whole store"),
        (f"{number(speed.median)}/s" if speed else "?", f"{noun}s from {place}, {setting.augmentation}"),
        (f"{loss.psnr_db:.0f} dB", f"PSNR; SSIM {loss.ssim:.3f}") if loss else ("no loss", "after resizing"),
    ]


def _row(one: Trial, done: Plan) -> Row:
    reading, marked = one.training, one is done.recommendation.taken
    name, form = one.candidate.name, one.candidate.recipe.format
    return Row(name, form, one.store_bytes, reading.images_per_s, reading.cold_images_per_s, marked)


def _names(done: Bench) -> list[str]:
    """The folders of the stores; their whole paths where two folders have the same name."""
    names = [meter.path.resolve().name for meter in done.meters]
    return names if len(set(names)) == len(names) else [str(meter.path) for meter in done.meters]


def _rows(done: Bench) -> list[Row]:
    """A row for each store and batch size, with the number of workers that is fastest."""
    rows = []
    batches = dict.fromkeys(reading.setting.batch for reading in done.readings)
    for name, meter in zip(_names(done), done.meters, strict=True):
        for batch in batches:
            readings = [one for one in done.of(meter) if one.setting.batch == batch]
            best = max(readings, key=lambda one: one.images_per_s.median)
            label = f"{name}, batch {batch}" if len(batches) > 1 else name
            rows.append(Row(label, meter.manifest.format, meter.store_bytes, best.images_per_s, best.cold_images_per_s))
    return rows
