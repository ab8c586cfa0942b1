"""`rawpack plan`: what a user asked, the trials on a sample of the source, and the recommendation, as JSON and as
text."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rawpack
from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.destination.folder import free_bytes
from rawpack_packer.job.estimate import memory_for_files
from rawpack_packer.job.opening import open_path
from rawpack_packer.options import RECIPE, SOURCE, opt
from rawpack_packer.options.option import as_text, parse_bytes
from rawpack_packer.progress import Fetching
from rawpack_packer.sources import Table
from rawpack_packer.sources.archives.source import split_path
from rawpack_packer.sources.table.named_files import expanded, is_pattern
from rawpack_packer.sources.table.remote_files import Spool
from rawpack_packer.tune import measure as words
from rawpack_packer.tune.candidates import Candidate, candidates, listed, parse_sides, parse_steps, untried
from rawpack_packer.tune.loss import Strip
from rawpack_packer.tune.measure import Setting
from rawpack_packer.tune.recommend import Goals, Recommendation, recommend, trades
from rawpack_packer.tune.shown import Measured
from rawpack_packer.tune.system import BUSY, load_per_cpu, scratch_folder
from rawpack_packer.tune.trial import Say, Trial, Whole, try_out

HEAD = ("", "whole set", "to pack", "images/s", "augmented", "from disk", "PSNR", "SSIM", "per core", "first batch")
_FEW = 24
"""Fewer images say little about a whole set."""
_SHOWN = 8
_ARCHIVES = 4
"""Archives that are looked at where a pattern names more."""


@dataclass(frozen=True)
class PlanRequest:
    """The request of a user of `rawpack plan`."""

    source: str
    """As the user wrote it, for the recommended command."""
    candidates: Sequence[Candidate]
    setting: Setting
    goals: Goals
    memory: int | None
    """Bytes that files may take in the page cache; None for most of the free memory."""
    budget: float
    """Seconds."""
    seed: int
    tmp: str | None
    source_options: Mapping[str, Any]
    """The options of the source."""
    named: Mapping[str, Sequence[str]]
    """The options to compare that the user named, with their values."""

    def command(self, taken: Trial) -> str:
        """The command that packs the source this way, safe to print."""
        options = [text.plain(word) for word in _words(self.source_options)]
        return taken.candidate.command(text.plain(self.source), options)


@dataclass(frozen=True)
class Plan(Measured):
    """The results of a plan."""

    asked: PlanRequest
    source: Table
    """What was looked at: of many archives, a few."""
    samples: int
    """Of all that was named."""
    sampled: int
    memory: int | None
    trials: list[Trial]
    left_out: list[Candidate]
    """Candidates for which the budget left no time."""
    strips: list[Strip]
    """Crops of what is lost."""
    recommendation: Recommendation
    load: float | None
    """Load average per CPU before the start."""
    where: str
    """The folder of the trials, on the disk that was measured."""
    removed: list[str]
    """Folders of earlier plans that were killed."""

    def __repr__(self) -> str:
        taken = self.recommendation.taken
        best = "nothing" if taken is None else taken.candidate.name
        return f"Plan({self.asked.source!r}: {best} of {text.count(len(self.trials), 'candidate')})"

    @property
    def noun(self) -> str:
        """What a sample is called: "image", "frame"."""
        return self.source.info.noun

    @property
    def why(self) -> str:
        """Why the recommended candidate, or none, is taken. It says only as much as was tried."""
        why = text.with_noun(self.recommendation.why, self.noun)
        if not self.left_out:
            return why
        if len(self.trials) == 1 and self.recommendation.taken and self.asked.goals.target is None:
            return "the only one that was tried: nothing was compared"
        names = text.listed([one.name for one in self.left_out], _SHOWN)
        if self.recommendation.taken is None:
            return f"{why} Not tried: {names}."
        return f"{why}, of those that were tried"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """A row for each candidate, under `HEAD`."""
        for one in self.trials:
            yield (
                one.candidate.name + (" *" if one is self.recommendation.taken else ""),
                text.size(one.store_bytes),
                text.about(one.pack_s),
                words.spread(one.reading.images_per_s if one.reading.warm else None),
                words.spread(one.augmented.images_per_s if one.augmented else None),
                words.spread(one.training.cold_images_per_s),
                f"{one.loss.psnr_db:.1f} dB" if one.loss else "",
                f"{one.loss.ssim:.3f}" if one.loss else "",
                words.spread(one.training.images_per_core_s),
                words.seconds(one.training.first_batch_s),
            )

    def title(self) -> str:
        """How many samples there are, and how they were judged."""
        some = "" if self.sampled == self.samples else f", estimated from {self.sampled:,}"
        setting = self.asked.setting
        through = f", each through {', '.join(map(repr, setting.transform))}" if setting.transform else ""
        workers = text.count(setting.workers, "worker")
        read = f"read in batches of {setting.batch} with {workers}{through}"
        more = "about " if self.samples != len(self.source) else ""
        return f"{more}{text.count(self.samples, self.noun)}{some}; {read}"

    def as_text(self, width: int | None) -> str:
        """The plan for a terminal of `width` columns; None for the whole table and unwrapped lines."""
        title = text.wrapped([f"{text.plain(self.asked.source)}: {self.title()}"], width)
        shown, left_out = words.table([HEAD, *self.rows()], width, self.noun)
        more = [f"Columns that do not fit ({opt.wide} shows them): {', '.join(left_out)}."] if left_out else []
        first, *others = self.notes()
        notes = [*more, f"*: recommended. {first}", *others]
        return "\n\n".join([f"{title}\n{shown}", text.wrapped(self.advice(), width), text.wrapped(notes, width)])

    def notes(self) -> list[str]:
        """How to read the table, and what may be wrong with it."""
        noun, asked, first = self.noun, self.asked, self.trials[0]
        figure, augmentation = first.training.images_per_s, first.training.setting.augmentation
        rounds, bare = len(figure.values), len(first.reading.warm)
        more = f"; augmented: the same {augmentation}, as in the other columns of speed" if first.augmented else ""
        beside = "" if bare == rounds else f" ({noun}s/s: of {bare})"
        lines = [
            f"{noun}s/s: from memory{more}; per core: for each second of CPU time. " + (
                f"Medians of {rounds} rounds{beside}; ±: half of the interval from the lowest to the highest, which "
                f"contains the median with a chance of {figure.confidence:.0%}." if rounds > 1 else "Measured once."
            )
        ]  # fmt: skip
        if any(one.training.cold for one in self.trials):
            lines.append(f"from disk: with nothing in memory, in a block shuffle, on the disk of {self.where}.")
        else:
            lines.append(
                f"from disk: not measured: {opt.budget} was used up, or the system keeps the files in {self.where} in "
                f"memory; {opt.tmp} names a folder on another disk."
            )
        if any(one.loss for one in self.trials):
            images = ["image", *(name for name, kind in self.source.info.fields.items() if kind.image == "picture")]
            of = f" of {', '.join(images)}" if self.source.info.has_several_images else ""
            lines.append(f"PSNR, SSIM: what JPEG or chroma loses{of}; higher is better.")
        if self.memory is not None and not all(one.fits for one in self.trials):
            large = ", ".join(one.candidate.name for one in self.trials if not one.fits)
            lines.append(f"memory: {text.size(self.memory)} for files; too little for {large}: judged from the disk.")
        if self.left_out:
            names = ", ".join(one.name for one in self.left_out)
            more = f"A longer {opt.budget} tries them; fewer candidates take less."
            lines.append(f"Not tried in {text.about(asked.budget)}: {names}. {more}")
        lines += untried(asked.named)
        if self.sampled < min(_FEW, self.samples):
            lines.append(
                f"Only {text.count(self.sampled, noun)} tried: a longer {opt.budget} takes more, for better figures."
            )
        tried = self.trials[0]
        if tried.seen > tried.rows:
            lines.append(f"{tried.seen - tried.rows:,} of {text.count(tried.seen, noun)} could not be packed.")
        if self.removed:
            lines.append(f"Removed what killed plans had left: {text.listed(self.removed, _SHOWN)}.")
        return [*lines, *words.busy(self.load, BUSY)]

    def advice(self) -> list[str]:
        """The recommendation, its command, and why not the others."""
        taken, why = self.recommendation.taken, self.why
        if taken is None:
            lines = [f"Nothing is recommended. {why}"]
        else:
            lines = [f"Recommended: {taken.candidate.name}, {why}.", f"  {self.asked.command(taken)}"]
            if taken.loss is not None:
                lines.append(f"  It loses a little of each {self.noun}: {opt.html} shows how that looks.")
            lines += self.trades
        lines.append(f"The whole set: {self.whole_set}.")
        if self.recommendation.lost:
            lines.append("Other candidates:" if taken else "Candidates:")
        return lines + [f"  {name}: {why}" for name, why in self.lost()]

    @property
    def trades(self) -> list[str]:
        """What the next smaller and the next faster store would cost, compared with the recommended one."""
        taken = self.recommendation.taken
        return [] if taken is None else trades(self.trials, taken, self.asked.goals)

    @property
    def whole_set(self) -> str:
        """What the recommended store of all samples takes of disk, time and memory, or else the first that was tried;
        and the largest candidate of which the other is true: that it fits into memory, or does not."""
        taken = self.recommendation.taken or self.trials[0]
        others = [one for one in self.trials if one.fits != taken.fits]
        largest = max(others, key=lambda one: one.store_bytes, default=None)
        return "; ".join(self._takes(one) for one in (taken, largest) if one)

    def _takes(self, one: Trial) -> str:
        cores = "this core" if (cpus := machine.cpus()) == 1 else f"these {cpus} cores"
        fits = "fits" if one.fits else "does not fit"
        memory = "" if self.memory is None else f", {fits} into {text.size(self.memory)} of memory"
        return f"{one.candidate.name}: {text.size(one.store_bytes)}, about {text.about(one.pack_s)} on {cores}{memory}"

    def lost(self) -> list[tuple[str, str]]:
        """Every other candidate, and why it was not taken."""
        return [(one.candidate.name, text.with_noun(why, self.noun)) for one, why in self.recommendation.lost]

    def as_dict(self) -> dict[str, Any]:
        asked, taken = self.asked, self.recommendation.taken
        return {
            "rawpack": rawpack.__version__,
            "machine": machine.describe(),
            "load_per_cpu_at_start": self.load,
            "source": asked.source,
            "samples": self.samples,
            "sampled": self.sampled,
            "seed": asked.seed,
            "budget_s": asked.budget,
            "target_images_per_s": asked.goals.target,
            "disk_bytes": asked.goals.disk,
            "memory_bytes": self.memory,
            "measured_in": self.where,
            "augmentation": self.trials[0].training.setting.augmentation,
            "removed": self.removed,
            "candidates": [one.as_dict() for one in self.trials],
            "left_out": [one.name for one in self.left_out],
            "recommended": None if taken is None else taken.candidate.name,
            "command": None if taken is None else taken.candidate.command(asked.source, _words(asked.source_options)),
            "why": self.why,
            "whole_set": self.whole_set,
            "trades": self.trades,
            "lost": [{"name": name, "why": why} for name, why in self.lost()],
        }


def plan(
    source: str,
    source_options: Mapping[str, Any],
    keywords: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    say: Say,
) -> Plan:
    """Try all candidates on a sample of the source, and recommend one. Removes everything that it writes.

    source_options: what is said of the source. keywords: the others of `rawpack.plan`. Raises UsageError for a request
    that makes no sense or cannot be measured, PackError where no image of the sample can be packed.
    """
    asked = _request(source, source_options, keywords)
    load = load_per_cpu()
    memory = memory_for_files() if asked.memory is None else asked.memory

    def tell(what: str) -> None:
        say(what, asked.budget)

    with scratch_folder(asked.tmp) as (folder, removed):
        tell("looking through the source")
        spool = Spool(folder / "spool", free_bytes(folder) // 2, storage_options)
        spool.progress = Fetching(_Waits(tell))
        path, times = _few_archives(source, source_options, spool)
        opened = open_path(
            path,
            source_options,
            other=("rawpack", "plan", "SRC"),
            spool=spool,
            scan=lambda n: tell("looking through the source"),
        )
        info = opened.info
        if info.image is not None:
            if info.kind == "store":
                raise UsageError(f"{source} is a store already: `rawpack bench {source}` measures how fast it is read")
            raise UsageError(f"{source} contains arrays, which are stored unchanged; plan compares stores of pictures")
        if any(Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(one)) for one in info.paths):
            raise UsageError(f"{folder.parent} is inside the source {info.root}: name another folder with {opt.tmp}")
        samples = min(round(len(opened) * times), source_options.get("limit") or sys.maxsize)
        tried = try_out(
            opened, asked.candidates, asked.setting, Whole(samples, memory), folder,
            budget=asked.budget, seed=asked.seed, say=say,
        )  # fmt: skip
    return Plan(
        asked,
        source=opened,
        samples=samples,
        sampled=tried.sampled,
        memory=memory,
        trials=tried.trials,
        left_out=tried.left_out,
        strips=tried.strips,
        recommendation=recommend(tried.trials, asked.goals, busy=load is not None and load > BUSY),
        load=load,
        where=str(folder.parent),
        removed=[str(one) for one in removed],
    )


@dataclass(frozen=True)
class _Waits:
    """Shows what is waited for while archives are fetched."""

    waits: Callable[[str], None]


def _few_archives(source: str, source_options: Mapping[str, Any], spool: Spool) -> tuple[str, float]:
    """A few of the archives that a pattern names, spread over all, and how many times as many there are."""
    archives, inside = split_path(source)
    if not is_pattern(archives) or source_options.get("labels_file") is not None:  # labels are of all images
        return source, 1.0
    names = expanded(archives, spool)
    if len(names) <= _ARCHIVES:
        return source, 1.0
    few = [names[k * len(names) // _ARCHIVES] for k in range(_ARCHIVES)]
    return "::".join(few) + (f"/{inside}" if inside else ""), len(names) / len(few)


def _request(source: str, source_options: Mapping[str, Any], keywords: Mapping[str, Any]) -> PlanRequest:
    """What a user asked, checked."""
    given = {name: value for name, value in keywords.items() if value is not None}
    tried = {one.name: [as_text(value, "x") for value in listed(given.get(one.name))] for one in RECIPE if one.tried}
    tried["size"] = _by_field(tried["size"])
    named = {name: values for name, values in tried.items() if values}
    target, disk, memory, tmp = (given.get(name) for name in ("target", "disk", "memory", "tmp"))
    if target is not None and not (isinstance(target, int | float) and target is not True and 0 < target < math.inf):
        raise UsageError(f"target={target!r} must be a number above 0")
    asked = PlanRequest(
        source,
        candidates(**named),
        Setting(
            whole_number("batch", given.get("batch", 256), 1),
            whole_number("workers", given.get("workers", machine.cpus()), 1),
            parse_sides(given.get("image_size")),
            parse_steps(listed(given.get("transform"))),
        ),
        Goals(target, None if disk is None else parse_bytes(opt.disk, str(disk))),
        memory=None if memory is None else parse_bytes(opt.memory, str(memory)),
        budget=_seconds(str(given.get("budget", "60s"))),
        seed=whole_number("seed", given.get("seed", 0), None),
        tmp=None if tmp is None else os.fspath(tmp),
        source_options=source_options,
        named=named,
    )
    for candidate in asked.candidates:
        if candidate.recipe.shape is None and asked.setting.image_size is None and not asked.setting.transform:
            differing = opt.size("keep") if candidate.recipe.target is None else opt.fit("whole")
            raise UsageError(
                f"{differing}: images of different sizes make no batch; give {opt.image_size}, such as 224, or "
                f"{opt.transform}, such as 'RandomResizedCrop(224)'"
            )
    return asked


def _by_field(sizes: Sequence[str]) -> list[str]:
    """Sizes to try. Those by field that follow one another are one, "image=64,target=256", until a field repeats."""
    joined = list[str]()
    for one in sizes:
        field, by_field, _ = one.partition("=")
        before = [size.partition("=")[0] for size in joined[-1].split(",")] if joined else []
        if by_field and joined and "=" in joined[-1] and field not in before:
            joined[-1] += f",{one}"
        else:
            joined.append(one)
    return joined


def _seconds(written: str) -> float:
    """`--budget`: seconds of "60s", "90", "5min", "1h"."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*(s|min|m|h)?", written.strip())
    seconds = float(match[1]) * {"h": 3600, "min": 60, "m": 60}.get(match[2] or "s", 1) if match else 0.0
    if not seconds:
        raise UsageError(f"{opt.budget(repr(written))}: a time such as 45s, 5min or 1h")
    return seconds


def _words(source_options: Mapping[str, Any]) -> list[str]:
    """The words of a command line that describe the source so."""
    words, rows = list[str](), {one.name: one for one in SOURCE}
    for name, value in source_options.items():
        row, values = rows[name], _values(name, value)
        if row.is_flag:
            words += [row.flag] if value else []
        elif values:
            words += [word for one in (values if row.multiple else [",".join(values)]) for word in (row.flag, one)]
    return words


def _values(name: str, value: Any) -> list[str]:
    """What a user said of a source, one or several of it, as the command has each."""
    if isinstance(value, Mapping):
        between = ":" if name == "fields" else "="
        return [f"{key}{between}{_declared(one)}" for key, one in value.items()]
    return [] if value is None else [*map(str, value if isinstance(value, tuple | list) else [value])]


def _declared(value: Any) -> str:
    """ "float32[4,?]" for ("float32", (4, None))."""
    if not isinstance(value, tuple):
        return str(value)
    dtype, shape = value
    return f"{dtype}[{','.join('?' if n is None else str(n) for n in shape)}]" if shape else str(dtype)
