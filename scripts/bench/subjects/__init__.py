"""The subjects by name. A new one is a module here with a class of the three functions, and a line below.

| module | what it measures |
|---|---|
| `rawpack_store.py`, `rawpack_crop.py` | this project's reader; the same, decoding JPEG and cutting out the centre |
| `cold.py` | this project's reader from the disk, and `dd` |
| `zeros.py` | this project's reader over very many samples |
| `order_alone.py` | what the order of the samples costs by itself |
| `copy_limit.py`, `decode_limit.py`, `inflate_limit.py` | processes that do only the unavoidable work of reading |
| `numpy_batch.py` | numpy on whole batches of small images, in one process |
| `take_loop.py` | a loop of one `np.take` a batch, in one process |
| `single.py` | samples by their indices, in one process |
| `torch_loader.py`, `tensordict_memmap.py`, `ffcv_loader.py` | peers, over the same images |
| `rawpack_clips.py`, `decoded_clips.py` | random clips of videos, by this project and decoded anew from their files |
| `rawpack_augment.py`, `ffcv_augment.py` | transforms in the workers, by this project and by FFCV |
| `bare_augment.py` | bare loops of Albumentations, and of one fused loop of C that normalizes |
| `rawpack_pack.py`, `bare_pack.py` | packing, by this project and by a bare loop of the same library calls |
| `ffcv_pack.py`, `litdata_pack.py` | packing by peers, each image made by the same library calls |
| `remote.py` | this project's reader and peers from a server on loopback of a given bandwidth, and plain requests |
| `start.py` | how long this project's reader and packing take to start |
| `scan.py` | listing a folder of very many files, by this project and by `os.walk` |
| `bare_frames.py` | decoding and scaling every frame of videos, which is the limit of packing them |
| `bare_pass.py` | what passing files through must do: read, check, put into LMDB, sync |
| `copy_files.py` | copying files' bytes, by `cp` and by processes, which is the limit of passing them through |
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from functools import partial

from contract import Subject
from data import FORMS, GZIP, JPEG_95, PACKED, PLANES
from subjects.bare_augment import BareAugment, albumentations, fused_normalize
from subjects.bare_frames import BareFrames
from subjects.bare_pack import BarePack
from subjects.bare_pass import BarePass
from subjects.cold import ColdStore, SequentialRead
from subjects.copy_files import Copy, CopyFiles
from subjects.copy_limit import CopyLimit
from subjects.decode_limit import DecodeLimit
from subjects.decoded_clips import DecodedClips, by_decord, by_pyav, by_torchcodec
from subjects.ffcv_augment import FfcvAugment
from subjects.ffcv_loader import FfcvLoader
from subjects.ffcv_pack import FfcvPack
from subjects.inflate_limit import InflateLimit
from subjects.litdata_pack import LitdataPack
from subjects.numpy_batch import NumpyBatch
from subjects.order_alone import OrderAlone
from subjects.rawpack_augment import RawpackAugment
from subjects.rawpack_clips import RawpackClips
from subjects.rawpack_crop import RawpackCrop
from subjects.rawpack_pack import RawpackPack
from subjects.rawpack_store import RawpackStore
from subjects.remote import (
    BYTES_PER_S,
    LMDB,
    RAW,
    SMALL_SHARDS,
    Link,
    RemoteStore,
    RemoteStreaming,
    RemoteWebdataset,
    Transport,
    Wire,
)
from subjects.scan import ScanFolder, Walk
from subjects.single import Single, by_batches, by_numpy, by_reader
from subjects.start import PackingStart, ReaderStart
from subjects.take_loop import TakeLoop
from subjects.tensordict_memmap import TensordictMemmap
from subjects.torch_loader import TorchLoader
from subjects.zeros import Zeros

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
            for by in ("rawpack", "fsspec", "obstore"):
                subjects[f"transport by {by}, {at}"] = partial(Transport, link, stored, by)
            for order in ("block", "full"):
                subjects[f"{order}, {at}"] = partial(RemoteStore, link, stored, order)
                subjects[f"{order}, files, {at}"] = partial(RemoteStore, link, stored, order, encoded=True)
    return subjects


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "copy limit": CopyLimit,
    "copy limit, large pages": lambda: CopyLimit(large_pages=True),
    "inflate limit": InflateLimit,
    "decode limit": DecodeLimit,
    "memmap": lambda: RawpackStore("memmap"),
    "hdf5": lambda: RawpackStore("hdf5"),
    "hdf5, gzip": lambda: RawpackStore(GZIP),
    "lmdb": lambda: RawpackStore("lmdb"),
    "memmap, planes": lambda: RawpackStore(PLANES),
    "lmdb, quality 95": lambda: RawpackStore(JPEG_95),
    "lmdb, 256 px, center crop": lambda: RawpackCrop(256),
    **{f"{form}, cold": partial(ColdStore, form) for form in FORMS},
    **{f"{form}, cold, in order": partial(ColdStore, form, shuffle=False) for form in ("memmap", "hdf5")},
    **{f"dd, {form}": partial(SequentialRead, form) for form in FORMS},
    **{f"{form} of zeros": partial(Zeros, form) for form in FORMS},
    "order alone": OrderAlone,
    "take loop": TakeLoop,
    "reader[i]": lambda: Single(by_reader),
    "a row by numpy": lambda: Single(by_numpy),
    "reader[[...]], 256": lambda: Single(by_reader, 256),
    "batches of 256, all fields, workers=0": lambda: Single(by_batches, 256),
    "first batch": ReaderStart,
    "pack a few": PackingStart,
    "torch DataLoader, memmap": TorchLoader,
    "tensordict memmap": TensordictMemmap,
    "torch DataLoader, memmap, whole batches": lambda: TorchLoader(whole_batches=True),
    "FFCV raw": FfcvLoader,
    "FFCV JPEG, 256 px, center crop": lambda: FfcvLoader(256),
    **{f"clips, {form}": partial(RawpackClips, form) for form in FORMS},
    "clips by PyAV": lambda: DecodedClips(by_pyav, ("av",)),
    "clips by torchcodec": lambda: DecodedClips(by_torchcodec, ("av", "torch", "torchcodec")),
    "clips by decord": lambda: DecodedClips(by_decord, ("av", "decord")),
    "pack memmap": lambda: RawpackPack("memmap"),
    "pack hdf5": lambda: RawpackPack("hdf5"),
    "pack lmdb": lambda: RawpackPack("lmdb"),
    "bare loop, raw": lambda: BarePack(jpeg=False),
    "bare loop, jpeg": lambda: BarePack(jpeg=True),
    "FFCV writer, raw": lambda: FfcvPack(jpeg=False),
    "FFCV writer, jpeg": lambda: FfcvPack(jpeg=True),
    "litdata optimize, raw": lambda: LitdataPack(jpeg=False),
    "litdata optimize, jpeg": lambda: LitdataPack(jpeg=True),
    "pack as they are": lambda: RawpackPack("lmdb", as_they_are=True),
    **{f"pack {kind}, cold": partial(RawpackPack, "lmdb", as_they_are=True, cold=kind) for kind in PACKED},
    "copy files": CopyFiles,
    "os.walk": Walk,
    "os.walk and stat": lambda: Walk(stat=True),
    "scan": ScanFolder,
    "frames by PyAV": lambda: BareFrames(jpeg=False),
    "frames by PyAV, jpeg": lambda: BareFrames(jpeg=True),
    "pack frames, memmap": lambda: RawpackPack("memmap", kind="video"),
    "pack frames, lmdb": lambda: RawpackPack("lmdb", kind="video"),
    **{f"bare {kind}, cold": partial(BarePass, kind) for kind in PACKED},
    **{f"cp {kind}, cold": partial(Copy, kind) for kind in PACKED},
    **{f"cp {kind} and sync, cold": partial(Copy, kind, sync=True) for kind in PACKED},
    "plain requests": Wire,
    "memmap, remote": RemoteStore,
    **_remote(),
    "webdataset, remote": RemoteWebdataset,
    "streaming, remote": RemoteStreaming,
    "crops, memmap": lambda: RawpackAugment("memmap", "crops"),
    "crops, lmdb": lambda: RawpackAugment("lmdb", "crops"),
    "crops, lmdb, scaled decoding": lambda: RawpackAugment("lmdb", "crops, scaled"),
    "crops of half the side, lmdb": lambda: RawpackAugment("lmdb", "half"),
    "normalize, memmap": lambda: RawpackAugment("memmap", "normalize"),
    "FFCV crops, raw": lambda: FfcvAugment(jpeg=False),
    "FFCV crops, jpeg": lambda: FfcvAugment(jpeg=True),
    "flip and normalize, memmap": lambda: RawpackAugment("memmap", "flip and normalize"),
    "numpy on the batch": NumpyBatch,
    "Albumentations crops": lambda: BareAugment(albumentations, ("albumentations",)),
    "fused normalize": lambda: BareAugment(fused_normalize, () if shutil.which("cc") else ("a C compiler",)),
}
