"""Videos, folders and lists of videos."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cases import Case, images, write


def videos(*names: str, frames: int = 2, codec: str = "mpeg4", **files: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        from videos import encode

        for name in names:
            encode(root / name, codec, frames, format="yuvj420p" if codec == "mjpeg" else "yuv420p")
        write(root, {name.replace("__", "."): text for name, text in files.items()})

    return make


video_case = partial(Case, needs=("av",))


def _with_images(root: Path) -> None:
    videos("set/a.mp4")(root)
    write(root, images("set/{0,1}.jpg"))


def _broken(root: Path) -> None:
    videos("set/a.mp4")(root)
    (root / "set/b.mp4").write_bytes((root / "set/a.mp4").read_bytes()[:300])


def _without_index(root: Path) -> None:
    """An AVI as it is left where its writer was stopped."""
    videos("a.avi", frames=5, codec="mjpeg")(root)
    data = (root / "a.avi").read_bytes()
    (root / "a.avi").write_bytes(data[: data.rfind(b"idx1")])


def _renamed(name: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        videos("a.mp4")(root)
        (root / "a.mp4").rename(root / name)

    return make


CASES = (
    video_case("a video", "a.mp4", videos("a.mp4")),
    video_case("a video without a suffix", "a", _renamed("a")),
    video_case("a folder of videos", "set", videos("set/a.mp4", "set/b.mp4")),
    video_case("splits of videos", "set", videos("set/train/run/a.mp4", "set/val/run/b.mp4")),
    video_case("one split of them", "set/train", videos("set/train/run/a.mp4", "set/val/run/b.mp4")),
    video_case("images and videos", "set", _with_images),
    video_case("images and videos, with an option of videos", "set", _with_images, {"fps": 1.0}),
    video_case("a video that is cut", "set", _broken),
    video_case("an AVI without its index", "a.avi", _without_index),
    video_case(
        "a table of videos, in their folder", "set", videos("set/a.mp4", **{"set/list__csv": "path,label\na.mp4,run\n"})
    ),
    video_case(
        "metadata.csv of videos", "set", videos("set/a.mp4", **{"set/metadata__csv": "file_name,label\na.mp4,run\n"})
    ),
    video_case("a file that is called a video", "a.mp4", {"a.mp4": "words"}),
    video_case("a pattern of videos", "set/*.mp4", videos("set/a.mp4")),
)
