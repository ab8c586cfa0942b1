"""What the processes load that others are forked from: see `kept_children`. They start no thread, or they could not
fork."""

from __future__ import annotations

import pkgutil


def load() -> None:
    """Runs in the nursery."""
    import av  # noqa: F401
    import cv2  # noqa: F401
    import h5py  # noqa: F401
    import lmdb  # noqa: F401

    import rawpack_packer.api
    import rawpack_packer.engines.local
    import rawpack_packer.inspect.verify
    import rawpack_packer.isolated
    import rawpack_packer.sources.video.scan  # noqa: F401


def load_readers() -> None:
    """Runs in templates: all that the workers of any reader use."""
    from rawpack import transforms
    from rawpack.disk.tables import CODECS, FORMATS
    from rawpack.workers import worker

    steps = [module.name for module in pkgutil.walk_packages(transforms.__path__, "rawpack.transforms.")]
    worker._load(tuple({row.open for row in (*FORMATS.values(), *CODECS.values())}), True, steps)
