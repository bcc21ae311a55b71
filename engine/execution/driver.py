"""`Driver`: runs the strategy of a claimed episode, from where its journal ends to convergence.

The strategy, a function or a class, calls for its turns; `EpisodeTurns` checks, announces, performs
and records each step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from engine.agents.unit import (
    AGENT_BYTES_MAX,
    LIMIT_THE_ANSWER,
    LIMITED_AGENT,
    LIMITED_MODEL,
    MESSAGES_BYTES_MAX,
    MESSAGES_HERE_BYTES_MAX,
    PromptToKeep,
    RequestSize,
    Unit,
    UnitOutcome,
)
from engine.app.actions import (
    Pause,
    ReportFindings,
    RequestApproval,
    SendOutput,
    Sleep,
    StartEpisode,
    Step,
    Synthesize,
    ToolCall,
    fingerprint,
)
from engine.app.tools import CallContext, Tool, retry_s
from engine.children import rules as children
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes import dry_run, results
from engine.episodes.attempt import Attempt, AttemptState
from engine.episodes.episode import (
    Announce,
    CancelEpisode,
    Command,
    Episode,
    FailEpisode,
    Finish,
    Leave,
    Performed,
    attempt_at,
    find_loop,
    overspent,
    pause_after,
)
from engine.episodes.redaction import answer_bytes_max
from engine.episodes.settle import REMEDY
from engine.episodes.writer import JournalWriter
from engine.errors import (
    CALL_TIMEOUT,
    CRASH,
    OUTCOME_UNKNOWN,
    BudgetExceeded,
    EpisodeFailed,
    InvalidAction,
    ReplayDiffers,
)
from engine.execution import exhausted, report
from engine.execution.deltas import DeltaWriter
from engine.execution.parts import ActorParts
from engine.execution.report import FindingReports
from engine.execution.steps import SIDE_EFFECT, OutputSteps, StepExecutor, shown_args
from engine.findings.store import FindingReader
from engine.functions.begin import begin
from engine.functions.history import History, history_of
from engine.functions.result import conclusion
from engine.functions.run import OWN_TIMEOUT, Rest, StrategyRun
from engine.runtime.objects import best_effort
from engine.secrets import hide, without
from engine.spending.episode import EpisodeSpending
from engine.spending.prices import Prices
from engine.usercode.call import call, in_text
from engine.usercode.cancel_scope import Canceled, CancelScope
from engine.usercode.wall_time import WallTime
from engine.validation import KEPT_BYTES_MAX
from engine.waits import answer as answers
from engine.waits import grant, parked
from engine.waits import wait as blocking
from engine.waits.approval import request_of
from engine.workflows.budget import of_share
from streams.json import NOTHING, raw, unraw
from streams.model.events import (
    EpisodeConverged,
    KeptJson,
    KeptPrompt,
    StepAnnounced,
    StepKind,
    StoredResult,
    requester_of,
)
from streams.model.money import NO_USD
from streams.model.triggers import EpisodeTrigger, Mode, WorkflowTrigger
from streams.ports.log import Recorded

T = TypeVar("T")

UNKNOWN_OVERRIDE: Final = "unknown_override"
"""Error class of a dry run with an override for a tool that is not there."""

REMEDY_OF_TOOL: Final = "keep the tool until no open episode has a call of it under way"

UNLIMITED_ANSWER: Final = "unlimited_answer"
"""Error class of a model whose answers may cost anything, where a limit in dollars applies."""

AGENT_TOO_LARGE: Final = (
    'on_change="old" keeps the instructions and the tools of the agent, which are {:,} bytes of'
    f" JSON: at most {AGENT_BYTES_MAX:,} can be kept"
)

KEY_MARK_CHARS: Final = 16
"""How much of an action's fingerprint its idempotency key has: 64 bits, unique per turn."""


class Leaving(Exception):
    """The node is stopping; the episode is for another node."""


@dataclass
class EpisodeTurns:
    """The turns of one attempt."""

    parts: ActorParts
    attempt: Attempt
    journal: JournalWriter
    output_steps: OutputSteps
    reports: FindingReports

    holds_sleeps = True
    """Whether a short sleep is waited for."""

    def __post_init__(self) -> None:
        self.context = context = self.parts.context
        self.opened = self.attempt.opened
        self.about = context.ports.stack.episode(self.opened.episode_id)
        self.clock = clock = context.clock
        self.waits_for_people = self.opened.mode is Mode.LIVE
        """Whether approvals, waits and sleeps are real; a dry run answers them itself."""
        self.executor = StepExecutor(
            context.app,
            context.actor,
            context.actor.expectations[self.opened.expectation_id],
            self.opened,
            clock,
            context.tool_calls,
            self.attempt.claim,
            self.attempt.calling,
        )
        self.scope = CancelScope(clock)
        wall_s, used_s = self.opened.budget.wall_s, self.journal.episode.wall_used_s
        self.wall = WallTime(clock, self.scope, limit_s=wall_s, used_s=used_s)
        self.findings = FindingReader(self.parts.finding_index, clock, self.opened)
        limits = (self.opened.budget.usd, context.actor.spending, context.app.spending)
        self.spending: EpisodeSpending | None = None
        """None: no limit in dollars applies."""
        if any(limits):
            self.spending = EpisodeSpending(context, self.opened, lambda: self.journal.episode)
        self._costs: dict[str, Decimal | None] = {}
        """Path → what its request has cost, which is recorded, until it is settled."""

    @property
    def steps_recorded(self) -> int:
        """How many steps the episode has recorded."""
        return self.journal.episode.steps_recorded

    def record(self, *commands: Command) -> None:
        """Record what is done, and how long the episode has run by now."""
        # guard: recorded-says-running-time
        self.journal.record(*commands, wall_used_s=self.wall.used_s())

    def announced_at(self, path: str) -> StepAnnounced | None:
        """Return what was announced at `path` and is not recorded; None: nothing."""
        episode = self.journal.episode
        if path in episode.children:
            return episode.children[path]
        return next((each for each in episode.announced if each.path == path), None)

    def shown(self, action: ToolCall) -> msgspec.Raw:
        """Return the arguments of a call as people may see them."""
        executor = self.executor
        return shown_args(
            action, executor.app.tool(executor.actor, action.capability, action.action)
        )

    def note_replayed(self, action: Step, result: object) -> None:
        """Note what people must not see of a step that another attempt has recorded."""
        self.executor.note_replayed(action, result)

    def request_for(self, exceeded: BudgetExceeded) -> RequestApproval | None:
        """Return what people are asked where a call does not fit in the budget; None: nobody is."""
        asking = self.executor.expectation.on_exhausted
        # guard: dry-run-is-granted-nothing
        if not self.waits_for_people or not isinstance(asking, RequestApproval):
            return None
        return grant.request_for(asking, self.journal.episode, exceeded)

    def check(self, *, begun: int = 0) -> None:
        """Raise what keeps the episode from another turn: `EpisodeFailed` or `Leaving`.

        `begun`: how many turns of other branches are not recorded yet.
        """
        self._check_leaving()
        self._check_limits(begun)

    async def take(
        self, action: Step, mark: str, *, path: str, also: Sequence[Command] = ()
    ) -> Performed:
        """Announce, perform and record `action`, and return its result; `settle` is to follow.

        `mark` is its fingerprint, and `path` says where the strategy asks for it; `also` is
        recorded in the same commit.
        """
        acts = isinstance(action, ToolCall | Synthesize | SendOutput | ReportFindings)
        is_fenced = self.attempt.state is AttemptState.FENCED
        if acts and not is_fenced:  # guard: no-outside-step-before-fence
            # Another node may have done this step before; then the fence is refused.
            await self.barrier()
        ctx = self._call_context(mark, path)
        await self._announce(action, ctx, mark, path)
        is_reserved = False
        if isinstance(action, Synthesize) and self.spending is not None:
            sizes = self.executor.request_sizes(action)
            is_reserved = await self._reserve(sizes, mark, path=path)
        if isinstance(action, SendOutput) and dry_run.delivers(self.opened):
            performed = await self._send(action, path)
        elif isinstance(action, ReportFindings) and dry_run.keeps_findings(self.opened):
            performed = await self._report(action, path)
        else:
            performed = await self.executor.perform(action, ctx)
        retry_s = self._retry_s(action, performed, ctx, path) if performed.error_class else 0.0
        performed = replace(performed, path=path, retry_s=retry_s)
        if performed.retry_s and self.waits_for_people:  # guard: pause-end-in-failed-commit
            also = (*also, self._pause_begun(performed))
        await self.keep(performed, *also)
        if is_reserved:
            self._costs[path] = performed.cost_usd
        return performed

    async def make(self, unit: Unit, *, path: str) -> Performed:
        """Make and record what an agent does, and return its result; `settle` is to follow."""
        if self.attempt.state is not AttemptState.FENCED:  # guard: no-part-before-fence
            await self.barrier()
        sizes = () if unit.size is None else (unit.size,)
        # First what may refuse the request: what is reserved for it would stay so.
        kept = await self.wall.paused_while(partial(self._kept, unit))
        is_reserved = await self._reserve(sizes, unit.mark, path=path, agent=unit.name)
        self.attempt.claim.check()
        started_s = self.clock.monotonic_s()
        made = await self._made(unit, path)
        cost_ms = round((self.clock.monotonic_s() - started_s) * 1000)
        key = self._call_context(unit.mark, path).idempotency_key
        prices = Prices(self.context.app.prices)
        performed = performed_unit(unit, made, path=path, key=key, cost_ms=cost_ms, prices=prices)
        self.executor.measure(performed)
        await self.keep(replace(performed, prompt=kept))
        if is_reserved:
            self._costs[path] = performed.cost_usd
        return performed

    async def keep(self, performed: Performed, *also: Command) -> None:
        """Record a step, and put its result into the object store if it is large.

        `also` is recorded in the same commit.
        """
        is_large = len(memoryview(performed.result)) > KEPT_BYTES_MAX  # guard: journal-result-max
        self.record(await self._stored(performed) if is_large else performed, *also)

    async def _kept(self, unit: Unit) -> KeptPrompt | None:
        """Put what is to be kept of a request where it is kept, and return where that is."""
        if unit.kept is None:
            return None
        kept = await call(unit.kept)
        messages = None if kept.messages is None else await self._kept_messages(kept.messages)
        return KeptPrompt(agent=await self._kept_agent(kept), after=kept.after, messages=messages)

    async def _kept_agent(self, kept: PromptToKeep) -> KeptJson | None:
        data = bytes(kept.agent)
        if len(data) > AGENT_BYTES_MAX:  # guard: kept-agent-max
            if kept.is_needed:
                too_large = AGENT_TOO_LARGE.format(len(data))
                raise EpisodeFailed(InvalidAction.error_class, too_large)
            return None
        put = partial(self.context.lasting.put, data)
        # guard: needed-agent-put
        digest = await (put() if kept.is_needed else self._if_there(put))
        if digest is None:
            return KeptJson(was_away=True)
        return KeptJson(stored=StoredResult(digest=digest, size_bytes=len(data)))

    async def _kept_messages(self, messages: msgspec.Raw) -> KeptJson | None:
        secrets = self.executor.hidden
        # guard: kept-prompt-hides-calls
        shown = raw(hide(unraw(messages), secrets)) if secrets else messages
        size = len(memoryview(shown))
        if size <= MESSAGES_HERE_BYTES_MAX:
            return KeptJson(json=shown)
        if size > MESSAGES_BYTES_MAX:  # guard: kept-messages-max
            return None
        put = partial(results.store, self.context.ports.objects, shown, about=self.about)
        stored = await self._if_there(put)
        return KeptJson(was_away=True) if stored is None else KeptJson(stored=stored)

    async def _if_there(self, put: Callable[[], Awaitable[T]]) -> T | None:
        return await best_effort(put, self.context.store_outage, self.clock)

    async def _reserve(
        self, sizes: Sequence[RequestSize], mark: str, *, path: str, agent: str = ""
    ) -> bool:
        """Take the most that a request can cost, where a limit in dollars applies.

        `sizes` has one for each model that may be asked in turn: one that fails may be billed, too.
        `agent` is who asks; empty: a synthesizer.
        """
        spending = self.spending
        if not sizes or spending is None:
            return False
        prices = [_worst_case(spending, each, agent) for each in sizes]
        known = [usd for usd in prices if usd is not None]
        if not known:
            return False
        usd = sum(known, NO_USD)  # guard: each-model-reserved
        await self.wall.paused_while(partial(spending.reserve, usd, path=path))
        announced = self.announced_at(path)
        # guard: other-reservation-announced
        if announced is None or (announced.fingerprint, announced.reserved_usd) != (mark, usd):
            key = self._call_context(mark, path).idempotency_key
            self.record(
                Announce(
                    fingerprint=mark,
                    tool_name=agent,
                    idempotency_key=key,
                    path=path,
                    reserved_usd=usd,
                )
            )
            await self.barrier()  # guard: reservation-durable-first
        return True

    async def _made(self, unit: Unit, path: str) -> UnitOutcome:
        if self.opened.mode is Mode.LIVE or unit.kind is StepKind.MODEL_REQUEST:
            key = f"{self.opened.episode_id}:{path}"
            shown_max = answer_bytes_max(self.opened.log_strategy)
            if not unit.streams or not shown_max:  # guard: quiet-episode-tells-no-deltas
                return await unit.make(key, None)
            return await self._told(unit, key, self._deltas(path, shown_max))
        # guard: dry-run-agent-tools
        return UnitOutcome(
            error_class=SIDE_EFFECT,
            error_detail=f"{unit.name}: nobody knows whether it changes anything; in a dry run an"
            " agent calls tools of vigil.agents.toolset alone",
        )

    def _deltas(self, path: str, shown_max: int) -> DeltaWriter:
        return DeltaWriter(
            self.context.ports.deltas,
            self.clock,
            self.opened.episode_id,
            path=path,
            attempt=self.journal.episode.attempts,
            shown_max=shown_max,
        )

    async def _told(self, unit: Unit, key: str, deltas: DeltaWriter) -> UnitOutcome:
        """Return what `unit` brings, of which people are told before it is there."""
        async with deltas.open():
            made = await unit.make(key, deltas)
            if not made.error_class:
                deltas.done()
            return made

    def time_out(self, action: Step, *, path: str) -> Performed:
        """Record that a timeout of the function's own has cut `action` off.

        Raises `EpisodeFailed` if nobody knows whether it has had a side effect.
        """
        announced = self.announced_at(path)
        if announced is not None and announced.is_call:  # guard: cut-side-effect-not-done
            raise EpisodeFailed(
                OUTCOME_UNKNOWN,
                f"{_where(announced)}, {announced.tool_name}: a timeout of the function's own has"
                " cut off a call that has begun; give the tool a `timeout_s` instead",
            )
        asked = self.executor.asked(action)
        timed_out = replace(asked, error_class=CALL_TIMEOUT, error_detail=OWN_TIMEOUT, path=path)
        self.record(timed_out)  # guard: timed-out-call-recorded
        if self.spending is not None:
            self.spending.forget(path)  # guard: cut-off-request-counts-once
        return timed_out

    def _pause_begun(self, failed: Performed) -> Announce:
        """Return, for the commit of a failed attempt, when the pause after it ends."""
        pause = Sleep(failed.retry_s)
        until = self.clock.now() + timedelta(seconds=pause.seconds)
        path = pause_after(failed.path)
        return blocking.sleep_until(until, fingerprint(pause), path)

    def start_child(
        self, action: StartEpisode, mark: str, *, path: str, group: str, begun: int
    ) -> Performed | None:
        """Announce a child, which the reactor then asks for; or record why there is none."""
        opened, episode = self.opened, self.journal.episode
        used_s = self.wall.used_s()
        taken = NO_USD if self.spending is None else self.spending.taken_usd
        left = children.left_of(
            episode, episode.budget, begun=begun, wall_used_s=used_s, usd_taken=taken
        )
        actors = self.context.catalog.actors
        left = children.kept_for(action, left, actors=actors)
        call_key = self._call_context(mark, path).idempotency_key
        key = children.key_of(action, opened.episode_id, call_key)
        stack = self.context.ports.stack.name
        child = children.child_of(action, opened, key=key, left=left, group=group, stack=stack)
        announced = Announce(
            fingerprint=mark,
            tool_name=children.name_of(action),
            idempotency_key=key,
            path=path,
            child=child,
        )
        try:
            children.check(opened, episode, announced, actors=actors)
        except children.CannotStart as error:
            refused = children.refused(action, error, mark, path=path)
            self.record(refused)
            return refused
        self.record(announced)
        return None

    async def fetch(self, stored: StoredResult) -> msgspec.Raw:
        """Return a result from the object store; fails the episode if it is not there any more."""
        objects = self.context.ports.objects
        fetch = partial(results.fetch_again, objects, stored, about=self.about)
        return await self.wall.paused_while(fetch)

    async def block(
        self,
        action: Pause | StartEpisode,
        *,
        at: datetime,
        path: str,
        ahead: tuple[str, ...] = (),
        for_children: bool = False,
    ) -> None:
        """Block the episode until `action`, asked for `at` that time, is answered.

        `ahead` are the references that other branches wait for meanwhile; `for_children`: branches
        wait for children, too.
        """
        mark = await call(fingerprint, action)
        block = await call(blocking.block_for, action, at=at, requester=requester_of(self.opened))
        if isinstance(action, RequestApproval) and block.approval is not None:
            request = request_of(self.opened, action, mark=mark)
            block = replace(block, approval=replace(block.approval, request=request))
        self.record(replace(block, path=path, ahead=ahead, for_children=for_children))

    async def settle(self, path: str = "") -> None:
        """Settle what the step at `path` has cost, and all within it.

        Returns once the last step is durable where the expectation wants that. Where it is cut off
        it may be called again: what is recorded stays so.
        """
        within = f"{path}."
        costs = {
            each: usd
            for each, usd in self._costs.items()
            if each == path or each.startswith(within)
        }
        if costs:
            await self.wall.paused_while(partial(self._settle, costs))
        if self.executor.expectation.durability == "strict":  # guard: strict-step-durable-at-once
            await self.barrier()

    async def settle_all(self) -> None:
        """Settle what is recorded and not settled, such as where that was cut off."""
        if self._costs:
            await self._settle(dict(self._costs))

    async def _settle(self, costs: Mapping[str, Decimal | None]) -> None:
        """Put what requests have cost, by their paths, in the place of what was reserved."""
        assert self.spending is not None, "what is settled was reserved"
        await self.journal.barrier()  # guard: cost-recorded-then-settled
        for path, usd in costs.items():
            await self.spending.settle(path, usd)
            self._costs.pop(path, None)  # Another task may have settled it meanwhile.

    def check_canceled(self) -> None:
        """Raise `EpisodeFailed` if the episode is to be canceled."""
        if self.attempt.canceled is not None:
            raise EpisodeFailed(
                self.attempt.canceled.error_class, self.attempt.canceled.error_detail
            )

    def _check_leaving(self) -> None:
        if not self.context.may_go_on.is_given:  # guard: mode-withdraws-episode
            raise Leaving

    def _check_limits(self, begun: int) -> None:
        episode, wall_s = self.journal.episode, self.wall.used_s()
        turns, tokens = episode.turns_used + begun, episode.tokens_used
        spent = overspent(
            self.opened.budget,
            turns=turns,
            tokens=tokens,
            wall_s=wall_s,
            usd=episode.usd_used,
            granted=episode.granted,
        )
        if spent is not None:
            raise spent
        cycle = find_loop(episode.traces) if self.executor.expectation.loop_detection else ()
        if cycle:
            steps = ", ".join(map(str, cycle))
            raise EpisodeFailed("loop_detected", f"{len(cycle)} step(s) over and over: {steps}")

    async def _send(self, action: SendOutput, path: str) -> Performed:
        """Deliver an output without interruption: it has its own time limit."""
        if self.announced_at(path) is None:
            announcement = await self.output_steps.announcement(action, turn=path)
            self.record(replace(announcement, path=path))
            await self.barrier()
        announced = self.announced_at(path)
        assert announced is not None, "what is sent was announced"
        send = partial(self.output_steps.send, action, announced.output_key)
        return await self.wall.paused_while(send)

    async def _report(self, action: ReportFindings, path: str) -> Performed:
        """Apply findings without interruption, as announced."""
        is_new = self.announced_at(path) is None
        if is_new:
            episode = self.journal.episode
            announcement = await call(report.announcement, action, episode, self.opened)
            self.record(replace(announcement, path=path))
        await self.barrier()
        announced = self.announced_at(path)
        assert announced is not None, "what is reported was announced"
        apply = partial(self.reports.apply, announced, is_new=is_new)
        return await self.wall.paused_while(apply)

    async def _stored(self, performed: Performed) -> Performed:
        """Return a step without its result, once the object store has that."""
        objects = self.context.ports.objects
        store = partial(results.store, objects, performed.result, about=self.about)
        stored = await self.wall.paused_while(store)
        return replace(performed, result=NOTHING, stored=stored)

    async def barrier(self) -> None:
        """Wait until all is durable; after a cancellation nothing is done outside."""
        await self.wall.paused_while(self.journal.barrier)
        self.check_canceled()

    async def _announce(self, action: Step, ctx: CallContext, mark: str, path: str) -> None:
        tool, announced = self.executor.tool(action), self.announced_at(path)
        if announced is not None:
            self._check_repeatable(announced, tool)
        # guard: side-effect-announced-first
        elif tool is not None and tool.side_effect and isinstance(action, ToolCall):
            name, key = f"{action.capability}.{action.action}", ctx.idempotency_key
            self.record(Announce(fingerprint=mark, tool_name=name, idempotency_key=key, path=path))
            await self.barrier()  # guard: announcement-durable-first

    def _check_repeatable(self, announced: StepAnnounced, tool: Tool | None) -> None:
        """Raise `EpisodeFailed` for a side effect of a dead node that may not be repeated."""
        if not announced.is_call:  # Carried on, not made again.
            return
        if tool is None:  # guard: gone-tool-parks
            raise ReplayDiffers(
                f"{_where(announced)}, {announced.tool_name}: a node died during the call, and this"
                f" node has no such tool, or not with these arguments; {REMEDY_OF_TOOL}"
            )
        if not tool.idempotent:  # guard: real-unknown-outcome-not-repeated
            raise EpisodeFailed(
                OUTCOME_UNKNOWN,
                f"{_where(announced)}, {announced.tool_name}: a node died during the call, and the"
                " tool does not say that it honours idempotency keys",
            )

    def _retry_s(self, action: Step, failed: Performed, ctx: CallContext, path: str) -> float:
        """Return the pause before the next attempt at a call or synthesis; 0: there is none."""
        retries = self.executor.retries(action)
        _, attempt = attempt_at(path)
        # guard: attempts-counted
        return retry_s(
            retries,
            failed.error_class,
            attempt=attempt,
            key=ctx.idempotency_key,
            after_s=failed.retry_s,
        )

    def _call_context(self, mark: str, path: str) -> CallContext:
        opened, episode = self.opened, self.journal.episode
        call_path, _ = attempt_at(path)
        # guard: idempotency-key-of-one-call
        key = f"{opened.episode_id}:{call_path}:{mark[:KEY_MARK_CHARS]}"
        again = opened.fork.again if opened.fork is not None else None
        # guard: settled-call-first-key
        if again is not None and (again.call, again.fingerprint) == (call_path, mark):
            key = again.idempotency_key
        announced = self.announced_at(path)
        # guard: announced-call-keeps-key
        if announced is not None:  # Others may know it by the key it was announced with.
            key = announced.idempotency_key
        return CallContext(
            actor_id=opened.actor_id,
            expectation_id=opened.expectation_id,
            episode_id=opened.episode_id,
            step_no=episode.steps_recorded + 1,
            idempotency_key=key,
            findings=self.findings,
            hops=opened.trigger.hops,
        )


@dataclass
class Driver:
    """Runs the strategy of one attempt."""

    parts: ActorParts
    attempt: Attempt
    journal: JournalWriter
    output_steps: OutputSteps
    reports: FindingReports

    def __post_init__(self) -> None:
        self.context, self.opened = self.parts.context, self.attempt.opened
        self.turns = EpisodeTurns(
            self.parts, self.attempt, self.journal, self.output_steps, self.reports
        )
        self._strategy_run: StrategyRun | None = None

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
            self.turns.record(Leave(node=self.journal.episode.node))
            await self.journal.barrier()
            raise
        except ReplayDiffers as differs:
            await self._park(differs, records)
        except BudgetExceeded as exceeded:
            declared = self.turns.executor.expectation.budget.usd
            await self._end(of_share(exceeded, self.opened, declared), records)
        except EpisodeFailed as failed:
            await self._end(failed, records)
        await self.journal.barrier()

    async def _park(self, differs: ReplayDiffers, records: Sequence[Recorded]) -> None:
        """Leave the episode to other code; end it if it may not wait for that, or not any more."""
        episode, now = self.journal.episode, self.context.clock.now()
        own_past = self.opened.fork.step_no if self.opened.fork is not None else -1
        may_wait = self.opened.mode is Mode.LIVE and self.attempt.canceled is None
        # Who has just made a fork is there to make another one.
        if not may_wait or episode.steps_recorded <= own_past or parked.is_over(episode, at=now):
            await self._end(differs, records)
            return
        how = in_text(without(differs.detail, await self._secrets(records)))
        park_s = self.turns.executor.expectation.park_s
        code = self.context.codes[self.opened.expectation_id]
        self.turns.record(parked.block(episode, how, code=code, at=now, park_s=park_s))

    async def _end(self, failed: EpisodeFailed, records: Sequence[Recorded]) -> None:
        await self.turns.settle_all()  # guard: cost-settled-before-end
        if any(each.findings for each in self.journal.episode.announced):
            self.turns.record(*await self.reports.settle())
        try:
            return self._conclude(await self._partial_result(failed))
        except EpisodeFailed as final:
            end = self._end_of(final, await self._secrets(records))
        # guard: unknown-outcome-is-letter
        if isinstance(end, FailEpisode) and end.error_class == OUTCOME_UNKNOWN:
            dead_letters = DeadLetterWriter(self.context.ports, self.context.clock)
            detail = f"{end.error_detail}; {REMEDY.format(self.opened.episode_id)}"
            await dead_letters.write_episode(self.opened, reason=end.error_class, detail=detail)
        if isinstance(end, CancelEpisode):
            end = await self.output_steps.cancel(self.journal.episode, end)
        return self.turns.record(end)

    async def _partial_result(self, failed: EpisodeFailed) -> EpisodeConverged:
        """Return the result of a used up budget; raise `failed` if there is none."""
        expectation, episode = self.turns.executor.expectation, self.journal.episode
        on_exhausted = expectation.on_exhausted
        if on_exhausted is None or not isinstance(failed, BudgetExceeded):
            raise failed
        if not callable(on_exhausted):
            raise grant.not_granted(failed, episode)
        run = self._strategy_run
        # guard: exhausted-without-state-fails
        if run is None or not run.has_state:
            raise failed
        if self.attempt.canceled is not None or exhausted.has_cut_off(episode):
            raise failed
        await self.journal.barrier()
        context, version = self.context, self.journal.version
        ended = exhausted.ExhaustedEpisode(
            context.ports,
            context.clock,
            self.opened,
            self.turns.findings,
            version,
            episode.reported,
        )
        return await ended.converge(on_exhausted, failed, run.state)

    async def _secrets(self, records: Sequence[Recorded]) -> Collection[str]:
        """Return what was hidden in the steps: the code that got it may quote it in an error."""
        executor = self.turns.executor
        try:
            # guard: next-node-hides-secrets
            return executor.hidden | await call(executor.secrets_in, records)
        except EpisodeFailed:  # A newer version of a tool cannot hide what an older one returned.
            return executor.hidden

    def _end_of(
        self, failed: EpisodeFailed, secrets: Collection[str]
    ) -> CancelEpisode | FailEpisode:
        """Return how the episode ends: a requested cancellation wins over any failure."""
        if self.attempt.canceled is not None:
            return admitting(self.attempt.canceled, self.journal.episode)
        # guard: strategy-error-hides-secrets
        error_class, detail = in_text(failed.error_class), in_text(without(failed.detail, secrets))
        denied = answers.denied(self.journal.episode, error_class, detail)
        settled = self.journal.episode.outputs_settled
        return denied or FailEpisode(error_class=error_class, error_detail=detail, outputs=settled)

    async def _within_wall_time(self, records: Sequence[Recorded]) -> None:
        wall, name = self.turns.wall, f"episode {self.opened.episode_id}"
        with wall.counting(), self.attempt.running(wall):
            self.turns.check_canceled()
            try:
                await self.turns.scope.run(self._run(records), name=name)
            except Canceled:
                self.turns.check_canceled()
                used_up = f"all {self.opened.budget.wall_s:g} used"
                raise BudgetExceeded("wall_s", used_up) from None

    async def _run(self, records: Sequence[Recorded]) -> None:
        if self.turns.spending is not None:
            settle = partial(self.turns.spending.settle_recorded, records)
            await self.turns.wall.paused_while(settle)  # guard: recorded-settled-by-next
        run, ctx = await call(self._begin, records)
        self._strategy_run = run
        ended = await run.to_the_end(ctx, self.opened.trigger)
        if isinstance(ended, Rest):
            return await self.turns.block(
                ended.action,
                at=ended.since,
                path=grant.path_of(self.journal.episode) if ended.is_grant else ended.path,
                ahead=ended.ahead,
                for_children=ended.for_children,
            )
        converged = await call(self._result, ended)
        return self._finish() if converged is None else self._conclude(converged)

    def _check_overrides(self) -> None:
        """Raise `EpisodeFailed` if an override that a person gave is for no tool of the app."""
        given, trigger = self.opened.overrides, self.opened.trigger
        # Those of a workflow or a parent are for all of its episodes, those of other apps as well.
        if given is None or isinstance(trigger, WorkflowTrigger | EpisodeTrigger):
            return
        # guard: misspelt-override-refused
        if problem := self.context.app.problem_of_overrides(given):
            raise EpisodeFailed(UNKNOWN_OVERRIDE, problem)

    async def _begin(self, records: Sequence[Recorded]) -> tuple[StrategyRun, object]:
        self._check_overrides()
        history = history_of(records)
        if not records:  # guard: restart-knows-tokens-used
            history = History(tokens_before=self.journal.episode.tokens_used)
        expectation, stack = self.turns.executor.expectation, self.context.ports.stack.name
        episode = self.journal.episode
        is_same = bool(episode.code) and episode.code == episode.code_before
        opened, turns = self.opened, self.turns
        return await begin(expectation, history, opened, turns, stack=stack, is_same_code=is_same)

    def _result(self, returned: object) -> EpisodeConverged | None:
        converged = conclusion(returned)
        if converged is None:
            return None
        known = self.journal.episode.reported
        return dry_run.set_apart(converged, self.opened, reported=known)

    def _conclude(self, converged: EpisodeConverged) -> None:
        if converged.findings or converged.outputs:
            self.turns.record(converged)
        else:
            self._finish(converged)

    def _finish(self, *converged: EpisodeConverged) -> None:
        """End the episode; with unsettled outputs, only once those are settled."""
        episode = self.journal.episode
        if episode.outputs_left:  # guard: done-awaits-outputs
            self.turns.record(*(converged or (EpisodeConverged(),)))
        else:
            self.turns.record(*converged, Finish(outputs=episode.outputs_settled))


def _worst_case(spending: EpisodeSpending, size: RequestSize, agent: str) -> Decimal | None:
    if size.output_tokens_max is None:  # guard: limited-money-limited-answer
        how = LIMITED_AGENT if agent else LIMITED_MODEL
        told = f"{agent or size.model}: {LIMIT_THE_ANSWER}: {how}"
        raise EpisodeFailed(UNLIMITED_ANSWER, told)
    return spending.worst_case(size.model, size.bytes_in, size.output_tokens_max)


def performed_unit(
    unit: Unit, made: UnitOutcome, *, path: str, key: str, cost_ms: int, prices: Prices
) -> Performed:
    """Return `unit`, at `path`, as a step with what it has brought; `key` varies its pauses."""
    retry_after_s = 0.0
    if made.error_class and made.error_class != CRASH:  # guard: broken-model-not-repeated
        _, attempt = attempt_at(path)
        after_s = made.retry_after_s  # guard: provider-hint-awaited
        retry_after_s = retry_s(
            unit.retries, made.error_class, attempt=attempt, key=key, after_s=after_s
        )
    return Performed(
        kind=unit.kind,
        fingerprint=unit.mark,
        tool_name=unit.name,
        args=unit.args,
        result=made.result,
        result_shown=made.shown,
        error_class=made.error_class,
        error_detail=in_text(made.error_detail),
        cost_tokens=made.input_tokens + made.output_tokens,
        input_tokens=made.input_tokens,
        output_tokens=made.output_tokens,
        cached_tokens=made.cached_tokens,
        reasoning_tokens=made.reasoning_tokens,
        cost_usd=_cost_of(unit, made, prices),
        agent=unit.agent,
        cost_ms=cost_ms,
        model=in_text(made.model),
        path=path,
        retry_s=retry_after_s,
    )


def _cost_of(unit: Unit, made: UnitOutcome, prices: Prices) -> Decimal | None:
    """Return what a request has cost; None: nobody knows, or it is none."""
    if unit.size is None:
        return None
    if made.error_class:  # guard: failed-request-may-cost
        return None if made.is_billed else NO_USD
    if made.cost_usd is not None and not prices.is_own(unit.size.model):
        return made.cost_usd
    return prices.cost(
        unit.size.model,
        input_tokens=made.input_tokens,
        output_tokens=made.output_tokens,
        cached_tokens=made.cached_tokens,
    )


def _where(announced: StepAnnounced) -> str:
    return f"call {announced.path}"


def admitting(canceled: CancelEpisode, episode: Episode) -> CancelEpisode:
    """Return `canceled` with a note of the side effects that may have been cut off.

    Only calls of tools need one.
    """
    detail = canceled.error_detail
    for announced in episode.announced:
        if not announced.is_call:  # guard: cut-off-side-effect-admitted
            continue
        begun = f"step {announced.step_no}, {announced.tool_name}, had been announced"
        detail = f"{detail}; {begun}, and nobody knows whether it happened"
    return replace(canceled, error_detail=detail)
