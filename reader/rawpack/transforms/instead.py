"""What to write instead of torchvision's transforms, which take PIL images or tensors. It is never imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rawpack.errors import UsageError

_FLOATS, _FIRST = "ConvertImageDtype()", "ToCHW()"
_STEPS = {
    "ToTensor": (_FLOATS, _FIRST),
    "ToDtype": (_FLOATS,),
    **dict.fromkeys(("PILToTensor", "ToImage"), (_FIRST,)),
    **dict.fromkeys(("AutoAugment", "TrivialAugmentWide", "AugMix"), ("RandAugment()",)),
    **dict.fromkeys(("ToPILImage", "ToPureTensor", "SanitizeBoundingBoxes", "ClampBoundingBoxes"), ()),
}
"""Its names for which steps of other names are here. None: arrays stay arrays, and boxes move with their images, are
clipped, and are left out where nothing of them is visible."""
_NONE = frozenset({
    "CenterCropPad", "ElasticTransform", "FiveCrop", "GaussianBlur", "GaussianNoise", "Grayscale", "JPEG",
    "LinearTransformation", "Pad", "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast",
    "RandomChannelPermutation", "RandomChoice", "RandomEqualize", "RandomGrayscale", "RandomInvert", "RandomIoUCrop",
    "RandomOrder", "RandomPerspective", "RandomPhotometricDistort", "RandomPosterize", "RandomResize",
    "RandomRotation", "RandomShortestSize", "RandomSolarize", "RandomZoomOut", "ScaleJitter", "TenCrop",
})  # fmt: skip
"""Its names for which there is nothing here."""
_OWN = (
    "write a function of an array (Lambda), or a class derived from rawpack.transforms.Step if it draws at random; "
    "or wrap torchvision's own, if it is of v2: Torchvision(...)"
)


def of_name(name: str) -> str | None:
    """What to write instead of a name that torchvision has and rawpack.transforms has not; None for other names."""
    if name == "Compose":
        return "a transform is a plain list of steps, such as transform=[RandomResizedCrop(224), ToCHW()]"
    if name in _NONE:
        return f"torchvision's has no counterpart: {_OWN}"
    return renamed(name)


def renamed(name: str) -> str | None:
    """The steps to write instead of a name of torchvision's; None where there are none, and for other names."""
    if name in _STEPS:
        return f"use {' and '.join(_STEPS[name])}" if _STEPS[name] else "leave it out: arrays and boxes need none"
    return None


def check(transform: Any) -> None:
    """Raise UsageError, with what to write instead, for a transform with objects of torchvision."""
    from rawpack.transforms import __all__ as known

    names = list(dict.fromkeys(_names(transform)))
    if not names:
        return
    steps, own = list[str](), list[str]()
    for name in names:
        if name in known or name in _STEPS:
            steps += _STEPS.get(name, (f"{name}(...)",))
        elif name != "Compose":
            own.append(name)
    if "Normalize" in names and _FIRST in steps:
        # It scales whole numbers itself, and is fastest on bytes.
        steps = [*(step for step in steps if step not in (_FLOATS, _FIRST)), _FIRST]
    cures = [f"use the steps of rawpack.transforms: transform=[{', '.join(steps)}]"] if steps else []
    cures += [f"for {', '.join(own)}, which it does not have, {_OWN}"] if own else []
    which = f"transform= has torchvision's {', '.join(names)}, for PIL images or tensors, not arrays"
    raise UsageError(f"{which}: {'; '.join(cures) or 'leave it out'}")


def _names(transform: Any) -> Iterator[str]:
    """The names of torchvision's classes and functions in a transform, with those in its Compose."""
    kind, inner = transform if hasattr(transform, "__name__") else type(transform), transform
    if str(getattr(kind, "__module__", "")).partition(".")[0] == "torchvision":
        yield kind.__name__
        inner = getattr(transform, "transforms", ()) if kind.__name__ == "Compose" else ()
    if isinstance(inner, list | tuple):
        for one in inner:
            yield from _names(one)
