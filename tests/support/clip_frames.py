"""A store of video for the tests of clips: made frames of several videos, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from running import FORMATS

import rawpack_packer

HEIGHT, WIDTH = 12, 16


class Frames:
    """A dataset of the frames of videos, as a source of video gives them; deterministic in (video, frame)."""

    classes = ("walk", "run", "jump")

    def __init__(
        self,
        frames: Sequence[Sequence[int]],
        *,
        bad: Sequence[tuple[int, int]] = (),
        fps: float = 25,
        small: bool = False,
    ) -> None:
        """frames: of each video the numbers of its frames. bad: (video, frame) for which it raises. small: numbers and
        tiny images alone."""
        self.places = [(video, frame) for video, numbers in enumerate(frames) for frame in numbers]
        self.bad, self.fps, self.small = set(bad), fps, small

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> dict[str, Any]:
        video, frame = place = self.places[i]
        if place in self.bad:
            raise OSError("this frame is damaged")
        sample: dict[str, Any] = {
            "video": video, "frame": frame, "pts_seconds": frame / self.fps, "label": video % 3,
        }  # fmt: skip
        if self.small:
            return {"image": np.array([[video % 256, frame % 256]], np.uint8)} | sample
        mask = np.arange(HEIGHT * WIDTH, dtype=np.uint8).reshape(HEIGHT, WIDTH)
        return sample | {
            "image": image_of(video, frame),
            "mask": (mask + frame).astype(np.uint8),
            "motion": np.float32(video + frame / 100),
            "caption": f"{video}/{frame}",
            "boxes": np.full((frame % 4, 4), frame, np.float32),
        }


FIELDS = {"mask": "mask", "boxes": "float32[?,4]"}


def image_of(video: int, frame: int) -> NDArray[np.uint8]:
    """The pixels of a frame: smooth, so that JPEG keeps them about as they are."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    planes = (20 * video + 3 * y, 5 * frame + 2 * x, 7 * video + 3 * frame + y + x)
    return np.stack(planes, axis=2).astype(np.uint8)


def pack_frames(frames: Frames, destination: Path, layout: str = "memmap", **options: Any) -> Path:
    """A store of frames, of several small shards; `options` beside those of the layout."""
    words = iter(FORMATS[layout])
    of_layout = {option.removeprefix("--"): value for option, value in zip(words, words, strict=True)}
    if "chunk" in of_layout:
        of_layout["chunk"] = int(of_layout["chunk"])  # type: ignore[assignment]
    fields = None if frames.small else FIELDS
    rawpack_packer.pack(frames, destination, workers=0, shard_size=1, fields=fields, **of_layout, **options)
    return destination
