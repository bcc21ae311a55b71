"""People who decide what they are asked: rightly, wrongly, twice, two at once, late, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from engine.errors import Refused, Rejected
from engine.outputs.output import fold
from streams.errors import Unavailable, VersionConflict
from streams.model.commands import Decide, Verdict
from streams.model.waits import Approval
from streams.ports.all import Ports
from tests.simulation.time import EPOCH
from vigil.ports import ApprovalTarget, decide_request

TRIES_MAX: Final = 60
AGAIN_S: Final = 1.5
"""Longer than any replica lags."""

REFUSALS_MAX: Final = 2
LATE_S: Final = (-0.5, 4.0)
"""How long after the expiry somebody decides who is late, or nearly so."""

STRANGER: Final = "mallory"
"""Who decides though it is not theirs to."""

ANYBODY: Final = ("ada", "bob", "cyd")
"""Who decides where anybody may."""

YES_SHARE: Final = 0.7


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What people are asked: by an episode, or about one of its outputs."""

    actor_id: str
    episode_id: str
    approval: Approval
    step_no: int = 0
    output_key: str = ""

    @property
    def who(self) -> tuple[str, ...]:
        """Return names of people who may decide, and have not approved yet."""
        return undecided(self.approval)


def undecided(approval: Approval) -> tuple[str, ...]:
    """Return names of people who may decide, and have not approved yet."""
    given = {each.by for each in approval.given}
    return tuple(each for each in approval.approvers or ANYBODY if each not in given)


async def decide(ports: Ports, request: Request, rng: Random) -> None:
    """Decide in one of many ways; what does not expire is decided in the end."""
    ways = [_rightly, _say, _twice, _wrongly, _together]
    if request.approval.expires_at is not None:
        ways += [_late, _never]
    await rng.choice(ways)(ports, request, rng)


async def surely(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask until it is stored, or refused again: at first a replica may not know of it yet."""
    refusals = 0
    for _ in range(TRIES_MAX):
        with suppress(Unavailable):
            try:
                await ask()
            except (Refused, Rejected, VersionConflict):
                refusals += 1
            else:
                return
        if refusals == REFUSALS_MAX:
            return
        await asyncio.sleep(AGAIN_S)


async def _rightly(ports: Ports, request: Request, rng: Random) -> None:
    await asyncio.sleep(rng.uniform(0.0, 7.0))
    await _say(ports, request, rng)


async def _twice(ports: Ports, request: Request, rng: Random) -> None:
    """Tell one decision two times, in messages of different ids."""
    await asyncio.sleep(rng.uniform(0.0, 5.0))
    decision = await _decision(ports, request, rng)
    for copy in ("one", "two"):
        await _send(ports, decision, id_=f"{copy}.{decision.id}")
        await asyncio.sleep(rng.uniform(0.0, 3.0))


async def _wrongly(ports: Ports, request: Request, rng: Random) -> None:
    """Decide what is not asked, or though it is not theirs to; and then perhaps as it should be."""
    await asyncio.sleep(rng.uniform(0.0, 2.0))
    right = await _decision(ports, request, rng)
    wrong = [replace(right, plan_hash="0" * 64)]
    if request.approval.approvers:
        wrong.append(replace(right, by=STRANGER))
    if request.approval.given:  # Nobody counts twice.
        again = request.approval.given[-1].by
        wrong.append(replace(right, by=again, verdict=Verdict.APPROVE))
    if request.step_no:
        wrong.append(replace(right, step_no=request.step_no + 1))
    for number, decision in enumerate(wrong):
        id_ = f"{number}{right.id}"
        await _send(ports, replace(decision, id=id_), id_=f"decide.{id_}")
    if request.approval.expires_at is None or rng.random() < YES_SHARE:
        await _rightly(ports, request, rng)


async def _together(ports: Ports, request: Request, rng: Random) -> None:
    """Have two people decide at the same time, each in their own way."""
    await asyncio.sleep(rng.uniform(0.0, 5.0))
    minds = [Random(rng.random()) for _ in range(2)]
    await asyncio.gather(*(_say(ports, request, mind) for mind in minds))


async def _late(ports: Ports, request: Request, rng: Random) -> None:
    expires_at = request.approval.expires_at
    assert expires_at is not None, "what can be late expires"
    await asyncio.sleep(max(0.0, _left_s(expires_at) + rng.uniform(*LATE_S)))
    await _say(ports, request, rng)


async def _never(ports: Ports, request: Request, rng: Random) -> None:
    """Say nothing."""


async def _say(ports: Ports, request: Request, rng: Random) -> None:
    """Decide as the product offers it, again and again until that is stored or refused."""
    by, verdict = rng.choice(request.who), "approve" if rng.random() < YES_SHARE else "deny"
    key, mark = request.output_key, request.approval.plan_hash
    target = ApprovalTarget("output", key) if key else ApprovalTarget("episode", request.episode_id)
    await surely(partial(decide_request, ports, target, verdict, plan_hash=mark, by=by))


async def _send(ports: Ports, decision: Decide, *, id_: str) -> None:
    await surely(partial(ports.commands.send, decision, id=id_))


async def _decision(ports: Ports, request: Request, rng: Random) -> Decide:
    key, seen = request.output_key, list[int]()

    async def look() -> None:
        output = fold(await ports.log.read(ports.stack.output(key)))
        seen.append(output.round_no)
        if output.pending is None:
            raise Refused("it asks nobody: a replica lags, or somebody has decided")

    if key:
        await surely(look)
    return Decide(
        actor_id=request.actor_id,
        episode_id=request.episode_id,
        id=UUID(int=rng.getrandbits(128)).hex,
        verdict=rng.choice(list(Verdict)),
        plan_hash=request.approval.plan_hash,
        by=rng.choice(request.who),
        step_no=request.step_no,
        output_key=key,
        round_no=seen[-1] if seen else 0,
    )


def _left_s(at: datetime) -> float:
    return (at - EPOCH).total_seconds() - asyncio.get_running_loop().time()
