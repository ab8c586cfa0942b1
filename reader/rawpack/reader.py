"""The reader: a store, opened for training."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.batching.batches import Batches
from rawpack.batching.encoded import choose_encoded, first_crop
from rawpack.batching.fill import rows_of
from rawpack.batching.options import (
    Options,
    check_ragged,
    choose_fields,
    choose_planes,
    choose_workers,
    doubtful_workers,
    flag,
    image_size_of,
    names,
    one_of,
    seconds,
    sides,
)
from rawpack.batching.ragged import by_clip
from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.order import (
    BlockShuffled,
    Bucketed,
    FromColumn,
    Order,
    RankSplit,
    Sampled,
    Sequential,
    Shuffled,
    resolve_rank,
)
from rawpack.order.keys import whole_number
from rawpack.order.mixed import MixLength, length_of, shares_of
from rawpack.order.sampled import Indices
from rawpack.remote.url import shown
from rawpack.store.common import STORE
from rawpack.store.concatenated import CLIP, INDEX
from rawpack.store.mix import Mix, MixEntry, only, pairs_of, selection_of
from rawpack.store.opening import StorePath, absolute, open_stores
from rawpack.store.samples import value_of, values_of
from rawpack.store.selection import positions_at, positions_of
from rawpack.store.where import Where
from rawpack.system.keywords import suggests
from rawpack.system.warning import warn

if TYPE_CHECKING:
    from rawpack.batching.buckets import Buckets
    from rawpack.clips.table import ClipTable, Short
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.plan import Transform


class Reader:
    """Reads a store that `rawpack pack` made, whatever its format.

        reader = Reader("dst/")
        for batch in reader.batches(512, shuffle=True):
            batch["image"]      # uint8 (512, 256, 256, 3), RGB

    `reader[i]` is one sample, as a dict of arrays; `reader[[3, 1, 4]]` has several. A reader holds no open files.
    Several threads may use it. It can be pickled: the copy opens the store again.
    """

    @suggests
    def __init__(
        self,
        path: StorePath | Sequence[StorePath],
        *,
        split: str | None = None,
        preload: bool = False,
        verify: bool = False,
        cache: StorePath | None = None,
        cache_bytes: int | str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """path: a folder or URL of a store, or a list of several with the same fields, which are read as one.

        split: which store of a set of splits to read: "train".
        preload: first read all shards into memory, which all workers of this reader share; with a progress bar.
        verify: check labels, texts and all other columns against their checksums now, and each image and mask as it is
            read.
        cache, cache_bytes: for URLs: the folder that shards are fetched into, and how much it may hold: a number, or
            "200GB". None: RAWPACK_CACHE or ~/.cache/rawpack, and half of the free space.
        storage_options: for URLs: options for fsspec, such as credentials or an endpoint.
        timeout: for URLs: seconds after which a transfer that brings no byte fails; None means 120.
        Raises StoreError (UnfinishedStoreError, DamagedStoreError) where there is no store, UsageError where there is
        no such split.
        """
        remote = {
            "cache": cache,
            "cache_bytes": cache_bytes,
            "storage_options": storage_options,
            "timeout": timeout,
        }
        self._open(_paths(path, split), preload, verify, remote)

    def _open(
        self,
        paths: list[Path | str],
        preload: bool,
        verify: bool,
        remote: dict[str, Any],
        groups: Sequence[int] | None = None,
        mix: Mix | None = None,
    ) -> None:
        """groups, mix: for a mix, how many of the paths count as one store, for each, and how they are mixed."""
        self._paths, self._remote, self._verify, self._mix = paths, remote, verify, mix
        self._library = open_stores(paths, **remote, groups=groups)
        self._clips: ClipTable | None = None
        """Where samples are clips: which rows each has."""
        self._selection: NDArray[np.int64] | None = None
        """Rows, or numbers of clips; None for all."""
        if verify:
            self._library.check_columns()
        if preload:
            self._preload()

    @classmethod
    @suggests
    def mix(
        cls,
        stores: Mapping[Any, float] | Sequence[tuple[StorePath | Sequence[StorePath] | Reader, float]],
        *,
        length: MixLength = "longest",
        split: str | None = None,
        preload: bool = False,
        verify: bool = False,
        cache: StorePath | None = None,
        cache_bytes: int | str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Reader:
        """A reader of several stores whose batches have a fixed share of each.

            reader = Reader.mix({"a/": 0.6, "b/": 0.3, "c/": 0.1})

        In each batch, and in all batches from an epoch's start up to any of them, the samples of each store are as
        many as its share says, rounded up or down. This also holds for the batches of each rank. Small stores repeat,
        each time in another order.

        stores: path -> share, or pairs of path and share. A path may be a list of paths, or a reader, of all its
            samples or some of them. Only the proportions of the shares count.
        length: of an epoch. "longest": until each store was read completely; "shortest": until one of them would
            repeat; or a number of samples. An epoch has whole batches, so it may be up to one batch longer, or shorter
            with "shortest".
        Other parameters are those of `Reader`, for all stores. Readers among `stores` are opened again.

        Samples have the fields that all stores have, and `store`, int64: which of `stores` they are from, counted from
        0. Everything but `batches` treats the stores as one, one after another.
        Raises UsageError for shares that make no sense, and where a store has a field named `store`.
        """
        pairs = pairs_of(stores)
        entries = [one._as_entry() if isinstance(one, Reader) else MixEntry(_paths(one, split)) for one, _ in pairs]
        given = {"cache": cache, "cache_bytes": cache_bytes, "storage_options": storage_options, "timeout": timeout}
        names, shares = tuple(entry.name for entry in entries), shares_of([share for _, share in pairs])
        mixed = object.__new__(cls)
        mixed._open(
            [path for entry in entries for path in entry.paths],
            preload or any(entry.preload for entry in entries),
            verify or any(entry.verify for entry in entries),
            {
                name: only(name, [value, *(entry.remote.get(name) for entry in entries)])
                for name, value in given.items()
            },
            [len(entry.paths) for entry in entries],
            Mix(names, shares, length_of(length)),
        )
        mixed._selection = selection_of(entries, mixed._library)
        mixed._sizes()
        return mixed

    def _as_entry(self) -> MixEntry:
        if self._clips is not None or self._mix is not None:
            raise UsageError(f"{self!r} cannot be mixed: mix readers of images or frames, and call clips() on the mix")
        return MixEntry(self._paths, self._selection, self._library.memory is not None, self._verify, self._remote)

    def _sizes(self) -> list[int]:
        """Of a mix: how many samples each store has."""
        assert self._mix is not None
        rows = self._selection if self._clips is None else self._clips.first_rows(np.arange(len(self._clips)))
        return self._mix.sizes(self._library, rows)

    def __len__(self) -> int:
        if self._selection is not None:
            return len(self._selection)
        return len(self._library) if self._clips is None else len(self._clips)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {dtype} {shape}" for name, dtype, shape in self._table())
        return f"{type(self).__name__}({self._title()}; {fields})"

    def _repr_html_(self) -> str:
        """For notebooks: what is in the store, with thumbnails of a few samples."""
        from rawpack.batching.notebook import html_of

        title = f"{type(self).__name__}: {self._title()}"
        return html_of(title, self._table(), self._library, self._clips, self._selection)

    def _title(self) -> str:
        formats = "+".join(dict.fromkeys(store.manifest.format for store in self._library.stores))
        where = ", ".join(shown(str(path)) for path in self._paths)
        if self._mix is not None:
            where = str(self._mix)
        samples = "samples" if self._clips is None else f"clips of {self._clips.description}"
        return f"{where}: {formats}, {len(self)} {samples}"

    def _table(self) -> list[tuple[str, str, str]]:
        return [(name, field.dtype, sides(field.shape)) for name, field in self.fields.items()]

    def __reduce__(self) -> tuple[Any, ...]:
        preload = self._library.memory is not None
        where = self._paths, preload, self._verify, self._remote, self._library.groups, self._mix
        return _reopened, (where, self._clips, self._selection)

    @property
    def fields(self) -> Mapping[str, Field]:
        """Name -> kind, dtype and shape of one sample, None where samples differ. Clips have frames as first axis."""
        return self._library.fields if self._clips is None else self._clips.fields(self._library.fields)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label; None where the source had none."""
        return self._library.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class name -> label, as torchvision's ImageFolder has it."""
        return {name: label for label, name in enumerate(self.classes or ())}

    @property
    def left_out(self) -> int:
        """For a reader of clips: the videos without a clip, because too few of their frames follow one another."""
        return 0 if self._clips is None else self._clips.left_out

    def __getitem__(self, index: SupportsIndex | Sequence[SupportsIndex] | NDArray[Any]) -> dict[str, Any]:
        """One sample: its fields as new arrays, texts as str, and `index`.

        A list or array of indices gives these samples together, as a batch does: one array for each field, and lists of
        texts and of what differs in length or size.

        A clip has `clip` too, and lists of what differs in length or size; random clips are those of epoch 0, seed 0.
        """
        if isinstance(index, list | range) or getattr(index, "ndim", 0) > 0:
            return self._together(self._several(index))
        at = self._at(index)
        if self._clips is None:
            return self._sample(at)
        return self._clip(at)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """These samples, read together, one by one: what a DataLoader of torch asks for."""
        if self._clips is not None:
            return [self[index] for index in indices]
        batch = self[list(indices)]
        return [{name: values[k] for name, values in batch.items()} for k in range(len(batch[INDEX]))]

    def column(self, name: str) -> Any:
        """One field of all samples, in the order of this reader; no image is read. Numbers are an array (n, ...), texts
        a list of str, ragged fields a list of arrays.

        Clips have one value of `video`, and of `label` where each video has one; of other fields, one for each frame.
        Raises UsageError for images and masks, and for what depends on the frames of random clips.
        """
        fields = self._library.fields
        if not isinstance(name, str) or name not in fields:
            raise UsageError(f"there is no field {name!r}; the store has {', '.join(fields)}")
        if fields[name].in_shards:
            raise UsageError(f"{name!r} is in shards, not in a column: read it with batches(fields=[{name!r}])")
        self._library.look_at_files()
        chosen = np.arange(len(self)) if self._selection is None else self._selection
        if self._clips is None:
            return values_of(self._library, name, chosen)
        if name in self._clips.once:
            return values_of(self._library, name, self._clips.first_rows(chosen))
        if self._clips.shape.per_video is not None:
            raise UsageError(f"the {name!r} of random clips differs from epoch to epoch: read it with batches()")
        if len(self._clips.shape.lengths) > 1:
            raise UsageError(f"the {name!r} of clips of several lengths is no array: read it with batches()")
        return self._of_clips(name, self._clips.rows(chosen, 0, 0))

    def _at(self, index: Any) -> int:
        """The row of sample `index`, or the number of its clip."""
        if isinstance(index, slice):
            raise UsageError(
                "an index must be one number, or a list of numbers; for many samples use "
                "reader.select(indices).batches(...)"
            )
        at = operator.index(index)
        at = at + len(self) if at < 0 else at
        if not 0 <= at < len(self):
            raise IndexError(f"sample {index} of a reader with {len(self)} samples")
        return at if self._selection is None else int(self._selection[at])

    def _several(self, indices: Any) -> NDArray[np.int64]:
        """The rows of several samples, or the numbers of their clips."""
        positions = positions_at(indices, len(self), outside=IndexError)
        return positions if self._selection is None else self._selection[positions]

    def _together(self, chosen: NDArray[np.int64]) -> dict[str, Any]:
        self._library.look_at_files()
        if self._clips is None:
            batch = {name: values_of(self._library, name, chosen, self._verify) for name in self._library.fields}
            return {**batch, INDEX: chosen}
        if len(self._clips.shape.lengths) > 1:
            clips = [self._clip(number) for number in chosen.tolist()]
            return {CLIP: chosen, **{name: [clip[name] for clip in clips] for name in (*self._library.fields, INDEX)}}
        rows = self._clips.rows(chosen, 0, 0)
        return {CLIP: chosen, **{name: self._of_clips(name, rows) for name in self._library.fields}, INDEX: rows}

    def _clip(self, number: int) -> dict[str, Any]:
        assert self._clips is not None
        rows = self._clips.rows(np.array([number], np.int64), 0, 0)[0].tolist()
        return self._clips.joined(number, [self._sample(row) for row in rows], self._library.fields)

    def _of_clips(self, name: str, rows: NDArray[np.int64]) -> Any:
        """Field `name` of clips with these rows, (n, frames)."""
        assert self._clips is not None
        once = name in self._clips.once
        values = values_of(self._library, name, rows_of(rows, once), self._verify)
        return values if once else by_clip(values, *rows.shape)

    def _sample(self, row: int) -> dict[str, Any]:
        self._library.look_at_files()
        store, at = self._library.locate(row)
        names = [name for name in self._library.fields if name in store.fields]
        sample = {name: value_of(store, name, at, self._verify) for name in names}
        if self._mix is not None:
            sample[STORE] = np.int64(self._library.group_of(row))
        return {**sample, INDEX: np.int64(row)}

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
        classes, names from `reader.classes`; where, a condition on small fields and `index`, such as
        "score > 0.5 and label in (1, 2)" or "label == 'cat'". Clips have the fields of their first frame. Labels stay
        as they are, and `index` and `clip` keep their numbers.
        """
        if self._mix is not None:
            raise UsageError("select() cannot be called on a mix: mix readers on which it was called")
        if classes is not None:
            classes = names("classes", classes)
        condition = None if where is None else Where(where, self._library.fields, self._library.classes)
        selected, before = self._copy(), self._selection
        rows = before
        if self._clips is not None:
            before = np.arange(len(self._clips)) if before is None else before
            # Where a random clip begins is not known yet, so its class is known only if the whole video has one.
            if classes is not None and self._clips.shape.per_video is not None and "label" not in self._clips.once:
                raise UsageError("random clips of videos with several labels have no class: select by indices or mask=")
            if condition is not None and self._clips.shape.per_video is not None:
                unknown = [name for name in condition.names if name not in self._clips.once]
                if unknown:
                    raise UsageError(f"where={where!r}: the {unknown[0]!r} of random clips differs from epoch to epoch")
            rows = self._clips.first_rows(before)
        positions = positions_of(self._library, rows, indices, mask, classes, condition)
        selected._selection = positions if before is None else before[positions]
        return selected

    def clips(
        self,
        frames: int | Sequence[int],
        *,
        stride: int = 1,
        step: int | None = None,
        per_video: int | None = None,
        short: Short = "drop",
    ) -> Reader:
        """A reader whose samples are clips of `frames` frames of one video. No clip crosses the end of a video or a
        missing frame.

        Fields have the frames as their first axis, and so has `index`: the rows of a clip's frames. `video` has one
        value per clip, and so has `label` where each video has one label. `clip` is the clip's number.

        frames, stride: frames in a clip, and the distance between them in stored frames. With several numbers of
            frames, each video has clips of the greatest that it can fill, and all clips of a batch have the same.
        step: stored frames from the start of one clip to the start of the next; None means frames * stride, so that
            clips do not overlap.
        per_video: instead of `step`, the number of clips of each video. They start at random in each epoch, depending
            on seed, epoch and video alone.
        short: what to do with videos that have too few frames: "drop" leaves them out, with a warning; "repeat_last"
            and "wrap" make one clip of each (`per_video` times), padded with its last frame, or from its first one.

        Raises UsageError where the store does not say which video its samples are from, and where no clip is left.
        """
        from rawpack.clips.table import ClipShape, find_clips

        if self._clips is not None:
            raise UsageError("this is a reader of clips already: call clips() on the reader of frames")
        clips = self._copy()
        clips._clips = find_clips(self._library, self._selection, ClipShape(frames, stride, step, per_video, short))
        clips._selection = None
        if clips._mix is not None:
            clips._sizes()
        return clips

    @suggests
    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool | Literal["block"] = False,
        block: int = 32,
        window: int = 256,
        sampler: Indices | Callable[[int], Indices] | FromColumn | None = None,
        seed: int = 0,
        drop_last: bool = False,
        fields: Sequence[str] | None = None,
        image_size: int | tuple[int, int] | None = None,
        buckets: Sequence[tuple[int, int]] | Literal["auto"] | None = None,
        transform: Transform | None = None,
        color: Literal["yuv420"] | None = None,
        encoded: bool | Sequence[str] = False,
        workers: int | None = None,
        backend: Literal["process", "thread"] | None = None,
        rank: int | Literal["auto"] | None = None,
        world_size: int = 1,
        uneven: Literal["pad", "keep"] = "pad",
        timeout: float = 120,
        max_slots: int | None = None,
        ragged: Literal["list", "pad"] | int = "list",
        progress: bool = False,
    ) -> Batches:
        """Batches of this reader: dicts with one numpy array per field, all of the same length.

        batch_size: samples in a batch; the last one may have fewer.
        shuffle: True for a new random order each epoch, "block" for one that suits disks better, False for none. The
            order depends only on `seed` and the epoch, not on the format or the workers.
        block, window: for "block": consecutive samples in a block, and blocks whose samples are shuffled together.
            Blocks come in random order.
        sampler: your own order instead: an array of indices, an iterable that gives them again each epoch, or a
            function of the epoch that returns either. Samples may be repeated and left out. `Balanced` and `Weighted`
            of `rawpack.order` are such orders.
        seed: any whole number.
        drop_last: leave out the last batch of an epoch if it is not full.
        fields: names; None means all numbers, images and masks. Texts and ragged fields must be named; texts come as a
            list of str. `index`, the sample's row in this reader, is always included.
        image_size: resize to cover and center-crop each image to (height, width), in the workers; masks by the nearest
            pixel; boxes move with it.
        buckets: sizes (height, width): all images of a batch come in one of these, as by `image_size`, each image in
            the one in which it loses least. "auto" chooses about as many pixels as the images have, or `image_size`.
        transform: a list of steps of `rawpack.transforms` and functions, applied in the workers after `image_size`.
            Its random numbers depend only on seed, epoch and sample; on the position, if an order repeats samples.
        color: "yuv420" gives the images of a store that was packed with `--color yuv420` as they are stored, half the
            bytes of RGB: flat, (batch, H * W + 2 * ceil(H / 2) * ceil(W / 2)), the planes Y, Cb and Cr of each. None
            gives RGB, or gray.
        encoded: True gives images and masks as the files of the store, for decoders on a GPU; a list names the fields.
            Such a field is a sequence of uint8 arrays, one per sample, over one array `data`, with `offsets` and
            `sizes`. `transform` may then begin with a crop, whose places in the stored images come as `boxes`, int64
            (batch, 4): top, left, height, width.
        workers: 0 to do the work in this process; None chooses by the CPUs available to this process and the store.
        backend: "process" or "thread"; None uses threads where workers only copy rows, processes where they decode.
        rank, world_size: which of how many processes this is; each gets its part of every step. rank="auto" asks
            torch.distributed, or else the launcher's environment, whenever an epoch begins. None means 0, with a
            warning where these know of other processes.
        uneven: the last step of an epoch: "pad" fills it up, so that all ranks get equal batches; "keep" does not.
        timeout: seconds without progress after which a worker is considered dead.
        max_slots: the most batches that may be held at once; None for any number.
        ragged: the form of fields whose samples differ in length, such as boxes (n, 5). "list": a list of arrays.
            "pad": one array (batch, longest of the batch, 5), padded with zeros, and the lengths, int64 (batch,), as
            "<field>.length". A number pads to that length.
        progress: show a progress bar for each epoch.

        The arrays are yours: their memory is reused only when you hold neither them nor any view of them.
        Raises UsageError here, not in a worker, for arguments that make no sense.
        """
        batch_size, seed = whole_number("batch_size", batch_size, 1), whole_number("seed", seed)
        if max_slots is not None:
            max_slots = whole_number("max_slots", max_slots, 2)  # one to hold and one to fill
        block, window = whole_number("block", block, 1), whole_number("window", window, 1)
        one_of("uneven", uneven, "pad", "keep")
        size = image_size_of(image_size)
        if len(self) == 0:
            raise UsageError("there are no samples to read: the store or the selection is empty")
        found = None if buckets is None else self._buckets(buckets, size)
        sizes = [size] if found is None else found.sizes
        transformed = bool(transform) or sizes[0] is not None
        fields = None if fields is None else names("fields", fields)
        files = choose_encoded(self._library, fields, encoded)
        if files and (sizes[0] is not None or self._clips is not None):
            raise UsageError(
                "encoded= gives files, which cannot be resized, nor be frames of clips: leave out image_size=, "
                "buckets= and clips(); transform= may begin with a crop"
            )
        planes = choose_planes(self._library, fields, color, transformed)
        chosen = choose_fields(self._library, fields, sizes[0], transformed, files)
        check_ragged(self._library, chosen, ragged)
        crop = first_crop(transform, self._library, chosen, files) if files else (None, ())
        lengths = self._clips.shape.lengths if self._clips is not None else (None,)
        made = [self._pipeline(transform, chosen, one, files, frames) for one in sizes for frames in lengths]
        pipelines, movers = zip(*made, strict=True)
        frames = lengths[-1] or 1
        worked = [name for name in chosen if not files or (name not in files and self._library.fields[name].in_slot)]
        number, kind = choose_workers(self._library, worked, planes, workers, backend, pipelines[0] is not None, frames)
        order = self._in_buckets(
            self._order(shuffle, block, window, sampler, seed, batch_size), found, batch_size, seed
        )
        options = Options(
            batch_size=min(batch_size, order.length(0)) if sampler is None else batch_size,
            fields=chosen,
            pipelines=pipelines,
            movers=movers,
            planes=planes,
            encoded=files,
            crop=crop,
            workers=number,
            backend=kind,
            timeout=seconds("timeout", timeout),
            max_slots=max_slots,
            ragged=ragged,
            order_name=order.name,
            progress=flag("progress", progress),
            verify=self._verify,
            buckets=found,
        )
        ranks = (rank, world_size)
        split = RankSplit(
            len(order), batch_size, *resolve_rank(*ranks), uneven, flag("drop_last", drop_last), self._mix is not None
        )
        batches = Batches(self._library, self._selection, order, split, seed, options, self._clips, ranks)
        if workers is not None and (problem := doubtful_workers(number, batches.options)):
            warn(problem, UserWarning)
        return batches

    def _buckets(
        self, asked: Sequence[tuple[int, int]] | Literal["auto"], image_size: tuple[int, int] | None
    ) -> Buckets:
        from rawpack.batching.buckets import find_buckets

        rows = self._selection
        if self._clips is not None:
            if len(self._clips.shape.lengths) > 1:
                raise UsageError("buckets= is for clips of one length: leave it out, or call clips() with one number")
            rows = self._clips.first_rows(np.arange(len(self._clips)) if rows is None else rows)
        return find_buckets(self._library, rows, asked, image_size)

    def _in_buckets(self, order: Order, found: Buckets | None, batch_size: int, seed: int) -> Order:
        """The order with all samples of a batch in one bucket, where there are any."""
        lengths = () if self._clips is None else self._clips.shape.lengths
        if found is None and len(lengths) < 2:
            return order
        if order.batch_size is not None:
            what = "a mix" if self._mix is not None else "Balanced"
            raise UsageError(
                f"{what} decides what is in each batch, so its batches cannot have sizes or lengths of their own: "
                "leave out buckets=, or call clips() with one number of frames"
            )
        if found is not None:
            return Bucketed(order, found.of, len(found), batch_size, seed, found.identity)
        assert self._clips is not None
        of = self._clips.buckets(np.arange(len(self._clips)) if self._selection is None else self._selection)
        return Bucketed(order, of, len(lengths), batch_size, seed, f"{' '.join(map(str, lengths))} frames")

    def _pipeline(
        self,
        transform: Transform | None,
        chosen: Sequence[str],
        size: tuple[int, int] | None,
        files: Sequence[str],
        frames: int | None,
    ) -> tuple[Pipeline | None, BoxMover | None]:
        """files: the chosen fields that workers leave alone."""
        if transform is None and size is None:
            return None, None
        from rawpack.transforms.boxes import mover_for
        from rawpack.transforms.plan import plan_pipeline
        from rawpack.transforms.resizing import Fit

        before = [] if size is None else [Fit(size)]
        once = () if self._clips is None else self._clips.once
        classes = len(self.classes) if self.classes else None
        worked = [name for name in chosen if name not in files]
        pipeline = plan_pipeline(transform or [], self._library.fields, worked, before, frames, once, classes)
        mover = mover_for(transform, self._library.fields, chosen, before)
        return pipeline if pipeline.plans or pipeline.batch_steps else None, mover

    def _order(
        self,
        shuffle: bool | str,
        block: int,
        window: int,
        sampler: Indices | Callable[[int], Indices] | FromColumn | None,
        seed: int,
        batch_size: int,
    ) -> Order:
        if sampler is not None:
            if shuffle is not False:
                raise UsageError("sampler= is its own order: leave out shuffle=")
            if self._mix is not None:
                raise UsageError("a mix has its own order: leave out sampler=")
            if isinstance(sampler, FromColumn):
                return sampler.order(self.column, len(self), seed, batch_size)
            return Sampled(sampler, len(self))

        def order(n: int, seed: int) -> Order:
            if isinstance(shuffle, str) and shuffle == "block":
                return BlockShuffled(n, seed, block, window)
            if not isinstance(shuffle, bool | np.bool_):
                raise UsageError(f"shuffle={shuffle!r} must be True, False or 'block'")
            return Shuffled(n, seed) if shuffle else Sequential(n)

        if self._mix is not None:
            return self._mix.order(self._sizes(), order, seed, batch_size)
        return order(len(self), seed)

    def _copy(self) -> Self:
        """Another reader of the same open stores; `copy.copy` would pickle it, and open them again."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def _preload(self) -> None:
        from rawpack.system.progress import progress_bar

        total = self._library.shard_bytes
        with progress_bar(total=total, unit="B", unit_scale=True, desc="preloading", delay=1.0) as bar:
            self._library.preload(bar.update)


def _reopened(where: tuple[Any, ...], clips: ClipTable | None, selection: NDArray[np.int64] | None) -> Reader:
    """A reader as it was pickled. where: the arguments of `Reader._open`."""
    reader = object.__new__(Reader)
    reader._open(*where)
    reader._clips, reader._selection = clips, selection
    return reader


def _paths(path: Any, split: str | None) -> list[Path | str]:
    """The folders or URLs of one or several stores."""
    several = list(path) if isinstance(path, Iterable) and not isinstance(path, str | os.PathLike) else [path]
    if not all(isinstance(one, str | os.PathLike) for one in several):
        raise UsageError(f"path={path!r} must be a folder or URL of a store, or a list of them")
    return [absolute(one, split) for one in several]
