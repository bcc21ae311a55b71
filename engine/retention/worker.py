"""Lets go what is old: one node at a time, every hour.

    declare ──▶ is a run due? ──lease──▶ read what is kept and held ──▶ each step ──▶ note it

Its steps know nothing of each other. One that fails is named in the report, and the others follow;
the next run does what is left. What a step does is safe to do twice, so the lease is for thrift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
import structlog

from engine import telemetry
from engine.app.actor import Actor
from engine.retention.cut_rows import CutRows
from engine.retention.keep_results import KeepResults
from engine.retention.rules import is_due
from engine.retention.step import RetentionRun, RetentionStep, StepReport
from engine.retention.store import declare, is_wanted, read_state
from engine.runtime.leases import Keeper
from streams.clock import Clock
from streams.errors import LeaseLost, StreamError
from streams.json import UNDECODABLE
from streams.keys import RETENTION
from streams.model.retention import Retention
from streams.ports.all import Ports
from streams.ports.bucket import Bucket

EVERY_S: Final = 3_600.0
"""Between two runs, in seconds: times are cut to the hour at the finest."""

LOOK_S: Final = 60.0
"""Between two looks of a node, in seconds: has it other actors, is a run due?"""

STEPS: Final[Sequence[RetentionStep]] = (CutRows(), KeepResults())
"""What a run does, in this order."""

log = structlog.get_logger("vigil.retention")


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has done."""

    at: datetime
    """When it began."""
    by: str
    took_s: float
    steps: Sequence[StepReport]

    @property
    def problems(self) -> Sequence[str]:
        """What could not be done, and why."""
        return [f"{each.step}: {each.problem}" for each in self.steps if each.problem]


async def last_run(gates: Bucket) -> RunReport | None:
    """Return what the last run has done; None: there was none, or nobody knows."""
    entry = await gates.get(RETENTION)
    if entry is None or entry.value is None:
        return None
    try:
        return msgspec.json.decode(entry.value, type=RunReport)
    except UNDECODABLE:
        return None


async def run_steps(
    ports: Ports,
    *,
    by: str,
    clock: Clock,
    check: Callable[[], None],
    is_dry: bool = False,
    steps: Sequence[RetentionStep] = STEPS,
) -> RunReport:
    """Do each of `steps`, and note it. With `is_dry` nothing is changed.

    Raises:
        LeaseLost: `check` says so.
    """
    now, began_s = clock.now(), clock.monotonic_s()
    state = await read_state(ports, clock=clock)
    run = RetentionRun(
        ports=ports, clock=clock, by=by, now=now, state=state, is_dry=is_dry, check=check
    )
    reports = [await _step(each, run) for each in steps]
    report = RunReport(at=now, by=by, took_s=clock.monotonic_s() - began_s, steps=reports)
    if not is_dry:
        await ports.gates.put(RETENTION, msgspec.json.encode(report))
        _measure(report)
    return report


async def _step(step: RetentionStep, run: RetentionRun) -> StepReport:
    run.check()
    try:
        return await step.run(run)
    except LeaseLost:
        raise
    except StreamError as error:  # guard: failed-step-stops-no-other
        log.warning("could not let go all that is old", step=step.name, error=str(error))
        return StepReport(step=step.name, problem=str(error) or type(error).__name__)


def _measure(report: RunReport) -> None:
    telemetry.retention_duration.record(report.took_s)
    for step in report.steps:
        labels = {"step": step.step}
        if step.problem:
            telemetry.retention_failures.add(1, labels)
        for what, count in step.gone.items():
            telemetry.retention_gone.add(count, {**labels, "what": what})


@dataclass
class RetentionWorker:
    """The part of a node that declares how long things are kept, and lets go what is old."""

    ports: Ports
    node: str
    keeper: Keeper
    """Its clock is that of the node."""
    actors: Callable[[], Mapping[str, Actor]]
    """Those of the node, as they are now."""
    stack: Retention | None = None
    """What the settings of the node say; None: nothing."""
    steps: Sequence[RetentionStep] = STEPS
    _declared: Mapping[str, Retention] = field(default_factory=dict, init=False)
    _has_declared: bool = field(default=False, init=False)
    _idle_at: datetime | None = field(default=None, init=False)
    """When it last found that everything is kept for ever."""

    async def follow(self) -> None:
        """Declare what is new, and run when that is due, for ever."""
        while True:
            await self.declare()
            await self.keeper.clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> RunReport | None:
        """Return what a run has done; None: none was due, or not here."""
        now = self.keeper.clock.now()
        if not is_due(self._idle_at, now=now, every_s=EVERY_S):
            return None
        last = await last_run(self.ports.gates)
        if last is not None and not is_due(last.at, now=now, every_s=EVERY_S):
            return None
        if not await is_wanted(self.ports, clock=self.keeper.clock):
            self._idle_at = now
            return None
        return await self._run()

    async def declare(self) -> None:
        """Note on the log what this node and its actors say, unless it has been noted."""
        actors = {
            id_: each.retention for id_, each in self.actors().items() if each.retention is not None
        }
        stack = None if self._has_declared else self.stack
        news = {id_: each for id_, each in actors.items() if self._declared.get(id_) != each}
        if stack is not None or news:
            await declare(
                self.ports, node=self.node, stack=stack, actors=news, clock=self.keeper.clock
            )
        self._declared, self._has_declared = actors, True

    async def _run(self) -> RunReport | None:
        held = await self.keeper.acquire(RETENTION, on_lost=lambda: None)
        if held is None:  # guard: one-retention-run
            return None
        try:
            return await run_steps(
                self.ports,
                by=self.node,
                clock=self.keeper.clock,
                check=partial(self.keeper.check, held),
                steps=self.steps,
            )
        except LeaseLost as error:
            log.warning("leaves the rest to another node", node=self.node, why=str(error))
            return None
        finally:
            await self.keeper.complete(held)
