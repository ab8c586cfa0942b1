"""What the command adds to a path: splits, a destination, what the shell makes of a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cases import Case, images
from cases_folders import CLASSES
from cases_splits import SPLIT_COLUMN, TWO

_TABLE: Mapping[str, Any] = {**images("photos/{0,1,2,3}.jpg"), "list.csv": SPLIT_COLUMN}


def typed(name: str, words: str, make: Any, wrong: str = "", needs: tuple[str, ...] = ()) -> Case:
    return Case(name, f"pack {words}", make, {}, wrong, needs, is_command=True)


CASES = (
    typed("no destination", "photos", CLASSES),
    typed("splits of a folder, named", "--splits train,val photos out", TWO),
    typed("a split that is not there", "--splits train,test photos out", TWO),
    typed("one split", "photos/val out", TWO),
    typed("a share of each class", "--holdout val=1 photos out", CLASSES),
    typed("a share of what is divided", "--holdout val=1 photos out", TWO),
    typed("splits by a column", "--split-by split list.csv out", _TABLE),
    typed(
        "splits of other classes",
        "--splits train,val photos out",
        images("photos/train/{cat,dog}/0.jpg", "photos/val/dog/0.jpg"),
    ),
    typed(
        "splits of which one has no classes",
        "--splits train,val photos out",
        images("photos/train/{cat,dog}/0.jpg", "photos/val/0.jpg"),
    ),
    typed("a pattern that the shell expands", "photos/cat/0.jpg photos/cat/1.jpg photos/dog/0.jpg out", CLASSES),
    typed("a pattern in quotes", "'photos/*/*.jpg' out", CLASSES),
    typed("a blank that is not quoted", "my photos out", images("my photos/{0,1}.jpg")),
    typed("a destination in the source", "photos photos/out", CLASSES),
    typed("the source as the destination", "photos photos", CLASSES),
    typed("a destination that is a file", "photos notes.txt", {**CLASSES, "notes.txt": "words"}),
    typed("a variable that is not expanded", "photos '$HOME/out'", CLASSES),
)
