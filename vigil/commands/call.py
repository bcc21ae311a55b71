"""`call`: how a command does its work, which is on a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar
from uuid import UUID

import typer

from vigil import options
from vigil.asking.connect import run
from vigil.client.client import Client
from vigil.commands.rights import NEEDED, order_as_login
from vigil.errors import Mistake

T = TypeVar("T")

TYPED: Final = "COMMANDLINE"
"""Where the value of an option is from that somebody has typed."""


def call(
    ctx: typer.Context,
    work: Callable[[Client], Awaitable[T]],
    *,
    by: str | None = None,
    create_stack: bool = False,
    is_order: bool = True,
) -> T:
    """Return what `work` returns on a client of the settings in force; `by`: as it was typed.

    Args:
        is_order: False: nobody has to have signed in, whatever the command may also do.
    """
    config = options.config(ctx)
    name = options.who(config, by)
    command = ctx.command_path.partition(" ")[2]

    async def done() -> T:
        async with Client.of(config, by=name, create_stack=create_stack) as client:
            if is_order and command in NEEDED:
                await order_as_login(client, config, command, typed=by, is_open=_is_open(ctx))
            return await work(client)

    return run(done())


def _is_open(ctx: typer.Context) -> bool:
    """Return whether a command has a dry run, and nobody has typed whether it is one."""
    source = ctx.get_parameter_source("is_dry")
    return source is not None and source.name != TYPED


def alone(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, which needs no client."""
    return run(work)


async def named(client: Client, text: str | None, *, is_latest: bool = False) -> UUID:
    """Return the episode of the id `text`, or whose id alone begins so; or the one opened last."""
    if is_latest:
        if text is not None:  # guard: id-or-latest
            raise Mistake("give an id, or --latest, not both")
        return await client.episodes.latest()
    if text is None:
        raise Mistake("which episode? give its id, or --latest")
    return await client.episodes.find(text)
