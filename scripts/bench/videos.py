"""The videos that clips are read from, the stores packed of their frames, and which random clips are read."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import data
from contract import Pixels, Settings

PER_VIDEO = 8
SEED = 0
_FPS = 30
_SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm")


@dataclass(frozen=True)
class Made:
    """Videos to make: how many, their seconds, their size (height, width), and how many frames key frames are apart."""

    number: int
    seconds: float
    size: tuple[int, int]
    key_every: int = 60


def videos(work: Path, given: Path | None, made: Made) -> Path:
    """A folder of video files: `given`, or `made` ones."""
    if given is not None:
        return given.resolve()
    if importlib.util.find_spec("av") is None:
        raise SystemExit("videos are made by PyAV, which is not installed: pip install av, or name some by --videos")

    def draw(folder: Path) -> None:
        folder.mkdir()
        for number, photo in enumerate(data.image_files(data.photos(work, None, made.number))):
            _make_video(folder / f"{number:03d}.mp4", photo, made, number)

    name = f"videos-{made.number}-{made.seconds:g}-{made.size[0]}x{made.size[1]}-{made.key_every}"
    return data.once(work / name, draw)


def linked(work: Path, folder: Path, times: int) -> Path:
    """A folder with several links to each of these videos."""
    made = work / f"{folder.name}-times-{times}"
    made.mkdir(exist_ok=True)
    for path in folder.iterdir():
        for number in range(times):
            link = made / f"{path.stem}-{number}{path.suffix}"
            if not link.is_symlink():
                link.symlink_to(path)
    return made


def _make_video(path: Path, photo: Path, made: Made, seed: int) -> None:
    """H.264 as x264 makes it: a window that wanders over a photograph, with the noise of a sensor."""
    import av
    import cv2

    height, width = made.size
    image: Any = cv2.cvtColor(np.asarray(cv2.imread(str(photo))), cv2.COLOR_BGR2RGB)
    image = cv2.resize(image, (width + 160, height + 160), interpolation=cv2.INTER_AREA)
    random = np.random.default_rng(seed)
    phase = random.uniform(0, 2 * np.pi, 4)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=_FPS, options={"g": str(made.key_every), "threads": "1"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for t in range(int(made.seconds * _FPS)):
            y = 80 + 70 * np.sin(t / 40 + phase[0]) + 10 * np.sin(t / 7 + phase[1])
            x = 80 + 70 * np.sin(t / 50 + phase[2]) + 10 * np.sin(t / 9 + phase[3])
            window = image[int(y) : int(y) + height, int(x) : int(x) + width].astype(np.float32)
            noisy = (window + random.normal(0, 3, (height, width, 1))).clip(0, 255).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(noisy, format="rgb24")))
        container.mux(stream.encode())


def files_of(settings: Settings) -> list[Path]:
    """The video files, in the order of their numbers in the stores."""
    return sorted(path for path in Path(settings.images).iterdir() if path.suffix.lower() in _SUFFIXES)


def store_path(settings: Settings, form: str) -> Path:
    return settings.folder / f"{Path(settings.images).name}-frames-{settings.size}.{form}"


def make_store(settings: Settings, form: str) -> None:
    """Pack every frame of the videos, unless that was done."""
    path = store_path(settings, form)
    if not (path / "store.json").exists():
        import rawpack

        print(f"packing {path.name}", file=sys.stderr)
        rawpack.pack(settings.images, path, kind="video", format=form, size=settings.shape[:2])
        if short := rawpack.look(clips_of(settings, form)).left_out:
            print(f"{short} of the videos are too short for a clip", file=sys.stderr)


def fitted(frame: Any, size: tuple[int, int]) -> Pixels:
    """A frame of PyAV scaled by FFmpeg to cover `size` (height, width), its centre cut out: RGB (height, width, 3)."""
    width, height = covering(frame.width, frame.height, size)
    return centre(frame.to_ndarray(width=width, height=height, format="rgb24"), size)


def covering(width: int, height: int, size: tuple[int, int]) -> tuple[int, int]:
    """(width, height) of the same form that covers `size` (height, width)."""
    scale = max(size[0] / height, size[1] / width)
    return max(size[1], round(width * scale)), max(size[0], round(height * scale))


def centre(image: Pixels, size: tuple[int, int]) -> Pixels:
    """The middle of an image (H, W, C), of `size` (height, width)."""
    top, left = (image.shape[0] - size[0]) // 2, (image.shape[1] - size[1]) // 2
    return np.ascontiguousarray(image[top : top + size[0], left : left + size[1]])


def clips_of(settings: Settings, form: str) -> Any:
    """The reader of the random clips that all subjects read."""
    from rawpack import Reader

    with warnings.catch_warnings():
        # That videos are too short was said when they were packed.
        warnings.simplefilter("ignore", RuntimeWarning)
        return Reader(store_path(settings, form)).clips(settings.frames, stride=settings.stride, per_video=PER_VIDEO)


@dataclass(frozen=True)
class Clip:
    """One clip as it is found in a file."""

    file: str
    frames: list[int]
    """Their numbers."""
    seconds: list[float]
    """Their times."""


def random_clips(settings: Settings) -> Iterator[Clip]:
    """The very clips that the stores' readers give, epoch after epoch, for ever."""
    files = [str(path) for path in files_of(settings)]
    batches = clips_of(settings, "memmap").batches(
        settings.batch, shuffle=True, seed=SEED, fields=["video", "frame", "pts_seconds"], workers=0
    )
    while True:
        for batch in batches:
            for video, frames, seconds in zip(batch["video"], batch["frame"], batch["pts_seconds"], strict=True):
                yield Clip(files[video], frames.tolist(), seconds.tolist())
