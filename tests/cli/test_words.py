"""The words that summaries count in: one image, two images, frames that are no files, and no 1e+02."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pictures import picture, save
from running import run_here

WRONG = re.compile(
    r"(?<![\d,.])1 (images|frames|files|samples|classes|shards|videos|rejects|boxes|links|columns|stores|times)\b"
    r"|\d\.?\d*e[+-]\d+ times|\b1 times"
)


def test_one_of_everything_is_told_in_the_singular(tmp_path: Path) -> None:
    """A store of a single image, class and reject: pack, dry run, append and inspect count each as one."""
    source, store = tmp_path / "source", tmp_path / "store"
    save(source / "cat" / "0.jpg", picture(40, 50, 0))
    save(source / "cat" / "same.jpg", picture(40, 50, 0))
    (source / "cat" / "note.txt").write_text("x")
    (source / "cat" / ".hidden").write_text("x")
    (source / "loose.jpg").write_text("no image")
    args = ("--workers", 0, "--size", 64)
    told = [
        run_here("pack", "--dry-run", *args, source, store),
        run_here("pack", *args, source, store),
        run_here("pack", "--max-rejects", 1, *args, source, store),
        run_here("inspect", store),
    ]
    save(source / "dog" / "1.jpg", picture(40, 50, 1))
    told.append(run_here("append", "--workers", 0, "--skip-existing", source, store))
    assert [ran.code for ran in told] == [0, 1, 0, 0, 0], told
    for ran in told:
        assert not WRONG.search(ran.out + ran.err), ran.out + ran.err
    assert "files that are not images, skipped: 1" in told[2].out
    assert "1 of 3 images was rejected" in told[1].err


def test_a_store_of_frames_is_held_against_the_video_files(tmp_path: Path) -> None:
    """Inspect and pack tell the ratio to the bytes of the video files, also in JSON; equal frames are no files."""
    pytest.importorskip("av")
    from videos import encode

    path, store = encode(tmp_path / "clip.avi", "mpeg4", 20), tmp_path / "store"
    packed = run_here("pack", "--workers", 0, "--size", 32, path, store)
    assert packed.code == 0
    size = path.stat().st_size
    about = json.loads(run_here("inspect", "--json", store).out)
    assert about["bytes"]["source"] == size
    assert about["bytes"]["of_source"] == round(about["bytes"]["shards"] / size, 4)
    ratio = re.search(r"of video files in, .* out: ([\d.]+) times", packed.out)
    assert ratio
    assert float(ratio[1]) == pytest.approx(about["bytes"]["store"] / size, rel=0.02)
    text = run_here("inspect", store).out
    assert re.search(r"source +[\d.]+ k?B of video files; the store takes ", text)
    assert "files whose bytes" not in packed.out + text
    assert "images" not in packed.out + text


def test_a_reject_quotes_nothing_of_what_is_no_image(tmp_path: Path) -> None:
    """A link that leads to a file of secrets, or one in place of a YOLO label, gives away none of its bytes."""
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0:root 0.5 0.5 0.5 0.5\n")
    source, store = tmp_path / "source", tmp_path / "store"
    save(source / "a.jpg", picture(20, 20, 0))
    (source / "b.jpg").symlink_to(secret)
    for begin in (b"\xff\x0a", b"8BPS"):
        (source / f"{begin.hex()}.jpg").write_bytes(begin + b"hunter2hunter2")
    ran = run_here("pack", "--workers", 0, "--size", 16, "--max-rejects", 3, source, store)
    assert ran.code == 0
    rejects = (store / "rejects.jsonl").read_text()
    assert len(rejects.splitlines()) == 3
    assert "not_an_image" in rejects
    assert not re.search("root:x|hunter|0:0", rejects + ran.out + ran.err)
    yolo = tmp_path / "yolo"
    save(yolo / "images" / "a.jpg", picture(20, 20, 0))
    (yolo / "labels").mkdir()
    (yolo / "labels" / "a.txt").symlink_to(secret)
    ran = run_here("pack", "--workers", 0, "--source", "yolo", yolo, tmp_path / "other")
    assert ran.code == 2
    assert "a value of a linked file: is not a class number" in ran.err
    assert "root:x" not in ran.err
