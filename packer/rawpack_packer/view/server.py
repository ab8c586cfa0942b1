"""Serves the page on this machine, to whoever has its token.

A question is answered only if it is a GET, names this server as its host (a page elsewhere may point a name of its own
at this address), and brings the token: once in the address, and from then on in a cookie that no script reads and no
other site's page sends. Answers may not be framed, or read from another origin, and the page runs no script but its own
file.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from rawpack.errors import PackError
from rawpack_packer.view.answers import Answer, Answers, error_of
from rawpack_packer.view.looked_at import LookedAt

_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/view.css": ("view.css", "text/css; charset=utf-8"),
    "/view.js": ("view.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_ASKING_S, _TAKING_S = 5, 120
"""How long a client may take to ask its next question completely, and to take an answer: then it is given up."""
_CONNECTIONS = 100
"""Each has a thread. One more takes the place of the one that has asked nothing for the longest time; where all are
being answered, it waits, for `_WAITING_S` at most."""
_WAITING_S, _LOOK_EVERY_S = 2.0, 0.05
_ARRIVING_S = 0.3
"""How long a new connection may take until its question arrives, before it can lose its place to another."""
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:(?P<port>[0-9]{1,5}))?")
"""As browsers write it: without a user."""
_FOREVER = "private, max-age=31536000, immutable"


class Viewer(ThreadingHTTPServer):
    """The server of one page. `serve_forever` serves it, `shutdown` and `server_close` end it."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, stores: Sequence[LookedAt], host: str = "127.0.0.1", port: int = 0) -> None:
        """host, port: where to listen; port 0 takes a free one. Raises PackError where that cannot be."""
        self.stores, self.answers = list(stores), Answers(stores)
        self.token, self.host = secrets.token_urlsafe(24), host
        self._places, self._open = threading.Semaphore(_CONNECTIONS), set[socket.socket]()
        self._idle: dict[socket.socket, float] = {}
        """Connections whose question has not arrived completely -> since when; the oldest first."""
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise PackError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """What to open, with the token."""
        any_address = self.host in ("", "0.0.0.0", "::")
        name = "127.0.0.1" if any_address else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The name of the cookie: cookies do not tell ports apart."""
        return f"rawpack-{self.port}"

    def server_close(self) -> None:
        """End it and all connections, when `serve_forever` has ended."""
        super().server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.answers.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection."""
        if self._places.acquire(blocking=False) or self._finds_place():
            self._open.add(request)
            self.waits(request)
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the questions of a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._places.release()

    def shutdown_request(self, request: Any) -> None:
        """End a connection, which is not idle before it is closed: `_end_idle` must find none without a descriptor."""
        self.asked(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that send no question, or one byte of it now and then. Called several times a second."""
        while self._end_idle(_ASKING_S):
            pass

    def waits(self, connection: socket.socket) -> None:
        """Count a connection as idle from now on."""
        with self._lock:
            self._idle[connection] = time.monotonic()

    def asked(self, connection: socket.socket) -> None:
        """A question has arrived completely: the connection is not idle until it is answered."""
        with self._lock:
            self._idle.pop(connection, None)

    def _finds_place(self) -> bool:
        until = time.monotonic() + _WAITING_S
        while time.monotonic() < until:
            self._end_idle(_ARRIVING_S)
            if self._places.acquire(timeout=_LOOK_EVERY_S):
                return True
        return False

    def _end_idle(self, seconds: float) -> bool:
        """End the connection that has been idle for the longest time, if that is longer than `seconds`."""
        with self._lock:
            for connection, since in self._idle.items():
                if time.monotonic() - since < seconds:
                    return False
                if not _has_unread(connection):
                    del self._idle[connection]
                    with suppress(OSError):  # its client may have ended it
                        connection.shutdown(socket.SHUT_RDWR)
                    return True
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of this program."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "rawpack", ""
    timeout = _ASKING_S
    server: Viewer

    def handle_one_request(self) -> None:
        self.server.waits(self.connection)
        super().handle_one_request()

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        self.server.asked(self.connection)
        return parsed

    def do_GET(self) -> None:
        try:
            url = urlsplit(self.path)
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, "That is no address.")
            return
        words = dict(parse_qsl(url.query, keep_blank_values=True))
        if not self._names_this_server():
            self._refuse(HTTPStatus.FORBIDDEN, "This server does not answer to that name.")
        elif url.path == "/" and "token" in words:
            self._let_in(words["token"])
        elif not self._has_cookie():
            self._refuse(HTTPStatus.FORBIDDEN, "Open the address that `rawpack view` printed: it has a token.")
        elif url.path in _PAGE:
            name, kind = _PAGE[url.path]
            self._send(HTTPStatus.OK, Answer(kind, (files(__package__) / "page" / name).read_bytes()))
        else:
            self._answer(url.path, words)

    def _answer(self, path: str, words: dict[str, str]) -> None:
        try:
            found = self.server.answers.answer(path, words)
        except Exception as error:
            status, said = error_of(error)
            self._refuse(HTTPStatus(status), said)
            return
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such page.")
        else:
            self._send(HTTPStatus.OK, found)

    def _names_this_server(self) -> bool:
        """Whether `Host` is this machine, or an address, on this port: no name that somebody else owns."""
        named = _HOST.fullmatch(self.headers.get("Host", "").lower())
        if named is None or int(named["port"] or 80) != self.server.port:
            return False
        if named["name"] in ("localhost", self.server.host.lower(), socket.gethostname().lower()):
            return True
        try:
            ipaddress.ip_address(named["name"].strip("[]"))
        except ValueError:
            return False
        return True

    def _has_cookie(self) -> bool:
        # Cookies of other servers on this machine come too, whatever they look like.
        pairs = (pair.strip().partition("=") for pair in self.headers.get("Cookie", "").split(";"))
        return any(name == self.server.cookie and _equal(value, self.server.token) for name, _, value in pairs)

    def _let_in(self, token: str) -> None:
        """Give the cookie, and an address without the token, which would stay in the browser's history."""
        if not _equal(token, self.server.token):
            self._refuse(HTTPStatus.FORBIDDEN, "The token is not that of this server: it was started again.")
            return
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        self._send(HTTPStatus.SEE_OTHER, Answer("text/plain", b""), {"Location": "/", "Set-Cookie": cookie})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no GET of HTTP, refused with the headers that every answer has."""
        self.close_connection = True
        self._refuse(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _refuse(self, status: HTTPStatus, said: str) -> None:
        self._send(status, Answer("text/plain; charset=utf-8", said.encode("utf-8", "replace")))

    def _send(self, status: HTTPStatus, answer: Answer, more: dict[str, str] | None = None) -> None:
        self.connection.settimeout(_TAKING_S)
        self.send_response_only(status)
        headers = {
            **_HEADERS,
            "Date": formatdate(usegmt=True),
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.data)),
            "Cache-Control": _FOREVER if answer.lasts and status == HTTPStatus.OK else "no-store",
            **({"Connection": "close"} if self.close_connection else {}),
            **(more or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.data)
        self.connection.settimeout(_ASKING_S)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: the first has the token."""


def _has_unread(connection: socket.socket) -> bool:
    """Whether bytes have arrived that its thread has not taken yet, such as a question."""
    with selectors.DefaultSelector() as selector:  # Windows has no `select.poll`
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
