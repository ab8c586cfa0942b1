"""A file server like an object store: requests wait, and connections share a bandwidth.

python slow_store.py FOLDER BYTES_PER_SECOND SECONDS_A_REQUEST      prints its port, and ends when its input does
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

BYTES_PER_S = 250e6
_BENCH = Path(__file__).resolve().parents[2] / "bench"


@contextmanager
def served(folder: Path, latency_s: float, bytes_per_s: float = BYTES_PER_S) -> Iterator[int]:
    """Serve the files below `folder` from another process; the port."""
    command = [sys.executable, __file__, str(folder), str(bytes_per_s), str(latency_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield int(server.stdout.readline())
        server.stdin.close()


def main() -> None:
    sys.path.insert(0, str(_BENCH))
    from loopback import Handler, Wire

    latency_s = float(sys.argv[3])

    class Slow(Handler):
        def _answer(self) -> None:
            time.sleep(latency_s)
            super()._answer()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # As many clients connect at once as there are processes.
        request_queue_size = 1024

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that leave in the middle of a file are no error."""

    Slow.folder, Slow.wire = Path(sys.argv[1]).resolve(), Wire(float(sys.argv[2]))
    server = Server(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
