"""Packing by litdata's `optimize`: the bare loop's calls for each image, litdata's own chunks."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from contract import Epoch, Settings
from subjects.bare_pack import bring, encode

_FOLDERS = ("DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER")


class LitdataPack:
    """`optimize` in chunks of 64 MB, listing of the source and start of the workers included."""

    needs: tuple[str, ...] = ("litdata", "cv2", "simplejpeg")

    def __init__(self, *, jpeg: bool) -> None:
        self._jpeg = jpeg

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        # It removes whatever lies in these folders; without the variables, that is $TMPDIR/data and $TMPDIR/chunks.
        for name in _FOLDERS:
            os.environ[name] = str(settings.folder / f"litdata-{name.split('_')[2].lower()}")
        import litdata  # noqa: F401

        self._settings = settings

    def epoch(self, n: int) -> Epoch:
        import litdata
        from litdata.processing import data_processor

        for folder in (data_processor._get_cache_dir(), data_processor._get_cache_data_dir()):
            if not Path(folder).is_relative_to(self._settings.folder):
                raise RuntimeError(f"litdata would remove {folder}")
        output = self._settings.folder / "packing.litdata"
        shutil.rmtree(output, ignore_errors=True)
        began = time.perf_counter()
        files = sorted(str(path) for path in Path(self._settings.images).rglob("*.jpg"))
        litdata.optimize(
            fn=partial(sample, size=self._settings.shape[:2], jpeg=self._jpeg),
            inputs=list(enumerate(files)),
            output_dir=str(output),
            chunk_bytes="64MB",
            num_workers=self._settings.workers or 1,
            verbose=False,
        )
        took = time.perf_counter() - began
        written = sum(path.stat().st_size for path in output.iterdir())
        shutil.rmtree(output)
        if written < len(files) * 1000:
            raise RuntimeError(f"litdata wrote only {written} bytes")
        return Epoch(len(files), took)


def sample(numbered: tuple[int, str], *, size: tuple[int, int], jpeg: bool) -> dict[str, Any]:
    """What litdata stores of a file. Called in its workers."""
    import cv2

    cv2.setNumThreads(1)
    row, file = numbered
    image = bring(file, size)
    return {"image": encode(image).tobytes() if jpeg else image, "label": row % 1000}
