#!/usr/bin/env python3
"""A file server on loopback with a bandwidth: what the subjects of the table `remote` read from.

    python loopback.py FOLDER BYTES_PER_SECOND LATENCY_S        prints its port, and ends when its standard input does
    python loopback.py FOLDER BYTES_PER_SECOND LATENCY_S s3     the same by moto, as the bucket `bench`

It answers GET and HEAD, with ranges, as HTTP servers and S3 (by path: /bucket/key) do. Connections share the bandwidth,
which may be `inf`. The first byte of each answer comes after the latency; on a new connection after twice as long, as
over a network, where a connection is made before anything can be asked. It serves in a process that is no child of its
caller, whose CPU time it is not.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

BUCKET = "bench"
_PIECE = 256 << 10


class Wire:
    """A bandwidth that threads share."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free, self._lock = rate, time.monotonic(), threading.Lock()

    def take(self, size: int) -> None:
        """Return when so many bytes may be sent."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            until = self._free
        time.sleep(max(0.0, until - time.monotonic()))


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    folder: Path
    wire: Wire
    latency: float

    def setup(self) -> None:
        super().setup()
        time.sleep(self.latency)

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None: ...

    def _answer(self) -> None:
        time.sleep(self.latency)
        path = (self.folder / unquote(urlsplit(self.path).path).lstrip("/")).resolve()
        if not path.is_relative_to(self.folder) or not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        start, stop = 0, size
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if match:
            start, stop = int(match[1]), min(size, int(match[2] or size - 1) + 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{size:x}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.flush()
        with path.open("rb") as file, suppress(BrokenPipeError, ConnectionResetError):
            while start < stop:
                piece = min(_PIECE, stop - start)
                self.wire.take(piece)
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, piece)


class Server(ThreadingHTTPServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 1024
    """With fewer, the system drops connections that are made at once, and clients try again a second later."""


def s3(folder: Path, wire: Wire, latency: float) -> Any:
    """A server of the same files by moto, which speaks all of S3."""
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    app, slowed = DomainDispatcherApplication(create_backend_app), threading.Event()

    def limited(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        if slowed.is_set():
            time.sleep(latency)
        for body in app(environ, start_response):
            for at in range(0, len(body), _PIECE):
                if slowed.is_set():
                    wire.take(len(body[at : at + _PIECE]))
                yield body[at : at + _PIECE]

    class Quiet(WSGIRequestHandler):  # type: ignore[misc] # without werkzeug, it is Any
        protocol_version = "HTTP/1.1"

        def log_request(self, *args: Any) -> None: ...

    server = make_server("127.0.0.1", 0, limited, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{server.port}", region_name="us-east-1",
        aws_access_key_id="none", aws_secret_access_key="none",
    )  # fmt: skip
    client.create_bucket(Bucket=BUCKET)
    for path in folder.rglob("*"):
        if path.is_file():
            key = path.relative_to(folder).as_posix()
            # Public, for the plain requests.
            client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes(), ACL="public-read")
    slowed.set()
    return server.port


def main() -> None:
    folder, wire, latency = Path(sys.argv[1]).resolve(), Wire(float(sys.argv[2])), float(sys.argv[3])
    if os.fork():
        os._exit(0)  # without waiting: the child is nobody's then
    if sys.argv[4:] == ["s3"]:
        port = s3(folder, wire, latency)
    else:
        Handler.folder, Handler.wire, Handler.latency = folder, wire, latency
        server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
    print(port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
