"""What a live node reports about itself, to other nodes and to people. Pure.

Nothing relies on it for safety: it may be outdated by moments, and outlives a crash for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any, Final

import msgspec

from engine.app.actions import RequestApproval
from engine.app.actor import Actor, Expectation
from engine.app.checks import Breaker, kept_told
from engine.app.conditions import spelled
from engine.app.dedupe import ByEvent, ByPayload, ByValue
from engine.app.triggers import (
    Cron,
    EventSource,
    Every,
    ManualSource,
    Source,
    WorkflowSource,
    spec_of,
)
from engine.app.workflow_plan import Starter
from engine.cluster.modes import Switch
from streams.json import raw
from streams.model.foreign_streams import ForeignStream
from streams.model.modes import NodeMode
from streams.model.money import dollars
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget

INFO_BYTES_MAX: Final = 256 * 1024
"""Largest report of a node, in bytes. The server's own limit is four times that, and it is written
several times in the life of a lease.
"""

PROBLEMS_MAX: Final = 100
"""Most definitions with a problem that a node reports."""

PROBLEM_CHARS_MAX: Final = 300
"""Longest such line, in characters."""

PAYLOAD_SHOWN_BYTES_MAX: Final = 120
"""How much of a schedule's payload a node reports."""


_DEFAULTS: Final = [
    (each.name, each.default if each.default_factory is MISSING else each.default_factory())
    for each in fields(Expectation)
    if each.name != "name"
]

_EVENT: Final = "event "
"""Prefix of a trigger that is one of the stack's own events."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger by events of the stack, with its filter."""

    names: tuple[str, ...]
    filter: dict[str, Any] = {}
    """Path → the condition, as definitions spell it."""


class ExpectationInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One expectation, as a node's version of the app declares it."""

    triggers: tuple[str, ...] = ()
    """What fires it, such as `event order.placed`, `every 900s` or `manual`; a schedule's payload
    follows it."""
    schedules: tuple[str, ...] = ()
    """Those of them that fire by time."""
    options: dict[str, Any] = {}
    """Its other options, as far as they are set and are no code."""
    events: tuple[EventFilter, ...] | None = None
    """Its triggers by events, with their filters; None: the node's version does not say."""
    has_own_dedupe: bool = False
    """Whether a function of the user tells which events are the same cause."""


class ActorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One actor on one node."""

    runs: bool
    wakes: bool
    slots: int
    """How many of its episodes the node runs at a time, at most."""
    domain: str = ""
    description: str = ""
    spec_rev: str = ""
    revision: int = 0
    """Of the definition that the node runs it by; 0: its app declares it in code."""
    limits: dict[str, Any] = {}
    """What applies in the whole cluster, if anything does."""
    expectations: dict[str, ExpectationInfo] = {}
    workflow: str = ""
    """The workflow whose instances its triggers start; empty: it is a user's actor."""


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One live node."""

    name: str
    host: str
    pid: int
    version: str = ""
    """Of Vigil."""
    since: datetime
    """When it started."""
    mode: NodeMode
    """In force for actors without an entry of their own."""
    setting: NodeMode
    """The one that it was started with."""
    lease_s: float
    """Its leases lapse that long after it has died."""
    actors: dict[str, ActorInfo] = {}
    closed: dict[str, int] = {}
    """Actors that it does not have any more, and whose open episodes it continues: actor → how many
    of them it runs at a time, at most.
    """
    fallbacks: tuple[str, ...] = msgspec.field(default=(), name="understudies")
    """Those of `closed` that it could not run if they were open: it continues them only while no
    node can run them.
    """
    problems: dict[str, str] = {}
    """Why it cannot run what is defined: kind and id, such as `agent.disk_watch` → one line."""
    problems_at: dict[str, int] = {}
    """By the same names, the revision that each problem is about, as far as the node knows."""


_decoder: Final = msgspec.json.Decoder(NodeInfo)

# guard: escalations-seen
_SHOWN: Final = (Breaker, Budget, AdaptiveBudget, ServiceLevel, ByPayload, ByValue, Mapping)
"""Of the options that are no plain values, those that a text can show. Escalation is a mapping."""


def actor_info(actor: Actor, may: Switch) -> ActorInfo:
    """Return a node's report on `actor`, for which it may do what `may` says."""
    turns = {
        "max_concurrent_cluster": actor.max_concurrent_cluster,
        "overflow": actor.overflow,
        "queue_max": actor.queue_max,
    }
    spending = {each.per: dollars(each.usd) for each in actor.spending}
    kept = {} if actor.retention is None else kept_told(actor.retention)
    return ActorInfo(
        runs=may.runs,
        wakes=may.wakes,
        slots=actor.max_concurrent_episodes,
        domain=actor.domain,
        description=actor.description,
        spec_rev=actor.spec_rev,
        revision=actor.revision,
        limits={
            **(turns if actor.is_laned else {}),
            **({"spending": spending} if spending else {}),
            **({"retention": kept} if kept else {}),
        },
        expectations={name: _expectation(each) for name, each in actor.expectations.items()},
        workflow=actor.workflow if isinstance(actor, Starter) else "",
    )


def problems_told(problems: Mapping[str, str]) -> dict[str, str]:
    """Return as much of `problems` as a node reports: the first by name, each in one line."""
    first = sorted(problems.items())[:PROBLEMS_MAX]
    return {name: " ".join(problem.split())[:PROBLEM_CHARS_MAX] for name, problem in first}


def encoded(info: NodeInfo) -> bytes:
    """Return `info` as bytes; without expectations if they make it too long."""
    data = msgspec.json.encode(info)
    if len(data) <= INFO_BYTES_MAX:
        return data
    actors = {
        id_: msgspec.structs.replace(actor, expectations={}) for id_, actor in info.actors.items()
    }
    return msgspec.json.encode(msgspec.structs.replace(info, actors=actors))


def decoded(data: bytes) -> NodeInfo | None:
    """Return the report in `data`; None if this version cannot read it."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def capacity(nodes: Iterable[NodeInfo], actor: str) -> int:
    """Return how many episodes of `actor` the `nodes` can run at a time together."""
    return sum(_room(node, actor) for node in nodes)


def _room(node: NodeInfo, actor: str) -> int:
    info = node.actors.get(actor)
    if info is None:
        return node.closed.get(actor, 0)
    return info.slots if info.runs else 0  # guard: idle-mode-no-room


def is_woken(nodes: Iterable[NodeInfo], actor: str) -> bool:
    """Return whether any of `nodes` may wake `actor`."""
    return any(node.actors[actor].wakes for node in nodes if actor in node.actors)


def has_part(nodes: Iterable[NodeInfo], actor: str) -> bool:
    """Return whether any of `nodes` runs `actor`, or could if it were not disabled."""
    return any(_has_part(node, actor) for node in nodes)


def _has_part(node: NodeInfo, actor: str) -> bool:
    info = node.actors.get(actor)
    if info is not None:
        return info.runs  # guard: told-idle-keeps-nothing
    # guard: unrunnable-served-as-possible
    return actor in node.closed and actor not in node.fallbacks


def known(nodes: Iterable[NodeInfo], actor: str) -> Mapping[str, ExpectationInfo] | None:
    """Return the expectations of `actor` that any of `nodes` knows; None if none has the actor."""
    infos = [node.actors[actor] for node in nodes if actor in node.actors]
    if not infos:
        return None
    return {name: each for info in infos for name, each in info.expectations.items()}


def _expectation(expectation: Expectation) -> ExpectationInfo:
    return ExpectationInfo(
        triggers=tuple(text for source in expectation.on for text in trigger_texts(source)),
        schedules=tuple(spec_of(schedule) for schedule in expectation.schedules),
        options=dict(_options(expectation)),
        events=tuple(_filters(expectation)),
        has_own_dedupe=not isinstance(expectation.dedupe, ByEvent | ByPayload | ByValue),
    )


def _filters(expectation: Expectation) -> Iterable[EventFilter]:
    """Yield its triggers by events of the stack."""
    for source in expectation.on:
        if isinstance(source, EventSource) and source.foreign is None:
            spelled_ = {path: spelled(each) for path, each in source.filter.items()}
            yield EventFilter(names=source.names, filter=spelled_)


def trigger_texts(source: Source) -> tuple[str, ...]:
    """Return the texts of `ExpectationInfo.triggers` for `source`."""
    match source:
        case EventSource(foreign=ForeignStream() as foreign):
            return (f"stream {foreign.stream} {foreign.subject}",)
        case EventSource(names=names):
            return tuple(f"{_EVENT}{name}" for name in names)
        case Every(payload=payload) | Cron(payload=payload) if payload:
            shown = bytes(raw(payload))[:PAYLOAD_SHOWN_BYTES_MAX].decode(errors="ignore")
            return (f"{spec_of(source)} {shown}",)
        case Every() | Cron():
            return (spec_of(source),)
        case ManualSource():
            return ("manual",)
        case WorkflowSource():
            return ("workflow",)


def event_in(trigger: str) -> str | None:
    """Return the name of the event in a trigger's text; None for other triggers."""
    return trigger.removeprefix(_EVENT) if trigger.startswith(_EVENT) else None


def _question(asking: RequestApproval) -> Iterable[tuple[str, Any]]:
    """Yield what people are asked once a budget is used up, as definitions have it."""
    yield "grant", asking.plan or "as much again"
    if asking.approvers:
        yield "approvers", list(asking.approvers)
    for name in ("summary", "expires_s", "remind_every_s", "quorum"):
        if (value := getattr(asking, name)) and value is not msgspec.UNSET:
            yield name, value
    if asking.requester_may_approve is False:
        yield "requester_may_approve", False


def _options(expectation: Expectation) -> Iterable[tuple[str, Any]]:
    """Yield the options that are not the defaults, and that a text can show."""
    for name, default in _DEFAULTS:
        value = getattr(expectation, name)
        if value is default or value == default:
            continue
        if isinstance(value, str | int | float):
            yield name, value
        elif isinstance(value, RequestApproval):
            yield name, dict(_question(value))
        elif isinstance(value, _SHOWN) or _are_texts(value):
            yield name, msgspec.to_builtins(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
