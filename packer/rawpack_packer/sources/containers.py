"""Names of a folder that holds all images, rather than those of a class."""

from __future__ import annotations

from collections.abc import Iterable

_CONTAINERS = frozenset({"images", "image", "imgs", "img", "jpegimages", "data", "photos", "pictures", "files"})


def is_container(name: str) -> bool:
    """Whether a folder of this name may hold all images."""
    return name.lower() in _CONTAINERS


def only_container(filled: Iterable[str]) -> str:
    """The folder that holds all images, by its name; "" where there are several, or the only one may be a class.

    filled: the first-level folders that hold images.
    """
    names = [*filled]
    return names[0] if len(names) == 1 and is_container(names[0]) else ""
