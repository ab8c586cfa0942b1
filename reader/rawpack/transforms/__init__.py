"""Transforms: what workers do to samples before they are in a batch.

from rawpack.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop, ToCHW

reader.batches(256, transform=[RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std), ToCHW()])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawpack.transforms.color import ColorJitter
    from rawpack.transforms.crops import CenterCrop, RandomCrop, RandomResizedCrop
    from rawpack.transforms.erasing import RandomErasing
    from rawpack.transforms.flips import RandomHorizontalFlip, RandomVerticalFlip
    from rawpack.transforms.functions import BatchLambda, Lambda
    from rawpack.transforms.mixup import CutMix, MixUp, OneHot
    from rawpack.transforms.randaugment import RandAugment
    from rawpack.transforms.randomness import Random
    from rawpack.transforms.resizing import Fit, Resize
    from rawpack.transforms.samples import SampleLambda
    from rawpack.transforms.step import BatchStep, CropStep, Move, Spec, Step
    from rawpack.transforms.texts import OneText
    from rawpack.transforms.values import ConvertImageDtype, Normalize, ToCHW
    from rawpack.transforms.views import Views
    from rawpack.transforms.with_albumentations import Albumentations
    from rawpack.transforms.with_torchvision import Torchvision

__all__ = [
    "Albumentations",
    "BatchLambda",
    "BatchStep",
    "CenterCrop",
    "ColorJitter",
    "ConvertImageDtype",
    "CropStep",
    "CutMix",
    "Fit",
    "Lambda",
    "MixUp",
    "Move",
    "Normalize",
    "OneHot",
    "OneText",
    "RandAugment",
    "Random",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "SampleLambda",
    "Spec",
    "Step",
    "ToCHW",
    "Torchvision",
    "Views",
]

_MODULES = {
    "color": "ColorJitter",
    "crops": "CenterCrop, RandomCrop, RandomResizedCrop",
    "erasing": "RandomErasing",
    "flips": "RandomHorizontalFlip, RandomVerticalFlip",
    "functions": "BatchLambda, Lambda",
    "mixup": "CutMix, MixUp, OneHot",
    "randaugment": "RandAugment",
    "randomness": "Random",
    "resizing": "Fit, Resize",
    "samples": "SampleLambda",
    "step": "BatchStep, CropStep, Move, Spec, Step",
    "texts": "OneText",
    "values": "ConvertImageDtype, Normalize, ToCHW",
    "views": "Views",
    "with_albumentations": "Albumentations",
    "with_torchvision": "Torchvision",
}
"""Module -> its names, which are loaded when they are asked for: packing needs few of them."""
_NAMES = {name: module for module, names in _MODULES.items() for name in names.split(", ")}

if not TYPE_CHECKING:  # type checkers know all names

    def __getattr__(name: str) -> Any:
        """A step; or what to write instead of a name of torchvision, or of one that is misspelled. That is no
        AttributeError, of which `from rawpack.transforms import ...` would show nothing."""
        if name in _NAMES:
            value = globals()[name] = getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
            return value
        from rawpack.errors import UsageError
        from rawpack.system.user import did_you_mean
        from rawpack.transforms.instead import of_name

        instead = of_name(name)
        hint = "" if instead is None else f": {instead}"
        if instead is None and name[:1].isupper():
            hint = did_you_mean(name, __all__)
        if not hint:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise UsageError(f"rawpack.transforms has no {name}{hint}")

    def __dir__() -> list[str]:
        return [*{*globals(), *__all__}]
