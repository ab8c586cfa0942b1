"""Rows that repeat an image with another text, as Flickr30k's captions: they become one sample with a list of texts."""

from __future__ import annotations

import pickle
from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import chain

from rawpack_packer.sources.listing.columns import ListedRows, RawColumn
from rawpack_packer.sources.listing.objects import are_alike, images_of
from rawpack_packer.sources.video import names_video
from rawpack_packer.text import count, listed


def by_caption(rows: ListedRows, images: Sequence[str], single: Container[str]) -> ListedRows | None:
    """The images in the order of their first rows; None where each has one row, or rows of one differ in more than
    texts. images: the columns that name images. single: columns of one value for each."""
    lines, raw = rows.lines, rows.raw
    rows_of = images_of([raw[name] for name in images], lines)
    image_of, firsts = rows_of.of_rows, rows_of.firsts
    if not rows_of.repeat or names_video(raw[images[0]].first()):
        return None
    found, texts, left_out = dict[str, RawColumn](), list[str](), list[str]()
    for name, column in raw.items():
        if name in images or are_alike(column, image_of, firsts):
            found[name] = column.pick(firsts)
        elif name in single:
            return None
        elif isinstance(column.first(), str):
            lists: list[list[str]] = [[] for _ in firsts]
            for image, value in zip(image_of.tolist(), chain.from_iterable(column), strict=True):
                lists[image] += [] if column.place.empty(value) else [value]
            place = replace(column.place, number=0, cells=False)  # as JSON has them
            found[name] = replace(column, place=place, lines=lines[firsts], blocks=[pickle.dumps(lists, -1)])
            texts.append(name)
        else:
            left_out.append(name)
    if not texts:
        return None
    done = [f"{count(len(lines), 'row')} of {count(len(firsts), 'image')}: lists of texts for each, {listed(texts, 8)}"]
    done += [f"left out because rows of one image differ in them: {listed(left_out, 8)}"] if left_out else []
    return ListedRows(rows_of.lines, found, left_out=done)
