"""`rawpack relabel`: add small fields to a store, or replace them."""

from __future__ import annotations

import click

from rawpack_packer.cli.command import Subcommand, UserPath, option, path_argument
from rawpack_packer.cli.options import json_option, quiet_option
from rawpack_packer.cli.output import Output
from rawpack_packer.job import relabel_store


@click.command(cls=Subcommand)
@option(
    "--from", "new", required=True, group="Fields", type=UserPath(), metavar="FILE",
    help="The new values: a CSV, TSV or JSON Lines file with a column of keys, and a column for each field.",
)  # fmt: skip
@option("--key", group="Fields", metavar="COLUMN", help="The column of keys. [default: key, or else path]")
@option(
    "--field", "fields", group="Fields", multiple=True, metavar="NAME:DTYPE",
    help="The type of a column, if its values do not tell: score:float32. May be repeated. [default: as in the store]",
)  # fmt: skip
@option("--skip-unknown", group="Fields", is_flag=True, help="Ignore keys that no sample has. [default: refuse]")
@option(
    "--stale-copies", group="Fields", is_flag=True,
    help="Allow it for hdf5 stores: the copies of small fields inside the shards, for other programs, keep the old "
    "values.",
)  # fmt: skip
@quiet_option
@json_option
@path_argument("store")
def relabel(
    store: str, new: str, key: str | None, fields: tuple[str, ...], skip_unknown: bool, stale_copies: bool, quiet: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Add the fields in FILE to STORE, or replace those that it has.

    Samples are found by their keys. A sample without a line keeps what it has; a new field needs a line for every
    sample. Labels may be class names: those of STORE keep their numbers, and new ones come after them. Image files are
    not touched. Readers that are open keep the old values; the old columns stay for them. If this is interrupted, give
    the command again: the store is the old one or the new one.

    \b
    Examples:
      rawpack relabel store/ --from fixed-labels.csv         key,label
      rawpack relabel store/ --from scores.jsonl --field score:float32
    """
    done = relabel_store(store, new, key=key, fields=fields, skip_unknown=skip_unknown, stale_copies=stale_copies)
    Output(quiet, as_json).tell(done)
