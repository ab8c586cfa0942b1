"""The XML files of Pascal VOC: the objects of one image. They may come from anywhere, so nothing in one is expanded or
fetched: a file with a DOCTYPE is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from xml.parsers import expat

from rawpack_packer.sources.listing.faults import BadListingError, fault, shown

POSES = ("", "Frontal", "Left", "Rear", "Right")
"""Poses by their numbers; 0 stands for all others."""
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_DEEPEST = 32
_OBJECT = ("annotation", "object")


@dataclass
class ImageObjects:
    """The objects in one image."""

    names: list[str] = field(default_factory=list)
    """Of their classes."""
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    """Left, top, right, bottom in pixels, counted from the image's corner."""
    flags: list[tuple[int, int, int]] = field(default_factory=list)
    """Difficult, truncated, and the number of the pose."""
    size: tuple[int, int] = (0, 0)
    """(height, width) of the image; 0 where the file does not say."""


def parse(data: bytes, name: str, where: str) -> ImageObjects:
    """What a file says. name: of the file. where: the source, printable. Raises BadListingError."""
    reader = _XmlParser(name, where)
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        what = f"is not XML: {expat.ErrorString(error.code)}"
        raise fault(where, error.lineno, error.offset + 1, "", what, file=name) from None
    except _RefusedXmlError as error:
        raise fault(where, *error.place, "", str(error), file=name) from None
    return reader.found


class _RefusedXmlError(Exception):
    """Ends the parsing of a file."""

    def __init__(self, what: str, place: tuple[int, int]) -> None:
        super().__init__(what)
        self.place = place


class _XmlParser:
    def __init__(self, name: str, where: str) -> None:
        self.found = ImageObjects()
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse
        self._name, self._where = name, where
        self._path: list[str] = []
        self._words: list[str] = []
        self._values: dict[str, str] = {}
        """Of one object: its own elements, and those of its box."""
        self._size: dict[str, str] = {}

    def _refusal(self, what: str) -> _RefusedXmlError:
        return _RefusedXmlError(what, self._place())

    def _place(self) -> tuple[int, int]:
        """Line and column, counted from 1."""
        return self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1

    def _refuse(self, *_: object) -> None:
        raise self._refusal("has a DOCTYPE, which annotations do not need: take it out")

    def _start(self, tag: str, _: object) -> None:
        self._path.append(tag)
        self._words.clear()
        if len(self._path) > _DEEPEST:
            raise self._refusal(f"elements within more than {_DEEPEST} others")
        if len(self._path) == 1 and tag != "annotation":
            raise self._refusal(f"<{shown(tag)[1:-1]}> is not an annotation of Pascal VOC")
        if tuple(self._path) == _OBJECT:
            self._values.clear()

    def _text(self, text: str) -> None:
        self._words.append(text)

    def _end(self, tag: str) -> None:
        *above, _ = self._path
        text = "".join(self._words).strip()
        # A person's <part> has a name and a box of its own: they are further down.
        if tuple(above) == _OBJECT or (above == [*_OBJECT, "bndbox"] and tag in _SIDES):
            self._values[tag] = text
        elif above == ["annotation", "size"]:
            self._size[tag] = text
        elif tuple(self._path) == _OBJECT:
            self._object()
        elif tuple(self._path) == ("annotation", "size"):
            sides = [self._size.get(side, "") for side in ("height", "width")]
            if all(side.isascii() and side.isdigit() and len(side) < 10 for side in sides):
                self.found.size = int(sides[0]), int(sides[1])
        self._path.pop()
        self._words.clear()

    def _object(self) -> None:
        values, sides = self._values, list[float]()
        if not values.get("name"):
            raise self._fault("name", "an object without a name")
        for side in _SIDES:
            try:
                number = float("nan") if "_" in values[side] else float(values[side])
            except KeyError:
                raise self._fault(side, "an object without it") from None
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise self._fault(side, f"{shown(values[side])} is not a number")
            sides.append(number)
        left, top, right, bottom = sides
        if right < left or bottom < top:
            raise self._fault("bndbox", f"({left:g}, {top:g}, {right:g}, {bottom:g}): its end is before its beginning")
        for flag in ("difficult", "truncated"):
            if values.get(flag, "") not in ("", "0", "1"):
                raise self._fault(flag, f"{shown(values[flag])} is not 0 or 1")
        self.found.names.append(values["name"])
        # VOC counts pixels from 1, and both ends belong to the box.
        self.found.boxes.append((left - 1, top - 1, right, bottom))
        pose = values.get("pose", "")
        flags = (int(values.get(flag) or 0) for flag in ("difficult", "truncated"))
        self.found.flags.append((*flags, POSES.index(pose) if pose in POSES else 0))  # type: ignore[arg-type]

    def _fault(self, tag: str, what: str) -> BadListingError:
        return fault(self._where, *self._place(), tag, what, file=self._name)
