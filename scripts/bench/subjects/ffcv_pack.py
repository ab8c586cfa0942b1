"""Packing by FFCV's writer: the bare loop's calls for each image, FFCV's own encoder and file."""

from __future__ import annotations

import time
from pathlib import Path

from contract import Epoch, Settings
from subjects import ffcv_files
from subjects.bare_pack import bring


class FfcvPack:
    """`DatasetWriter.from_indexed_dataset`, listing of the source and start of the workers included."""

    needs: tuple[str, ...] = (*ffcv_files.NEEDS, "cv2", "simplejpeg")

    def __init__(self, *, jpeg: bool) -> None:
        self._jpeg = jpeg

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        import cv2
        import ffcv.fields
        import ffcv.writer  # noqa: F401

        self._settings = settings
        # Its workers are forks of this process.
        cv2.setNumThreads(1)

    def epoch(self, n: int) -> Epoch:
        output = self._settings.folder / "packing.beton"
        output.unlink(missing_ok=True)
        began = time.perf_counter()
        files = sorted(str(path) for path in Path(self._settings.images).rglob("*.jpg"))
        size = self._settings.shape[:2]
        images = ffcv_files.Images(len(files), lambda row: bring(files[row], size))
        ffcv_files.write(output, images, jpeg=self._jpeg, workers=self._settings.workers or 1)
        took = time.perf_counter() - began
        output.unlink()
        return Epoch(len(files), took)
