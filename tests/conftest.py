"""Fixtures that several files of tests share: a folder of images, and stores packed once for all of them."""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forked import Forks, forks
from once import is_unchanged, once
from pictures import SIZES, picture, save
from real_data import real
from running import FORMATS, Packed, environment, pack

import rawpack
from rawpack import native

if TYPE_CHECKING:
    from kept_children import KeptChildren
    from reading import Truth


pytest_plugins = ["failing_alone"]

# The workers of xdist have it, and the command wraps what it prints by it, also in a pipe.
os.environ.pop("COLUMNS", None)

# An example may take as long as a busy machine makes it: the suite's timeout is for tests that hang. Each run has other
# examples, and the long ones have more.
# Tests of trainers have an environment without it.
if find_spec("hypothesis") is not None:
    from hypothesis import settings

    settings.register_profile("rawpack", deadline=None, max_examples=100 if os.environ.get("RAWPACK_SOAK") else 40)
    settings.load_profile("rawpack")

LONG = (
    "packer/test_bench.py",
    "packer/test_engines.py",
    "docs/test_site_built.py",
    "docs/test_docs.py",
    "reader/test_cold.py",
    "robustness/test_kills.py",
    "robustness/test_pack_trouble.py",
    "reader/test_remote.py",
    "layouts/test_layouts.py",
    "robustness/test_workers_die.py",
    "packer/test_lerobot.py",
    "reader/test_transport.py",
    "reader/test_repeats.py",
    "robustness/test_pack_kill.py",
    "packer/test_several_derived.py",
)
"""The files that take longest, longest first, those of the heavy tests before the others. Begun last, one of them would
keep a single core busy at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long files; within a file, tests stay in their order."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the collector of garbage, which would look at all modules and tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave the ten thousand tests, and all modules, out of what the collector looks at from now on: whenever a test
    called `gc.collect()`, it looked at them for half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def left_out() -> Iterator[None]:
    """And what each file of tests leaves, such as reports, modules and caches: after half of the files, that took two
    seconds."""
    yield
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start, also where they run in the background of a shell, which ignores it for all
    that it starts there."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Where the native core is missing, the header says so: its warning would fail whichever test comes first.
    if native.state().startswith("off: "):
        os.environ["RAWPACK_NATIVE"] = "0"


def pytest_report_header() -> str:
    return f"native core: {native.state()}"


@pytest.fixture(scope="session", autouse=True)
def slices() -> Iterator[None]:
    """Cut copied batches into slices as small as those of decoded ones, and have each in a slot of its own: batches of
    tests are small."""
    from rawpack.choose import layout
    from rawpack.workers import fill

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fill, "_COPIED_BYTES", fill._SLICE_BYTES)
        patch.setattr(fill, "_WHOLE_BYTES", fill._SLICE_BYTES)
        patch.setattr(layout, "TOGETHER_BYTES", 1)
        patch.setattr(layout, "TOGETHER_HERE_BYTES", 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def plugins_read_once() -> Iterator[None]:
    """Read once for each `sys.path` which kinds of sources installed packages add: that takes 10 ms for each path that
    is opened, a fifth of the time of most tests that pack."""
    if find_spec("rawpack_packer") is None:
        yield
        return
    from rawpack_packer.sources import registry

    read = registry.entry_points
    kept = functools.cache(lambda path, group: read(group=group))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", lambda *, group: kept(tuple(sys.path), group))
        yield


@pytest.fixture(scope="session", autouse=True)
def packs_here() -> Iterator[None]:
    """Pack in this process where a test does not say `workers`: to start others takes ten times as long as to pack what
    tests pack. Commands that are processes of their own choose for themselves. Nor wait for the disk."""
    if find_spec("rawpack_packer") is None:
        yield
        return
    from unsynced import leave_unsynced

    from rawpack_packer.job.options import RunOptions

    leave_unsynced()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunOptions, "processes", property(lambda options: options.workers or 0))
        yield


@pytest.fixture(scope="module")
def trials_here() -> Iterator[None]:
    """Plans of a module pack what they try in this process, too, and read it for a tenth of the time."""
    from rawpack_packer.job.options import RunOptions
    from rawpack_packer.tune import trial

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "RunOptions", lambda workers, **options: RunOptions(0, **options))
        patch.setattr(trial, "_SLICES", (0.01, 2.0))
        yield


@pytest.fixture(scope="session")
def kept_processes() -> Iterator[KeptChildren | None]:
    """The processes that tests hand on to each other, see `kept_children`; None where the packer is not installed."""
    if find_spec("rawpack_packer") is None or sys.platform != "linux":
        yield None
        return
    from kept_children import kept_children

    with kept_children() as kept:
        yield kept


@pytest.fixture(autouse=True)
def children(request: pytest.FixtureRequest, kept_processes: KeptChildren | None) -> Iterator[None]:
    """A test of `own_processes` starts its own, and finds none that others have started."""
    if kept_processes is None or request.node.get_closest_marker("own_processes") is None:
        yield
        return
    with kept_processes.nothing():
        yield


@pytest.fixture(autouse=True)
def nothing_read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a process does that has read no epoch, and has warned of nothing: which tests warn does not
    depend on their order."""
    from rawpack.epoch import repeats

    # Hypothesis gives a test the same example again.
    monkeypatch.setattr(repeats, "_warned", getattr(request.node.obj, "is_hypothesis_test", False))
    monkeypatch.setattr(repeats, "_read", deque(maxlen=256))
    monkeypatch.setattr("rawpack.system.user.warned", set())


# ---------------------------------------------------------------------------------------------- the command


@pytest.fixture(scope="session", name="forks")
def forks_fixture() -> Iterator[Forks]:
    """Processes that have loaded rawpack, each for one script or command."""
    if sys.platform == "win32":
        pytest.skip("no process can be forked here")
    with forks(environment()) as forked:
        yield forked


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    """What most tests read: `images` in a memmap store of 48 x 48 pixels. Modules may have a store of their own."""
    return packed("memmap", "--size", 48)


@pytest.fixture(scope="module")
def reader(store: Path) -> rawpack.Reader:
    """A reader of the one `store` that a module has."""
    return rawpack.Reader(store)


@pytest.fixture(scope="module")
def truth(store: Path) -> Truth:
    """What numpy alone reads of it."""
    from reading import Truth

    return Truth(store)


# ---------------------------------------------------------------------------------------------- images


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run of the tests share; on Windows, each has its own."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ and sys.platform != "win32" else base


@pytest.fixture(scope="session")
def images(run_folder: Path) -> Iterator[Path]:
    """A folder of 75 photo-like files: odd names, nested folders, an empty class, images beside the classes, one grey
    JPEG, one PNG, one image that is smaller than what it is packed to."""
    root = run_folder / "images"
    yield once(root, lambda: save_images(root))
    assert is_unchanged(root), "a test has changed the images that others read"


def save_images(root: Path) -> None:
    number = 0
    for folder in ("animals", "two words", "猫 и собаки", "line\nbreak", "deep/er/still"):
        for name in ("plain", "with space", "图片", "new\nline", "Ünïcode", *map(str, range(9))):
            height, width = SIZES[number % len(SIZES)]
            save(root / folder / f"{name}.jpg", picture(height, width, number))
            number += 1
    (root / "Empty").mkdir()
    save(root / "loose.jpg", picture(60, 80, 901))
    save(root / "zz.jpeg", picture(80, 60, 902))
    save(root / "animals" / "grey.jpg", picture(66, 90, 903)[..., 1])
    save(root / "animals" / "lossless.png", picture(55, 75, 904))
    save(root / "two words" / "small.jpg", picture(30, 41, 905))


@pytest.fixture(scope="session")
def photos() -> Path:
    """Real photographs, where the machine has them."""
    return real("photos")


# ---------------------------------------------------------------------------------------------- stores


@pytest.fixture(scope="session")
def packed(images: Path, run_folder: Path) -> Iterator[Packed]:
    """`packed("hdf5", "--size", 48)`: `images` in a store of that layout, packed once for all processes of the run, and
    still the same at its end: copy it to change it."""
    stores: dict[tuple[str, ...], Path] = {}

    def get(layout: str, *options: object) -> Path:
        asked = (layout, *map(str, options))
        if asked not in stores:
            place = run_folder / f"packed-{hashlib.sha256(repr(asked).encode()).hexdigest()[:16]}"
            options = (*FORMATS[layout], "--shard-size", 1, *options)
            stores[asked] = once(place, lambda: pack(images, place / "store", *options)) / "store"
        return stores[asked]

    yield get
    for asked, store in stores.items():
        assert is_unchanged(store.parent), f"a test has changed the store that others read: {asked}"
