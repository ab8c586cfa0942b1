"""Run one step of a part in this process, which is started only for it.

python child.py prepare five_ways '{"work": ...}'
python child.py measure five_ways '{"work": ...}' 'np.memmap'      prints a line of JSON for each named method
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from published_parts.contract import Method, Part, Task

HERE = Path(__file__).resolve().parent
_ROOT = HERE.parents[2]
_DISTRIBUTIONS = (
    "numpy", "torch", "tensordict", "opencv-python-headless", "PyTurboJPEG", "simplejpeg", "pillow", "lmdb", "h5py",
    "keras", "jax", "av", "ffcv",
)  # fmt: skip


def main() -> None:
    action, name, task_json, *labels = sys.argv[1:]
    # scripts/bench, for its server, photographs and counters, comes first: other folders have modules with its names.
    sys.path[:1] = [str(_ROOT / "scripts" / "bench"), str(_ROOT / "reader"), str(_ROOT / "packer"), str(HERE.parent)]
    from published_parts.contract import Task

    part: Part = importlib.import_module(f"published_parts.{name}").PART
    task = Task(**json.loads(task_json))
    if action == "prepare":
        part.prepare(task)
        print(json.dumps(about()))
        return
    for method in part.methods:
        if method.label in labels:
            print(json.dumps({"label": method.label} | measured(method, task)), flush=True)


def measured(method: Method, task: Task) -> dict[str, Any]:
    """The values of one measurement, or why there are none."""
    from published_parts import common, contract

    missing = [module for module in method.needs if importlib.util.find_spec(module) is None]
    if missing:
        return {"left_out": f"not installed: {', '.join(missing)}"}
    try:
        for name in method.reads:
            common.warm(task.folder / name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"values": method.call(task), "versions": versions()}
    except contract.UnavailableError as error:
        return {"left_out": _line(error)}
    except Exception as error:
        traceback.print_exc()
        return {"left_out": f"failed: {type(error).__name__}: {_line(error)}"}


def _line(error: Exception) -> str:
    """The first line of the error's message, for a table."""
    return (str(error).strip().splitlines() or [""])[0]


def about() -> dict[str, Any]:
    """The machine, its load and all versions, for those who read the table later."""
    from rawpack.system import machine

    facts = machine.describe()
    return {
        "machine": {name: facts[name] for name in ("cpu", "cpus", "cpu_quota", "memory_limit_bytes", "os")},
        "load": os.getloadavg()[0],
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that are measured."""
    found = {"python": sys.version.split()[0]}
    for name in _DISTRIBUTIONS:
        if found_version := _version(name):
            found[name] = found_version
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
