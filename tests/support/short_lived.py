"""What child processes run that end at once. It loads nothing, as a template may have trouble with what tests load."""

from __future__ import annotations

import os


def ends_at_once(*_: object) -> None:
    os._exit(0)
