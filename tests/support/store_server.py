"""Servers on loopback for the tests of remote stores: HTTP, and S3 as far as its clients ask, with scripted faults.

A fault is a function of the request. It returns True where it has answered itself:

    server.faults.append(on("shard-00001", status(503), 2))
"""

from __future__ import annotations

import math
import os
import re
import socket
import ssl
import subprocess
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    import pytest

Fault = Callable[["Request"], bool]


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """With fewer, the system drops connections that are made at once, and clients try again a second later."""


class Server:
    """One server: paths -> bytes, the log of what was asked, and the faults that come before the right answer."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.log: list[tuple[str, str]] = []
        """(method, path) of each request."""
        self.faults: list[Fault] = []
        self.ranges = True
        """Whether it knows ranges."""
        self.buckets: set[str] | None = None
        """The buckets that there are; None: every one."""
        self.ended = threading.Event()
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.http = self.at(0)
        self.http.handle_error = lambda request, address: None  # of clients that were killed

    def stop(self) -> None:
        """Listen no longer, and close connections without an answer."""

        def drops(request: Request) -> bool:
            request.close_connection = True
            return True

        self.faults.append(drops)
        self.http.shutdown()
        self.http.server_close()

    def at(self, port: int) -> _Http:
        """A listener for this server's files, at any port for 0."""
        return _Http(("127.0.0.1", port), type("Handler", (Request,), {"server_state": self}))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    def put_folder(self, prefix: str, files: dict[str, bytes]) -> None:
        """Serve files (of `folders.files_of`) below a prefix."""
        self.files |= {f"{prefix}/{name}": data for name, data in files.items()}

    def asked(self, part: str, method: str = "GET") -> int:
        """How many requests named a path with `part` in it."""
        return sum(part in path for asked, path in list(self.log) if asked == method)


class Request(BaseHTTPRequestHandler):
    """One request."""

    server_state: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None: ...

    @property
    def name(self) -> str:
        """The path, without the slash before it."""
        return unquote(urlsplit(self.path).path).lstrip("/")

    @property
    def range(self) -> tuple[int, int] | None:
        """(start, stop) that were asked for, within the file."""
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        data = self.server_state.files.get(self.name, b"")
        if not match or not self.server_state.ranges:
            return None
        return int(match[1]), min(int(match[2] or len(data)) + 1, len(data))

    def wanted(self) -> bytes:
        """The right bytes for a GET."""
        data = self.server_state.files.get(self.name, b"")
        return data[slice(*self.range)] if self.range else data

    def partly(self, body: bytes, length: int | None = None) -> None:
        """Send this in place of the bytes that were asked for, in an answer that is right but for them."""
        if self.range:
            start, stop = self.range
            total = len(self.server_state.files[self.name])
            self.reply(206, body, length, Content_Range=f"bytes {start}-{stop - 1}/{total}")
        else:
            self.reply(200, body, length)

    def reply(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        """Send an answer; length: what Content-Length says, where it lies."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.wfile.flush()

    def _answer(self) -> None:
        state = self.server_state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("X-Amz-Content-Sha256", "").startswith("STREAMING"):
            body = _unchunked(body)
        state.log.append((self.command, self.name))
        try:
            if not any(fault(self) for fault in state.faults):
                self._right(body)
        except (BrokenPipeError, ConnectionResetError):
            pass

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def _right(self, body: bytes) -> None:
        state, query = self.server_state, parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        bucket, _, name = self.name.partition("/")
        if state.buckets is not None and self.command == "PUT" and not name:
            state.buckets.add(bucket)
            self.reply(200)
            return
        if state.buckets is not None and bucket not in state.buckets:
            self.reply(404, _error("NoSuchBucket"), Content_Type="application/xml")
            return
        if self.command in ("GET", "HEAD") and ("list-type" in query or "location" in query):
            self._list(query)
        elif self.command in ("GET", "HEAD"):
            data = state.files.get(self.name)
            if data is None:
                self.reply(404, _error("NoSuchKey"), Content_Type="application/xml")
                return
            etag = f'"{zlib.crc32(data):08x}"'
            if self.command == "HEAD":
                self.reply(200, b"", len(data), ETag=etag, Accept_Ranges="bytes")
            elif self.range and self.range[0] >= len(data):
                self.reply(416, _error("InvalidRange"))
            elif self.range:
                start, stop = self.range
                self.reply(206, self.wanted(), ETag=etag, Content_Range=f"bytes {start}-{stop - 1}/{len(data)}")
            else:
                self.reply(200, data, ETag=etag)
        elif self.command == "PUT" and "uploadId" in query:
            state.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
            self.reply(200, ETag='"part"')
        elif self.command == "PUT":
            state.files[self.name] = body
            self.reply(200, ETag='"x"')
        elif self.command == "POST" and "uploads" in query:
            number = uuid.uuid4().hex
            state.uploads[number] = {}
            self.reply(200, f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId>"
                       "</InitiateMultipartUploadResult>".encode())  # fmt: skip
        elif self.command == "POST" and "uploadId" in query:
            parts = state.uploads.pop(query["uploadId"][0])
            state.files[self.name] = b"".join(parts[k] for k in sorted(parts))
            self.reply(200, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
        elif self.command == "POST" and "delete" in query:
            for name in re.findall(r"<Key>(.*?)</Key>", body.decode()):
                state.files.pop(f"{self.name.rstrip('/')}/{name}", None)
            self.reply(200, b"<DeleteResult></DeleteResult>")
        elif self.command == "DELETE":
            state.files.pop(self.name, None)
            self.reply(204)
        else:
            self.reply(501)

    def _list(self, query: dict[str, list[str]]) -> None:
        bucket = self.name.rstrip("/")
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        keys = sorted(name.removeprefix(f"{bucket}/") for name in list(self.server_state.files))
        contents, folders, count = "", set(), 0
        for key in keys:
            if not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            count += 1
            size = len(self.server_state.files[f"{bucket}/{key}"])
            contents += (
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>x</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
        shared = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
        found = (
            f"<Name>{bucket}</Name><KeyCount>{count + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>"
            f"{contents}{shared}"
        )
        self.reply(200, f"<ListBucketResult>{found}</ListBucketResult>".encode(), Content_Type="application/xml")


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


def _unchunked(body: bytes) -> bytes:
    """What S3 clients send in signed chunks, without what is between them."""
    data = b""
    while body:
        head, _, rest = body.partition(b"\r\n")
        size = int(head.partition(b";")[0], 16)
        if not size:
            break
        data, body = data + rest[:size], rest[size + 2 :]
    return data


@contextmanager
def refusing() -> Iterator[str]:
    """The URL of a port at which nobody listens, and nobody can, as long as the block runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def untrusted(folder: Path) -> Iterator[str]:
    """The URL of a server whose certificate nobody has signed but itself; it is made in `folder`, by openssl."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(context) as server:
        yield server.url.replace("http://", "https://")


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server that ends with the block, with all that it still answers. context: for https."""
    server = Server()
    if context is not None:
        server.http.socket = context.wrap_socket(server.http.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join()


# ---------------------------------------------------------------------------------------------- faults


def find_by_itself(server: Server, patched: pytest.MonkeyPatch) -> None:
    """Let s3fs find a server, and its keys, by the environment and by its own configuration."""
    import fsspec.config

    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        patched.delenv(name)
    patched.setenv("FSSPEC_S3_ENDPOINT_URL", server.url)
    patched.setenv("AWS_ACCESS_KEY_ID", "me")
    patched.setenv("AWS_SECRET_ACCESS_KEY", "sesame-open")
    patched.setitem(fsspec.config.conf, "s3", {"endpoint_url": server.url})


def limit_spools(patched: pytest.MonkeyPatch, limit: int) -> None:
    """Give every spool this limit in bytes, as if the disk were nearly full."""
    from rawpack_packer.sources.table.remote_files import Spool

    make = Spool.__init__
    patched.setattr(Spool, "__init__", lambda self, folder, _, options=None: make(self, folder, limit, options))


def on(part: str, fault: Fault, count: float = math.inf, method: str = "GET") -> Fault:
    """The fault, at the first `count` requests for a path that has `part` in it."""
    left, lock = [count], threading.Lock()

    def maybe(request: Request) -> bool:
        with lock:
            if request.command != method or part not in request.name or left[0] < 1:
                return False
            left[0] -= 1
        return fault(request)

    return maybe


def status(code: int) -> Fault:
    """An answer of this status."""

    def fault(request: Request) -> bool:
        request.reply(code, _error({403: "AccessDenied"}.get(code, "InternalError")))
        return True

    return fault


def stalls(request: Request) -> bool:
    """Half of the answer, and then nothing."""
    body = request.wanted()
    request.partly(body[: len(body) // 2], len(body))
    request.server_state.ended.wait(20)
    request.close_connection = True
    return True


def truncates(request: Request) -> bool:
    """Half of the answer, and the connection ends."""
    body = request.wanted()
    request.partly(body[: len(body) // 2], len(body))
    request.close_connection = True
    return True


def shortens(request: Request) -> bool:
    """Half of the answer, as if that were all."""
    body = request.wanted()
    request.partly(body[: len(body) // 2])
    return True


def flips(request: Request) -> bool:
    """The answer with one bit changed."""
    body = bytearray(request.wanted())
    body[len(body) // 2] ^= 1
    request.partly(bytes(body))
    return True


def slow(seconds: float) -> Fault:
    """The right answer, later."""

    def fault(request: Request) -> bool:
        time.sleep(seconds)
        return False

    return fault
