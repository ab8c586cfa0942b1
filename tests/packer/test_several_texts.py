"""A sample may have a list of texts, such as all captions of an image: in each format, through everything that is done
to a store, in batches, and with one of them drawn."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import same_distribution
from pictures import picture, save
from readers_by_docs import StoreByDocs
from running import reader_of, run_here

import rawpack
from rawpack import DamagedStoreError, Reader, UsageError
from rawpack.transforms import CenterCrop, OneText, RandomCrop
from rawpack_packer.sources import open_source

CAPTIONS = [["a cat", 'ünï "x"\n\u2603 \U0001f600'], [], ["one"], ["b", "", "c" * 500], ["last\0nul"], ["x"] * 7]
FORMATS = ("memmap", "hdf5", "lmdb")


def listing(root: Path, captions: list[Any], name: str = "list.jsonl", first: int = 0) -> Path:
    """Images with their captions."""
    lines = []
    for k, texts in enumerate(captions, first):
        save(root / f"{k}.png", picture(16, 24, k))
        lines.append(json.dumps({"path": f"{k}.png", "n": k, "captions": texts}) + "\n")
    (root / name).write_text("".join(lines))
    return root / name


def packed(root: Path, captions: list[Any] = CAPTIONS, format: str = "memmap") -> Path:
    rawpack.pack(listing(root, captions), root / format, format=format, size="keep", workers=0)
    return root / format


def captions_of(store: Path) -> list[list[str]]:
    return [sample.others["captions"] for sample in StoreByDocs(store).samples()]


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_holds_all_texts_of_a_sample(format: str, tmp_path: Path) -> None:
    """None, one or many texts, with any characters: by the format's pages, in samples, columns, batches and
    conditions."""
    store = packed(tmp_path, format=format)
    assert captions_of(store) == CAPTIONS
    reader = Reader(store, verify=True)
    assert [sample["captions"] for sample in reader] == CAPTIONS
    assert list(reader.column("captions")) == CAPTIONS
    batches = reader.batches(4, fields=["n", "captions"], workers=int(format == "memmap"))  # columns are not in shards
    assert [batch["captions"] for batch in batches] == [CAPTIONS[:4], CAPTIONS[4:]]
    assert reader.select(where="len(captions) > 2").column("n").tolist() == [3, 5]
    assert "captions" not in next(iter(reader.batches(2, fields=None, image_size=8, workers=0)))
    assert run_here("inspect", "--verify", store).code == 0
    with pytest.raises(UsageError, match="ragged field"):
        reader.select(where="captions == 'x'")


def test_what_is_done_to_a_store_keeps_all_texts(tmp_path: Path) -> None:
    """Appends, conversions, subsets, merges and exports, which are packed again; in Parquet, they are lists for other
    programs, too."""
    parquet = pytest.importorskip("pyarrow.parquet")
    store = packed(tmp_path)
    rawpack.append(listing(tmp_path, [["new"], []], "more.jsonl", first=6), store, workers=0)
    every = [*CAPTIONS, ["new"], []]
    assert captions_of(store) == every
    rawpack.convert(store, tmp_path / "to", format="hdf5", workers=0)
    assert captions_of(tmp_path / "to") == every
    rawpack.subset(store, tmp_path / "some", where="len(captions) == 0", workers=0)
    assert captions_of(tmp_path / "some") == [[], []]
    rawpack.merge([store, tmp_path / "to"], tmp_path / "both", prefix="names", format="memmap", workers=0)
    assert captions_of(tmp_path / "both") == every * 2
    for to in ("files", "webdataset", "parquet"):
        rawpack.export(store, tmp_path / to, to=to, workers=0)
    features = json.loads(parquet.read_schema(next((tmp_path / "parquet").rglob("*.parquet"))).metadata[b"huggingface"])
    wanted = {"feature": {"dtype": "string", "_type": "Value"}, "_type": "Sequence"}
    assert features["info"]["features"]["captions"] == wanted
    exported: dict[str, dict[str, Any]] = {
        "files/metadata.jsonl": {"key_column": "key"},
        "webdataset": {"fields": {"json.captions": "str[?]"}},
        "parquet": {},
    }
    for source, options in exported.items():
        rawpack.pack(tmp_path / source, tmp_path / source[0], size="keep", workers=0, **options)
        assert captions_of(tmp_path / source[0]) == every, source


def test_new_captions_for_a_store(tmp_path: Path) -> None:
    """`rawpack relabel` adds lists of texts; the store then names the feature, which older readers do not know."""
    store = tmp_path / "store"
    rawpack.pack([{"image": picture(8, 8, k)} for k in range(3)], store, workers=0)
    new = tmp_path / "new.jsonl"
    keys = [sample["key"] for sample in Reader(store)]
    new.write_text("".join(json.dumps({"key": key, "captions": [key, "ü"]}) + "\n" for key in keys))
    assert "features" not in json.loads((store / "store.json").read_text())
    rawpack.relabel(store, new)
    assert captions_of(store) == [[key, "ü"] for key in keys]
    assert json.loads((store / "store.json").read_text())["features"] == ["several-texts"]


def test_lists_of_texts_from_python_csv_and_json(tmp_path: Path) -> None:
    """A list of str of a dataset, a JSON array in a cell of a CSV, and a declared field whose first list is empty."""
    images = [picture(8, 8, k) for k in range(3)]
    texts = [["a", "b"], [], ["ü"]]
    rawpack.pack([{"image": one, "t": t} for one, t in zip(images, texts, strict=True)], tmp_path / "a", workers=0)
    rawpack.pack({"image": np.stack(images), "t": texts[::-1]}, tmp_path / "b", workers=0)
    assert [list(Reader(tmp_path / one).column("t")) for one in "ab"] == [texts, texts[::-1]]
    declared = [{"image": images[k], "t": texts[1 + k]} for k in range(2)]
    with pytest.raises(UsageError, match=r"or 'str\[\?\]'"):
        rawpack.pack(declared, tmp_path / "c", workers=0)
    rawpack.pack(declared, tmp_path / "c", fields={"t": "str[?]"}, workers=0)
    assert list(Reader(tmp_path / "c").column("t")) == texts[1:]
    with (tmp_path / "list.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "raw"])
        for k, one in enumerate(texts):
            rows.writerow([save(tmp_path / f"{k}.png", images[k]).name, json.dumps(one) if k != 1 else ""])
    rawpack.pack(tmp_path / "list.csv", tmp_path / "d", workers=0)
    assert list(Reader(tmp_path / "d").column("raw")) == texts


@pytest.mark.parametrize("value", [None, "a", ["a", None], [["a"]]])
def test_a_sample_without_a_list_of_texts_is_rejected(value: Any, tmp_path: Path) -> None:
    data = [{"image": picture(8, 8, k), "t": t} for k, t in enumerate([["a"], value])]
    rawpack.pack(data, tmp_path / "store", workers=0, max_rejects=1)
    (reject,) = map(json.loads, (tmp_path / "store/rejects.jsonl").read_text().splitlines())
    assert reject["reason"] == "bad_field"
    assert list(Reader(tmp_path / "store").column("t")) == [["a"]]


# ---------------------------------------------------------------------------------------------- one of them


def drawn(reader: Reader, epoch: int, **options: Any) -> dict[int, str]:
    """What is drawn for each sample in an epoch."""
    size = options.pop("batch_size", 3)
    batches = reader.batches(size, fields=["n", "captions"], transform=[OneText("captions")], **options)
    batches.set_epoch(epoch)
    return {int(n): text for batch in batches for n, text in zip(batch["n"], batch["captions"], strict=True)}


def test_a_draw_depends_on_seed_epoch_and_sample_only(tmp_path: Path) -> None:
    """Not on batches, order, workers, or what else is drawn; a sample without texts has the empty one."""
    reader = Reader(packed(tmp_path))
    first = drawn(reader, 0, workers=0)
    assert first[1] == ""
    assert all(first[n] in texts for n, texts in enumerate(CAPTIONS) if texts)
    for options in ({"batch_size": 1}, {"shuffle": True}, {"workers": 2}):
        assert drawn(reader, 0, **{"workers": 0, **options}) == first
    epochs = [drawn(reader, epoch, workers=0) for epoch in range(8)]
    assert len({tuple(one.items()) for one in epochs}) > 1
    assert len({tuple(drawn(reader, 0, seed=seed, workers=0).items()) for seed in range(8)}) > 1
    both = reader.batches(6, transform=[RandomCrop(8), OneText("captions")], fields=["image", "captions"], workers=0)
    alone = reader.batches(6, transform=[RandomCrop(8)], fields=["image"], workers=0)
    batch, other = next(iter(both)), next(iter(alone))
    assert batch["captions"] == list(first.values())
    np.testing.assert_array_equal(batch["image"], other["image"])


def test_all_texts_are_drawn_alike(tmp_path: Path) -> None:
    """Over many samples of an epoch, and over many epochs of a sample."""
    one = {"image": np.zeros((2, 2, 3), np.uint8), "captions": ["0", "1", "2", "3", "4"]}
    reader = reader_of([{**one, "n": k} for k in range(1000)], tmp_path / "store", workers=0)
    once = [int(text) for text in drawn(reader, 0, workers=0, batch_size=500).values()]
    batches = reader.batches(1, fields=["captions"], transform=[OneText("captions")], workers=0, sampler=[7])
    often = []
    for epoch in range(300):
        batches.set_epoch(epoch)
        often += [int(batch["captions"][0]) for batch in batches]
    for found in (once, often):
        assert set(found) == set(range(5))
        assert same_distribution(found, np.arange(5).repeat(400)), Counter(found)


def test_for_validation_a_text_is_fixed(tmp_path: Path) -> None:
    """`at=` takes the same one always, and the last one of samples that have fewer."""
    reader = Reader(packed(tmp_path))
    for at, wanted in ((0, ["a cat", "", "one", "b"]), (2, [CAPTIONS[0][1], "", "one", "c" * 500])):
        steps = [CenterCrop(8), OneText("captions", at=at)]
        batches = reader.batches(4, fields=["captions", "image"], transform=steps, workers=0)
        for _ in range(2):
            assert next(iter(batches))["captions"] == wanted


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    """A field that is not in the batch, or has no lists of texts."""
    reader = Reader(packed(tmp_path))
    for name, said in (("captions", "the batch has no field 'captions'.*in fields="), ("n", "and no list of texts")):
        with pytest.raises(UsageError, match=said):
            reader.batches(2, fields=["n"], transform=[OneText(name)])


@pytest.mark.parametrize("bad", [b'["abc" ', b"[12345]", b'["ab\xff"]'])
def test_a_column_that_is_not_json_is_damage(bad: bytes, tmp_path: Path) -> None:
    """The error names the field and the row."""
    store = packed(tmp_path, [["abc"]])
    column = store / "columns-1/captions.npy"
    column.write_bytes(column.read_bytes().replace(b'["abc"]', bad))
    with pytest.raises(DamagedStoreError, match="captions of row 0 is not a list of texts"):
        Reader(store)[0]


# ---------------------------------------------------------------------------------------------- JSON


def test_a_json_list_is_a_listing(tmp_path: Path) -> None:
    """However it is laid out; faults name the line on which the object begins."""
    rows = [{"path": save(tmp_path / f"{k}.png", picture(8, 8, k)).name, "n": k, "t": ["x"] * k} for k in range(3)]
    for k, indent in enumerate((None, 1, 4)):
        file = tmp_path / f"list{k}.json"
        file.write_text(f"  \n{json.dumps(rows, indent=indent)}\n")
        reader = reader_of(file, tmp_path / f"store{k}", workers=0)
        assert (list(reader.column("t")), reader.column("n").tolist()) == ([["x"] * k for k in range(3)], [0, 1, 2])
    save(tmp_path / "more.png", picture(8, 8, 3))
    file.write_text(json.dumps([*rows, {"path": "more.png", "n": "?", "t": []}], indent=1))
    start = max(k for k, line in enumerate(file.read_text().splitlines(), 1) if line == " {")
    ran = run_here("pack", file, tmp_path / "bad")
    assert (ran.code, f"line {start}, column (n)" in ran.err) == (1, True), ran.err


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        ("0.png,a,x\n0.png,a,x\n", None),
        ("0.png,a,x\n0.png,a,y\n", ["x", "y"]),
    ],
)
def test_images_that_are_there_twice_are_still_a_fault(tmp_path: Path, rows: str, texts: list[str] | None) -> None:
    """With the same text again: that is no further caption. With another text, it is one."""
    for i in range(2):
        save(tmp_path / f"{i}.png", picture(8, 8, i))
    file = tmp_path / "results.csv"
    file.write_text(f"path,label,text\n{rows}")
    if texts:
        assert open_source(file)[0].fields["text"] == texts
        return
    with pytest.raises(UsageError, match=r"is on line 2 already, and keys must be unique"):
        open_source(file)
