"""`vigil backup`: a whole stack in a folder, while it runs, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from vigil import options
from vigil.asking import backup as asking
from vigil.asking.connect import run
from vigil.commands.call import call
from vigil.errors import Mistake, told
from vigil.options import By, IsJson, IsSure, require_consent
from vigil.printing import tables
from vigil.printing.progress import ProgressLines

if TYPE_CHECKING:
    from streams.jetstream.backup.files import StoredBackup
    from vigil.client.client import Client

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[Path, Argument(metavar="FOLDER", help="Has a folder for each backup.")]


@app.command()
def create(
    ctx: typer.Context,
    folder: Folder,
    *,
    is_incremental: Annotated[
        bool, Option("--incremental", help="Save what came since the newest backup there.")
    ] = False,
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Back up a stack while it runs: streams, buckets, large results, keys, and who read how far.

    Tables are not in it: they are made of the log. An incremental backup shares the files of the
    one before that are still true, and is whole in itself: either may be deleted.
    """
    config = options.config(ctx)
    call(ctx, _who, by=by)
    with told():
        made = run(
            asking.create(
                config, folder, is_incremental=is_incremental, tell=ProgressLines(unit="bytes")
            )
        )
    _print(made, "made", is_json=is_json)


@app.command()
def verify(
    ctx: typer.Context,  # noqa: ARG001 - each command has one
    folder: Folder,
    *,
    is_json: IsJson = False,
) -> None:
    """Read a backup, the newest of several, and compare each file with its digest."""
    with told():
        found = asking.verified(folder)
    _print(found, "verified", is_json=is_json)


@app.command()
def restore(
    ctx: typer.Context,
    folder: Folder,
    *,
    replaces: Annotated[
        bool, Option("--replace", help="Delete the streams of the stack that are there.")
    ] = False,
    is_sure: IsSure = False,
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Make a stack of a backup: the newest in the folder, or the one whose folder it is.

    No node of the stack may run. Tables are filled again from the beginning. Interrupted, run it
    again with --replace.
    """
    config = options.config(ctx)
    call(ctx, _who, by=by)
    with told():
        found = asking.verified(folder)
    if found.manifest.stack != config.stack.name:
        raise Mistake(
            f"{found.folder} is of stack {found.manifest.stack}",
            remedy=f"give --stack {found.manifest.stack}",
        )
    if replaces and not is_sure:
        require_consent(f"delete what there is of stack {config.stack.name}?")
    with told():
        rows = run(
            asking.restore(config, found, replaces=replaces, tell=ProgressLines(unit="bytes"))
        )
    _print(found, "restored", is_json=is_json)
    if not is_json and rows:
        print(rows)


async def _who(client: Client) -> str:
    return client.connections.who(None)


def _print(found: StoredBackup, done: str, *, is_json: bool) -> None:
    manifest = found.manifest
    messages = sum(each.messages for each in manifest.streams)
    if is_json:
        said = {
            "folder": str(found.folder),
            "stack": manifest.stack,
            "at": manifest.at,
            "base": manifest.base or None,
            "size_bytes": manifest.size_bytes,
            "messages": messages,
            "streams": {each.part: each.last_seq for each in manifest.streams},
        }
        print(tables.as_json(said))
        return
    size = f"{messages:,} messages, {manifest.size_bytes:,} bytes"
    print(f"{done}: stack {manifest.stack} as of {manifest.at:%Y-%m-%d %H:%M:%S} UTC, {size}")
    print(f"in {found.folder}")
