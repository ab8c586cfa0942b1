"""Archives in memory, by Python's own modules, and a pickle for them that must not be read."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def tar(members: Mapping[str, bytes | str]) -> bytes:
    """A tar archive of these members, in their order."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            content = data.encode() if isinstance(data, str) else data
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def zipped(members: Mapping[str, bytes | str], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive of these members, in their order."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


class MakesAFolder:
    """Its pickle makes a folder when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)
