"""Checks of a cluster's address before its own library connects.

Those libraries retry for minutes where nothing answers, and report it as a traceback.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection

from rawpack.errors import PackError, UsageError

_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<host>[\w.-]+|\[[\w:.%]+\]):(?P<port>[0-9]{1,5})/?")


def host_and_port(address: str, cluster: str, schemes: Collection[str], example: str) -> tuple[str, int]:
    """Host and port of "tcp://host:8786" or "host:8786". Raises UsageError with the example for anything else.

    cluster: what should listen there, such as "Dask scheduler".
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or match["scheme"] not in (None, *schemes) or not 0 < int(match["port"]) < 1 << 16:
        raise UsageError(f"{address!r} is not the address of a {cluster}: give {example}")
    return match["host"].strip("[]"), int(match["port"])


def knock(host: str, port: int, within_s: float) -> None:
    """Return once something accepts connections there. Raises OSError where nothing does within `within_s`."""
    until = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection((host, port), timeout=max(until - time.monotonic(), 0.01)).close()
        except UnicodeError as error:
            raise OSError(f"{host} is not a host name") from error
        except ConnectionRefusedError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.1)
        else:
            return


def no_answer(address: str, cluster: str, timeout: float, error: BaseException) -> PackError:
    """The error for an address that no such cluster answers at."""
    if isinstance(error, TimeoutError):
        why = f"not within {timeout:g} s"
    else:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return PackError(f"no {cluster} answers at {address}: {why}")
