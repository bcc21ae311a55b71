"""Whether the tables say what folding the journal says (I6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

from engine.episodes.episode import Episode, Status, fold
from streams.jetstream import connect
from streams.layout import AGGREGATE_STREAMS, Kind
from streams.model.events import EndStatus, EpisodeFinished, FindingEvent, StepRecorded
from streams.model.findings import Finding
from streams.model.retention import RetentionField
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.subjects import Stack
from tests.standing import standing

Lives: TypeAlias = Mapping[tuple[Kind, str], Sequence[Recorded]]
"""The commits of every aggregate, oldest first, by what it is and its id or key."""

Row: TypeAlias = Mapping[str, Any]


async def journal(url: str) -> Lives:
    """Return all of journal and state as they stand, read from the beginning."""
    async with connect(url, stack=Stack()) as ports:
        return await lives_on(ports)


async def lives_on(ports: Ports) -> Lives:
    """Return the same of a log that is connected."""
    lives = defaultdict[tuple[Kind, str], list[Recorded]](list)
    for stream in AGGREGATE_STREAMS:
        for record in await standing(ports.log, stream):
            lives[ports.stack.aggregate_of(record.subject)].append(record)
    return lives


async def differences(connection: asyncpg.Connection, lives: Lives) -> list[str]:
    """Return every place where a table and the journal do not agree, in words.

    Episodes whose rows have left by a cut of retention have none at all.
    """
    async with connection.transaction(isolation="repeatable_read"):
        episodes = await connection.fetch("select * from vigil.episodes")
        steps = await connection.fetch("select * from vigil.episode_steps order by step_no")
        findings = await connection.fetch("select * from vigil.findings")
        cuts = await connection.fetch("select what, before from vigil.retention_cuts")
    there = {str(row["episode_id"]) for row in episodes}
    before = {row["what"]: row["before"] for row in cuts}
    left = {
        (kind, key): _left(life, before)
        for (kind, key), life in lives.items()
        if kind is Kind.EPISODE and key not in there
    }
    lives = {of: [] if left.get(of) else life for of, life in lives.items()}
    return [
        *_episodes_that_differ(episodes, lives),
        *_steps_that_differ(steps, lives),
        *_findings_that_differ(findings, lives),
    ]


def _left(life: Sequence[Recorded], before: Mapping[str, datetime]) -> bool:
    """Return whether an episode is done, and has ended before that was cut."""
    end = life[-1].commit
    is_done = any(
        isinstance(event, EpisodeFinished) and event.status is EndStatus.DONE
        for event in end.events
    )
    return is_done and RetentionField.DONE in before and end.at < before[RetentionField.DONE]


def _episodes_that_differ(rows: Sequence[Row], lives: Lives) -> Iterator[str]:
    found = {str(row["episode_id"]): row for row in rows}
    folded = {
        key: _episode_as_row(fold(life)) | {"journal_seq": life[-1].seq}
        for key, life in _of(Kind.EPISODE, lives)
        if life
    }
    yield from _keys_that_differ("episode", found.keys(), folded.keys())
    for key in found.keys() & folded.keys():
        yield from _columns_that_differ(f"episode {key}", found[key], folded[key])


def _episode_as_row(episode: Episode) -> dict[str, object]:
    assert episode.opened
    converged, finished = episode.converged, episode.finished
    return {
        "actor_id": episode.opened.actor_id,
        "expectation_id": episode.opened.expectation_id,
        "subject_id": episode.opened.trigger.entity_id or None,
        "status": "running" if episode.status is Status.CONVERGING else episode.status.value,
        "attempts": episode.attempts,
        "node": episode.node,
        "turns_used": finished.turns_used if finished else episode.turns_used,
        "tokens_used": episode.tokens_used,
        "summary": converged.summary or None if converged else None,
        "confidence": converged.confidence if converged else None,
        "error_class": finished.error_class or None if finished else None,
    }


def _steps_that_differ(rows: Sequence[Row], lives: Lives) -> Iterator[str]:
    shown = defaultdict(list)
    for row in rows:
        if row["state"] == "recorded":
            shown[str(row["episode_id"])].append((row["step_no"], row["kind"]))
    for key, life in _of(Kind.EPISODE, lives):
        taken = [(step.step_no, step.kind.value) for step in steps_of(life)]
        if taken != shown[key]:
            yield f"steps of {key}: {shown[key]} in the table, {taken} on the journal"


def steps_of(life: Sequence[Recorded]) -> list[StepRecorded]:
    """Return the recorded steps in the life of an episode."""
    return [e for record in life for e in record.commit.events if isinstance(e, StepRecorded)]


def _findings_that_differ(rows: Sequence[Row], lives: Lives) -> Iterator[str]:
    found = {(row["finding_key"], row["raise_no"]): row for row in rows}
    newest: dict[tuple[str, int], Finding] = {}
    for _, life in _of(Kind.FINDING, lives):
        for record in life:
            for event in record.commit.events:
                assert isinstance(event, FindingEvent)
                newest[event.finding.finding_key, event.finding.raise_no] = event.finding
    yield from _keys_that_differ("finding", found.keys(), newest.keys())
    for key in found.keys() & newest.keys():
        key_, raise_no = key
        is_superseded = (key_, raise_no + 1) in newest
        wanted = _finding_as_row(newest[key], is_superseded=is_superseded)
        yield from _columns_that_differ(f"finding {key}", found[key], wanted)


def _finding_as_row(finding: Finding, *, is_superseded: bool) -> dict[str, object]:
    return {
        "status": "superseded" if is_superseded else finding.status.value,
        "expires_at": finding.expires_at,
        "severity": finding.severity.value,
        "class": finding.class_,
        "subject_id": finding.subject_id or None,
        "raised_at": finding.raised_at,
        "cleared_at": finding.cleared_at,
    }


def _of(kind: Kind, lives: Lives) -> Iterator[tuple[str, Sequence[Recorded]]]:
    return ((key, life) for (each, key), life in lives.items() if each is kind)


def _keys_that_differ(
    what: str, found: AbstractSet[Any], folded: AbstractSet[Any]
) -> Iterator[str]:
    yield from (f"{what} {key} is not on the journal" for key in found - folded)
    yield from (f"{what} {key} has no row" for key in folded - found)


def _columns_that_differ(what: str, row: Row, folded: Row) -> Iterator[str]:
    for name, value in folded.items():
        if row[name] != value:
            yield f"{what}: {name} is {row[name]!r} in the table, {value!r} on the journal"
