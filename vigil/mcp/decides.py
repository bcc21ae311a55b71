"""Tools about decisions of people: what waits, and where it is decided. They decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal
from urllib.parse import quote

from msgspec import Meta

from projections.records import RowRecord, record_of
from streams.json import unraw
from vigil.errors import Trouble
from vigil.mcp.look import AWAY
from vigil.mcp.tool import (
    ROWS_USUAL,
    After,
    AnyTool,
    AskPerson,
    Limit,
    ServedCall,
    ServedTool,
    ToolInput,
    ToolKind,
    ToolOutput,
)
from vigil.ports import ApprovalTarget

INBOX_PAGE: Final = "inbox"
"""The page of the console on which people decide."""

ASKING: Final = {"episode": "approval", "output": "output", "step": "workflow_step"}
"""What asks for approval → what the inbox calls that."""


class FindApprovals(ToolInput, frozen=True, kw_only=True):
    """Which requests to list."""

    actor: Annotated[str | None, Meta(description="Only those of this actor.")] = None
    after: After = None
    limit: Limit = ROWS_USUAL


class ApprovalLine(RowRecord, frozen=True, kw_only=True):
    """A request for approval, in a list."""

    kind: str
    """`approval` of an episode, `output`, or `workflow_step`."""
    id: str
    actor_id: str | None
    expectation_id: str | None
    """Of a step of a workflow: the step."""
    summary: str | None
    since: datetime
    expires_at: datetime | None
    approvers: list[str] | None
    """Who may decide; none: anybody."""


class FoundApprovals(ToolOutput, frozen=True, kw_only=True):
    """What waits for the decision of a person, the oldest first."""

    items: Sequence[ApprovalLine]
    next: str | None = None
    """What to give as `after` for more; null: there is no more."""
    why_none: str = ""
    where: str
    """Where a person decides."""


async def approvals(call: ServedCall, asked: FindApprovals) -> FoundApprovals:
    """Return what waits for a decision."""
    page = await call.client.inbox(
        kind=[*ASKING.values()], actor=asked.actor, after=asked.after, limit=asked.limit
    )
    items = [record_of(each, ApprovalLine) for each in page.rows]
    where = page_of(call.console_url) or "`vigil inbox`"
    return FoundApprovals(items=items, next=page.next, why_none=page.why_none, where=where)


class McpApproval(ToolInput, frozen=True, kw_only=True):
    """What asks for approval."""

    kind: Literal["episode", "output", "step"] = "episode"
    id: Annotated[
        str, Meta(description="Of the episode; of an output its key, of a step the instance.")
    ]
    step: Annotated[str, Meta(description="The step of the workflow.")] = ""


class ApprovalFacts(ToolOutput, frozen=True, kw_only=True):
    """A request for approval that waits."""

    kind: str
    id: str
    step: str
    summary: str
    plan: object
    """What is to be done."""
    plan_hash: str
    approvers: Sequence[str]
    """Who may decide; none: anybody."""
    editable: bool
    asked_at: datetime
    expires_at: datetime | None
    where: str
    """Where a person decides."""


async def approval(call: ServedCall, asked: McpApproval) -> ApprovalFacts:
    """Return a request that waits."""
    target = ApprovalTarget(asked.kind, asked.id, asked.step)
    found = await call.client.approvals.read(target)
    return ApprovalFacts(
        kind=asked.kind,
        id=asked.id,
        step=asked.step,
        summary=found.approval.summary,
        plan=unraw(found.plan),
        plan_hash=found.approval.plan_hash,
        approvers=found.approval.approvers,
        editable=found.approval.editable,
        asked_at=found.asked_at,
        expires_at=found.approval.expires_at,
        where=page_of(call.console_url, asked.kind, asked.id, asked.step) or "`vigil inbox`",
    )


class DecisionLeft(ToolOutput, frozen=True, kw_only=True):
    """A decision that was left to a person."""

    is_decided: bool
    says: str


async def decide(call: ServedCall, asked: McpApproval) -> DecisionLeft | AskPerson:
    """Bring a person to the page of a request; the person decides there, or does not."""
    target = ApprovalTarget(asked.kind, asked.id, asked.step)
    if call.is_answered:
        try:
            await call.client.approvals.read(target)
        except Trouble as error:
            if isinstance(error, AWAY):
                raise
            return DecisionLeft(is_decided=True, says=str(error))
        return DecisionLeft(is_decided=False, says=f"{target} still waits for a person")
    found = await call.client.approvals.read(target)
    url = page_of(call.console_url, asked.kind, asked.id, asked.step)
    if not url:
        raise Trouble(
            "a person decides, and no console is known here",
            remedy="a person types `vigil inbox`; or start the server with --console-url, so that"
            " this tool opens the page",
        )
    return ask_person(url, f"decision-{found.approval.plan_hash[:16]}")


def ask_person(url: str, key: str) -> AskPerson:
    """Return the request that a person opens the page of a decision."""
    message = "A person is asked to approve or deny something. Sign in there, read it, and decide."
    return AskPerson(key=key, message=message, url=url)


def page_of(console_url: str, kind: str = "", id: str = "", step: str = "") -> str:
    """Return where people decide, or where they decide on one request; empty: nobody has said."""
    if not console_url:
        return ""
    words = [INBOX_PAGE, *((kind, id, step) if id else ())]
    path = "/".join(quote(each, safe=":@") for each in words if each)
    return f"{console_url.rstrip('/')}/{path}"


DECIDES: Final[Sequence[AnyTool]] = (
    ServedTool(
        name="approvals",
        about="List what waits for the decision of a person, the oldest first.",
        kind=ToolKind.READ,
        input=FindApprovals,
        output=FoundApprovals,
        call=approvals,
    ),
    ServedTool(
        name="approval",
        about="One request for approval: what is to be done, and who may decide.",
        kind=ToolKind.READ,
        input=McpApproval,
        output=ApprovalFacts,
        call=approval,
    ),
    ServedTool(
        name="decide",
        about="Ask the person in front of this program to decide on a request for approval: opens"
        " its page in the console, where that person signs in. You cannot approve or deny.",
        kind=ToolKind.DECIDE,
        input=McpApproval,
        output=DecisionLeft,
        call=decide,
    ),
)
"""Tools about what people decide."""
