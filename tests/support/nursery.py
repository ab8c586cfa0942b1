"""What the nursery of child processes loads: see `kept_children`. It starts no thread, or it could not fork."""

from __future__ import annotations


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
