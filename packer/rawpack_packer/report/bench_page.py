"""The report of `rawpack bench`."""

from __future__ import annotations

from pathlib import Path

from rawpack.system import machine
from rawpack_packer.report.figures import Row, comparison, scaling, write_png
from rawpack_packer.report.page import both, write_page
from rawpack_packer.tune import bench
from rawpack_packer.tune.bench import Bench


def write(page: Path | None, plots: Path | None, done: Bench) -> None:
    """Write the page, and the plots alone; None leaves one out."""
    nouns = {meter.noun for meter in done.meters}
    noun = nouns.pop() if len(nouns) == 1 else "sample"
    names = {meter.path: name for meter, name in zip(done.meters, _names(done), strict=True)}
    rows = _rows(done, names)
    speeds, workers = comparison(rows, noun=noun), scaling(rows, machine.cpus(), noun)
    if page is not None:
        write_page(
            page,
            "bench.html.jinja",
            title="Reading speed",
            paths=[str(path) for path in names],
            stores=[
                (
                    names[meter.path],
                    bench.about(meter),
                    bench.head(meter),
                    bench.rows(done, meter),
                    done.disk[meter.path],
                )
                for meter in done.meters
            ],
            notes=bench.notes(done.readings, done.load).splitlines(),
            comparison=both(speeds, "Speed and size of each store", "comparison"),
            scaling=None
            if workers is None
            else both(workers, f"{noun.capitalize()}s per second by workers", "scaling"),
        )
    if plots is not None:
        write_png(plots, [speeds, workers])


def _names(done: Bench) -> list[str]:
    """The folders of the stores; their whole paths where two folders have the same name."""
    names = [meter.path.resolve().name for meter in done.meters]
    return names if len(set(names)) == len(names) else [str(meter.path) for meter in done.meters]


def _rows(done: Bench, names: dict[Path, str]) -> list[Row]:
    """A row for each store and batch size."""
    rows = []
    batches = dict.fromkeys(reading.case.setting.batch for reading in done.readings)
    for meter in done.meters:
        for batch in batches:
            readings = [one for one in done.of(meter) if one.case.setting.batch == batch]
            best = max(readings, key=lambda one: one.images_per_s.median)
            name = names[meter.path]
            rows.append(
                Row(
                    f"{name}, batch {batch}" if len(batches) > 1 else name,
                    meter.manifest.format,
                    meter.store_bytes,
                    sorted((one.case.setting.workers, one.images_per_s) for one in readings),
                    best.images_per_s,
                    best.cold_images_per_s,
                    None if best.limit is None else best.limit.median,
                )
            )
    return rows
