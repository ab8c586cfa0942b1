"""Conditions on the small fields of samples, `score > 0.5 and label in (1, 2)`: for `Reader.select(where=)`.

A condition is written in a part of Python's syntax. It is parsed, never run as Python: each node of its syntax tree is
one of those below, and anything else is refused by name.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.store.stores import INDEX

_MOST_CHARACTERS = 120_000
"""As much as a shell passes on in one argument, about."""
_EXACT = 1 << 63
_FEW = 16
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPUTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_IN_TEXT = {"startswith": str.startswith, "endswith": str.endswith}
Values = Mapping[str, Any]
"""Of a block of samples: numbers as an array (n, ...), texts as a list of str, ragged fields as a list of arrays."""


@dataclass(frozen=True)
class _Value:
    """What a part of a condition is."""

    kind: str
    """"condition", "number", "vector", "text", "ragged", or "list" of constants."""
    at: Callable[[Values], Any]
    """Its values: an array (n, ...), a list of n texts, or one constant."""
    constant: Any = None
    """Where it is written out; for a list, all of its constants."""
    labels: bool = False
    """Whether it is `label`, whose numbers class names stand for."""


class Where:
    """A condition that was parsed and fits the fields of a store."""

    def __init__(
        self, text: str, fields: Mapping[str, Field], classes: Sequence[str] | None, asked: str = "where="
    ) -> None:
        """asked: what errors call it.

        Raises UsageError, with the part that is meant, where `text` is not such a condition, or names fields that are
        not there.
        """
        self.text, self.names = text, dict[str, None]()
        self._fields, self._classes = fields, {name: label for label, name in enumerate(classes or ())}
        self._said = f"{asked}{text!r:.200}"
        if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
            raise UsageError(f"{self._said} must be a condition such as 'score > 0.5', as text")
        try:
            body = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            why = error.msg if isinstance(error, SyntaxError) else str(error)
            raise UsageError(f"{self._said} is not a condition: {why}") from None
        except (RecursionError, MemoryError):
            raise self._nested() from None
        try:
            self._condition = self._of_kind(body, "condition")
        except RecursionError:
            raise self._nested() from None

    def _nested(self) -> UsageError:
        return UsageError(f"{self._said} has too many parts inside one another")

    def holds(self, values: Values, rows: int) -> NDArray[np.bool_]:
        """Whether it holds for each of `rows` samples, bool (rows,). values: of all fields in `names`."""
        with np.errstate(all="ignore"):
            found = self._condition.at(values)
        return np.broadcast_to(np.asarray(found, np.bool_), (rows,))

    def _of_kind(self, node: ast.expr, *kinds: str) -> _Value:
        value = self._value(node)
        if value.kind not in kinds:
            raise self._refused(node, f"is a {_called(value)}, where a {' or '.join(kinds)} is needed")
        return value

    def _value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=bool(value)):
                return _Value("condition", lambda _: value)
            case ast.Constant(value=int() | float() as value):
                return _Value("number", lambda _: value, value)
            case ast.Constant(value=str(value)):
                return _Value("text", lambda _: value, value)
            case ast.Name(id=name):
                return self._field(name, node)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                constants = [self._constant(part) for part in parts]
                return _Value("list", lambda _: constants, constants)
            case ast.BoolOp(op=op, values=parts):
                conditions = [self._of_kind(part, "condition").at for part in parts]
                joined = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return _Value("condition", lambda values: _all_of(joined, [one(values) for one in conditions]))
            case ast.UnaryOp(op=ast.Not(), operand=part):
                inner = self._of_kind(part, "condition").at
                return _Value("condition", lambda values: np.logical_not(inner(values)))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=part):
                return self._signed(part, negative=isinstance(op, ast.USub))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED:
                return self._computed(node, left, _COMPUTED[type(op)], right)
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip([left, *others], ops, others, strict=False)
                found = [self._compared(node, first, op, second) for first, op, second in pairs]
                return _Value("condition", lambda values: _all_of(np.logical_and, [one(values) for one in found]))
            case ast.Subscript(value=ast.Name() as of, slice=part):
                return self._element(node, of, part)
            case ast.Call(func=ast.Name(id="len"), args=[part], keywords=[]):
                ragged = self._of_kind(part, "ragged", "text").at
                return _Value("number", lambda values: np.array([len(one) for one in ragged(values)], np.int64))
            case ast.Call(func=ast.Name(id="abs"), args=[part], keywords=[]):
                number = self._of_kind(part, "number").at
                return _Value("number", lambda values: abs(_exact(number(values))))
            case ast.Call(func=ast.Attribute(value=of, attr=attr), args=[part], keywords=[]) if attr in _IN_TEXT:
                return self._text_test(node, of, _IN_TEXT[attr], part)
        raise self._refused(
            node,
            "is not allowed: a condition has fields, numbers, texts, comparisons, in, and, or, not, + - * / // %, "
            "len(), abs(), field[0], .startswith() and .endswith()",
        )

    def _field(self, name: str, node: ast.expr) -> _Value:
        field = self._fields.get(name)
        if field is None and name != INDEX:
            known = ", ".join(one for one, other in self._fields.items() if not other.in_shards)
            raise self._refused(node, f"is no field of the store, which has {known}")
        self.names[name] = None
        if field is None:
            return _Value("number", lambda values: values[name])
        if field.in_shards:
            raise self._refused(node, f"is {field.kind} data in shards: conditions are on small fields only")
        if field.kind == "number":
            kind = "vector" if field.shape else "condition" if field.dtype == "bool" else "number"
            return _Value(kind, lambda values: values[name], labels=name == "label" and bool(self._classes))
        return _Value(field.kind, lambda values: values[name])

    def _constant(self, node: ast.expr) -> Any:
        value = self._value(node)
        if value.constant is None or isinstance(value.constant, list):
            raise self._refused(node, "must be a number or a text that is written out")
        return value.constant

    def _signed(self, node: ast.expr, *, negative: bool) -> _Value:
        inner = self._of_kind(node, "number")
        if not negative:
            return inner
        constant = None if inner.constant is None else -inner.constant
        return _Value(
            "number", lambda values: constant if constant is not None else -_exact(inner.at(values)), constant
        )

    def _computed(self, node: ast.expr, left: ast.expr, compute: Callable[[Any, Any], Any], right: ast.expr) -> _Value:
        first, second = self._of_kind(left, "number").at, self._of_kind(right, "number").at

        def result(values: Values) -> Any:
            a, b = _exact(first(values)), _exact(second(values))
            found = compute(a, b)
            if found.dtype.kind == "i" and np.any(np.abs(compute(a.astype(float), b.astype(float))) >= _EXACT):
                raise self._refused(node, "has whole numbers that are too large")
            if found.dtype.kind == "i" and compute in (operator.floordiv, operator.mod) and np.any(b == 0):
                # numpy makes 0 of it.
                return np.where(b == 0, np.nan, found)
            return found

        return _Value("number", result)

    def _compared(
        self, node: ast.expr, left: ast.expr, op: ast.cmpop, right: ast.expr
    ) -> Callable[[Values], NDArray[np.bool_]]:
        first = self._of_kind(left, "number", "text", "condition")
        if isinstance(op, ast.In | ast.NotIn):
            found = self._contained(node, first, self._of_kind(right, "list", "text"))
            return found if isinstance(op, ast.In) else lambda values: np.logical_not(found(values))
        if type(op) not in _COMPARED:
            raise self._refused(node, "compares with `is`: use == or !=")
        second = self._of_kind(right, "number", "text", "condition")
        first, second = self._numbered(node, first, second.labels), self._numbered(node, second, first.labels)
        if first.kind != second.kind:
            raise self._refused(node, f"compares a {first.kind} with a {second.kind}")
        compare, a, b = _COMPARED[type(op)], first.at, second.at
        if first.kind == "text":
            return lambda values: _each_text(compare, a(values), b(values))
        # As numpy compares: 0.7 is what a float32 field holds of 0.7.
        return lambda values: compare(a(values), b(values))

    def _contained(self, node: ast.expr, first: _Value, second: _Value) -> Callable[[Values], NDArray[np.bool_]]:
        a, b = first.at, second.at
        if second.kind == "text":
            if first.kind != "text":
                raise self._refused(node, f"looks for a {first.kind} in a text")
            return lambda values: _each_text(lambda part, text: part in text, a(values), b(values))
        constants = second.constant
        if first.labels:
            constants = [self._label(node, one) if isinstance(one, str) else one for one in constants]
        kinds = {"text" if isinstance(one, str) else "number" for one in constants}
        if kinds - {first.kind}:
            raise self._refused(node, f"looks for a {first.kind} in a list with a {(kinds - {first.kind}).pop()}")
        if first.kind == "text":
            known = frozenset(constants)
            return lambda values: _each_text(lambda text, _: text in known, a(values), "")

        def each(values: Values) -> Any:
            numbers = a(values)
            return _all_of(
                np.logical_or, [np.zeros(np.shape(numbers), np.bool_), *(numbers == one for one in constants)]
            )

        whole = all(isinstance(one, int) and abs(one) < _EXACT for one in constants)
        if whole and len(constants) > _FEW:
            wanted = np.array(constants, np.int64)

            def among(values: Values) -> Any:
                numbers = np.asarray(a(values))
                # Otherwise np.isin compares as floats.
                return np.isin(numbers, wanted) if np.can_cast(numbers.dtype, np.int64) else each(values)

            return among
        return each

    def _numbered(self, node: ast.expr, value: _Value, beside_labels: bool) -> _Value:
        """The number of a class where its name is compared with labels."""
        if not beside_labels or value.kind != "text" or value.constant is None:
            return value
        label = self._label(node, value.constant)
        return _Value("number", lambda _: label, label)

    def _label(self, node: ast.expr, name: str) -> int:
        if name not in self._classes:
            raise self._refused(node, f"has no class of the store: {name!r}")
        return self._classes[name]

    def _element(self, node: ast.expr, of: ast.Name, part: ast.expr) -> _Value:
        vector, at = self._of_kind(of, "vector"), self._constant(part)
        shape = self._fields[of.id].shape
        if len(shape) != 1 or type(at) is not int or not -(shape[0] or 0) <= at < (shape[0] or 0):
            raise self._refused(node, f"is no number: {of.id} has shape {shape}")
        kind = "condition" if self._fields[of.id].dtype == "bool" else "number"
        return _Value(kind, lambda values: vector.at(values)[:, at])

    def _text_test(self, node: ast.expr, of: ast.expr, test: Callable[..., bool], part: ast.expr) -> _Value:
        text, end = self._of_kind(of, "text").at, self._constant(part)
        if not isinstance(end, str):
            raise self._refused(node, "needs a text between its parentheses")
        return _Value("condition", lambda values: _each_text(test, text(values), end))

    def _refused(self, node: ast.expr, why: str) -> UsageError:
        part = ast.get_source_segment(self.text.strip(), node) or self.text
        return UsageError(f"{self._said}: {part!r:.80} {why}")


def _called(value: _Value) -> str:
    return {"vector": "field of several numbers", "ragged": "ragged field"}.get(value.kind, value.kind)


def _all_of(joined: Callable[[Any, Any], Any], parts: Iterable[Any]) -> Any:
    first, *rest = parts
    for part in rest:
        first = joined(first, part)
    return first


def _exact(value: Any) -> NDArray[Any]:
    """As int64 or float64, in which sums of small types do not overflow."""
    array = np.asarray(value)
    return array.astype(np.int64 if np.can_cast(array.dtype, np.int64) else np.float64)


def _each_text(test: Callable[[str, str], bool], first: Any, second: Any) -> NDArray[np.bool_]:
    """The test of each pair of texts; either may be one for all."""
    if isinstance(first, str) and isinstance(second, str):
        return np.asarray(test(first, second), np.bool_)
    if isinstance(second, str):
        return np.array([test(one, second) for one in first], np.bool_)
    if isinstance(first, str):
        return np.array([test(first, one) for one in second], np.bool_)
    return np.array([test(one, other) for one, other in zip(first, second, strict=True)], np.bool_)
