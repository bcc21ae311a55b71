"""Forks of episodes: opened on the journal, and followed in the rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

import typer

from engine.episodes.episode import fold
from engine.episodes.fork import fork
from streams.clock import SystemClock
from streams.json import JsonObject
from streams.model.events import EndStatus
from streams.model.triggers import Overrides
from streams.ports.all import Ports
from vigil.asking.requests import request, say_begun, waiting
from vigil.asking.rows import ask, wait_ended
from vigil.asking.stack import read_stack, running_obstacle
from vigil.errors import EXIT_TROUBLE, Trouble
from vigil.printing import tables
from vigil.settings import Config

_CLOCK = SystemClock()


@dataclass(frozen=True, kw_only=True)
class ForkRequest:
    """What is asked of `engine.episodes.fork.fork`."""

    episode_id: UUID
    at: int
    by: str
    reason: str
    payload: JsonObject | None
    key: str | None
    is_dry: bool
    overrides: Overrides | None


def open_fork(
    config: Config, asked: ForkRequest, *, wait_s: float | None = None, is_json: bool = False
) -> None:
    """Open the fork and print its id; with `wait_s`, wait so long for its end and print that."""
    forked_id = str(asked.episode_id)

    async def send(ports: Ports) -> tuple[str, str, str]:
        origin = fold(await ports.log.read(ports.stack.episode(forked_id))).opened
        if origin is None:
            raise Trouble(f"no episode {forked_id} on the journal of stack {ports.stack.name}")
        id_ = await fork(
            ports,
            forked_id,
            at=asked.at,
            by=asked.by,
            reason=asked.reason,
            payload=asked.payload,
            key=asked.key,
            dry_run=asked.is_dry,
            overrides=asked.overrides,
        )
        return id_, origin.actor_id, running_obstacle(await read_stack(ports), origin.actor_id)

    id_, actor, obstacle = request(config, send)
    row = None
    with waiting(f"it goes on; `vigil episodes tail {id_}` shows how far it is"):
        say_begun(actor, id_, used=None, obstacle=obstacle, is_json=is_json)
        if wait_s is not None:
            until_s = _CLOCK.monotonic_s() + wait_s
            ended = partial(wait_ended, stack=config.stack, episode_id=UUID(id_))
            row = ask(config, partial(ended, until_s=until_s, timeout_s=wait_s))
    if is_json:
        origin = {"forked_from": forked_id, "forked_at_step": asked.at}
        said = {"episode_id": id_, "actor_id": actor, **origin}
        print(tables.as_json({**said, **(row or {})}))
    elif row is not None:
        detail = str(row["error_detail"] or "").splitlines()[-1:]
        words = (row["status"], row["error_class"], *detail, row["summary"])
        print(": ".join(str(each) for each in words if each))
    if row is not None and row["status"] != EndStatus.DONE:
        raise typer.Exit(EXIT_TROUBLE)
