"""Shows progress to a person: bars of one style in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rawpack_packer import text

if TYPE_CHECKING:
    from tqdm import tqdm

    from rawpack.remote.transfer import Remote

Scanning = Callable[[int], None]
"""Called now and then with how much of a source was looked through so far."""

_SHOW_EVERY_S = 0.5
_LINE_EVERY_S = 10.0
_WAITING_S, _STILL_WAITING_S = 5.0, 30.0
"""Without a byte, after which a line says what is waited for; until the next such line."""
_MIN_S = _BAR_AFTER_S = 1.0
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
"""As tqdm's own, but for rates below one a second, which tqdm writes the other way round."""


def unseen(count: int, /) -> None:
    """Scanning that nobody follows."""


def bar(what: str, *, unit: str, quiet: bool = False, **settings: Any) -> tqdm[Any]:
    """A bar with rate and time left, which appears after a second and leaves nothing; none where nobody sees it."""
    from tqdm import tqdm

    defaults = {
        "desc": what, "unit": unit if unit == "B" else f" {unit}", "unit_scale": unit == "B", "delay": 1.0,
        "leave": False, "dynamic_ncols": True, "disable": quiet or not _at_terminal(),
        "bar_format": _BAR,
    }  # fmt: skip
    return tqdm(**defaults | settings)


@contextmanager
def counting(what: str, *, unit: str, quiet: bool = False) -> Iterator[Callable[[int], Callable[..., object]]]:
    """Shows how much is done; gives the function that takes the total, and returns the one that counts."""
    with bar(what, unit=unit, quiet=quiet) as shown:

        def begin(total: int) -> Callable[..., object]:
            shown.total = total  # `reset` would show it at once, and nothing would remove it if that is within a second
            return lambda done=1: shown.update(done)

        yield begin


@contextmanager
def scanning(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Shows how many entries of a source were scanned so far; gives the function that counts them."""
    if quiet or not _at_terminal():
        yield unseen
        return
    with bar("scanning", unit="files", quiet=quiet, bar_format=None) as shown:
        yield lambda scanned: shown.update(scanned - shown.n) and None


class _Follower:
    """What both ways to follow a job remember. See `Progress`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = self._before = 0
        self._began = 0.0
        self._noun = ""

    def begin(self, samples: int, done: int, noun: str = "image") -> None:
        self._total, self._before, self._began, self._noun = samples, done, time.monotonic(), noun

    def _seconds(self) -> float:
        return max(time.monotonic() - self._began, _MIN_S)

    def _notes(self, bytes_in: int, rejects: int) -> list[str]:
        speed = f"{text.rate(bytes_in / self._seconds() / 1e6)} MB/s in"
        return [speed, *([text.count(rejects, "reject")] if rejects else [])]


class Bar(_Follower):
    """A progress bar with samples/s, MB/s and time left."""

    _bar: tqdm[Any] | None = None

    def begin(self, samples: int, done: int, noun: str = "image") -> None:
        super().begin(samples, done, noun)
        self._bar = bar(
            "packing", unit=f"{noun}s", total=samples, initial=done, file=self._stream, smoothing=0.05, delay=0.0,
            disable=False,
        )  # fmt: skip

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(", ".join(self._notes(bytes_in, rejects)), refresh=False)
            self._bar.update(self._before + samples - self._bar.n)

    def waits(self, why: str) -> None:
        from tqdm import tqdm

        tqdm.write(text.for_standard_error(f"rawpack: {why}"), file=self._stream)

    def commit(self) -> None:
        if self._bar is not None:
            self._bar.set_description_str("writing the manifest")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Lines(_Follower):
    """A line now and then, for logs."""

    _next = 0.0

    def begin(self, samples: int, done: int, noun: str = "image") -> None:
        super().begin(samples, done, noun)
        self._next = self._began + _LINE_EVERY_S
        if done:
            self.waits(f"resuming after {text.count(done, noun)} of {samples:,}")

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_EVERY_S
        speed, *rest = self._notes(bytes_in, rejects)
        rate, done = samples / self._seconds(), self._before + samples
        left = text.duration((self._total - done) / rate if rate else 0.0)
        self.waits(
            f"{done:,} of {self._total:,} {self._noun}s, {text.rate(rate)} {self._noun}s/s, "
            + ", ".join([speed, f"{left} left", *rest])
        )

    def waits(self, why: str) -> None:
        if self._stream is not None:
            print(text.for_standard_error(f"rawpack: {why}"), file=self._stream, flush=True)

    def commit(self) -> None: ...
    def end(self) -> None: ...


class SaysWhy(Protocol):
    """What follows a job: see `Progress`."""

    def waits(self, why: str) -> None: ...


class Fetching:
    """Shows how much of a source behind URLs has arrived, and what is waited for, as what follows the job shows it."""

    def __init__(self, follower: SaysWhy) -> None:
        self._say = follower.waits
        self._as_bar = isinstance(follower, Bar)
        self._bar: tqdm[Any] | None = None
        self._done = -1
        self._began = self._moved = self._next_line = self._next_waiting = 0.0
        self._first = 0

    def show(self, done: int, total: int, waiting: str, gives_up_s: float, trouble: str = "") -> None:
        """done, total: bytes; a total of 0 says that servers are only asked, and `done` is then any number that grows.
        waiting: what is being waited for, printable; "" for nothing. gives_up_s: after which that fails. trouble: the
        last error, if it is retried."""
        now = time.monotonic()
        if self._done < 0:
            self._began, self._first, self._next_line = now, done, now + _LINE_EVERY_S
        if done != self._done:
            self._done, self._moved, self._next_waiting = done, now, now + _WAITING_S
        elif waiting and now >= self._next_waiting:
            self._next_waiting = now + _STILL_WAITING_S
            why = f" ({text.plain(trouble)})" if trouble else ""
            waited = f"still waiting for {waiting} after {now - self._moved:.0f} s{why}"
            self._say(f"{waited}; gives up after {gives_up_s:.0f} s")
        if not total:
            return
        if self._as_bar:
            self._bar = self._bar or bar("fetching", unit="B", total=total, initial=done, miniters=1, disable=False)
            self._bar.update(done - self._bar.n)
            if now - self._began >= _BAR_AFTER_S:
                self._bar.refresh()  # bytes come in pieces of megabytes: it shows the time before the first one too
        elif now >= self._next_line:
            self._next_line = now + _LINE_EVERY_S
            rate = (done - self._first) / max(now - self._began, _MIN_S)
            left = f", {text.duration((total - done) / rate)} left" if rate else ""
            self._say(f"fetched {text.size(done)} of {text.size(total)}, {text.rate(rate / 1e6)} MB/s{left}")

    def note(self, line: str) -> None:
        """Say something that matters before anything is fetched."""
        self._say(line)

    def end(self) -> None:
        """Nothing is fetched anymore."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._done = None, -1


@contextmanager
def waiting_for_store(follower: SaysWhy | None) -> Iterator[Callable[[Remote], None]]:
    """Says what a store behind a URL waits for, as `Fetching` does, until the block ends; gives the function that takes
    what is asked."""
    asked, ended = list["Remote"](), threading.Event()
    if follower is None:
        yield asked.append
        return
    shown = Fetching(follower)

    def show() -> None:
        while not ended.wait(_SHOW_EVERY_S):
            for remote in asked:
                shown.show(0, 0, str(remote), remote.timeout, remote.trouble)

    thread = threading.Thread(target=show, daemon=True, name="rawpack-progress")
    thread.start()
    try:
        yield asked.append
    finally:
        ended.set()
        thread.join()


class Taking:
    """Shows how many samples of a stream were read, of which nobody knows the total, as what follows the job shows
    it."""

    def __init__(self, follower: SaysWhy) -> None:
        self._say = follower.waits
        self._bar: tqdm[Any] | None = None
        if isinstance(follower, Bar):
            self._bar = bar("reading the stream", unit="samples", bar_format=None, disable=False)
        self._began = time.monotonic()
        self._next = self._began + _LINE_EVERY_S

    def show(self, done: int) -> None:
        """done: samples that were read."""
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        elif (now := time.monotonic()) >= self._next:
            self._next = now + _LINE_EVERY_S
            self._say(f"read {text.count(done, 'sample')} of the stream, {text.rate(done / (now - self._began))}/s")

    def end(self) -> None:
        """All are read, or it failed."""
        if self._bar is not None:
            self._bar.close()


def watched() -> Bar | Lines:
    """What follows a job: a bar at a terminal and in a notebook, lines elsewhere."""
    return Bar() if _at_terminal() or _in_notebook() else Lines()


def _at_terminal() -> bool:
    """Whether standard error is a terminal; it is None where it was closed when this process began."""
    return sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
