"""Where a cluster listens: what a user gives as its address, looked at before the cluster's own library waits for it.

Those libraries try for minutes to reach what cannot be reached, and say so in tracebacks.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection

from rawpack.errors import PackError, UsageError

_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<host>[\w.-]+|\[[\w:.%]+\]):(?P<port>[0-9]{1,5})/?")


def host_and_port(address: str, cluster: str, schemes: Collection[str], example: str) -> tuple[str, int]:
    """Of "tcp://host:8786", or "host:8786". Raises UsageError, with the example, for what is no such address.

    cluster: what listens there, "Dask scheduler".
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or match["scheme"] not in (None, *schemes) or not 0 < int(match["port"]) < 1 << 16:
        raise UsageError(f"{address!r} is not the address of a {cluster}: give {example}")
    return match["host"].strip("[]"), int(match["port"])


def knock(host: str, port: int, within_s: float) -> None:
    """Return when something listens there; try again where nothing does yet. Raises OSError where it still does not."""
    until = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection((host, port), timeout=max(until - time.monotonic(), 0.01)).close()
        except UnicodeError as error:
            raise OSError(f"{host} is no name of a host") from error
        except ConnectionRefusedError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.1)
        else:
            return


def no_answer(address: str, cluster: str, error: BaseException) -> PackError:
    """Where nobody answers at an address that could be one."""
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return PackError(f"no {cluster} answers at {address}: {why}")
