"""Pascal VOC's folders: boxes of XML files, lists of splits, palette masks. The oracle is arithmetic, and Pillow."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from folders import rejects_of
from pictures import picture, save
from PIL import Image
from running import pack, run_here, stop_of

from rawpack import Reader, UsageError
from rawpack.errors import DecodeError
from rawpack_packer.sources import open_source

HEIGHT, WIDTH = 40, 60
PERSON = """<object><name>person</name><pose>Left</pose><truncated>1</truncated><difficult>0</difficult>
<bndbox><xmin>1</xmin><ymin>3</ymin><xmax>60</xmax><ymax>20</ymax></bndbox>
<part><name>head</name><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></part></object>"""
DOG = """<object><name>dog</name><pose>Unspecified</pose><difficult>1</difficult>
<bndbox><xmax>20.5</xmax><xmin>10</xmin><ymax>30</ymax><ymin>30</ymin></bndbox></object>"""


def xml(*objects: str, size: tuple[int, int] = (HEIGHT, WIDTH)) -> str:
    """An annotation."""
    sides = f"<size><width>{size[1]}</width><height>{size[0]}</height><depth>3</depth></size>"
    return f'<?xml version="1.0"?>\n<annotation><filename>x.jpg</filename>{sides}\n{"".join(objects)}</annotation>'


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """VOCdevkit/VOC2012 with three images; one has no XML file, another no masks."""
    root = tmp_path / "VOCdevkit/VOC2012"
    for folder in ("Annotations", "ImageSets/Main", "ImageSets/Segmentation", "SegmentationClass"):
        (root / folder).mkdir(parents=True)
    for i, name in enumerate(("2007_000027", "2007_000032", "2007_000033")):
        save(root / f"JPEGImages/{name}.jpg", picture(HEIGHT, WIDTH, i))
    (root / "Annotations/2007_000027.xml").write_text(xml(PERSON, DOG))
    (root / "Annotations/2007_000032.xml").write_text(xml())
    for i, name in enumerate(("2007_000027", "2007_000033")):
        mask = Image.fromarray(np.full((HEIGHT, WIDTH), 0, np.uint8), "P")
        mask.putpalette([0, 0, 0, 128, 0, 0] * 128)
        mask.paste(15 + i, (10, 5, 30, 20))
        mask.paste(255, (30, 5, 32, 20))
        mask.save(root / f"SegmentationClass/{name}.png")
    (root / "ImageSets/Main/train.txt").write_text("2007_000027\n")
    (root / "ImageSets/Main/val.txt").write_text("2007_000033\n2007_000032\n")
    (root / "ImageSets/Main/trainval.txt").write_text("2007_000027\n2007_000032\n2007_000033\n")
    (root / "ImageSets/Main/person_train.txt").write_text("2007_000027  1\n")
    (root / "ImageSets/Segmentation/val.txt").write_text("2007_000033\n")
    return root


def test_splits_are_the_lists_of_imagesets(voc: Path, tmp_path: Path) -> None:
    """A list has its own order; trainval is one."""
    assert run_here("pack", "--workers", 0, "--size", 16, "--splits", "train,val", voc, tmp_path / "s").code == 0
    val = Reader(tmp_path / "s/val")
    assert [val[i]["key"] for i in range(2)] == ["JPEGImages/2007_000033.jpg", "JPEGImages/2007_000032.jpg"]
    assert val.classes == Reader(tmp_path / "s/train").classes
    assert len(open_source(voc / "trainval")) == 3
    assert "'minival'" in stop_of("pack", "--splits", "train,minival", voc, tmp_path / "t")


def test_palette_masks_keep_their_numbers(voc: Path, tmp_path: Path) -> None:
    """The values are the palette's indices, 255 too; only images with masks are taken, or those of the list in
    ImageSets/Segmentation."""
    there = pack(voc, tmp_path / "s", "--source", "voc", "--size", "keep", "--field", "seg=SegmentationClass:mask")
    reader = Reader(there)
    assert len(reader) == 2
    for i, name in enumerate(("2007_000027", "2007_000033")):
        expected = np.array(Image.open(voc / f"SegmentationClass/{name}.png"))
        assert set(np.unique(expected)) == {0, 15 + i, 255}
        assert np.array_equal(reader[i]["seg"][..., 0], expected)
    val = open_source(voc / "val", fields=["SegmentationClass:mask"])
    assert [val.key(i) for i in range(len(val))] == ["JPEGImages/2007_000033.jpg"]
    (voc / "SegmentationClass/2007_000033.png").unlink()
    with pytest.raises(UsageError, match=r"SegmentationClass/2007_000033.png: there is no such mask"):
        open_source(voc / "val", fields={"SegmentationClass": "mask"})
    with pytest.raises(UsageError, match="such as SegmentationClass:mask"):
        open_source(voc / "val", fields=["nothing:mask"])


def test_other_names_are_sorted_and_the_same_in_all_lists(voc: Path) -> None:
    """Also in a list whose own are all of VOC's 20."""
    for name, what in (("2007_000027", "zebra"), ("2007_000032", "dog")):
        (voc / f"Annotations/{name}.xml").write_text(xml(DOG.replace("dog", what)))
    assert open_source(voc / "train").info.classes == open_source(voc / "val").info.classes == ("dog", "zebra")
    assert open_source(voc / "train").info.empty_classes == ("dog",)
    (voc / "names").write_text("zebra\nyak\n")
    assert open_source(voc / "train", classes=voc / "names").info.classes == ("zebra", "yak")
    with pytest.raises(UsageError, match=r"Annotations/2007_000032.xml is 'dog'; it is none of the"):
        open_source(voc / "val", classes=voc / "names")


def test_an_xml_file_is_that_of_the_image_that_it_names(voc: Path) -> None:
    save(voc / "JPEGImages/2007_000027.png", picture(HEIGHT, WIDTH, 9))
    (voc / "Annotations/2007_000027.xml").write_text(xml(DOG).replace("x.jpg", "2007_000027.jpg"))
    source = open_source(voc, "voc")
    found = {source.key(i): source[i].fields["boxes"] for i in range(len(source))}  # type: ignore[call-overload]
    assert [len(found[f"JPEGImages/2007_000027.{end}"].rows) for end in ("jpg", "png")] == [1, 0]
    with pytest.raises(UsageError, match=r"line 1: 2007_000027 may be 2007_000027\.jpg, 2007_000027\.png: take out"):
        open_source(voc / "train")
    (voc / "Annotations/2007_000027.xml").write_text(xml(DOG))
    (voc / "Annotations/2007_000032.xml").write_text(xml(DOG))
    source = open_source(voc, "voc")
    for i in (0, 1):
        with pytest.raises(DecodeError, match=r"27\.xml: it may be that of .*, and names the image 'x\.jpg'"):
            source[i]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (xml(DOG.replace("<xmin>10", "<xmin>ten")), "object 1: xmin 'ten' is not a number"),
        (xml(DOG.replace("<xmin>10", "<xmin>30")), "bndbox (30, 30, 20.5, 30): its end is before its beginning"),
        (xml(DOG)[:-20], "is not XML: "),
        ('<!DOCTYPE annotation SYSTEM "http://localhost/x.dtd">' + xml()[22:], "has a DOCTYPE"),
        ('<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><annotation>&z;</annotation>', "has a DOCTYPE"),
    ],
)
def test_what_cannot_be_taken_is_named_with_its_file(text: str, words: str, voc: Path) -> None:
    """Where all annotations are such, the set is refused; else each is a reject."""
    (voc / "Annotations/2007_000027.xml").write_text(text)
    said = re.escape("Annotations/2007_000027.xml: ") + ".*" + re.escape(words)
    with pytest.raises(UsageError, match=said):
        open_source(voc / "train")
    (voc / "Annotations/2007_000033.xml").write_text(xml(DOG))
    (voc / "ImageSets/Main/two.txt").write_text("2007_000027\n2007_000033\n")
    source = open_source(voc / "two")
    with pytest.raises(DecodeError, match=f"bad_field: boxes: {said}"):
        source[0]
    assert source[1].fields["difficult"].tolist() == [1]


def test_elements_may_be_nested_without_end(voc: Path) -> None:
    """A tree of many more levels than a stack can hold is read, and freed."""
    levels = 10**5
    annotation = xml(DOG)[: -len("</annotation>")] + "<a>" * levels + "</a>" * levels + "</annotation>"
    (voc / "Annotations/2007_000027.xml").write_text(annotation)
    assert open_source(voc / "train")[0].fields["difficult"].tolist() == [1]


def test_a_list_names_its_own_lines(voc: Path) -> None:
    (voc / "ImageSets/Main/val.txt").write_text("2007_000033\n\nnothing\n2007_000033\n")
    with pytest.raises(UsageError, match=r"ImageSets/Main/val.txt, line 3: there is no image nothing in JPEGImages"):
        open_source(voc / "val")
    (voc / "ImageSets/Main/val.txt").write_text("2007_000033\n\n2007_000033\n")
    with pytest.raises(UsageError, match=r"line 3: 2007_000033 is on line 1 already"):
        open_source(voc / "val")


def test_an_image_of_another_size_is_rejected(voc: Path, tmp_path: Path) -> None:
    """Boxes that were drawn in an image of another size are not stored; a size of 0 says nothing."""
    (voc / "Annotations/2007_000027.xml").write_text(xml(DOG, size=(WIDTH, HEIGHT)))
    pack(voc, tmp_path / "s", "--max-rejects", 1, "--source", "voc")
    assert [one["reason"] for one in rejects_of(tmp_path / "s")] == ["bad_field"]
    (voc / "Annotations/2007_000027.xml").write_text(xml(DOG, size=(0, 0)))
    assert len(Reader(pack(voc / "train", tmp_path / "t", "--size", 16))) == 1
