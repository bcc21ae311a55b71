"""`vigil archive`: move what ended long ago out of the journal, and look at it there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from uuid import UUID

import typer
from msgspec import structs
from typer import Argument, Option

from streams.layout import Kind
from vigil import options
from vigil.archiving.settings import ArchiveSpec, required
from vigil.asking.connect import run as wait
from vigil.client.client import Client
from vigil.commands.call import call
from vigil.errors import EXIT_TROUBLE, Mistake, NotFound, Trouble, told
from vigil.options import By, IsJson, IsWide
from vigil.printing import tables
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import DRY, rows_of, show_table
from vigil.printing.progress import ProgressLines
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.archive.run import ArchiveReport, PartReport
    from streams.ports.states import RawMessage
    from vigil.asking.archiving import SegmentShown

app = typer.Typer(no_args_is_help=True)

StoreName: TypeAlias = Annotated[
    str | None,
    Option(
        "--store",
        metavar="STORE",
        help="Where the archive is, instead of what vigil.toml says: a folder,"
        " s3://bucket/prefix, or nats.",
    ),
]

RESTORED_DAYS: Final = 30
"""How long what was restored can be read, in days, by default; large results are kept for 90."""

RESTORED_DAYS_MAX: Final = 90

PARTS: Final = Listing(
    (
        Column("stream", "part"),
        Column("archived", "archived_here"),
        Column("segments", "segments"),
        Column("size", "size"),
        Column("purged", "purged"),
        Column("begins at", "floor"),
        Column("held by", "held_by"),
    ),
    spare=("segments", "size"),
)
SEGMENTS: Final = Listing(
    (
        Column("stream", "part"),
        Column("from", "first_seq"),
        Column("to", "last_seq"),
        Column("messages", "messages"),
        Column("first", "first_at", Form.TIME),
        Column("last", "last_at", Form.TIME),
        Column("size", "size"),
        Column("problem", "problem"),
    ),
    spare=("first", "messages"),
)


@app.command()
def run(
    ctx: typer.Context,
    *,
    is_dry: Annotated[
        bool, Option("--dry-run/--no-dry-run", help="Read and reckon, and change nothing.")
    ] = False,
    purges: Annotated[
        bool, Option("--purge/--no-purge", help="Whether what is archived leaves the journal.")
    ] = True,
    store: StoreName = None,
    is_json: IsJson = False,
    by: By = None,
) -> None:
    """Archive what ended long ago, verify it, and purge it from the journal.

    It can be interrupted at any time, and run again. Nodes go on meanwhile.
    """
    from vigil.asking.archiving import run_archive

    config, spec = options.config(ctx), required(store)

    async def archived(client: Client) -> ArchiveReport | None:
        async with client.connections.log() as ports:
            return await run_archive(
                ports, config, spec, purges=purges, is_dry=is_dry, tell=ProgressLines()
            )

    report = call(ctx, archived, by=by)
    if report is None:
        raise Trouble("another process archives this stack", remedy="try again later")
    if is_json:
        print(tables.as_json(structs.asdict(report)))
        return
    print_report(report)


def print_report(report: ArchiveReport) -> None:
    """Print what a run has done with each stream."""
    show_table([_row(each) for each in report.parts], PARTS, shows="--json")
    for each in report.parts:
        if each.missed:
            print(f"{each.part}: {each.missed:,} messages were gone before they were archived")
    for drop in report.dropped:
        if drop.segments:
            size = _size(drop.stored_bytes)
            print(
                f"{drop.part}: old segments leave the archive, {drop.segments:,} with {size}: "
                f"it begins at {drop.begin:,}"
            )
    if report.is_dry:
        print(DRY)


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    store: StoreName = None,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """List the segments of the archive. Needs no server."""
    _show_segments(ctx, required(store), verifies=False, is_wide=is_wide, is_json=is_json)


@app.command()
def verify(
    ctx: typer.Context,
    *,
    store: StoreName = None,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """Read every segment, and compare it with what was written. Needs no server.

    Exit code 1 if one is damaged or missing.
    """
    _show_segments(ctx, required(store), verifies=True, is_wide=is_wide, is_json=is_json)


@app.command()
def cat(
    ctx: typer.Context,
    *,
    what: Annotated[
        str | None,
        Argument(metavar="ID", help="An episode, or an instance of a workflow, in full."),
    ] = None,
    output: Annotated[
        str | None, Option("--output", metavar="KEY", help="The output of this key.")
    ] = None,
    part: Annotated[
        str | None, Option("--stream", help="All of a stream, such as journal or journal-0of4.")
    ] = None,
    after: Annotated[int, Option(min=0, help="With --stream: only what comes after it.")] = 0,
    limit: Annotated[int, Option(min=1, help="With --stream: most commits to print.")] = 1_000,
    store: StoreName = None,
) -> None:
    """Print commits of the archive as lines of JSON. Needs no server."""
    from vigil.asking.archiving import segment_messages

    if sum(each is not None for each in (what, output, part)) != 1:
        raise Mistake("say one of them: the id of an episode, --output, or --stream")
    config, spec = options.config(ctx), required(store)

    async def printed() -> int:
        messages = segment_messages(config, spec, part=part or "", after=after, limit=limit)
        count = 0
        async for each in messages:
            print(_line(each))
            count += 1
        return count

    with told():
        if part is None:
            found = _past(ctx, spec, what, output)
            for each in found:
                print(_line(each))
            return
        if not wait(printed()):
            raise NotFound(f"the archive has nothing of {part} after {after:,}")


@app.command()
def restore(
    ctx: typer.Context,
    *,
    what: Annotated[str, Argument(metavar="ID", help="An episode, or an instance of a workflow.")],
    days: Annotated[
        int,
        Option(min=1, max=RESTORED_DAYS_MAX, help="How long it can be read then, in days."),
    ] = RESTORED_DAYS,
    store: StoreName = None,
    by: By = None,
) -> None:
    """Let everyone read an archived episode again who cannot reach the archive.

    Its commits are put into the object store of the stack, for so many days.
    """
    from streams.archive.restored import RestoredPast
    from vigil.asking.archiving import restore_past

    config, spec, id_ = options.config(ctx), required(store), _id(what)

    async def restored(client: Client) -> tuple[Kind, RestoredPast]:
        name = client.connections.who(None)
        async with client.connections.log() as ports:
            bring = partial(restore_past, ports, config, spec, days=days, by=name)
            try:
                return Kind.EPISODE, await bring(kind=Kind.EPISODE, key=id_)
            except NotFound:
                return Kind.WORKFLOW, await bring(kind=Kind.WORKFLOW, key=id_)

    kind, past = call(ctx, restored, by=by)
    what_it_is = "instance" if kind is Kind.WORKFLOW else "episode"
    print(f"{what_it_is} {id_} can be read for {days} days: {past.commits:,} commits")


def _past(
    ctx: typer.Context, spec: ArchiveSpec, what: str | None, output: str | None
) -> Sequence[RawMessage]:
    from vigil.asking.archiving import archived_past

    config = options.config(ctx)
    places = (
        [(Kind.OUTPUT, output)]
        if output is not None
        else [(Kind.EPISODE, _id(what or "")), (Kind.WORKFLOW, _id(what or ""))]
    )
    for kind, key in places:
        if found := wait(archived_past(config, spec, kind, key)):
            return found
    raise NotFound(f"the archive has no {output or what}")


def _id(text: str) -> str:
    """Return an id in full, as the journal has it: without tables nobody knows its beginning."""
    try:
        return str(UUID(text))
    except ValueError as error:
        raise Mistake(f"{text!r} is no id; the archive needs all of it") from error


def _show_segments(
    ctx: typer.Context, spec: ArchiveSpec, *, verifies: bool, is_wide: bool, is_json: bool
) -> None:
    from vigil.asking.archiving import list_segments

    config = options.config(ctx)
    tell = partial(ProgressLines(), "segments")
    with told():
        segments, begins = wait(list_segments(config, spec, verifies=verifies, tell=tell))
    print_segments(segments, is_json=is_json, is_wide=is_wide)
    if not is_json:
        for part, seq in begins.items():
            print(f"{part}: what was before {seq:,} was deleted, as it was old enough")
    bad = _bad(segments)
    if bad:
        says = f"{len(bad)} of {len(segments)} segments are not as they were written"
        print(f"vigil: {says}: {bad[0].problem}", file=sys.stderr)
        raise typer.Exit(EXIT_TROUBLE)


def print_segments(
    segments: Sequence[SegmentShown], *, is_json: bool = False, is_wide: bool = False
) -> None:
    """Print segments, in the order of their sequences."""
    rows = [{**row, "size": _size(row["stored_bytes"])} for row in rows_of(segments)]
    show_table(rows, SEGMENTS, is_json=is_json, is_wide=is_wide, why_none="the archive is empty")


def _bad(segments: Sequence[SegmentShown]) -> list[SegmentShown]:
    return [each for each in segments if each.problem]


def _row(part: PartReport) -> Row:
    return {
        **structs.asdict(part),
        "archived_here": f"{part.messages:,}",
        "size": _size(part.stored_bytes),
        "purged": f"{part.purged.messages:,}",
        "floor": part.floor.seq,
        "held_by": part.floor.words,
    }


def _size(octets: object) -> str:
    return f"{int(str(octets)) / 1_000_000:,.1f} MB"


def _line(message: RawMessage) -> str:
    import msgspec

    from streams.json import UNDECODABLE

    try:
        body: object = msgspec.json.decode(message.data)
    except UNDECODABLE:
        body = message.data  # As base64.
    said = {
        "seq": message.seq,
        "subject": message.subject,
        "stored_at": message.at,
        "headers": message.headers,
        "commit": body,
    }
    return msgspec.json.encode(said).decode()
