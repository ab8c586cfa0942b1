"""URLs: recognizing them, joining file names, removing credentials, and opening their file systems."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rawpack.errors import MissingExtraError, UsageError

# Two letters at least: C:// is a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_USER = re.compile(r"(://)[^/?#\s]*@")
_QUERY = re.compile(r"(://[^\s?#]*)[?#][^\s'\")>]*")
_SECRET = re.compile("secret|token|passw|key|auth|credential|header|cookie|sas|connection_string", re.IGNORECASE)
_S3_CONFIG = {"max_pool_connections": 32, "signature_version": "s3v4"}
_S3_RETRIES = {"mode": "standard", "max_attempts": 2}
"""Within a request, which is retried here and by s3fs too: with botocore's own five, a host that is not there would be
tried for ten seconds."""
_S3_RETRIED = {"AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE"}
_LEAST_SECRET = 6
"""Characters. Shorter values occur in too many words to be removed from a message."""


def is_url(path: object) -> bool:
    """Whether `path` is a URL, other than file://."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    return isinstance(path, str) and _URL.match(path) is not None and not path.lower().startswith("file://")


def refuse_url(path: object) -> None:
    """Raise UsageError for a URL, where a local path is needed."""
    if is_url(path):
        raise UsageError(
            f"{shown(str(path))} is a URL, but this needs local files: `rawpack warm` fetches a store and prints "
            "its folder; copy other files here first"
        )


def local_path(path: str | os.PathLike[str]) -> Path:
    """The folder that a path or a file:// URL names."""
    if isinstance(path, str) and path.lower().startswith("file://"):
        return Path(unquote(urlsplit(path).path))
    return Path(path)


def join(url: str, name: str) -> str:
    """The URL of file `name` of the store at `url`. A query stays at the end, where servers expect a signature."""
    end = re.search(r"[?#]", url) if url.lower().startswith(("http://", "https://")) else None
    at = end.start() if end else len(url)
    return f"{url[:at].rstrip('/')}/{name}{url[at:]}"


def shown(url: str) -> str:
    """A URL, or a text with URLs in it, without users, passwords, queries and fragments."""
    return _QUERY.sub(r"\1?...", _USER.sub(r"\1", url))


def share_options(url: str, other: str) -> bool:
    """Whether options for one URL may be used for another one: both have the same protocol and, over HTTP, the same
    host. Buckets belong to the account, or the endpoint, that the options name."""
    first, second = urlsplit(url.lower()), urlsplit(other.lower())
    hosts = {split.netloc.rpartition("@")[2] for split in (first, second)}
    return first.scheme == second.scheme and (not first.scheme.startswith("http") or len(hosts) == 1)


def scrubbed(text: str, url: str, options: Mapping[str, Any]) -> str:
    """A message of another library, without the secrets in a URL or in the options that opened it."""
    text = shown(text)
    user = re.search(r"://([^/?#\s]*)@", url)
    secrets = set(user[1].split(":")) if user else set()
    secrets |= {part.partition("=")[2] for part in re.split("[?&]", url)[1:]}
    secrets |= set(_secrets(options))
    for secret in sorted(secrets | {unquote(one) for one in secrets}, key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, "...")
    return text


def http_options(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for fsspec's package for HTTP, given and configured ones, without that package: to import it takes
    longer than to fetch a small store. Raises MissingExtraError where fsspec is not installed."""
    configured = _fsspec(url).config.conf
    return {**configured.get("http", {}), **configured.get("https", {}), **options}


def filesystem(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path of the URL in it.

    fsspec creates one in each process: a forked child must not use its parent's. Raises MissingExtraError where fsspec
    or the package of the protocol is not installed, UsageError for a protocol that fsspec does not know.
    """
    fsspec = _fsspec(url)
    if url.lower().startswith(("s3://", "s3a://")):
        # Otherwise it has 10 connections, too few for small shards with a latency of 100 ms; and it signs URLs by a
        # method that newer buckets do not take.
        given = options.get("config_kwargs", fsspec.config.conf.get("s3", {}).get("config_kwargs", {}))
        if isinstance(given, Mapping):
            # Each call with a dict of its own, which botocore changes: fsspec finds its file systems by their options.
            retries = {} if os.environ.keys() & _S3_RETRIED else {"retries": dict(_S3_RETRIES)}
            options = {**options, "config_kwargs": {**_S3_CONFIG, **retries, **given}}
    try:
        if url.lower().startswith(("http://", "https://")):
            from rawpack.remote.answers import client_for

            merged = http_options(url, options)
            options = {**options, "get_client": merged.get("get_client", client_for(merged))}
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        # fsspec's message names the package.
        what = scrubbed(str(error), url, options)
        raise MissingExtraError(
            f"{shown(url)}: its protocol needs another package ({what}); rawpack[remote] includes those for s3:// "
            "and http(s)://"
        ) from None
    except Exception as error:
        what = scrubbed(f"{type(error).__name__}: {error}", url, options)
        raise UsageError(f"{shown(url)} cannot be opened: {what}; check the URL and storage_options=") from None
    return filesystem, str(path)


def _fsspec(url: str) -> Any:
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(f"{shown(url)}: URLs need fsspec: pip install 'rawpack[remote]'") from None
    return fsspec


def _secrets(options: Any, secret: bool = False) -> Iterable[str]:
    if isinstance(options, Mapping):
        for name, value in options.items():
            yield from _secrets(value, secret or bool(_SECRET.search(str(name))))
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _secrets(value, secret)
    elif isinstance(options, str) and secret:
        yield options
