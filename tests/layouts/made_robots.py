"""Layouts of robots' episodes: LeRobot's datasets, as lerobot wrote them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from layout import Layout, Samples, copied

_TASKS = ("pick the cube", "open the drawer, ä")


def _samples(root: Path) -> Samples:
    """The rows in the order of the files, and the frames of all videos one after another, by OpenCV."""
    rows = pa.concat_tables(pq.read_table(path) for path in sorted(root.glob("robot/data/*/*.parquet"))).to_pylist()
    frames = []
    for path in sorted(root.glob("robot/videos/**/*.mp4")):
        video = cv2.VideoCapture(str(path))
        while (read := video.read())[0]:
            frames.append(cv2.cvtColor(read[1], cv2.COLOR_BGR2RGB))
    return {
        f"episode_{row['episode_index']:06d}#{row['frame_index']:06d}": {
            "image": frame,
            "video": row["episode_index"],
            "frame": row["frame_index"],
            "pts_seconds": np.float32(row["timestamp"]),
            "task": _TASKS[row["task_index"]],
            "action": np.array(row["action"], np.float32),
            **{name: row[name] for name in ("timestamp", "frame_index", "episode_index", "task_index")},
        }
        for row, frame in zip(rows, frames, strict=True)
    }


LAYOUTS = tuple(
    Layout(have, copied(f"lerobot/{version}/h264", "robot"), _samples, ("av",), 40)
    for have, version in (
        ("a LeRobot dataset, v3: many episodes in each video", "v30"),
        ("a LeRobot dataset, v2: a video for each episode", "v21"),
    )
)
