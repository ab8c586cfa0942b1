"""Conditions on the small fields of samples, `score > 0.5 and label in (1, 2)`: for `Reader.select(where=)`.

A condition is written in a part of Python's syntax. It is parsed, never run as Python: the nodes of its syntax tree
that are allowed are computed on columns of many samples at once, and anything else is refused by name.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.system.user import did_you_mean
from rawpack.words import INDEX, STORE_ROW

_MOST_CHARACTERS = 120_000
"""As much as a shell passes on in one argument, about."""
_OF_SQL = re.compile(r"\b(?:like|contains|between)\b", re.IGNORECASE)
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
_WRITTEN: dict[type[ast.AST], str] = {ast.BitAnd: "and", ast.BitOr: "or", ast.Invert: "not"}
_IN_TEXT = {"startswith": str.startswith, "endswith": str.endswith}
Values = Mapping[str, Any]
"""Of a block of samples: numbers as an array (n, ...), texts as a list of str, ragged fields as a list of arrays."""


class _Part(msgspec.Struct, frozen=True):
    """What a part of a condition is for a block of samples."""

    kind: str
    """"condition", "number", "vector", "text", "ragged", or "list" of constants."""
    values: Any
    """An array (n, ...), of objects for texts and ragged fields; or one value for all samples."""
    constant: Any = None
    """Where it is a number or a text that is written out."""
    labels: bool = False
    """Whether it is `label`, whose numbers class names stand for."""


class Where:
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
        self._lists = dict[ast.expr, list[Any]]()
        if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
            raise UsageError(f"{self._said} must be a condition such as 'score > 0.5', as text")
        try:
            self._body = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            why = error.msg if isinstance(error, SyntaxError) else str(error)
            why += "; write == to compare" if re.search("(?<![=!<>])=(?!=)", text) else ""
            why += "; write and, or, not" if re.search(r"&&|\|\||!(?!=)|\b(AND|OR|NOT)\b", text) else ""
            why += "; write 'dog' in key, or 1 <= score <= 2" if _OF_SQL.search(text) else ""
            raise UsageError(f"{self._said} is not a condition: {why}") from None
        except (RecursionError, MemoryError):
            raise self._nested() from None
        nothing: dict[str, Any] = dict.fromkeys((INDEX, STORE_ROW), np.empty(0, np.int64))
        for name, field in fields.items():
            nothing[name] = np.empty((0, *field.shape), field.dtype) if field.kind == "number" else []
        self.holds(nothing, 0)

    def holds(self, values: Values, rows: int) -> NDArray[np.bool_]:
        """Whether it holds for each of `rows` samples, bool (rows,). values: of all fields in `names`."""
        try:
            with np.errstate(all="ignore"):
                found = self._of_kind(self._body, values, "condition").values
        except RecursionError:
            raise self._nested() from None
        return np.broadcast_to(np.asarray(found, np.bool_), (rows,))

    def _nested(self) -> UsageError:
        return UsageError(f"{self._said} has too many parts inside one another")

    def _of_kind(self, node: ast.expr, values: Values, *kinds: str) -> _Part:
        part = self._part(node, values)
        if part.kind not in kinds:
            called = {"vector": "field of several numbers", "ragged": "ragged field"}.get(part.kind, part.kind)
            raise self._refused(node, f"is a {called}, where a {' or '.join(kinds)} is needed")
        return part

    def _part(self, node: ast.expr, values: Values) -> _Part:
        match node:
            case ast.Constant(value=bool(value)):
                return _Part("condition", value)
            case ast.Constant(value=int() | float() as value):
                return _Part("number", value, value)
            case ast.Constant(value=str(value)):
                return _Part("text", np.array(value, object), value)
            case ast.Name(id=name):
                return self._field(name, node, values)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                if node not in self._lists:
                    self._lists[node] = [self._constant(part, values) for part in parts]
                return _Part("list", self._lists[node])
            case ast.BoolOp(op=op, values=parts):
                joined = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return _Part("condition", reduce(joined, [self._of_kind(p, values, "condition").values for p in parts]))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return _Part("condition", np.logical_not(self._of_kind(inner, values, "condition").values))
            case ast.UnaryOp(op=ast.UAdd(), operand=inner):
                return self._of_kind(inner, values, "number")
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                number = self._of_kind(inner, values, "number")
                if number.constant is not None:
                    return _Part("number", -number.constant, -number.constant)
                return _Part("number", -_exact(number.values))
            case ast.BinOp(op=op) if type(op) in _COMPUTED:
                return _Part("number", self._computed(node, _COMPUTED[type(op)], values))
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip([left, *others], ops, others, strict=False)
                found = [self._compared(node, first, op, second, values) for first, op, second in pairs]
                return _Part("condition", reduce(np.logical_and, found))
            case ast.Subscript(value=ast.Name() as of, slice=at):
                return self._element(node, of, at, values)
            case ast.Call(func=ast.Name(id="len"), args=[inner], keywords=[]):
                return _Part("number", _each(len, self._of_kind(inner, values, "ragged", "text").values, np.int64))
            case ast.Call(func=ast.Name(id="abs"), args=[inner], keywords=[]):
                return _Part("number", abs(_exact(self._of_kind(inner, values, "number").values)))
            case ast.Call(func=ast.Attribute(value=of, attr=attr), args=[end], keywords=[]) if attr in _IN_TEXT:
                texts, sought = self._of_kind(of, values, "text").values, self._constant(end, values)
                if not isinstance(sought, str):
                    raise self._refused(node, "needs a text between its parentheses")
                return _Part("condition", _each(lambda text: _IN_TEXT[attr](text, sought), texts))
            case ast.BinOp(op=op) | ast.UnaryOp(op=op) if type(op) in _WRITTEN:
                raise self._refused(node, f"has an operator of numpy's arrays: write {_WRITTEN[type(op)]!r} instead")
        raise self._refused(
            node,
            "is not allowed: a condition has fields, numbers, texts, comparisons, in, and, or, not, + - * / // %, "
            "len(), abs(), field[0], .startswith() and .endswith()",
        )

    def _field(self, name: str, node: ast.expr, values: Values) -> _Part:
        field = self._fields.get(name)
        if field is None and name not in (INDEX, STORE_ROW):
            known = [*(one for one, other in self._fields.items() if not other.in_shards), INDEX, STORE_ROW]
            hint = did_you_mean(name, known)
            raise self._refused(node, f"is no field of the store, which has {', '.join(known)}{hint}")
        self.names[name] = None
        if field is None:
            return _Part("number", values[name])
        if field.in_shards:
            raise self._refused(node, f"is {field.kind} data in shards: conditions are on small fields only")
        if field.kind != "number":
            return _Part("ragged" if field.is_texts else field.kind, np.fromiter(values[name], object))
        kind = "vector" if field.shape else _kind_of(field)
        return _Part(kind, values[name], labels=name == "label" and bool(self._classes))

    def _constant(self, node: ast.expr, values: Values) -> Any:
        part = self._part(node, values)
        if part.constant is None:
            raise self._refused(node, "must be a number or a text that is written out")
        return part.constant

    def _computed(self, node: ast.BinOp, compute: Callable[[Any, Any], Any], values: Values) -> Any:
        a, b = (_exact(self._of_kind(part, values, "number").values) for part in (node.left, node.right))
        found = compute(a, b)
        if found.dtype.kind != "i":
            return found
        if np.any((np.abs(compute(a.astype(float), b.astype(float))) >= _EXACT) & (b != 0)):
            raise self._refused(node, "has whole numbers that are too large")
        if compute in (operator.floordiv, operator.mod) and np.any(b == 0):
            return np.where(b == 0, np.nan, found)  # numpy makes 0 of it
        return found

    def _compared(self, node: ast.expr, left: ast.expr, op: ast.cmpop, right: ast.expr, values: Values) -> Any:
        first = self._of_kind(left, values, "number", "text", "condition")
        if isinstance(op, ast.In | ast.NotIn):
            found = self._contained(node, first, self._of_kind(right, values, "list", "text"))
            return found if isinstance(op, ast.In) else np.logical_not(found)
        if type(op) not in _COMPARED:
            raise self._refused(node, "compares with `is`: use == or !=")
        second = self._of_kind(right, values, "number", "text", "condition")
        first, second = self._numbered(node, first, second), self._numbered(node, second, first)
        if first.kind != second.kind:
            raise self._refused(node, f"compares a {first.kind} with a {second.kind}")
        # As numpy compares: 0.7 is what a float32 field holds of 0.7.
        return _COMPARED[type(op)](first.values, second.values)

    def _contained(self, node: ast.expr, first: _Part, second: _Part) -> Any:
        if second.kind == "text":
            if first.kind != "text":
                raise self._refused(node, f"looks for a {first.kind} in a text")
            return np.asarray(np.frompyfunc(operator.contains, 2, 1)(second.values, first.values), np.bool_)
        constants = second.values
        if first.labels:
            constants = [self._label(node, one) if isinstance(one, str) else one for one in constants]
        kinds = {"text" if isinstance(one, str) else "number" for one in constants}
        if kinds - {first.kind}:
            raise self._refused(node, f"looks for a {first.kind} in a list with a {(kinds - {first.kind}).pop()}")
        if first.kind == "text":
            return _each(frozenset(constants).__contains__, first.values)
        numbers = np.asarray(first.values)
        whole = all(isinstance(one, int) and abs(one) < _EXACT for one in constants)
        # Otherwise np.isin compares as floats.
        if whole and len(constants) > _FEW and np.can_cast(numbers.dtype, np.int64):
            return np.isin(numbers, np.array(constants, np.int64))
        found = np.zeros(numbers.shape, np.bool_)
        for one in constants:
            found |= numbers == one
        return found

    def _numbered(self, node: ast.expr, part: _Part, other: _Part) -> _Part:
        """The number of a class where its name is compared with labels."""
        if not other.labels or part.kind != "text" or part.constant is None:
            return part
        return _Part("number", self._label(node, part.constant))

    def _label(self, node: ast.expr, name: str) -> int:
        if name not in self._classes:
            raise self._refused(node, f"has no class of the store: {name!r}{did_you_mean(name, self._classes)}")
        return self._classes[name]

    def _element(self, node: ast.expr, of: ast.Name, at: ast.expr, values: Values) -> _Part:
        vector, number = self._of_kind(of, values, "vector"), self._constant(at, values)
        field = self._fields[of.id]
        length = (field.shape[0] or 0) if len(field.shape) == 1 else 0
        if type(number) is not int or not -length <= number < length:
            raise self._refused(node, f"is no number: {of.id} has shape {field.shape}")
        return _Part(_kind_of(field), vector.values[:, number])

    def _refused(self, node: ast.expr, why: str) -> UsageError:
        part = ast.get_source_segment(self.text.strip(), node) or self.text
        return UsageError(f"{self._said}: {part!r:.80} {why}")


def _kind_of(field: Field) -> str:
    return "condition" if field.dtype == "bool" else "number"


def _exact(value: Any) -> NDArray[Any]:
    """As int64 or float64, in which sums of small types do not overflow."""
    array = np.asarray(value)
    return array.astype(np.int64 if np.can_cast(array.dtype, np.int64) else np.float64)


def _each(function: Callable[[Any], Any], values: Any, dtype: type = np.bool_) -> NDArray[Any]:
    """What the function returns for each of the values, or for the one value."""
    return np.asarray(np.frompyfunc(function, 1, 1)(values), dtype)
