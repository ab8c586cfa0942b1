"""The page, served while a notebook or another program goes on."""

from __future__ import annotations

import base64
import threading
import weakref
from html import escape

import numpy as np

from rawpack_packer.text import count
from rawpack_packer.view import drawn
from rawpack_packer.view.looked_at import LookedAt
from rawpack_packer.view.server import Viewer

_TILES, _SIDE = 24, 112


class ServedPage:
    """A page that is served until `close()`, or until nothing refers to this anymore."""

    def __init__(self, server: Viewer, store: LookedAt) -> None:
        """store: whose samples a notebook shows."""
        self._store, self.url = store, server.url
        """What to open in a browser of this machine. It has the token that the page needs."""
        threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True, name="rawpack view").start()
        self._end = weakref.finalize(self, _end, server)

    def close(self) -> None:
        """Stop serving the page."""
        self._end()

    def __repr__(self) -> str:
        return f"ServedPage({self.url})"

    def _repr_html_(self) -> str:
        """For notebooks: the first samples, and a link to the page."""
        tiles = self._store.tiles(np.arange(min(_TILES, len(self._store.reader))))
        cells = "".join(self._cell(tile["row"], tile["label"] or tile["key"]) for tile in tiles)
        words = count(len(self._store.reader), "sample")
        link = f'<a href="{escape(self.url)}" target="_blank" rel="noreferrer">look at all of them</a>'
        return f"<div>{escape(self._store.name)}: {words}, {link}</div><div>{cells}</div>"

    def _cell(self, row: int, caption: str) -> str:
        try:
            image = self._store.pixels(row, self._store.images[0]) if self._store.images else np.zeros((1, 1, 1))
            kind, data = drawn.thumbnail(image, _SIDE)
            shown = f'<img src="data:{kind};base64,{base64.b64encode(data).decode()}" alt="sample {row}">'
        except Exception as error:  # shown in place of the sample: displaying an object must not fail
            shown = escape(f"{type(error).__name__}: {error}"[:200])
        style = f"display:inline-block;width:{_SIDE}px;margin:3px;vertical-align:top;overflow:hidden;font-size:11px"
        return f'<figure style="{style}">{shown}<figcaption>{escape(caption[:60])}</figcaption></figure>'


def _end(server: Viewer) -> None:
    server.shutdown()
    server.server_close()
