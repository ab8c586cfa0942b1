"""The native core is compiled into wheels and into the checkout, or not, and loaded, or not: nobody is left without
pixels, and nobody gets a library that was not compiled for this."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import warnings
import zipfile
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from folders import files_of
from running import run_here

import rawpack_packer
from rawpack import Reader, native
from rawpack.system.child import environment
from rawpack.transforms import CenterCrop, Lambda, RandomHorizontalFlip, RandomResizedCrop, Resize

ROOT = Path(__file__).resolve().parents[2]
STUB = """
#include <stdint.h>
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int32_t rawpack_version(void) { return VERSION; }
EXPORTED int32_t rawpack_lanes(void) { return 0; }
"""
"""Compiles at once."""
COMPILER = shlex.split(os.environ.get("CC") or "cc")


def compiler_works() -> bool:
    """Also the C library's headers are there."""
    command = [*COMPILER, "-fsyntax-only", "-x", "c", "-"]
    try:
        return subprocess.run(command, input=b"#include <stdlib.h>", capture_output=True, check=False).returncode == 0
    except OSError:
        return False


compiles = pytest.mark.skipif(not compiler_works(), reason="needs a C compiler")


def hatchling(checkout: Path, out: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel."""
    pytest.importorskip("hatchling", reason="builds need hatchling: scripts/test installs it")
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=checkout,
        env=os.environ | {"RAWPACK_NATIVE_BUILD": "auto"} | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


def built(checkout: Path, out: Path, **variables: str) -> Path:
    ran = hatchling(checkout, out, **variables)
    assert ran.returncode == 0, ran.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def libraries(wheel: Path) -> list[str]:
    return [name for name in zipfile.ZipFile(wheel).namelist() if re.search(r"_core|\.so|\.dylib", name)]


def loaded(checkout: Path) -> ModuleType:
    """Its build.py, as hatchling loads it."""
    spec = spec_from_file_location("build_of_the_core", checkout / "reader" / "native" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code by the packages in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "RAWPACK_NATIVE"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=kept | {"PYTHONPATH": str(folder)} | variables,
        capture_output=True, text=True, check=True,
    )  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What builds a wheel, with little Python and C in it."""
    root = tmp_path / "checkout"
    for name in ("reader/rawpack/__init__.py", "reader/rawpack/errors.py", "reader/native/build.py",
                 "packer/rawpack_packer/__init__.py", "pyproject.toml", "README.md", ".gitignore",
                 "LICENSE"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name in ("system", "native"):
        folder = Path("reader", "rawpack", name)
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("_core-*", "__pycache__"))
    (root / "reader" / "native" / "stub.c").write_text(STUB.replace("VERSION", str(native.VERSION)))
    return root


def library_of(checkout: Path) -> Path:
    return checkout / "reader" / "rawpack" / "native" / native.LIBRARY.name


# ---------------------------------------------------------------------------------------------- wheels


@compiles
@pytest.mark.skipif(sys.platform != "linux", reason="names Linux")
def test_with_a_compiler_a_wheel_is_of_a_platform(checkout: Path, tmp_path: Path) -> None:
    """One for all Pythons, with the library, which works. The checkout stays as it is: it may be read-only."""
    for folder in (checkout, *checkout.rglob("*")):
        folder.chmod(folder.stat().st_mode & 0o555)
    before = files_of(checkout)
    # Python itself would keep the bytecode of build.py beside it.
    variables = {"RAWPACK_NATIVE_BUILD": "always", "PYTHONDONTWRITEBYTECODE": "1"}
    wheel = built(checkout, tmp_path / "out", **variables)
    assert files_of(checkout) == before
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")
    assert libraries(wheel) == [f"rawpack/native/{native.LIBRARY.name}"]
    (metadata,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/WHEEL"))
    assert "Root-Is-Purelib: false" in zipfile.ZipFile(wheel).read(metadata).decode()
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    assert python(tmp_path / "site", "from rawpack import native; print(native.state())").stdout == "portable C\n"


@compiles
def test_the_platform_in_the_name_can_be_chosen(checkout: Path, tmp_path: Path) -> None:
    """Package indexes take manylinux and musllinux, and not linux."""
    wheel = built(checkout, tmp_path, RAWPACK_NATIVE_PLATFORM="manylinux_2_17_riscv64")
    assert wheel.name.endswith("-py3-none-manylinux_2_17_riscv64.whl")


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_without_a_compiler_a_wheel_is_pure_and_works(checkout: Path, tmp_path: Path, compiler: str) -> None:
    """The build says so; so does the first use, once."""
    ran = hatchling(checkout, tmp_path / "out", CC=compiler)
    assert ran.returncode == 0
    assert "without its native core, and is slower: the compiler" in " ".join(ran.stderr.split())
    (wheel,) = (tmp_path / "out").glob("*-py3-none-any.whl")
    assert libraries(wheel) == []
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    ran = python(tmp_path / "site", "from rawpack import native\nfor _ in range(3): print(native.library())")
    assert ran.stdout == "None\n" * 3
    assert ran.stderr.count("RuntimeWarning: rawpack: the native core is off: ") == 1


def test_a_build_that_must_have_the_core_fails_without_a_compiler(checkout: Path, tmp_path: Path) -> None:
    ran = hatchling(checkout, tmp_path, CC="false", RAWPACK_NATIVE_BUILD="always")
    assert ran.returncode != 0
    assert "NotBuiltError: the compiler failed: false " in ran.stderr
    ran = hatchling(checkout, tmp_path, RAWPACK_NATIVE_BUILD="yes")
    assert "RAWPACK_NATIVE_BUILD=yes must be auto, always or never" in ran.stderr


def test_a_pure_wheel_has_no_library_of_the_checkout(checkout: Path, tmp_path: Path) -> None:
    """Whatever editable installations have left there; also where git's file is missing."""
    library_of(checkout).write_bytes(b"\x7fELF")
    library_of(checkout).with_name("_core-0-linux-other.so").write_bytes(b"\x7fELF")
    (checkout / ".gitignore").unlink()
    ran = hatchling(checkout, tmp_path, RAWPACK_NATIVE_BUILD="never")
    assert (ran.returncode, "native" in ran.stderr) == (0, False)
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    assert libraries(wheel) == []


@compiles
def test_builds_at_once_give_the_same_bytes(checkout: Path, tmp_path: Path) -> None:
    """Two wheels and two libraries in place, all of one checkout at a time; the library has no path inside."""
    commands = [[sys.executable, "reader/native/build.py"]] * 2
    if hatch := shutil.which("hatchling", path=str(Path(sys.executable).parent)):
        commands += [[hatch, "build", "-t", "wheel", "-d", str(tmp_path / name)] for name in "ab"]
    variables = os.environ | {"RAWPACK_NATIVE_BUILD": "always"}
    ran = [subprocess.Popen(command, cwd=checkout, env=variables) for command in commands]
    assert [process.wait() for process in ran] == [0] * len(commands)
    assert [path.name for path in library_of(checkout).parent.glob("_core-*")] == [native.LIBRARY.name]
    assert ctypes.CDLL(str(library_of(checkout))).rawpack_version() == native.VERSION
    data = library_of(checkout).read_bytes()
    assert str(tmp_path).encode() not in data
    wheels = [wheel.read_bytes() for wheel in tmp_path.glob("[ab]/*.whl")]
    assert len({*wheels}) == len(wheels) // 2
    for wheel in tmp_path.glob("a/*.whl"):
        assert zipfile.ZipFile(wheel).read(f"rawpack/native/{native.LIBRARY.name}") == data


# ---------------------------------------------------------------------------------------------- the checkout


@compiles
def test_an_editable_installation_has_the_library_in_the_checkout(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a name that git ignores; compiled again where the C or the flags have changed, and only there."""
    pytest.importorskip("hatchling", reason="builds need hatchling: scripts/test installs it")
    monkeypatch.setenv("RAWPACK_NATIVE_BUILD", "always")
    build = loaded(checkout)
    data: dict[str, Any] = {"force_include": {}}
    hook = build.NativeCoreHook(str(checkout), {}, None, None, str(tmp_path), "wheel")
    hook.initialize("editable", data)
    hook.finalize("editable", data, "")
    assert data == {"force_include": {}}
    assert library_of(checkout).exists()
    ignored = subprocess.run(["git", "-C", ROOT, "check-ignore", "-q", native.LIBRARY], check=False).returncode
    assert ignored == 0 or not (ROOT / ".git").exists()
    assert build.build_in_place() is None
    for change in (lambda: (checkout / "reader" / "native" / "more.h").write_text("/* more */\n"),
                   lambda: monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DMORE"))):  # fmt: skip
        change()
        assert build.build_in_place() == library_of(checkout)
        assert build.build_in_place() is None


@compiles
def test_a_library_that_cannot_be_loaded_is_compiled_again(checkout: Path) -> None:
    """Such as that of another machine by the same name."""
    build = loaded(checkout)
    library_of(checkout).write_bytes(build.sources().encode())
    assert build.build_in_place() == library_of(checkout)
    assert build.build_in_place() is None


def test_a_checkout_that_cannot_be_written_is_used_without_the_library(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An editable installation warns; `always` fails."""
    build = loaded(checkout)

    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(build, "TemporaryDirectory", refuse)
    monkeypatch.setenv("RAWPACK_NATIVE_BUILD", "auto")
    build.main()
    assert "no native core, NumPy is used instead: it cannot be written: " in capsys.readouterr().err
    monkeypatch.setenv("RAWPACK_NATIVE_BUILD", "always")
    with pytest.raises(SystemExit, match="no native core: it cannot be written"):
        build.main()


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_have_nothing_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    """No warning by -Wall -Wextra."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CC", f"{compiler} -Werror")
    loaded(ROOT).compile_to(tmp_path / "core")


def test_the_library_of_this_checkout_is_of_its_sources() -> None:
    """What the other tests test is what is written here."""
    build = loaded(ROOT)
    if native.LIBRARY.parent != build.PACKAGE or not native.LIBRARY.exists():
        pytest.skip("there is no library in this checkout")
    assert build.sources().encode() in native.LIBRARY.read_bytes(), "run: python reader/native/build.py"


@pytest.mark.skipif(sys.platform != "linux" or not native.LIBRARY.exists(), reason="needs the library on Linux")
def test_the_library_needs_an_old_c_library_only() -> None:
    """So a wheel may be called manylinux_2_17: nothing but functions of glibc 2.17."""
    data = native.LIBRARY.read_bytes()
    assert max([int(found) for found in re.findall(rb"GLIBC_2\.(\d+)", data)], default=0) <= 17
    assert {*re.findall(rb"lib[\w+-]+\.so[.\d]*", data)} <= {b"libc.so.6", b"libc.so"}


# ---------------------------------------------------------------------------------------------- loading


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As if this process had not looked for the library yet."""
    monkeypatch.setenv("RAWPACK_NATIVE", "1")
    caches = (native.library, native._opened)
    for cache in caches:
        cache.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


def another_version(folder: Path) -> None:
    source = folder / "old.c"
    source.write_text(STUB.replace("VERSION", str(native.VERSION + 1)))
    subprocess.run([*COMPILER, "-shared", "-fPIC", "-o", folder / "core", source], check=True)


def damaged(folder: Path) -> None:
    (folder / "core").write_bytes(b"\x7fELF damaged")


def another_library(folder: Path) -> None:
    (folder / "old.c").write_text("int other;")
    subprocess.run([*COMPILER, "-shared", "-fPIC", "-o", folder / "core", folder / "old.c"], check=True)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda folder: None, "does not exist$"),
        (damaged, "cannot be loaded"),
        pytest.param(another_library, "cannot be loaded", marks=compiles),
        pytest.param(
            another_version, f"has version {native.VERSION + 1}, and {native.VERSION} is needed$", marks=compiles
        ),
    ],
)
def test_a_library_that_cannot_be_used_is_warned_of_once(
    fresh: pytest.MonkeyPatch, tmp_path: Path, make: Any, why: str
) -> None:
    """With the reason, what it costs and the cure; children of this process do not load one either, nor warn."""
    make(tmp_path)
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    assert re.search(f"^off: {re.escape(str(tmp_path))}/core {why}", native.state())
    with pytest.warns(RuntimeWarning, match="core is off: .*the same pixels .*install a C compiler") as warned:
        assert [native.library() for _ in range(3)] == [None] * 3
    assert len(warned) == 1
    assert environment()["RAWPACK_NATIVE"] == "0"
    assert "off" in native.state()
    shown = run_here("doctor").out
    assert re.search(r"native core\n  not used  \S+/core .*; NumPy makes the same pixels", shown)


def test_a_warning_that_is_an_error_is_raised_once(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then NumPy is used."""
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    with pytest.raises(RuntimeWarning):
        native.library()
    assert native.library() is None


def test_who_asked_for_numpy_gets_no_warning(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("RAWPACK_NATIVE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.library() is None
    assert native.state() == "off: RAWPACK_NATIVE=0"


def test_a_reader_warns_once(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And not its workers: where the transform resizes, and in no other reader."""
    images = [np.full((9, 7, 3), i, np.uint8) for i in range(8)]
    rawpack_packer.pack(images, tmp_path / "store", workers=0)
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(Reader(tmp_path / "store").batches(4, transform=[Lambda(np.array)], workers=2))
    store, recipes = Reader(tmp_path / "store"), ([Resize(5), CenterCrop(3)], [RandomResizedCrop(4)])
    with pytest.warns(RuntimeWarning, match="the native core is off: .* does not exist. NumPy") as caught:
        assert all(list(store.batches(4, transform=steps, workers=2)) for steps in recipes)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("options", "steps", "warns"),
    [
        ({"compression": "zstd"}, None, True),
        ({"compression": "zstd", "color": "ycgco420"}, None, True),
        ({"color": "ycgco420"}, None, True),
        ({"format": "lmdb"}, [CenterCrop(3)], True),
        ({"format": "lmdb"}, [RandomHorizontalFlip()], True),
        ({"format": "lmdb"}, None, False),
        ({"format": "hdf5", "compression": "gzip"}, [CenterCrop(3)], False),
        ({}, None, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [0, 1])
def test_a_reader_warns_before_it_starts_workers(
    fresh: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any], steps: Any, warns: bool, first: int
) -> None:
    """Wherever the core would take part in what they do, which of several stores it may be: they do not warn."""
    images = [np.full((9, 7, 3), i, np.uint8) for i in range(8)]
    stores = [tmp_path / "beside", tmp_path / "store"]
    rawpack_packer.pack(images, stores[0], workers=0, format="hdf5", compression="gzip", size="keep")
    rawpack_packer.pack(images, stores[1], workers=0, size="keep", **options)
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    batches = Reader([stores[first], stores[1 - first]]).batches(4, transform=steps, workers=2)
    with (
        mock.patch("rawpack.workers.pool.WorkerPool", side_effect=InterruptedError),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        with pytest.raises(InterruptedError):
            next(iter(batches))
    assert ["the native core is off" in str(warning.message) for warning in caught] == [True] * warns


def test_workers_do_not_warn(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where the process that started them has not looked for the core."""
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    fresh.setenv("RAWPACK_NATIVE", environment()["RAWPACK_NATIVE"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.library() is None


@pytest.mark.skipif(not native.LIBRARY.exists(), reason="there is no library")
def test_the_library_is_loaded_once_and_changes_nothing(fresh: pytest.MonkeyPatch) -> None:
    """Doctor and `stats()` name what it uses of the machine."""
    core = native.library()
    assert core is not None
    assert core is native.library()
    assert core.rawpack_version() == native.VERSION
    assert native.state() in ("portable C", "AVX2", "NEON")
    assert environment()["RAWPACK_NATIVE"] != "0"
    assert f"native core\n  used  {native.state()}\n" in run_here("doctor").out


def test_imports_load_no_library() -> None:
    """It waits for its first use, which most programs never come to."""
    code = "import rawpack; from rawpack import Reader, native\nprint(native.library.cache_info().currsize)"
    paths = os.pathsep.join((str(Path(native.__file__).parents[2]), *sys.path))
    assert python(ROOT, code, PYTHONPATH=paths).stdout == "0\n"
