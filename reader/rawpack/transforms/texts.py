"""A step on the texts of a sample: one of them is chosen.

Texts are not in slots, so the process that hands a batch over does it, as with boxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.system.user import did_you_mean
from rawpack.transforms.randomness import Seeds, randoms_of
from rawpack.transforms.step import Step


class OneText(Step):
    """One of the texts of each sample, such as of its captions: the field is a list of str in the batch, instead of a
    list of lists. A sample without texts has the empty text.

    The text is drawn by seed, epoch and sample, whatever else is drawn; of a clip, all frames have the same draw.
    """

    field: str

    def __init__(self, field: str, at: int | None = None) -> None:
        """field: a field of texts. at: take always this one, counted from 0, as for validation, and the last one of a
        sample that has fewer; None draws. Raises UsageError."""
        if not isinstance(field, str):
            raise UsageError(f"OneText({field!r}) needs the name of a field of texts, such as OneText('captions')")
        if at is not None and (isinstance(at, bool) or not isinstance(at, int | np.integer) or at < 0):
            raise UsageError(f"OneText({field!r}, at={at!r}): at= is a position, counted from 0, or None to draw")
        self.field, self.at = field, at

    @property
    def random(self) -> bool:
        """Whether it draws, so that epochs differ."""
        return self.at is None

    def check(self, fields: Mapping[str, Field], chosen: Sequence[str]) -> None:
        """Raise UsageError unless the batch has the field, and it has lists of texts."""
        if self.field not in chosen:
            hint = "" if self.field in fields else did_you_mean(self.field, fields)
            cure = f"name it in fields=, as [..., {self.field!r}]" if self.field in fields else "name one that it has"
            raise UsageError(f"{self!r}: the batch has no field {self.field!r}, only {', '.join(chosen)}: {cure}{hint}")
        if not fields[self.field].is_texts:
            what = f"{fields[self.field].kind} {fields[self.field].dtype} {fields[self.field].shape}"
            raise UsageError(f"{self!r}: {self.field!r} is {what}, and no list of texts: leave the step out")

    def chosen(self, values: Sequence[Sequence[str]], seeds: Seeds, samples: NDArray[np.int64]) -> list[str]:
        """The text of each of `values`, which are those of the samples, or of the frames of each clip. seeds: see
        `Seeds`. samples: their numbers."""
        if self.at is not None:
            return [texts[min(self.at, len(texts) - 1)] if texts else "" for texts in values]
        drawn = np.repeat(randoms_of(seeds, samples, self.field).random(), len(values) // max(1, len(samples)))
        return [
            texts[int(one * len(texts))] if texts else "" for texts, one in zip(values, drawn.tolist(), strict=True)
        ]

    def __repr__(self) -> str:
        return f"OneText({self.field!r}{'' if self.at is None else f', at={self.at}'})"
