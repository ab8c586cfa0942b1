"""URLs: which strings are one, the URLs of a store's files, URLs without credentials, and their file systems."""

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
_LEAST_SECRET = 6
"""Characters: shorter values are part of too many words to be removed from a message."""


def is_url(path: object) -> bool:
    """Whether `path` is a URL, and not a folder of this machine."""
    return isinstance(path, str) and _URL.match(path) is not None and not path.lower().startswith("file://")


def refuse_url(path: object) -> None:
    """Raise UsageError where a URL was given for something that must be on this machine."""
    if is_url(path):
        raise UsageError(
            f"{shown(str(path))} is a URL, but this needs local files: `rawpack warm` fetches a store and says "
            "where to; copy other files here first"
        )


def local_path(path: str | os.PathLike[str]) -> Path:
    """The folder that a path or a file:// URL names."""
    if isinstance(path, str) and path.lower().startswith("file://"):
        return Path(unquote(urlsplit(path).path))
    return Path(path)


def join(url: str, name: str) -> str:
    """The URL of file `name` of the store at `url`; a query stays at the end, where servers want their signature."""
    end = re.search(r"[?#]", url) if url.lower().startswith(("http://", "https://")) else None
    at = end.start() if end else len(url)
    return f"{url[:at].rstrip('/')}/{name}{url[at:]}"


def shown(url: str) -> str:
    """The URL, or any text with URLs in it, without users, passwords, queries and fragments."""
    return _QUERY.sub(r"\1?...", _USER.sub(r"\1", url))


def scrubbed(text: str, url: str, options: Mapping[str, Any]) -> str:
    """A message of other code, without the secrets in a URL or in the options that opened it."""
    text = shown(text)
    user = re.search(r"://([^/?#\s]*)@", url)
    secrets = set(user[1].split(":")) if user else set()
    secrets |= {part.partition("=")[2] for part in re.split("[?&]", url)[1:]}
    secrets |= set(_secrets(options))
    for secret in sorted(secrets | {unquote(one) for one in secrets}, key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, "...")
    return text


def filesystem(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the URL's path there.

    Made anew in each process: a forked child may not use its parent's. Raises MissingExtraError where fsspec or the
    protocol's own package is not installed, UsageError for a protocol that fsspec does not know.
    """
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(f"{shown(url)}: URLs need fsspec: pip install 'rawpack[remote]'") from None
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        # fsspec's message names the package.
        what = scrubbed(str(error), url, options)
        raise MissingExtraError(
            f"{shown(url)}: its protocol needs another package ({what}); rawpack[remote] brings those of s3:// and "
            "http(s)://"
        ) from None
    except ValueError as error:
        what = scrubbed(str(error), url, options)
        raise UsageError(f"{shown(url)} cannot be opened: {what}") from None
    except Exception as error:
        what = scrubbed(f"{type(error).__name__}: {error}", url, options)
        raise UsageError(f"{shown(url)} cannot be opened: {what}; are storage_options right?") from None
    return filesystem, str(path)


def _secrets(options: Any, secret: bool = False) -> Iterable[str]:
    """All texts below names that speak of secrets."""
    if isinstance(options, Mapping):
        for name, value in options.items():
            yield from _secrets(value, secret or bool(_SECRET.search(str(name))))
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _secrets(value, secret)
    elif isinstance(options, str) and secret:
        yield options
