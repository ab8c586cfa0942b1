"""Small stores that promise much."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from hostile.copies import Copy, Mutation
from hostile.stores import HEIGHT, IMAGES, WIDTH


def bombs(variant: str) -> Iterator[Mutation]:
    """Small files that promise much."""

    def texts(copy: Copy) -> None:
        length = 4 << 20
        copy.put("key", np.full(length, ord("a"), np.uint8))
        copy.put("key.offset", np.where(np.arange(IMAGES + 1) % 2, length, 0))

    def chunks(copy: Copy) -> None:
        """The same compressed piece, very often, for one enormous image."""
        first, second = (shard["fields"]["image"] for shard in copy.tree["shards"])
        table, side = copy.array("image.chunk"), 30_000
        first["chunks"] = -(-side * side * 3 // first["chunk_bytes"])
        copy.put("image.chunk", np.concatenate([np.tile(table[:1], (first["chunks"], 1)), table[-second["chunks"] :]]))
        for column, value in (("shape", [side, side, 3]), ("bytes", side * side * 3), ("offset", 0)):
            array = copy.array(f"image.{column}")
            array[0] = value
            copy.put(f"image.{column}", array)

    def inflates(copy: Copy) -> None:
        """A piece that inflates to far more than it should."""
        bomb = _bomb()
        table = copy.array("image.chunk")
        data = copy.read(copy.shards[0])
        table[0] = len(data), len(bomb)
        copy.forge(copy.shards[0], bytes(data) + bomb)
        copy.put("image.chunk", table)

    def wide(copy: Copy, shape: list[int]) -> None:
        copy.tree["fields"]["image"]["shape"] = shape
        copy.seal()

    yield Mutation("bomb", "texts that overlap", texts)
    # Planes lie flat: of their height and width nothing speaks but the manifest, and its seal.
    turned = [[WIDTH, HEIGHT, 3]] if "yuv420" not in variant or "keep" in variant else []
    absurd = [[HEIGHT, WIDTH, 1 << 40], [1 << 47, 1 << 47, 3], [1 << 20, 1 << 20, 3], [1 << 16, 1], [1] * 16, []]
    near = [[1000, 1000, 3], [HEIGHT * 2, WIDTH, 3], [HEIGHT * WIDTH * 3], [HEIGHT, WIDTH * 3, 1]]
    for shape in (*absurd, *near, *turned):
        yield Mutation("images", f"of {shape}", partial(wide, shape=shape))
    if "gzip" in variant:
        yield Mutation("bomb", "a piece that inflates", inflates)
        yield Mutation("pieces", "none in the first shard", _no_pieces)
        if "keep" in variant:
            yield Mutation("bomb", "one piece for all", chunks)
        for number in (0, -1, 1 << 62, 1 << 63, 1 << 70):
            yield Mutation("pieces", f"of {number} bytes", partial(_piece_bytes, number=number))


@cache
def _bomb() -> bytes:
    """Twice as much as a case may take of memory."""
    import zlib

    return zlib.compress(bytes(1 << 27), 9)


def _no_pieces(copy: Copy) -> None:
    first, second = (shard["fields"]["image"] for shard in copy.tree["shards"])
    second["chunks"] += first["chunks"]
    first |= {"chunks": 0, "chunk_bytes": 0}
    copy.seal()


def _piece_bytes(copy: Copy, number: int) -> None:
    for shard in copy.tree["shards"]:
        shard["fields"]["image"]["chunk_bytes"] = number
    copy.seal()
