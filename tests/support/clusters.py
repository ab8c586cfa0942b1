"""Real clusters on this machine, on its loopback interface alone, which end with the block whatever happens in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest
from running import environment

START_S = 60.0


def cluster_environment() -> dict[str, str]:
    """In which workers find rawpack, and the sources of these tests."""
    # Ray takes this machine's own address for the loopback's unless it is told that there are no others.
    found = environment(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    return found | {"PYTHONPATH": os.pathsep.join((found["PYTHONPATH"], str(Path(__file__).parent)))}


def environment_without_rawpack(folder: Path) -> dict[str, str]:
    """In which Python finds all but rawpack: `folder` gets what hides it."""
    (folder / "sitecustomize.py").write_text("import sys\n\nsys.modules['rawpack_packer'] = None\n")
    return cluster_environment() | {"PYTHONPATH": str(folder)}


QUIET_DASK = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
}
"""Without its own statistics Dask leaves an idle core idle."""


@contextmanager
def dask_cluster(*environments: dict[str, str]) -> Iterator[str]:
    """A scheduler, and in each environment a worker process of one thread, started again when it dies: its address."""
    pytest.importorskip("distributed", reason="no Dask: pip install 'rawpack[dask]'")
    with ExitStack() as ended, tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "scheduler.json", (Path(folder) / "log").open("w")
        ended.enter_context(log)

        def start(what: str, env: dict[str, str], *args: str) -> None:
            command = [sys.executable, "-m", f"distributed.cli.{what}", "--host", "127.0.0.1", "--no-dashboard", *args]
            process = subprocess.Popen(
                [*command, "--scheduler-file", str(file)], env=env | QUIET_DASK, stdout=log, stderr=log, cwd=folder
            )
            ended.callback(end, process)

        start("dask_scheduler", cluster_environment(), "--port", "0")
        until = time.monotonic() + START_S
        while not file.exists() or not file.read_text():
            assert time.monotonic() < until, (Path(folder) / "log").read_text()
            time.sleep(0.05)
        for env in environments:
            start("dask_worker", env, "--nthreads", "1", "--local-directory", folder)
        yield str(json.loads(file.read_text())["address"])


@contextmanager
def ray_cluster() -> Iterator[str]:
    """One node of two CPUs: its address."""
    pytest.importorskip("ray", reason="no Ray: pip install 'rawpack[ray]'")
    from ray._private import ray_constants  # type: ignore[import-not-found, unused-ignore]

    others = psutil.Process().children()
    alone = mock.patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False)
    with mock.patch.dict(os.environ, cluster_environment()), alone:
        try:
            cluster = ray_node()
            yield str(cluster.address)
            cluster.shutdown()
        finally:
            for process in psutil.Process().children():
                if process not in others:
                    end_family(process)


def ray_node() -> Any:
    """Ray gives a node half a minute to start, which a busy machine may not make at once."""
    from ray.cluster_utils import Cluster  # type: ignore[import-not-found, unused-ignore]

    node = {
        "num_cpus": 2, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20,
        "include_dashboard": False, "include_log_monitor": False, "no_monitor": True,
    }  # fmt: skip
    for _ in range(2):
        with suppress(Exception):
            return Cluster(initialize_head=True, head_node_args=node)
    return Cluster(initialize_head=True, head_node_args=node)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it has started, and wait for them."""
    end_family(psutil.Process(process.pid))
    process.wait(60)


def end_family(process: psutil.Process) -> None:
    """Kill a process with all that it has started. Python's trackers of resources end by themselves after that, once
    they have removed the semaphores of those that were killed."""
    family, trackers = list[psutil.Process](), list[psutil.Process]()
    with suppress(psutil.Error):
        for one in [process, *process.children(recursive=True)]:
            (trackers if _is_tracker(one) else family).append(one)
    for one in family:
        with suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(family, timeout=60)
    for one in psutil.wait_procs(trackers, timeout=20)[1]:
        with suppress(psutil.Error):
            one.kill()


def _is_tracker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    return False
