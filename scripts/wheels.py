#!/usr/bin/env python3
"""The wheels of a release: one with the native core for each platform, and a pure one for all others.

scripts/wheels.py compilers         for which platforms this machine can compile, and by what: PLATFORM COMPILER
scripts/wheels.py others [FOLDER]   the files in FOLDER for all other platforms; fails where there is none for one
scripts/wheels.py check FOLDER      fails for a wheel with a wrong name, with other files than the pure one, or with
                                    a native core that was not compiled from this checkout for its platform
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import platform
import runpy
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLATFORMS = (
    "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
    "manylinux_2_17_aarch64.musllinux_1_1_aarch64",
    "macosx_11_0_arm64",
    "macosx_11_0_x86_64",
)
"""In the names of wheels. One file serves glibc and musl: see `reader/native/build.py`."""
PURE = "any"
_ELF, _MACH_O = b"\x7fELF\2\1", b"\xcf\xfa\xed\xfe"
_HEADERS = {
    ("linux", "x86_64"): (_ELF, 18, b"\x3e\0"),
    ("linux", "aarch64"): (_ELF, 18, b"\xb7\0"),
    ("darwin", "arm64"): (_MACH_O, 4, b"\x0c\0\0\1"),
    ("darwin", "x86_64"): (_MACH_O, 4, b"\x07\0\0\1"),
}
"""System and machine -> how a library begins, and what is where its machine is named."""
_BUILD = runpy.run_path(str(ROOT / "reader" / "native" / "build.py"))
_NATIVE = runpy.run_path(str(ROOT / "reader" / "rawpack" / "native" / "__init__.py"))


def compilers() -> dict[str, str]:
    """The platforms that this machine can compile for -> by what."""
    own = os.environ.get("CC") or "cc"
    able = {}
    for name in PLATFORMS:
        system, machine = _BUILD["target"](name)
        if system != sys.platform:
            continue
        compiler = own if machine == platform.machine() else f"{machine}-linux-gnu-gcc"
        if system == "darwin":
            compiler = f"{own} -arch {machine}"
        if _compiles(compiler):
            able[name] = compiler
    return able


def _compiles(compiler: str) -> bool:
    """Whether it is there, with the headers of the C library."""
    command = [*shlex.split(compiler), "-fsyntax-only", "-x", "c", "-"]
    try:
        ran = subprocess.run(command, input=b"#include <stdlib.h>\n", capture_output=True, check=False)
    except OSError:
        return False
    return ran.returncode == 0


def file_name(name: str) -> str:
    """Of the wheel for a platform."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return f"rawpack-{version}-py3-none-{name}.whl"


def others(folder: Path | None) -> Iterator[tuple[str, Path | None]]:
    """Each platform that this machine cannot compile for, and its wheel in the folder, if it is there."""
    for name in PLATFORMS:
        if name not in compilers():
            wheel = folder / file_name(name) if folder else None
            yield name, wheel if wheel and wheel.is_file() else None


def problems(folder: Path) -> list[str]:
    """What is wrong with the wheels of a folder, which must have the pure one; some platforms may be missing."""
    wheels = {wheel.name: wheel for wheel in sorted(folder.glob("*.whl"))}
    known = {file_name(name): name for name in (*PLATFORMS, PURE)}
    unknown = sorted(wheels.keys() - known)
    wrong = [f"{name}: not the name of a wheel of this version, such as {file_name(PURE)}" for name in unknown]
    if file_name(PURE) not in wheels:
        return [*wrong, f"{folder}: no {file_name(PURE)}, which the others are compared with"]
    pure = _contents(wheels[file_name(PURE)])
    for file in sorted(wheels.keys() & known):
        try:
            wrong += [f"{file}: {what}" for what in _problems_of(_contents(wheels[file]), pure, known[file])]
        except (zipfile.BadZipFile, KeyError, OSError) as error:
            wrong.append(f"{file}: cannot be read: {error}")
    return wrong


def _contents(wheel: Path) -> dict[str, bytes]:
    """Each file in it, without the name of the .dist-info folder."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _problems_of(files: dict[str, bytes], pure: dict[str, bytes], name: str) -> Iterator[str]:
    info = next(path.partition("/")[0] for path in pure if ".dist-info/" in path)
    record, tags = f"{info}/RECORD", f"{info}/WHEEL"
    listed = {path: (digest, size) for path, digest, size in csv.reader(files[record].decode().splitlines())}
    actual = {path: _recorded(data) for path, data in files.items() if path != record}
    if listed != actual | {record: ("", "")}:
        yield "its RECORD is not that of its files"
    expected = {*(f"Tag: py3-none-{part}" for part in name.split(".")), f"Root-Is-Purelib: {str(name == PURE).lower()}"}
    written = {line for line in files[tags].decode().splitlines() if line.startswith(("Tag: ", "Root-"))}
    if written != expected:
        yield f"its file WHEEL has {sorted(written - expected)} instead of {sorted(expected - written)}"
    library = "rawpack/native/" + _NATIVE["library_name"](*_BUILD["target"](name)) if name != PURE else None
    differ = {path for path in files.keys() | pure.keys() if files.get(path) != pure.get(path)}
    differ -= {record, tags, library}
    if differ:
        yield f"{len(differ)} files are not those of {file_name(PURE)}, such as {min(differ)}"
    if library:
        yield from _problems_of_library(library, files.get(library), *_BUILD["target"](name))


def _recorded(data: bytes) -> tuple[str, str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}", str(len(data))


def _problems_of_library(path: str, data: bytes | None, system: str, machine: str) -> Iterator[str]:
    if data is None:
        yield f"no {path}"
        return
    start, offset, code = _HEADERS[system, machine]
    if not data.startswith(start) or data[offset : offset + len(code)] != code:
        yield f"{path} is not compiled for {system} on {machine}"
    if f"{_BUILD['sources'](system)} ".encode() not in data:
        yield f"{path} is not compiled from the C and with the flags of this checkout"
    if system == "linux" and any(word in data for word in (b"GLIBC_", b"libc.so", b"ld-linux", b"ld-musl")):
        yield f"{path} is linked with a C library, and does not serve both glibc and musl"


def main() -> None:
    match sys.argv[1:]:
        case ["compilers"]:
            for name, compiler in compilers().items():
                print(name, compiler)
        case ["others", *folders] if len(folders) < 2:
            wheels = dict(others(Path(folders[0]) if folders else None))
            print("".join(f"{wheel}\n" for wheel in wheels.values() if wheel), end="")
            if missing := [name for name, wheel in wheels.items() if wheel is None]:
                sys.exit(f"no wheel for {', '.join(missing)}: take those that .github/workflows/wheels.yml built")
        case ["check", folder]:
            wrong = problems(Path(folder))
            print("".join(f"{line}\n" for line in wrong), end="", file=sys.stderr)
            sys.exit(int(bool(wrong)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
