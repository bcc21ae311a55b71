"""Performs steps: calls tools and synthesizers, records facts. A failure is a result too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, assert_never

from msgspec.structs import replace

from engine import dryrun, state, telemetry
from engine.actions import (
    Checkpoint,
    Observe,
    RequestApproval,
    SendOutput,
    Step,
    Synthesize,
    ToolCall,
    WaitFor,
)
from engine.actor import Actor
from engine.app import App
from engine.commands import Performed
from engine.expectation import Expectation
from engine.fingerprint import fingerprint, without_transient
from engine.proposal import checked_intent, inline_key
from engine.runtime.usercode import attempt, call, in_text
from engine.tools import CallContext, EngineTool, Synthesis, Tool, ToolFailed
from streams.clock import Clock
from streams.events import EpisodeOpened, StepKind
from streams.json import NOTHING, raw, unraw
from streams.outputs import OutputOutcome, OutputResult

NO_TOOL: Final = "no_tool_for_capability"
SIDE_EFFECT: Final = "dry_run_side_effect"


@dataclass(frozen=True)
class Performer:
    """Performs the steps of one episode."""

    app: App
    actor: Actor
    expectation: Expectation
    opened: EpisodeOpened
    clock: Clock

    @property
    def _labels(self) -> dict[str, str]:
        return {"actor": self.actor.id, "mode": self.opened.mode.value}

    def tool(self, action: Step) -> Tool | None:
        """Return the tool that `action` may call, if it is a tool call and there is one."""
        tool = self._registered(action) if isinstance(action, ToolCall) else None
        return tool if tool is not None and dryrun.may_call(self.opened, tool) else None

    async def perform(self, action: Step, ctx: CallContext) -> Performed:
        """Do `action` and return what it brought back.

        Raises:
            EpisodeFailed: the arguments or the result cannot be kept on the journal.
        """
        started_s = self.clock.monotonic_s()
        with telemetry.span(f"step {type(action).__name__}"):
            performed = await call(self._perform, action, ctx)
        took_s = self.clock.monotonic_s() - started_s
        telemetry.step_duration.record(took_s, {**self._labels, "kind": performed.kind})
        return replace(performed, cost_ms=round(took_s * 1000))

    async def _perform(self, action: Step, ctx: CallContext) -> Performed:
        match action:
            case ToolCall():
                return await self._call_tool(action, ctx)
            case Synthesize():
                return await self._synthesize(action, ctx)
            case Observe(data=data):
                return Performed(
                    kind=StepKind.OBSERVATION,
                    fingerprint=fingerprint(action),
                    result=state.encode(data, what="observation"),
                )
            case Checkpoint(phase=phase):
                return Performed(
                    kind=StepKind.CHECKPOINT,
                    fingerprint=fingerprint(action),
                    args=state.encode({"phase": phase}, what="phase"),
                )
            case RequestApproval() | WaitFor():
                return dryrun.answer_to(action)
            case SendOutput(intent=intent):
                assert not dryrun.delivers(self.opened), "an output that is meant is sent"
                checked_intent(intent)
                key = inline_key(action, self.opened, turn=ctx.step_no)
                left = dryrun.undelivered(key, has_adapter=intent.adapter in self.app.outputs)
                return sent(action, result_of(left))
            case _:
                assert_never(action)

    def _registered(self, action: ToolCall) -> Tool | None:
        return self.app.tool(self.actor, action.capability)

    async def _call_tool(self, action: ToolCall, ctx: CallContext) -> Performed:
        tool = self._registered(action)
        # A copy, for whoever redacts in place: the call gets the arguments as they are.
        shown = unraw(state.encode(without_transient(action.args), what="arguments"))
        step = Performed(
            kind=StepKind.TOOL_CALL,
            fingerprint=fingerprint(action),
            tool_name=f"{action.capability}.{action.action}",
            args=state.encode(tool.redact(shown) if tool else shown, what="arguments"),
        )
        override = dryrun.result_of(self.opened, step.tool_name)
        if override is not None:
            return _with_result(step, unraw(override), redact=tool.redact_result if tool else None)
        if tool is None:
            return _failed(step, NO_TOOL, f"no tool is registered as {action.capability!r}")
        if not dryrun.may_call(self.opened, tool):
            return _failed(step, SIDE_EFFECT, f"no override stands for {step.tool_name!r}")
        try:
            result = await attempt(self._called(tool, action, ctx))
        except ToolFailed as failure:
            return _failed(step, failure.error_class, failure.detail)
        return _with_result(step, result, redact=tool.redact_result)

    def _called(self, tool: Tool, action: ToolCall, ctx: CallContext) -> Awaitable[object]:
        if isinstance(tool, EngineTool):
            return tool.serve(self.opened, action.action, action.args)
        return tool.call(action.action, action.args, ctx)

    async def _synthesize(self, action: Synthesize, ctx: CallContext) -> Performed:
        synthesizer = self.app.synthesizer_of(self.actor, self.expectation)
        prompt = state.encode(action.prompt, what="prompt")
        step = Performed(kind=StepKind.SYNTHESIS, fingerprint=fingerprint(action), args=prompt)
        override = dryrun.synthesis_of(self.opened)
        if override is not None:
            return _with_result(step, unraw(override))
        if synthesizer is None:
            return _with_result(step, action.prompt)
        try:
            returned = await attempt(synthesizer(action.prompt, action.transient, ctx))
        except ToolFailed as failure:
            return _failed(step, failure.error_class, failure.detail)
        return self._synthesized(step, returned)

    def _synthesized(self, step: Performed, returned: object) -> Performed:
        if not isinstance(returned, Synthesis):
            return _with_result(step, returned)
        tokens = returned.input_tokens + returned.output_tokens
        telemetry.step_tokens.add(tokens, {**self._labels, "model": returned.model})
        step = replace(step, cost_tokens=tokens, model=in_text(returned.model))
        return _with_result(step, returned.content)


def _with_result(
    step: Performed, result: object, *, redact: Callable[[object], object] | None = None
) -> Performed:
    kept = state.encode(result, what="result")
    if redact is None:
        return replace(step, result=kept)
    # A copy of it: whoever redacts in place must not take anything from the strategy.
    shown = state.encode(redact(unraw(kept)), what="redacted result")
    return replace(step, result=kept, result_shown=NOTHING if shown == kept else shown)


def _failed(step: Performed, error_class: str, detail: str) -> Performed:
    return replace(step, error_class=in_text(error_class), error_detail=in_text(detail))


def result_of(outcome: OutputOutcome) -> OutputResult:
    """Return what a strategy gets of an output that came to this."""
    return OutputResult(
        output_key=outcome.output_key, status=outcome.outcome, error_class=outcome.error_class
    )


def sent(action: SendOutput, result: OutputResult) -> Performed:
    """Return the step that had something delivered, or not."""
    return Performed(
        kind=StepKind.OUTPUT,
        fingerprint=fingerprint(action),
        tool_name=f"{StepKind.OUTPUT.value}.{action.intent.adapter}",
        args=raw({"adapter": action.intent.adapter}),
        result=raw(result),
    )
