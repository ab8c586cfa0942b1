"""`rawpack inspect` and `rawpack doctor`: what they tell, what they find, and what never reaches a terminal."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from folders import flip, states_of
from pictures import picture, save
from PIL import Image
from running import Packed, pack, run_here

from rawpack import Reader, native

LAYOUTS = [("memmap", "keep"), ("hdf5-gzip", "keep"), ("lmdb", "48")]
over_stores = pytest.mark.parametrize(("layout", "size"), LAYOUTS, ids=["-".join(one) for one in LAYOUTS])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 40 images in two classes with one reject, in one shard."""
    root = tmp_path_factory.mktemp("small")
    for i in range(40):
        save(root / "source" / f"class {i % 2}" / f"{i:02d}.jpg", picture(30 + i % 3, 40, i))
    (root / "source" / "class 0" / "bad.jpg").write_text("no image")
    return pack(root / "source", root / "store", "--size", 24, "--shard-size", 1, "--max-rejects", 1)


# ---------------------------------------------------------------------------------------------- what is in there


@over_stores
def test_inspect_tells_what_is_in_a_store(packed: Packed, layout: str, size: str) -> None:
    """Samples, classes with counts, format, version, bytes, fields with dtype and shape, recipe, origin, digest; the
    same facts with --json."""
    store = packed(layout, "--size", size)
    ran = run_here("inspect", store)
    assert (ran.code, ran.err) == (0, "")
    for words in (
        r"samples +75 images in 6 classes, 0 to 16 each, and 2 images without a class\n",
        rf"format +{layout.split('-')[0]}, version 1\n",
        rf"size +[\d.]+ [kM]B in {'1 shard' if size == 'keep' else '2 shards'}, [\d.]+ k?B per image",
        rf"field image +uint8 {'[?]x[?]x3' if size == 'keep' else '48x48x3'}",
        r"field label +int64",
        r"field key +str",
        r"images in each class(?s:.)*two words +15\b",
        r"猫 и собаки +14\b",
        r"\(no class\) +2\b",
        rf"recipe +size {size}",
        r"rejects +none\n",
        r"packed +\d{4}-\d\d-\d\d \d\d:\d\d UTC on ",
    ):
        assert re.search(words, ran.out), words
    assert ran.out.split("digest")[1].split()[0] in (store / "store.json").read_text("utf-8")
    assert ("sizes, height x width" in ran.out) == (size == "keep")
    if size == "keep":
        assert re.search(r"97x51 +14\b", ran.out)

    told = json.loads(run_here("inspect", "--json", store).out)
    assert (told["format"], told["samples"], told["version"]) == (layout.split("-")[0], 75, 1)
    assert (told["classes"]["line\nbreak"], told["classes"]["Empty"], sum(told["classes"].values())) == (14, 0, 75)
    assert told["bytes"]["shards"] == sum(path.stat().st_size for path in store.glob("shard-*"))
    assert told["bytes"]["columns"] == sum(path.stat().st_size for path in (store / "columns-1").iterdir())
    assert told["fields"]["image"]["dtype"] == "uint8"
    assert told["recipe"]["size"] == (48 if size == "48" else "keep")
    assert f'"checksum": "xxh3-128:{told["digest"]}"' in (store / "store.json").read_text("utf-8")
    assert (sum(told["sizes"].values()) == 75) if size == "keep" else told["sizes"] is None


def test_inspect_refuses_what_is_no_store(tmp_path: Path) -> None:
    """Another folder, an unfinished store: exit code 1 and one line that says which; a missing folder: exit code 2. Of
    a folder of images, the line has the command that packs them."""
    (tmp_path / "unfinished" / ".rawpack").mkdir(parents=True)
    (tmp_path / "texts").mkdir()
    save(tmp_path / "my photos" / "a" / "1.png", picture(8, 8, 1))
    for name, code, words in (
        ("missing", 2, "does not exist"),
        (".", 1, "not a rawpack store"),
        ("texts", 1, "not a rawpack store"),
        ("unfinished", 1, "did not finish"),
        ("my photos", 1, f"to make a store of its images: `rawpack pack '{tmp_path / 'my photos'}' STORE`"),
    ):
        ran = run_here("inspect", tmp_path / name)
        assert (ran.code, words in ran.err, len(ran.err.splitlines())) == (code, True, 1), ran
        assert ran.err.startswith("rawpack: ")
        assert ("to make a store" in ran.err) == (name in (".", "my photos"))


EVIL = "\x1b[31m\x07\u202e\x9b2J\r"
"""What a terminal would obey: colour, bell, right-to-left, clear screen, carriage return."""


def test_control_codes_never_reach_the_terminal(tmp_path: Path) -> None:
    """Names of classes, files and folders with control codes are shown escaped, by every command, on both streams."""
    source = tmp_path / f"source{EVIL}"
    save(source / f"class{EVIL}" / f"key{EVIL}.png", picture(16, 16, 0))
    (source / f"class{EVIL}" / f"bad{EVIL}.jpg").write_text(EVIL)
    (source / f"class{EVIL}" / f"link{EVIL}.jpg").symlink_to(f"nowhere{EVIL}")
    store = tmp_path / f"store{EVIL}"
    packing = ["pack", "--workers", 0, "--size", "keep", "--max-rejects", 2, source, store]
    commands: list[list[object]] = [
        packing, ["inspect", store], ["pack", "--size", 8, source, store],
        ["pack", "--strict", source, tmp_path / "strict"], ["inspect", source],
        ["inspect", "--grid", tmp_path / f"sheet{EVIL}.png", store],
    ]  # fmt: skip
    ran = [run_here(*words) for words in commands]
    (shard,) = store.glob("shard-*")
    flip(shard, -10)
    ran.append(run_here("inspect", "--verify", store))
    for one in ran:
        shown = (one.out + one.err).replace("\n", "")
        assert shown.isprintable(), ascii(shown)
    assert r"\x1b[31m\x07\u202e" in ran[0].out + ran[0].err
    assert r"\x1b[31m\x07\u202e" in ran[1].out
    # JSON escapes by its own rules, and gives the names back to the letter.
    told = run_here("inspect", "--json", store)
    assert told.out.replace("\n", "").isprintable()
    assert f"class{EVIL}" in json.loads(told.out)["classes"]


def test_grid_draws_a_contact_sheet(packed: Packed, tmp_path: Path) -> None:
    """--grid writes a picture of 48 samples, 8 in a row, with the images in it."""
    sheet = tmp_path / "sheet.png"
    ran = run_here("inspect", "--grid", sheet, packed("memmap", "--size", "keep"))
    assert ran.code == 0
    assert f"wrote {sheet}: 48 random samples (" in ran.err
    with Image.open(sheet) as image:
        assert image.mode == "RGB"
        width, height = image.size
        pixels = np.asarray(image)
    assert 8 * 100 <= width <= 8 * 300
    assert 6 * 100 <= height <= 6 * 400
    # Coloured pictures fill most of what is no margin or text.
    assert (np.ptp(pixels, axis=2) > 20).mean() > 0.3


# ---------------------------------------------------------------------------------------------- whether it is sound


@over_stores
def test_a_sound_store_verifies(packed: Packed, layout: str, size: str) -> None:
    """A store as it was packed: exit code 0, said so, and nothing is written."""
    store = packed(layout, "--size", size)
    before = states_of(store)
    for option in ("--verify", "--verify-quick"):
        ran = run_here("inspect", option, store)
        assert (ran.code, ran.err, ran.out.rstrip().endswith("sound")) == (0, "", True)
    assert json.loads(run_here("inspect", "--json", "--verify", store).out)["problems"] == []
    assert states_of(store) == before


@pytest.mark.parametrize("option", ["--verify", "--verify-quick", ""])
def test_what_was_cut_or_lost_is_found_and_what_was_added_is_listed(small: Path, tmp_path: Path, option: str) -> None:
    """Truncated, longer or missing files: exit code 1, the file is named, by a full check, a quick one or none. What
    the manifest does not name is listed in one line by a check, exit code 0."""
    names = sorted(path.relative_to(small).as_posix() for path in small.rglob("*") if path.is_file())
    store = shutil.copytree(small, tmp_path / "store")
    for name in (name for name in names if not name.startswith("provenance.")):
        data = (small / name).read_bytes()
        for changed in (b"", data[:-1], data + b"x", None):
            (store / name).unlink()
            if changed is not None:
                (store / name).write_bytes(changed)
            ran = run_here("inspect", *option.split(), store)
            assert (ran.code, name in ran.out + ran.err) == (1, True), (name, changed)
        (store / name).write_bytes(data)
    assert run_here("inspect", *option.split(), store).code == 0
    if not option:
        return
    (store / "shard-00099.npy").write_bytes(b"")
    (store / "thumbs").mkdir()
    (store / "latest").symlink_to("thumbs")
    ran = run_here("inspect", option, store)
    assert ran.code == 0
    assert re.search(r"\n  not in the manifest  latest, shard-00099.npy, thumbs\n", ran.out), ran.out
    told = json.loads(run_here("inspect", "--json", option, store).out)
    assert (told["problems"], told["unlisted"]) == ([], ["latest", "shard-00099.npy", "thumbs"])


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_broken_column_hides_no_other_damage(small: Path, tmp_path: Path, harm: str) -> None:
    """Where a column cannot be opened, --verify still checks the shards."""
    store = shutil.copytree(small, tmp_path / "store")
    column = store / "columns-1" / "label.npy"
    data = column.read_bytes()
    column.unlink()
    if harm == "cut":
        column.write_bytes(data[:-3])
    flip(store / "shard-00000.npy", -1)
    told = json.loads(run_here("inspect", "--verify", "--json", store).out)
    assert {one["where"] for one in told["problems"]} == {"columns-1/label.npy", "shard-00000.npy"}


@pytest.mark.parametrize("name", ["columns-7", ".rawpack/a/b", "store.json.tmp"])
def test_links_and_special_files_where_packing_makes_files_are_a_fault(small: Path, tmp_path: Path, name: str) -> None:
    """Quick or not, with what to do: they are to be removed, and are never followed."""
    path = shutil.copytree(small, tmp_path / "store") / name
    (tmp_path / "file").write_text("mine")
    path.parent.mkdir(parents=True, exist_ok=True)
    for option, plant in (("--verify", path.symlink_to), ("--verify-quick", path.hardlink_to)):
        plant(tmp_path / "file")
        told = run_here("inspect", "--json", option, tmp_path / "store")
        assert (told.code, [one["where"] for one in json.loads(told.out)["problems"]]) == (1, [name])
        assert json.loads(told.out)["repairs"]["remove"].startswith(name)
        path.unlink()
    assert run_here("inspect", "--verify-quick", tmp_path / "store").code == 0


@pytest.mark.parametrize("harm", ["gone", "cut", "changed"])
def test_what_to_do_about_a_damaged_store(packed: Packed, images: Path, tmp_path: Path, harm: str) -> None:
    """`inspect`, with and without a check, says which samples are lost; the command that it shows makes a store of all
    others, bit for bit; and `pack --restart` makes the store that was there."""
    command = ["pack", "--quiet", "--size", "16", "--shard-size", 1, images]
    sound = packed("memmap", "--size", 16)
    store = shutil.copytree(sound, tmp_path / "a store")
    reader, shard = Reader(sound), store / "shard-00001.npy"
    data, lost = shard.read_bytes(), [*range(64, 75)]
    if harm == "gone":
        shard.unlink()
    elif harm == "cut":
        shard.write_bytes(data[:-1])
    else:
        shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        lost = [74]
        assert run_here("inspect", store).code == 0  # no size has changed
    for option in ([] if harm == "changed" else [()]) + [("--verify",)]:
        ran = run_here("inspect", *option, store)
        assert ran.code == 1
        numbers = f"{lost[0]} to {lost[-1]}" if len(lost) > 1 else str(lost[0])
        assert re.search(rf"\n  lost +{len(lost)} of 75 samples: index {numbers}\n", ran.out), ran.out
        told = json.loads(run_here("inspect", "--json", *option, store).out)
        assert told["problems"][-1]["samples"] == [lost[0], lost[-1] + 1]
        assert [*told["repairs"]] == ["lost", "restore", "pack again", "keep others"]
    (shown,) = re.findall(r"keep others +`rawpack (.*)` makes a store of the others", ran.out)
    words = [str(tmp_path / "rest") if word == "NEW" else word for word in shlex.split(shown)]
    assert run_here(*words, "--quiet").code == 0
    kept, rest = [i for i in range(75) if i not in lost], Reader(tmp_path / "rest", verify=True)
    assert [*rest.column("key")] == [reader.column("key")[i] for i in kept]
    for k, i in enumerate(kept):
        np.testing.assert_array_equal(rest[k]["image"], reader[i]["image"])
    assert run_here(*command, store, "--restart").code == 0
    assert shard.read_bytes() == data


# ---------------------------------------------------------------------------------------------- doctor


def test_doctor_tells_about_the_machine() -> None:
    """`rawpack doctor` names version, decoders, the one that is used, CPUs, memory and packages; --json parses."""
    ran = run_here("doctor")
    assert (ran.code, ran.err) == (0, "")
    for words in ("jpeg decoders", "simplejpeg", ", used", "native core", "packages", "numpy", "GPU", "memory limit  "):
        assert words in ran.out
    told = json.loads(run_here("doctor", "--json").out)
    assert told["jpeg"]["used"] in {one["name"] for one in told["jpeg"]["decoders"] if one["works"]}
    assert told["packages"]["numpy"] == np.__version__
    torch = importlib.metadata.version("torch") if find_spec("torch") else None
    assert told["frameworks"]["torch"] == torch
    assert f"  torch  {torch or 'not installed'}" in re.sub(" {2,}", "  ", ran.out)
    assert all(names for names in told["extras"].values())
    assert isinstance(told["gpu"], list)
    assert told["native"]["used"] == native.state()
