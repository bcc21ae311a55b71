"""`vigil episodes approve`, `deny` and `resolve`: what episodes wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from streams.model.events import EpisodeResolved
from vigil import options
from vigil.asking.episode_ids import find_episode
from vigil.errors import Trouble

if TYPE_CHECKING:
    from engine.waits.answer import EpisodeWait
    from streams.model.events import SignalWaited
    from streams.ports.all import Ports
    from streams.ports.log import Recorded
    from vigil.asking.requests import CommandOutcome, CommandResult, SentCommand

app = typer.Typer()

_CLOCK: Final = SystemClock()


@app.command()
def approve(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeId,
    changes: options.Changes = None,
    hash_: options.Hash = None,
    is_sure: options.IsSure = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Approve what an episode asks for. Shows the plan first, and asks for confirmation."""
    from vigil.asking.approvals import Choice, decide_episode

    wait_s = timeout_s if is_waiting else None
    choice = Choice("approve", hash_, is_sure, by, reason, wait_s)
    decide_episode(options.config(ctx), episode_id, choice.with_changes(changes))


@app.command()
def deny(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeId,
    hash_: options.Hash = None,
    is_sure: options.IsSure = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Deny what an episode asks for. Shows the plan first, and asks for confirmation."""
    from vigil.asking.approvals import Choice, decide_episode

    choice = Choice("deny", hash_, is_sure, by, reason, timeout_s if is_waiting else None)
    decide_episode(options.config(ctx), episode_id, choice)


@app.command()
def resolve(
    ctx: typer.Context,
    *,
    ref: Annotated[
        str, Argument(metavar="REF", help="What episodes wait for, such as payment:42.")
    ],
    result: Annotated[
        str, Option(help="JSON for the strategies; @FILE, or - for standard input.")
    ] = "null",
    episode_id: Annotated[
        str | None, Option("--episode", metavar="ID", help="Only this episode.")
    ] = None,
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Resolve a wait: give the episodes that wait for a reference its result."""
    from engine.errors import Refused
    from engine.waits import requests
    from engine.waits.signal import RESOLVED
    from vigil.asking.requests import report, request, watch

    body = options.read_json(result, what="--result")
    config = options.config(ctx)
    only = None if episode_id is None else str(find_episode(config, episode_id))
    name, wait_s = options.who(config, by), timeout_s if is_waiting else None

    async def resolved(ports: Ports) -> list[CommandOutcome]:
        waiting = await _waiting(ports, ref, only)
        try:
            id_ = await requests.resolve(ports, ref, body, by=name, episode_id=only)
        except Refused as error:
            raise Trouble(f"{error}; for a future one, publish {RESOLVED}") from error
        return await watch(ports, [_sent(ports, each, id_) for each in waiting], wait_s=wait_s)

    report(request(config, resolved))


async def _waiting(ports: Ports, ref: str, episode_id: str | None) -> list[SignalWaited]:
    """Return the waits for `ref` that are not over: all, or that of one episode."""
    from engine.waits.signals import References

    waiting = await References(ports, _CLOCK).waiting(ref)
    return [each for each in waiting if episode_id in (None, each.episode_id)]


def _sent(ports: Ports, waiter: SignalWaited, id_: str) -> SentCommand:
    from vigil.asking.requests import CommandResult, SentCommand

    def result(records: Sequence[Recorded]) -> CommandResult | None:
        if waiter.is_ahead:
            return CommandResult("gets it when its branch has its turn", is_wanted=True)
        wait = _newest_wait(records, waiter.ref)
        if wait is None or wait.end is None:
            return None
        is_wanted = isinstance(wait.end, EpisodeResolved) and wait.end.decision_id == id_
        return CommandResult("resolved" if is_wanted else "it had ended by then", is_wanted)

    return SentCommand(
        name=waiter.episode_id,
        actor_id=waiter.actor_id,
        episode_id=waiter.episode_id,
        subject=ports.stack.episode(waiter.episode_id),
        result=result,
    )


def _newest_wait(records: Sequence[Recorded], ref: str) -> EpisodeWait | None:
    from engine.waits.answer import waits_of

    waits = [each for each in waits_of(records) if each.blocked.ref == ref]
    return waits[-1] if waits else None
