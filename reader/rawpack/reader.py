"""The reader: a store, opened for training."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.batches import Batches
from rawpack.checks import flag, names
from rawpack.choose.options import DecodeOption, Options, Sampler, Workers
from rawpack.choose.settings import choose, sides, warn_of_workers
from rawpack.disk.manifest import Field
from rawpack.epoch.dataloader import attribute_of_reader
from rawpack.epoch.epochs import Epochs
from rawpack.errors import UsageError
from rawpack.former import batches_now, clips_now, reader_now
from rawpack.order.launcher import Ranks
from rawpack.order.mixed import MixLength
from rawpack.order.shuffled import Blocks
from rawpack.remote.url import shown
from rawpack.samples.sample_set import SampleSet, Scope
from rawpack.samples.selection import positions_at, positions_of
from rawpack.samples.where import Where
from rawpack.store.opening import Cache, Opening, StorePath, cache_of, opening_of, pairs_of, paths_of, selection_of
from rawpack.store.stores import Stores
from rawpack.system.user import count, suggests
from rawpack.words import INDEX

if TYPE_CHECKING:
    from rawpack.choose.options import SizeOption
    from rawpack.samples.looking import StoreInfo
    from rawpack.samples.table import Short
    from rawpack.transforms.plan import Transform


class Reader:
    """Reads a store that `rawpack pack` made, whatever its format.

        reader = Reader("dst/")
        batches = reader.batches(512, shuffle=True)     # once: each loop over it is the next epoch
        for epoch in range(90):
            for batch in batches:
                batch["image"]      # uint8 (512, 256, 256, 3), RGB

    `reader[i]` is one sample, as a dict of arrays; `reader[2:5]` and `reader[[3, 1, 4]]` have several. A reader holds
    no open files. Several threads may use it. It can be pickled: the copy opens the store again. It need not be closed,
    and can be, by `close()` or a `with` block.
    """

    @suggests(reader_now)
    def __init__(
        self,
        path: StorePath | Sequence[StorePath],
        *,
        split: str | None = None,
        preload: bool = False,
        verify: bool = False,
        cache: StorePath | Cache | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """path: a folder or URL of a store, or a list of several with the same fields, which are read as one.

        split: which store of a set of splits to read: "train".
        preload: first read all shards into memory, which all workers of this reader share; with a progress bar.
        verify: check labels, texts and all other columns against their checksums now, and each image and mask as it is
            read.
        cache: for URLs: the folder that shards are fetched into, or a `Cache` with its limit. None: RAWPACK_CACHE or
            ~/.cache/rawpack, and half of the free space.
        storage_options: for URLs: options for fsspec, such as credentials or an endpoint.
        Raises StoreError (UnfinishedStoreError, DamagedStoreError) where there is no store, UsageError where there is
        no such split.
        """
        asked = Opening(
            paths_of(path, split), flag("preload", preload), flag("verify", verify), cache_of(cache), storage_options
        )
        self._samples = SampleSet(asked, asked.open())

    if not TYPE_CHECKING:  # type checkers know all names
        __getattr__ = attribute_of_reader

    @classmethod
    @suggests()
    def mix(
        cls,
        stores: Mapping[Any, float] | Sequence[tuple[StorePath | Sequence[StorePath] | Reader, float]],
        *,
        length: MixLength = "longest",
    ) -> Reader:
        """A reader of several stores whose batches have a fixed share of each.

            reader = Reader.mix({"a/": 0.6, "b/": 0.3, "c/": 0.1})

        In each batch, and in all batches from an epoch's start up to any of them, the samples of each store are as
        many as its share says, rounded up or down. This also holds for the batches of each rank. Small stores repeat,
        each time in another order.

        stores: path -> share, or pairs of path and share. A path may be a list of paths, or a reader, of all its
            samples or some of them, which is opened again with its options. Only the proportions of the shares count.
        length: of an epoch. "longest": until each store was read completely; "shortest": until one of them would
            repeat; or a number of samples. An epoch has whole batches, so it may be up to one batch longer, or shorter
            with "shortest".

        Samples have the fields that all stores have, and `store`, int64: which of `stores` they are from, counted from
        0. Everything but `batches` treats the stores as one, one after another.
        Raises UsageError for shares that make no sense, and where a store has a field named `store`.
        """
        pairs = pairs_of(stores)
        entries = [
            one._entry() if isinstance(one, Reader) else (Opening(paths_of(one, None)), None) for one, _ in pairs
        ]
        openings, selections = zip(*entries, strict=True)
        asked = opening_of(openings, [share for _, share in pairs], length)
        library = asked.open()
        mixed = object.__new__(cls)
        mixed._samples = SampleSet(asked, library, selection_of(selections, library))
        return mixed

    def _entry(self) -> tuple[Opening, NDArray[np.int64] | None]:
        samples = self._samples
        if samples.framing is not None or samples.asked.mix is not None:
            raise UsageError(f"{self!r} cannot be mixed: mix readers of images or frames, and call clips() on the mix")
        return samples.asked, samples.selection

    def close(self) -> None:
        """End the batches of this reader, with their workers, and those of the readers that `select` and `clips` made
        of it. A reader that was opened ends its downloads too. Arrays that were handed out stay valid; to read on is a
        UsageError."""
        self._samples.close()

    def __enter__(self) -> Self:
        self._samples.check_open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._samples)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {dtype} {shape}" for name, dtype, shape in self._table())
        return f"{type(self).__name__}({self._title()}; {fields})"

    def _repr_html_(self) -> str:
        """For notebooks: what is in the store, with thumbnails of a few samples."""
        from rawpack.epoch.notebook import html_of

        title = f"{type(self).__name__}: {self._title()}"
        return html_of(title, self._table(), self._samples)

    def _title(self) -> str:
        formats = "+".join(dict.fromkeys(store.manifest.format for store in self._library.stores))
        asked, framing = self._samples.asked, self._samples.framing
        where = str(asked.mix or ", ".join(shown(str(path)) for path in asked.paths))
        samples = "samples" if framing is None else framing.title
        return f"{where}: {formats}, {len(self)} {samples}"

    def _table(self) -> list[tuple[str, str, str]]:
        return [(name, field.dtype, sides(field.shape)) for name, field in self.fields.items()]

    @property
    def _library(self) -> Stores:
        return self._samples.library

    @property
    def stores(self) -> tuple[StoreInfo, ...]:
        """The stores that are read, in order: `path`, `format`, `samples`, `bytes`, `digest`, `rejects` (how many) and
        `fields` of each, as they were packed, whatever this reader has of them."""
        from rawpack.samples.looking import StoreInfo

        return tuple(map(StoreInfo.of, self._library.stores))

    @property
    def fields(self) -> Mapping[str, Field]:
        """Name -> kind, dtype and shape of one sample, None where samples differ. Clips have frames as first axis."""
        return self._samples.fields

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label; None where the source had none."""
        return self._library.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class name -> label, as torchvision's ImageFolder has it."""
        return {name: label for label, name in enumerate(self.classes or ())}

    def __getitem__(self, index: SupportsIndex | slice | Sequence[SupportsIndex] | NDArray[Any]) -> dict[str, Any]:
        """One sample: its fields as new arrays, texts as str, lists of texts as list, and `index`: its position here.

        A slice, a list or an array of indices gives these samples together, as a batch does: one array for each field,
        and lists of texts and of what differs in length or size.

        A clip has `clip` too, and lists of what differs in length or size; random clips are those of epoch 0, seed 0.
        """
        asked: Any = range(len(self))[index] if isinstance(index, slice) else index
        if isinstance(asked, list | range) or getattr(asked, "ndim", 0) > 0:
            return self._samples.several(positions_at(asked, len(self), outside=IndexError))
        if not hasattr(asked, "__index__"):
            raise TypeError(
                f"reader[{asked!r}]: a sample is found by its number, several by a slice or a list of numbers; a field "
                "of all samples is reader.column(name), and the numbers of a key are rawpack.look(reader).find(key=...)"
            )
        at, samples = operator.index(asked), len(self)
        if not -samples <= at < samples:
            raise IndexError(f"sample {at} of a reader with {count(samples, 'sample')}")
        return self._samples.one(at + samples if at < 0 else at)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """These samples, read together, one by one: what a DataLoader of torch asks for."""
        if self._samples.clips is not None:
            return [self[index] for index in indices]
        batch = self[list(indices)]
        return [{name: values[k] for name, values in batch.items()} for k in range(len(batch[INDEX]))]

    def column(self, name: str) -> Any:
        """One field of all samples, in the order of this reader; no image is read. Numbers are an array (n, ...), texts
        a list of str, lists of texts a list of lists, ragged fields a list of arrays. "store_row" is the row of each in
        its store, counted through all stores where there are several.

        Clips have one value of `video`, and of `label` where each video has one; of other fields, one for each frame.
        Raises UsageError for images and masks, and for what depends on the frames of random clips.
        """
        return self._samples.column(name)

    @property
    def rejects(self) -> list[dict[str, Any]]:
        """The samples that could not be packed, of the whole store: dicts with `key`, `reason` and `detail`. Read from
        disk at every access."""
        from rawpack.samples.looking import rejects_of

        self._samples.check_open()
        return list(rejects_of(self._library))

    @suggests()
    def select(
        self,
        indices: ArrayLike | None = None,
        *,
        mask: ArrayLike | None = None,
        classes: Sequence[str] | None = None,
        where: str | None = None,
    ) -> Reader:
        """A reader of some of the samples, in the order of `indices`, or else in their own order.

        Pass one of these: indices, whole numbers (negative ones count from the end); mask, one boolean per sample;
        classes, names from `reader.classes`; where, a condition on small fields, `index` and
        `store_row`, such as "score > 0.5 and label in (1, 2)" or "label == 'cat'". Clips have the fields of their first
        frame. Labels, `store_row` and `clip` stay as they are; `index` counts in the new reader.
        """
        samples = self._samples
        if samples.asked.mix is not None:
            raise UsageError("select() cannot be called on a mix: mix readers on which it was called")
        if classes is not None:
            classes = names("classes", classes)
        condition = None if where is None else Where(where, self._library.fields, self._library.classes)
        if samples.clips is not None:
            samples.clips.check_known(classes, condition, where)
        positions = positions_of(self._library, samples.rows, indices, mask, classes, condition)
        return self._with(selection=samples.numbers(positions))

    @suggests(clips_now)
    def clips(
        self,
        frames: int | Sequence[int] | None = None,
        *,
        stride: int = 1,
        step: int | None = None,
        per_video: int | None = None,
        short: Short = "drop",
        offsets: Mapping[str, Sequence[float]] | None = None,
    ) -> Reader:
        """A reader whose samples are clips of `frames` frames of one video. No clip crosses the end of a video or a
        missing frame.

            reader.clips(16, stride=4)
            reader.clips(offsets={"image": [-0.1, 0.0], "action": [i / 30 for i in range(16)]})

        Fields have the frames as their first axis, and so has `store_row`. `video` has one value per clip, and so has
        `label` where each video has one label. `clip` is the clip's number, which a selection does not change.

        frames, stride: frames in a clip, and the distance between them in stored frames. With several numbers of
            frames, each video has clips of the greatest that it can fill, and all clips of a batch have the same.
        step: stored frames from the start of one clip to the start of the next; None means frames * stride, so that
            clips do not overlap.
        per_video: instead of `step`, the number of clips of each video. They start at random in each epoch, depending
            on seed, epoch and video alone. Frames of one video between which others are stored, as where a merge
            brought its parts together, are several videos here.
        short: what to do with videos that have too few frames: "drop" leaves them out, with a warning; "repeat_last"
            and "wrap" make one clip of each (`per_video` times), padded with its last frame, or from its first one.
        offsets: instead of all these: field -> seconds from each sample, whole numbers of frames. There are as many
            samples as before. These fields have one frame for each offset as first axis, the others are the sample's
            own. Where a video or this reader has no frame there, the nearest one that it has comes instead, and
            "<field>_is_pad", bool (batch, frames), is True.

        Raises UsageError where the store does not say which video its samples are from, or with `offsets` at what time
        they were; and where no clip is left.
        """
        from rawpack.samples.offsets import find_offsets
        from rawpack.samples.table import ClipShape, find_clips

        samples = self._samples
        if samples.framing is not None:
            raise UsageError("this is a reader of clips already: call clips() on the reader of frames")
        if offsets is not None:
            if (frames, stride, step, per_video, short) != (None, 1, None, None, "drop"):
                raise UsageError("offsets= says which frames each sample has: leave out all else")
            return self._with(offsets=find_offsets(self._library, samples.selection, offsets))
        if frames is None:
            raise UsageError("pass the number of frames in a clip, as clips(16), or offsets=")
        shape = ClipShape(frames, stride, step, per_video, short)
        return self._with(clips=find_clips(self._library, samples.selection, shape), selection=None)

    @suggests(batches_now)
    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool | Literal["block"] | Blocks = False,
        sampler: Sampler | None = None,
        seed: int = 0,
        drop_last: bool = False,
        fields: Sequence[str] | None = None,
        image_size: SizeOption | Mapping[str, SizeOption] = None,
        transform: Transform | None = None,
        decode: DecodeOption | Mapping[str, DecodeOption] = True,
        workers: int | Workers | None = None,
        ranks: Literal["auto"] | tuple[int, int] | Ranks | None = None,
        ragged: Literal["list", "pad"] | int = "list",
    ) -> Batches:
        """Batches of this reader: dicts with one numpy array per field, all of the same length. Call this once, before
        the loop over epochs: each iteration of the result is the next epoch, and each new result begins at epoch 0.

        batch_size: samples in a batch; the last one may have fewer.
        shuffle: True for a new random order each epoch, "block" or `Blocks(...)` for one that suits disks better, False
            for none. The order depends only on `seed` and the epoch, not on the format or the workers.
        sampler: your own order instead: an array of indices, an iterable that gives them again each epoch, or a
            function of the epoch that returns either. Samples may be repeated and left out. `Balanced` and `Weighted`
            are such orders. All ranks share it, so a DistributedSampler of torch is refused.
        seed: a whole number of 64 bits, the same on all ranks: for another order, pass another one, as the seeds of
            torch and numpy have no effect here.
        drop_last: leave out the last batch of an epoch if it is not full. An error where no batch is left.
        fields: names; None means all numbers, images and masks. Texts and ragged fields must be named; texts come as a
            list of str, lists of texts as a list of lists. `index` is always included: the sample's position in this
            reader, so that `reader[batch["index"]]` are these samples. "store_row" adds the row in the store, counted
            through all stores where there are several.
        image_size: a side, or (height, width): resize to cover and center-crop each image, in the workers; masks by the
            nearest pixel; boxes move with it. `Buckets(...)` are several sizes, of which each batch has one. Where a
            sample has several images, that is the size of `image`, to which others keep their ratio. Also a dict by
            field: images that it does not name stay as they are.
        transform: a list of steps of `rawpack.transforms` and functions, applied in the workers after `image_size`.
            Its random numbers depend only on seed, epoch and sample; in a mix, and with `Balanced` or `Weighted`, on
            the position instead of the sample.
        decode: True gives RGB, or gray. False gives images and masks as the files of the store, for decoders on a GPU:
            a sequence of uint8 arrays, one per sample, over one array `data`, with `offsets` and `sizes`; `transform`
            may then begin with a crop, whose places in the stored images come as `boxes`, int64 (batch, 4): top, left,
            height, width. "planes" gives the images of a store that was packed with `--color ycgco420` as they are
            stored, half the bytes of RGB: flat, (batch, H * W + 2 * ceil(H / 2) * ceil(W / 2)), the planes Y, Cg and Co
            of each. Also a dict by field: {"image": False}.
        workers: how many do the work; 0: this process. None chooses by the CPUs available to this process and the
            store. `Workers(...)` says more.
        ranks: (rank, world_size): which of how many processes this is; each gets its part of every step. "auto" asks
            torch.distributed, JAX, Accelerate, or else the launcher's environment, whenever an epoch begins.
            `Ranks(...)` says more. Batches then have `valid`, bool (batch,): False for samples that are repeated to
            fill up the last batch of a rank. None means that there is only this process: an error at the first batch
            where a framework knows of others, a warning where only a launcher does.
        ragged: the form of fields whose samples differ in length, such as boxes (n, 5). "list": a list of arrays.
            "pad": one array (batch, longest of the batch, 5), padded with zeros, and the lengths, int64 (batch,), as
            "<field>.length". A number pads to that length.

        The arrays are yours: their memory is reused only when you hold neither them nor any view of them.
        Raises UsageError here, not in a worker, for arguments that make no sense.
        """
        self._samples.check_open()
        options = Options(
            batch_size, shuffle, sampler, seed, drop_last, fields, image_size, transform, decode, workers, ranks,
            ragged,
        )  # fmt: skip
        feed = Epochs(self, self._samples, *choose(self._samples, options))
        warn_of_workers(options, feed.settings)
        return Batches(feed)

    def _with(self, **changed: Any) -> Self:
        self._samples.check_open()
        other = copy(self)
        other._samples = replace(self._samples, **changed, scope=Scope(self._samples.scope))
        return other
