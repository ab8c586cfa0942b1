"""Mutations of the manifest, sealed again so that what lies behind the seal is tested."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hostile.copies import OUTSIDE, SEAL, Copy, Mutation


def _nodes(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value of the manifest with its path; of the recipe, which no reader interprets, the first level."""
    if path:
        yield path, tree
    if (isinstance(tree, dict) and len(path) < 2) or (isinstance(tree, dict) and path[0] != "recipe"):
        for key, value in tree.items():
            yield from _nodes(value, (*path, key))
    elif isinstance(tree, list):
        for position, value in enumerate(tree):
            yield from _nodes(value, (*path, position))


def _evil(value: Any, path: tuple[str | int, ...]) -> list[Any]:
    """Values to put in the place of `value`."""
    if isinstance(value, bool) or value is None:
        return [0, "", [], {}, True, -1, 1 << 63]
    if isinstance(value, int):
        near = [value + 1, value - 1, value * 2, value * 1000, value // 2]
        far = [0, -1, 1, 1 << 31, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63), 10**30]
        return [*far, *near, 1.5, True, None, str(value), [value], {}]
    if isinstance(value, str):
        name = Path(value).name or "x"
        climbs = [f"../{OUTSIDE}/{name}", f"columns-1/../../{OUTSIDE}/{name}", "../x", "", "..", "/", "a/b", "a\\b"]
        kinds = ["image", "mask", "number", "ragged", "text", "deflate", "jpeg", "ycgco420", "hdf5", "store.json"]
        dtypes = ["uint16", "float64", "object", "complex128", "O", "f8,f8", "(3,)u1", "datetime64[s]", "V8", ","]
        odd = ["a\0b", "\x1b[2J", "\u202e", "é", "x" * 5000, "(" * 500, value.upper(), value + " ", "~", "%s{0}"]
        return [
            f"{{outside}}/{name}", *climbs, *kinds, *(dtypes if path[-1] == "dtype" else dtypes[:3]), *odd,
            0, None, [], {}, [value], True,
        ]  # fmt: skip
    if isinstance(value, list):
        lists: list[Any] = [[], None, {}, "x", 0, [None], [[]], [-1], [0], [1 << 62] * 3, [[[]]], value + value]
        return [*lists, value[:1] * 40, value[::-1], value[:-1], value[1:], value + value[:1], [*value, 1]]
    return [None, [], {}, "x", 0, [value], {"x": value}, value | {"unknown": 1}, value | {"": {}}]


def manifest_values(tree: Any) -> Iterator[Mutation]:
    for path, value in _nodes(tree):
        where = "/".join(map(str, path))
        for number, evil in enumerate(_evil(value, path)):
            yield Mutation(f"manifest {where}", f"{str(evil)[:40]!r} ({number})", partial(_set, path=path, value=evil))
        yield Mutation(f"manifest {where}", "dropped", partial(_drop, path=path))
        if isinstance(path[-1], str):
            yield Mutation(f"manifest {where}", "renamed", partial(_rename, path=path))


def _parent(tree: Any, path: Sequence[str | int]) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def _set(copy: Copy, path: Sequence[str | int], value: Any) -> None:
    if isinstance(value, str):
        value = value.replace("{outside}", str(copy.outside))
    _parent(copy.tree, path)[path[-1]] = value
    copy.seal()


def _drop(copy: Copy, path: Sequence[str | int]) -> None:
    del _parent(copy.tree, path)[path[-1]]
    copy.seal()


def _rename(copy: Copy, path: Sequence[str | int]) -> None:
    parent = _parent(copy.tree, path)
    parent[f"../{path[-1]}"] = parent.pop(path[-1])
    copy.seal()


def manifest_texts() -> Iterator[Mutation]:
    """Manifests that are no plain JSON, or whose parts fit together in an odd way."""

    def text(change: Callable[[bytes], bytes]) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            copy.seal_text(change(json.dumps(copy.tree, indent=1).encode()))

        return apply

    def tree(change: Callable[[Any], object]) -> Callable[[Copy], None]:
        def apply(copy: Copy) -> None:
            change(copy.tree)
            copy.seal()

        return apply

    def unsealed(change: Callable[[bytes], bytes]) -> Callable[[Copy], None]:
        return lambda copy: copy.write("store.json", change(bytes(copy.read("store.json"))))

    def rows(parts: str, numbers: Sequence[int]) -> Callable[[Any], object]:
        def change(tree: Any) -> None:
            tree[parts] = [tree[parts][k % len(tree[parts])] | {"rows": n} for k, n in enumerate(numbers)]

        return change

    def no_fields(tree: Any, samples: int) -> None:
        shard, column = tree["shards"][0] | {"rows": samples, "fields": {}}, tree["columns"][0] | {"rows": samples}
        tree |= {"fields": {}, "samples": samples, "shards": [shard], "columns": [column]}

    deep = b'"recipe": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b","
    yield Mutation("manifest", "nested 100,000 deep", text(lambda t: t.replace(b'"recipe":', deep + b'"recipe":', 1)))
    yield Mutation("manifest", "keys twice", text(lambda t: t.replace(b'"samples"', b'"samples": -1, "samples"', 1)))
    yield Mutation("manifest", "not UTF-8", text(lambda t: t.replace(b'"cat"', b'"c\xff\xfet"')))
    yield Mutation("manifest", "half a surrogate pair", text(lambda t: t.replace(b'"cat"', b'"c\\ud800t"')))
    long = b'"samples": 1' + b"0" * 5000
    yield Mutation("manifest", "an integer of 5,000 digits", text(lambda t: t.replace(b'"samples": ', long, 1)))
    yield Mutation("manifest", "NaN", text(lambda t: t.replace(b'"samples": ', b'"samples": NaN, "x": ', 1)))
    yield Mutation("manifest", "a list", text(lambda t: b"[" + t + b"]"))
    yield Mutation("manifest", "trailing text", text(lambda t: t + b"\n{}\n}"))
    yield Mutation("manifest", "two seals", text(lambda t: t.replace(b"\n}", (SEAL + "0" * 32 + '"\n}').encode())))
    yield Mutation("manifest", "a byte order mark", text(lambda t: b"\xef\xbb\xbf" + t))
    yield Mutation("manifest", "newer", tree(lambda t: t.update(rawpack=2)), check=True)
    yield Mutation("manifest", "no samples", tree(lambda t: t.update(samples=0, shards=[], columns=[])), check=True)
    for samples in (1 << 40, 1 << 62, 1 << 63, 1 << 70):
        yield Mutation("manifest", f"no fields, {samples} samples", tree(partial(no_fields, samples=samples)))
    for parts in ("shards", "columns"):
        beyond = (1 << 63, 66 - (1 << 63))
        for numbers in ((70, -4), (66, 0), (0, 66), beyond, (33, 33), (65, 1), (22, 22, 22)):
            yield Mutation("manifest", f"{parts} of {numbers} rows", tree(rows(parts, numbers)))
    yield Mutation("manifest, unsealed", "a digit", unsealed(lambda t: t.replace(b"66", b"67", 1)))
    yield Mutation("manifest, unsealed", "the seal", unsealed(lambda t: t[:-8] + b"0000" + t[-4:]))
    yield Mutation("manifest, unsealed", "zeros", unsealed(lambda t: bytes(len(t))))
    yield Mutation("manifest, unsealed", "text after it", unsealed(lambda t: t + b" "))
