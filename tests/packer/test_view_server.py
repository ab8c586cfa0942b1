"""`rawpack view`: who is answered, and that answers are what is stored. Oracles: numpy, Pillow, and the batches of a
loop that reads all of them."""

from __future__ import annotations

import gc
import http.client
import io
import json
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from folders import files_of, overwrite
from pictures import picture, save
from PIL import Image
from reading import wait_until
from running import Packed, pack, run_here, started
from store_server import serving
from videos import encode, looked_through_here  # noqa: F401 - a fixture

import rawpack
from rawpack import Reader, UsageError, look
from rawpack.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop, ToCHW
from rawpack_packer import api
from rawpack_packer.view import server, training


class Client:
    """Asks a page's server as a browser does that was let in."""

    def __init__(self, url: str) -> None:
        self.url = urlsplit(url)
        self.port = int(self.url.port or 0)
        self.token = parse_qs(self.url.query)["token"][0]
        self.cookie = f"rawpack-{self.port}={self.token}"

    def get(self, path: str, *, method: str = "GET", cookie: str | None = "", **headers: str) -> Any:
        """The answer, with its body in `data`."""
        connection = http.client.HTTPConnection(self.url.hostname or "", self.port, timeout=60)
        if cookie is not None:
            headers["Cookie"] = cookie or self.cookie
        connection.request(method, path, headers=headers)
        answer: Any = connection.getresponse()
        answer.body = answer.read()
        connection.close()
        return answer

    def json(self, path: str, **words: object) -> Any:
        answer = self.get(f"{path}?{urlencode(words)}")
        assert answer.status == 200, answer.body
        assert answer.headers["Content-Type"] == "application/json"
        return json.loads(answer.body)

    def refused(self, path: str, **words: object) -> tuple[int, str]:
        answer = self.get(f"{path}?{urlencode(words)}")
        assert answer.headers["Content-Type"].startswith("text/plain")
        return answer.status, answer.body.decode()

    def picture(self, path: str, **words: object) -> np.ndarray[Any, Any]:
        answer = self.get(f"{path}?{urlencode(words)}")
        assert answer.status == 200, answer.body
        return np.asarray(Image.open(io.BytesIO(answer.body)))


@contextmanager
def served(store: Path) -> Iterator[tuple[server.Viewer, Client]]:
    """The server of a page, whose connections can be counted."""
    page = api.viewer([store])
    thread = threading.Thread(target=page.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield page, Client(page.url)
    finally:
        page.shutdown()
        page.server_close()
        thread.join()


def asks(client: Client, path: str = "/api/stores") -> bytes:
    """A question as a browser sends it."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nCookie: {client.cookie}\r\n\r\n".encode()


@pytest.fixture(scope="module")
def several(packed: Packed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, list[Path]]]:
    """A server of the same images raw, as JPEG, and compressed."""
    stores = [packed("memmap", "--size", 48), packed("lmdb", "--size", 48), packed("hdf5-gzip", "--size", 48)]
    page = rawpack.view(stores)
    yield Client(page.url), stores
    page.close()


View = Callable[..., Client]


@pytest.fixture
def view() -> Iterator[View]:
    """`view(store)`: asks the page of a store, or of some, which is served until the test ends."""
    pages: list[Any] = []

    def serve(stores: Any, **options: Any) -> Client:
        pages.append(rawpack.view(stores, **options))
        return Client(pages[-1].url)

    yield serve
    for page in pages:
        page.close()


@pytest.fixture
def client(several: tuple[Client, list[Path]]) -> Client:
    return several[0]


# ---------------------------------------------------------------------------------------------- who is answered


def test_nobody_is_answered_without_the_token(packed: Packed, client: Client, view: View) -> None:
    """Cookies of other servers on this machine, whatever they look like, do not matter; those of other viewers neither
    open a door nor shut one."""
    for path in ("/", "/view.js", "/api/stores", "/image?row=0"):
        for cookie in (None, f"rawpack-{client.port}=guess", f"rawpack-1={client.token}"):
            assert client.get(path, cookie=cookie).status == 403
    assert client.get("/?token=guess", cookie=None).status == 403
    second = view(packed("memmap", "--size", 48))
    assert second.get("/api/stores", cookie=client.cookie).status == 403
    for other in ('prefs={"a":1, "b":2}', "weird[a]=1", "novalue", "=x", 'q="', second.cookie):
        assert client.get("/api/stores", cookie=f"{other}; {client.cookie}").status == 200, other


def test_the_token_is_traded_for_a_cookie(client: Client) -> None:
    """It does not stay in the address, scripts cannot read it, and other sites' pages do not send it."""
    answer = client.get(f"/?token={client.token}", cookie=None)
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie, *rules = answer.headers["Set-Cookie"].split("; ")
    assert cookie == f"rawpack-{client.port}={client.token}"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {*rules}
    assert client.get("/", cookie=cookie).status == 200


def test_only_names_of_this_machine_are_answered(client: Client) -> None:
    """A page elsewhere can point a name of its own at 127.0.0.1, and would then be of the same origin."""
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "evil.example@127.0.0.1", "127.0.0.1/"):
        assert client.get("/api/stores", Host=f"{host}:{client.port}").status == 403, host
    assert client.get("/api/stores", Host=f"127.0.0.1:{client.port + 1}").status == 403
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert client.get("/api/stores", Host=f"{host}:{client.port}").status == 200


def test_every_answer_forbids_frames_and_foreign_scripts(client: Client) -> None:
    """Whatever is asked; and it only reads."""
    paths = ("/", "/view.js", "/api/stores", "/image?row=0", "/nothing", "/api/rows?where=(")
    asked = [(path, "GET") for path in paths]
    asked += [("/api/stores", method) for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")]
    for path, method in asked:
        answer = client.get(path, method=method)
        rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split(";"))
        assert (rules["default-src"], rules["script-src"]) == ("'none'", "'self'")
        assert (rules["frame-ancestors"], rules["form-action"]) == ("'none'", "'none'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        if method != "GET":
            assert (answer.status, answer.headers["Connection"]) == (501, "close")
            assert b"samples" not in answer.body


def test_no_path_leads_to_a_file(client: Client) -> None:
    for path in ("/../server.py", "/view.css/../server.py", "//etc/passwd", "/%2e%2e/etc/passwd", "/index.html"):
        assert client.get(path).status in (400, 404)
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall(b"GET http://[x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    ("path", "words", "why"),
    [
        ("/image", {"row": -1}, "from 0 to 74"),
        ("/image", {"row": 75}, "from 0 to 74"),
        ("/image", {"row": "0x1"}, "whole number"),
        ("/image", {"row": 0, "side": 100_000}, "from 0 to 1,024"),
        ("/image", {"row": 0, "field": "../key"}, "no image"),
        ("/mask", {"row": 0, "field": "image"}, "no mask"),
        ("/api/rows", {"where": "__import__('os')"}, "where="),
        ("/api/rows", {"sort": "key"}, "no number field"),
        ("/api/batch", {"steps": "open('x')"}, "transform=\"open('x')\": there is no step open; there are"),
        ("/api/batch", {"size": 4096, "batch": 64}, "64 samples would be 3.0 GiB"),
        ("/api/batch", {"steps": "Resize((65000, 65000)), CenterCrop(8)", "batch": 1}, "1 sample would be 11.8 GiB"),
        ("/api/clips", {"frames": 2}, "video"),
    ],
)
def test_what_cannot_be_is_refused_in_words(client: Client, path: str, words: dict[str, object], why: str) -> None:
    status, said = client.refused(path, **words)
    assert (status, why in said) == (400, True), said


# ---------------------------------------------------------------------------------------------- what is answered


def test_pictures_are_the_stored_pixels(several: tuple[Client, list[Path]]) -> None:
    """Whole, and smaller as the means of blocks; pictures do not change, and lists may."""
    client, stores = several
    for store, row in ((0, 0), (1, 33), (2, 74)):
        pixels = Reader(stores[store])[row]["image"]
        np.testing.assert_array_equal(client.picture("/image", store=store, row=row), pixels)
        small = client.picture("/image", store=store, row=row, side=24)
        assert small.shape == (24, 24, 3)
        assert np.abs(np.float64(pixels).reshape(24, 2, 24, 2, 3).mean(axis=(1, 3)) - small).mean() < 6
    assert client.get("/image?row=0").headers["Cache-Control"] == "private, max-age=31536000, immutable"
    assert client.get("/api/stores").headers["Cache-Control"] == "no-store"


def test_rows_are_filtered_and_sorted(several: tuple[Client, list[Path]]) -> None:
    client, stores = several
    reader = Reader(stores[0])
    keys, labels = reader.column("key"), reader.column("label")

    def rows(**words: object) -> list[int]:
        found = client.json("/api/rows", count=500, **words)
        assert found["count"] == len(found["tiles"])
        assert [keys[one["row"]] for one in found["tiles"]] == [one["key"] for one in found["tiles"]]
        return [one["row"] for one in found["tiles"]]

    assert rows() == list(range(75))
    assert rows(where="label == 1") == [k for k in range(75) if labels[k] == 1]
    part = keys[40][-7:-2].upper()
    assert rows(key=part) == [k for k in range(75) if part.lower() in keys[k].lower()]
    assert rows(sort="label", descending=1) == sorted(range(75), key=lambda k: labels[k])[::-1]
    one, other = rows(sort="random", seed=1), rows(sort="random", seed=2)
    assert sorted(one) == sorted(other) == list(range(75))
    assert one != other
    assert one == rows(sort="random", seed=1)
    page = client.json("/api/rows", start=70, count=10)
    assert (page["count"], [tile["row"] for tile in page["tiles"]]) == (75, [70, 71, 72, 73, 74])
    names = [name.replace("\n", "\\n") for name in reader.classes or ()]
    assert [tile["label"] for tile in page["tiles"]] == [names[labels[k]] for k in range(70, 75)]


def test_a_batch_is_what_the_loop_gets(several: tuple[Client, list[Path]]) -> None:
    """Against a loop that reads everything from the first epoch on; the printed lines give the same arrays."""
    client, stores = several
    steps = "RandomResizedCrop(32), RandomHorizontalFlip(), Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)), ToCHW()"
    transform = [RandomResizedCrop(32), RandomHorizontalFlip(), Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)), ToCHW()]
    loop = {"shuffle": True, "seed": 5, "ranks": (1, 2), "workers": 0}
    batches = Reader(stores[0]).batches(8, transform=transform, **loop)  # type: ignore[arg-type]
    plain = Reader(stores[0]).batches(8, transform=transform[:2], **loop)  # type: ignore[arg-type]
    for _ in range(3):
        epoch = [*zip(batches, plain, strict=True)]
    wanted, before = epoch[3][0], epoch[3][1]["image"]
    asked = {"steps": steps, "batch": 8, "shuffle": 1, "seed": 5, "epoch": 2, "number": 3, "rank": 1, "world": 2}
    found = client.json("/api/batch", **asked)
    assert [one["row"] for one in found["samples"]] == wanted["index"].tolist()
    for k in (0, 7):
        shown = client.picture("/batch-image", **asked, k=k)
        np.testing.assert_array_equal(shown, before[k])
    assert found["shown"] == "image shown without Normalize"
    mean = ", ".join(f"{one:.3g}" for one in wanted["image"].mean((0, 2, 3), np.float64))
    assert found["fields"]["image"].startswith(f"float32 (8, 3, 32, 32), mean {mean}; std ")
    beyond = client.json("/api/batch", **asked | {"number": 1000})
    assert (beyond["batches"], "the last one is number 4" in beyond["beyond"]) == (found["batches"], True)
    names: dict[str, Any] = {}
    exec(found["lines"], names)
    np.testing.assert_array_equal(names["batch"]["image"], wanted["image"])
    np.testing.assert_array_equal(names["batch"]["label"], wanted["label"])


def test_two_stores_side_by_side(several: tuple[Client, list[Path]]) -> None:
    client, stores = several
    raw, jpeg = (Reader(store)[5]["image"].astype(np.float64) for store in stores[:2])
    pair = client.json("/api/pair", store=0, other=1, row=5)
    assert pair["row"] == 5
    assert pair["psnr"] == pytest.approx(10 * np.log10(255**2 / np.mean((raw - jpeg) ** 2)))
    assert pair["bytes"][0] == raw.size > pair["bytes"][1] > 0
    shown = client.picture("/difference", store=0, other=1, row=5, there=5, gain=4)
    np.testing.assert_array_equal(shown, np.clip(128 + (jpeg - raw) * 4, 0, 255).astype(np.uint8))
    assert client.json("/api/pair", store=0, other=2, row=5)["psnr"] is None


def test_samples_of_another_order_are_found_by_their_keys(packed: Packed, tmp_path: Path, view: View) -> None:
    store = packed("memmap", "--size", 48)
    rawpack.subset(store, tmp_path / "some", rows=[3, 41, 60])
    client = view([store, tmp_path / "some"])
    keys = Reader(tmp_path / "some").column("key")
    for row in (60, 3):
        there = client.json("/api/pair", store=0, other=1, row=row)["row"]
        assert keys[there] == Reader(store).column("key")[row]
        assert client.json("/api/same", store=0, other=1, row=row) == there
    assert client.json("/api/pair", store=0, other=1, row=4)["row"] is None


def test_boxes_masks_and_several_images(tmp_path: Path, view: View) -> None:
    mask = np.zeros((40, 60), np.uint8)
    mask[10:20, 5:30], mask[30:] = 2, 255
    depth = np.arange(300, dtype=np.uint16).reshape(15, 20, 1) * 100
    boxes = np.array([[5, 10, 30, 20, 0], [1, 2, 3, 4, 1]], np.float32)
    scene = {"seg": mask, "depth": depth}
    scenes = [scene | {"image": picture(40, 60, i), "boxes": boxes[: 1 + i % 2]} for i in range(3)]
    fields = {"seg": "mask", "depth": "image", "boxes": "xyxy"}
    rawpack.pack(scenes, tmp_path / "store", fields=fields, size="keep", workers=0)
    client = view(tmp_path / "store")
    sample = client.json("/api/sample", row=1)
    sizes = {one["name"]: (one["height"], one["width"]) for one in sample["images"]}
    assert sizes == {"image": (40, 60), "depth": (15, 20)}
    assert sample["layers"][0]["items"] == [[5, 10, 30, 20], [1, 2, 3, 4]]
    assert sample["masks"] == {"seg": ["image"]}
    layer = client.picture("/mask", row=1, field="seg")
    assert layer.shape == (40, 60, 4)
    assert ((layer[..., 3] > 0) == (mask > 0)).all()
    assert (layer[35, 5, :3] == 128).all()
    depth = client.picture("/image", row=1, field="depth")
    np.testing.assert_allclose(depth, np.arange(300).reshape(15, 20) * 255 // 299, atol=1)
    tiles = client.json("/api/rows")["tiles"]
    assert [len(one["layers"][0]["items"]) for one in tiles] == [1, 2, 1]
    assert tiles[0]["shape"] == [40, 60]


# ---------------------------------------------------------------------------------------------- trouble


def test_a_damaged_sample_is_an_answer_in_words(tmp_path: Path, view: View) -> None:
    """Others are shown; hostile names stay text. Raw pixels can be read whatever they are: the checksum tells."""
    names = ["<img src=x onerror=alert(1)>\u202e.jpg", "other.jpg"]
    for k, name in enumerate(names):
        save(tmp_path / "in" / "<script>" / name, picture(64, 64, k))
    store = pack(tmp_path / "in", tmp_path / "store", "--format", "lmdb")
    overwrite(look(Reader(store)).where_is(1)["image"])
    client = view(store)
    assert [tile["key"] for tile in client.json("/api/rows")["tiles"]] == [f"<script>/{name}" for name in names]
    assert client.get("/image?row=0").status == 200
    answer = client.get("/image?row=1&side=64")
    assert (answer.status, answer.headers["Cache-Control"]) == (422, "no-store")
    assert b"sample" in answer.body or b"row 1" in answer.body
    assert client.refused("/api/sample", row=1)[0] == 422
    rawpack.pack({"image": np.full((3, 128, 128, 3), 9, np.uint8)}, tmp_path / "raw", size="keep", workers=0)
    reader = Reader(tmp_path / "raw")
    overwrite(look(reader).where_is(2)["image"], 7)
    client = view([reader, reader.select([2, 0])])
    assert [client.json("/api/sample", row=row)["damaged"] for row in range(3)] == [[], [], ["image"]]
    assert [client.json("/api/sample", store=1, row=row)["damaged"] for row in range(2)] == [["image"], []]


def test_a_hundred_requests_at_once(several: tuple[Client, list[Path]]) -> None:
    client, stores = several
    wanted = Reader(stores[0])

    def ask(k: int) -> bool:
        return np.array_equal(client.picture("/image", row=k % 75), wanted[k % 75]["image"])

    with ThreadPoolExecutor(100) as pool:
        assert all(pool.map(ask, range(100)))


def test_a_client_that_stops_reading_keeps_nobody_waiting(tmp_path: Path, view: View) -> None:
    """Neither one that sends half a request, nor many that take no byte of large answers: 5 MB, also as a PNG, are more
    than sockets keep for a client."""
    noise = np.random.default_rng(0).integers(0, 255, (1, 1300, 1300, 3), dtype=np.uint8)
    rawpack.pack({"image": noise}, tmp_path / "large", size="keep", workers=0)
    client = view(tmp_path / "large")
    stuck = []
    for k in range(7):
        connection = socket.create_connection(("127.0.0.1", client.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        text = f"GET /image?row=0 HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nCookie: {client.cookie}\r\n"
        connection.sendall((text + "\r\n" * (k < 5)).encode())
        stuck.append(connection)
    assert client.json("/api/stores")[0]["samples"] == 1
    assert client.picture("/image", row=0, side=64).shape == (64, 64, 3)
    for connection in stuck:
        connection.close()


def test_a_batch_that_is_being_made_keeps_nobody_waiting(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do many who ask for it: all other questions are answered, and so are pictures of batches that were made."""
    read, go_on = training._read, threading.Event()
    known = client.picture("/batch-image", batch=2, seed=77, k=1)

    def slowly(*args: Any) -> Any:
        assert go_on.wait(100)
        return read(*args)

    monkeypatch.setattr(training, "_read", slowly)
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(client.json, "/api/batch", batch=3, seed=k // 6) for k in range(12)]
        assert client.json("/api/rows")["count"] == 75
        np.testing.assert_array_equal(client.picture("/batch-image", batch=2, seed=77, k=1), known)
        assert not any(one.done() for one in asked)
        go_on.set()
        assert all(len(one.result()["samples"]) == 3 for one in asked)


def test_who_asks_nothing_makes_room(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections without a question, or with half of one, cannot keep others from being answered: the oldest gives way
    to each new one. One that is being answered, however long that takes, keeps its place."""
    monkeypatch.setattr(server, "_CONNECTIONS", 4)
    monkeypatch.setattr(server, "_ARRIVING_S", 0.0)
    with served(packed("memmap", "--size", 48)) as (page, client):
        answer, go_on = page.answers.answer, threading.Event()

        def slowly(path: str, words: dict[str, str]) -> Any:
            assert path != "/api/rows" or go_on.wait(100)
            return answer(path, words)

        monkeypatch.setattr(page.answers, "answer", slowly)
        working = socket.create_connection(("127.0.0.1", client.port))
        working.sendall(asks(client, "/api/rows"))
        wait_until(lambda: len(page._open) == 1 and not page._idle, "the question arrives")
        idle = []
        for k in range(9):
            idle.append(socket.create_connection(("127.0.0.1", client.port)))
            idle[-1].sendall(asks(client)[: 30 * (k % 2)])
        assert client.get("/api/stores").status == 200
        assert [one.recv(1) for one in idle[:6]] == [b""] * 6
        go_on.set()
        assert working.recv(15) == b"HTTP/1.1 200 OK"
        for connection in (working, *idle):
            connection.close()


def test_a_store_that_changes_says_so(images: Path, tmp_path: Path, view: View) -> None:
    """What was opened is shown as it was."""
    store = pack(images, tmp_path / "store", "--size", 24)
    client = view(store)
    before = client.picture("/image", row=74)
    assert client.json("/api/changed") == ""
    save(tmp_path / "more" / "dogs" / "new.png", picture(24, 24, 1))
    assert run_here("append", "--quiet", tmp_path / "more", store).code == 0
    assert "has changed since it was opened" in client.json("/api/changed")
    assert client.json("/api/rows")["count"] == 75
    shutil.rmtree(store)
    assert f"{store} was removed" in client.json("/api/changed")
    np.testing.assert_array_equal(client.picture("/image", row=74), before)


def test_the_command_ends_with_ctrl_c(packed: Packed) -> None:
    """It prints the address that it serves, and the line that leads there from another machine."""
    host = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"  # others have no further address
    options = ("--no-browser", "--host", host, "--at", "#screen=training&t-batch=8")
    with started("view", *options, packed("memmap", "--size", 48)) as run:
        assert run.stdout is not None
        url, _, state = run.stdout.readline().strip().partition("#")
        assert state == "screen=training&t-batch=8"
        client = Client(url)
        assert client.json("/api/stores")[0]["samples"] == 75
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, ""), err
    assert f"ssh -N -L {client.port}:{host}:{client.port} " in err
    assert "Traceback" not in err


def test_a_store_behind_a_url(packed: Packed, tmp_path: Path, view: View) -> None:
    """It comes shard by shard through the cache; the page says so."""
    store = packed("memmap", "--size", 48)
    with serving() as server:
        server.put_folder("store", files_of(store))
        client = view(f"{server.url}/store", cache=tmp_path / "cache")
        (about,) = client.json("/api/stores")
        assert (about["remote"], about["path"]) == (True, f"{server.url}/store")
        assert not any("shard" in path for _, path in server.log)
        np.testing.assert_array_equal(client.picture("/image", row=70), Reader(store)[70]["image"])
        assert any("shard" in path for _, path in server.log)
        assert client.json("/api/found") == {"groups": [], "leaks": [], "extremes": []}


def test_duplicates_leaks_and_extremes(tmp_path: Path, view: View) -> None:
    """Of a set whose val, a store of its own, has an image of train, which has the darkest one twice."""
    images = {"train/a/dark": picture(48, 48, 0) // 4, "train/a/again": picture(48, 48, 0) // 4}
    images |= {f"train/a/{k}": picture(48, 48, k) for k in range(1, 9)} | {"val/a/leak": picture(48, 48, 5)}
    for name, image in images.items():
        save(tmp_path / "in" / f"{name}.png", image)
    pack(tmp_path / "in", tmp_path / "sets", "--size", 48, "--curate", "--splits", "train,val")
    reader = Reader(tmp_path / "sets", split="train")
    client = view(tmp_path / "sets")
    found, stores = client.json("/api/found"), client.json("/api/stores")
    assert [(one["name"], one["samples"]) for one in stores] == [("train", 10), ("val", 1)]
    assert {"sharpness", "brightness"} <= {*stores[0]["numbers"]} <= {*reader.fields} - {"phash", "one_color"}
    assert [[tile["key"] for tile in group] for group in found["groups"]] == [["a/again.png", "a/dark.png"]]
    assert [(leak["tile"]["key"], leak["split"], leak["other"]) for leak in found["leaks"]] == [("a/5.png", "val", 0)]
    darkest = next(one["tiles"] for one in found["extremes"] if one["title"] == "Darkest")
    brightness = look(reader).curation["brightness"]
    assert [tile["value"] for tile in darkest] == [f"brightness {brightness[tile['row']]}" for tile in darkest]
    assert {tile["key"] for tile in darkest[:2]} == {"a/again.png", "a/dark.png"}


def test_polygons_and_keypoints(tmp_path: Path, view: View) -> None:
    save(tmp_path / "images" / "0.png", picture(40, 60, 0))
    outline, points = [5.0, 5.0, 30.0, 5.0, 30.0, 20.0], [10, 10, 2, 0, 0, 0]
    one = {"id": 1, "image_id": 1, "category_id": 7, "bbox": [5, 5, 25, 15], "iscrowd": 0, "area": 100}
    coco = {
        "images": [{"id": 1, "file_name": "0.png", "height": 40, "width": 60}],
        "categories": [{"id": 3, "name": "ant"}, {"id": 7, "name": "cat", "keypoints": ["nose", "tail"]}],
        "annotations": [one | {"segmentation": [outline], "keypoints": points, "num_keypoints": 1}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(coco))
    options = ("--images", tmp_path / "images")
    store = pack(tmp_path / "instances.json", tmp_path / "store", "--size", "keep", *options)
    layers = {one["name"]: one for one in view(store).json("/api/sample", row=0)["layers"]}
    assert layers["boxes"]["labels"] == ["cat"]
    assert layers["boxes"]["classes"] == layers["polygons"]["classes"] == [1]
    assert layers["polygons"]["items"] == [[[5, 5], [30, 5], [30, 20]]]
    assert layers["keypoints"]["items"] == [[[10, 10, 2], [0, 0, 0]]]


def test_a_notebook_shows_samples_and_a_link(packed: Packed) -> None:
    """A selection is numbered by itself, also in the order of training; a mixture is refused."""
    store = packed("memmap", "--size", 48)
    reader = Reader(store).select([40, 3, 71, 5])
    page = rawpack.view(reader)
    html = page._repr_html_()
    assert html.count("<img ") == 4
    assert page.url in html
    client = Client(page.url)
    keys = reader.column("key")
    found = client.json("/api/batch", batch=4, shuffle=1, seed=3)
    assert sorted(one["row"] for one in found["samples"]) == [0, 1, 2, 3]
    for k, one in enumerate(found["samples"]):
        assert one["key"] == keys[one["row"]]
        shown = client.picture("/batch-image", batch=4, shuffle=1, seed=3, k=k)
        np.testing.assert_array_equal(shown, reader[one["row"]]["image"])
    page.close()
    with pytest.raises(ConnectionError):
        client.get("/api/stores")
    with pytest.raises(UsageError, match=r"view\(\) shows"):
        rawpack.view(Reader.mix({store: 1}))


def test_numbers_are_sorted_with_nan_last_and_written_exactly(tmp_path: Path, view: View) -> None:
    """Floats are not compared as pixels: they are equal or not."""
    scores = np.array([3, np.nan, -np.inf, 1, np.nan, np.finfo(np.float32).max], np.float32)
    image = np.random.default_rng(0).random((6, 8, 8, 1), np.float32)
    numbers = {"score": scores, "large": np.full(6, np.iinfo(np.uint64).max)}
    for name, values in (("one", image), ("two", image * 2), ("same", image)):
        rawpack.pack({"image": values, **numbers}, tmp_path / name, size="keep", workers=0)
    client = view([tmp_path / name for name in ("one", "two", "same")])
    up = client.json("/api/rows", sort="score")["tiles"]
    down = client.json("/api/rows", sort="score", descending=1)["tiles"]
    assert [one["row"] for one in up[:4]] == [2, 3, 0, 5]
    assert [one["row"] for one in down[:4]] == [5, 0, 3, 2]
    assert [{one["row"] for one in tiles[4:]} for tiles in (up, down)] == [{1, 4}, {1, 4}]
    assert [one["value"] for one in down[:5]] == [
        "score 3.4028235e+38", "score 3.0", "score 1.0", "score -inf", "score nan",
    ]  # fmt: skip
    assert client.json("/api/sample", row=5)["values"]["large"] == "18446744073709551615"
    pair = client.json("/api/pair", store=0, other=1, row=1)
    assert (pair["compared"], pair["equal"], pair["psnr"]) == (False, False, None)
    assert client.json("/api/pair", store=0, other=2, row=1)["equal"]
    assert client.refused("/difference", store=0, other=1, row=1, there=1)[0] == 400


@pytest.mark.usefixtures("looked_through_here")
def test_frames_of_a_video(tmp_path: Path, view: View) -> None:
    """Their times, and clips by name; videos that are too short for clips are counted, and nothing warns of them."""
    for name, frames in (("a/long.mp4", 9), ("b/short.mp4", 3)):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        encode(tmp_path / "in" / name, "mpeg4", frames)
    store = pack(tmp_path / "in", tmp_path / "store", "--size", 32)
    reader = Reader(store)
    client = view([store, reader.select(range(0, 12, 2))])
    times = reader.column("pts_seconds").tolist()
    assert client.json("/api/frames", row=10) == {"first": 9, "last": 11, "times": times[9:]}
    assert client.json("/api/frames", store=1, row=1) == {"first": 0, "last": 4, "times": times[:9:2]}
    found = client.json("/api/clips", frames=4)
    assert (found["count"], found["left_out"]) == (2, 1)
    assert [(clip["rows"], clip["label"]) for clip in found["clips"]] == [([0, 1, 2, 3], "a"), ([4, 5, 6, 7], "a")]
    assert found["clips"][1]["key"] == reader.column("key")[4]
    found = client.json("/api/clips", frames=4, step=2, short="repeat_last")
    assert (found["count"], found["left_out"]) == (4, 0)
    assert [clip["rows"] for clip in found["clips"][1:]] == [[2, 3, 4, 5], [4, 5, 6, 7], [9, 10, 11, 11]]
    assert eval(found["line"], {"rawpack": rawpack}).column("store_row")[3].tolist() == [9, 10, 11, 11]
    assert client.refused("/api/clips", frames=10)[1].endswith("short 'repeat_last' or short 'wrap' pads them")
    columns = client.json("/api/columns", row=10)
    assert columns["values"]["video"] == "1 (b/short.mp4)"
    assert columns == {name: client.json("/api/sample", row=10)[name] for name in columns}


def test_forgotten_pages_end(packed: Packed) -> None:
    """A page that nothing refers to is no longer served."""
    page = rawpack.view(packed("memmap", "--size", 48))
    client = Client(page.url)
    assert client.get("/api/stores").status == 200
    del page
    gc.collect()
    with pytest.raises(ConnectionError):
        client.get("/api/stores")


def test_sizes_are_looked_at_before_pixels(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever question would read them: nothing of a sample is read whose images do not fit."""
    page = rawpack.view(packed("memmap", "--size", "32x48"))
    client = Client(page.url)
    monkeypatch.setattr("rawpack_packer.view.looked_at._MOST_BYTES", 32 * 48 * 3 - 1)
    for path, words in (("/image", {"row": 0}), ("/api/sample", {"row": 0}), ("/api/batch", {"batch": 2})):
        status, said = client.refused(path, **words)
        assert (status, "32 x 48 pixels, too many for a page" in said) == (400, True), said
    assert "<img" not in page._repr_html_()
    monkeypatch.setattr("rawpack_packer.view.looked_at._MOST_BYTES", 32 * 48 * 3)
    for most, status in ((32 * 48, 200), (32 * 48 - 1, 400)):
        monkeypatch.setattr("rawpack_packer.view.looked_at._MOST_PIXELS", most)
        assert client.get("/image?row=0").status == status
    page.close()
