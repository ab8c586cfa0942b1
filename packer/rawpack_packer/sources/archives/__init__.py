"""Archives as sources, read without being unpacked: `files.py` says which, `spans.py` where their members are."""

from __future__ import annotations
