"""The native core is compiled into wheels and into the checkout, or not, and loaded, or not: nobody is left without
pixels, and nobody gets a library that was not compiled for this."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from compiling import NATIVE, STRICT, STUB, compiles, driver, python
from folders import files_of

from rawpack import native

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"


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
@pytest.mark.skipif(sys.platform != "linux", reason="names Linux")
def test_the_platform_in_the_name_can_be_chosen(checkout: Path, tmp_path: Path) -> None:
    """Package indexes take manylinux and musllinux, and not linux. The library has the name that the machine looks
    for, whatever the machine that it was compiled on; platforms of several are refused."""
    wheel = built(checkout, tmp_path, RAWPACK_NATIVE_PLATFORM="manylinux_2_17_riscv64.musllinux_1_1_riscv64")
    assert wheel.name.endswith("-py3-none-manylinux_2_17_riscv64.musllinux_1_1_riscv64.whl")
    assert libraries(wheel) == [f"rawpack/native/{native.library_name('linux', 'riscv64')}"]
    (metadata,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/WHEEL"))
    tags = re.findall("^Tag: (.*)$", zipfile.ZipFile(wheel).read(metadata).decode(), re.MULTILINE)
    assert tags == ["py3-none-manylinux_2_17_riscv64", "py3-none-musllinux_1_1_riscv64"]
    for platform in ("manylinux_2_17_x86_64.musllinux_1_1_aarch64", "macosx_11_0_x86_64.linux_x86_64", "win_amd64", ""):
        with pytest.raises(ValueError, match=r" must name platforms of one system and machine, such as "):
            loaded(ROOT).target(platform)


def test_without_a_compiler_a_wheel_is_pure_and_works(checkout: Path, tmp_path: Path) -> None:
    """The build says so; so does the first use, once. Whatever editable installations have left there is not in it."""
    library_of(checkout).write_bytes(b"\x7fELF")
    library_of(checkout).with_name("_core-0-linux-other.so").write_bytes(b"\x7fELF")
    (checkout / ".gitignore").unlink()
    ran = hatchling(checkout, tmp_path / "out", CC="/nowhere/cc")
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


@compiles
def test_an_editable_installation_has_the_library_in_the_checkout(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a name that git ignores; compiled again where the C or the flags have changed or it cannot be loaded, and only
    there."""
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
    library_of(checkout).write_bytes(build.sources().encode())  # such as that of another machine by the same name
    assert build.build_in_place() == library_of(checkout)


def test_clang_has_nothing_to_say(tmp_path: Path) -> None:
    """Of the native core, also within what drives it in tests; nor has gcc, where other tests compile it."""
    driver(tmp_path, "clang", "-fsyntax-only", *STRICT, sources=[NATIVE / "color.c", *SUPPORT.glob("*_driver.c")])


def test_the_library_of_this_checkout_is_of_its_sources() -> None:
    """What the other tests test is what is written here."""
    build = loaded(ROOT)
    if native.LIBRARY.parent != build.PACKAGE or not native.LIBRARY.exists():
        pytest.skip("there is no library in this checkout")
    assert build.sources().encode() in native.LIBRARY.read_bytes(), "run: python reader/native/build.py"


@pytest.mark.skipif(sys.platform != "linux" or not native.LIBRARY.exists(), reason="needs the library on Linux")
def test_the_library_is_linked_with_no_other() -> None:
    """So a wheel may be called both manylinux_2_17 and musllinux_1_1: functions of every C library, of no version."""
    data = native.LIBRARY.read_bytes()
    assert re.findall(rb"GLIBC_2[.\d]*|\blib[\w+-]+\.so[.\d]*", data) == []
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    listed = subprocess.run(["nm", "-D", "-u", native.LIBRARY], check=True, capture_output=True, text=True).stdout
    needed = {line.split()[-1] for line in listed.splitlines()}
    assert needed <= {"aligned_alloc", "calloc", "free", "malloc", "memchr", "memcmp", "memcpy", "memmove", "memset"}
