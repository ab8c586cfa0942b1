"""The bare limit of packing videos: processes that decode frames by PyAV, scale them, and write nothing."""

from __future__ import annotations

import multiprocessing
import time

import numpy as np

import videos
from contract import Epoch, Pixels
from subjects.bare_pack import BarePack, encode


class BareFrames(BarePack):
    """`BarePack` for videos: each process does every n-th one; their start is part of the time. Frames go nowhere:
    writing and syncing them is left out, as are the checks that a file has not changed and that no frame is damaged.
    """

    needs: tuple[str, ...] = ("av", "cv2")

    def epoch(self, n: int) -> Epoch:
        settings, of = self._settings, self._settings.workers or 1
        began = time.perf_counter()
        files = [str(path) for path in videos.files_of(settings)]
        context = multiprocessing.get_context("spawn")
        with context.Pool(of) as pool:
            counts = pool.starmap(decode, [(files[k::of], settings.shape[:2], self._jpeg) for k in range(of)])
        return Epoch(sum(counts), time.perf_counter() - began)


def decode(files: list[str], size: tuple[int, int], jpeg: bool) -> int:
    """Decode every frame of these files to RGB of that size (height, width). Returns their number."""
    import av
    import cv2

    cv2.setNumThreads(1)
    count = 0
    for file in files:
        with av.open(file) as container:
            stream = container.streams.best("video")
            assert isinstance(stream, av.VideoStream)
            stream.codec_context.thread_count = 1
            for frame in container.decode(stream):
                image = scaled(frame.to_ndarray(format="rgb24"), size)
                count += len(encode(image) if jpeg else image) > 0
    return count


def scaled(image: Pixels, size: tuple[int, int]) -> Pixels:
    """The image scaled by areas to cover `size` (height, width), its centre cut out."""
    import cv2

    covering = videos.covering(image.shape[1], image.shape[0], size)
    resized: Pixels = np.asarray(cv2.resize(image, covering, interpolation=cv2.INTER_AREA), np.uint8)
    return videos.centre(resized, size)
