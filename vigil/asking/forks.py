"""Forks of episodes, also with a settled call: opened on the journal, and followed in the rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from engine.episodes.episode import fold
from engine.episodes.fork import fork
from streams.json import JsonObject
from streams.model.triggers import Overrides
from streams.ports.all import Ports
from vigil.asking.requests import request, say_begun, waiting
from vigil.asking.rows import report_begun, wait_end
from vigil.asking.stack import read_stack, running_obstacle
from vigil.errors import Trouble
from vigil.settings import Config


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

    async def forked(ports: Ports) -> str:
        return await fork(
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

    origin = {"forked_from": forked_id, "forked_at_step": asked.at}
    _open(config, forked_id, forked, origin, wait_s=wait_s, is_json=is_json)


@dataclass(frozen=True, kw_only=True)
class SettleRequest:
    """What is asked of `engine.operations.settle.settle`."""

    episode_id: UUID
    settlement: str
    by: str
    reason: str
    result: object
    call: str


def open_settled(
    config: Config, asked: SettleRequest, *, wait_s: float | None = None, is_json: bool = False
) -> None:
    """Open the fork that goes on after a settled call, as `open_fork` does."""
    from engine.operations.settle import settle

    settled_id = str(asked.episode_id)

    async def settled(ports: Ports) -> str:
        return await settle(
            ports,
            settled_id,
            asked.settlement,
            by=asked.by,
            reason=asked.reason,
            result=asked.result,
            call=asked.call,
        )

    origin = {"forked_from": settled_id, "settled": asked.settlement}
    _open(config, settled_id, settled, origin, wait_s=wait_s, is_json=is_json)


def _open(
    config: Config,
    forked_id: str,
    opened: Callable[[Ports], Awaitable[str]],
    origin: JsonObject,
    *,
    wait_s: float | None,
    is_json: bool,
) -> None:
    async def send(ports: Ports) -> tuple[str, str, str]:
        before = fold(await ports.log.read(ports.stack.episode(forked_id))).opened
        if before is None:
            raise Trouble(f"no episode {forked_id} on the journal of stack {ports.stack.name}")
        id_ = await opened(ports)
        return id_, before.actor_id, running_obstacle(await read_stack(ports), before.actor_id)

    id_, actor, obstacle = request(config, send)
    row = None
    with waiting(f"it goes on; `vigil episodes tail {id_}` shows how far it is"):
        say_begun(actor, id_, used=None, obstacle=obstacle, is_json=is_json)
        if wait_s is not None:
            row = wait_end(config, id_, timeout_s=wait_s)
    report_begun({"episode_id": id_, "actor_id": actor, **origin}, row, is_json=is_json)
