"""What was given for one host, such as headers with a token, goes to no other: not by a redirect, not by a listing."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from store_server import Request, Server, serving

import rawpack_packer
from rawpack.errors import UsageError
from rawpack.remote.transfer import Remote
from rawpack.remote.url import filesystem, share_options
from rawpack_packer.sources.table.named_files import named_files
from rawpack_packer.sources.table.remote_files import RemoteArchive, Spool

pytest.importorskip("aiohttp")
SECRETS = {
    "Authorization": "Bearer s3cret-1", "X-Api-Key": "s3cret-2", "Cookie": "id=s3cret-3", "Private-Token": "s3cret-4",
}  # fmt: skip
DATA = b"0123456789"


@pytest.fixture(params=["Location", "URI"])
def hosts(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Server, list[dict[str, str]]]]:
    """A server that redirects to another one, at another port, by either header that aiohttp follows, and the headers
    that the other one is sent."""
    sent, header = list[dict[str, str]](), str(request.param)

    def notes(request: Request) -> bool:
        sent.append({name.lower(): value for name, value in request.headers.items()})
        return False

    with serving() as here, serving() as there:

        def redirects(request: Request) -> bool:
            request.reply(302, **{header: f"{there.url}{request.path}"})
            return True

        here.faults.append(redirects)
        there.faults.append(notes)
        there.put_folder("a", {"file.bin": DATA})
        yield here, there, sent


Hosts = tuple[Server, Server, list[dict[str, str]]]


def test_headers_do_not_follow_a_redirect(hosts: Hosts) -> None:
    """Neither those that are known to be secret nor any other; the file is read all the same."""
    here, _, sent = hosts
    remote = Remote(f"{here.url}/a", {"headers": SECRETS}, 4)
    assert remote.read("file.bin", len) == DATA
    assert remote.about("file.bin")[0] == len(DATA)
    into = memoryview(bytearray(4))
    assert remote.read_range("file.bin", 3, into, lambda: True, lambda *_: None, len(DATA)) == 4
    assert bytes(into) == DATA[3:7]
    assert len(sent) >= 3
    assert "s3cret" not in repr(sent)


@pytest.mark.filterwarnings("ignore:.* deprecated and will be removed in:DeprecationWarning")
@pytest.mark.parametrize("of_client", [True, False])
@pytest.mark.parametrize("name", ["headers", "cookies", "auth"])
def test_nor_does_what_is_given_to_aiohttp_itself(name: str, of_client: bool, hosts: Hosts) -> None:
    import aiohttp

    given = {"headers": SECRETS, "cookies": {"id": "s3cret-5"}, "auth": aiohttp.BasicAuth("me", "s3cret-7")}
    options: dict[str, Any] = {name: given[name]}
    here, _, sent = hosts
    system, path = filesystem(f"{here.url}/a/file.bin", {"client_kwargs": options} if of_client else options)
    with suppress(PermissionError):  # it says that it would go to another host
        assert system.cat_file(path) == DATA
    assert not any({"authorization", "cookie", *(name.lower() for name in SECRETS)} & {*one} for one in sent)


def test_a_user_of_a_url_does_not_follow_a_redirect(hosts: Hosts) -> None:
    here, _, sent = hosts
    url = here.url.replace("http://", "http://me:s3cret@")
    assert Remote(f"{url}/a", {}, 4).read("file.bin", len) == DATA
    assert sent
    assert "authorization" not in sent[0]


def test_headers_stay_where_a_host_redirects_to_itself(hosts: Hosts) -> None:
    _, there, sent = hosts

    def redirects(request: Request) -> bool:
        if not request.path.startswith("/old"):
            return False
        request.reply(302, Location="/a/file.bin")
        return True

    there.faults.insert(0, redirects)
    assert Remote(f"{there.url}/old", {"headers": SECRETS}, 4).read("file.bin", len) == DATA
    assert sent[-1]["x-api-key"] == SECRETS["X-Api-Key"]


def test_a_listing_names_no_other_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """fsspec takes links from HTTPS to HTTP for links of the same host."""

    class Listed:
        def glob(self, path: str) -> list[str]:
            return ["http://127.0.0.1:9/a/x.tar"]

        def unstrip_protocol(self, name: str) -> str:
            return name

    monkeypatch.setattr(f"{named_files.__module__}.filesystem", lambda url, options: (Listed(), url))
    with pytest.raises(UsageError, match=r"its listing names http://127\.0\.0\.1:9/a/x\.tar, which is on another host"):
        named_files("https://127.0.0.1:9/a/*.tar", Spool(tmp_path, 1 << 20, {"headers": SECRETS}))


def test_a_listing_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever a server has to list."""
    ended = threading.Event()
    endless = SimpleNamespace(glob=lambda path: ended.wait(60))
    monkeypatch.setattr(f"{named_files.__module__}.filesystem", lambda url, options: (endless, url))
    monkeypatch.setattr(f"{named_files.__module__}._LISTING_S", 0.01)
    with pytest.raises(UsageError, match=r"cannot be listed \(TimeoutError\): name the files by a range"):
        named_files("http://127.0.0.1:9/a/*.tar", Spool(tmp_path, 1 << 20))
    ended.set()


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("https://one/a.tar", "https://two/b"),
        ("https://one/a.tar", "s3://bucket/b"),
        ("https://me:s3cret@one/a.tar", "http://one/b"),
        ("https://host/a.tar", "https://host:8443/b"),
    ],
)
def test_options_are_for_one_host(source: str, destination: str) -> None:
    """Nothing is sent: what was meant for one of the two is a question. Buckets of one protocol are of one account."""
    said = f"those of {source.replace('me:s3cret@', '')} and {destination}"
    with pytest.raises(UsageError, match="would be sent to two hosts, " + re.escape(said)):
        rawpack_packer.pack(source, destination, storage_options={"headers": SECRETS})
    assert share_options("s3://one/a.tar", "s3://two/b")


@pytest.mark.parametrize("last", ["..", ".", "", ".bashrc", "a/../..", "%2e%2e"])
def test_the_end_of_a_url_leads_nowhere(last: str, tmp_path: Path) -> None:
    """A fetched file has a plain name in a folder of its own."""
    spool = Spool(tmp_path / "spool", 1 << 20)
    path = spool.path(RemoteArchive(f"https://host/a/{last}", 10, "v1"))
    assert path.parent.parent == tmp_path / "spool"
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", path.name)
