"""Deciding on a request for approval: look at it, ask that it be decided, see what came of that.

The decision is a durable command. It is checked on the journal before it is sent, and a node checks
it again; between the two somebody else may decide, or the time may run out. So whoever decides
looks at the journal until the request is decided, and is told whose decision it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from engine.errors import BadRequest, Refused
from engine.outputs.requests import approve_output, reject_output
from engine.waits.approval import problem_of_decision
from engine.waits.requests import approve, deny
from streams.clock import SystemClock
from streams.model.commands import Decide, Verdict
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.subjects import Stack
from vigil.approvals import Request, owner_of, requests
from vigil.errors import Mistake, Trouble
from vigil.outcomes import Outcome, Sent, Stand, watch
from vigil.settings import Reading
from vigil.who import stranger_hint
from vigil.work import connected

HASH_DIGITS_MIN: Final = 8
"""Fewest hex digits that say which plan is meant."""

HASH_DIGITS_MAX: Final = 64
"""Those of a whole SHA-256."""

_CLOCK: Final = SystemClock()


class Kind(StrEnum):
    """What may ask people."""

    EPISODE = "episode"
    OUTPUT = "output"


@dataclass(frozen=True, kw_only=True)
class Matter:
    """What a decision is about."""

    kind: Kind
    name: str
    """An episode's id, or an output's key."""

    def __str__(self) -> str:
        """Return it as errors call it."""
        return f"{self.kind} {self.name!r}" if self.kind is Kind.OUTPUT else f"episode {self.name}"

    def subject(self, stack: Stack) -> str:
        """Return where its journal is."""
        at = stack.episode if self.kind is Kind.EPISODE else stack.output
        return at(self.name)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request that waits, and whose it is."""

    matter: Matter
    actor_id: str
    episode_id: str
    request: Request


def check_hash(hash_: str) -> None:
    """Refuse what cannot be the beginning of a plan's hash.

    Raises:
        Mistake: it is too short or too long, or no hex.
    """
    digits = hash_.lower()
    if not HASH_DIGITS_MIN <= len(hash_) <= HASH_DIGITS_MAX or set(digits) - set(
        "0123456789abcdef"
    ):
        raise Mistake(f"--hash: {hash_!r} is not {HASH_DIGITS_MIN} to {HASH_DIGITS_MAX} hex digits")


def require_hash(asked: Asked, hash_: str) -> None:
    """Refuse a decision on another plan than the one that waits.

    Raises:
        Trouble: says what the plan's hash is.
    """
    require_digits(str(asked.matter), asked.request.approval.plan_hash, hash_)


def require_digits(what: str, plan_hash: str, hash_: str) -> None:
    """Refuse `hash_` unless it is the beginning of the hash of what is asked.

    Raises:
        Trouble: says what the plan's hash is.
    """
    if not plan_hash.startswith(hash_.lower()):
        raise Trouble(f"{what} waits for a decision on another plan: {plan_hash}")


def look(reading: Reading, matter: Matter, *, by: str) -> Asked:
    """Return the request of `matter` that waits for a decision.

    Args:
        reading: the settings.
        matter: what asks.
        by: who is to decide.

    Raises:
        Trouble: it is not there, or asks nothing; or it was decided: says how; or this one may
            not decide it, or not any more.
        BadName: no output can have this key.
        UnreadableEvent: a newer version has written it.
        Unavailable, Incompatible: the log is away.
    """
    asked = asyncio.run(_look(reading, matter))
    approval = asked.request.approval
    wanted = Decide(
        actor_id=asked.actor_id,
        episode_id="",
        id="",
        verdict=Verdict.APPROVE,
        plan_hash=approval.plan_hash,
        by=by,
    )
    problem = problem_of_decision(approval, wanted, at=_CLOCK.now())
    if problem is not None:
        raise Trouble(f"{matter}: {problem}{stranger_hint(approval.approvers, by)}")
    return asked


def decide(
    reading: Reading,
    asked: Asked,
    verdict: Verdict,
    *,
    by: str,
    reason: str,
    wait_s: float | None,
) -> Outcome:
    """Have a request decided, and return what came of that.

    Args:
        reading: the settings.
        asked: the request, as somebody saw it: a decision is about no other.
        verdict: what is decided.
        by: who does.
        reason: why.
        wait_s: as for `watch`.

    Raises:
        Mistake: a value is impossible.
        Trouble: the decision cannot stand.
        Unavailable, Incompatible: the log is away.
    """

    async def done() -> Outcome:
        async with connected(reading, creates=False) as ports:
            id_ = await _send(ports, asked, verdict, by=by, reason=reason)
            sent = Sent(
                name=asked.matter.name,
                actor_id=asked.actor_id,
                episode_id=asked.episode_id,
                subject=asked.matter.subject(ports.stack),
                stand=partial(_stand, asked.request.number, id_),
            )
            (outcome,) = await watch(ports, [sent], wait_s=wait_s)
            return outcome

    return asyncio.run(done())


async def _look(reading: Reading, matter: Matter) -> Asked:
    async with connected(reading, creates=False) as ports:
        records = await ports.log.read(matter.subject(ports.stack))
    if not records:
        hint = f"`vigil {matter.kind}s list` shows those that there are"
        raise Trouble(f"no {matter} in stack {reading.stack.name}; {hint}")
    found = requests(records)
    if not found:
        raise Trouble(f"{matter} does not ask for approval")
    newest = found[-1]
    if newest.decision is not None:
        raise Trouble(f"{matter} does not wait any more: {newest.decision.in_words}")
    actor_id, episode_id = owner_of(records)
    return Asked(matter=matter, actor_id=actor_id, episode_id=episode_id, request=newest)


async def _send(ports: Ports, asked: Asked, verdict: Verdict, *, by: str, reason: str) -> str:
    name, hash_ = asked.matter.name, asked.request.approval.plan_hash
    approves = verdict is Verdict.APPROVE
    try:
        if asked.matter.kind is Kind.EPISODE:
            settle = approve if approves else deny
            return await settle(ports, name, plan_hash=hash_, by=by, reason=reason)
        settle_output = approve_output if approves else reject_output
        return await settle_output(ports, name, payload_hash=hash_, by=by, reason=reason)
    except BadRequest as error:
        raise Mistake(str(error)) from error
    except Refused as error:
        raise Trouble(f"{asked.matter}: {error}") from error


def _stand(number: int, id_: str, records: Sequence[Recorded]) -> Stand | None:
    """Return how the request of this number was decided, and whether the decision `id_` did it."""
    decided = [each.decision for each in requests(records) if each.number == number]
    if not decided or decided[-1] is None:
        return None
    decision = decided[-1]
    if decision.id == id_:
        return Stand(f"{decision.outcome} by {decision.by}", is_wanted=True)
    return Stand(f"another decision stands: {decision.in_words}", is_wanted=False)
