"""`--jpeg-tables`, jpegli by default. Oracles: tables in files by jpegli itself, OpenCV, and Pillow, which reads tables
and sampling."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pictures import picture, save
from PIL import Image, ImageFile
from reading import SOAK
from running import pack, run_here, stop_of

from rawpack import Reader, jpeg
from rawpack_packer.images.jpeg import jpegli_tables, tables_at
from rawpack_packer.recipe import make_recipe
from rawpack_packer.samples.encoders import to_jpeg
from rawpack_packer.samples.sample import prepare
from rawpack_packer.tune.loss import psnr

BY_JPEGLI = {
    (7.2917, 1): """
        19 11 23 23 42 38 46 49 11 18 23 25 38 34 43 45
        23 23 30 27 35 40 41 47 23 25 27 33 42 36 40 50
        42 38 35 42 33 50 38 48 38 34 40 36 50 43 49 72
        46 43 41 40 38 49 78 71 49 45 47 50 48 72 71 255
    """,
    (1.0, 0): """
        3 4 6 6 7 7 8 8 4 4 6 6 7 7 9 9
        6 6 6 7 8 8 8 9 6 6 7 7 9 10 10 10
        7 7 8 9 10 10 12 12 7 7 8 10 10 12 11 13
        8 9 8 10 12 11 12 11 8 9 9 10 12 13 11 9
    """,
}
"""Distance, of jpegli's qualities 25 and 90, and number of the table -> its steps in a 4:2:0 file that jpegli made
(pyjpegli 0.3.2)."""


def recipe_of(**options: Any) -> Any:
    return make_recipe(format="lmdb", **({"jpeg_tables": "jpegli"} | options))


def opened(stored: NDArray[np.uint8]) -> Any:
    return Image.open(io.BytesIO(stored.tobytes()))


@pytest.mark.parametrize(("distance", "number"), BY_JPEGLI)
def test_tables_are_those_that_jpegli_writes(distance: float, number: int) -> None:
    """Of luma and chroma, at a distance below and above the one from which steps grow as the distance does."""
    assert tables_at(distance, "420")[number] == [*map(int, BY_JPEGLI[distance, number].split())]


def test_the_default_has_these_tables() -> None:
    """Of lmdb stores, at any quality; of 4:4:0, which their encoder does not write, the standard's."""
    for quality in (1, 50, 90, 100):
        found = opened(to_jpeg(picture(40, 50, 0), make_recipe(format="lmdb", quality=quality))).quantization
        assert tuple(list(found[k]) for k in (0, 1)) == jpegli_tables(quality, "420")
    standard, tall = (
        opened(to_jpeg(picture(40, 50, 0), make_recipe(format="lmdb", **options)))
        for options in ({"jpeg_tables": "standard"}, {"subsampling": "440"})
    )
    assert standard.quantization == tall.quantization
    assert tall.layer[0][1:3] == (1, 2)


@pytest.mark.parametrize("options", [{"color": "gray"}, {"subsampling": "444"}])
def test_noise_is_encoded(options: dict[str, str]) -> None:
    """At every quality, whatever buffer Pillow has: random noise, and black and white at random, which take most."""
    rng, channels = np.random.default_rng(0), 1 if "color" in options else 3
    noise = rng.integers(0, 256, (210, 255, channels), np.uint8)
    for quality in (1, 70, 99, 100):
        recipe = make_recipe(format="lmdb", quality=quality, **options)
        for image in (noise, (noise & 1) * np.uint8(255)):
            ImageFile.MAXBLOCK = 1 << 16
            decoded = np.asarray(opened(to_jpeg(image, recipe))).reshape(image.shape)
            assert quality < 100 or options.get("subsampling") == "420" or psnr(image, decoded) > 35


@pytest.mark.parametrize(("sampling", "factor"), [("420", (2, 2)), ("422", (2, 1)), ("444", (1, 1)), (None, (1, 1))])
def test_files_are_as_those_with_standard_tables(sampling: str | None, factor: tuple[int, int]) -> None:
    """Baseline, with the chroma asked for and a restart marker after each row of blocks; gray images too. A crop that
    is decoded alone has the pixels of the whole image."""
    color = "rgb" if sampling else "gray"
    options = {"subsampling": sampling} if sampling else {"color": "gray"}
    image = np.ascontiguousarray(picture(75, 61, 3)[..., : 3 if sampling else 1])
    stored = to_jpeg(image, recipe_of(**options))
    usual = to_jpeg(image, recipe_of(jpeg_tables="standard", **options))
    file = opened(stored)
    assert (file.layer[0][1:3], len(file.layer)) == (factor, image.shape[2])
    for marker in (b"\xff\xc0", b"\xff\xdd"):
        assert stored.tobytes().count(marker) == 1
        at = [data.tobytes().index(marker) for data in (stored, usual)]
        assert stored[at[0] : at[0] + 6].tobytes() == usual[at[1] : at[1] + 6].tobytes()
    blocks = -(-image.shape[1] // (8 * factor[0]))
    assert int.from_bytes(usual[at[1] + 4 : at[1] + 6].tobytes(), "big") == blocks
    whole = jpeg.decoder().decode(stored, color=color)
    np.testing.assert_array_equal(np.squeeze(whole), np.asarray(file))
    assert psnr(image, whole) > 25
    np.testing.assert_array_equal(jpeg.decode(stored, color=color, box=(21, 13, 30, 40)), whole[21:51, 13:53])


@pytest.mark.parametrize(("options", "most"), [({}, 0.3), ({"subsampling": "444"}, 1), ({"color": "gray"}, 1)])
def test_a_quality_loses_what_it_loses_with_the_standard_tables(photos: Path, options: Any, most: float) -> None:
    """Of real photographs at 256 pixels: the same PSNR in the mean, about, in fewer bytes; at the lowest and the
    highest of four qualities, and at all in a long run."""
    raw = make_recipe(color=options.get("color", "rgb"))
    paths = sorted(photos.rglob("*.*"))[:: 16 if SOAK else 32]
    images = [prepare(path.read_bytes(), raw).image for path in paths]
    for quality in (50, 75, 90, 98) if SOAK else (50, 98):
        found = []
        for tables in ("jpegli", "standard"):
            stored = [to_jpeg(image, recipe_of(quality=quality, jpeg_tables=tables, **options)) for image in images]
            decoded = (np.asarray(opened(data)).reshape(one.shape) for data, one in zip(stored, images, strict=True))
            loss = [psnr(image, other) for image, other in zip(images, decoded, strict=True)]
            found.append((np.mean([len(data) for data in stored]), np.mean(loss)))
        (few, ours), (many, theirs) = found
        assert few < 0.95 * many
        assert abs(ours - theirs) < most


def tables_in(store: Path, row: int = 0) -> list[int]:
    """The luma table of a sample."""
    stored = list(Reader(store).batches(1, workers=0, decode=False))[row]["image"][0]
    return list(opened(np.asarray(stored)).quantization[0])


def test_the_recipe_records_the_tables(tmp_path: Path) -> None:
    """The manifest names jpegli's tables and their encoder; with those of the standard, it is what it was before there
    were others. A store made of a store keeps its tables, unless others are asked for, or 4:4:0, which has only the
    standard's. An append keeps them too; a store of the other tables is not resumed."""
    source, more = (
        save(tmp_path / name / "a" / f"{name}.png", picture(40, 40, 9)).parents[1] for name in ("source", "more")
    )
    size = ("--format", "lmdb", "--size", 32)
    usual = pack(source, tmp_path / "usual", *size)
    standard = pack(source, tmp_path / "standard", *size, "--jpeg-tables", "standard")
    recipes = [json.loads((path / "store.json").read_text())["recipe"] for path in (usual, standard)]
    assert recipes[0]["jpeg_tables"] == "jpegli"
    assert "pillow" in recipes[0]["libraries"]["encoder"]
    assert "jpeg_tables" not in recipes[1]
    assert "opencv" in recipes[1]["libraries"]["encoder"]
    tables = {store: tables_in(store) for store in (usual, standard)}
    assert tables[usual] == jpegli_tables(90, "420")[0] != tables[standard]
    for k, (store, options, expected) in enumerate(
        (
            (usual, ("--jpeg-tables", "standard"), standard),
            (usual, ("--subsampling", "440"), standard),
            (standard, ("--jpeg-tables", "jpegli"), usual),
        )
    ):
        assert run_here("convert", store, tmp_path / f"made{k}", "--workers", 0, *options).code == 0
        assert tables_in(tmp_path / f"made{k}") == tables[expected]
    said = stop_of("pack", "--workers", 0, source, standard, *size)
    assert "the recipe differs: --jpeg-tables was standard" in said
    assert run_here("append", more, standard, "--workers", 0).code == 0
    assert tables_in(standard, -1) == tables[standard]
