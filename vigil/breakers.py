"""Circuit breakers, from the command line: closing one by hand."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from engine.cluster.nodes import known
from engine.episodes.breaker import BreakerState
from streams.errors import RevisionConflict
from streams.keys import breaker_key
from streams.ports.bucket import Bucket, Entry
from vigil.errors import Trouble
from vigil.looking import Look, look_at, require_expectation, require_plausible
from vigil.settings import Reading
from vigil.work import connected

TRIES_MAX: Final = 16
"""Most tries to close one that nodes are changing, too."""


def reset(reading: Reading, actor: str, expectation: str) -> str:
    """Close the circuit breaker of an expectation, and return one line about it.

    What it knows of the latest episodes is forgotten, so it opens again only after as many failures
    as its threshold says. A probe that runs counts as any other episode from now on.

    Raises:
        BadName: no actor or expectation can have such a name.
        Trouble: the nodes that are up know no such breaker, or keep it to themselves.
        Unavailable, Incompatible: the log is away.
    """

    async def done() -> str:
        async with connected(reading, creates=False) as ports:
            seen = await look_at(ports)
            await require_plausible(reading, ports, seen, actor)
            _require(seen, actor, expectation)
            was = await _close(ports.gates, breaker_key(actor, expectation))
            return f"{actor}, {expectation}: {was}"

    return asyncio.run(done())


async def _close(gates: Bucket, key: str) -> str:
    """Have the breaker at `key` be closed, and return what it was before, in words."""
    for _ in range(TRIES_MAX):
        entry = await gates.get(key)
        if entry is None:
            return "was closed already"
        try:
            await gates.delete(key, after=entry.revision)
        except RevisionConflict:
            continue
        return f"closed; it was {_in_words(entry)}"
    raise Trouble(f"nodes keep changing {key}; try again")


def _in_words(entry: Entry) -> str:
    try:
        state = msgspec.json.decode(entry.value or b"", type=BreakerState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "unreadable"
    since = f" since {state.opened_at:%Y-%m-%d %H:%M:%S} UTC" if state.opened_at else ""
    failed = f"; failed: {', '.join(state.failures)}" if state.failures else ""
    return f"{state.status.replace('_', ' ')}{since}{failed}"


def _require(seen: Look, actor: str, expectation: str) -> None:
    """Refuse what has no breaker that the cluster shares; without nodes, nobody can tell."""
    require_expectation(seen, actor, expectation)
    expectations = known(seen.nodes, actor)
    if not expectations:
        return
    rules = expectations[expectation].options.get("breaker")
    if rules is None:
        raise Trouble(f"{expectation} of actor {actor} has no circuit breaker")
    if rules.get("scope") == "node":
        raise Trouble(
            f'the circuit breaker of {expectation} has scope="node": each node has one of its own, '
            "which is closed again when that node is restarted"
        )
