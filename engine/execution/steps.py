"""Performs the steps of an episode: tools, synthesizers, facts and outputs. A failure is a result.

An event of `PublishTool` is one hop further from the outside world than the episode's trigger, so a
chain of actors that trigger each other ends. `OutputSteps` announces an output's key on the journal
before it is proposed, so after a crash the next node continues with the same output.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from engine import telemetry, validation
from engine.agents.unit import RequestSize
from engine.app.actions import (
    Checkpoint,
    Observe,
    ReportFindings,
    RequestApproval,
    Retries,
    SendOutput,
    Sleep,
    StartEpisode,
    Step,
    Synthesize,
    ToolCall,
    WaitFor,
    fingerprint,
    without_transient,
)
from engine.app.actor import Actor, Expectation
from engine.app.app import App
from engine.app.function_tool import INVALID_ARGUMENTS, FunctionTool
from engine.app.outputs import checked_intent
from engine.app.strategy import checked_findings
from engine.app.tools import (
    OF_THE_ENGINE,
    PUBLISH,
    RESULT_BYTES_MAX,
    SYNTHESIS,
    SYNTHESIS_TOKENS_MAX,
    TOO_LARGE,
    Announcement,
    CallContext,
    Synthesis,
    SynthesisFailed,
    Synthesizer,
    Tool,
    ToolFailed,
    retries_of,
)
from engine.children import rules as children
from engine.episodes import dry_run
from engine.episodes.episode import Announce, CancelEpisode, Episode, Performed
from engine.episodes.redaction import asked_as_shown
from engine.errors import EpisodeFailed, Unencodable
from engine.execution.conclude import Conclusion
from engine.execution.report import reported
from engine.outputs.keys import idempotency_key, inline_key
from engine.runtime.claim import EpisodeClaim
from engine.runtime.gather import gather_bounded
from engine.secrets import hide, removed, texts_in, without
from engine.spending.prices import Prices
from engine.usercode.call import attempt, call, call_now, in_text
from engine.usercode.tool_calls import ToolCalls
from engine.validation import finite, is_whole
from streams.clock import Clock
from streams.errors import BadName, TooLarge, Unavailable
from streams.json import NOTHING, JsonObject, raw, unraw
from streams.model.events import EpisodeOpened, StepKind, StepRecorded
from streams.model.outputs import OutputOutcome, OutputResult
from streams.model.triggers import Mode, OverrideFailure
from streams.ports.domain_events import DomainEvents
from streams.ports.log import Recorded
from streams.tracing import traceparent

NO_TOOL: Final = "no_tool_for_capability"

NOT_ALLOWED: Final = "capability_not_allowed"

NAMED_MAX: Final = 16
"""Most tools that an error names."""

SIDE_EFFECT: Final = "dry_run_side_effect"

INVALID_ESTIMATE: Final = "invalid_estimate"
"""Error class of a synthesis whose tokens were estimated as what is no number of tokens."""

IN_FLIGHT_MAX: Final = 32
"""Events of one step that are published at a time."""

EVENTS_MAX: Final = 1_000
"""Most events of one step."""


def shown_args(action: ToolCall, tool: Tool | None) -> msgspec.Raw:
    """Return the arguments as people may see them; `Unencodable`: they are no JSON."""
    args = validation.encode(without_transient(action.args), what="arguments")
    if tool is None or not tool.hides:
        return args
    # A copy, since a tool may redact in place: the call gets the arguments as they are.
    return validation.encode(tool.redact(unraw(args)), what="arguments")  # guard: tool-redacts


def secrets_of(action: ToolCall, tool: Tool, *, shown: msgspec.Raw) -> frozenset[str]:
    """Return the texts of a call that people must not see; `shown` are its arguments redacted."""
    if action.capability in OF_THE_ENGINE:  # It hides what is long, or is elsewhere.
        return frozenset()
    transient = [value for name, value in action.args.items() if name.startswith("_")]
    found = set(texts_in(transient)) if transient else set[str]()
    found.update(tool.secrets())
    redacts = type(tool).redact is not Tool.redact
    if isinstance(tool, FunctionTool):
        redacts = bool(tool.hidden)
    if redacts:
        found.update(removed(unraw(raw(without_transient(action.args))), unraw(shown)))
    return frozenset(found)


@dataclass(frozen=True)
class StepExecutor:
    """Performs the steps of one episode."""

    app: App
    actor: Actor
    expectation: Expectation
    opened: EpisodeOpened
    clock: Clock
    tool_calls: ToolCalls
    claim: EpisodeClaim
    calling: list[str]
    """The tools that are called now, as `capability.action`."""
    hidden: set[str] = field(default_factory=set)
    """Texts of the calls so far that people must not see."""

    @property
    def _labels(self) -> dict[str, str]:
        return {"actor": self.actor.id, "mode": self.opened.mode.value}

    def tool(self, action: Step) -> Tool | None:
        """Return the tool for `action`, if it is a tool call that can be made."""
        if not isinstance(action, ToolCall):
            return None
        tool, is_allowed = self._registered(action), self._is_allowed(action)
        # guard: disallowed-tool-not-announced
        if tool is None or not is_allowed or self._refusal(action, tool) is not None:
            return None
        return tool

    def retries(self, action: Step) -> Retries | None:
        """Return how often `action` is repeated if it fails; None: it is not."""
        if isinstance(action, Synthesize):
            synthesizer = self.app.synthesizer_of(self.actor, self.expectation)
            return action.retries or retries_of(synthesizer)  # guard: synthesis-says-retries
        tool = self.tool(action)
        return tool.retries if tool is not None else None

    def request_sizes(self, action: Synthesize) -> Sequence[RequestSize]:
        """Return how large the request of a synthesis is, for each model that may be asked in turn.

        Empty if nothing is asked, or nobody knows, as of a synthesizer of the user's own.
        """
        # guard: overridden-synthesis-reserves-nothing
        if dry_run.stand_in(self.opened, SYNTHESIS) is not None:
            return ()
        synthesizer = self.app.synthesizer_of(self.actor, self.expectation)
        sizes: Callable[[object], Sequence[RequestSize]] | None
        sizes = getattr(synthesizer, "request_sizes", None)
        return sizes(action.prompt) if sizes is not None else ()

    async def perform(self, action: Step, ctx: CallContext) -> Performed:
        """Do `action` and return its result; fails the episode if the journal cannot store it."""
        started_s = self.clock.monotonic_s()
        with telemetry.span(f"step {type(action).__name__}"):
            performed = await call(self._perform, action, ctx)
        took_s = self.clock.monotonic_s() - started_s
        telemetry.step_duration.record(took_s, {**self._labels, "kind": performed.kind})
        return replace(performed, cost_ms=round(took_s * 1000))

    def measure(self, made: Performed) -> None:
        """Measure what an agent has made, which nobody performs here."""
        telemetry.step_duration.record(made.cost_ms / 1000, {**self._labels, "kind": made.kind})
        if made.cost_tokens:
            used = {"input": made.input_tokens, "output": made.output_tokens}
            self._count_tokens(used, model=made.model)

    def asked(self, action: Step) -> Performed:
        """Return the step of `action` without what it brings back."""
        mark = fingerprint(action)
        match action:
            case ToolCall():
                name, args = f"{action.capability}.{action.action}", self._shown(action)
                return Performed(
                    kind=StepKind.TOOL_CALL, fingerprint=mark, tool_name=name, args=args
                )
            case Synthesize():
                prompt = validation.encode(action.prompt, what="prompt")
                return Performed(kind=StepKind.SYNTHESIS, fingerprint=mark, args=prompt)
            case Checkpoint(phase=phase):
                said = validation.encode({"phase": phase}, what="phase")
                return Performed(kind=StepKind.CHECKPOINT, fingerprint=mark, args=said)
            case RequestApproval() | WaitFor() | Sleep():
                return replace(dry_run.answer_to(action), result=NOTHING)
            case StartEpisode():
                return children.asked(action, mark)
            case SendOutput(intent=intent):
                return Performed(
                    kind=StepKind.OUTPUT,
                    fingerprint=mark,
                    tool_name=f"{StepKind.OUTPUT.value}.{intent.adapter}",
                    args=raw({"adapter": intent.adapter}),
                )
            case Observe():
                return Performed(kind=StepKind.OBSERVATION, fingerprint=mark)
            case ReportFindings():
                return reported(action.findings, (), mark=mark)
            case _:
                assert_never(action)

    def _shown(self, action: ToolCall) -> msgspec.Raw:
        return shown_args(action, self._registered(action))

    async def _perform(self, action: Step, ctx: CallContext) -> Performed:
        match action:
            case ToolCall():
                return await self._call_tool(action, ctx)
            case Synthesize():
                return await self._synthesize(action, ctx)
            case Observe(data=data):
                kept = validation.encode(data, what="observation")
                return replace(self.asked(action), result=kept)
            case Checkpoint():
                return self.asked(action)
            case RequestApproval() | WaitFor() | Sleep():
                return dry_run.answer_to(action)
            case StartEpisode():
                raise AssertionError("a child is announced, and not performed")
            case SendOutput(intent=intent):
                assert not dry_run.delivers(self.opened), "an output that is meant is sent"
                checked_intent(intent)
                key = inline_key(action, self.opened, turn=ctx.step_no)
                left = dry_run.undelivered(key, has_adapter=intent.adapter in self.app.outputs)
                return sent(action, result_of(left))
            case ReportFindings(findings=findings):
                assert not dry_run.keeps_findings(self.opened), "a report that is meant is applied"
                left_out = [dry_run.left_out(each) for each in checked_findings(findings)]
                return reported(findings, left_out, mark=fingerprint(action))
            case _:
                assert_never(action)

    def _registered(self, action: ToolCall) -> Tool | None:
        return self.app.tool(self.actor, action.capability, action.action)

    async def _call_tool(self, action: ToolCall, ctx: CallContext) -> Performed:
        tool, step = self._registered(action), self.asked(action)
        if not self._is_allowed(action):  # guard: tool-needs-capability
            allowed = ", ".join(sorted(self.actor.capabilities or ())) or "none"
            detail = f"{action.capability!r} is none of the actor's capabilities: {allowed}"
            return _failed(step, NOT_ALLOWED, detail)
        is_live = self.opened.mode is Mode.LIVE
        override = None if is_live else dry_run.stand_in(self.opened, step.tool_name)
        secrets = secrets_of(action, tool, shown=step.args) if tool else frozenset[str]()
        self.hidden.update(secrets)
        if override is not None:
            step = replace(step, is_override=True)  # guard: override-marked
            if isinstance(override, OverrideFailure):
                return _failed(step, override.error_class, override.detail, secrets=secrets)
            kept = validation.encode(unraw(override), what="result")
            return self._with_result(step, kept, tool, secrets)
        if tool is None:
            return _failed(step, NO_TOOL, self._what_is_known(action))
        if refusal := self._refusal(action, tool):
            return _failed(step, refusal.error_class, refusal.detail, secrets=secrets)
        try:
            result = await self._called(tool, action, ctx)
            kept = _encoded(result, of=step.tool_name)  # guard: result-no-json-fails-call
        except ToolFailed as failure:
            return _as_failed(step, failure, secrets=secrets)
        except Unencodable as error:
            return _failed(step, error.error_class, str(error), secrets=secrets)
        size_bytes = len(memoryview(kept))
        if size_bytes > RESULT_BYTES_MAX:  # guard: result-size-max
            detail = f"{size_bytes:,} bytes, the limit is {RESULT_BYTES_MAX:,}; ask for less"
            return _failed(step, TOO_LARGE, detail)
        return self._with_result(step, kept, tool, secrets)

    def _with_result(
        self, step: Performed, kept: msgspec.Raw, tool: Tool | None, secrets: frozenset[str]
    ) -> Performed:
        """Return `step` with a tool's result, which people see without what is secret."""
        if not secrets and (tool is None or not tool.hides):
            return replace(step, result=kept)
        # A copy, since a tool may redact in place: the strategy gets the result as it is.
        redacted = tool.redact_result(unraw(kept)) if tool else unraw(kept)
        seen = hide(redacted, secrets) if secrets else redacted  # guard: result-hides-secrets
        shown = validation.encode(seen, what="redacted result", bytes_max=RESULT_BYTES_MAX)
        if shown == kept:
            return replace(step, result=kept)
        self.hidden.update(removed(unraw(kept), unraw(shown)))
        # The journal cannot have it, and the store has only what the strategy gets.
        # guard: shown-not-stored-beside-large
        if len(memoryview(shown)) > validation.KEPT_BYTES_MAX:
            return replace(step, result=kept, is_hidden=True)
        return replace(step, result=kept, result_shown=shown)

    def note_replayed(self, action: Step, result: object) -> None:
        """Note what people must not see of a step that another attempt has recorded.

        The journal has its arguments redacted, so only who asks for it again knows what that was.
        """
        if isinstance(action, Synthesize):
            self.hidden.update(texts_in(action.transient))
        tool = self._registered(action) if isinstance(action, ToolCall) else None
        if tool is None or not isinstance(action, ToolCall):
            return
        # A newer version may be unable to redact what an older one did: then all is hidden.
        shown = seen = raw(None)
        found: Iterable[str] = texts_in(action.args)
        if tool.hides:
            with suppress(EpisodeFailed):
                shown = call_now(self._shown, action)
            with suppress(EpisodeFailed):
                seen = raw(call_now(tool.redact_result, unraw(raw(result))))
            self.hidden.update(removed(result, unraw(seen)))
        with suppress(EpisodeFailed):
            found = call_now(secrets_of, action, tool, shown=shown)
        self.hidden.update(found)

    def secrets_in(self, records: Iterable[Recorded]) -> frozenset[str]:
        """Return the texts that tools hid in the results that `records` hold.

        Results in the object store are not fetched for it.
        """
        return frozenset(self._hidden_in(records))

    def _hidden_in(self, records: Iterable[Recorded]) -> Iterator[str]:
        for record in records:
            for event in record.commit.events:
                if isinstance(event, StepRecorded) and event.kind is StepKind.TOOL_CALL:
                    tool = self.app.tool(self.actor, *event.tool_name.split(".", 1))
                    if tool is not None and tool.hides and event.stored is None:
                        shown = tool.redact_result(unraw(event.result))
                        yield from removed(unraw(event.result), shown)

    def _what_is_known(self, action: ToolCall) -> str:
        what = f"no tool is registered as {action.capability!r} for {action.action!r}"
        known = sorted({*self.actor.tools, *self.app.tools} - OF_THE_ENGINE)
        return f"{what}; known: {', '.join(known[:NAMED_MAX]) or 'none'}"

    def _is_allowed(self, action: ToolCall) -> bool:
        actor = self.actor
        return actor.capabilities is None or actor.may_call(action.capability)

    def _refusal(self, action: ToolCall, tool: Tool) -> ToolFailed | None:
        """Return why the call cannot be made; then it is not announced either."""
        # guard: dry-run-no-side-effect
        if self.opened.mode is not Mode.LIVE and not dry_run.may_call(self.opened, tool):
            name = f"{action.capability}.{action.action}"
            return ToolFailed(SIDE_EFFECT, f"no override stands for {name!r}")
        problem = tool.problem_of(action.args) if isinstance(tool, FunctionTool) else None
        # guard: tool-arguments-must-fit
        return ToolFailed(INVALID_ARGUMENTS, problem) if problem else None

    async def _called(self, tool: Tool, action: ToolCall, ctx: CallContext) -> object:
        # No version can take a call back. A node that was frozen must not make it now: the next
        # owner may have made it, or recorded that the outcome of a side effect is unknown. So
        # nothing lies between this check and the tool's code, on a busy node either.
        begin = self.claim.check  # guard: claim-checked-before-side-effect
        self.calling.append(name := f"{action.capability}.{action.action}")
        try:
            is_kept = tool.server is not None
            if is_kept or isinstance(tool, FunctionTool) or _has_limits(tool):
                return await self.tool_calls.make(tool, action, ctx, begin=begin)
            return await attempt(tool.call(action.action, action.args, ctx), begin=begin)
        finally:
            self.calling.remove(name)

    async def _synthesize(self, action: Synthesize, ctx: CallContext) -> Performed:
        synthesizer = self.app.synthesizer_of(self.actor, self.expectation)
        step = self.asked(action)
        prompt = step.args
        override = dry_run.stand_in(self.opened, SYNTHESIS)
        if override is not None:
            step = replace(step, is_override=True)  # guard: overridden-synthesis-marked
            if isinstance(override, OverrideFailure):
                return _failed(step, override.error_class, override.detail)
            return replace(step, result=validation.encode(unraw(override), what="result"))
        shown = asked_as_shown(unraw(prompt), self.opened.log_strategy)
        if synthesizer is None:
            # guard: echoed-prompt-no-answer
            return replace(step, result=prompt, result_shown=raw(shown))
        secrets = frozenset(texts_in(action.transient))
        self.hidden.update(secrets)
        try:
            returned = await attempt(_answer(synthesizer, action, ctx))
        except ToolFailed as failure:
            secrets |= frozenset(removed(unraw(prompt), shown))
            if isinstance(failure, SynthesisFailed):
                step = self._with_tokens(step, failure.spent)  # guard: useless-answer-counts
            return _as_failed(step, failure, secrets=secrets)
        return self._synthesized(step, returned, secrets)

    def _count_tokens(self, used: Mapping[str, int], *, model: str) -> None:
        for kind, tokens in used.items():
            labels = {**self._labels, "model": model, "kind": kind}
            telemetry.step_tokens.add(tokens, labels)

    def _with_tokens(self, step: Performed, answer: Synthesis) -> Performed:
        given, made = answer.input_tokens, answer.output_tokens
        self._count_tokens({"input": given, "output": made}, model=answer.model)
        # guard: tokens-kept-apart
        step = replace(step, input_tokens=given, output_tokens=made)
        step = replace(step, cost_tokens=given + made, model=in_text(answer.model))
        return replace(
            step,
            cached_tokens=answer.cached_tokens,
            reasoning_tokens=answer.reasoning_tokens,
            cost_usd=self._cost_of(answer),
        )

    def _cost_of(self, answer: Synthesis) -> Decimal | None:
        if answer.others_may_cost:  # guard: lost-other-may-cost
            return None
        name, prices = answer.model_id or answer.model, Prices(self.app.prices)
        if not prices.is_own(name):  # guard: own-price-of-synthesis
            return answer.cost_usd
        return prices.cost(
            name,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            cached_tokens=answer.cached_tokens,
        )

    def _synthesized(self, step: Performed, returned: object, secrets: frozenset[str]) -> Performed:
        content = returned
        if isinstance(returned, Estimated):
            content = returned.content
            self._count_tokens({"estimated": returned.tokens}, model="")
            step = replace(step, cost_tokens=returned.tokens)
        elif isinstance(returned, Synthesis):
            content, step = returned.content, self._with_tokens(step, returned)
        try:
            kept = _encoded(content, of="the synthesizer", bytes_max=validation.KEPT_BYTES_MAX)
        except Unencodable as error:
            return _failed(step, error.error_class, str(error), secrets=secrets)
        return self._with_result(step, kept, None, secrets)


@dataclass(frozen=True)
class Estimated:
    """Plain content that a synthesizer has returned, and what it says that it has cost."""

    content: object
    tokens: int


async def _answer(synthesizer: Synthesizer, action: Synthesize, ctx: CallContext) -> object:
    """Return what `synthesizer` returns, with its estimate where it counts no tokens."""
    returned = await synthesizer(action.prompt, action.transient, ctx)
    estimate = getattr(synthesizer, "estimate_tokens", None)
    if estimate is None or isinstance(returned, Synthesis) or inspect.iscoroutine(returned):
        return returned
    try:
        tokens = call_now(estimate, action.prompt, returned)
    except EpisodeFailed as failed:  # As a crash, it would be tried again, and paid again.
        detail = in_text(f"estimate_tokens raised {failed.detail}")
        # guard: estimate-not-retried
        raise ToolFailed(INVALID_ESTIMATE, detail) from failed
    # guard: impossible-estimate
    if not is_whole(tokens) or not 0 <= tokens <= SYNTHESIS_TOKENS_MAX:
        detail = f"estimate_tokens returned {tokens!r}, not a whole number from 0 on"
        raise ToolFailed(INVALID_ESTIMATE, detail)
    return Estimated(returned, tokens)


def _encoded(result: object, *, of: str, bytes_max: int | None = None) -> msgspec.Raw:
    """Return what `of` brought back as JSON; `Unencodable`: it is none, or larger."""
    if inspect.iscoroutine(result):  # guard: unawaited-named
        result.close()
        name = result.__qualname__
        raise Unencodable(f"{of} returned a coroutine, {name}(…); write `await` before it")
    return validation.encode(result, what=f"result of {of}", bytes_max=bytes_max)


def _has_limits(tool: Tool) -> bool:
    limits = (tool.timeout_s, tool.rate_per_s, tool.breaker)
    return bool(tool.cache_ttl_s) or any(limit is not None for limit in limits)


def _as_failed(step: Performed, failure: ToolFailed, *, secrets: Collection[str]) -> Performed:
    """Return `step` as it failed; `retry_s` is the pause that its server asks for."""
    failed = _failed(step, failure.error_class, failure.detail, secrets=secrets)
    return replace(failed, retry_s=max(finite(failure.retry_after_s) or 0.0, 0.0))


def _failed(
    step: Performed, error_class: str, detail: str, *, secrets: Collection[str] = ()
) -> Performed:
    said = in_text(without(detail, secrets))  # guard: call-error-hides-secrets
    # guard: error-class-hides-secrets
    return replace(step, error_class=in_text(without(error_class, secrets)), error_detail=said)


def result_of(outcome: OutputOutcome) -> OutputResult:
    """Return what a strategy gets for an output in this state."""
    return OutputResult(
        output_key=outcome.output_key, status=outcome.outcome, error_class=outcome.error_class
    )


def sent(action: SendOutput, result: OutputResult) -> Performed:
    """Return the step for an output in this state."""
    return Performed(
        kind=StepKind.OUTPUT,
        fingerprint=fingerprint(action),
        tool_name=f"{StepKind.OUTPUT.value}.{action.intent.adapter}",
        args=raw({"adapter": action.intent.adapter}),
        result=raw(result),
    )


class _PublishRequest(msgspec.Struct, frozen=True):
    name: str
    events: list[Announcement]


@dataclass(frozen=True)
class PublishTool(Tool):
    """Publishes domain events on the node's stack."""

    domain_events: DomainEvents
    side_effect = True
    idempotent = True

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Publish the events; return how many there are."""
        if action != PUBLISH:
            raise ToolFailed("no_such_action", f"{action!r}; known: {PUBLISH}")
        request = _request(args)
        trace = traceparent()

        async def publish(event: Announcement) -> None:
            # guard: strategy-event-hop
            await self.domain_events.publish(
                request.name, event.payload, id=event.id, hops=ctx.hops + 1, trace=trace
            )

        try:
            await gather_bounded(publish, request.events, in_flight_max=IN_FLIGHT_MAX)
        except (BadName, TooLarge, TypeError, ValueError) as error:
            raise ToolFailed("invalid_event", str(error)) from error
        except Unavailable as error:
            raise ToolFailed("tool_unavailable", str(error)) from error
        return {"published": len(request.events)}

    def redact(self, args: JsonObject) -> object:
        """Return the name and the number of events: the stream has the events themselves."""
        events = args.get("events")
        count = len(events) if isinstance(events, list) else 0
        return {"name": args.get("name"), "events": count}


def _request(args: Mapping[str, object]) -> _PublishRequest:
    try:
        request = msgspec.convert(args, _PublishRequest)
    except msgspec.ValidationError as error:
        raise ToolFailed("invalid_event", str(error)) from error
    if len(request.events) > EVENTS_MAX:
        raise ToolFailed("invalid_event", f"{len(request.events):,} events, most: {EVENTS_MAX:,}")
    return request


@dataclass(frozen=True)
class OutputSteps:
    """Sends the outputs of one episode, on one node."""

    conclusion: Conclusion
    opened: EpisodeOpened

    async def announcement(self, action: SendOutput, *, turn: int | str) -> Announce:
        """Return the announcement of an output; fails the episode if the output is impossible."""
        intent = await call(checked_intent, action.intent)
        key = await call(inline_key, action, self.opened, turn=turn)
        return Announce(
            fingerprint=fingerprint(action),
            tool_name=f"{StepKind.OUTPUT.value}.{intent.adapter}",
            idempotency_key=idempotency_key(self.conclusion.context.ports.stack.name, key),
            output_key=key,
        )

    async def send(self, action: SendOutput, key: str) -> Performed:
        """Deliver the output announced as `key`, and return its state."""
        progress = await self.conclusion.output_delivery.carry(key, action.intent)
        outcome = progress.outcome
        result = OutputResult(
            output_key=key,
            status=progress.status,
            error_class=outcome.error_class if outcome else "",
        )
        return sent(action, result)

    async def cancel(self, episode: Episode, why: CancelEpisode) -> CancelEpisode:
        """Cancel the unsettled outputs of its steps; return how the episode ends."""
        if not episode.outputs_left:
            return replace(why, outputs=episode.outputs_settled)
        canceled = await self.conclusion.cancel(episode.outputs_left, why)
        return replace(why, outputs=(*episode.outputs_settled, *canceled.outputs))
