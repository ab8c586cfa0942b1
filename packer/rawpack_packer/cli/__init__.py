"""The `rawpack` command. One module for each sub-command."""

from __future__ import annotations

import sys

import click

import rawpack
from rawpack.errors import RawpackError, UsageError
from rawpack_packer.cli.append import append
from rawpack_packer.cli.bench import bench
from rawpack_packer.cli.convert import convert
from rawpack_packer.cli.doctor import doctor
from rawpack_packer.cli.export import export
from rawpack_packer.cli.inspect import inspect
from rawpack_packer.cli.merge import merge
from rawpack_packer.cli.pack import pack
from rawpack_packer.cli.plan import plan
from rawpack_packer.cli.subset import subset
from rawpack_packer.cli.warm import warm
from rawpack_packer.sources.listing import BadListingError
from rawpack_packer.text import plain

INTERRUPTED = 130
"""As a shell reports Ctrl-C."""
_RESUMES = {"pack", "append", "convert", "merge", "subset", "export"}
"""Commands that resume where they were interrupted."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(rawpack.__version__, prog_name="rawpack")
def cli() -> None:
    """Pack folders of images once, read batches fast.

    \b
    Examples:
      rawpack plan photos/                             which store suits these images and this machine
      rawpack pack photos/ store/                      memmap, 256x256: fastest to read
      rawpack pack --format lmdb photos/ store/        JPEG: a tenth of the disk space
      rawpack append more-photos/ store/               add to the same store
      rawpack inspect store/                           what is in there
      rawpack convert store/ small/ --format lmdb      another store from it, without photos/
      rawpack bench store/                             how fast it reads on this machine

    Exit codes: 0 done; 1 failed; 2 usage error, nothing written; 130 interrupted.
    """


cli.add_command(plan)
cli.add_command(pack)
cli.add_command(append)
cli.add_command(inspect)
cli.add_command(convert)
cli.add_command(merge)
cli.add_command(subset)
cli.add_command(export)
cli.add_command(doctor)
cli.add_command(warm)
cli.add_command(bench)
for _command in cli.commands.values():
    # Without any argument, the whole help says more than the name of the first missing one.
    _command.no_args_is_help = any(one.required for one in _command.params if isinstance(one, click.Argument))


def main() -> None:
    """Run the command; every expected error becomes one line, or a line for each fault, and an exit code."""
    try:
        cli(prog_name="rawpack", standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"rawpack: {plain(error.format_message())}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        resumes = "; the same command resumes from here" if _RESUMES & set(sys.argv[1:2]) else ""
        click.echo(f"rawpack: interrupted{resumes}", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever reads our output has closed it; the interpreter must not complain at exit.
        sys.stderr.close()
        sys.exit(1)
    except UsageError as error:
        click.echo(f"rawpack: {plain(str(error), lines=isinstance(error, BadListingError))}", err=True)
        sys.exit(2)
    except RawpackError as error:
        click.echo(f"rawpack: {plain(str(error), lines=True)}", err=True)
        sys.exit(1)
    except MemoryError:
        click.echo("rawpack: out of memory; try the same command again once there is more", err=True)
        sys.exit(1)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename is None:
            click.echo("rawpack: the current folder was removed: change to another one, or give whole paths", err=True)
            sys.exit(2)
        where = f"{error.filename}: " if error.filename is not None else ""
        why = error.strerror or str(error)
        click.echo(f"rawpack: {plain(f'{where}{why}')}; once that is fixed, the same command resumes", err=True)
        sys.exit(1)
