"""Command lines of `rawpack`, one of each kind of work, on sources and stores so small that a run takes a second.

A line is what one types, in which

    @NAME    is a source or a store, made once: see `Scene`
    =NAME    is a copy of it in the folder of this run, to be changed
    +NAME    is a path in the folder of this run
    s3:NAME  is a URL of this run on a server of this process
"""

from __future__ import annotations

import csv
import gzip
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import every_kind
from folders import files_of
from pictures import encoded, picture
from running import pack, run_here
from store_server import Server
from videos import encode

FIXTURES = Path(__file__).parent / "fixtures"
COUNT = 70
"""Images of most sources: two parts, and fewer than a hundred, of which --max-rejects would allow one."""


def _packing(options: str, source: str, to: str = "+store") -> str:
    return f"pack -q -s 16 --shard-size 1 {options} {source} {to}"


LINES = (
    _packing("-j 2", "@folder"),
    _packing("-j 0 -f hdf5", "@folder"),
    _packing("-j 2 -f lmdb", "@csv"),
    _packing("-j 0", "@jsonl"),
    _packing("-j 2 --compression zstd", "@parquet"),
    _packing("-j 0 -f lmdb", "@tfrecord"),
    _packing("-j 2 -f hdf5 --compression gzip", "@hdf5"),
    _packing("-j 0 -f hdf5 --chunk 4", "@npz"),
    _packing("-j 2 --image-column jpeg", "@mds"),
    _packing("-j 0 --color ycgco420", "@litdata"),
    _packing("-j 2 -f lmdb", "@tar"),
    _packing("-j 2", "@targz"),
    _packing("-j 0", "@zip"),
    _packing("-j 2 -f hdf5", "@webdataset"),
    _packing("-j 0", "@lmdb"),
    _packing("-j 2", "@recordio"),
    _packing("-j 0 -f lmdb", "@coco"),
    _packing("-j 2", "@voc"),
    _packing("-j 0", "@yolo"),
    _packing("-j 2 -f hdf5", "@labelme"),
    _packing("-j 0", "@cvat"),
    _packing("-j 2", "@video"),
    _packing("-j 0 -f lmdb", "@video"),
    _packing("-j 2", "@lerobot"),
    _packing("-j 2 -f lmdb", "@store"),
    "pack -q -j 2 -s image=16 -s target=8 --shard-size 1 --field target:image @several +store",
    _packing("-j 2 --curate", "@folder"),
    _packing("-j 2 --holdout val=0.2", "@folder", "+sets"),
    _packing("-j 0 --splits train,val", "@divided", "+sets"),
    "append -q -j 2 @more =store",
    "append -q -j 0 @more.tar =store-lmdb",
    "append -q -j 2 @store-more =store-hdf5",
    "relabel -q --from @scores.csv =store",
    "relabel -q --from @scores.csv =store-hdf5 --stale-copies",
    "merge -q -j 2 @store @store-more +store",
    "subset -q -j 2 --every 2 @store +store",
    "convert -q -j 2 -f lmdb -s keep @store +store",
    "convert -q -j 0 -f hdf5 -s 8 @store-lmdb +store",
    "export -q @store +files",
    "export -q --to webdataset --shard-size 20000 @store-lmdb +files",
    "export -q --to parquet --shard-size 20000 @store +files",
    "bench --rounds 1 --seconds 0.05 --no-cold -j 2 @store",
    "plan -q --budget 1s -j 2 -f memmap -f lmdb -s 16 --quality 90 @folder",
    # What `inspect` says of damage, and what it advises against it.
    "inspect --verify --json @damaged",
    "subset -q -j 2 --where 'not (64 <= index < 70)' @damaged +store",
    "warm -q --cache =cache @http",
    "inspect --html +report.html @store",
    "view -q --no-browser @store @store-lmdb",
    _packing("-j 2 --tmp +tmp", "@folder", "s3:store"),
    _packing("-j 0 -f lmdb --tmp +tmp", "@video", "s3:store"),
)
RISKIEST = (
    _packing("-j 2", "@video"),
    _packing("-j 2 --holdout val=0.2", "@folder", "+sets"),
    _packing("-j 2 --tmp +tmp", "@folder", "s3:store"),
    "append -q -j 2 @more =store",
    "relabel -q --from @scores.csv =store",
)
"""What reads through files before it packs, makes several stores, writes elsewhere, or changes a store in place."""

SCANNED = (
    _packing("-j 2", "@folder"),
    _packing("-j 0", "@jsonl"),
    _packing("-j 2", "@webdataset"),
    _packing("-j 2", "@targz"),
    _packing("-j 0", "@zip"),
    _packing("-j 2 --holdout val=0.2", "@folder", "+sets"),
    _packing("-j 0 --splits train,val", "@divided", "+sets"),
    "append -q -j 2 @more =store",
    "append -q -j 0 @more.tar =store-lmdb",
)
"""What saves a table of what it scanned: of files, rows and members; of several stores; beside a store."""


class Scene:
    """The sources and stores of command lines, each made when the first line needs it, and the server they ask."""

    def __init__(self, root: Path, server: Server) -> None:
        self.root, self.server = root, server
        self._made: dict[str, Path | str] = {}

    def words(self, line: str, folder: Path) -> list[str]:
        """The words of a line for a run in `folder`, in which copies are made that are missing."""
        return [self._word(word, folder) for word in shlex.split(line)]

    def _word(self, word: str, folder: Path) -> str:
        if word.startswith("@"):
            return str(self.place(word[1:]))
        if word.startswith("="):
            copy = folder / "changed"
            if not copy.exists():
                shutil.copytree(self.place(word[1:]), copy)
            return str(copy)
        if word.startswith("+"):
            return str(folder / word[1:])
        return f"s3://{bucket(folder)}/{word[3:]}" if word.startswith("s3:") else word

    def place(self, name: str) -> Path | str:
        if name not in self._made:
            folder = self.root / name
            folder.mkdir()
            self._made[name] = _MADE[name](self, folder) if name in _MADE else _of_kind(name, folder)
        return self._made[name]

    def path(self, name: str) -> Path:
        return Path(self.place(name))

    def results(self, folder: Path) -> dict[str, bytes]:
        """All files that a run in this folder wrote, here and on the server, but those that differ between two."""
        prefix = f"{bucket(folder)}/"
        there = {name.removeprefix(prefix): data for name, data in self.server.files.items() if name.startswith(prefix)}
        written = files_of(folder) | there
        # A report says when and where it was made.
        differs = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d|" + re.escape(bytes(folder)))
        return {
            name: differs.sub(b"", data) if name.endswith(".html") else data
            for name, data in written.items()
            if "provenance" not in name and not name.endswith("/lock")  # which has the sum of a cache, and when
        }


def bucket(folder: Path) -> str:
    return f"bucket-{folder.parent.name}"


def _images(count: int = COUNT, first: int = 0) -> list[tuple[str, bytes]]:
    return [(f"{i:03d}.png", encoded(picture(20, 24, i))) for i in range(first, first + count)]


def _labels(count: int = COUNT) -> list[str]:
    return ["ab"[i % 2] for i in range(count)]


def _of_kind(kind: str, folder: Path) -> Path:
    labels: Sequence[object] = _labels()
    if kind in ("recordio", "yolo"):
        labels = [i % 2 for i in range(COUNT)]
    size = every_kind.HEIGHT, every_kind.WIDTH
    # Boxes are checked against the size of their image.
    fitting = [(f"{i:03d}.png", encoded(picture(*size, i))) for i in range(COUNT)]
    alike = fitting if kind in ("voc", "cvat", "labelme", "npz", "coco", "yolo") else _images()
    return Path(every_kind.made(kind, folder, labels, alike))


def _fixture(name: str) -> Callable[[Scene, Path], Path]:
    return lambda scene, folder: FIXTURES / name


def _targz(scene: Scene, folder: Path) -> Path:
    (folder / "set.tar.gz").write_bytes(gzip.compress(scene.path("tar").read_bytes(), mtime=0))
    return folder / "set.tar.gz"


def _videos(scene: Scene, folder: Path) -> Path:
    for k in range(4):
        encode(folder / "ab"[k % 2] / f"{k}.mp4", "mpeg4", 20, numbers=range(20 * k, 20 * k + 20))
    return folder


def _several(scene: Scene, folder: Path) -> Path:
    every_kind.written(folder, _images())
    with (folder / "list.csv").open("w", newline="") as file:
        rows = [[f"{i:03d}.png", f"{COUNT - 1 - i:03d}.png"] for i in range(COUNT)]
        csv.writer(file).writerows([["path", "target"], *rows])
    return folder / "list.csv"


def _divided(scene: Scene, folder: Path) -> Path:
    for split, count in ("train", COUNT // 2), ("val", 9):
        every_kind.written(folder / split / "a", _images(count))
        every_kind.written(folder / split / "b", _images(count, 500))
    return folder


def _more(scene: Scene, folder: Path) -> Path:
    for label in "ab":
        every_kind.written(folder / label, _images(COUNT // 2, 100 + 100 * ord(label)))
    return folder


def _store(source: str, *options: object) -> Callable[[Scene, Path], Path]:
    return lambda scene, folder: pack(
        scene.path(source), folder / source.partition("-")[0], "-s", 16, "--shard-size", 1, *options
    )


def _scores(scene: Scene, folder: Path) -> Path:
    """Of the samples of a folder, other labels too."""
    with (folder / "scores.csv").open("w", newline="") as file:
        rows = [[f"{'ab'[i % 2]}/{i:03d}.png", i / 4, "ba"[i % 2]] for i in range(COUNT)]
        csv.writer(file).writerows([["key", "score", "label"], *rows])
    return folder / "scores.csv"


def _damaged(scene: Scene, folder: Path) -> Path:
    shutil.copytree(scene.path("store"), folder / "store")
    shard = folder / "store" / "shard-00001.npy"
    shard.write_bytes(shard.read_bytes()[:-1000])
    return folder / "store"


def _http(scene: Scene, folder: Path) -> str:
    scene.server.put_folder("sound", files_of(scene.path("store")))
    return f"{scene.server.url}/sound"


def _cache(scene: Scene, folder: Path) -> Path:
    """A cache of the store behind the URL, in which a shard is damaged and another one missing."""
    assert run_here("warm", "-q", "--cache", folder, scene.place("http")).code == 0
    first, second = sorted(folder.rglob("shard-*.npy"))
    first.write_bytes(bytes(len(first.read_bytes())))
    second.unlink()
    return folder


_MADE: dict[str, Callable[[Scene, Path], Path | str]] = {
    "mds": _fixture("mds/every"),
    "litdata": _fixture("litdata/every"),
    "lerobot": _fixture("lerobot/v30/h264"),
    "targz": _targz,
    "video": _videos,
    "several": _several,
    "divided": _divided,
    "more": _more,
    "more.tar": lambda scene, folder: every_kind.tarred(folder, _labels(), _images(COUNT, 300)),
    "scores.csv": _scores,
    "store": _store("folder"),
    "store-lmdb": _store("folder", "-f", "lmdb"),
    "store-hdf5": _store("folder", "-f", "hdf5"),
    "store-more": _store("more"),
    "damaged": _damaged,
    "http": _http,
    "cache": _cache,
}
