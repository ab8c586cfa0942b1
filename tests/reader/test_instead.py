"""What people write who know torchvision: its own transforms, its names, and names with a typing error."""

from __future__ import annotations

from typing import Any

import pytest

from rawpack import Reader, UsageError, transforms
from rawpack.transforms import Views


def of_torchvision(*names: str) -> list[Any]:
    """Objects of such classes, which take no array. `Compose` holds what comes after it."""

    def call(self: object, image: object) -> None:
        raise TypeError(f"img should be PIL Image. Got {type(image)}")

    where = {"__module__": "torchvision.transforms.v2._container", "__call__": call}
    made = list[Any]()
    for name in reversed(names):
        one = type(name, (), where)()
        if name == "Compose":
            one.transforms, made = made, []
        made.insert(0, one)
    return made


LISTS = [
    (["RandomResizedCrop"], "has torchvision's RandomResizedCrop, for PIL", "transform=[RandomResizedCrop(...)]"),
    (["Compose", "Resize", "CenterCrop"], "torchvision's Compose, Resize, Center", "=[Resize(...), CenterCrop(...)]"),
    (["ToTensor", "Normalize", "RandomErasing"], "Normalize", "=[Normalize(...), RandomErasing(...), ToCHW()]"),
    (["CenterCrop", "RandomRotation"], "CenterCrop, RandomRotation", "for RandomRotation, which it does not have"),
    (["ToPILImage"], "torchvision's ToPILImage", "not arrays: leave it out"),
    (["AutoAugment"], "torchvision's AutoAugment", "transform=[RandAugment()]"),
]


@pytest.mark.parametrize(("names", "which", "cure"), LISTS)
def test_transforms_of_torchvision_are_refused_with_the_list_to_write(
    reader: Reader, names: list[str], which: str, cure: str
) -> None:
    """Before a worker starts, whether a list is given or its Compose alone."""
    given = of_torchvision(*names)
    for transform in (given, given[0] if len(given) == 1 else tuple(given)):
        with pytest.raises(UsageError) as refused:
            reader.batches(4, transform=transform, workers=2)
        assert which in str(refused.value)
        assert cure in str(refused.value)
        assert "\n" not in str(refused.value)


def test_functions_classes_and_views_of_torchvision_too(reader: Reader) -> None:
    """A function of it, a class in place of an object, and steps of Views."""

    def hflip(image: object) -> None: ...

    hflip.__module__ = "torchvision.transforms.functional"
    with pytest.raises(UsageError, match="torchvision's hflip"):
        reader.batches(4, transform=[hflip])
    with pytest.raises(UsageError, match="torchvision's CenterCrop"):
        reader.batches(4, transform=[type(of_torchvision("CenterCrop")[0])])
    with pytest.raises(UsageError, match="torchvision's RandomCrop"):
        Views(2, of_torchvision("RandomCrop"))


NAMES = [
    ("RandomResizeCrop", "has no RandomResizeCrop. Did you mean 'RandomResizedCrop'?"),
    ("ToTensor", "has no ToTensor: use ConvertImageDtype() and ToCHW()"),
    ("RandomRotation", "torchvision's has no counterpart: write a function of an array (Lambda), or a class derived"),
]


@pytest.mark.parametrize(("name", "words"), NAMES)
def test_names_that_are_not_here_say_what_is(name: str, words: str) -> None:
    """By attribute, and by `from rawpack.transforms import`, which shows nothing of an AttributeError."""
    with pytest.raises(UsageError) as by_attribute:
        getattr(transforms, name)
    assert words in str(by_attribute.value)
    with pytest.raises(UsageError) as by_import:
        exec(f"from rawpack.transforms import {name}", {})  # the statement that people write
    assert str(by_import.value) == str(by_attribute.value)


def test_a_wrong_keyword_of_a_step_names_the_nearest() -> None:
    """By the name of the class that was written, whose arguments are those of the class that it derives from."""
    words = r"^RandomHorizontalFlip\(\) got an unexpected keyword argument 'field'. Did you mean 'fields'\?$"
    with pytest.raises(TypeError, match=words):
        transforms.RandomHorizontalFlip(field=1)  # type: ignore[call-arg]
