"""LeRobot, where it is installed: what it writes now is read as it reads it. It is no test dependency, since it brings
torch and simulators."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from test_lerobot import check_all

from rawpack_packer.sources import open_source

pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore")]
MAKE = Path(__file__).parents[1] / "support" / "fixtures" / "lerobot" / "make.py"


@pytest.mark.parametrize("codec", ["h264", "libsvtav1"])
def test_what_lerobot_writes(codec: str, tmp_path: Path) -> None:
    """More episodes than the fixtures have, in more files."""
    pytest.importorskip("lerobot")
    spec = importlib.util.spec_from_file_location("made_by_lerobot", MAKE)
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    make.HERE = tmp_path
    dataset = make.write("set", make.ARMS, codec, (15, 3, 11, 1, 14, 8, 2, 15, 6, 9, 10, 4))
    check_all(open_source(tmp_path / "set"), make.read(dataset, make.ARMS))
