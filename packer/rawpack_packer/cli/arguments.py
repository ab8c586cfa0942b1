"""What several sub-commands ask of their arguments."""

from __future__ import annotations

from pathlib import Path

from rawpack.errors import UsageError


def output_file(path: str) -> Path:
    """A file to be written that a user named. Raises UsageError where it cannot be one."""
    file = Path(path)
    if file.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {file.parent}")
    return file


def report_file(option: str, path: str) -> Path:
    """Where a report is to be written by `--html` or `--png`. Raises MissingExtraError where it cannot be drawn, and as
    `output_file`: before minutes of work go by."""
    from rawpack_packer.report import need_report

    need_report(option)
    return output_file(path)
