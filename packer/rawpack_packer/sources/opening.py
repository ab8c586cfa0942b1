"""Finds the kind of a path, and opens it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, refuse_url
from rawpack_packer.options import OPTIONS
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import Scanning, Source, unseen
from rawpack_packer.sources.beside.annotated import refuse_above, refuse_tables
from rawpack_packer.sources.files import missing
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder import NoImageError, holds_image
from rawpack_packer.sources.registry import KINDS, SourceKind
from rawpack_packer.sources.splits_on_disk import DividedError, splits_in
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.sources.archives.opened import Pass
    from rawpack_packer.sources.table.spool import Spool

_NAMED = re.compile(r"\.(tar|zip|tgz|tbz2?|tar\.gz|tar\.bz2|rec|parquet|arrow)([?#].*)?$", re.IGNORECASE | re.DOTALL)
"""Ends of URLs that say what they are."""
GROUP = "rawpack.sources"


@runtime_checkable
class RecognizesPaths(Protocol):
    """An entry point that says itself which paths are of its kind."""

    def accepts(self, path: str | os.PathLike[str], /) -> bool: ...


def open_source(
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    spool: Spool | None = None,
    progress: Scanning = unseen,
    **options: Any,
) -> Source:
    """The samples at `path`. kind: one of `KINDS` or of the plugins; None finds it from what `path` is.

    spool: what fetches files behind URLs, and where an earlier run kept what it found in archives; without one, URLs
        are refused. progress: called now and then with
        the number of entries of the source that were looked at.
    options: of that kind; None, False and () are as if left out.
    Raises UsageError, one line that names the path and the cure, for what is no source, and for another kind's options;
    DividedError, a UsageError, where `kind` is None and the folder is divided into splits; AnnotatedError where it is
    None and the folder holds annotations that would be lost.
    """
    given = {
        name: value
        for name, value in options.items()
        if value is not None and value is not False and not (isinstance(value, tuple) and not value)
    }
    source = _found(path, kind, given, spool, progress)
    if "key_pattern" not in given:
        return source
    from rawpack_packer.sources.path_fields import join_path_fields

    return join_path_fields(source, given["key_pattern"])


def _found(
    path: str | os.PathLike[str],
    kind: str | None,
    given: dict[str, Any],
    spool: Spool | None,
    progress: Scanning,
) -> Source:
    added = plugins()
    if "key_pattern" in given:
        from rawpack_packer.sources.path_fields import path_pattern

        path_pattern(given["key_pattern"])
    if kind is not None:
        if kind in KINDS and kind != "store" and not _is_there(path, KINDS[kind]):
            raise missing(os.fspath(path))
        return _open(path, kind, added, given, spool, progress)
    found, begun = _kind_of(path, added, given, spool), None
    if found in ("archive", "webdataset"):
        from rawpack_packer.sources.archives.webdataset import begin

        may_be = found
        found, begun = begin(path, given.get("fields", ()), spool)
        if found != may_be == "webdataset":  # a folder of archives that are no shards
            found, begun = _kind_of(path, added, given, spool, but=may_be), None
    if given and found == "folder" and not _is_there(path, KINDS[found]) and "\0" not in os.fspath(path):
        raise missing(os.fspath(path))  # rather than that a folder takes none of these options
    if found in KINDS and KINDS[found].with_subfolders and os.fspath(path) and (names := splits_in(Path(path))):
        images = found != "folder" or holds_image(Path(path))
        if found == "folder" and images:
            refuse_above(path, names)
        raise DividedError(os.fspath(path), names, found if images else "video")
    if found in KINDS and (names := KINDS[found].splits(Path(path))):
        raise DividedError(os.fspath(path), names, found)
    if found == "parquet" and os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        refuse_tables(path)
    try:
        source = _open(path, found, added, given, spool, progress, detected=True, begun=begun)
    except NoImageError as error:
        if not error.videos:
            from rawpack_packer.sources.folder import refuse_arrays

            refuse_arrays(Path(path))
            raise
        return _open(path, "video", added, given, spool, progress)
    if found == "archive" and (names := source.splits()):  # type: ignore[attr-defined] # it is an ArchiveSource
        raise DividedError(os.fspath(path), names, found)
    return source


def _is_there(path: str | os.PathLike[str], kind: SourceKind) -> bool:
    """Whether a path names something: what it is the path of, several files, or what is in a file or folder."""
    text = os.fspath(path)
    # Whoever opens an empty path says so.
    if not text or os.path.lexists(text) or is_url(text):
        return True
    from rawpack_packer.sources.table.named_files import is_pattern

    return is_pattern(text) or kind.accepts_folder(Path(text))


def has_split(root: str, name: str) -> bool:
    """Whether `root/name` names a split: a folder, or what the archive, the tables or the data.yaml at `root` have by
    that name."""
    inner = Path(root) / name
    # What an archive or a data.yaml lacks is reported when it is opened.
    is_file = os.path.isfile(root)  # noqa: PTH113
    known = KINDS["archive"].accepts_file(Path(root)) or (is_file and KINDS["yolo"].accepts_file(Path(root)))
    kinds = ("parquet", "cifar", "yolo", "voc")
    return os.path.lexists(inner) or known or any(KINDS[kind].accepts_folder(inner) for kind in kinds)


def stop_above_splits(root: str, names: Sequence[str]) -> None:
    """Raise AnnotatedError where splits are plain folders of images, and the folder that they are in holds what
    describes the images."""
    folders = [Path(root) / name for name in names]
    if all(map(os.path.isdir, folders)) and not all(
        any(kind.accepts_folder(folder) for kind in KINDS.values()) for folder in folders
    ):
        refuse_above(root, names)


def _open(
    path: str | os.PathLike[str],
    kind: str,
    added: dict[str, EntryPoint],
    given: dict[str, Any],
    spool: Spool | None,
    progress: Scanning,
    *,
    detected: bool = False,
    begun: Pass | None = None,
) -> Source:
    """detected: whether the kind was found, rather than named by the user. begun: what has found it in archives."""
    if kind not in KINDS and kind not in added:
        raise UsageError(f"there is no source of kind {kind!r}: it is one of {', '.join(sorted({*KINDS, *added}))}")
    options = {name: value for name, value in given.items() if name != "key_pattern"}
    if kind == "video" and KINDS["listing"].accepts_file(Path(path)) and Path(path).is_file():
        kind, options["videos"] = "listing", True
    row = KINDS.get(kind)
    spooled = row is not None and row.remote and spool is not None
    if row is not None and not spooled:
        refuse_url(path)
    for name in given:
        if row is None or name not in row.options:
            homes = [home for home, known in KINDS.items() if name in known.options]
            belongs = f"it belongs to {' and '.join(homes)} sources" if homes else "it applies to datasets in memory"
            raise UsageError(
                f"{plain(os.fspath(path))}, opened as a source of kind {kind}, takes no option "
                f"{name.replace('_', '-')}: {belongs}"
            )
    if row is not None:
        more: dict[str, Any] = {"spool": spool} if spooled else {}
        more |= {"detected": True} if detected and row.stops_at_annotations else {}
        more |= {"begun": begun} if begun is not None and kind in ("archive", "webdataset") else {}
        return row.open(path, progress=progress, **options, **more)
    opened = _loaded(added[kind])(path)
    if isinstance(opened, Source):
        return opened
    from rawpack_packer.sources.dataset import DatasetSource

    return DatasetSource(opened)


def plugins() -> dict[str, EntryPoint]:
    """The kinds that other packages add; nothing is loaded."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _kind_of(
    path: str | os.PathLike[str],
    added: dict[str, EntryPoint],
    given: dict[str, Any],
    spool: Spool | None,
    but: str = "",
) -> str:
    """The kind of a path; of archives, whose members decide, see `begin`. but: a kind that it is not."""
    for name, entry in added.items():
        opener = _loaded(entry)
        if isinstance(opener, RecognizesPaths) and opener.accepts(path):
            return name
    if is_url(path) and spool is not None:
        return _kind_of_url(os.fspath(path))
    refuse_url(path)
    where = Path(path)
    if "labels_dir" in given and os.path.isdir(where):  # noqa: PTH112
        return "yolo"
    # Not Path.is_file, which raises where nothing can be looked into: whoever scans the folder says so.
    is_file = os.path.isfile(where)  # noqa: PTH113
    for name, kind in KINDS.items():
        if name != but and (kind.accepts_file if is_file else kind.accepts_folder)(where):
            return name
    if is_file and where.suffix.lower() not in IMAGE_EXTENSIONS:
        from rawpack_packer.sources.folder import unknown

        raise UsageError(unknown(plain(os.fspath(path)), where.suffix.lower(), sorted({*KINDS, *added})))
    # Without options, the scan for images shows whether there are any: see `open_source`.
    asked = any(OPTIONS[name].heading == "Video" for name in given)
    return "video" if asked and where.is_dir() and not holds_image(where) else "folder"


def _kind_of_url(url: str) -> str:
    """The kind of what is behind a URL, by its name."""
    from rawpack_packer.sources.archives.source import split_path
    from rawpack_packer.sources.table.named_files import source_name

    ends = _NAMED.search(split_path(url)[0])
    if ends is None:
        remote = sorted(name for name, kind in KINDS.items() if kind.remote)
        raise UsageError(
            f"{source_name(url)} does not say what it is, as .tar or .parquet at its end would: add {opt.kind} "
            f"{'|'.join(remote)}. `rawpack warm` fetches a store; copy other files here first"
        )
    return {"rec": "recordio", "parquet": "parquet", "arrow": "parquet"}.get(ends[1].lower(), "archive")


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise UsageError(f"the source {entry.name!r} of {entry.value} cannot be loaded: {error}") from error
