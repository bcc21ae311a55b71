"""Beginning instances of workflows, as a person asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from console import typed
from console.errors import Mistake
from console.looking import look_at, require_in_force, require_plausible, waking_obstacle
from console.settings import Reading
from console.workflows import inquire
from engine.overrides import parse_step_overrides
from engine.runtime import workflow_requests as requests
from engine.workflows.starter import starter_id
from streams.json import JsonObject
from streams.ports import Ports
from streams.triggers import Overrides


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
    """An instance that was asked for."""

    instance_id: str
    obstacle: str
    """Why nothing comes of it now, in words; empty: something does."""


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
    """Ask for an instance.

    Raises:
        Mistake: it cannot work.
        Trouble: a node is up, and nobody knows the workflow; or it was disabled.
        Unavailable, Incompatible: the server cannot keep it.
    """

    async def done(ports: Ports) -> Started:
        starter, seen = starter_id(asked.workflow), await look_at(ports)
        await require_plausible(reading, ports, seen, starter)
        await require_in_force(ports, seen, starter)
        instance_id = await requests.start_workflow(ports, **vars(asked))
        return Started(instance_id=instance_id, obstacle=waking_obstacle(seen, starter))

    return inquire(reading, "", done)
