"""Images that belong together and lie in one folder: `0.jpg` and `0.png`, or `0.png` and `0_mask.png`. Each would be a
sample, the mask too."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice, pairwise

import msgspec
import numpy as np

from rawpack_packer.sources.beside import AnnotatedError, Seen, command
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.pairs import ending, unsuffixed
from rawpack_packer.text import plain

MASKS = re.compile(
    r"((?P<of>.+?)([ _-]|(?=annot)))?"
    r"(annot|annotation|depth|ground_?truth|gt|label|mask|seg|segmentation|segmentationclass|trimap)s?",
    re.IGNORECASE,
)
"""Names of folders of images that belong to other images, alone or after the name of what they belong to."""
FIRST = re.compile(
    r"before|blur(red|ry)?|degraded|haz[ey]|in(puts?)?|left|low|lq|lr|nois[ey]|noisy|rainy?|source", re.I
)
SECOND = re.compile(r"after|clean|clear|high|hq|hr|out(puts?)?|r|right|sharp|targets?", re.I)
"""Names of images that belong together, where these are named alike."""
_FOLDERS, _IMAGES = 256, 2000
"""Folders, and images of each, that are looked at."""
_FEW, _WORDS = 3, 6
_LOSSLESS = (".png", ".bmp", ".tif", ".tiff", ".gif", ".npy")


class Twins(msgspec.Struct, frozen=True):
    """The pairs in one folder."""

    pairs: Sequence[tuple[bytes, bytes]]
    """Names without the folder: an image, and what belongs to it."""
    images: int
    """All that the folder has, or the first of these."""
    word: str = ""
    """What the second of two has at the end of its name, such as "_mask"; "" where only the extension differs."""

    @property
    def most(self) -> bool:
        return 2 * 2 * len(self.pairs) >= self.images


def twins_of(names: Sequence[bytes]) -> Twins:
    """The pairs among the names of a folder's images: by their extensions, or by one word at the end."""
    stems = dict[bytes, list[bytes]]()
    for name in names:
        stems.setdefault(unsuffixed(name), []).append(name)
    same = [_in_order(*two) for two in stems.values() if len(two) == 2]
    if same:
        return Twins(same, len(names))
    words, ordered = Counter(map(ending, stems)), sorted(stems)
    words.update(
        two[len(one) :] for one, two in pairwise(ordered) if two.startswith(one) and ending(two) != two[len(one) :]
    )
    best = Twins((), len(names))
    # Numbers at the end count images.
    for word in [word for word, n in words.most_common(_WORDS) if n > 1 and not word.strip(b" _.-").isdigit()]:
        bases = {stem.removesuffix(word): stem for stem in stems if word and stem.endswith(word)}
        firsts = {
            stem: bases.get(stem) or bases.get(stem[: len(stem) - len(ending(stem))])
            for stem in ordered
            if not stem.endswith(word)
        }
        times = Counter(firsts.values())  # one of many frames belongs to none of them
        pairs = [
            (stems[stem][0], stems[partner][0])
            for stem, partner in firsts.items()
            if partner is not None and times[partner] == 1
        ]
        if len(pairs) > 1 and (len(pairs), _rank(word)) > (len(best.pairs), _rank(best.word.encode())):
            best = Twins(pairs, len(names), text_of(word))
    return best


def refuse_twins(seen: Seen, part: FolderFiles) -> None:
    """Raise AnnotatedError for images that belong together; few are a line."""
    found, every = list[tuple[bytes, Twins]](), list[bytes]()
    for k in np.flatnonzero(np.bincount(part.folder_of))[:_FOLDERS].tolist():
        rows = islice(np.flatnonzero(part.folder_of == k).tolist(), _IMAGES)
        names = [part.names[int(part.ends[i]) : int(part.ends[i + 1])] for i in rows]
        every += names
        if len(names) > 1 and (twins := twins_of(names)).pairs:
            found.append((part.folders[k], twins))
    if not found:
        return
    total, shared = sum(seen.filled.values()), sum(len(twins.pairs) for _, twins in found)
    folder, twins = max(found, key=lambda one: len(one[1].pairs) * (1 + one[1].most))
    image, partner = twins.pairs[0]
    what = f"{plain(text_of(folder + partner))} next to {plain(text_of(folder + image))}"
    alone = command("--source", seen.kind, seen.path)
    if not (4 * shared >= total or (twins.most and len(twins.pairs) >= _FEW)):
        more = f" and {shared - 1:,} more such pairs" if shared > 1 else ""
        seen.lines.append(
            f"{what}{more} may belong together, and each image is a sample: {_cure(seen, twins, found, every)}"
        )
        return
    cure = f"{_cure(seen, twins, found, every)}, and {alone} makes each image a sample"
    raise AnnotatedError(f"{plain(seen.path)} contains {what}, which may belong together: {cure}")


def _cure(seen: Seen, twins: Twins, found: Sequence[tuple[bytes, Twins]], every: Sequence[bytes]) -> str:
    """The command that packs pairs as samples of two images; where no pattern fits the second of each pair alone, the
    page. every: names of images."""
    ends = {text_of(partner[len(unsuffixed(partner)) :]) for _, one in found for _, partner in one.pairs}
    words = {one.word for _, one in found}
    tail = (twins.word + min(ends)).lower().encode()
    fit = sum(name.lower().endswith(tail) for name in every)
    shared = sum(len(one.pairs) for _, one in found)
    alone = len(every) - 2 * shared if len(every) == sum(seen.filled.values()) else 0
    if seen.in_archive or len(ends) > 1 or len(words) > 1 or fit > shared or alone > 2 * shared:
        return "see docs/how-to/pack-several-images.md#pairs-in-one-folder"
    word = twins.word.strip(" _.-")
    folder, partner = found[0][0], found[0][1].pairs[0][1]
    head = seen.images.head(folder + partner)
    # A mask is a PNG file, which says in its header whether it is gray or of a palette.
    flat = re.match(rb"\x89PNG.{21}[\x00\x03]", head, re.DOTALL)
    is_mask = "depth" not in word.lower() and bool(head[1:4] == b"PNG" and MASKS.fullmatch(word) if word else flat)
    name = "mask" if is_mask else word.lower() if re.fullmatch(r"[A-Za-z]\w*", word, re.ASCII) else "target"
    options = ("--images", f"{name}=*{twins.word}{min(ends)}", *(("--field", "mask:mask") if is_mask else ()))
    options += ("--max-rejects", str(alone)) if alone else ()
    rest = f" and rejects the {alone:,} without" if alone else ""
    return f"{command(*options, seen.path)} packs each image with its {'mask' if is_mask else 'partner'}{rest}"


def _in_order(one: bytes, other: bytes) -> tuple[bytes, bytes]:
    """Two images of one name, the second of which belongs to the first: that without loss, if only one is so."""
    lossless = [name.lower().endswith(tuple(map(str.encode, _LOSSLESS))) for name in (one, other)]
    return (other, one) if lossless == [True, False] else (one, other)


def _rank(word: bytes) -> int:
    """Which of two words at the end of names is that of the second image."""
    text = text_of(word.strip(b" _.-"))
    return bool(MASKS.fullmatch(text) or SECOND.fullmatch(text)) - bool(FIRST.fullmatch(text))
