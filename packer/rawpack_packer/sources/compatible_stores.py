"""Checks whether several stores can be packed as one, and combines their fields, images and classes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.store.store import Store
from rawpack_packer.options import opt
from rawpack_packer.provenance import NOT_RECORDED, packing_runs, read_provenance
from rawpack_packer.sources.base import differing_field, shown_field
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.video import Videos
from rawpack_packer.text import listed, plain

IMAGE, KEY, LABEL = "image", "key", "label"
_SHOWN = 10


def united_classes(stores: Sequence[Store]) -> tuple[str, ...] | None:
    """The classes of all stores: those of the first, then the new ones of each next."""
    if stores[0].manifest.classes is None:
        return None
    return tuple(dict.fromkeys(name for store in stores for name in store.manifest.classes or ()))


def image_kind(stores: Sequence[Store]) -> ImageKind:
    """What the images of all stores are."""
    field, shape = stores[0].fields[IMAGE], _common_shape(IMAGE, stores)
    return ImageKind(field.dtype, shape, pictures=field.dtype == "uint8" and len(shape) == 3 and shape[2] in (1, 3))


def field_kind(name: str, stores: Sequence[Store]) -> FieldKind:
    """What a field of all stores is."""
    kind = FieldKind.of(stores[0].fields[name])
    array = all(store.fields[name].is_array for store in stores)
    return replace(kind, shape=_common_shape(name, stores), array=array)


def _common_shape(name: str, stores: Sequence[Store]) -> tuple[int | None, ...]:
    first, *others = (store.fields[name].shape for store in stores)
    return first if all(shape == first for shape in others) else (None, None, *first[2:])


def check_fields(stores: Sequence[Store]) -> None:
    """Raise UsageError, naming what differs, where stores do not have the same fields."""
    first = stores[0]
    for other in stores[1:]:
        difference = differing_field(first.fields, other.fields, _go_together)
        if difference is not None:
            name, was, now = difference
            cure = "all stores need the same fields: `rawpack export` one, fix its listing, and pack that"
            if was is None or now is None:
                has, lacks = (first, other) if now is None else (other, first)
                raise UsageError(f"{has.path} has a field {name!r}, and {lacks.path} has none; {cure}")
            if was.kind == "image" and not was.exact:
                cure = "`rawpack convert --color` gives all the same channels"
            raise UsageError(
                f"{name!r} is {shown_field(was)} in {first.path}, and {shown_field(now)} in {other.path}; {cure}"
            )
        if (first.manifest.classes is None) != (other.manifest.classes is None):
            has, lacks = (first, other) if other.manifest.classes is None else (other, first)
            raise UsageError(f"{has.path} has classes, and {lacks.path} has none, so labels do not mean the same")


def _go_together(one: Field | None, other: Field | None) -> bool:
    """Whether fields differ at most in their encoding, and in the height and width of pictures."""
    if one is None or other is None:
        return False
    start = 2 if one.in_shards and len(one.shape) == 3 else 0
    same = ("kind", "dtype", "exact", "boxes", "follows", "mirror", "displacement")
    shapes = [(len(field.shape), field.shape[start:]) for field in (one, other)]
    return shapes[0] == shapes[1] and all(getattr(one, name) == getattr(other, name) for name in same)


def check_keys(keys: Iterable[str], count: int, key: Callable[[int], str]) -> None:
    """Raise UsageError where two samples of the stores have the same key. key: the key of a sample, by its number."""
    hashes: NDArray[np.uint64] = np.fromiter((xxhash.xxh3_64_intdigest(one.encode()) for one in keys), np.uint64, count)
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    candidates = np.unique(np.concatenate([order[same], order[same + 1]]))
    found = [one for one, times in Counter(map(key, candidates.tolist())).items() if times > 1]
    if found:
        raise UsageError(
            f"{len(found):,} keys are in more than one of the stores: {_listed(found)}; {opt.prefix} puts something "
            "before the keys of each"
        )


def check_videos(stores: Sequence[Store], videos: Sequence[Videos]) -> None:
    """Raise UsageError where two stores have a video of one name that may not be the same video.

    videos: of each store; empty where samples are no frames of videos.
    """
    seen: dict[str, list[tuple[Store, int]]] = {}
    doubtful: list[str] = []
    for store, of_store in zip(stores, videos, strict=False):
        for name, number in dict(zip(of_store.names or (), of_store.numbers.tolist(), strict=False)).items():
            others = seen.setdefault(name, [])
            # Surely one video: the stores are derived from one store, or were packed from files of the same size.
            if others and not any(
                _lineage(store) & _lineage(other) or _file_sizes(store, number) & _file_sizes(other, its_number)
                for other, its_number in others
            ):
                doubtful.append(name)
            others.append((store, number))
    if doubtful:
        raise UsageError(
            f"{len(doubtful):,} videos have the same name in more than one of the stores, and may not be the same "
            f"video: {_listed(doubtful)}; {opt.prefix} puts something before the keys of each. Parts of one video can "
            "be merged if the stores were packed from the same file, or derived from one store"
        )


def _lineage(store: Store) -> set[str]:
    """The digests of a store and of all stores that it was derived from. A recipe may hold anything."""
    found, recipes = {store.digest}, [store.manifest.recipe]
    while recipes:
        origins = recipes.pop().get("origin")
        for origin in origins if isinstance(origins, list | tuple) else ():
            if isinstance(origin, dict):
                found.add(str(origin.get("digest")))
                recipes += [origin["recipe"]] if isinstance(origin.get("recipe"), dict) else []
    return found


def _file_sizes(store: Store, number: int) -> set[int]:
    """The sizes in bytes that a video's file may have had; empty where the store does not know.

    Of a store that was appended to, those of all its videos.
    """
    try:
        sizes = [read_provenance(store.path, run)[1][:, 0].tolist() for run in packing_runs(store.manifest)]
    except (*NOT_RECORDED, IndexError):
        return set()
    return set(sizes[0][number : number + 1] if len(sizes) == 1 else itertools.chain.from_iterable(sizes))


def _listed(names: Sequence[str]) -> str:
    return listed([repr(plain(name)) for name in names[:_SHOWN]], _SHOWN, total=len(names))
