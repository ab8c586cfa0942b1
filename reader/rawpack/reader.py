"""The reader: a store, opened for training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rawpack.batches import Batches, Options, choose_fields, choose_workers, image_size_of
from rawpack.errors import UsageError
from rawpack.library import Library
from rawpack.manifest import Field
from rawpack.order import BlockShuffled, Order, RankSplit, Sequential, Shuffled, resolve_rank

StorePath = str | os.PathLike[str]


class Reader:
    """Reads a store that `rawpack pack` made, whatever its format: the manifest says that, never the caller.

        reader = Reader("dst/")
        for batch in reader.batches(512, shuffle=True):
            batch["image"]      # uint8 (512, 256, 256, 3), RGB

    `reader[i]` gives one sample as a dict of arrays. A reader holds no open files, may be used from several threads,
    and can be pickled: the copy opens the store anew.
    """

    def __init__(self, path: StorePath | Sequence[StorePath]) -> None:
        """path: a store, or several with the same fields, read one after the other as one.

        Raises StoreError (UnfinishedStoreError, DamagedStoreError) where it is none.
        """
        several = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._paths = [Path(one) for one in several]
        self._library = Library(self._paths)

    def __len__(self) -> int:
        return len(self._library)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {field.dtype} {_shown(field)}" for name, field in self.fields.items())
        formats = "+".join(dict.fromkeys(store.manifest.format for store in self._library.stores))
        return f"Reader({', '.join(map(str, self._paths))}: {formats}, {len(self)} samples; {fields})"

    def __reduce__(self) -> tuple[type[Reader], tuple[list[Path]]]:
        return type(self), (self._paths,)

    @property
    def fields(self) -> Mapping[str, Field]:
        """Name -> kind, dtype and shape of one sample, None where samples differ."""
        return self._library.fields

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label; None where the source had none."""
        return self._library.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class name -> label, as torchvision's ImageFolder has it."""
        return {name: label for label, name in enumerate(self.classes or ())}

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample: its fields, numbers and images as new arrays, texts as str, and `index`."""
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"sample {index} of a reader with {len(self)}")
        rows, sample = np.array([row], np.int64), dict[str, Any]()
        for name, field in self.fields.items():
            if field.kind == "text":
                sample[name] = self._library.text(name, rows)[0]
            elif field.kind == "number":
                out = np.empty((1, *(n or 0 for n in field.shape)), field.dtype)
                self._library.read_into(name, rows, out)
                sample[name] = out[0]
            else:
                sample[name] = np.array(self._library.read(name, row))
        sample["index"] = np.int64(row)
        return sample

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool | Literal["block"] = False,
        seed: int = 0,
        drop_last: bool = False,
        fields: Sequence[str] | None = None,
        image_size: int | tuple[int, int] | None = None,
        workers: int | None = None,
        backend: Literal["process", "thread"] | None = None,
        rank: int | Literal["auto"] = 0,
        world_size: int = 1,
        uneven: Literal["pad", "keep"] = "pad",
        timeout: float = 120,
        max_slots: int | None = None,
    ) -> Batches:
        """Batches of this reader: dicts of numpy arrays with the same leading length, one per field.

        batch_size: samples in a batch; the last may have fewer, unless `drop_last`.
        shuffle: True for a new random order each epoch, "block" for one that is kinder to disks, False for none. The
            order depends on `seed` and the epoch alone, never on the format or the workers.
        fields: names; None gives all numbers and images. Texts come when named, as a list of str. `index`, the sample's
            row in this reader, always comes.
        image_size: resize to cover and centre-crop each image to (height, width), in the workers.
        workers: 0 does all in this process; None chooses from the CPUs that this process really has and the store.
        backend: "process" or "thread"; None chooses.
        rank, world_size, uneven: which part of each step is this process's; "auto" reads the launcher's environment.
        timeout: seconds without any progress after which a worker is taken for dead.
        max_slots: the most batches that may be held at once; None for any number.

        The arrays are yours as long as you hold them, or any view of them: their memory is used again only then.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise UsageError(f"batch_size={batch_size!r}: a number of samples from 1 on")
        if not timeout > 0:
            raise UsageError(f"timeout={timeout!r}: seconds, more than 0")
        size = image_size_of(image_size)
        chosen = choose_fields(self._library, fields, size is not None)
        number, kind = choose_workers(self._library, chosen, workers, backend)
        if len(self) == 0:
            raise UsageError("the store holds no samples")
        options = Options(min(int(batch_size), len(self)), chosen, size, number, kind, timeout, max_slots)
        order = self._order(shuffle, seed)
        if rank == "auto":
            rank, world_size = resolve_rank("auto")
        split = RankSplit(len(self), int(batch_size), rank, world_size, uneven, drop_last)
        return Batches(self._library, order, split, seed, options)

    def _order(self, shuffle: bool | str, seed: int) -> Order:
        if shuffle == "block":
            return BlockShuffled(len(self), seed)
        if not isinstance(shuffle, bool | np.bool_):
            raise UsageError(f"shuffle={shuffle!r}: True, False or 'block'")
        return Shuffled(len(self), seed) if shuffle else Sequential(len(self))


def _shown(field: Field) -> str:
    return "x".join("?" if n is None else str(n) for n in field.shape) or "scalar"
