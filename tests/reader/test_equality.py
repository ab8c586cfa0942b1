"""Steps, orders and samplers are equal where their arguments are, whatever they have done since; those of users are
equal where they say so."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rawpack import Balanced, Weighted
from rawpack import transforms as t
from rawpack.order.buckets import Bucketed
from rawpack.order.sampled import Sampled
from rawpack.order.shuffled import BlockShuffled, Sequential, Shuffled


def same(value: Any, *_: Any) -> Any:
    return value


def other(value: Any, *_: Any) -> Any:
    return None


Make = Callable[..., Any]
ARRAY, COLUMN, MAKES = np.arange(6), np.array([0, 0, 1, 1, 2, 2]), {"a": ((1,), "u1")}
OF = COLUMN.astype(np.uint8)
CASES: list[tuple[Make, tuple[Any, ...], dict[str, Any], list[tuple[tuple[Any, ...], dict[str, Any]]]]] = [
    (t.BatchLambda, (same,), {}, [((other,), {}), ((same,), {"random": True}), ((same,), {"makes": MAKES})]),
    (t.CenterCrop, (4,), {}, [((5,), {}), (((4, 5),), {}), ((4,), {"fields": ["image"]})]),
    (t.ColorJitter, (0.1,), {"hue": 0.1}, [((0.2,), {"hue": 0.1}), ((0.1,), {})]),
    (t.Lambda, (same,), {}, [((other,), {}), ((same,), {"field": "a"}), ((same,), {"shape": (3,)})]),
    (t.MixUp, (), {}, [((), {"alpha": 0.5})]),
    (t.Normalize, ((0.5,), (0.5,)), {}, [(((0.4,), (0.5,)), {}), (((0.5,), (0.4,)), {})]),
    (t.OneText, ("a",), {}, [(("b",), {})]),
    (t.RandomHorizontalFlip, (), {}, [((0.25,), {}), ((), {"fields": ["image"]})]),
    (t.RandomResizedCrop, (6,), {}, [((7,), {}), ((6,), {"scale": (0.5, 1)})]),
    (t.SampleLambda, (same,), {}, [((other,), {}), ((same,), {"makes": MAKES})]),
    (t.Views, (2, [t.Fit(6)]), {}, [((3, [t.Fit(6)]), {}), ((2, [t.Fit(7)]), {})]),
    (Sequential, (6,), {}, [((7,), {})]),
    (Shuffled, (6, 1), {}, [((7, 1), {}), ((6, 2), {})]),
    (BlockShuffled, (60, 1, 4, 8), {}, [((60, 2, 4, 8), {}), ((60, 1, 5, 8), {})]),
    (Balanced, ("label",), {}, [(("a",), {}), (("label",), {"length": 9}), (("label",), {"replacement": True})]),
    (Balanced, (COLUMN.copy(),), {}, [((COLUMN[::-1],), {}), (("label",), {})]),
    (Weighted, (ARRAY,), {}, [((ARRAY + 1,), {}), ((ARRAY,), {"length": 9}), ((ARRAY,), {"replacement": False})]),
    (Sampled, (ARRAY, 6), {}, [((ARRAY[::-1], 6), {}), ((ARRAY, 7), {})]),
    (Bucketed, (Shuffled(6, 1), OF, 3, 2, 1), {}, [
        ((Shuffled(6, 2), OF, 3, 2, 1), {}), ((Shuffled(6, 1), OF, 3, 3, 1), {})
    ]),
]  # fmt: skip
"""Class, arguments, and others by which it is another one."""


@pytest.mark.parametrize(("make", "arguments", "options", "others"), CASES, ids=[case[0].__name__ for case in CASES])
def test_equal_where_arguments_are(make: Make, arguments: Any, options: Any, others: Any) -> None:
    """And then of the same hash; never equal to one with another argument, of another class, or to its arguments."""
    one, again = make(*arguments, **options), make(*arguments, **options)
    assert one == again
    assert hash(one) == hash(again)
    if not any(callable(argument) for argument in arguments):
        assert pickle.loads(pickle.dumps(one)) == one
    for changed, named in others:
        assert one != make(*changed, **named)
    assert one not in (None, arguments, object())
    derived = type(make.__name__, (make,), {})
    assert one != derived(*arguments, **options)


class Own(t.Step):
    """Of a user."""

    def __init__(self, times: int) -> None:
        self.times = times


class Says(Own):
    """One that says what it equals."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Says) and self.times == other.times

    __hash__ = Own.__hash__


def test_steps_of_users_are_equal_where_they_say_so() -> None:
    """Else only to themselves, as they may have more than arguments; also those that derive from ours."""
    flip = type("Flip", (t.RandomHorizontalFlip,), {"__module__": "of_a_user"})
    for one, again in ((Own(2), Own(2)), (flip(), flip())):
        assert one != again
        assert len({one, again, one}) == 2
    assert Says(2) == Says(2) != Says(3)
    assert t.Views(2, [Says(2)]) == t.Views(2, [Says(2)]) != t.Views(2, [Own(2)])
