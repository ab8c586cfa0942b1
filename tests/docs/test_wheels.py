"""The wheels of a release: one for each platform and a pure one, with names that pip takes and the right contents."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import wheels

from rawpack import native

ROOT = Path(__file__).resolve().parents[2]
INFO = wheels.file_name("any").split("-py3-")[0] + ".dist-info"
FILES = {
    "rawpack/__init__.py": b"import sys\n",
    "rawpack/native/calls.py": b"\n",
    f"{INFO}/METADATA": b"Name: rawpack\n",
}
LINUX, ARM, MAC, INTEL_MAC = wheels.PLATFORMS
MACHINES = {
    LINUX: ("linux", "x86_64.so", struct.pack("<4sBB12xH", b"\x7fELF", 2, 1, 62)),
    ARM: ("linux", "aarch64.so", struct.pack("<4sBB12xH", b"\x7fELF", 2, 1, 183)),
    MAC: ("darwin", "arm64.dylib", struct.pack("<II", 0xFEEDFACF, 0x0100000C)),
    INTEL_MAC: ("darwin", "x86_64.dylib", struct.pack("<II", 0xFEEDFACF, 0x01000007)),
}
"""System, how the library's name ends, and how it begins, as the ELF and Mach-O formats define it."""


def library(platform: str) -> bytes:
    """A header and the digest of the sources."""
    system, _, header = MACHINES[platform]
    return header + wheels._BUILD["sources"](system).encode() + b" cc\0"


def files_for(platform: str) -> dict[str, bytes]:
    pure = platform == "any"
    tags = "".join(f"Tag: py3-none-{part}\n" for part in platform.split("."))
    written = FILES | {f"{INFO}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: {str(pure).lower()}\n{tags}".encode()}
    if not pure:
        system, suffix, _ = MACHINES[platform]
        written[f"rawpack/native/_core-{native.VERSION}-{system}-{suffix}"] = library(platform)
    return written


def write(wheel: Path, files: dict[str, bytes]) -> None:
    """With the RECORD that its files need."""
    lines = ""
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            lines += f"{name},sha256={digest},{len(data)}\n"
        archive.writestr(f"{INFO}/RECORD", f"{lines}{INFO}/RECORD,,\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All wheels of a release, without most of the Python and C."""
    for platform in (*wheels.PLATFORMS, wheels.PURE):
        write(tmp_path / wheels.file_name(platform), files_for(platform))
    (tmp_path / "rawpack-0.tar.gz").touch()
    return tmp_path


def test_a_folder_of_all_wheels_is_right(folder: Path) -> None:
    """Also where some platforms are missing."""
    assert wheels.problems(folder) == []
    (folder / wheels.file_name(MAC)).unlink()
    assert wheels.problems(folder) == []


Change = Callable[[dict[str, bytes]], dict[str, bytes]]


def changed(platform: str, change: Change) -> Callable[[Path], None]:
    """A wheel of other files."""
    return lambda folder: write(folder / wheels.file_name(platform), change(files_for(platform)))


def of(name: str, change: Callable[[bytes], bytes]) -> Change:
    """The file, the only one with this in its name, is another."""
    return lambda files: {path: change(data) if name in path else data for path, data in files.items()}


def recorded_otherwise(folder: Path) -> None:
    with zipfile.ZipFile(folder / wheels.file_name(ARM), "a") as archive:
        archive.writestr("rawpack/more.py", "")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda folder: (folder / wheels.file_name(LINUX)).rename(folder / f"rawpack-0.0.9-py3-none-{LINUX}.whl"),
         "rawpack-0.0.9-.*: not the name of a wheel of this version"),
        (lambda folder: write(folder / wheels.file_name("linux_x86_64"), files_for(LINUX)),
         "none-linux_x86_64.whl: not the name of a wheel"),
        (lambda folder: (folder / wheels.file_name("any")).unlink(), "which the others are compared with"),
        (lambda folder: os.truncate(folder / wheels.file_name(ARM), 300), "aarch64.whl: cannot be read: "),
        (changed(ARM, of("calls.py", lambda data: data + b"\n")), "1 files are .*, such as rawpack/native/calls.py"),
        (changed(ARM, of("WHEEL", lambda data: data.replace(b"1_1", b"1_2"))), "WHEEL has .*1_2.* instead of .*1_1"),
        (changed(ARM, of("_core", lambda _: library(LINUX))), "is not compiled for linux on aarch64"),
        (changed(MAC, of("_core", lambda data: data[:40] + b"0" * 64)), "not compiled from the C and with the flags"),
        (changed(LINUX, of("_core", lambda data: data + b"libc.so.6\0GLIBC_2.14")), "is linked with a C library"),
        (changed(MAC, lambda files: {name: data for name, data in files.items() if "_core" not in name}),
         f"no rawpack/native/_core-{native.VERSION}-darwin-arm64.dylib"),
        (changed("any", lambda files: files_for(MAC) | files), "such as rawpack/native/_core-.*-darwin-arm64"),
        (recorded_otherwise, "its RECORD is not that of its files"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_wheel_is_named(spoil: Callable[[Path], None], why: str, folder: Path) -> None:
    spoil(folder)
    assert any(re.search(why, line) for line in wheels.problems(folder)), wheels.problems(folder)


def test_the_names_are_those_that_pip_takes() -> None:
    """Of Linux with glibc and with musl, and of macOS, as pip's own rules read them."""
    utils, tags = (pytest.importorskip(f"packaging.{name}", reason="packaging") for name in ("utils", "tags"))
    known = {str(tag) for name in wheels.PLATFORMS for tag in utils.parse_wheel_filename(wheels.file_name(name))[3]}
    assert known & {str(tag) for tag in tags.compatible_tags((3, 11), "cp311", tags.mac_platforms((14, 0), "arm64"))}
    assert known & {str(tag) for tag in tags.compatible_tags((3, 11), "cp311", tags.mac_platforms((14, 0), "x86_64"))}
    for machine in ("x86_64", "aarch64"):
        assert {f"py3-none-manylinux_2_17_{machine}", f"py3-none-musllinux_1_1_{machine}"} <= known
