"""Packing by FFCV's writer: the bare loop's calls for each image, FFCV's own encoder and file."""

from __future__ import annotations

import time
from pathlib import Path

from contract import Epoch, Pixels, Settings
from subjects.bare_pack import bring


class FfcvPack:
    """`DatasetWriter.from_indexed_dataset`, listing of the source and start of the workers included."""

    needs: tuple[str, ...] = ("torch", "ffcv", "cv2", "simplejpeg")

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
        from ffcv.fields import IntField, RGBImageField
        from ffcv.writer import DatasetWriter

        output = self._settings.folder / "packing.beton"
        output.unlink(missing_ok=True)
        began = time.perf_counter()
        files = sorted(str(path) for path in Path(self._settings.images).rglob("*.jpg"))
        image = RGBImageField(write_mode="jpg", jpeg_quality=90) if self._jpeg else RGBImageField(write_mode="raw")
        fields = {"image": image, "label": IntField()}
        writer = DatasetWriter(str(output), fields, num_workers=self._settings.workers or 1)
        writer.from_indexed_dataset(Images(files, self._settings.shape[:2]))
        took = time.perf_counter() - began
        output.unlink()
        return Epoch(len(files), took)


class Images:
    """Pairs of image and label, as the writer wants them."""

    def __init__(self, files: list[str], size: tuple[int, int]) -> None:
        self._files, self._size = files, size

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, row: int) -> tuple[Pixels, int]:
        return bring(self._files[row], self._size), row % 1000
