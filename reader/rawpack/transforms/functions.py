"""Steps that call a function of the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from rawpack.errors import UsageError
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, BatchStep, Shape, Spec, Step


def refuse_misplaced(function: Any) -> None:
    """Raise UsageError for what can be called in place of a function of arrays, and would fail in a worker: a class of
    steps, or of objects that are functions; a module of torch, which is never imported. Who wraps one in a Lambda has
    said what it takes."""
    refuse_albumentations(function)
    if isinstance(function, type) and (issubclass(function, Step | BatchStep) or "__call__" in dir(function)):
        raise UsageError(
            f"{function.__name__} in transform= is a class, not a step: write {made_as(function)}, with brackets"
        )
    if inspect.isfunction(function) and len(_required(function)) > 1:
        raise UsageError(
            f"{function.__name__}({', '.join(_required(function))}) in transform= gets one array alone: for a whole "
            f"sample, with random numbers, write SampleLambda({function.__name__})"
        )
    names = {(kind.__module__, kind.__name__) for kind in type(function).__mro__}
    if ("torch.nn.modules.module", "Module") in names:
        raise UsageError(
            f"{type(function).__name__} in transform= is a module of torch, for tensors: call it in the loop, as "
            'module(batch["image"]) for batch in batches.torch(); steps get numpy arrays'
        )


def _required(function: Any) -> list[str]:
    some = inspect.signature(function).parameters.values()
    return [one.name for one in some if one.default is one.empty and one.kind < one.VAR_POSITIONAL]


def refuse_albumentations(function: Any) -> None:
    """Raise UsageError for an object of Albumentations, which takes keywords and draws random numbers of its own."""
    if any(kind.__module__.partition(".")[0] == "albumentations" for kind in type(function).__mro__):
        name = type(function).__name__
        raise UsageError(
            f"{name} of Albumentations does not take an array or a dict: write Albumentations({name}(...)), with "
            "from rawpack.transforms import Albumentations"
        )


def made_as(kind: type) -> str:
    """How an object of a class is made: "RandomHorizontalFlip()", "Normalize(...)"."""
    try:
        inspect.signature(kind).bind()
    except (TypeError, ValueError):
        return f"{kind.__name__}(...)"
    return f"{kind.__name__}()"


class Lambda(Step):
    """A function of one sample's array. Lambdas, and functions of a script or notebook, reach the workers too."""

    def __init__(
        self,
        lambd: Callable[[Array], Any],
        *,
        field: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
    ) -> None:
        """lambd: gets the array, may change it, and returns the result. field: the field; None for all
        images. shape, dtype: of the result, if they differ from those of the array."""
        refuse_albumentations(lambd)
        if not callable(lambd):
            raise UsageError(f"Lambda({lambd!r}) needs a function of an array")
        self.lambd, self.field = lambd, field
        self.shape = None if shape is None else tuple(shape)
        self.dtype = None if dtype is None else np.dtype(dtype).name

    def makes(self, spec: Spec) -> Spec:
        shape = spec.shape if self.shape is None else self.shape
        return Spec(shape, self.dtype or spec.dtype, layout_of(spec, shape))

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        # Memory of the store, and what others read too, is read-only.
        try:
            made = np.asarray(self.lambd(image if image.flags.writeable else image.copy()))
        except IndexError as error:
            if "only integers, slices" in str(error):  # numpy's words for array["image"]
                error.add_note("a function in transform= gets an array; of a dict of fields, write SampleLambda(...)")
            raise
        # OpenCV, in a later step, would ignore the byte order.
        return made if made.dtype.isnative else made.astype(made.dtype.newbyteorder("="))


class BatchLambda(BatchStep):
    """A function of a whole batch, called in one worker after all steps on samples.

    It gets a dict of arrays, name -> (n, *shape), may change them in place, and returns a dict of those that it
    replaces, or None. With `random=True` it also gets random numbers, which depend on seed, epoch and the samples.
    """

    def __init__(
        self,
        lambd: Callable[..., Mapping[str, Array] | None],
        *,
        random: bool = False,
        makes: Mapping[str, tuple[Sequence[int], Any]] | None = None,
    ) -> None:
        """makes: field -> (shape of one sample, dtype), for each field whose shape or dtype it changes."""
        if not callable(lambd):
            raise UsageError(f"BatchLambda({lambd!r}) needs a function of a batch")
        self.lambd, self.random = lambd, random
        self.made = {name: Spec(tuple(shape), np.dtype(dtype).name) for name, (shape, dtype) in (makes or {}).items()}

    def makes(self, specs: Mapping[str, Spec]) -> Mapping[str, Spec]:
        return {name: replace(made, layout=layout_of(specs.get(name), made.shape)) for name, made in self.made.items()}

    def apply(self, batch: dict[str, Array], random: Random) -> Mapping[str, Array]:
        return (self.lambd(batch, random) if self.random else self.lambd(batch)) or {}


def layout_of(spec: Spec | None, shape: Shape) -> Literal["HWC", "CHW", ""]:
    """Of an array that a function makes of one with `spec`: what has as many channels at its end is still an image."""
    if spec is None or shape == spec.shape:
        return "" if spec is None else spec.layout
    images = spec.layout == "HWC" and len(shape) == len(spec.shape) and shape[-1] == spec.shape[-1]
    return "HWC" if images else ""
