"""`Driver`: runs the strategy of a claimed episode, from where its journal ends to convergence.

`Driver._turns` is the loop: ask the strategy, announce, perform, record. `WallTime` limits the
running time over all attempts and cuts user code off when it is used up or the episode is canceled.
Time that is spent waiting for the log does not count, and a write that is on its way to the journal
is never cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from engine.app.actions import (
    Checkpoint,
    Converge,
    Done,
    Pause,
    RequestApproval,
    SendOutput,
    Step,
    Synthesize,
    ToolCall,
    WaitFor,
    fingerprint,
)
from engine.app.tools import CallContext, Tool
from engine.episodes import dry_run, recovery
from engine.episodes.cancel import EpisodeRun
from engine.episodes.episode import (
    Announce,
    CancelEpisode,
    FailEpisode,
    Finish,
    Leave,
    Performed,
    find_loop,
    overspent,
)
from engine.episodes.writer import JournalWriter
from engine.errors import EpisodeFailed
from engine.execution.steps import OutputSteps, StepExecutor
from engine.execution.strategy import StrategyRunner, ended_early
from engine.findings.store import FindingReader
from engine.runtime.context import ActorContext
from engine.runtime.usercode import call, in_text
from engine.waits import answer as answers
from engine.waits import wait as blocking
from streams.clock import Clock
from streams.model.events import EpisodeConverged, EpisodeOpened, StepAnnounced
from streams.model.triggers import Mode
from streams.ports.log import Recorded

KEY_MARK_CHARS: Final = 16
"""How much of an action's fingerprint its idempotency key has: 64 bits, unique per turn."""

INIT: Final = "init"
"""Phase of the state that `Strategy.init` returned: stored, since it may have read the outside."""


class WallTime:
    """The running time of one attempt, on top of what earlier ones used."""

    def __init__(self, clock: Clock, *, limit_s: float, used_s: float) -> None:
        """Start counting; `limit_s` is over all attempts, 0 or less is no limit."""
        self.limit = clock.timeout(max(0.0, limit_s - used_s) if limit_s > 0 else None)
        """Cuts off the code within it, once the time is used up."""
        self._clock, self._limit_s = clock, limit_s
        self._since_s = clock.monotonic_s() - used_s
        self._is_still = False
        self._is_cut_off = False

    def used_s(self) -> float:
        """Return the seconds of running so far, over all attempts."""
        return self._clock.monotonic_s() - self._since_s

    def cut_off(self) -> None:
        """Cut off the code within the limit, now or right after the barrier."""
        self._is_cut_off = True
        if not self._is_still and not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time())

    async def standing_still(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for the log without using up time; fails if user code ignored an earlier cut."""
        if self.limit.expired():
            raise EpisodeFailed("budget_exceeded", f"wall_s: all {self._limit_s:g} used")
        began_s, ends_s = self._clock.monotonic_s(), self.limit.when()
        self.limit.reschedule(None)
        self._is_still = True
        try:
            await wait()
        finally:
            waited_s = self._clock.monotonic_s() - began_s
            self._since_s += waited_s
            self._is_still = False
            self.limit.reschedule(None if ends_s is None else ends_s + waited_s)
            if self._is_cut_off:
                self.cut_off()


class Leaving(Exception):
    """The node is stopping; the episode is at a barrier, and for another node."""


@dataclass
class Driver:
    """Runs one episode on one node under one claim."""

    context: ActorContext
    opened: EpisodeOpened
    journal: JournalWriter
    output_steps: OutputSteps
    run: EpisodeRun
    check_claim: Callable[[], None]
    """Raises `LeaseLost` once the claim cannot be trusted any more."""

    def __post_init__(self) -> None:
        context, opened, ports = self.context, self.opened, self.context.ports
        expectation = context.actor.expectations[opened.expectation_id]
        findings = FindingReader(ports.log, ports.stack, context.clock, opened)
        self.strategy_runner = StrategyRunner(expectation, opened, ports.stack.name, findings)
        self.executor = StepExecutor(
            context.app,
            context.actor,
            expectation,
            opened,
            context.clock,
            context.tool_calls,
            self.check_claim,
        )

    async def drive(self, records: Sequence[Recorded]) -> None:
        """Run the strategy until it ends or must wait, and record that; findings are not applied.

        `records` is the journal up to the writer's version.

        Raises:
            Leaving: the node is stopping; everything recorded is durable.
            LeaseLost: the claim ended before a side effect; the call was not made.
            VersionConflict: another node has the episode.
        """
        try:
            await self._within_wall_time(records)
        except Leaving:
            # Not within the wall time: what has been left can no longer fail.
            await self.journal.barrier()
            raise
        except EpisodeFailed as failed:
            end = self._end_of(failed)
            if isinstance(end, CancelEpisode):
                end = await self.output_steps.cancel(self.journal.episode, end)
            self.journal.record(end)
        await self.journal.barrier()

    def _end_of(self, failed: EpisodeFailed) -> CancelEpisode | FailEpisode:
        """Return how the episode ends: a requested cancellation wins over any failure."""
        if self.run.canceled is not None:
            return admitting(self.run.canceled, self.journal.episode.announced)
        error_class, detail = in_text(failed.error_class), in_text(failed.detail)
        denied = answers.denied(self.journal.episode, error_class, detail)
        settled = self.journal.episode.outputs_settled
        return denied or FailEpisode(error_class=error_class, error_detail=detail, outputs=settled)

    async def _within_wall_time(self, records: Sequence[Recorded]) -> None:
        wall_s, used_s = self.opened.budget.wall_s, self.journal.episode.wall_used_s
        wall = WallTime(self.context.clock, limit_s=wall_s, used_s=used_s)
        try:
            async with wall.limit:
                with self.run.interrupting(wall.cut_off):
                    self._check_canceled()
                    await self._turns(await self.strategy_runner.restore(records), wall)
        except TimeoutError:
            if not wall.limit.expired():
                raise
            self._check_canceled()
            raise EpisodeFailed("budget_exceeded", f"wall_s: all {wall_s:g} used") from None

    async def _turns(self, current: Any, wall: WallTime) -> None:
        while True:
            self._check_canceled()
            self._check_leaving()
            self._check_limits(wall)
            turn, tokens_used = self.journal.episode.turn, self.journal.episode.tokens_used
            action = await self.strategy_runner.next_step(
                current, turn=turn, tokens_used=tokens_used
            )
            match action:
                case Converge() | Done() if self.journal.episode.announced is not None:
                    raise ended_early(self.journal.episode.announced, action)
                case Converge():
                    return await self._converge(current, turn=turn, tokens_used=tokens_used)
                case Done():
                    return self._finish()
                case RequestApproval() | WaitFor() if self.opened.mode is Mode.LIVE:
                    return await self._block(current, action)
                case _:
                    current = await self._take(current, action, wall)

    def _check_canceled(self) -> None:
        if self.run.canceled is not None:
            raise EpisodeFailed(self.run.canceled.error_class, self.run.canceled.error_detail)

    def _check_leaving(self) -> None:
        if not self.context.may_go_on.is_given:
            self.journal.record(Leave(node=self.journal.episode.node))
            raise Leaving

    def _check_limits(self, wall: WallTime) -> None:
        episode, wall_s = self.journal.episode, wall.used_s()
        turns, tokens = episode.turns_used, episode.tokens_used
        spent = overspent(self.opened.budget, turns=turns, tokens=tokens, wall_s=wall_s)
        if spent:
            raise EpisodeFailed("budget_exceeded", spent)
        cycle = find_loop(episode.traces) if self.strategy_runner.expectation.loop_detection else ()
        if cycle:
            steps = ", ".join(mark[:12] for mark in cycle)
            raise EpisodeFailed("loop_detected", f"{len(cycle)} step(s) over and over: {steps}")

    async def _block(self, current: Any, action: Pause) -> None:
        """Block the episode, with its state in the same commit; then no node has it."""
        mark, announced = await call(fingerprint, action), self.journal.episode.announced
        if announced is not None:
            await self._repeat(announced, action, mark, None)
        block = await call(blocking.block_for, action, at=self.context.clock.now())
        self.journal.record(await self.strategy_runner.keep(current, phase=blocking.PHASE), block)

    async def _take(self, current: Any, action: Step, wall: WallTime) -> Any:
        if not self.journal.episode.checkpoints_kept:
            self.journal.record(await self.strategy_runner.keep(current, phase=INIT))
        acts = isinstance(action, ToolCall | Synthesize | SendOutput)
        if acts and not self.journal.is_fenced:
            # Another node may have done this step before; then the fence is refused.
            await self._barrier(wall)
        mark = await call(fingerprint, action)
        ctx = self._call_context(mark)
        await self._announce(action, ctx, mark, wall)
        if isinstance(action, SendOutput) and dry_run.delivers(self.opened):
            performed = await self._send(action, wall)
        else:
            performed = await self.executor.perform(action, ctx)
        self.journal.record(performed)
        step_no = self.journal.episode.steps_recorded
        current = await self.strategy_runner.handle(current, action, performed, step_no=step_no)
        if isinstance(action, Checkpoint):
            self.journal.record(await self.strategy_runner.keep(current, phase=action.phase))
        if self.strategy_runner.expectation.durability == "strict":
            await self._barrier(wall)
        return current

    async def _send(self, action: SendOutput, wall: WallTime) -> Performed:
        """Deliver an output without interruption: it has its own time limit."""
        episode = self.journal.episode
        if episode.announced is None:
            announcement = await self.output_steps.announcement(action, turn=episode.turn)
            self.journal.record(announcement)
            await self._barrier(wall)
            episode = self.journal.episode
        assert episode.announced is not None, "what is sent was announced"
        sent: list[Performed] = []
        key = episode.announced.output_key

        async def send() -> None:
            sent.append(await self.output_steps.send(action, key))

        await wall.standing_still(send)
        return sent[0]

    async def _barrier(self, wall: WallTime) -> None:
        """Wait until all is durable; after a cancellation nothing is done outside."""
        await wall.standing_still(self.journal.barrier)
        self._check_canceled()

    async def _announce(self, action: Step, ctx: CallContext, mark: str, wall: WallTime) -> None:
        tool, announced = self.executor.tool(action), self.journal.episode.announced
        if announced is not None:
            await self._repeat(announced, action, mark, tool)
        elif tool is not None and tool.side_effect and isinstance(action, ToolCall):
            name, key = f"{action.capability}.{action.action}", ctx.idempotency_key
            self.journal.record(Announce(fingerprint=mark, tool_name=name, idempotency_key=key))
            await self._barrier(wall)

    async def _repeat(
        self, announced: StepAnnounced, action: Step, mark: str, tool: Tool | None
    ) -> None:
        """Allow a side effect that a dead node announced, if it may be repeated."""
        await call(recovery.check_same, announced, asked=mark, action=action)
        if announced.output_key:  # Carried on, not made again.
            return
        if tool is None or not tool.idempotent:
            raise EpisodeFailed(
                "outcome_unknown",
                f"step {announced.step_no}, {announced.tool_name}: a node died during the call, and"
                " the tool does not say that it honours idempotency keys",
            )

    async def _converge(self, current: Any, *, turn: int, tokens_used: int) -> None:
        converged = await self.strategy_runner.converge(current, turn=turn, tokens_used=tokens_used)
        if converged.findings or converged.outputs:
            self.journal.record(converged)
        else:
            self._finish(converged)

    def _finish(self, *converged: EpisodeConverged) -> None:
        """End the episode; with unsettled outputs, only once those are settled."""
        episode = self.journal.episode
        if episode.outputs_left:
            self.journal.record(*(converged or (EpisodeConverged(),)))
        else:
            self.journal.record(*converged, Finish(outputs=episode.outputs_settled))

    def _call_context(self, mark: str) -> CallContext:
        opened, episode = self.opened, self.journal.episode
        key = f"{opened.episode_id}:{episode.turn}:{mark[:KEY_MARK_CHARS]}"
        if episode.announced is not None:  # Others may know it by the key it was announced with.
            key = episode.announced.idempotency_key
        return CallContext(
            actor_id=opened.actor_id,
            expectation_id=opened.expectation_id,
            episode_id=opened.episode_id,
            step_no=episode.steps_recorded + 1,
            idempotency_key=key,
            findings=self.strategy_runner.findings,
            hops=opened.trigger.hops,
        )


def admitting(canceled: CancelEpisode, announced: StepAnnounced | None) -> CancelEpisode:
    """Return `canceled` with a note that a side effect may have been cut off; outputs need none."""
    if announced is None or announced.output_key:
        return canceled
    begun = f"step {announced.step_no}, {announced.tool_name}, had been announced"
    detail = f"{canceled.error_detail}; {begun}, and nobody knows whether it happened"
    return replace(canceled, error_detail=detail)
