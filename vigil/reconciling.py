"""Reconciling from the command line: what stands is compared with what live nodes declare."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from engine.errors import BadRequest
from engine.operations.drift import REASON_MAX, Outcome, Step
from engine.operations.reconcile import Reconciled, reconcile
from engine.validation import BY_CHARS_MAX, check_text
from vigil.errors import Mistake
from vigil.looking import look_at, require_plausible
from vigil.settings import Reading
from vigil.tables import Row
from vigil.who import who
from vigil.work import connected

Reconcile: TypeAlias = Callable[[Sequence[str]], Reconciled]
"""Reconciles these actors, and returns what that took."""


def reconciled(
    reading: Reading, *, actors: Sequence[str], by: str | None, reason: str, is_dry: bool
) -> Reconciled:
    """Have what stands agree with what live nodes declare, and return what that took.

    Args:
        reading: the settings.
        actors: only these; none: all that a live node has.
        by: who wants it; None is whoever runs this program.
        reason: why; may be empty.
        is_dry: only find out.

    Raises:
        BadName: a name can be no actor's.
        Mistake: a value is impossible.
        Trouble: a node is up, and nobody knows one of the actors.
        UnreadableEvent: a newer version has written to the journal.
        Unavailable, Incompatible: the log is away. Reconciling again is safe.
    """
    name = who(reading, by)

    async def done() -> Reconciled:
        async with connected(reading, creates=False) as ports:
            seen = await look_at(ports)
            for actor in actors:
                await require_plausible(reading, ports, seen, actor)
            return await reconcile(
                ports, by=name, reason=reason, actors=actors or None, dry_run=is_dry
            )

    try:
        return asyncio.run(done())
    except BadRequest as error:
        raise Mistake(str(error)) from error


def reconciler(reading: Reading, *, by: str | None, reason: str) -> Reconcile:
    """Return what reconciles actors later on. What it would refuse then is refused now.

    Raises:
        Mistake: a value is impossible.
    """
    name = who(reading, by)
    try:
        check_text("by", name, least=1, most=BY_CHARS_MAX)
        check_text("reason", reason, least=0, most=REASON_MAX)
    except BadRequest as error:
        raise Mistake(str(error)) from error
    return lambda actors: reconciled(reading, actors=actors, by=name, reason=reason, is_dry=False)


def row_of(step: Step) -> Row:
    """Return a step as a row."""
    return {
        "action": step.action.name,
        "actor_id": step.action.actor_id,
        "expectation_id": step.action.expectation_id,
        "about": step.action.about,
        "outcome": step.outcome.value,
    }


def as_report(done: Reconciled, *, is_dry: bool) -> Row:
    """Return all of it as programs read it."""
    return {
        **done.counts,
        "overtaken": _overtaken(done),
        "left": done.left,
        "dry_run": is_dry,
        "nodes": done.nodes,
        "actors": done.compared,
        "skipped": done.skipped,
        "actions": [row_of(each) for each in done.steps],
    }


def report_of(actor: str, done: Reconciled) -> Row:
    """Return what became of one actor, as programs read it."""
    own = replace(
        done,
        steps=[each for each in done.steps if each.action.actor_id == actor],
        compared=[each for each in done.compared if each == actor],
        skipped={each: why for each, why in done.skipped.items() if each == actor},
    )
    return as_report(own, is_dry=False)


def in_words(done: Reconciled) -> str:
    """Return one line about what came of it."""
    if not done.nodes:
        return "nothing to do: no node is up that says what is declared"
    if not done.steps:
        actors = ", ".join(done.compared) or "no actor"
        return f"nothing to do: all that stands is declared ({actors})"
    words = [f"{name} {count:,}" for name, count in done.counts.items()]
    if overtaken := _overtaken(done):
        words.append(f"changed meanwhile by others {overtaken:,}")
    if done.left:
        words.append(f"left {done.left:,}: reconcile again")
    return ", ".join(words)


def _overtaken(done: Reconciled) -> int:
    return sum(each.outcome is Outcome.OVERTAKEN for each in done.steps)
