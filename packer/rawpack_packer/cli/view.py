"""`rawpack view`: a page of stores, served on this machine."""

from __future__ import annotations

import socket
import sys
import webbrowser
from urllib.parse import urlsplit

import click

from rawpack_packer import api
from rawpack_packer.cli.command import Subcommand, option, path_argument
from rawpack_packer.cli.output import note, quiet_option


@click.command(cls=Subcommand)
@option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
        help="Where to listen. Other machines can then open the page if they have its token.")  # fmt: skip
@option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port to listen on. [default: a free one]"
)
@option("--no-browser", is_flag=True, help="Print the address only.")
@option("--at", "state", default="", metavar="STATE",
        short="What follows # in a colleague's address",
        help="Open the view that a colleague shared: what follows # in the address of their page.")  # fmt: skip
@quiet_option
@path_argument("stores", nargs=-1, required=True, metavar="STORE...")
def view(stores: tuple[str, ...], host: str, port: int, no_browser: bool, state: str, quiet: bool) -> None:
    """Look at the samples of stores in a browser: images, boxes, masks, videos, the batches that training gets, two
    stores side by side, rejects. Stop it with Ctrl-C.

    The page is served on this machine alone and needs the token in the printed address. It only reads.

    \b
    Examples:
      rawpack view store/
      rawpack view splits/                 train, val and test as tabs
      rawpack view raw/ q75/               two stores, side by side
      rawpack view --no-browser --port 8765 store/
    """  # fmt: skip
    server = api.viewer(stores, host=host, port=port)
    url = server.url + (f"#{state.lstrip('#')}" if state else "")
    with server:
        click.echo(url)
        sys.stdout.flush()
        if not quiet:
            place = urlsplit(server.url).netloc  # where it listens, which may not be 127.0.0.1
            note(f"Ctrl-C ends it. From another machine: ssh -N -L {server.port}:{place} {socket.gethostname()}")
        if not no_browser:
            webbrowser.open(url)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            if not quiet:
                note("ended")
