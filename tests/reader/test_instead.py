"""What people write who know torchvision: its own transforms, its names, and names with a typing error."""

from __future__ import annotations

import importlib
import pickle
import sys
from types import ModuleType
from typing import Any

import pytest

from rawpack import Reader, UsageError, transforms
from rawpack.transforms import Lambda, Views


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
    (["ToTensor"], "torchvision's ToTensor", "transform=[ConvertImageDtype(), ToCHW()]"),
    (["ToTensor", "Normalize", "RandomErasing"], "Normalize", "=[Normalize(...), RandomErasing(...), ToCHW()]"),
    (["CenterCrop", "RandomRotation"], "CenterCrop, RandomRotation", "for RandomRotation, which it does not have"),
    (["RandomAffine"], "torchvision's RandomAffine", "write a function of an array (Lambda), or a class derived from"),
    (["ToPILImage"], "torchvision's ToPILImage", "not arrays: leave it out"),
    (["AutoAugment"], "torchvision's AutoAugment", "transform=[RandAugment()]"),
]


@pytest.mark.parametrize(("names", "which", "cure"), LISTS)
@pytest.mark.parametrize("workers", [0, 2])
def test_transforms_of_torchvision_are_refused_with_the_list_to_write(
    reader: Reader, names: list[str], which: str, cure: str, workers: int
) -> None:
    """Before a worker starts, whether a list is given or its Compose alone."""
    given = of_torchvision(*names)
    for transform in (given, given[0] if len(given) == 1 else tuple(given)):
        with pytest.raises(UsageError) as refused:
            reader.batches(4, transform=transform, workers=workers)
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


def test_who_wraps_one_has_said_what_it_takes(reader: Reader) -> None:
    """A Lambda, or a class of the user's that has the name of torchvision's, is called as it is."""

    class Compose:
        def __init__(self, transforms: list[Any]) -> None:
            self.transforms = transforms

        def __call__(self, image: Any) -> Any:
            return image[:8]

    own = Compose(of_torchvision("CenterCrop"))
    for step in (Lambda(own, shape=(8, 48, 3)), Lambda(of_torchvision("Grayscale")[0])):
        assert reader.batches(4, transform=[step], workers=0) is not None
    with pytest.raises(UsageError, match="must be a list of steps: pass \\[Compose\\]"):
        reader.batches(4, transform=own)  # type: ignore[arg-type]


NAMES = [
    ("RandomResizeCrop", "has no RandomResizeCrop. Did you mean 'RandomResizedCrop'?"),
    ("Centercrop", "Did you mean 'CenterCrop'?"),
    ("ToTensor", "has no ToTensor: use ConvertImageDtype() and ToCHW()"),
    ("Compose", "a plain list of steps"),
    ("RandomRotation", "torchvision's has no counterpart: write a function of an array (Lambda), or a class derived"),
    ("ToPILImage", "leave it out"),
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


@pytest.mark.parametrize("name", ["__wrapped__", "_private", "center_crop", "Zebra"])
def test_other_names_are_missing_as_in_any_module(name: str) -> None:
    """So that tools can ask a module for what it may not have."""
    assert not hasattr(transforms, name)


def test_all_names_of_the_module_can_be_had() -> None:
    """Each public name is there, and none of torchvision's that is refused is one of them."""
    module = importlib.import_module("rawpack.transforms")
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert pickle.loads(pickle.dumps(module.CenterCrop(4))).size == module.CenterCrop(4).size


@pytest.mark.parametrize(
    ("step", "given", "nearest"),
    [
        ("RandomResizedCrop", "scales", "scale"),
        ("RandomHorizontalFlip", "field", "fields"),  # whose arguments are those of the class that it derives from
        ("Normalize", "stdev", "std"),
        ("CutMix", "classes", "num_classes"),
        ("BatchLambda", "function", ""),
    ],
)
def test_a_wrong_keyword_of_a_step_names_the_nearest(step: str, given: str, nearest: str) -> None:
    """By the name of the class that was written, whichever Python runs it."""
    with pytest.raises(TypeError) as raised:
        getattr(transforms, step)(**{given: 1})
    hint = f". Did you mean {nearest!r}?" if nearest else ""
    assert str(raised.value) == f"{step}() got an unexpected keyword argument {given!r}{hint}"


def test_steps_of_users_take_what_they_take() -> None:
    """Also keywords that only their class knows."""

    class Own(transforms.Step):
        def __init__(self, **settings: int) -> None:
            self.settings = settings

    assert Own(anything=3).settings == {"anything": 3}


def test_torchvision_is_not_imported(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has none needs none, and who has it does not wait for it."""
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.delitem(sys.modules, "torchvision")
    with pytest.raises(UsageError):
        reader.batches(4, transform=of_torchvision("CenterCrop"))
    assert "torchvision" not in sys.modules
