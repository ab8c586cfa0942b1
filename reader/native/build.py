"""Compiles the native core: for wheels as a hook of hatchling, for the checkout as a script.

    python reader/native/build.py

The script writes the library beside `reader/rawpack/native/__init__.py`, as an editable installation does, and only
where the C, the flags or the compiler's name have changed. For a wheel it is compiled in a temporary folder.
Environment variables:

    RAWPACK_NATIVE_BUILD      auto: without a compiler that works, a warning and a pure wheel; always: an error; never
    RAWPACK_NATIVE_PLATFORM   the platform in the wheel's name, such as manylinux_2_17_x86_64, not this machine's.
                              Several of one system and one machine are separated by dots
    CC                        the compiler, `cc` where it is not set: gcc or clang, or a cross compiler for the platform
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    Hook = BuildHookInterface[Any]
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface as Hook
    except ImportError:  # the script needs none
        Hook = object

FOLDER = Path(__file__).resolve().parent
PACKAGE = FOLDER.parent / "rawpack" / "native"
FLAGS = (
    *("-std=c11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden"),
    "-ffp-contract=off",  # the same bits on all machines
    "-g0",  # the same bytes wherever it is built
)
"""CFLAGS of the environment are not used: some, such as -ffast-math, would change pixels."""
SYSTEM_FLAGS = {
    "darwin": ("-mmacosx-version-min=11.0",),
    "linux": ("-s", "-nostdlib", "-lgcc", "-fno-stack-protector", "-U_FORTIFY_SOURCE"),
}
"""By `sys.platform`. For Linux, no C library is linked, whatever a distribution's compiler adds by default: functions
such as memcpy are those of the process that loads the core, so one file serves glibc of any version, and musl."""
_PLATFORM = re.compile(r"(macosx|linux|manylinux|musllinux)(?:2014|_\d+_\d+)?_(\w+)")


class NotBuiltError(Exception):
    """The library cannot be built; its text says why."""


def compile_to(library: Path, system: str = sys.platform) -> None:
    """Compile all of FOLDER. system: as `sys.platform` is where the library is used. Raises NotBuiltError."""
    if system == "win32":
        raise NotBuiltError("it is not built on Windows")
    command = [
        *_compiler(),
        f"-ffile-prefix-map={FOLDER}=.",
        # The linker's default is the path of a temporary folder.
        *([f"-Wl,-install_name,@rpath/{library.name}"] if system == "darwin" else []),
        *("-o", str(library)),
        *(path.name for path in _files(".c")),
        *("-x", "c", "-"),
        *_flags(system),  # libraries come after what needs them
    ]
    stamp = json.dumps(_stamp(system))
    source = f'__attribute__((visibility("default"))) const char rawpack_sources[] = {stamp};\n'
    try:
        subprocess.run(command, input=source, cwd=FOLDER, check=True, capture_output=True, text=True)
    except OSError as error:
        raise NotBuiltError(f"the compiler cannot be started: {error}") from error
    except subprocess.CalledProcessError as error:
        raise NotBuiltError(f"the compiler failed: {shlex.join(command)}\n{error.stderr.strip()}") from error


def sources(system: str = sys.platform) -> str:
    """A digest of the C and the flags, which a library has inside."""
    digest = hashlib.sha256(" ".join(_flags(system)).encode())
    for path in (*_files(".c"), *_files(".h")):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _stamp(system: str) -> str:
    return f"{sources(system)} {shlex.join(_compiler())}"


def _flags(system: str) -> tuple[str, ...]:
    return (*FLAGS, *SYSTEM_FLAGS.get(system, ()))


def target(platform: str) -> tuple[str, str]:
    """`sys.platform` and the machine that the platform in a wheel's name is for. Raises ValueError."""
    matches = [_PLATFORM.fullmatch(part) for part in platform.split(".")]
    targets = {("darwin" if match[1] == "macosx" else "linux", match[2]) for match in matches if match}
    if None in matches or len(targets) != 1:
        raise ValueError(f"{platform} must name platforms of one system and machine, such as manylinux_2_17_x86_64")
    return targets.pop()


def build_in_place() -> Path | None:
    """Compile for the checkout. Returns the library if it was compiled, None if it is up to date. Raises
    NotBuiltError."""
    library: Path = _package()["LIBRARY"]
    if _is_current(library):
        return None
    try:
        # Compiled in the same folder and then renamed: a process that loads it meanwhile gets a complete file.
        with TemporaryDirectory(prefix="_core-", dir=PACKAGE) as folder:
            compile_to(Path(folder) / library.name)
            os.replace(Path(folder) / library.name, library)  # noqa: PTH105
    except OSError as error:
        raise NotBuiltError(f"it cannot be written: {error}") from error
    return library


def _is_current(library: Path) -> bool:
    """Whether the library is of the sources as they are now, and can be loaded here."""
    try:
        if _stamp(sys.platform).encode() not in library.read_bytes():
            return False
        return bool(ctypes.CDLL(str(library)).rawpack_version() == _package()["VERSION"])
    except (OSError, AttributeError):
        return False


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or "cc")


def _files(suffix: str) -> list[Path]:
    return sorted(FOLDER.glob(f"*{suffix}"))


def _package() -> dict[str, Any]:
    """The names in `rawpack.native`, which may not be importable yet."""
    return runpy.run_path(str(PACKAGE / "__init__.py"))


def own_platform() -> str:
    """This machine's, as a wheel's name has it."""
    own = f"macosx-11.0-{platform.machine()}" if sys.platform == "darwin" else sysconfig.get_platform()
    return re.sub("[-.]", "_", own)


def _wish() -> str:
    wish = os.environ.get("RAWPACK_NATIVE_BUILD") or "auto"
    if wish not in ("auto", "always", "never"):
        raise ValueError(f"RAWPACK_NATIVE_BUILD={wish} must be auto, always or never")
    return wish


class NativeCoreHook(Hook):
    """Adds the library to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        wish = _wish()
        if wish == "never":
            return
        try:
            if version == "editable":
                build_in_place()
            else:
                self._add_to(build_data)
        except NotBuiltError as error:
            if wish == "always":
                raise
            self.app.display_warning(f"rawpack is installed without its native core, and is slower: {error}")

    def _add_to(self, build_data: dict[str, Any]) -> None:
        self._folder = TemporaryDirectory(prefix="rawpack-native-")
        package = _package()
        library, system = Path(self._folder.name) / package["LIBRARY"].name, sys.platform
        if wanted := os.environ.get("RAWPACK_NATIVE_PLATFORM"):
            system, machine = target(wanted)
            library = library.with_name(package["library_name"](system, machine))
        compile_to(library, system)
        build_data["force_include"][str(library)] = f"rawpack/native/{library.name}"
        build_data["pure_python"] = False
        # One for all Pythons, as no Python is called.
        build_data["tag"] = f"py3-none-{wanted or own_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def main() -> None:
    wish = _wish()
    if wish == "never":
        return
    try:
        if (library := build_in_place()) is not None:
            print(f"compiled {library.relative_to(FOLDER.parents[1])}")
    except NotBuiltError as error:
        if wish == "always":
            sys.exit(f"build.py: no native core: {error}")
        print(f"no native core, NumPy is used instead: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
