"""`run_plan`: carries out a plan of calls, once people agree to what it may do."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable
from typing import Any, Literal, Protocol

import msgspec

from engine.agents.plans.edits import cut_summary, secrets_of_calls, shown_plan
from engine.agents.plans.plan import CallPlan, PlannedCall, PlanTools
from engine.agents.toolset import MISTAKES, StepTool, check_ask_from
from engine.app.function_tool import without_values
from engine.app.tools import Risk
from engine.errors import CallFailed, InvalidAction
from engine.secrets import without
from engine.validation import shown
from streams.json import JsonObject, raw, unraw
from streams.model.waits import EditableCalls


class MadeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a plan that was made."""

    tool: str
    args: JsonObject
    """Without the values of what its tool hides."""
    result: Any = None
    """Any JSON value; None if it failed."""
    error_class: str = ""
    """Empty: it has not failed."""
    error_detail: str = ""


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a plan; true if all of it is done."""

    status: Literal["done", "failed", "denied"]
    """`failed`: its last call has, and none was made after it. `denied`: none was made."""
    calls: tuple[MadeCall, ...] = ()
    """Those that were made, in order."""
    by: str = ""
    """Who approved it; empty: nobody was asked, or it is denied."""
    reason: str = ""
    """What was said of it; of a denial, by whom; or why what people have made of the plan cannot be
    carried out."""
    is_edited: bool = False
    """Whether people have changed it."""

    def __bool__(self) -> bool:
        """Return whether all of it is done."""
        return self.status == "done"


class Calling(Protocol):
    """The `ctx` of the episode, as far as a plan needs it."""

    def call(self, tool: str, /, **args: object) -> Awaitable[Any]:
        """Call a tool."""

    def approval(
        self,
        plan: object,
        *,
        summary: str = "",
        approvers: Iterable[str] | str | None = None,
        expires_s: float | None = None,
        editable: bool | EditableCalls = False,
        shared: bool = True,
        quorum: int = 1,
        requester_may_approve: bool = True,
    ) -> Awaitable[Any]:
        """Ask people."""


async def run_plan(
    ctx: Calling,
    plan: CallPlan,
    *,
    ask_from: Risk | None = "change",
    approvers: Collection[str] | None = None,
    expires_s: float | None = None,
    quorum: int = 1,
    requester_may_approve: bool = True,
) -> PlanResult:
    """Make the calls of `plan`, one after the other, and return what has become of them.

    Each call is a step of the episode. If one of them has the risk `ask_from` or a greater one,
    people are asked first: they see all calls, and what those would do that have a preview; they
    may change arguments and tools, leave calls out and add some, and the plan is carried out as
    they have made it. The first call that fails ends it.

    Args:
        plan: of a class that `plan_of` has made.
        ask_from: None: nobody is asked.
        approvers: who may decide; None: anybody.
        expires_s: after how many seconds it is denied if nobody has decided; None: never.
        quorum: how many different people have to approve it.
        requester_may_approve: whether who has asked for the episode may decide, too.

    Raises `InvalidAction` if `plan` is none, or `ask_from` no risk.
    """
    given: object = plan
    tools = given.tools if isinstance(given, CallPlan) else None
    if tools is None:
        raise InvalidAction(f"run_plan: {shown(given)} is no plan of a class of plan_of(…)")
    check_ask_from(ask_from)
    by, reason, is_edited = "", "", False
    if plan.is_risky(ask_from):  # guard: risky-plan-is-asked
        asked = plan.asked(await _previews(ctx, tools, plan))
        # guard: summary-of-plan-hides-secrets
        summary = without(plan.summary, secrets_of_calls(asked, tools.hidden))
        answer = await ctx.approval(
            shown_plan(asked, tools.hidden),
            summary=cut_summary(summary) or f"a plan of {len(plan.calls)} calls",
            approvers=approvers,
            expires_s=expires_s,
            editable=plan.editable,
            shared=False,
            quorum=quorum,
            requester_may_approve=requester_may_approve,
        )
        by, reason, is_edited = answer.by, answer.reason, answer.is_edited
        if not answer:  # guard: denied-plan-not-run
            return PlanResult(status="denied", by=by, reason=reason)
        if is_edited:
            try:
                plan = plan.edited(answer.plan)
            except ValueError as problem:
                told = f"as changed it cannot be carried out: {problem}"
                return PlanResult(status="denied", by=by, reason=told, is_edited=True)
    made: list[MadeCall] = []
    for each in plan.calls:
        made.append(await _made(ctx, tools.tools[each.tool], each))
        if made[-1].error_class:  # guard: failed-call-ends-plan
            break
    status: Literal["done", "failed"] = "failed" if made and made[-1].error_class else "done"
    return PlanResult(status=status, calls=tuple(made), by=by, reason=reason, is_edited=is_edited)


async def _previews(ctx: Calling, tools: PlanTools, plan: CallPlan) -> dict[int, object]:
    """Return what calls would do, by their numbers, as far as that can be told."""
    would: dict[int, object] = {}
    for number, each in enumerate(plan.calls, start=1):
        if (preview := tools.previews.get(each.tool)) is not None:
            told = await _made(ctx, preview, each)
            failed = f"unknown: {told.error_class}: {told.error_detail}"
            said = failed if told.error_class else told.result
            would[number] = said
    return would


async def _made(ctx: Calling, tool: StepTool, call: PlannedCall) -> MadeCall:
    args: Any = without_values(call.args, tool.tool.hidden)
    try:
        if tool.makes_steps is not None:
            result = unraw(raw(await tool.makes_steps(ctx, **call.args)))
        else:
            result = await ctx.call(f"{tool.tool.capability}.{tool.tool.action}", **call.args)
    except CallFailed as failed:
        if failed.error_class in MISTAKES:
            raise
        return MadeCall(
            tool=call.tool,
            args=args,
            error_class=failed.error_class,
            error_detail=failed.detail,
        )
    return MadeCall(tool=call.tool, args=args, result=result)
