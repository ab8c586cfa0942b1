"""What an import costs, what is public, and that every command and option explains itself."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from pictures import picture, save
from rooms import modules
from running import environment

import rawpack
from rawpack_packer import api, engines

HEAVY = {
    "click", "tqdm", "cv2", "torch", "h5py", "lmdb", "simplejpeg", "PIL", "matplotlib", "jinja2", "av", "dask", "ray",
    "fsspec", "aiohttp", "s3fs",
}  # fmt: skip
BARE = "import rawpack\ndir(rawpack)\nhasattr(rawpack, 'no_such_name')"


@cache
def loaded_by(code: str) -> frozenset[str]:
    """The modules that a new Python has loaded after running `code`."""
    ran = subprocess.run(
        [sys.executable, "-P", "-c", f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        capture_output=True, encoding="utf-8", env=environment(), check=True,
    )  # fmt: skip
    return frozenset(ran.stdout.splitlines())


def test_import_rawpack_is_light() -> None:
    """`import rawpack` does not even load numpy; the reader loads nothing that only packing, workers, one format or one
    extra needs."""
    assert "numpy" not in loaded_by(BARE)
    loaded = loaded_by("from rawpack import Reader")
    assert "rawpack.reader" in loaded
    assert loaded.isdisjoint(HEAVY)
    # Each of these costs several percent of the time of the import, which is mostly numpy's.
    assert loaded.isdisjoint(
        {"importlib.metadata", "tempfile", "subprocess", "hashlib", "shutil", "json"}
        | {"rawpack.workers.pool", "rawpack.samples.table"}
    )


def test_a_packing_worker_is_light() -> None:
    """What packs a part loads neither HDF5 before it writes such a shard nor anything that other machines need."""
    loaded = loaded_by("import rawpack_packer.engines.local")
    assert "rawpack_packer.part" in loaded
    assert not loaded & {"rawpack.reader", "rawpack.workers", "rawpack_packer.sources.registry", "importlib.metadata"}
    assert not loaded & {"h5py", "asyncio", "distributed", "ray", "click", "tqdm", "av", "matplotlib", "jinja2"}


def loaded_by_command(*words: object) -> frozenset[str]:
    argv = ["rawpack", *map(str, words)]
    return loaded_by(f"import sys\nfrom rawpack_packer.cli import main\nsys.argv = {argv!r}\nmain()")


@pytest.fixture(scope="module")
def packing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, frozenset[str]]:
    """A store of two images, and what packing them in one process has loaded."""
    folder = tmp_path_factory.mktemp("packing")
    for name in ("cat", "dog"):
        save(folder / "photos" / name / "0.jpg", picture(40, 60, 0))
    words = ("pack", "-q", "--workers", 0, "--size", 8, folder / "photos", folder / "store")
    return folder / "store", loaded_by_command(*words)


def test_a_command_loads_what_it_needs(packing: tuple[Path, frozenset[str]]) -> None:
    """Packing a folder of images in this process loads no other kind of source, no split, no step of a transform, no
    network and no bar that nobody sees, and at most 45 % of the packer's modules; `rawpack inspect` loads no source,
    engine, decoder or reader."""
    store, loaded = packing
    assert loaded >= {"rawpack_packer.sources.folder", "rawpack_packer.job.job"}
    every = {name for name in modules() if name.startswith("rawpack_packer")}
    assert len(every & loaded) <= 0.45 * len(every)
    kinds = ("arrays", "archives.source", "hdf5.source", "listing.reading", "parquet.source", "video.source")
    assert not loaded & {f"rawpack_packer.sources.{kind}" for kind in kinds}
    assert not loaded & {"asyncio", "ssl", "aiohttp", "fsspec", "tqdm", "numpy.ma"}
    assert not loaded & {"rawpack.transforms.color", "rawpack_packer.job.splits"}
    looking = loaded_by_command("inspect", "--json", store)
    assert "rawpack_packer.inspect.describe" in looking
    others = ("rawpack.reader", "rawpack.transforms", "rawpack_packer.sources", "rawpack_packer.engines.local")
    assert not looking & {"tqdm", "cv2", "hashlib", "importlib.metadata", "rawpack_packer.images", *others}


def test_engines_are_loaded_when_asked_for() -> None:
    """All public engines can be had and are listed; what is none is an error of the usual kind."""
    for name in engines.__all__:
        assert getattr(engines, name) is not None
        assert name in dir(engines)
    with pytest.raises(AttributeError, match="Nonsense"):
        engines.Nonsense  # noqa: B018


def test_the_public_names_are_these() -> None:
    """`rawpack.__all__` is sorted, all of it is there, and it changes only on purpose."""
    assert rawpack.__all__ == [
        "Balanced", "Batches", "Blocks", "Buckets", "Cache", "DamagedStoreError", "DecodeError", "MissingExtraError",
        "PackError", "Ranks", "RawpackError", "Reader", "StoreError", "UnfinishedStoreError", "UsageError", "Weighted",
        "WorkerError", "Workers", "append", "bench", "convert", "describe", "doctor", "export", "look", "merge", "pack",
        "pack_splits", "plan", "relabel", "subset", "verify", "view", "warm",
    ]  # fmt: skip
    assert all(hasattr(rawpack, name) for name in rawpack.__all__)
    modules = ["integrations", "order", "targets", "transforms"]
    assert sorted(dir(rawpack)) == sorted([*rawpack.__all__, *modules, "__version__"])


def test_the_packer_is_loaded_when_it_is_asked_for() -> None:
    """`rawpack.pack` is the packer's function, and nothing of the packer is loaded before."""
    assert rawpack.pack is api.pack
    assert "rawpack_packer" not in loaded_by(BARE)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        rawpack.no_such_name  # noqa: B018


def test_the_reader_works_without_the_packer() -> None:
    """Where the packer cannot be imported, reading works, and `rawpack.pack` says what is missing."""
    code = """
import sys
sys.modules["rawpack_packer"] = None
import rawpack
try:
    from rawpack import pack
except rawpack.MissingExtraError as error:
    assert "rawpack.pack needs the package rawpack_packer" in str(error) and "pip install" in str(error), error
else:
    raise AssertionError
assert rawpack.Reader and rawpack.Batches
"""
    assert "rawpack.reader" in loaded_by(code)


def test_errors_have_one_root() -> None:
    """`except RawpackError` catches every error of the package."""
    errors = [getattr(rawpack, name) for name in rawpack.__all__ if name.endswith("Error")]
    assert all(issubclass(error, rawpack.RawpackError) for error in errors)
    assert issubclass(rawpack.UsageError, ValueError)
