"""What is shown, estimated and measured of samples with several images: each of them, by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from running import FORMATS, pack, run_here

from rawpack import Reader
from rawpack.transforms import RandomHorizontalFlip
from rawpack_packer.inspect.contact_sheet import thumbnail
from rawpack_packer.sources import open_source
from rawpack_packer.tune.candidates import candidates
from rawpack_packer.tune.loss import compare
from rawpack_packer.tune.measure import Setting, StoreMeter

pytestmark = pytest.mark.usefixtures("trials_here")

COUNT = 6
RED, GREEN = (255, 0, 0), (0, 255, 0)
FIELDS = ("--field", "target:image", "--field", "depth:image")
SIZES = ("--size", "image=24", "--size", "target=96", "--size", "depth=96")
ONE_SIZE = {"image": (24, 24, 3), "target": (96, 96, 3), "depth": (96, 96, 1)}


def of_color(height: int, width: int, color: tuple[int, int, int]) -> NDArray[np.uint8]:
    return np.broadcast_to(np.array(color, np.uint8), (height, width, 3)).copy()


@pytest.fixture(scope="module")
def triples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A listing of red images, green targets four times as large, and ramps of 16-bit depths; sizes differ."""
    root, random = tmp_path_factory.mktemp("triples"), np.random.default_rng(0)
    lines = ["path,target,depth"]
    for i in range(COUNT):
        side = 24 + 2 * i
        noise = random.integers(0, 256, (4 * side, 4 * side, 3), np.uint8)
        target = noise if i % 2 else of_color(4 * side, 4 * side, GREEN)
        cv2.imwrite(str(root / f"a{i}.png"), of_color(side, side, RED)[..., ::-1])
        cv2.imwrite(str(root / f"b{i}.jpg"), target[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])
        ramp = np.linspace(0, 60000, 4 * side).astype(np.uint16)
        cv2.imwrite(str(root / f"c{i}.png"), np.tile(ramp, (4 * side, 1)))
        lines.append(f"a{i}.png,b{i}.jpg,c{i}.png")
    (root / "list.csv").write_text("\n".join(lines) + "\n")
    return root / "list.csv"


def json_of(*args: object) -> dict[str, Any]:
    ran = run_here(*args)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


@pytest.mark.parametrize(("layout", "sizes"), [("lmdb", ("--size", "keep")), ("hdf5-gzip", SIZES)])
def test_an_estimate_is_of_all_images(triples: Path, tmp_path: Path, layout: str, sizes: tuple[str, ...]) -> None:
    options = (*FORMATS[layout], *sizes, *FIELDS, triples)
    guess = json_of("pack", "--workers", "0", "--dry-run", "--json", *options, tmp_path / "s")
    path = pack(triples, tmp_path / "s", *options[:-1])
    shards = sum(file.stat().st_size for file in path.glob("shard-*"))
    # Headers of files are not in an estimate.
    assert 0.8 * (shards - 40_000) < guess["store_bytes"] < 1.25 * shards + 4000


@pytest.mark.parametrize("layout", ["memmap", "lmdb", "hdf5-gzip"])
def test_inspect_has_bytes_by_field(triples: Path, tmp_path: Path, layout: str) -> None:
    """The bytes of each field are those that other libraries find in the shards."""
    path = pack(triples, tmp_path / "s", *FORMATS[layout], *SIZES, *FIELDS)
    found = json_of("inspect", "--json", path)["fields"]
    assert {name for name, field in found.items() if field["bytes"] is not None} == set(ONE_SIZE)
    for name, shape in ONE_SIZE.items():
        if layout == "lmdb":
            batch = next(iter(Reader(path).batches(COUNT, decode=False, fields=[name], workers=0)))
            expected = sum(map(len, batch[name]))
        elif layout == "memmap":
            expected = COUNT * int(np.prod(shape)) * (2 if name == "depth" else 1)
        else:
            (file,) = path.glob("*.h5")
            with h5py.File(file) as shard:
                expected = shard[name].id.get_storage_size()
        assert found[name]["bytes"] == expected, name
    words = run_here("inspect", path).out
    assert re.search(r"field depth +uint16 96x96x1 \w+, [\d.]+ k?B\n", words)


def test_inspect_has_the_sizes_of_each_image(triples: Path, tmp_path: Path) -> None:
    found = json_of("inspect", "--json", pack(triples, tmp_path / "s", "--size", "keep", *FIELDS))
    for name, letter in (("image", "a"), ("target", "b"), ("depth", "c")):
        sides = [cv2.imread(str(file), -1).shape[0] for file in triples.parent.glob(f"{letter}?.*")]
        assert found["fields"][name]["sizes"] == {f"{side}x{side}": 1 for side in sides}


def test_sizes_by_field_reach_every_job(triples: Path, tmp_path: Path) -> None:
    """Options that were parsed are parsed again without a change: splits do so."""
    ran = run_here("pack", "--workers", "0", "--holdout", "val=2", *SIZES, *FIELDS, triples, tmp_path / "s")
    assert ran.code == 0, ran.err
    for name, count in (("train", COUNT - 2), ("val", 2)):
        reader = Reader(tmp_path / "s" / name)
        assert (len(reader), reader.fields["target"].shape) == (count, (96, 96, 3))


# ---------------------------------------------------------------------------------------------- drawn


def test_what_is_not_finite_does_not_darken_a_depth_map() -> None:
    """The range is that of finite values: infinity is as bright as the farthest, what is no number as dark as the
    nearest; nothing finite at all is black."""
    values = np.array([[[2.0], [3.0], [4.0], [np.inf], [np.nan], [-np.inf]]], np.float32)
    assert thumbnail(values, 6)[0, :, 0].tolist() == [0, 127, 255, 255, 0, 0]
    assert thumbnail(np.full((2, 2, 1), np.nan, np.float32), 2).max() == 0


# ---------------------------------------------------------------------------------------------- measured


def test_the_loss_is_that_of_every_picture(triples: Path, tmp_path: Path) -> None:
    """PSNR is the mean over both pictures of all samples, as two stores differ: one of pixels, one of JPEG."""
    (low,) = candidates(format=["lmdb"], size=["image=24,target=96,depth=96"], quality=["30"])
    source = open_source(str(triples), fields=["target:image", "depth:image"])
    losses, strips = compare(source.take(np.arange(COUNT)), [low], 1e9)
    assert {strip.key.partition(": ")[2] for strip in strips} == {"image", "target"}
    assert strips[0].key.endswith("target")  # noise loses most
    raw = Reader(pack(triples, tmp_path / "raw", *SIZES, *FIELDS))
    jpeg = Reader(pack(triples, tmp_path / "jpeg", "--format", "lmdb", "--quality", "30", *SIZES, *FIELDS))
    pairs = [(raw[i][name].astype(float), jpeg[i][name]) for i in range(COUNT) for name in ("image", "target")]
    errors = [float(np.mean((one - other) ** 2)) for one, other in pairs]
    expected = np.mean([10 * np.log10(255**2 / error) for error in errors if error])
    assert losses[low.name].psnr_db == pytest.approx(expected, rel=1e-6)


def test_plan_tries_sizes_by_field(triples: Path, tmp_path: Path) -> None:
    """Sizes by field that follow one another are one candidate; its command packs it."""
    quick = "--quiet --budget 0.1s --workers 1 --batch 4 --format memmap --compression none --tmp"
    options = (*quick.split(), tmp_path)
    sizes = ("--size", "image=24", "--size", "target=96", "--size", "image=12,target=48")
    found = json_of("plan", "--json", *options, *sizes, "--field", "target:image", triples)
    assert [one["options"][-1] for one in found["candidates"]] == ["image=24,target=96", "image=12,target=48"]
    large, small = (one["store_bytes"] for one in found["candidates"])
    assert large == pytest.approx(COUNT * (24 * 24 + 96 * 96) * 3, rel=0.2)
    assert small < large / 2


def test_crops_of_several_images_keep_their_ratio(triples: Path, tmp_path: Path) -> None:
    """A plan crops all images of a sample together, 7/8 of each; where their sizes do not allow that, or the user names
    steps, nothing. Of a single image, crops come from all of it."""
    meter = StoreMeter(pack(triples, tmp_path / "s", *SIZES, *FIELDS))
    found = meter.augmented(Setting(2, 0))
    assert found is not None
    assert [step.size for step in found.transform[:1]] == [(21, 21)]
    rate = meter.warm(found, 0.0)
    assert rate.bytes_per_s is not None
    assert rate.bytes_per_s / rate.images_per_s > 21 * 21 * 3 + 84 * 84 * (3 + 2)
    assert meter.augmented(Setting(2, 0, {"image": (24, 24), "target": (36, 36), "depth": (36, 36)})) is None
    assert meter.augmented(Setting(2, 0, None, (RandomHorizontalFlip(),))) is None
    alone = StoreMeter(pack(triples, tmp_path / "alone", "--size", "keep")).augmented(Setting(2, 0, (20, 30)))
    assert alone is not None
    assert (alone.image_size, alone.transform[0].size) == (None, (20, 30))
