"""`--key-pattern`: fields in the paths of images and videos.

The oracle is what the files were named after.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture, save
from running import pack, reader_of, stop_of

import rawpack_packer
from rawpack import Reader, UsageError, look
from rawpack_packer.sources import BadListingError, open_source
from rawpack_packer.sources.path_fields import path_pattern

PEOPLE = {"Ann Lee": ("smile", "great_laugh"), "bob": ("frown", "smile")}
LABELS = ("frown", "great_laugh", "smile")
FIELDS = {f"{person}/{label}_{n}.jpg": (person, label, n)
          for person, labels in PEOPLE.items() for label in labels for n in (7, 12)}  # fmt: skip
"""The key of each sample, and its fields."""


def faces(root: Path) -> Path:
    """person/label_number.jpg, of two labels each."""
    for name, (_, _, n) in FIELDS.items():
        save(root / name, picture(8, 8, n))
    return root


def fields_of(*stores: Path) -> dict[str, tuple[str, str, int]]:
    """Of each sample of some stores, by key."""
    return {
        one["key"]: (one["person"], (reader.classes or ())[one["label"]], one["n"])
        for reader in map(Reader, stores)
        for one in reader
    }


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("S{s:03d}A{label:03d}.avi", "x/y/S001A060.avi", {"s": 1, "label": 60}),
        ("S{s:03d}A{label:03d}.avi", "S0001A060.avi", None),
        ("{label}{n:d}.jpg", "cat007.jpg", {"label": "cat", "n": 7}),
        ("{n:d}.png", "9999999999999999999.png", None),
        ("{x:f}.png", "-0.25.png", {"x": -0.25}),
        ("{a}/{}/{b}.jpg", "p/q/r/s.jpg", {"a": "q", "b": "s"}),
        ("{{{a}}}.jpg", "{x}.jpg", {"a": "x"}),
        ("{a}.j+", "x.jj", None),
    ],
)
def test_a_pattern_finds_what_its_words_say(pattern: str, path: str, found: dict[str, Any] | None) -> None:
    """Literal text is literal; a number has the digits that it says; the end of the path counts, folder by folder."""
    assert path_pattern(pattern).match(path) == found


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{a}{b}", "{b} comes right after another text"),
        ("{a:d}{b:02d}", "{b} comes right after a number of any length"),
        ("{a}-{a}", "{a} occurs twice: {} stands for a text that is not stored"),
        ("{a:x}", "{a:x}: a field is {name}, {name:d}, {name:03d} or {name:f}"),
        ("{key}", "every sample has a field 'key' already"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        path_pattern(pattern)
    assert words in str(caught.value)


def test_no_path_takes_long() -> None:
    """The worst pattern that can be written comes to an end against names that match it nearly everywhere: trying all
    ways in which they could match would take longer than a test may."""
    pattern = path_pattern("/".join(["{}-{}-{}{n:d}x"] + ["{}-{}-{}x"] * 3))
    assert pattern.match("/".join(["-1" * 127] * 4)) is None
    assert pattern.match("/".join(["-" * 100_000] * 4)) is None
    assert pattern.match("/" * 100_000) is None


PATTERN = "{person}/{label}_{n:d}.jpg"


def test_numbers_stay_numbers_and_folders_stay_classes(tmp_path: Path) -> None:
    """A label of digits has no classes; without a label in the pattern, folders are the classes as ever."""
    save(tmp_path / "in" / "a" / "S003A011.jpg", picture(8, 8, 1))
    save(tmp_path / "in" / "b" / "S004A012.jpg", picture(8, 8, 2))
    reader = Reader(pack(tmp_path / "in", tmp_path / "s", "--size", 8, "--key-pattern", "S{s:03d}A{label:03d}.jpg"))
    assert reader.classes is None
    assert [(reader[i]["s"], reader[i]["label"]) for i in range(2)] == [(3, 11), (4, 12)]
    reader = Reader(pack(tmp_path / "in", tmp_path / "t", "--size", 8, "--key-pattern", "S{s:03d}A{a:f}.jpg"))
    assert reader.classes == ("a", "b")
    assert [(reader[i]["label"], reader[i]["a"]) for i in range(2)] == [(0, 11.0), (1, 12.0)]


def test_a_listing_has_both(tmp_path: Path) -> None:
    """Columns and the pattern's fields go together, whatever the keys are; a name that both have is refused."""
    listing = faces(tmp_path / "faces") / "list.csv"
    listing.write_text("path,score,id\n" + "".join(f"{key},{k},k{k}\n" for k, key in enumerate(FIELDS)))
    store = pack(listing, tmp_path / "s", "--size", 8, "--key-column", "id", "--key-pattern", PATTERN)
    assert Reader(store).column("score").tolist() == [*range(8)]
    assert fields_of(store) == {f"k{k}": one for k, one in enumerate(FIELDS.values())}
    assert "has a field 'score' already" in stop_of("pack", "--key-pattern", "{score}.jpg", listing, tmp_path / "t")


def test_paths_that_do_not_match_are_faults(tmp_path: Path) -> None:
    """The first one is named, in a listing by its line, and nothing is written; the Python call names its keyword."""
    faces(tmp_path / "in")
    for k in range(3):
        save(tmp_path / "in" / "cat" / f"odd{k}.jpg", picture(8, 8, k))
    said = stop_of("pack", "--key-pattern", PATTERN, tmp_path / "in", tmp_path / "s")
    assert said.count("does not match --key-pattern") == 1
    assert "cat/odd0.jpg does not match" in said
    with pytest.raises(UsageError, match=re.escape(f"does not match key_pattern={PATTERN!r}")):
        rawpack_packer.pack(tmp_path / "in", tmp_path / "s", key_pattern=PATTERN)
    assert not (tmp_path / "s").exists()
    (tmp_path / "in" / "list.txt").write_text("bob/smile_7.jpg\n\ncat/odd0.jpg\n")
    with pytest.raises(BadListingError, match=r"line 3: cat/odd0\.jpg does not match --key-pattern"):
        open_source(tmp_path / "in" / "list.txt", key_pattern=PATTERN)


def test_another_pattern_is_another_source(tmp_path: Path) -> None:
    """Even with the same fields, what was packed by another pattern is not complete."""
    save(tmp_path / "in" / "1_2.jpg", picture(8, 8, 1))
    pack(tmp_path / "in", tmp_path / "s", "--size", 8, "--key-pattern", "{a:d}_{b:d}.jpg")
    said = stop_of("pack", "--size", 8, "--key-pattern", "{b:d}_{a:d}.jpg", tmp_path / "in", tmp_path / "s")
    assert "the options of the source differ" in said


def test_splits_and_appends_keep_the_fields(tmp_path: Path) -> None:
    """--holdout draws by the classes of the pattern, and an append finds the same fields."""
    faces(tmp_path / "in")
    sets, bob = tmp_path / "sets", tmp_path / "in" / "bob"
    pack(tmp_path / "in", sets, "--size", 8, "--key-pattern", PATTERN, "--holdout", "val=1")
    assert fields_of(sets / "train", sets / "val") == FIELDS
    assert sorted(Reader(sets / "val").column("label").tolist()) == [0, 1, 2]
    store = pack(bob, tmp_path / "s", "--size", 8, "--key-pattern", "{label}_{n:d}.jpg")
    save(bob / "awe_1.jpg", picture(8, 8, 1))
    rawpack_packer.append(bob, store, key_pattern="{label}_{n:d}.jpg", skip_existing=True, workers=0)
    reader = Reader(store)
    assert reader.classes == ("frown", "smile", "awe")
    assert (reader[4]["key"], reader[4]["label"], reader[4]["n"]) == ("awe_1.jpg", 2, 1)


def test_frames_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Where a pattern names `frame`, frame 10 comes after frame 2 of its video, whatever order its files have; a part
    of the source holds what belongs there; and folders that are classes keep their order."""
    keys = [f"{label}/v{v}/frame_{k}.png" for label, v in (("c10", 1), ("c2", 0), ("c2", 2)) for k in range(12)]
    with zipfile.ZipFile(tmp_path / "frames.zip", "w") as file:
        for key in sorted(keys):
            file.writestr(key, encoded(picture(8, 8, 0)))
    source = open_source(tmp_path / "frames.zip", key_pattern="{label}/v{video:d}/frame_{frame:d}.png")
    assert [source[i].key for i in range(36)] == keys
    assert [source.part(max(0, i - 3), i + 1).key(min(i, 3)) for i in range(36)] == keys
    assert source.info.classes == ("c10", "c2")
    assert [int(np.asarray(source[i].fields["label"])) for i in range(36)] == 12 * [0] + 24 * [1]
    reader = reader_of(source, tmp_path / "store", size=8, workers=0)
    assert (len(reader.clips(frames=4)), look(reader.clips(frames=12)).left_out) == (9, 0)
