"""`vigil repartition` and `uncompress`: the streams of a stopped stack."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import typer
from msgspec import structs
from typer import Option

from engine.orders.order import key_of
from engine.orders.store import give_order
from engine.reactor.reactor import Reactor
from engine.validation import check_cause
from streams import jetstream
from streams.clock import SystemClock
from streams.layout import Kind, Stream
from streams.model.events import LayoutSet
from streams.ports.all import Ports
from streams.repartition import repartition as streams_repartition
from vigil import options
from vigil.asking.connect import link_settings, run
from vigil.asking.requests import request
from vigil.client.client import Client
from vigil.commands.call import call
from vigil.errors import Mistake, told
from vigil.options import By, Reason
from vigil.printing.progress import ProgressLines

_HOW_ON: Final = """\
Streams that are no longer used are kept; once all is well, `vigil repartition --drop-old` deletes
them.
Positions are others now: before a projector starts, drop the schema vigil with
CASCADE in Postgres, and the tables are made anew.
Nodes find the number by themselves; one that is set to another number does not start."""

_CLOCK: Final = SystemClock()


def repartition(
    ctx: typer.Context,
    *,
    to: Annotated[
        int | None,
        Option("--to", metavar="N", help="The number of partitions from then on: 1 to 64."),
    ] = None,
    is_dropping: Annotated[
        bool, Option("--drop-old", help="Delete the streams of layouts before.")
    ] = False,
    reason: Reason = "",
    by: By = None,
) -> None:
    """Spread a stopped stack over another number of streams.

    Every commit is copied in order, and compared, before the copies are used. After an interruption
    the same command goes on, and --to with the earlier number goes back. The tables are built again
    afterwards, because the positions in the journal change.
    """
    if to is None and not is_dropping:
        raise Mistake("repartition: give --to and a number of partitions, or --drop-old")
    config = options.config(ctx)
    url, link = config.settings.nats_url, link_settings(config)
    if to is not None:
        name = call(ctx, _who, by=by)
        with told():
            check_cause(name, reason)
        progress = ProgressLines()
        stack = run(
            streams_repartition.repartition(
                url, stack=config.stack, to=to, tell=progress, settings=link
            )
        )
        # How many there are now, the servers say: a setting may still have the number before.
        moved = replace(config, settings=structs.replace(config.settings, partitions=None))
        order = LayoutSet(partitions=stack.partitions, by=name, reason=reason)
        note = partial(_note_move, order=order, node=config.node)
        request(moved, note)  # guard: move-is-an-order
        many = "one partition" if stack.partitions == 1 else f"{stack.partitions} partitions"
        print(f"stack {stack.name} is spread over {many}")
        if progress.has_told:
            print(_HOW_ON)
    if is_dropping:
        names = run(streams_repartition.drop_retired(url, stack=config.stack, settings=link))
        print("\n".join(f"deleted {name}" for name in names) or "nothing to delete")


async def _who(client: Client) -> str:
    return client.connections.who(None)


async def _note_move(ports: Ports, *, order: LayoutSet, node: str) -> None:
    """Note a move, and do what follows from that: no node runs, and the next move waits for it."""
    await give_order(ports, order)
    partition = ports.stack.partition_of(Kind.ORDER, key_of(order))
    reactor = Reactor(
        ports,
        _CLOCK,
        node=node,
        since=_CLOCK.now(),
        stream=Stream.STATE,
        partition=partition,
    )
    reactor.end()
    await reactor.follow()  # guard: noted-move-followed


def uncompress(ctx: typer.Context) -> None:
    """Store the streams of a stopped stack uncompressed.

    Servers since 2.15 that are killed lose copies of compressed streams, and a server that runs
    goes on compressing until it is restarted. So with several copies this waits for you to restart
    each server in order (SIGTERM), one at a time. After an interruption run it again.
    """
    config = options.config(ctx)
    url, link = config.settings.nats_url, link_settings(config)
    names = run(jetstream.uncompress(url, stack=config.stack, tell=ProgressLines(), settings=link))
    print("\n".join(f"uncompressed {name}" for name in names) or "nothing is compressed")
