"""What is known of a job before anything of a source behind URLs is fetched: what is at its destination, whether that
has the same options, and whether it was packed from these very files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from rawpack import __version__
from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.errors import PackError, RawpackError, UsageError
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination import journal
from rawpack_packer.job.commit import tidy_finished
from rawpack_packer.job.differences import StoreState, options_unlike, store_at
from rawpack_packer.job.job import Job, check_sizes, nothing_to_do
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.summary import DryRun, Summary
from rawpack_packer.provenance import packing_runs, read_provenance
from rawpack_packer.recipe import Recipe, check_libraries, make_recipe
from rawpack_packer.sources import SourceInfo
from rawpack_packer.sources.archives.source import split_path
from rawpack_packer.sources.table.columns import RowNumbers
from rawpack_packer.sources.table.named_files import named_files
from rawpack_packer.sources.table.table import Table, TablePart
from rawpack_packer.sources.video import noun_of

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

_FILES = ("classes", "labels_file")
"""Options of a source that may name a file."""


@dataclass(frozen=True)
class There:
    """What earlier runs left at a destination."""

    state: StoreState
    recipe: Mapping[str, Any]
    manifest: Manifest | None = None
    """The manifest of a finished store, all files of which are there with the right size."""
    digest: str = ""
    provenance: Mapping[str, Any] | None = None


def there(path: Path) -> There | None:
    """What is in the folder of a job; None for nothing, and for what only the job itself can explain."""
    with suppress(RawpackError, OSError):
        state = store_at(path)
        if not destinations.is_finished(path):
            begun = journal.read_note(path, journal.JobNote)
            return None if begun is None else There(state, begun.recipe)
        manifest, digest = manifests.load(path)
        try:
            check_sizes(path, manifest)
        except PackError:
            return There(state, manifest.recipe)
        return There(state, manifest.recipe, manifest, digest, read_provenance(path)[0])
    return None


def check_recipe(before: There, options: Mapping[str, Any]) -> None:
    """Raise UsageError where options of a recipe that a user gave are not those of what is there. What the source may
    decide, size and color, is compared if it is given, or if no source decides so."""
    decided = {"size": (256, "keep"), "color": ("rgb", "gray")}
    left = {name: before.recipe.get(name) for name, may in decided.items() if before.recipe.get(name) in may}
    now = make_recipe(**{**left, **options}).as_manifest()
    if differing := options_unlike(before.recipe, now):
        raise before.state.refusal(f"the recipe differs: {', '.join(differing)}", resume=True)


def asked_of(url: str, source_options: Mapping[str, Any], recipe: Mapping[str, Any], spool: Spool) -> str:
    """What `digest_of` returns once a source is open, before that: of the files that a URL names. For kinds that read
    others too, it is another one."""
    with suppress(UsageError):  # whoever opens the source says what is wrong
        named_files(split_path(url)[0], spool)
    return digest_of(url, spool, source_options, recipe)


def digest_of(url: str, spool: Spool, source_options: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """A digest of all that a store of files behind URLs follows from: the files that were found, with their sizes and
    versions, the options, and `url`, which says in which order files come, and which folder in them is packed. "" where
    there are no files, or a version is not known."""
    files = sorted(spool.known.values(), key=lambda file: file.url)
    if not files or not all(file.version for file in files):
        return ""
    options = {**recipe, **{name: _contents(name, value) for name, value in source_options.items() if value}}
    about = [__version__, url, [file.digest for file in files], sorted(options.items(), key=lambda item: item[0])]
    return xxhash.xxh3_128_hexdigest(repr(about).encode("utf-8", "surrogateescape"))


def _contents(name: str, value: Any) -> Any:
    """The value of an option; of one that names a file, what is in it."""
    if name in _FILES and isinstance(value, str | os.PathLike) and (path := Path(value)).is_file():
        return xxhash.xxh3_128_hexdigest(path.read_bytes())
    return tuple(value) if isinstance(value, list) else value


def is_done(before: There, run_options: RunOptions, asked: Callable[[], str]) -> bool:
    """Whether a finished store is what a run would make. asked: see `asked_of`."""
    manifest, source = before.manifest, (before.provenance or {}).get("source")
    if manifest is None or not isinstance(source, dict) or not source.get("asked"):
        return False
    if len(packing_runs(manifest)) > 1 or (run_options.strict and manifest.rejects.count):
        return False
    try:
        check_libraries(Recipe.of_manifest(manifest.recipe))
    except (PackError, ValueError):
        return False
    return bool(source["asked"] == asked())


def _as_packed(manifest: Manifest, provenance: Mapping[str, Any]) -> Table:
    """A source as the store that was packed from it recorded it; its samples are not read."""
    about = provenance["source"]
    info = SourceInfo(
        kind=str(about["kind"]), root=str(about["root"]), classes=manifest.classes, counts=manifest.counts,
        noun=noun_of(manifest.fields),
    )  # fmt: skip
    return Table(info, TablePart(None, RowNumbers(range(manifest.samples + manifest.rejects.count))))


class Done(Job):
    """A job of which it is known that the finished store at its destination is its result."""

    def __init__(self, store: There, destination: Path, whole: Callable[[], Job]) -> None:
        """whole: gives the job, whose source is then fetched."""
        assert store.manifest is not None
        assert store.provenance is not None
        self.source = self.as_given = _as_packed(store.manifest, store.provenance)
        self.destination, self._whole = destination, whole
        self._summary = nothing_to_do(destination, store.manifest, store.digest, self.source)

    def estimate(self) -> DryRun:
        return self._whole().estimate()

    def run(self) -> Summary:
        tidy_finished(self.destination)
        return self._summary
