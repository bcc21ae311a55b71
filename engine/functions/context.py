"""`FunctionContext`: what a function is given as `ctx`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, TypeVar, overload
from uuid import UUID

import msgspec
import structlog

from engine import validation
from engine.agents.unit import MODEL_RETRIES, OnChange
from engine.app.actions import (
    Checkpoint,
    ExpiryOfApproval,
    ExpiryOfWait,
    Observe,
    Retries,
    Sleep,
    StartEpisode,
    Synthesize,
    ToolCall,
    approval,
    wait,
)
from engine.app.context import ACTIVE_DEFAULT, Findings
from engine.app.function_tool import FunctionTool
from engine.app.outputs import output
from engine.app.strategy import report
from engine.episodes.episode import Save
from engine.errors import CALL_TIMEOUT, CallFailed, CallTimeout, InvalidAction, InvalidFinding
from engine.functions.agents import agents, problem_of_agent, run_recorded
from engine.functions.gather import Gathers, Pending
from engine.functions.run import StrategyRun
from engine.validation import Duration
from engine.waits.answer import PLAN
from streams.json import JsonObject, raw, unraw
from streams.model.children import EpisodeResult
from streams.model.events import EpisodeOpened
from streams.model.findings import Finding, FindingIntent, FindingOutcome
from streams.model.outputs import OutputResult
from streams.model.triggers import Budget, Mode
from streams.model.waits import EditableCalls

if TYPE_CHECKING:  # The extra may not be there.
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage

    from engine.agents.result import AgentResult

PHASE: Final = "checkpoint"
"""Phase of the state that `checkpoint` keeps."""

CALL: Final = "call"
"""The action of a tool that is called by one word."""

DRAWN_BITS: Final = 53
"""How many bits of chance a number has, as `random.random()` does."""

UUID_VERSION: Final = 4

ON_FAILURE: Final = ("raise", "return")
"""What `ctx.episode` may do about a child that is not done."""

CHANGE_CHARS_MAX: Final = 64
"""Longest name of a change, in characters."""

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
D = TypeVar("D")
Output = TypeVar("Output")
Owner = TypeVar("Owner", bound="FunctionContext | RecordedFindings")

log = structlog.get_logger("vigil.function")


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What people have decided; true if they approved."""

    is_approved: bool
    status: Literal["approved", "denied", "superseded"] = "approved"
    """`superseded`: it was approved for an older episode with an equal request, which acts."""
    acting_episode_id: str = ""
    """If it is superseded: the episode that acts."""
    by: str = ""
    """Who decided; empty: nobody did in time."""
    reason: str = ""
    plan: Any = None
    """What was approved: the plan, as JSON has it, or what who approved it has made of it."""
    is_edited: bool = False
    """Whether who approved it has changed the plan."""

    def __bool__(self) -> bool:
        """Return whether it is approved, and this episode is to act."""
        return self.is_approved


class TakesArgumentsByName:
    """To type checkers, a call with an argument by its position, which nobody can await."""


def _pending(
    method: Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Owner, P], Pending[T]]:
    """Have the run know of each call of `method`, so that none is forgotten."""

    @wraps(method)
    def asked(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
        name = f"{self.NAME}.{method.__name__}"
        return self._run.pending(name, partial(method, self, *args, **kwargs))

    return asked


class RecordedFindings:
    """The findings of the stack; what a function sees of them is recorded."""

    NAME: Final = "ctx.findings"

    def __init__(self, run: StrategyRun, findings: Findings) -> None:
        self._run, self._findings = run, findings

    @_pending
    async def get(self, key: str) -> Finding | None:
        """Return the latest raise of a finding. See `Findings.get`."""
        look = partial(self._findings.get, key)
        return _finding(await self._run.read(ToolCall("findings", "get", {"key": key}), look))

    @_pending
    async def recent(self, key: str, within: Duration) -> Finding | None:
        """Return the finding if it has changed lately. See `Findings.recent`."""
        asked = ToolCall("findings", "recent", {"key": key, "within": within})
        return _finding(await self._run.read(asked, partial(self._findings.recent, key, within)))

    @_pending
    async def active(
        self,
        *,
        subject: tuple[str, str | None] | None = None,
        actor: str | None = None,
        class_: str | None = None,
        limit: int = ACTIVE_DEFAULT,
    ) -> Sequence[Finding]:
        """Return findings that are active, the most severe first. See `Findings.active`."""
        said = {"subject": subject, "actor": actor, "class_": class_, "limit": limit}
        asked = ToolCall("findings", "active", {k: v for k, v in said.items() if v is not None})
        look = partial(
            self._findings.active, subject=subject, actor=actor, class_=class_, limit=limit
        )
        return msgspec.json.decode(await self._run.read(asked, look), type=tuple[Finding, ...])


class FunctionContext(Gathers):
    """What a function does with the outside: each call is a step that is recorded, and made once.

    After a crash the function runs again from the top, and every call that has a record returns it.
    A call that fails raises `CallFailed`. Nothing happens until a call is awaited; a function that
    returns without having awaited one fails as `invalid_action`.
    """

    INSTEAD: Final = {
        name: f"await ctx.report({name}(…)), or return {name}(…)"
        for name in ("raise_finding", "update_finding", "clear_finding")
    }
    """What is to be written instead of what there is not."""

    def __init__(
        self,
        run: StrategyRun,
        opened: EpisodeOpened,
        findings: Findings,
        *,
        resumed: Any,  # noqa: ANN401 - what `checkpoint` was given
        schema_version: int,
    ) -> None:
        self._run, self._opened, self._schema_version = run, opened, schema_version
        self.findings = RecordedFindings(run, findings)
        """The findings of the stack: `await ctx.findings.get("host:disk:web-1")`, and others."""
        self.resumed = resumed
        """What the newest `checkpoint` was given, once the function runs again; before that, None.
        """

    @property
    def episode_id(self) -> str:
        """The episode."""
        return self._opened.episode_id

    @property
    def actor_id(self) -> str:
        """Its actor."""
        return self._opened.actor_id

    @property
    def expectation_id(self) -> str:
        """Its expectation."""
        return self._opened.expectation_id

    @property
    def budget(self) -> Budget:
        """What the episode may use. Each call that is recorded is a turn."""
        return self._opened.budget

    @property
    def mode(self) -> Mode:
        """Live or dry run."""
        return self._opened.mode

    @overload
    def call(  # type: ignore[overload-overlap]  # `Q` has positions, too.
        self, tool: FunctionTool[..., Any], first: object, /, *more: object, **args: object
    ) -> TakesArgumentsByName: ...
    @overload
    def call(
        self, tool: FunctionTool[..., object, Q, T], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Pending[T]: ...
    @overload
    def call(self, tool: str, /, **args: object) -> Pending[Any]: ...
    def call(
        self, tool: str | FunctionTool[..., Any], /, *positional: object, **args: Any
    ) -> Pending[Any] | TakesArgumentsByName:
        """Call a tool, and return its result.

        `tool` is a function with `@tool`, and the result is what it says that it returns; or a name
        such as `"disk.largest"`, what the tool is registered as, and its action, and the result is
        any JSON value. Arguments whose name starts with `_` reach the tool and are stored nowhere.
        """
        return self._run.pending(f"{self.NAME}.call", partial(self._call, tool, positional, args))

    async def _call(
        self,
        tool: str | FunctionTool[..., Any],
        positional: tuple[object, ...],
        args: JsonObject,
    ) -> Any:  # noqa: ANN401 - what the tool returns
        if positional:  # guard: tool-arguments-by-name
            raise InvalidAction(_problem_of_positions(tool))
        result = await self._run.step(_call_of(tool, args))
        return result if isinstance(tool, str) else tool.returned(result)

    @_pending
    async def sleep(self, seconds: float) -> None:
        """Continue after `seconds`, up to ten years. From 5 s on, no node has the episode."""
        await self._run.step(Sleep(seconds))

    @_pending
    async def wait(
        self,
        ref: str,
        *,
        expires_s: float | None = None,
        on_expiry: ExpiryOfWait = "fail",
        remind_every_s: float | None = None,
    ) -> Any:  # noqa: ANN401 - what the signal brings
        """Return the result of the signal `ref`, such as `payment:42`, once it has come.

        With `on_expiry="continue"` it returns None if none comes in time; otherwise that fails as
        `wait_expired`. The arguments are those of `vigil.wait`.
        """
        asked = wait(ref, expires_s=expires_s, on_expiry=on_expiry, remind_every_s=remind_every_s)
        return await self._run.step(asked)

    @_pending
    async def approval(
        self,
        plan: object,
        *,
        summary: str = "",
        approvers: Iterable[str] | str | None = None,
        expires_s: float | None = None,
        on_expiry: ExpiryOfApproval = "deny",
        remind_every_s: float | None = None,
        editable: bool | EditableCalls = False,
        shared: bool = True,
        per_episode: bool = False,
        quorum: int = 1,
        requester_may_approve: bool = True,
    ) -> ApprovalAnswer:
        """Ask people whether `plan`, any JSON value, may be carried out; return what they decided.

        The answer is true if they approved: `if await ctx.approval({"restart": "web"}): …`. With
        `on_expiry="fail"` it fails as `approval_expired` if nobody decides in time. With `editable`
        the person who approves may change the plan; then carry out the answer's `plan`. With
        `shared=False` the decision is about this episode alone. Of several episodes with an equal
        request the oldest gets the approval, and the answer of the others is false, its `status`
        `superseded`; with `per_episode` all of them get it. With `quorum` so many different people
        have to approve it. The arguments are those of `vigil.approval`.
        """
        asked = approval(
            plan,
            summary=summary,
            approvers=approvers,
            expires_s=expires_s,
            on_expiry=on_expiry,
            remind_every_s=remind_every_s,
            editable=editable,
            shared=shared,
            per_episode=per_episode,
            quorum=quorum,
            requester_may_approve=requester_may_approve,
        )
        try:
            said = await self._run.step(asked)
        except CallFailed as failed:
            match failed.error_class:
                case "denied":
                    return ApprovalAnswer(is_approved=False, status="denied", reason=failed.detail)
                case "superseded":
                    recorded = unraw(failed.recorded)
                    return ApprovalAnswer(is_approved=False, status="superseded", **recorded)
                case _:
                    raise
        is_edited = PLAN in said
        return ApprovalAnswer(
            is_approved=True,
            by=said["by"],
            reason=said["reason"],
            # guard: function-gets-approved-plan
            plan=said[PLAN] if is_edited else unraw(raw(plan)),
            is_edited=is_edited,
        )

    @_pending
    async def output(
        self,
        adapter: str,
        payload: object,
        *,
        dedupe_key: str | None = None,
        key: str | None = None,
        requires_approval: bool = False,
        summary: str = "",
        approvers: Iterable[str] | str | None = None,
        expires_s: float | None = None,
        on_expiry: ExpiryOfApproval = "deny",
        remind_every_s: float | None = None,
        quorum: int = 1,
        requester_may_approve: bool = True,
    ) -> OutputResult:
        """Have `payload` delivered now, and return how far that got: see `vigil.output`."""
        asked = output(
            adapter,
            payload,
            dedupe_key=dedupe_key,
            key=key,
            requires_approval=requires_approval,
            summary=summary,
            approvers=approvers,
            expires_s=expires_s,
            on_expiry=on_expiry,
            remind_every_s=remind_every_s,
            quorum=quorum,
            requester_may_approve=requester_may_approve,
        )
        return msgspec.convert(await self._run.step(asked), OutputResult)

    @_pending
    async def report(self, *findings: FindingIntent) -> tuple[FindingOutcome, ...]:
        """Have `findings` applied now, and return what became of each, in order.

        They are stored, and people see them, before the function goes on. The arguments are those
        of `vigil.report`; an impossible one fails the call as `invalid_finding`.
        """
        try:
            asked = report(*findings)
        except InvalidFinding as error:
            raise CallFailed(error.error_class, str(error)) from error
        return msgspec.convert(await self._run.step(asked), tuple[FindingOutcome, ...])

    @_pending
    async def observe(self, data: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Record `data`, any JSON value, and return it as JSON has it."""
        return await self._run.step(Observe(data))

    @_pending
    async def synthesize(
        self,
        prompt: object,
        *,
        transient: JsonObject | None = None,
        retries: Retries | None = None,
    ) -> Any:  # noqa: ANN401
        """Return the synthesizer's answer to `prompt`, any JSON value; see `vigil.synthesize`."""
        return await self._run.step(Synthesize(prompt, transient or {}, retries))

    @_pending
    async def checkpoint(self, value: object) -> None:
        """Keep `value`, any JSON value of up to 256 KiB, for a function that makes many calls.

        From now on it runs again from the top with `ctx.resumed == value`, and is fed only what
        came after. So its next calls must be those that it makes when it begins with that value.
        """
        if self._run.is_in_branch:
            raise InvalidAction("checkpoint: a branch of gather cannot be begun anew by itself")
        kept = validation.encode(value, what="checkpoint")
        save = Save(phase=PHASE, state=kept, schema_version=self._schema_version)
        await self._run.step(Checkpoint(PHASE), also=[save])
        self._run.note_state(unraw(kept))

    def episode(
        self,
        actor: str,
        expectation: str,
        payload: JsonObject | None = None,
        *,
        key: str | None = None,
        on_failure: Literal["raise", "return"] = "raise",
        with_parent: Literal["cancel", "leave"] = "cancel",
    ) -> Pending[EpisodeResult]:
        """Start an episode of another actor, or of this one, and return how it ended.

        No node has this episode while it waits; to wait for many, give the calls to `ctx.gather`,
        up to 1,000 at a time. What the child uses counts for this episode's budget, and it gets no
        more than is left of that.

        Args:
            actor: the actor, which the node must know.
            payload: of its trigger, any JSON object of up to 256 KiB.
            key: names the child within this episode, up to 128 characters: calls with one key are
                one child. By default each call is another one.
            on_failure: `return` the result of a child that has failed, was canceled or could not be
                started, whose `status` says so; by default that raises `CallFailed` with its class.
            with_parent: `leave` the child when this episode ends before it; by default it is
                canceled.
        """
        asked = StartEpisode(
            actor=actor,
            expectation=expectation,
            payload={} if payload is None else payload,
            key=msgspec.UNSET if key is None else key,
            with_parent=with_parent,
        )
        work = partial(self._episode, asked, on_failure)
        return self._run.pending(f"{self.NAME}.episode", work, is_child=True)

    async def _episode(self, asked: StartEpisode, on_failure: str) -> EpisodeResult:
        if on_failure not in ON_FAILURE:
            raise InvalidAction(f"on_failure: {on_failure!r}; use {' or '.join(ON_FAILURE)}")
        validation.encode(asked.payload, what="payload")  # guard: child-payload-max
        taken = await self._run.taken(asked)
        if taken.error_class == CALL_TIMEOUT:
            raise CallTimeout(taken.error_detail)
        said = msgspec.convert(await self._run.result_of(taken), EpisodeResult)
        if taken.error_class and on_failure == "raise":  # guard: failed-child-raises
            raise CallFailed(taken.error_class, taken.error_detail, recorded=raw(said))
        return said

    @_pending
    async def agent(
        self,
        agent: Agent[D, Output],
        prompt: str | Sequence[Any] | None = None,
        *,
        deps: D = None,  # type: ignore[assignment] # Agents without dependencies take None.
        model: str | None = None,
        message_history: Sequence[ModelMessage] | None = None,
        budget: Budget | None = None,
        retries: Retries | None = MODEL_RETRIES,
        on_change: OnChange = "park",
        keep_messages: bool = False,
        stream: bool = False,
    ) -> AgentResult[Output]:
        """Run an agent of pydantic-ai, and return its result; needs the extra `agents`.

        Each request to its model, and each call of a tool, is a step and a turn of the episode, so
        after a crash the agent goes on in the middle, and asks nothing twice. Of a request or a
        call under way when its node dies nobody knows the outcome: it is made again, unless it is a
        tool of `vigil.agents.toolset`, whose calls are ordinary steps. Tools of its own with
        `requires_approval` ask people.

        Args:
            agent: an agent with a `name`, which its steps are known by.
            prompt: what it is asked, as for `Agent.run`.
            deps: its dependencies, which are not recorded: make them the same in each run.
            model: another model than the agent's, such as `"anthropic:claude-sonnet-5"`.
            message_history: the `messages` of an earlier result, to continue its conversation.
            budget: what this run may use beside the budget of the episode: `turns` are requests,
                and `usd` is looked at after each. It fails as `agent_budget_exceeded`.
            retries: how often a request to the model is repeated that failed because the provider
                is away or refuses for now; by default 6 times within half a minute. During a pause
                over 5 s no node has the episode. None: never.
            on_change: what happens if the agent asks its model for something else than was
                recorded, since its prompt, tools, settings or model have changed: `park` the
                episode until a node has the old code, `go_on` with the recorded answer, or ask as
                the `old` agent would. An agent that has ended is not run again, whatever has
                changed.
            keep_messages: whether the result has the conversation, which is recorded once more.
            stream: whether models are asked to answer piece by piece, for people who look on:
                `vigil episodes tail` shows it at once. What is recorded is the same. A model that
                cannot do it answers in one piece.

        Raises `CallFailed` with the class of what went wrong: of a tool, or of a request, such as
        `tool_rate_limited`, `context_too_long` or `invalid_answer`.
        """
        run = agents()
        if problem := problem_of_agent(agent, prompt, on_change):  # guard: agent-call-checked
            raise InvalidAction(problem)
        name = agent.name or ""
        if not name:  # guard: agent-has-name
            raise InvalidAction('agent: it needs a name: Agent(…, name="triage")')
        asked = run.AgentCall(
            agent=agent,
            name=name,
            prompt=prompt,
            deps=deps,
            budget=budget,
            model=model,
            message_history=message_history,
            keep_messages=keep_messages,
            retries=retries,
            on_change=on_change,
            stream=stream,
        )
        taken = await run_recorded(self._run, self, asked, self._opened)
        if taken.error_class == CALL_TIMEOUT:
            raise CallTimeout(taken.error_detail)
        if taken.error_class:
            raise CallFailed(taken.error_class, taken.error_detail)
        result = raw(await self._run.result_of(taken))
        try:
            made: AgentResult[Output] = run.result_of(result, agent.output_type)
        except run.OtherOutput as other:  # guard: lost-output-type-parks
            raise self._run.other_output(taken.path, name, str(other)) from other
        return made

    def now(self) -> datetime:
        """Return the time in UTC; it is recorded, as a turn of its own."""
        return self._run.now()

    def random(self) -> float:
        """Return a number from 0 up to 1, the same in a replay."""
        return (int.from_bytes(self._run.draw()[:8]) >> (64 - DRAWN_BITS)) / (1 << DRAWN_BITS)

    def uuid(self) -> str:
        """Return a UUID, the same in a replay."""
        return str(UUID(bytes=self._run.draw(), version=UUID_VERSION))

    def log(self, message: str, /, **values: object) -> None:
        """Write a line to the log of the node: once, unless it crashes before the next call."""
        if self._run.is_live:
            log.info(message, **values)

    def changed(self, name: str) -> bool:
        """Return whether the episode runs the code that came with the change `name`.

        Episodes that had gone past this place before the change get False, all others True; the
        first answer stands: `if ctx.changed("asks first"): …`.
        """
        if not 1 <= len(name) <= CHANGE_CHARS_MAX:
            raise InvalidAction(f"changed: {name!r} is no name of 1 to {CHANGE_CHARS_MAX} letters")
        return self._run.changed(name)


def _problem_of_positions(tool: str | FunctionTool[..., Any]) -> str:
    if isinstance(tool, str):
        return f"{tool}: arguments are given by name: await ctx.call({tool!r}, name=…)"
    name = tool.arguments.__name__
    named = "".join(f", {each}=…" for each in tool.arguments.__struct_fields__)
    return f"{name}(…) takes its arguments by name: await ctx.call({name}{named})"


def _call_of(tool: str | FunctionTool[..., Any], args: JsonObject) -> ToolCall:
    if isinstance(tool, str):
        capability, _, action = tool.partition(".")
        return ToolCall(capability, action or CALL, args)
    return ToolCall(tool.capability, tool.action, args)


def _finding(recorded: msgspec.Raw) -> Finding | None:
    return msgspec.json.decode(recorded, type=Finding | None)
