"""Random clips: by rawpack's reader over a store of the frames, and decoded anew from their video files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

import videos
from contract import Epoch, Pixels, Settings, Subject, consume
from measuring.counters import total_bytes
from rawpack import Workers
from subjects.team import WorkerSet

Decode = Callable[[videos.Clip, tuple[int, int]], Pixels]
"""A clip's frames (n, height, width, 3) of a size (height, width)."""


class Clips(Subject):
    """`Reader.clips(per_video=...).batches` as a user calls it: shuffled, all fields but text."""

    needs: tuple[str, ...] = ("av",)

    def __init__(self, form: str) -> None:
        self._form = form

    def prepare(self, settings: Settings) -> None:
        videos.make_store(settings, self._form)

    def open(self, settings: Settings) -> None:
        self.settings = settings
        self._batches = videos.clips_of(settings, self._form).batches(
            settings.batch, shuffle=True, seed=videos.SEED, workers=Workers(settings.workers, backend=settings.backend)
        )
        self._bytes = total_bytes(videos.store_path(settings, self._form))

    def epoch(self, n: int) -> Epoch:
        self._batches.set_epoch(n)
        frames = (batch["image"].reshape(-1, *batch["image"].shape[2:]) for batch in self._batches)
        return replace(consume(frames, self.settings.consumer), disk_bytes=self._bytes)


class DecodedClips(Subject):
    """A team of processes, each at its share of the clips, with one decoding thread each."""

    def __init__(self, decode: Decode, needs: tuple[str, ...]) -> None:
        self._decode, self.needs = decode, needs

    def prepare(self, settings: Settings) -> None:
        videos.make_store(settings, "memmap")
        _check(self._decode, settings)

    def open(self, settings: Settings) -> None:
        self.settings = settings
        self._bytes = sum(path.stat().st_size for path in videos.files_of(settings))
        self._team = WorkerSet(settings.workers or 1, work, self._decode, settings)

    def epoch(self, n: int) -> Epoch:
        return replace(self._team.run(self.settings.seconds), disk_bytes=self._bytes)


def work(number: int, of: int, decode: Decode, settings: Settings) -> Iterator[int]:
    """Every `of`-th clip: see `Share`."""
    clips = videos.random_clips(settings)
    yield 0
    while True:
        for k in range(of):
            clip = next(clips)
            if k == number:
                yield len(decode(clip, settings.shape[:2]))


def by_pyav(clip: videos.Clip, size: tuple[int, int]) -> Pixels:
    """From the key frame before the first of them on; only those that are wanted are converted and scaled."""
    container, stream = _opened_by_pyav(clip.file)
    container.seek(round(clip.seconds[0] / stream.time_base), stream=stream)
    found, half = list[Pixels](), float(stream.time_base) / 2
    for frame in container.decode(stream):
        if frame.time > clip.seconds[len(found)] - half:
            found.append(videos.fitted(frame, size))
            if len(found) == len(clip.seconds):
                break
    return np.stack(found)


def by_torchcodec(clip: videos.Clip, size: tuple[int, int]) -> Pixels:
    """`get_frames_at`, with the key frames from the container's index; then scaled as OpenCV does it fastest."""
    frames = _opened_by_torchcodec(clip.file).get_frames_at(clip.frames).data.numpy()
    return _scaled(frames, size)


def by_decord(clip: videos.Clip, size: tuple[int, int]) -> Pixels:
    """`get_batch` of decord, or of one of the distributions that continue it."""
    return _scaled(_opened_by_decord(clip.file).get_batch(clip.frames).asnumpy(), size)


_opened = lru_cache(maxsize=64)
"""Each process keeps the videos that it used last open, as a careful user does."""


@_opened
def _opened_by_pyav(file: str) -> Any:
    import av

    container = av.open(file)
    stream = container.streams.best("video")
    stream.codec_context.thread_count = 1
    return container, stream


@_opened
def _opened_by_torchcodec(file: str) -> Any:
    import torch
    from torchcodec.decoders import VideoDecoder

    torch.set_num_threads(1)
    return VideoDecoder(file, dimension_order="NHWC", num_ffmpeg_threads=1, seek_mode="approximate")


@_opened
def _opened_by_decord(file: str) -> Any:
    import decord

    return decord.VideoReader(file, num_threads=1)


def _scaled(frames: Pixels, size: tuple[int, int]) -> Pixels:
    if frames.shape[1:3] == size:
        return frames
    import cv2

    width, height = videos.covering(frames.shape[2], frames.shape[1], size)
    return np.stack([videos.centre(cv2.resize(frame, (width, height)), size) for frame in frames])


def _check(decode: Decode, settings: Settings) -> None:
    """The decoded clips are those in the store, but for how they are scaled."""
    batch = next(iter(videos.clips_of(settings, "memmap").batches(settings.batch, shuffle=True, seed=videos.SEED)))
    for stored, clip in zip(batch["image"], videos.random_clips(settings), strict=False):
        found = decode(clip, settings.shape[:2])
        apart = np.abs(found.astype(int) - stored).mean()
        if found.shape != stored.shape or apart > 8:
            raise ValueError(f"{clip.file}: {decode.__name__} gives {found.shape}, {apart:.1f} levels from the store's")
