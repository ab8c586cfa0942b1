"""The subjects by name. A new one is a module here with a class of the three functions, and a line below.

| module | what it measures |
|---|---|
| `rawpack_store.py` | this project's reader |
| `order_alone.py` | what the order of the samples costs by itself |
| `copy_limit.py`, `decode_limit.py` | processes that do only the unavoidable work of reading |
| `take_loop.py` | a loop of one `np.take` a batch, in one process |
| `torch_loader.py`, `tensordict_memmap.py`, `ffcv_raw.py` | peers, over the same images |
| `rawpack_pack.py`, `bare_pack.py` | packing, by this project and by a bare loop of the same library calls |
| `ffcv_pack.py`, `litdata_pack.py` | packing by peers, each image made by the same library calls |
| `copy_files.py` | copying files' bytes, which is the limit of passing them through |
"""

from __future__ import annotations

from collections.abc import Callable

from contract import Subject
from subjects.bare_pack import BarePack
from subjects.copy_files import CopyFiles
from subjects.copy_limit import CopyLimit
from subjects.decode_limit import DecodeLimit
from subjects.ffcv_pack import FfcvPack
from subjects.ffcv_raw import FfcvRaw
from subjects.litdata_pack import LitdataPack
from subjects.order_alone import OrderAlone
from subjects.rawpack_pack import RawpackPack
from subjects.rawpack_store import RawpackStore
from subjects.take_loop import TakeLoop
from subjects.tensordict_memmap import TensordictMemmap
from subjects.torch_loader import TorchLoader

SUBJECTS: dict[str, Callable[[], Subject]] = {
    "copy limit": CopyLimit,
    "decode limit": DecodeLimit,
    "memmap": lambda: RawpackStore("memmap"),
    "hdf5": lambda: RawpackStore("hdf5"),
    "lmdb": lambda: RawpackStore("lmdb"),
    "order alone": OrderAlone,
    "take loop": TakeLoop,
    "torch DataLoader, memmap": TorchLoader,
    "tensordict memmap": TensordictMemmap,
    "FFCV raw": FfcvRaw,
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
    "copy files": CopyFiles,
}
