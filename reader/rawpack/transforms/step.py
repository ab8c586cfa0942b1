"""What a step of a transform is: a small class that says what it makes, draws random numbers, and applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Range
from rawpack.errors import UsageError
from rawpack.system.equality import same
from rawpack.system.user import suggesting
from rawpack.transforms.randomness import Random, Randoms

Array = NDArray[Any]
Box = tuple[int, int, int, int]
"""(y, x, height, width) in pixels."""
Shape = tuple[int | None, ...]
Drawn = Sequence[Any] | NDArray[Any]
"""What was drawn for each of several samples."""


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of one sample of a field, between two steps."""

    shape: Shape
    """None where samples differ."""
    dtype: str
    """numpy's name."""
    layout: Literal["HWC", "CHW", ""] = ""
    """The axes of images: (height, width, channels) or (channels, height, width). Empty for everything else."""
    within: tuple[float, float] | None = None
    """Least and greatest value, where steps of this package have made floats of whole numbers; None where it is not
    known, as of stored floats."""
    kind: str = ""
    """The kind of the field: "image", "mask" or "number". Set for batch steps only."""
    classes: int | None = None
    """For labels, how many classes the store names; None if it names none. Set for batch steps only."""
    seen: Range | None = None
    """Least and greatest value of an image that is `ranged`, as the store has it; None where it is not known, and once
    values were scaled."""

    @property
    def fixed(self) -> bool:
        """Whether all samples have the same shape."""
        return None not in self.shape

    def pixels(self, step: object) -> Spec:
        """Itself if it is an image (H, W, C); else raises UsageError, which names `step`."""
        if self.layout != "HWC":
            where = "put it before ToCHW" if self.layout else "name the fields of images with fields="
            raise UsageError(f"{step!r} needs images (height, width, channels), not {self.shape} {self.dtype}: {where}")
        return self

    def sized(self, height: int | None, width: int | None) -> Spec:
        """The same for an image (H, W, C) of another size."""
        return replace(self, shape=(height, width, self.shape[2]))


@dataclass(frozen=True, slots=True)
class Move:
    """Where a step moves the points of an image: x to x * scale_x + shift_x, y likewise, in pixels.

    Pixel (i, j) covers the points from (i, j) to (i + 1, j + 1), so boxes need no half pixels.
    """

    scale_y: float = 1.0
    shift_y: float = 0.0
    scale_x: float = 1.0
    shift_x: float = 0.0


def is_own(kind: type) -> bool:
    """Whether a class is of this package, and not a user's."""
    return kind.__module__.startswith("rawpack.")


def arguments(step: object) -> dict[str, Any]:
    """What a step was made with."""
    return {name: value for name, value in vars(step).items() if not name.startswith("_")}


class _Own:
    """The classes of this package, not those of users: what is made with a wrong keyword names the nearest one, and
    steps of the same class and arguments are equal."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls) and is_own(cls):
            suggesting(cls)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not is_own(type(self)):
            return NotImplemented
        return same(arguments(self), arguments(other))

    def __hash__(self) -> int:
        return hash(type(self))


class Step(_Own):
    """One step of a transform: derive from it and override what differs.

    An instance is sent to the workers by cloudpickle and used there by several threads at once: it holds settings,
    never state. Random numbers are drawn once for each sample and used for all of its fields.
    """

    field: str | None = None
    """The one field that it is applied to; None for all images and masks."""
    fields: tuple[str, ...] | None = None
    """The fields that it is applied to, where these are several."""
    any_size: bool = False
    """Whether what it draws and does is right for an image of any size, as a flip is: then images of a sample whose
    sizes do not fit together may go through it. Steps that neither draw nor move anything need not say it."""
    in_pixels: tuple[str, ...] = ()
    """Its attributes that are sizes in pixels, each a number, several, or None: `scaled` multiplies these."""
    pointwise: bool = False
    """Whether each value of the result depends only on one value and its channel, and not on what is drawn: then the
    step may be computed in advance for all 256 values of a byte."""
    vectorized: bool = False
    """Whether `apply_many` takes several samples in one call. Where a class of images overrides only `apply`, one
    sample at a time is made again."""
    refuses: tuple[str, ...] = ()
    """What a batch must not contain because the step cannot keep it in line with the images: "masks", "boxes"."""

    def only(self, fields: Sequence[str] | None) -> None:
        """Use it for these fields only; None: for all images and masks. Raises UsageError for what is no list of
        names."""
        if fields is None:
            return
        if isinstance(fields, str) or not (found := tuple(fields)) or not all(isinstance(name, str) for name in found):
            example = f", such as [{fields!r}]" if isinstance(fields, str) else ""
            raise UsageError(f"fields={fields!r} must be a list of names{example}")
        self.fields = found

    def makes(self, spec: Spec) -> Spec:
        """What it makes from samples like `spec`. Raises UsageError if it cannot work on them. Called once for
        each size of batches."""
        return spec

    def makes_mask(self, spec: Spec) -> Spec:
        """What it makes from masks like `spec`: the size and layout that `makes` says, with the mask's dtype. Called
        once. For a step that leaves masks as they are, `spec` itself, whether or not `makes` would accept it.
        """
        stays = type(self).apply_mask is Step.apply_mask
        if stays and named(self) is None:
            return spec
        made = self.makes(spec)
        return made if stays else replace(made if len(made.shape) == 3 else spec, dtype=spec.dtype)

    def fitted(self, spec: Spec) -> Step:
        """The step to use on samples like `spec`: itself, or a copy made for them. Called once."""
        return self

    def plain(self) -> Step | None:
        """What is done instead to images that are not of colors (uint8, three channels), where a batch has images of
        both kinds and nobody named any: by default the same; None for nothing."""
        return self

    def scaled(self, factor: Fraction) -> Self:
        """The step that does the same to images `factor` times as large: sizes in pixels times `factor`.

        Raises UsageError where that is no whole number of pixels, and for steps of users that do not say it.
        """
        if not self.in_pixels and needs_size(self):
            raise UsageError(
                f"{self!r} does not say what it does to images of other sizes: give it the methods scaled() and "
                "magnified(), or any_size = True if sizes do not matter to it"
            )
        made = copy(self) if self.in_pixels else self
        for name in self.in_pixels:
            if (given := getattr(self, name)) is not None:
                setattr(made, name, scaled_pixels(self, name, given, factor))
        return made

    def magnified(self, drawn: Any, times: int) -> Any:
        """What was drawn for an image, for one that is `times` as large: places and sizes in pixels times `times`."""
        return drawn

    def draw(self, random: Random, height: int, width: int) -> Any:
        """Draw what is random for one sample, an image of that size. The other methods get the result, for a clip with
        each of its frames. Where images of a sample differ in size, that of the smallest is drawn for: see
        `magnified`."""
        return None

    def draw_many(self, random: Randoms, height: int, width: int) -> Drawn:
        """What `draw` draws for each of several samples of one size."""
        return [self.draw(one, height, width) for one in random]

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        """The result for one sample, with the shape and dtype that `makes` promised.

        image: not to be written to: steps of other packages than this get a read-only array, whatever the format of the
        store. It may be a view with gaps between its rows, or over the memory of `out`. out: memory of the result's
        shape and dtype; writing the result there saves a copy, but any array may be returned.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method apply()")

    def apply_many(self, images: Array, drawn: Drawn, out: Array | None = None) -> Array:
        """The same for several samples of one shape, if the step is `vectorized`.

        images: (n, *shape). drawn: what was drawn for each. out: as of `apply`, for all. By default `apply` is called
        with all of them, and with None for `drawn`: for steps that draw nothing.
        """
        return self.apply(images, None, out)

    def apply_mask(self, mask: Array, drawn: Any, out: Array | None = None) -> Array:
        """As `apply`, for a mask (H, W, C) that belongs to the image: it holds labels, so no new values may appear.

        By default masks stay as they are. If `field` or `fields` names the mask, it goes to `apply`.
        """
        return mask if named(self) is None else self.apply(mask, drawn, out)

    def move(self, drawn: Any, height: int, width: int) -> Move:
        """Where it moves the points of an image of that size, and boxes with them."""
        return Move()

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in arguments(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


def guarded(step: Step, method: Callable[..., Array]) -> Callable[..., Array]:
    """`apply`, or another method of a step that makes a result. A step of another package might write to the array that
    it gets, so it gets a read-only one."""
    return method if is_own(type(step)) else partial(_on_read_only, method)


def read_only(image: Array) -> Array:
    """A read-only view."""
    view = image.view()
    view.flags.writeable = False
    return view


def apart(out: Array | None, image: Array) -> Array | None:
    """`out`, or None if it shares memory with the image: for steps that read pixels after they have written others."""
    return None if out is not None and np.may_share_memory(out, image) else out


def _on_read_only(method: Callable[..., Array], image: Array, drawn: Any, out: Array | None = None) -> Array:
    return method(read_only(image), drawn, out)


def draws(step: Step) -> bool:
    """Whether a step draws anything."""
    return getattr(step.draw, "__func__", None) is not Step.draw


def named(step: Step) -> tuple[str, ...] | None:
    """The fields that a step names; None if it is for all images and masks."""
    return step.fields if step.field is None else (step.field,)


def needs_size(step: Step) -> bool:
    """Whether images of a sample may go through a step only if their sizes fit together."""
    return not step.any_size and (moves(step) or draws(step))


def moves(step: Step) -> bool:
    """Whether a step says that it moves pixels: it takes masks or boxes along."""
    return type(step).apply_mask is not Step.apply_mask or type(step).move is not Step.move


def scaled_pixels(step: object, name: str, pixels: int | Sequence[int], factor: Fraction) -> int | tuple[int, ...]:
    """Sizes in pixels times `factor`. Raises UsageError where one is no whole number."""
    made = [size * factor for size in ((pixels,) if isinstance(pixels, int) else pixels)]
    if any(size.denominator != 1 for size in made):
        raise UsageError(f"{step!r}: {name}= times {factor} is no whole number of pixels")
    return made[0].numerator if isinstance(pixels, int) else tuple(size.numerator for size in made)


def agrees(step: Step, many: str, one: str) -> bool:
    """Whether member `many` of a step is about its method `one`: not where a derived class overrides only that."""
    return many in next(vars(base) for base in type(step).__mro__ if many in vars(base) or one in vars(base))


class CropStep(Step):
    """A step that begins with a crop. If it comes first, it gets only the crop, and nothing else is decoded."""

    def box(self, drawn: Any) -> Box:
        """The part of the image that it needs."""
        raise NotImplementedError(f"{type(self).__name__} has no method box()")

    def reduction(self, drawn: Any) -> int:
        """By how much the crop may be reduced while a JPEG is decoded: 1, 2, 4 or 8."""
        return 1

    def finish(self, part: Array, drawn: Any, out: Array | None = None) -> Array:
        """The result, as `apply` gives it, from the part that `box` names, which may be reduced by `reduction`."""
        return part

    def finish_mask(self, part: Array, drawn: Any, out: Array | None = None) -> Array:
        """The same for a mask."""
        return self.finish(part, drawn, out)

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        y, x, height, width = self.box(drawn)
        return self.finish(image[y : y + height, x : x + width], drawn, out)

    def apply_mask(self, mask: Array, drawn: Any, out: Array | None = None) -> Array:
        y, x, height, width = self.box(drawn)
        return self.finish_mask(mask[y : y + height, x : x + width], drawn, out)


class BatchStep(_Own):
    """A step that works on whole batches: at the end of a transform, with one worker for each batch."""

    refuses: tuple[str, ...] = ()
    """As in `Step`."""
    random: bool = False
    """Whether it uses random numbers, so that epochs differ: for a warning about loops that read one epoch again and
    again."""

    def makes(self, specs: Mapping[str, Spec]) -> Mapping[str, Spec]:
        """What it makes of each field whose shape or dtype it changes. Raises UsageError if it cannot work on them.
        Called once."""
        return {}

    def fitted(self, specs: Mapping[str, Spec]) -> BatchStep:
        """The step to use on such batches: itself, or a copy made for them. Called once, before `makes`."""
        return self

    def apply(self, batch: dict[str, Array], random: Random) -> Mapping[str, Array]:
        """The arrays that it replaces, each (n, *shape). Those of `batch` may be changed in place.

        random: depends on the seed, the epoch and the samples of the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method apply()")

    __repr__ = Step.__repr__
