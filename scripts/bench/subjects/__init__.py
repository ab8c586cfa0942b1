"""The subjects by name. A new one is a module here with a class of the three functions, and a line below.

| module | what it measures |
|---|---|
| `stores.py` | this project's reader: batches with transforms and without, single samples, the start |
| `limits.py`, `augment.py` | bare loops that do only the unavoidable work of reading, and of transforms |
| `packing.py` | packing and listing, by this project and by bare loops of the same library calls |
| `clips.py` | random clips of videos, by this project and decoded anew from their files |
| `peers.py` | other systems, by the adapters of `scripts/systems` |
| `remote.py` | this project's reader and peers from a server on loopback of a given bandwidth, and plain requests |
| `team.py` | the processes of bare loops |
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from functools import partial

import videos
from contract import Subject
from data import FORMS, GZIP, JPEG_95, PACKED, PAIRS, PLANES, STANDARD, ZSTD, ZSTD_PLANES, make_array, make_store
from subjects.augment import Calls, NumpyBatch, albumentations, build, fill, fused_normalize, kernel, resize
from subjects.clips import Clips, DecodedClips, by_decord, by_pyav, by_torchcodec
from subjects.limits import Limit, OrderAlone, SequentialRead, TakeLoop, copy, decode, inflate
from subjects.packing import BarePass, Copy, Listing, Pack, PackingStart, Share, scanned, walked, walked_with_states
from subjects.packing import copy as copy_files
from subjects.packing import frames as decode_frames
from subjects.packing import pack as bare_pack
from subjects.peers import Peer, PeerPack
from subjects.remote import (
    BYTES_PER_S,
    LMDB,
    RAW,
    SMALL_SHARDS,
    Link,
    RemotePeer,
    RemoteStore,
    Transport,
    Wire,
)
from subjects.stores import ReaderStart, Single, Store, Zeros, by_batches, by_numpy, by_reader

REMOTE_STORES = {"raw": RAW, "lmdb": LMDB, "small": SMALL_SHARDS}
LATENCIES_MS = (1, 20, 100)
S3_LATENCY_MS = 20
REMOTE_LINKS = {
    **{f"{ms} ms": Link(ms / 1000) for ms in LATENCIES_MS},
    **{f"{ms} ms, unlimited": Link(ms / 1000, math.inf) for ms in LATENCIES_MS},
    f"{S3_LATENCY_MS} ms, S3": Link(S3_LATENCY_MS / 1000, BYTES_PER_S, s3=True),
}


def _remote() -> dict[str, Callable[[], Subject]]:
    """The subjects of the tables `remote-<store>-<link>`."""
    subjects: dict[str, Callable[[], Subject]] = {}
    for name, stored in REMOTE_STORES.items():
        for called, link in REMOTE_LINKS.items():
            at = f"{name}, {called}"
            subjects[f"plain requests, {at}"] = partial(Wire, link, stored)
            subjects[f"plain requests while reading, {at}"] = partial(Wire, link, stored, "at once")
            subjects[f"plain requests, then reading, {at}"] = partial(Wire, link, stored, "then")
            for by in ("rawpack", "fsspec"):
                subjects[f"transport by {by}, {at}"] = partial(Transport, link, stored, by)
            for order in ("block", "full"):
                subjects[f"{order}, {at}"] = partial(RemoteStore, link, stored, order)
                subjects[f"{order}, files, {at}"] = partial(RemoteStore, link, stored, order, encoded=True)
    return subjects


_JPEG = ("cv2", "simplejpeg")

SUBJECTS: dict[str, Callable[[], Subject]] = {
    "copy limit": partial(Limit, make_array, copy),
    "copy limit, large pages": partial(Limit, make_array, partial(copy, large_pages=True)),
    "inflate limit": partial(Limit, partial(make_store, form=GZIP), inflate, ("h5py",)),
    "decode limit": partial(Limit, partial(make_store, form="lmdb"), decode, ("lmdb", "simplejpeg")),
    "decode limit, standard tables": partial(
        Limit, partial(make_store, form=STANDARD), partial(decode, form=STANDARD), ("lmdb", "simplejpeg")
    ),
    **{form: partial(Store, form) for form in FORMS},
    "hdf5, gzip": partial(Store, GZIP),
    "memmap, planes": partial(Store, PLANES),
    "memmap, zstd": partial(Store, ZSTD),
    "memmap, planes, zstd": partial(Store, ZSTD_PLANES),
    "memmap, two images a sample": partial(Store, PAIRS),
    "lmdb, quality 95": partial(Store, JPEG_95),
    "lmdb, 256 px, center crop": partial(Store, "lmdb", "center", stored=256),
    **{f"{form}, cold": partial(Store, form, shuffle="block", cold=True) for form in FORMS},
    **{f"{form}, cold, in order": partial(Store, form, shuffle=False, cold=True) for form in ("memmap", "hdf5")},
    **{f"dd, {form}": partial(SequentialRead, form) for form in FORMS},
    **{f"{form} of zeros": partial(Zeros, form) for form in FORMS},
    "order alone": OrderAlone,
    "take loop": TakeLoop,
    "reader[i]": partial(Single, by_reader),
    "a row by numpy": partial(Single, by_numpy),
    "reader[[...]], 256": partial(Single, by_reader, 256),
    "batches of 256, all fields, workers=0": partial(Single, by_batches, 256),
    "first batch": ReaderStart,
    "pack a few": PackingStart,
    "torch DataLoader, memmap": partial(Peer, "dataloader"),
    "torch DataLoader, memmap, whole batches": partial(Peer, "dataloader", variant="whole batches"),
    "tensordict memmap": partial(Peer, "tensordict"),
    "FFCV raw": partial(Peer, "ffcv"),
    "FFCV JPEG, 256 px, center crop": partial(Peer, "ffcv", "jpeg", stored=256),
    "FFCV crops, raw": partial(Peer, "ffcv", crop="random"),
    "FFCV crops, jpeg": partial(Peer, "ffcv", "jpeg", crop="random"),
    "FFCV writer, raw": partial(PeerPack, "ffcv"),
    "FFCV writer, jpeg": partial(PeerPack, "ffcv", "jpeg"),
    "litdata optimize, raw": partial(PeerPack, "litdata"),
    "litdata optimize, jpeg": partial(PeerPack, "litdata", "jpeg"),
    **{f"clips, {form}": partial(Clips, form) for form in FORMS},
    "clips by PyAV": partial(DecodedClips, by_pyav, ("av",)),
    "clips by torchcodec": partial(DecodedClips, by_torchcodec, ("av", "torch", "torchcodec")),
    "clips by decord": partial(DecodedClips, by_decord, ("av", "decord")),
    **{f"pack {form}": partial(Pack, form) for form in FORMS},
    "pack as they are": partial(Pack, "lmdb", as_they_are=True),
    **{f"pack {kind}, cold": partial(Pack, "lmdb", as_they_are=True, cold=kind) for kind in PACKED},
    "pack frames, memmap": partial(Pack, "memmap", kind="video"),
    "pack frames, lmdb": partial(Pack, "lmdb", kind="video"),
    "bare loop, raw": partial(Share, bare_pack, _JPEG),
    "bare loop, jpeg": partial(Share, bare_pack, _JPEG, jpeg=True),
    "frames by PyAV": partial(Share, decode_frames, ("av", "cv2"), files=videos.files_of),
    "frames by PyAV, jpeg": partial(Share, decode_frames, ("av", "cv2"), jpeg=True, files=videos.files_of),
    "copy files": partial(Share, copy_files),
    **{f"bare {kind}, cold": partial(BarePass, kind) for kind in PACKED},
    **{f"cp {kind}, cold": partial(Copy, kind) for kind in PACKED},
    **{f"cp {kind} and sync, cold": partial(Copy, kind, sync=True) for kind in PACKED},
    "os.walk": partial(Listing, walked),
    "os.walk and stat": partial(Listing, walked_with_states),
    "scan": partial(Listing, scanned),
    "plain requests": Wire,
    "memmap, remote": RemoteStore,
    **_remote(),
    "webdataset, remote": partial(RemotePeer, "webdataset", ("webdataset",)),
    "streaming, remote": partial(RemotePeer, "streaming", ("streaming", "boto3"), "s3"),
    **{f"crops, {form}": partial(Store, form, "crops") for form in ("memmap", "lmdb")},
    "lmdb, standard tables": partial(Store, STANDARD),
    "center crop, lmdb": partial(Store, "lmdb", "center crop"),
    **{f"{what}, lmdb, standard tables": partial(Store, STANDARD, what) for what in ("center crop", "crops")},
    "crops, lmdb, scaled decoding": partial(Store, "lmdb", "crops, scaled"),
    "crops of half the side, lmdb": partial(Store, "lmdb", "half"),
    "normalize, memmap": partial(Store, "memmap", "normalize"),
    "flip and normalize, memmap": partial(Store, "memmap", "flip and normalize"),
    "bilinear crops, memmap": partial(Store, "memmap", "bilinear crops"),
    **{
        f"bilinear crops, normalize, {form}": partial(Store, form, "bilinear crops, normalize")
        for form in ("memmap", "lmdb")
    },
    "Albumentations in rawpack's workers": partial(Store, "memmap", "Albumentations", needs=("albumentations",)),
    "cv2.resize of crops": partial(Limit, make_array, resize),
    "bare C kernel": partial(Limit, make_array, kernel),
    "TurboLoader crops, normalize": partial(Peer, "turboloader", crop="random", floats=True),
    "TurboLoader crops, normalize, jpeg": partial(Peer, "turboloader", "jpeg", crop="random", floats=True),
    "FFCV crops, normalize, raw": partial(Peer, "ffcv", crop="random", floats=True),
    "FFCV crops, normalize, jpeg": partial(Peer, "ffcv", "jpeg", crop="random", floats=True),
    "fill memory": partial(Limit, lambda settings: None, fill),
    "calls": Calls,
    "numpy on the batch": NumpyBatch,
    "Albumentations crops": partial(Limit, make_array, albumentations, ("albumentations",)),
    "fused normalize": partial(Limit, build, fused_normalize, () if shutil.which("cc") else ("a C compiler",)),
}
