"""Which transport brings the bytes of remote stores, and that what it brings is the same: plain HTTP wherever a server
gives the plain answer, else fsspec's package."""

from __future__ import annotations

import base64
import gc
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

pytest.importorskip("aiohttp", reason="rawpack[remote] is not installed: no aiohttp")
pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")

import xxhash
from reading import descriptors
from store_server import Fault, Request, Server, on, serving, shortens, stalls, status, truncates

from rawpack import StoreError
from rawpack.disk.manifest import FileRecord
from rawpack.remote import attempts, download, transfer
from rawpack.remote.download import Transfer
from rawpack.remote.transfer import Remote
from rawpack.remote.wire import Wire

DATA = random.Random(0).randbytes(300_000)
NAME = "folder/a b.npy"
RECORD = FileRecord(name=NAME, bytes=len(DATA), xxh3=xxhash.xxh3_64_hexdigest(DATA))


@dataclass
class Counts:
    """Requests, by which transport was tried."""

    plain: int = 0
    package: int = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    found, by_package = Counts(), Remote._by_package

    def package(remote: Remote, *args: Any) -> bytes:
        found.package += 1
        return by_package(remote, *args)

    monkeypatch.setattr(Remote, "_by_package", package)
    for name in ("read", "read_range"):
        real = getattr(Wire, name)

        def plain(wire: Wire, *args: Any, real: Callable[..., Any] = real) -> Any:
            found.plain += 1
            return real(wire, *args)

        monkeypatch.setattr(Wire, name, plain)
    return found


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        started.files[f"bucket/store/{NAME}"] = DATA
        yield started


@pytest.fixture(autouse=True)
def small_ranges_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has ten ranges, and what failed is soon tried again."""
    monkeypatch.setattr(download, "RANGE", 30_000)
    monkeypatch.setattr(download, "_LEAST_RANGE", 1000)
    monkeypatch.setattr(attempts, "_PAUSE_S", 0.01)


def fetched(remote: Remote, folder: Path) -> bytes:
    """What the file is after it was downloaded, range by range."""
    with (folder / "part").open("w+b", buffering=0) as file:
        Transfer(remote, NAME, RECORD, file.fileno()).run()
        return (folder / "part").read_bytes()


def remote_at(server: Server, s3: bool, **options: Any) -> Remote:
    if s3:
        signed = {"endpoint_url": server.url, "key": "me", "secret": "sesame"}
        return Remote("s3://bucket/store", signed | options, 20.0)
    return Remote(f"{server.url}/bucket/store", options, 6.0)


@pytest.mark.parametrize("s3", [False, True])
def test_the_plain_transport_is_used(server: Server, counts: Counts, tmp_path: Path, s3: bool) -> None:
    """HTTP and S3 need no request by fsspec's package, for small files and for large ones. Headers of `storage_options`
    and the query of a URL come with each request."""
    seen: list[tuple[str, str | None]] = []
    server.faults.append(lambda request: bool(seen.append((request.path, request.headers.get("X-One")))))
    remote = remote_at(server, s3)
    if not s3:
        remote = Remote(f"{server.url}/bucket/store?token=a%2Fb", {"headers": {"X-One": "1"}}, 6.0)
    assert remote.read(NAME, lambda data: None) == DATA
    assert fetched(remote, tmp_path) == DATA
    assert (counts.package, counts.plain, len(server.log)) == (0, 11, 11)
    assert s3 or set(seen) == {("/bucket/store/folder/a%20b.npy?token=a%2Fb", "1")}


def redirects(request: Request) -> bool:
    if "moved" in request.name:
        return False
    state = request.server_state
    state.files["moved"] = state.files[request.name]
    request.reply(302, b"", Location=f"{state.url}/moved")
    return True


def compresses(request: Request) -> bool:
    request.reply(200, b"\x1f\x8b nonsense", Content_Encoding="unknown")
    return True


@pytest.mark.parametrize("how", ["redirect", "password", "option", "signed", "no ranges"])
def test_what_is_not_plain_goes_to_the_package(server: Server, counts: Counts, tmp_path: Path, how: str) -> None:
    """Redirects, a user in the URL, options other than headers, servers that refuse signed URLs or know no ranges: the
    bytes are right, and the plain transport is not tried for ever."""
    remote = remote_at(server, how == "signed")
    if how == "redirect":
        server.faults.append(redirects)
    elif how == "password":
        expected = "Basic " + base64.b64encode(b"me:sesame").decode()
        server.faults.append(lambda request: request.headers.get("Authorization") != expected and status(401)(request))
        remote = Remote(f"{server.url.replace('://', '://me:sesame@')}/bucket/store", {}, 6.0)
    elif how == "option":
        remote = remote_at(server, False, client_kwargs={"headers": {"X-One": "1"}})
    elif how == "signed":
        server.faults.append(lambda request: "X-Amz-Signature" in request.path and status(403)(request))
    else:
        server.ranges = False
    for _ in range(4):
        assert fetched(remote, tmp_path) == DATA
    assert counts.package > 0
    assert counts.plain <= (0 if how in ("password", "option") else 3)


@pytest.mark.parametrize(
    ("fault", "s3"),
    [(status(500), False), (truncates, True), (shortens, False), (stalls, False), (stalls, True), (compresses, True)],
    ids=["500", "truncates by S3", "shortens", "stalls", "stalls by S3", "compresses by S3"],
)
def test_faults_that_pass(
    server: Server, counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, s3: bool
) -> None:
    """Whatever fails on the way, the file arrives; and after it, the plain transport is used again."""
    monkeypatch.setattr(transfer, "_STALL_S", 1.0)
    remote = remote_at(server, s3)
    server.faults.append(on(NAME, fault, 2))
    assert fetched(remote, tmp_path) == DATA
    package = counts.package
    assert fetched(remote, tmp_path) == DATA
    assert counts.package == package


def signer(path: str) -> str | None:
    """Whose key signed a request."""
    query = parse_qs(urlsplit(path).query)
    return query["X-Amz-Credential"][0].partition("/")[0] if "X-Amz-Credential" in query else None


CREDENTIALS: dict[str, tuple[dict[str, Any], dict[str, str], str | None]] = {
    "profile": ({"profile": "other"}, {}, "other-key"),
    "anonymous": ({"anon": True}, {}, None),
    "role of the machine": (
        {},
        {"AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "{url}/role"},
        "role-key",
    ),
}
ROLE = {
    "AccessKeyId": "role-key",
    "SecretAccessKey": "sesame-role",
    "Token": "sesame-token",
    "Expiration": "2100-01-01T00:00:00Z",
}


def gives_roles(request: Request) -> bool:
    """The keys of a role, as a container gets them."""
    if request.name != "role":
        return False
    request.reply(200, json.dumps(ROLE).encode(), Content_Type="application/json")
    return True


@pytest.mark.parametrize("how", CREDENTIALS)
def test_credentials(server: Server, counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Credentials come from where s3fs takes them; nobody else's are used, and none are in a message."""
    options, environment, key = CREDENTIALS[how]
    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        monkeypatch.delenv(name)
    (tmp_path / ".aws").mkdir()
    keys = "[{0}]\naws_access_key_id={0}-key\naws_secret_access_key=sesame\n"
    (tmp_path / ".aws" / "credentials").write_text(keys.format("default") + keys.format("other"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(url=server.url))
    seen: list[str | None] = []
    server.faults += [gives_roles, lambda request: bool(seen.append(signer(request.path)))]
    remote = Remote("s3://bucket/store", {"endpoint_url": server.url, **options}, 20.0)
    assert fetched(remote, tmp_path) == DATA
    assert set(seen) == {key}
    assert counts.package == 0
    server.faults.append(on(NAME, status(500)))
    remote.timeout = 0.1
    with pytest.raises(StoreError) as raised:
        fetched(remote, tmp_path)
    assert not any(word in str(raised.value) for word in ("sesame", "-key", "X-Amz"))


def test_a_wrong_region(server: Server, counts: Counts, tmp_path: Path) -> None:
    """A bucket of another region than the configured one is read by the package, which goes where the server says."""

    def is_elsewhere(request: Request) -> bool:
        signed = request.headers.get("Authorization", "") + unquote(request.path)
        if "/eu-west-1/s3/" in signed:
            return False
        body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"
        request.reply(400, body, Content_Type="application/xml", x_amz_bucket_region="eu-west-1")
        return True

    server.faults.append(is_elsewhere)
    remote = remote_at(server, True, client_kwargs={"region_name": "us-east-1"})
    for _ in range(2):
        assert fetched(remote, tmp_path) == DATA
    assert counts.package > 0
    assert counts.plain <= 3


def test_a_proxy(server: Server, counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment names a proxy, S3 is left to the package, which asks it; HTTP never did."""
    monkeypatch.setenv("HTTP_PROXY", server.url)
    assert fetched(remote_at(server, True), tmp_path) == DATA
    assert counts.plain == 0
    assert fetched(remote_at(server, False), tmp_path) == DATA
    assert counts.plain == 10


def test_connections_are_kept_and_closed(server: Server) -> None:
    """One connection serves request after request, also where the server has closed it meanwhile; none is left."""
    connections: set[tuple[str, int]] = set()

    def closes_the_third(request: Request) -> bool:
        connections.add(request.client_address)
        request.close_connection = len(server.log) == 3
        return False

    server.faults.append(closes_the_third)
    remote, before = Remote(f"{server.url}/bucket/store", {}, 6.0), descriptors()
    for _ in range(6):
        assert remote.read(NAME, lambda data: None) == DATA
    assert len(connections) == 2
    del remote
    gc.collect()
    assert descriptors() <= before + 2, "the server's own end may take a moment"


def test_one_request_until_ranges_are_known(server: Server, tmp_path: Path) -> None:
    """A server that answers whole files is not asked for several at once, and once for each file from then on."""
    server.ranges = False
    remote, buffers = Remote(f"{server.url}/bucket/store", {}, 6.0), list[bytearray]()
    with (tmp_path / "part").open("w+b", buffering=0) as file:
        transfer = Transfer(remote, NAME, RECORD, file.fileno())
        taken = transfer.take()
        assert not transfer.has_range()
        transfer.fetch(*taken, buffers)
        assert (transfer.is_whole, transfer.has_range()) == (True, False)
    server.log.clear()
    assert fetched(remote, tmp_path) == DATA
    assert len(server.log) == 1


def test_what_is_left_is_the_beginning(server: Server, tmp_path: Path) -> None:
    """Whatever order the ranges come in, the file has its first bytes and no hole; the next download continues it."""
    remote, buffers = Remote(f"{server.url}/bucket/store", {}, 6.0), list[bytearray]()
    with (tmp_path / "part").open("w+b", buffering=0) as file:
        transfer = Transfer(remote, NAME, RECORD, file.fileno())
        transfer.fetch(*transfer.take(), buffers)  # from now on, ranges are known
        assert transfer.has_range()
        taken = [transfer.take() for _ in range(4)]
        for start, stop in (taken[2], taken[0], taken[3]):
            transfer.fetch(start, stop, buffers)
        assert (tmp_path / "part").read_bytes() == DATA[:60_000]
        server.log.clear()
        Transfer(remote, NAME, RECORD, file.fileno()).run()
        assert (tmp_path / "part").read_bytes() == DATA
        assert len(server.log) == 8
