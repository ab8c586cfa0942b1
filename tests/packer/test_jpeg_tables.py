"""`--jpeg-tables jpegli`. Oracles: tables in files by jpegli itself, and Pillow, which reads tables and sampling."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pictures import picture, save
from PIL import Image
from running import pack, run_here

from rawpack import Reader, UsageError, jpeg
from rawpack_packer.images.jpeg import jpegli_tables
from rawpack_packer.recipe import make_recipe
from rawpack_packer.samples.encoders import to_jpeg
from rawpack_packer.samples.sample import prepare
from rawpack_packer.tune.candidates import candidates
from rawpack_packer.tune.loss import psnr

BY_JPEGLI = {
    (25, 0): """
        19 13 27 29 52 54 59 60 13 19 27 34 53 49 62 62
        27 27 36 40 53 60 58 66 29 34 40 52 65 65 64 71
        52 53 53 65 71 76 86 85 54 49 60 65 76 84 79 94
        59 62 58 64 86 79 84 84 60 62 66 71 85 94 84 68
    """,
    (25, 1): """
        19 11 23 23 42 38 46 49 11 18 23 25 38 34 43 45
        23 23 30 27 35 40 41 47 23 25 27 33 42 36 40 50
        42 38 35 42 33 50 38 48 38 34 40 36 50 43 49 72
        46 43 41 40 38 49 78 71 49 45 47 50 48 72 71 255
    """,
    (90, 0): """
        3 4 6 6 7 7 8 8 4 4 6 6 7 7 9 9
        6 6 6 7 8 8 8 9 6 6 7 7 9 10 10 10
        7 7 8 9 10 10 12 12 7 7 8 10 10 12 11 13
        8 9 8 10 12 11 12 11 8 9 9 10 12 13 11 9
    """,
    (90, 1): """
        3 3 5 5 6 5 6 7 3 4 5 4 5 5 6 6
        5 5 5 5 5 5 6 6 5 4 5 4 6 6 6 7
        6 5 5 6 4 7 5 7 5 5 5 6 7 6 7 10
        6 6 6 6 5 7 11 10 7 6 6 7 7 10 10 82
    """,
}
"""Quality and number of the table -> its steps in a 4:2:0 file that jpegli made (pyjpegli 0.3.2)."""


def recipe_of(**options: Any) -> Any:
    return make_recipe(format="lmdb", **({"jpeg_tables": "jpegli"} | options))


def opened(stored: NDArray[np.uint8]) -> Any:
    return Image.open(io.BytesIO(stored.tobytes()))


@pytest.mark.parametrize("quality", [25, 90])
def test_tables_are_those_that_jpegli_writes(quality: int) -> None:
    """Of luma and chroma, at a quality below and above the one from which steps grow as the distance does."""
    expected = [[int(word) for word in BY_JPEGLI[quality, number].split()] for number in (0, 1)]
    assert list(jpegli_tables(quality, "420")) == expected
    found = opened(to_jpeg(picture(40, 50, 0), recipe_of(quality=str(quality)))).quantization
    assert [list(found[k]) for k in (0, 1)] == expected


def test_steps_shrink_as_quality_grows() -> None:
    """Every step is from 1 to 255, and none grows with the quality; all are 1 at 100."""
    for subsampling in ("420", "444"):
        tables = np.array([jpegli_tables(quality, subsampling) for quality in range(1, 101)])
        assert tables.min() == 1
        assert tables.max() == 255
        assert (np.diff(tables, axis=0) <= 0).all()
        assert (tables[-1] == 1).mean() > 0.98


@pytest.mark.parametrize(("sampling", "factor"), [("420", (2, 2)), ("422", (2, 1)), ("444", (1, 1)), (None, (1, 1))])
def test_files_are_as_those_with_standard_tables(sampling: str | None, factor: tuple[int, int]) -> None:
    """Baseline, with the chroma asked for and a restart marker after each row of blocks; gray images too. A crop that
    is decoded alone has the pixels of the whole image."""
    image = picture(75, 61, 3)
    options = {"color": "gray"} if sampling is None else {"subsampling": sampling}
    image = image[..., :1] if sampling is None else image
    stored = to_jpeg(np.ascontiguousarray(image), recipe_of(**options))
    usual = to_jpeg(np.ascontiguousarray(image), recipe_of(jpeg_tables="standard", **options))
    file = opened(stored)
    assert file.layer[0][1:3] == factor
    assert len(file.layer) == (1 if sampling is None else 3)
    for marker in (b"\xff\xc0", b"\xff\xdd"):
        assert stored.tobytes().count(marker) == 1
        at = [data.tobytes().index(marker) for data in (stored, usual)]
        assert stored[at[0] : at[0] + 6].tobytes() == usual[at[1] : at[1] + 6].tobytes()
    blocks = -(-image.shape[1] // (8 * file.layer[0][1]))
    assert int.from_bytes(usual[at[1] + 4 : at[1] + 6].tobytes(), "big") == blocks
    color = "gray" if sampling is None else "rgb"
    whole = jpeg.decoder().decode(stored, color=color)
    np.testing.assert_array_equal(np.squeeze(whole), np.asarray(file))
    assert psnr(image, whole) > 25
    box = (21, 13, 30, 40)
    part = jpeg.decode(stored, color=color, box=box)
    np.testing.assert_array_equal(part, whole[21:51, 13:53])


def test_photographs_lose_less_at_no_more_bytes(photos: Path) -> None:
    """Of real photographs at 256 pixels: 0.8 dB more in the mean, in fewer bytes than the standard's tables take."""
    images = [prepare(path.read_bytes(), make_recipe()).image for path in sorted(photos.rglob("*.*"))[::20]]
    found = []
    for options in ({"quality": "88"}, {"quality": "90", "jpeg_tables": "standard"}):
        stored = [to_jpeg(image, recipe_of(**options)) for image in images]
        loss = [psnr(image, jpeg.decode(data)) for image, data in zip(images, stored, strict=True)]
        found.append((np.mean([len(data) for data in stored]), np.mean(loss)))
    (few, ours), (many, theirs) = found
    assert few < many
    assert ours > theirs + 0.8


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables") / "source"
    for i in range(4):
        save(root / "a" / f"{i}.png", picture(40, 40, i))
    return root


def tables_in(store: Path) -> list[int]:
    """The luma table of the first sample."""
    stored = next(iter(Reader(store).batches(1, workers=0, decode=False)))["image"][0]
    return list(opened(np.asarray(stored)).quantization[0])


def test_the_recipe_records_the_tables(source: Path, tmp_path: Path) -> None:
    """With the option, the manifest names the tables and the encoder; without it, or with the default, nothing
    changes. A store made of the store keeps its tables, unless others are asked for."""
    size = ("--format", "lmdb", "--size", 32, "--workers", 0)
    plain = pack(source, tmp_path / "plain", *size)
    usual = pack(source, tmp_path / "usual", *size, "--jpeg-tables", "standard")
    store = pack(source, tmp_path / "store", *size, "--jpeg-tables", "jpegli")
    recipes = [json.loads((path / "store.json").read_text())["recipe"] for path in (plain, usual, store)]
    assert recipes[0] == recipes[1]
    assert "jpeg_tables" not in recipes[0]
    assert recipes[2]["jpeg_tables"] == "jpegli"
    assert "pillow" in recipes[2]["libraries"]["encoder"]
    assert tables_in(store) == jpegli_tables(90, "420")[0] != tables_in(plain) == tables_in(usual)
    for options, expected in (
        (("--size", 16), tables_in(store)),
        (("--jpeg-tables", "standard"), tables_in(plain)),
    ):
        made = tmp_path / f"made{len(options[0])}"
        assert run_here("convert", store, made, "--workers", 0, *options).code == 0
        assert tables_in(made) == expected
    assert run_here("convert", plain, tmp_path / "with", "--workers", 0, "--jpeg-tables", "jpegli").code == 0
    assert tables_in(tmp_path / "with") == tables_in(store)


def test_what_has_no_tables_is_refused() -> None:
    """Raw formats, and 4:4:0, which the encoder does not write; the message names the cure."""
    with pytest.raises(UsageError, match="--jpeg-tables applies to --format lmdb only"):
        make_recipe(jpeg_tables="jpegli")
    with pytest.raises(UsageError, match="420, 422 and 444"):
        recipe_of(subsampling="440")
    with pytest.raises(UsageError, match="must be one of standard, jpegli"):
        recipe_of(jpeg_tables="mozjpeg")


def test_a_plan_compares_tables() -> None:
    """Each quality with each table is a candidate, with the options that pack it."""
    found = candidates(format=["memmap", "lmdb"], size=["32"], quality=["75", "90"], jpeg_tables=["standard", "jpegli"])
    by_name = {one.name: one for one in found}
    assert set(by_name) == {"memmap 32", *(f"lmdb 32 q{q}{t}" for q in (75, 90) for t in ("", " jpegli"))}
    assert by_name["lmdb 32 q90 jpegli"].options[-4:] == ("--quality", "90", "--jpeg-tables", "jpegli")
    assert len({one.group for one in found}) == 1
    assert by_name["lmdb 32 q90 jpegli"].raw_recipe == by_name["memmap 32"].recipe
