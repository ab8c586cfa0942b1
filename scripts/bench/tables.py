"""The tables of the benchmark: what is measured, under which settings, and held against what."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bars import AtMost, Bar, Faster
from contract import Settings
from data import PACKED
from subjects import REMOTE_LINKS, REMOTE_STORES

SLOTS = 4
"""Batches that rawpack's ring holds: one in the caller's hands, three in the making."""
_WORKER_BYTES = 60e6
_MORE_BYTES = 16e6
"""What a process may hold more for a hundred times the samples: manifest and mappings of a shard for each 65,536."""
_STEADY_BYTES = 1e6
"""What a thousand epochs may add: less than a byte a sample that was read."""


@dataclass(frozen=True)
class Entry:
    """A line of a table."""

    subject: str
    against: str | None = None
    """The label of the line that it is divided by, round by round."""
    bar: float | None = None
    """The least ratio that satisfies."""
    name: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are others than the table's."""

    @property
    def label(self) -> str:
        return self.name or self.subject

    def settings(self, table: Settings) -> Settings:
        return replace(table, **self.changes)


@dataclass(frozen=True)
class Table:
    """Lines that are measured in turn, so that they share the machine's moods."""

    name: str
    images: Literal[
        "photos", "fewer photos", "small", "packing", "copies", "few", "tiny", "videos", "videos ten times",
        "small videos", "cameras", "counted", "none",
    ]  # fmt: skip
    settings: Settings
    entries: tuple[Entry, ...]
    bars: tuple[Bar, ...] = ()
    """What is to hold beside the entries' own."""
    title: str = ""
    """Conditions that the settings do not say."""
    rounds: int | None = None
    """How many are enough, where these do not differ."""


READING = (
    Entry("copy limit"),
    Entry("copy limit, large pages"),
    Entry("memmap", "copy limit", 0.92),
    Entry("hdf5", "memmap", 0.95),
    Entry("FFCV raw", "copy limit"),
    Entry("torch DataLoader, memmap", "copy limit"),
    Entry("torch DataLoader, memmap, whole batches", "copy limit"),
    Entry("tensordict memmap", "copy limit"),
    Entry("order alone", "memmap", 50),
    Entry("inflate limit"),
    Entry("hdf5, gzip", "inflate limit", 0.90),
    Entry("decode limit"),
    Entry("lmdb", "decode limit", 0.95),
    Entry("FFCV JPEG, 256 px, center crop"),
    Entry("lmdb, 256 px, center crop", "FFCV JPEG, 256 px, center crop", 1.0),
)
_READERS = ("memmap", "hdf5", "hdf5, gzip", "lmdb")
READING_BARS: tuple[Bar, ...] = (
    Faster("memmap", ("FFCV raw",), 2.0),
    Faster("memmap", ("copy limit, large pages",)),
    *(AtMost(label, "first_batch_s", 1.0) for label in _READERS),
)


def _copies(title: str, changes: Mapping[str, Any], bar: float = 0.92) -> list[Entry]:
    """The bare limit under settings of its own, and the reader against it."""
    limit = f"copy limit, {title}"
    return [Entry("copy limit", name=limit, changes=changes), Entry("memmap", limit, bar, f"memmap, {title}", changes)]


def _batches(small: float) -> tuple[Entry, ...]:
    """The same by batch size. small: the bar of the smallest."""
    bars = {64: small, 256: 0.92, 1024: 0.92}
    return tuple(entry for n, bar in bars.items() for entry in _copies(f"batch {n}", {"batch": n}, bar))


_OTHERS: dict[str, dict[str, Any]] = {
    "batch 64, threads": {"batch": 64, "backend": "thread"},
    "batch 256, processes": {"batch": 256, "backend": "process"},
    "batch 64, untouched": {"batch": 64, "consumer": "none"},
    "batch 256, untouched": {"consumer": "none"},
}
"""Other workers than the reader chooses, and a loop that looks at nothing."""
COPYING = (
    *_batches(0.70),
    *(entry for workers in (1, 3, 4) for entry in _copies(f"workers {workers}", {"workers": workers})),
    *(
        Entry("memmap", f"copy limit, {title.partition(',')[0]}", None, f"memmap, {title}", changes)
        for title, changes in _OTHERS.items()
    ),
)
NEXT_EPOCH = tuple(Entry(label) for label in _READERS)
NEXT_EPOCH_BARS: tuple[Bar, ...] = tuple(AtMost(label, "next_epoch_s", 0.050) for label in _READERS)
_STEP_S = 0.2
"""A training step: longer than two workers need for a batch of any format, so that they are done when it is."""
SINGLE = (
    Entry("a row by numpy"),
    Entry("reader[i]", "a row by numpy", 1 / 6),
    Entry("batches of 256, all fields, workers=0"),
    Entry("reader[[...]], 256", "batches of 256, all fields, workers=0", 0.95),
)

PLANES = (
    Entry("lmdb, quality 95"),
    Entry("memmap, planes", "lmdb, quality 95", 2.8),
    Entry("memmap"),
)
STORES = (
    Entry("copy limit"),
    Entry("memmap", "copy limit"),
    Entry("memmap, two images a sample", "memmap", 0.45),
    Entry("memmap, planes", "memmap"),
    Entry("memmap, zstd", "memmap"),
    Entry("memmap, planes, zstd", "memmap"),
    Entry("lmdb", "memmap"),
    Entry("lmdb, standard tables", "lmdb"),
)
"""The points between raw pixels and JPEG, and samples of two images, of which half as many are copied."""
_TORCH = tuple((f"torch DataLoader, workers={workers}", workers) for workers in sorted({0, 1, os.cpu_count() or 1}))
SMALL = (
    Entry("take loop"),
    Entry("memmap", "take loop", 0.85, "memmap, workers=0", {"workers": 0}),
    Entry("memmap", "take loop", None, "memmap, workers=None", {"workers": None}),
    *(Entry("torch DataLoader, memmap", "take loop", None, name, {"workers": workers}) for name, workers in _TORCH),
    Entry("tensordict memmap", "take loop"),
)
SMALL_BARS: tuple[Bar, ...] = (
    Faster("memmap, workers=None", tuple(name for name, _ in _TORCH), 5, "the fastest torch DataLoader"),
    Faster("memmap, workers=None", ("tensordict memmap",), 1),
)
PACKING = (
    Entry("bare loop, raw"),
    Entry("pack memmap", "bare loop, raw", 1 / 1.15),
    Entry("pack hdf5", "bare loop, raw"),
    Entry("bare loop, jpeg"),
    Entry("pack lmdb", "bare loop, jpeg", 1 / 1.15),
    Entry("FFCV writer, raw", "pack memmap"),
    Entry("litdata optimize, raw", "pack memmap"),
    Entry("FFCV writer, jpeg", "pack lmdb"),
    Entry("litdata optimize, jpeg", "pack lmdb"),
    Entry("copy files"),
    Entry("pack as they are", "copy files"),
)
PASSING = tuple(
    entry
    for kind in PACKED
    for entry in (
        Entry(f"cp {kind}, cold"),
        Entry(f"cp {kind} and sync, cold", f"cp {kind}, cold"),
        Entry(f"bare {kind}, cold", f"cp {kind}, cold"),
        Entry(f"pack {kind}, cold", f"cp {kind}, cold", 0.9),
    )
)
PASSING_BARS: tuple[Bar, ...] = tuple(
    bar
    for kind in PACKED
    for bar in (
        Faster(f"pack {kind}, cold", (f"cp {kind} and sync, cold",), 0.9),
        Faster(f"pack {kind}, cold", (f"bare {kind}, cold",)),
    )
)
"""A store is on the disk when packing ends, which `cp` does not wait for."""
SCAN = (
    Entry("os.walk"),
    Entry("os.walk and stat", "os.walk"),
    Entry("scan", "os.walk and stat", 1 / 1.5),
)
SCAN_BARS: tuple[Bar, ...] = (AtMost("scan", "bytes_per_file", 100),)
TINY = (
    Entry("copy files"),
    Entry("pack as they are", "copy files"),
    Entry("bare loop, raw"),
    Entry("pack memmap", "bare loop, raw"),
)
FRAMES = (
    Entry("frames by PyAV"),
    Entry("pack frames, memmap", "frames by PyAV", 0.9),
    Entry("frames by PyAV, jpeg"),
    Entry("pack frames, lmdb", "frames by PyAV, jpeg", 0.9),
)
AUGMENT_256 = (
    Entry("FFCV crops, raw"),
    Entry("crops, memmap", "FFCV crops, raw", 2),
    Entry("Albumentations crops", "crops, memmap"),
    Entry("FFCV crops, jpeg"),
    Entry("crops, lmdb", "FFCV crops, jpeg", 1.7),
    Entry("lmdb"),
    Entry("crops of half the side, lmdb", "lmdb", 1.35),
    Entry("fused normalize"),
    Entry("normalize, memmap", "fused normalize", 0.9),
)
AUGMENT_540 = (
    Entry("fused normalize"),
    Entry("normalize, memmap", "fused normalize", 0.8),
)
_FLIPPED = "flip and normalize, memmap"
AUGMENT_28 = (
    Entry("numpy on the batch"),
    Entry(_FLIPPED, "numpy on the batch", 0.7),
    Entry(_FLIPPED, "numpy on the batch", None, f"{_FLIPPED}, workers=0", {"workers": 0}),
)
AUGMENT_512 = (
    Entry("FFCV crops, raw"),
    Entry("crops, memmap", "FFCV crops, raw", 2),
    Entry("FFCV crops, jpeg"),
    Entry("crops, lmdb", "FFCV crops, jpeg", 1.5),
    Entry("crops, lmdb, scaled decoding", "FFCV crops, jpeg", 2.3),
)
_RECIPE, _RECIPE_FLOATS = "bilinear crops, memmap", "bilinear crops, normalize, memmap"
_IN_WORKERS, _TURBO = "Albumentations in rawpack's workers", "TurboLoader crops, normalize"
_RESIZE = "cv2.resize of crops"


def _recipe(photos: Settings) -> list[Table]:
    """What is done to nearly all images that a network is trained with: a random-resized-crop, a flip, Normalize.
    Bilinear with antialias, which is the default."""
    alone = replace(photos, workers=0)
    counted = replace(_larger(alone, 256), warm=False, seconds=1e-9)

    def table(name: str, settings: Settings, entries: tuple[Entry, ...], *bars: Bar) -> Table:
        return Table(f"recipe-{name}", "fewer photos", settings, entries, bars, "shuffled, warm")

    def cpu(label: str, most: float, limit: str) -> Bar:
        return AtMost(label, "cpu_s_per_1000", most, share_of=limit)

    return [
        table(
            "256", _larger(photos, 256),
            (Entry("FFCV crops, raw"), Entry(_RECIPE, "FFCV crops, raw"), Entry(_IN_WORKERS, _RECIPE)),
            Faster(_RECIPE, ("FFCV crops, raw",), 6), Faster(_RECIPE, (_IN_WORKERS,), 2.5),
        ),
        table("alone", _larger(alone, 256), (Entry(_RESIZE), Entry(_RECIPE, _RESIZE)), cpu(_RECIPE, 0.8, _RESIZE)),
        table(
            "floats", _larger(photos, 256),
            (
                Entry("bare C kernel"), Entry(_TURBO), Entry("FFCV crops, normalize, raw"),
                Entry(_RECIPE_FLOATS, "bare C kernel"),
            ),
            cpu(_RECIPE_FLOATS, 0.45, _TURBO),
        ),
        table(
            "floats-jpeg", _larger(photos, 256),
            (
                Entry("decode limit"), Entry(f"{_TURBO}, jpeg"), Entry("FFCV crops, normalize, jpeg"),
                Entry("bilinear crops, normalize, lmdb", "decode limit"),
            ),
        ),
        table(
            "512", _larger(photos, 512), (Entry("FFCV crops, raw"), Entry(_RECIPE, "FFCV crops, raw")),
            Faster(_RECIPE, ("FFCV crops, raw",), 5),
        ),
        table(
            "normalize", alone, (Entry("fill memory"), Entry("normalize, memmap", "fill memory")),
            cpu("normalize, memmap", 1.15, "fill memory"),
        ),
        Table(
            "recipe-calls", "counted", counted, (Entry("calls"),), (AtMost("calls", "calls", 3),),
            "under a profiler, which makes it slow", rounds=1,
        ),
    ]  # fmt: skip


_JPEG_CPU = {"lmdb": 1.06, "center crop, lmdb": 1.12, "crops, lmdb": 1.34}
"""What decodes JPEG files, and its CPU time as a share of that of decoding the same files whole, at most."""


def _jpeg() -> tuple[tuple[Entry, ...], tuple[Bar, ...]]:
    """Those lines, for stores with the default tables and with the standard's."""
    entries, bars = [], list[Bar]()
    for tables in ("", ", standard tables"):
        limit = f"decode limit{tables}"
        entries.append(Entry(limit))
        for what, share in _JPEG_CPU.items():
            entries.append(Entry(f"{what}{tables}"))
            bars.append(AtMost(f"{what}{tables}", "cpu_s_per_1000", share, share_of=limit))
    return tuple(entries), tuple(bars)


def _cold(form: str, bar: float) -> list[Entry]:
    """A raw store from the disk by block shuffle and in order, with workers and without, against `dd` of its files."""
    limit = f"dd, {form}"
    entries = [Entry(limit)]
    for row in (f"{form}, cold", f"{form}, cold, in order"):
        entries += [Entry(row, limit, bar), Entry(row, limit, bar, f"{row}, workers=0", {"workers": 0})]
    return entries


COLD = (*_cold("memmap", 0.95), *_cold("hdf5", 0.95), Entry("dd, lmdb"), Entry("lmdb, cold", "dd, lmdb"))

CLIPS = (
    Entry("clips by PyAV"),
    Entry("clips by torchcodec"),
    Entry("clips by decord"),
    Entry("clips, memmap", "clips by PyAV"),
    Entry("clips, hdf5", "clips by PyAV"),
    Entry("clips, lmdb", "clips by PyAV"),
)
CLIPS_BARS: tuple[Bar, ...] = (
    Faster("clips, memmap", ("clips by PyAV",), 20),
    *(
        Faster(
            f"clips, {form}", ("clips by torchcodec", "clips by decord"), called="the faster of torchcodec and decord"
        )
        for form in ("memmap", "lmdb")
    ),
)
REMOTE = (
    Entry("plain requests"),
    Entry("memmap, remote", "plain requests", 0.8),
    Entry("webdataset, remote", "plain requests"),
    Entry("streaming, remote", "plain requests"),
)
REMOTE_BARS: tuple[Bar, ...] = (
    Faster("memmap, remote", ("webdataset, remote",), 1.0),
    Faster("memmap, remote", ("streaming, remote",), 1.0),
)


_REMOTE_RATIO, _SMALL_RATIO, _SMALL_FIRST_S, _CPU_SHARE = 0.92, 0.85, 1.5, 0.65


def _remote_entries(store: str, link: str) -> tuple[Entry, ...]:
    """A store behind a link. Where images are decoded, the limit is another: processors also serve, fetch and decode at
    the same time, and a full shuffle decodes only what has been fetched. Without a bandwidth, the processors of this
    machine, which also serve, are the limit."""
    at = f"{store}, {link}"
    plain, free = f"plain requests, {at}", "unlimited" in link
    what = ", files" if store == "lmdb" else ""
    bar = None if free or link == "1 ms" else _REMOTE_RATIO
    if store == "small":
        bar = _SMALL_RATIO if link == "20 ms" else None
    found = [Entry(plain), *(Entry(f"transport by {by}, {at}", plain) for by in ("fsspec", "rawpack"))]
    found += [Entry(f"{order}{what}, {at}", plain, bar) for order in ("block", "full")]
    if store == "lmdb" and not free:
        for order, limit in (("block", "plain requests while reading"), ("full", "plain requests, then reading")):
            found += [Entry(f"{limit}, {at}"), Entry(f"{order}, {at}", f"{limit}, {at}", 0.9)]
    return tuple(found)


def _remote_bars(store: str, link: str) -> tuple[Bar, ...]:
    at = f"{store}, {link}"
    ours, theirs = (f"transport by {one}, {at}" for one in ("rawpack", "fsspec"))
    bars: list[Bar] = [AtMost(ours, "cpu_s_per_gb", _CPU_SHARE, share_of=theirs)]
    if store == "small":
        bars.append(AtMost(f"full, {at}", "first_batch_s", _SMALL_FIRST_S if link == "100 ms" else None))
    return tuple(bars)


START = (
    Entry("first batch", name="2 workers"),
    Entry("first batch", name="128 workers, batches of 2,048", changes={"workers": 128, "batch": 2048}),
)
START_BARS: tuple[Bar, ...] = (
    AtMost("2 workers", "first_batch_s", 0.25),
    AtMost("128 workers, batches of 2,048", "first_batch_s", 4.0),
    AtMost("2 workers", "worker_private_bytes", 8e6),
    AtMost("128 workers, batches of 2,048", "worker_private_bytes", 8e6),
)
PACKING_START = (
    Entry("pack a few", name="64 files, 1 worker", changes={"workers": 1}),
    Entry("pack a few", name="64 files, 2 workers"),
)
PACKING_START_BARS: tuple[Bar, ...] = tuple(AtMost(entry.label, "first_batch_s", None) for entry in PACKING_START)

_PROCESSES = {"backend": "process"}
_KINDS = (
    Entry("memmap", name="memmap, threads", changes={"backend": "thread"}),
    Entry("memmap", name="memmap, processes", changes=_PROCESSES),
    Entry("hdf5", name="hdf5, processes", changes=_PROCESSES),
    Entry("lmdb", name="lmdb, processes", changes=_PROCESSES),
)
STEADY_BARS: tuple[Bar, ...] = tuple(AtMost(entry.label, "growth_bytes", _STEADY_BYTES) for entry in _KINDS)


def tables(
    photos: Settings, small: Settings, packing: Settings, few: Settings, giant: Settings, clips: Settings
) -> list[Table]:
    """All tables: over the photographs, the small images, the photographs to pack, a few of them, none, and videos."""
    once: dict[str, Any] = {"warm": False, "seconds": 1e-9}
    return [
        Table("reading", "photos", photos, READING, READING_BARS, "shuffled, warm"),
        Table("copying-128", "photos", _larger(photos, 128), _batches(0.60), (), "shuffled, warm"),
        Table("copying-256", "photos", _larger(photos, 256), COPYING, (), "shuffled, warm"),
        Table("copying-512", "fewer photos", _larger(photos, 512), _batches(0.92), (), "shuffled, warm"),
        Table(
            "next-epoch",
            "fewer photos",
            replace(photos, warm=False, seconds=1e-9, epochs=3, step_s=_STEP_S),
            NEXT_EPOCH,
            NEXT_EPOCH_BARS,
            f"shuffled, after each batch a training step of {_STEP_S} s",
        ),
        Table("single", "small", replace(small, batch=256), SINGLE, (), "random samples of a warm store"),
        Table("stores", "fewer photos", _larger(photos, 256), STORES, (), "shuffled, warm"),
        Table("planes", "photos", replace(_larger(photos, 256), workers=1), PLANES, (), "shuffled, warm"),
        Table("small-64", "small", replace(small, batch=64), SMALL, SMALL_BARS, "shuffled, warm"),
        Table("small-512", "small", replace(small, batch=512), SMALL, SMALL_BARS, "shuffled, warm"),
        Table("cold", "photos", replace(photos, warm=False, seconds=1e-9), COLD, (), "from the disk"),
        _remote(packing),
        *_remote_links(packing, photos),
        _memory(photos),
        Table("start", "fewer photos", replace(photos, shape=_side(photos, 128), **once), START, START_BARS, "warm"),
        Table("start-packing", "few", replace(photos, **once), PACKING_START, PACKING_START_BARS, "warm"),
        Table("epochs", "few", few, _KINDS, STEADY_BARS, f"{few.epochs} epochs, shuffled"),
        _giant(giant),
        Table("packing-1", "packing", replace(packing, workers=1), PACKING),
        Table("packing-2", "packing", replace(packing, workers=2), PACKING),
        Table("passing", "copies", replace(packing, workers=2), PASSING, PASSING_BARS, "from the disk"),
        Table("scan", "tiny", replace(photos, shape=(8, 8, 1), **once), SCAN, SCAN_BARS, "in memory"),
        Table("tiny", "tiny", replace(packing, shape=(8, 8, 3), workers=2), TINY, (), "in memory"),
        Table("frames", "videos ten times", replace(packing, workers=2), FRAMES, (), "images are frames"),
        Table("augment-256", "photos", _larger(photos, 256), AUGMENT_256, (), "shuffled, warm"),
        Table("augment-540x960", "packing", _wide(photos), AUGMENT_540, (), "shuffled, warm"),
        Table("augment-28", "small", replace(small, batch=512, consumer="grid"), AUGMENT_28, (), "shuffled, warm"),
        *(
            Table(
                f"jpeg-{workers}",
                "fewer photos",
                replace(_larger(photos, 256), workers=workers),
                *_jpeg(),
                "shuffled, warm",
            )
            for workers in (0, 2)
        ),
        Table("augment-512", "fewer photos", _larger(photos, 512), AUGMENT_512, (), "shuffled, warm"),
        *_recipe(photos),
        Table("clips", "videos", clips, CLIPS, CLIPS_BARS, "random clips, warm; images are frames"),
        Table(
            "videos-small",
            "small videos",
            replace(clips, shape=_side(clips, 96), batch=32, stride=1),
            CLIPS,
            CLIPS_BARS,
            "random clips of many small videos, warm; images are frames",
        ),
        Table(
            "videos-cameras",
            "cameras",
            replace(clips, shape=_shape(clips, 480, 640), frames=2, stride=3),
            CLIPS,
            CLIPS_BARS,
            "random pairs of frames of four cameras, warm; images are frames",
        ),
        *_growth(photos),
    ]


def _memory(photos: Settings) -> Table:
    """Memory beside the page cache: of the slots, and so much for each worker."""
    bars: list[Bar] = []
    for entry in _KINDS:
        allowed = SLOTS * photos.batch_bytes + _WORKER_BYTES * (photos.workers or 1)
        bars.append(AtMost(entry.label, "beside_bytes", allowed))
        if entry.changes == _PROCESSES:
            bars.append(AtMost(entry.label, "worker_bytes", _WORKER_BYTES))
    return Table("memory", "photos", photos, _KINDS, tuple(bars), "shuffled, warm")


def _remote(photos: Settings) -> Table:
    """From a server on loopback, each epoch with an empty cache."""
    settings = replace(photos, batch=min(photos.batch, 64), seconds=1e-9, warm=False)
    return Table("remote", "packing", settings, REMOTE, REMOTE_BARS, "100 MB/s, empty cache, shuffled, first epoch")


def _remote_links(packing: Settings, photos: Settings) -> list[Table]:
    """The same over stores and links: 200 to 300 MB each, which take 2 to 3 s."""
    tables = []
    for store in REMOTE_STORES:
        for link in REMOTE_LINKS:
            raw = store == "raw"
            settings = replace(packing if raw else photos, batch=min(photos.batch, 64), seconds=1e-9, warm=False)
            latency, _, what = link.partition(", ")
            rate = "no bandwidth" if what == "unlimited" else "100 MB/s"
            title = f"{rate}, latency of {latency}{', S3' * (what == 'S3')}, empty cache, first epoch"
            name = f"remote-{store}-{latency.removesuffix(' ms')}{'-' * bool(what)}{what.lower()}"
            entries, bars = _remote_entries(store, link), _remote_bars(store, link)
            tables.append(Table(name, "packing" if raw else "photos", settings, entries, bars, title))
    return tables


def _giant(giant: Settings) -> Table:
    """Sparse stores of many samples, and of a hundredth of them, opened and read here and there."""
    entries, bars = [], list[Bar]()
    for form in ("memmap", "hdf5", "lmdb"):
        few, many = f"{form}, {giant.samples // 100:,} samples", f"{form}, {giant.samples:,} samples"
        entries.append(Entry(f"{form} of zeros", name=few, changes={"samples": giant.samples // 100}))
        entries.append(Entry(f"{form} of zeros", name=many))
        # Of lmdb it is reported.
        wanted = form != "lmdb"
        bars.append(AtMost(many, "opened_s", 0.5 if wanted else None))
        for quantity in ("process_bytes", "worker_bytes"):
            bars.append(AtMost(many, quantity, _MORE_BYTES if wanted else None, beyond=few))
    return Table("giant", "none", giant, tuple(entries), tuple(bars), "shuffled")


GROWTH_WORKERS = (1, 2, 3, 4)
GROWTH_BATCHES = (16, 32, 64, 128, 256, 512, 1024)
GROWTH_SIDES = (32, 64, 128, 224, 384)


def _growth(photos: Settings) -> list[Table]:
    """How cost grows with workers, batch and image size: what `scripts/draw.py` draws."""

    def entries(name: str, values: tuple[int, ...], changes: Any) -> tuple[Entry, ...]:
        return tuple(
            Entry(form, name=f"{form}, {value} {name}", changes=changes(value))
            for form in ("memmap", "lmdb")
            for value in values
        )

    return [
        Table("growth-workers", "packing", photos, entries("workers", GROWTH_WORKERS, lambda n: {"workers": n})),
        Table("growth-batch", "packing", photos, entries("a batch", GROWTH_BATCHES, lambda n: {"batch": n})),
        Table("growth-size", "packing", photos, entries("px", GROWTH_SIDES, lambda n: {"shape": (n, n, 3)})),
    ]


def _larger(photos: Settings, side: int) -> Settings:
    """The settings for images of that side."""
    return replace(photos, shape=_side(photos, side))


def _wide(photos: Settings) -> Settings:
    """The settings for frames of 540x960, in fewer at a time."""
    return replace(photos, shape=(540, 960, 3) if photos.shape[0] >= 224 else (27, 48, 3), batch=min(photos.batch, 32))


def _side(photos: Settings, side: int) -> tuple[int, int, int]:
    """The shape of images of that side; those of --quick, which are smaller than any, as they are."""
    return _shape(photos, side, side)


def _shape(photos: Settings, height: int, width: int) -> tuple[int, int, int]:
    return photos.shape if photos.shape[0] < 224 else (height, width, 3)
