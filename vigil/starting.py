"""Beginning instances of workflows, as a person asks for it, and waiting for their ends.

A request is durable once it is sent, and may still begin nothing. So whoever asks is not left with
the id of an instance that will never be: the episode that was to begin it is looked at, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from engine.app.tools import parse_step_overrides
from engine.app.workflow_starter import START_EXPECTATION, starter_id
from engine.errors import Refused
from engine.workflows import requests
from engine.workflows.instance import INSTANCE_ENDED, Instance
from streams.clock import SystemClock
from streams.json import JsonObject
from streams.model.triggers import Overrides
from streams.ports.all import Ports
from vigil import typed
from vigil.errors import Mistake, Trouble
from vigil.looking import look_at, require_in_force, require_plausible, waking_obstacle
from vigil.settings import Reading
from vigil.used import Use, use_of
from vigil.workflows import inquire

BEGIN_S: Final = 2.0
"""Longest look whether an instance begins, in seconds. A node that is free needs some hundredths
of one; where none is, the request waits, and whoever has made it need not."""

BEGIN_LOOK_S: Final = 0.05
"""Between two of those looks, in seconds."""

LOOK_S: Final = 0.2
"""Between two looks at an instance that is waited for, in seconds."""

_CLOCK: Final = SystemClock()


@dataclass(frozen=True, kw_only=True)
class Start:
    """What was typed to begin an instance."""

    workflow: str
    payload: JsonObject
    by: str
    reason: str
    key: str | None
    dry_run: bool
    overrides: Overrides | None = None
    step_overrides: Mapping[str, Overrides] | None = None


@dataclass(frozen=True, kw_only=True)
class Started:
    """An instance that was asked for, and that has begun or still may."""

    asked: Start
    """With a key."""
    is_key_typed: bool
    """Whether whoever asked has chosen the key, and would use it again."""
    instance_id: str
    obstacle: str
    """Why nothing comes of it now, in words; empty: something does."""
    used: Use | None = None
    """The earlier use of its key, so that nothing new comes of it; None: none is known."""


def step_overrides_of(text: str) -> dict[str, Overrides]:
    """Return the overrides of steps that `text` says; of `@file`, the file; of `-`, standard input.

    Raises:
        Mistake: it says none.
        Trouble: the file cannot be read.
    """
    try:
        return parse_step_overrides(typed.read(text, what="--step-overrides"))
    except ValueError as error:
        raise Mistake(f"--step-overrides: {error}") from error


def start(reading: Reading, asked: Start) -> Started:
    """Ask for an instance, and look for a moment whether it begins.

    Raises:
        Mistake: it cannot work.
        Trouble: a node is up, and nobody knows the workflow; or it was disabled; or none begins.
        Unavailable, Incompatible: the server cannot keep it.
    """
    is_key_typed = asked.key is not None
    asked = asked if is_key_typed else replace(asked, key=requests.new_key())

    async def done(ports: Ports) -> Started:
        starter, seen = starter_id(asked.workflow), await look_at(ports)
        await require_plausible(reading, ports, seen, starter)
        await require_in_force(ports, seen, starter)
        used = await use_of(ports, starter, START_EXPECTATION, asked.key, dry_run=asked.dry_run)
        instance_id = await requests.start_workflow(ports, **vars(asked))
        started = Started(
            asked=asked,
            is_key_typed=is_key_typed,
            instance_id=instance_id,
            obstacle="" if used is not None and used.is_over else waking_obstacle(seen, starter),
            used=used,
        )
        if not started.obstacle:
            await _wait_begun(ports, started)
        return started

    return inquire(reading, "", done)


def wait_end(reading: Reading, started: Started, *, timeout_s: float) -> Instance:
    """Return an instance that was asked for once it is over.

    Raises:
        Trouble: it is not after `timeout_s`, or has not even begun; or none begins.
        Unavailable, Incompatible: the log is away.
    """
    until_s, id_ = _CLOCK.monotonic_s() + timeout_s, started.instance_id

    async def ended(ports: Ports) -> Instance:
        while (
            instance := await _look(ports, started)
        ) is None or instance.phase not in INSTANCE_ENDED:
            if _CLOCK.monotonic_s() >= until_s:
                status = "not begun" if instance is None else instance.status.value
                raise Trouble(f"instance {id_} is still {status} after {timeout_s:g} s")
            await _CLOCK.sleep(LOOK_S)
        return instance

    return inquire(reading, id_, ended)


async def _wait_begun(ports: Ports, started: Started) -> None:
    """Return once the instance has begun, or nothing is known after `BEGIN_S`.

    Raises:
        Trouble: none begins, and why.
    """
    until_s = _CLOCK.monotonic_s() + BEGIN_S
    while not await _has_begun(ports, started) and _CLOCK.monotonic_s() < until_s:
        await _CLOCK.sleep(BEGIN_LOOK_S)


async def _look(ports: Ports, started: Started) -> Instance | None:
    """Return the instance as it is; None if it has not begun yet.

    Raises:
        Trouble: none begins, and why.
    """
    try:
        return await requests.read_instance(ports, started.instance_id)
    except Refused:
        await _has_begun(ports, started)
        return None


async def _has_begun(ports: Ports, started: Started) -> bool:
    """Return whether the instance has begun; if not, it still may.

    Raises:
        Trouble: none begins, and why.
    """
    asked = started.asked
    assert asked.key is not None, "who asks without one is given one"
    name, is_dry = asked.workflow, asked.dry_run
    said = await requests.read_beginning(ports, name, asked.key, dry_run=is_dry)
    if said.refused:
        # Its episode has ended, so the key stays without an instance, also when that one is over.
        is_spent = started.is_key_typed and said.busy_instance_id
        hint = " when this key was used; try another --key" if is_spent else ""
        raise Trouble(f"{name}: no instance begins: {said.refused}{hint}")
    return said.has_begun
