"""Whether a host can be reached at all: what cannot be is not worth two minutes of retries, unless it was there before.

A server that restarts refuses connections for a moment, and a name server that restarts knows no names. So only a host
that has never sent anything to this process is given up at once.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

_NAMES_S = 10.0
"""How long a name server is asked again that does not answer: many machines ask when a job begins."""
_CAUSES = 12
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""What OpenSSL says of a server that answers without TLS."""

Host = tuple[str, str, str]
_answered: set[Host] = set()
"""Those that have sent something to this process; a forked child starts with its parent's."""
_bytes: dict[Host, int] = {}
"""How many bytes each has sent. Without a lock, which a forked child might find held: where two threads add at the same
moment, one count may be lost, and only rates near zero matter."""


def host_of(url: str, options: Mapping[str, Any]) -> Host:
    """The host behind a URL. options: fsspec's `storage_options`, which may name an endpoint."""
    split, client = urlsplit(url), options.get("client_kwargs")
    endpoint = options.get("endpoint_url") or (client.get("endpoint_url") if isinstance(client, Mapping) else None)
    return split.scheme.lower(), split.netloc.rpartition("@")[2].lower(), str(endpoint or "")


def note_answer(host: Host) -> None:
    """From now on, errors of this host are retried."""
    _answered.add(host)


def note_bytes(host: Host, count: int) -> None:
    _bytes[host] = _bytes.get(host, 0) + count


def bytes_from(host: Host) -> int:
    return _bytes.get(host, 0)


def is_lost(host: Host, error: BaseException, seconds: float) -> bool:
    """Whether an error shows that a host cannot be reached, which never sent anything. seconds: of retries so far."""
    import ssl  # here and below: the packer loads this module for paths as well

    if host in _answered:
        return False
    return any(
        isinstance(one, ConnectionRefusedError | ssl.SSLCertVerificationError)
        or _speaks_no_tls(one)
        or (isinstance(one, socket.gaierror) and (one.errno != socket.EAI_AGAIN or seconds > _NAMES_S))
        for one in causes(error)
    )


def _speaks_no_tls(error: BaseException) -> bool:
    import ssl

    return isinstance(error, ssl.SSLError) and any(one in str(error) for one in _NO_TLS)


def is_of_connection(error: BaseException) -> bool:
    """Whether an error came before anything was received. Some errors of certificates are ValueErrors too."""
    import ssl

    return any(isinstance(one, ConnectionError | ssl.SSLError | socket.gaierror) for one in causes(error))


def why_lost(error: BaseException) -> str:
    """The reason in words, with what to do; "" for any other error."""
    import ssl

    found = [*causes(error)]
    # aiohttp's errors say which host that was, which a URL of S3 does not.
    host, port = next(((one.host, one.port) for one in found if hasattr(one, "host") and hasattr(one, "port")), ("", 0))
    for one in found:
        if isinstance(one, ConnectionRefusedError):
            where = f"{host}:{port}" if host else "its host"
            return f"{where} refuses the connection; check that the server is running, and its name and port"
        what = getattr(one, "verify_message", None) if isinstance(one, ssl.SSLCertVerificationError) else None
        if what:  # that of aiohttp's own error is empty
            return (
                f"the certificate of {host or 'its host'} is not accepted ({what}); check the address, or name the "
                "file of its authority's certificate in SSL_CERT_FILE, for S3 in AWS_CA_BUNDLE"
            )
        if _speaks_no_tls(one):
            where = f"{host}:{port}" if host else "its host"
            return f"{where} does not speak TLS; write http:// instead of https://, in the URL or its endpoint"
        if isinstance(one, socket.gaierror):
            if one.errno == socket.EAI_AGAIN:
                return f"no name server knows {host or 'its host'} now; check the network"
            return f"there is no host {host}; check its name" if host else "there is no such host; check its name"
    return ""


def asked_to_wait(error: BaseException) -> float | None:
    """The seconds after which a server wants to be asked again (`Retry-After`); None where it does not say that."""
    for one in causes(error):
        response, headers = getattr(one, "response", None), getattr(one, "headers", None)
        if isinstance(response, Mapping):  # botocore's errors
            headers = response.get("ResponseMetadata", {}).get("HTTPHeaders")
        after = headers.get("Retry-After", headers.get("retry-after")) if isinstance(headers, Mapping) else None
        if isinstance(after, str):
            if re.fullmatch(r"\s*\d{1,9}\s*", after):
                return float(after)
            from email.utils import parsedate_to_datetime

            with suppress(ValueError, TypeError):  # the other form is a date
                return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it came from, where HTTP and S3 clients keep them."""
    found, seen = [error], list[BaseException]()
    while found and len(seen) < _CAUSES:
        one = found.pop(0)
        if one in seen:
            continue
        seen.append(one)
        yield one
        kept = getattr(one, "kwargs", None)
        more = (
            getattr(one, "os_error", None), getattr(one, "certificate_error", None),
            kept.get("error") if isinstance(kept, Mapping) else None, one.__cause__, one.__context__,
        )  # fmt: skip
        found += [other for other in more if isinstance(other, BaseException)]
