"""The code gets no heavier, nor harder to read, without a use that a user would miss."""

from __future__ import annotations

import weigh
from rooms import ROOT
from weigh import differences, place_of, renewed, weights, written

from rawpack_packer.sources import KINDS


def test_what_is_written_is_what_the_code_weighs() -> None:
    """A figure that rose has a reason beside it; one that fell was written down. Rooms that were written anew have none
    of the words, and every kind of source is weighed where the module is that opens it."""
    weighed, text = weights(), weigh.FILE.read_text("utf-8")
    wrong = differences(weighed, written(text))
    assert not wrong, "\n".join(wrong)
    assert renewed(weighed, written(text)) == text
    assert weighed["packer/rawpack_packer/sources/look"][1:] == (0, 0, 0, 0)
    for kind in KINDS.values():
        module = str(kind.open).partition(":")[0].replace(".", "/")
        path = ROOT / "packer" / "rawpack_packer" / "sources" / f"{module}.py"
        assert place_of(path if path.exists() else path.with_suffix("") / "__init__.py") in weighed
