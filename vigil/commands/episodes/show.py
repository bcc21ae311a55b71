"""`vigil episodes list`, `show` and `steps`: what the tables have of episodes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer
from typer import Option

from streams.clock import SystemClock
from streams.model.events import GRANT_TOOL, BlockReason, EndStatus, Resolution, StepKind
from streams.model.money import dollars
from streams.model.outputs import ALL_OUTPUTS_FAILED
from streams.model.triggers import LogStrategy
from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.commands.inbox import progress_in
from vigil.printing import columns, tables
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.output import say_aside, show_record, show_section, show_sheet, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from projections.records import EpisodeSummary, StepRow
    from vigil.client.page import Page

app = typer.Typer()

LISTING: Final = Listing(
    (
        Column("id", "episode_id", Form.ID),
        Column("about", "subject_id"),
        Column("expectation", "expectation_id"),
        Column("status", "status"),
        Column("age", "queued_at", Form.AGE, wide="opened"),
        Column("result", "result", room=SENTENCE),
        Column("actor", "actor_id"),
        Column("turns", "turns_used"),
    ),
    spare=("turns", "actor", "result", "about"),
    cuts=("expectation", "status"),
)
STEPS: Final = Listing(
    (
        Column("step", "step_no"),
        Column("what", "what", room=34),
        Column("state", "state"),
        Column("took", "took"),
        Column("error", "error", room=SENTENCE),
        Column("result", "result"),
        Column("arguments", "args_redacted"),
        Column("at", "created_at", Form.TIME),
        Column("tokens", "cost_tokens"),
        Column("cost (USD)", "cost"),
    ),
    spare=("tokens", "at", "cost (USD)", "arguments", "result", "error"),
)
STEPS_IN_SHORT: Final = Listing((*STEPS.columns[:5], STEPS.columns[-1]))
FINDINGS: Final = Listing(
    (
        Column("finding", "finding_key"),
        Column("what happened", "what"),
        Column("severity", "severity"),
        Column("summary", "summary"),
    ),
    spare=("summary",),
)
OUTPUTS: Final = Listing(
    (
        Column("output", "output_key"),
        Column("adapter", "adapter"),
        Column("status", "status"),
        Column("came to", "outcome"),
        Column("attempts", "attempts"),
        Column("next try", "next_attempt_at", Form.AGE),
        Column("error", "error", room=SENTENCE),
        Column("delivered as", "delivered_ref"),
    ),
    spare=("delivered as", "attempts", "next try", "adapter", "error"),
)
CHILDREN: Final = Listing(
    (
        Column("child", "child", room=34),
        Column("call", "parent_call"),
        Column("id", "episode_id", Form.ID),
        Column("status", "status"),
        Column("result", "result", room=SENTENCE),
        Column("turns", "turns_used"),
        Column("tokens", "tokens_used"),
    ),
    spare=("tokens", "turns", "call", "result"),
)

USUAL: Final[Row] = {
    "generation": 0,
    "priority": 0,
    "log_strategy": LogStrategy.FULL_DEBUG,
}
"""What an episode has that goes without saying."""

LABELS: Final[Mapping[str, str]] = {"opened_by": "asked for by"}

TOLD: Final = frozenset({
    "stack", "journal_seq", "episode_id", "actor_id", "expectation_id", "subject_kind",
    "subject_id", "status", "blocked_by", "mode", "forked_from", "forked_at_step",
    "forked_by", "forked_reason", "trigger_type", "trigger_ref", "queued_at", "started_at",
    "finished_at", "turns_used", "tokens_used", "cost_usd", "wall_used_ms", "summary",
    "error_class",
    "error_detail", "outputs", "findings", "children", "waits_for", "dedupe_key",
    "would_raise", "would_send", "attempts", "takeovers", "budget", "blocked_ref", "blocked_until",
    "spec_rev", "first_node", "is_request",
})  # fmt: skip
"""The columns of an episode that the first lines tell, that have a table, or are for programs."""

STATES: Final[Mapping[str, str]] = {"recorded": "done"}
"""The state of a step → what it is called in a table; `--json` has it as it is."""

BLOCKED: Final = "blocked"
PARKED: Final = "parked"

WAITED_FOR: Final[Mapping[str, str]] = {
    BlockReason.APPROVAL: "approval",
    BlockReason.WAIT: "an event, a time or its children",
    BlockReason.NONDETERMINISTIC_REPLAY: "other code",
    "outputs": "its outputs",
}
"""`blocked_by` → what it waits for, in words."""

WOULD_HAVE_DONE: Final = Listing(
    (
        Column("would have", "would_have"),
        Column("what", "name"),
        Column("severity", "severity"),
        Column("summary", "summary"),
    ),
    spare=("summary",),
)

WOULD_HAVE: Final = {"raise": "raised", "update": "updated", "clear": "cleared"}
"""What an intent does → what a dry run would have done."""

ANYBODY: Final = "anybody"

HASH_DIGITS: Final = 12
"""How much of the hash of a plan is shown; `--hash` takes 8 or more."""

BRANCH: Final = "└"
"""Begins the name of a child, below that of its parent."""

_CLOCK: Final = SystemClock()


class EpisodeStatus(StrEnum):
    """Statuses of episodes in the rows: the open ones, and how it may have ended."""

    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"
    DONE = EndStatus.DONE
    FAILED = EndStatus.FAILED
    PARTIALLY_FAILED = EndStatus.PARTIALLY_FAILED
    CANCELED = EndStatus.CANCELED


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[EpisodeStatus | None, Option(help="Only with this status.")] = None,
    actor: Annotated[str | None, Option(help="Only of this actor.")] = None,
    expectation: Annotated[str | None, Option(help="Only of the expectation of this name.")] = None,
    subject: Annotated[
        str | None, Option(help="Only about the thing with this id, such as web-1.")
    ] = None,
    since: Annotated[
        str | None,
        Option(metavar="TIME", help="Only opened then or later: 2030-01-31T09:00:00Z, or 2h ago."),
    ] = None,
    until: Annotated[
        str | None, Option(metavar="TIME", help="Only opened before; written as for --since.")
    ] = None,
    at: options.PastTime = None,
    after: Annotated[
        str | None,
        Option(metavar="ID", help="The next page: only what the list has after this episode."),
    ] = None,
    limit: options.Limit = 50,
    is_wide: options.IsWide = False,
    is_json: options.IsJson = False,
) -> None:
    """List episodes: queued ones first, then the latest started; with --at the latest opened."""
    now = _CLOCK.now()
    then = options.read_past(at, what="--at", now=now)
    begins = options.read_past(since, what="--since", now=now)
    ends = options.read_past(until, what="--until", now=now)

    async def listed(client: Client) -> Page[EpisodeSummary]:
        return await client.episodes.list(
            status=status,
            actor=actor,
            expectation=expectation,
            subject=subject,
            since=begins,
            until=ends,
            at=then,
            after=after,
            limit=limit,
        )

    page = call(ctx, listed)
    print_episodes(page.rows, is_json=is_json, is_wide=is_wide, why_none=page.why_none, now=then)
    if page.next is not None and not is_json:
        place = page.rows[-1]["episode_id"] if then is None else page.next
        say_aside(f"there may be more: add --after {place}")


def print_episodes(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    why_none: str = "",
    now: datetime | None = None,
) -> None:
    """Print a list of episodes."""
    at = now or _CLOCK.now()
    shown = rows if is_json else [_listed(row, at) for row in rows]
    show_table(shown, LISTING, is_json=is_json, is_wide=is_wide, why_none=why_none, now=at)


def _listed(row: Row, now: datetime) -> Row:
    return {**row, "status": columns.marked(row), "result": result_of(row, now)}


def result_of(row: Row, now: datetime) -> str:
    """Return what an episode came to on one line, or what it waits for."""
    if row.get("position") is not None:
        return f"number {row['position']} of its queue"
    if row["status"] == BLOCKED and (waits_for := row.get("blocked_by")):
        return _wait(row, now) if waits_for == BlockReason.WAIT else _cause(waits_for)
    return str(row["summary"] or columns.error_of(row) or "")


def _wait(row: Row, now: datetime) -> str:
    """Return what an episode waits for that nobody has to approve."""
    ref, until = row["blocked_ref"], row["blocked_until"]
    if ref:
        return f"waits for {ref}"
    if until is None:
        return "waits for its children"
    return columns.in_brief(f"sleeps until {tables.said(until)} UTC", now)


def _cause(waits_for: object) -> str:
    """Return what an episode waits for, as a list has it; one whose code has changed is parked."""
    mark = f"{PARKED}: " if waits_for == BlockReason.NONDETERMINISTIC_REPLAY else ""
    return f"{mark}waits for {WAITED_FOR.get(str(waits_for), waits_for)}"


@app.command()
def show(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    at: options.PastTime = None,
    is_json: options.IsJson = False,
) -> None:
    """Show everything about one episode."""
    then = options.read_past(at, what="--at", now=_CLOCK.now())

    async def described(client: Client) -> tuple[Row, Sequence[Row]]:
        wanted = await named(client, episode_id, is_latest=is_latest)
        row = await client.episodes.describe(wanted, at=then)
        return row, [] if is_json else await _steps(client, wanted, then)

    row, steps = call(ctx, described)
    if is_json:
        show_record(row, is_json=True)
    else:
        print_episode(row, steps, now=then or _CLOCK.now())


async def _steps(client: Client, id_: UUID | str, then: datetime | None) -> Sequence[Row]:
    """Return the steps of an episode; of the past, those that it had taken."""
    rows = (await client.episodes.steps(id_)).rows
    return [each for each in rows if then is None or _time(each["created_at"]) <= then]


def _time(value: object) -> datetime:
    assert isinstance(value, datetime)
    return value


def print_episode(row: Row, steps: Sequence[Row], *, now: datetime) -> None:
    """Print everything about one episode: what it is, what it waits for, what came of it."""
    children = _rows_in(row, "children")
    first = _first({**row, "budget": _budget(row, steps)}, now)
    told = columns.sheet(row, usual=USUAL, hidden=TOLD, first=first, labels=LABELS)
    show_sheet(f"episode {row['episode_id']}", told)
    block = row.get("waits_for")
    if isinstance(block, Mapping):
        print()
        asked = {**_asked(block, children, now), **_parked(block, steps)}
        last = {"what to do": todo} if (todo := what_to_do(block)) else {}
        in_order = tables.in_words(tables.spelled_out(asked, "plan"))
        show_sheet("It waits", {**in_order, **last}, utc=False)
    findings = [_of_finding(each) for each in _rows_in(row, "findings")]
    show_section("Findings", findings, FINDINGS, now=now)
    outputs = [
        {**each, "error": columns.error_of(each), "status": columns.output_status(each)}
        for each in _rows_in(row, "outputs")
    ]
    show_section("Outputs", outputs, OUTPUTS, now=now)
    left_out = would_have(row.get("would_raise"), row.get("would_send"))
    show_section("What a dry run leaves out", left_out, WOULD_HAVE_DONE, now=now)
    show_section("Children", [_in_tree(each) for each in children], CHILDREN, now=now)
    show_section("Steps", [_of_step(each) for each in steps], STEPS_IN_SHORT, now=now)


def _rows_in(row: Row, column: str) -> Sequence[Row]:
    rows = row.get(column)
    return rows if isinstance(rows, list) else []


def _first(row: Row, now: datetime) -> Row:
    """Return what an episode is and how it stands: label → words."""
    status, waits_for = str(row["status"]), row.get("blocked_by")
    if status == BLOCKED and waits_for and not row.get("waits_for"):
        status = f"{status}: {_cause(waits_for)}"
    if waits_for == BlockReason.NONDETERMINISTIC_REPLAY and row.get("waits_for"):
        status = f"{status}, {PARKED}"
    return {
        "expectation": f"{row['actor_id']}.{row['expectation_id']}",
        "about": " ".join(str(row[each]) for each in ("subject_kind", "subject_id") if row[each]),
        "status": status,
        "dry run": "yes: nothing outside changes" if row["mode"] == columns.DRY_RUN else None,
        "fork": _fork(row),
        "summary": row["summary"],
        "error": ": ".join(str(row[each]) for each in ("error_class", "error_detail") if row[each]),
        "opened by": _trigger(row),
        "opened": columns.moment(row["queued_at"], now),
        "started": columns.moment(row["started_at"], now),
        "ended": columns.moment(row["finished_at"], now),
        "used": _used(row),
        "takeovers": row["takeovers"] or None,
        "what to do": _after_failure(row),
    }


def _after_failure(row: Row) -> str | None:
    """Return the commands that lead on from a failure, a line each."""
    if row["status"] not in (EndStatus.FAILED, EndStatus.PARTIALLY_FAILED):
        return None
    id_ = str(row["episode_id"])[: columns.ID_CHARS[1]]
    return f"vigil episodes steps {id_}\nvigil episodes fork {id_} --at N"


def _trigger(row: Row) -> str:
    kind, ref = str(row["trigger_type"]).replace("_", " "), row["trigger_ref"]
    words = tables.as_words(ref) if isinstance(ref, Mapping) else ""
    return f"{kind}: {words}" if words else kind


def _fork(row: Row) -> str | None:
    if not row["forked_from"]:
        return None
    by = f", by {row['forked_by']}" if row["forked_by"] else ""
    why = f": {row['forked_reason']}" if row["forked_reason"] else ""
    return f"of {row['forked_from']} at step {row['forked_at_step']}{by}{why}"


def _has_returned(row: Row) -> bool:
    """Return whether the turns of an episode have its return, for which a budget needs no room."""
    is_undelivered = row["error_class"] == ALL_OUTPUTS_FAILED
    return row["status"] in (EndStatus.DONE, EndStatus.PARTIALLY_FAILED) or is_undelivered


def _used(row: Row) -> str:
    turns, tokens = int(str(row["turns_used"])), int(str(row["tokens_used"]))
    budget = _object(row["budget"])
    turns_max, tokens_max = budget.get("turns", 0), budget.get("tokens", 0)
    returned = turns_max and _has_returned(row)
    of_turns = f"{turns - bool(returned):,}{f' of {turns_max:,}' if turns_max else ''} turn"
    plural = f"{'' if (turns_max or turns) == 1 else 's'}{' and its return' if returned else ''}"
    of_tokens = f", {tokens:,}{f' of {tokens_max:,}' if tokens_max else ''} tokens"
    usd, usd_max = (Decimal(str(each or 0)) for each in (row["cost_usd"], budget.get("usd")))
    of_usd = f", {dollars(usd)}{f' of {dollars(usd_max)}' if usd_max else ''} USD"
    wall_s = budget.get("wall_s", 0)
    of_wall = f" of {columns.length(wall_s)}" if wall_s else ""
    running = f"{columns.took(row['wall_used_ms'])}{of_wall} of running"
    models = f"{of_tokens if tokens or tokens_max else ''}{of_usd if usd or usd_max else ''}"
    return f"{of_turns}{plural}{models}, {running}"


def _budget(row: Row, steps: Sequence[Row]) -> Mapping[str, Any]:
    """Return the budget of an episode with what people have granted beyond it."""
    budget = dict(_object(row["budget"]))
    for limit, more in (each for step in steps for each in _granted(step).items()):
        if budget.get(limit):  # What has no limit gets none.
            whole = Decimal(str(budget[limit])) + Decimal(str(more))
            budget[limit] = whole if limit == "usd" else int(whole)
    return budget


def _granted(step: Row) -> Mapping[str, Any]:
    """Return what people have granted in a step: limit → how much more; nothing: it is no grant."""
    is_grant = step["kind"] == StepKind.APPROVAL and step["tool_name"] == GRANT_TOOL
    return _object(_object(step["result"]).get("plan")) if is_grant else {}


def _of_finding(change: Row) -> Row:
    return {**change, "what": str(change["kind"]).removeprefix("finding_")}


def _of_step(row: Row) -> Row:
    """Return a step as a table has it."""
    state = STATES.get(str(row["state"]), row["state"])
    return {
        **row,
        "what": _what(row),
        "state": f"{state}, override" if row["is_override"] else state,
        "took": columns.took(row["cost_ms"]),
        "cost_tokens": row["cost_tokens"] or None,
        "cost": None if row["cost_usd"] is None else dollars(Decimal(str(row["cost_usd"]))),
        "error": columns.error_of(row),
        "result": shown_as(row),
    }


def _what(row: Row) -> str:
    """Return what a step did, as far as its arguments and its result may be seen."""
    tool, args, result = row["tool_name"], _object(row["args_redacted"]), _object(row["result"])
    kind = str(row["kind"])
    match kind:
        case StepKind.EPISODE if tool:
            return f"child {tool}"
        case StepKind.MODEL_REQUEST:
            asked = str(row["agent"] or "").partition(":")[0] or "model"
            return f"{asked}: {row['model']}" if row["model"] else asked
        case StepKind.OUTPUT if tool:
            return f"output to {str(tool).removeprefix(f'{StepKind.OUTPUT}.')}"
        case StepKind.REPORT:
            done = (f"{count} {WOULD_HAVE.get(do, do)}" for do, count in args.items())
            return f"findings: {', '.join(done)}" if args else "findings"
        case StepKind.APPROVAL if result.get("resolution"):
            by = f" by {result['by']}" if result.get("by") else ""
            granted = tables.as_words(_granted(row))
            said = f"granted{by}: {granted}" if granted else f"approval: {result['resolution']}{by}"
            changed = "plan" in result and not granted
            plan = f", changed to {tables.as_json_line(result['plan'])}" if changed else ""
            return f"{said}{plan}{f': {why}' if (why := result.get('reason')) else ''}"
        case StepKind.WAIT if args.get("ref"):
            return f"wait for {args['ref']}"
        case StepKind.WAIT if args.get("seconds"):
            return f"sleep of {columns.length(args['seconds'])}"
        case StepKind.WAIT if args.get("until"):
            return "sleep"
        case StepKind.CHECKPOINT if args.get("phase"):
            return f"checkpoint {args['phase']}"
        case _:
            return str(tool or kind)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def would_have(findings: object, outputs: object) -> list[Row]:
    """Return a row for each finding and output that a dry run has left out."""
    raised = findings if isinstance(findings, list) else []
    sent = outputs if isinstance(outputs, list) else []
    return [
        *(
            {**each, "would_have": WOULD_HAVE[each["do"]], "name": each["finding_key"]}
            for each in raised
        ),
        *({**each, "would_have": "sent", "name": each["adapter"]} for each in sent),
    ]


def _in_tree(child: Row) -> Row:
    """Return the row of a child with its name, indented below its parent's."""
    below = int(str(child["level"])) - 1
    indent = f"{'  ' * (below - 1)}{BRANCH} " if below else ""
    name = f"{indent}{child['actor_id']}.{child['expectation_id']}"
    return {**child, "child": name, "result": child["summary"] or child["error_class"]}


@app.command()
def steps(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    is_wide: options.IsWide = False,
    is_json: options.IsJson = False,
) -> None:
    """List the steps of one episode, in order."""

    async def steps_of(client: Client) -> Page[StepRow]:
        wanted = await named(client, episode_id, is_latest=is_latest)
        return await client.episodes.steps(wanted)

    rows = call(ctx, steps_of).rows
    print_steps(rows, is_json=is_json, is_wide=is_wide)


def print_steps(rows: Sequence[Row], *, is_json: bool = False, is_wide: bool = False) -> None:
    """Print the steps of an episode."""
    shown = rows if is_json else [_of_step(row) for row in rows]
    show_table(shown, STEPS, is_json=is_json, is_wide=is_wide)


def shown_as(row: Row) -> object:
    """Return a step's result, or how large it is where the rows do not have it."""
    size_bytes, found = row["result_size_bytes"], row["result"]
    return f"{size_bytes:,} bytes" if found is None and size_bytes is not None else found


def _asked(block: Mapping[str, object], children: Sequence[Row], now: datetime) -> Row:
    """Return what an episode waits for, since and until when, and what people can do."""
    if block["reason"] == BlockReason.WAIT and not block["ref"]:
        return _let_be(block, children, now)
    asks: Row = {}
    if block["reason"] == BlockReason.WAIT:
        what = f"an answer to {block['ref']}"
    elif block["reason"] == BlockReason.NONDETERMINISTIC_REPLAY:
        what = WAITED_FOR[BlockReason.NONDETERMINISTIC_REPLAY]
        asks = {"why": f"the code has changed: {block['summary']}"}
    else:
        approvers = tables.as_list(block["approvers"])
        what = f"approval by {f'one of {approvers}' if approvers else ANYBODY}"
        digits = str(block["plan_hash"] or "")[:HASH_DIGITS]
        asks = {
            "summary": block["summary"],
            "so far": progress_in(block) or None,
            "not by": block.get("barred"),
            "plan hash": digits,
            "plan": block["plan"],
        }
    return {
        "for": what,
        "since": columns.moment(block["blocked_at"], now),
        "until": columns.moment(block["expires_at"], now),
        "then": block["on_expiry"] if block["expires_at"] else None,
        **asks,
    }


def what_to_do(block: Mapping[str, object]) -> str:
    """Return the commands that end a wait, a line each; empty: nobody need do anything."""
    id_ = str(block["episode_id"])[: columns.ID_CHARS[1]]
    match block["reason"]:
        case BlockReason.WAIT if not block["ref"]:
            return ""
        case BlockReason.WAIT:
            todo = [f"resolve {shlex.quote(str(block['ref']))}"]
        case BlockReason.NONDETERMINISTIC_REPLAY:
            todo = [f"fork {id_} --at N", f"cancel {id_}"]
        case _:
            todo = [f"approve {id_}", f"deny --reason '…' {id_}"]
    lines = [f"vigil episodes {each}" for each in todo]
    if block["reason"] == BlockReason.NONDETERMINISTIC_REPLAY:
        lines.append("or bring back the code that it began with")
    return "\n".join(lines)


def _parked(block: Mapping[str, object], steps: Sequence[Row]) -> Row:
    """Return what people have approved last of a parked episode, and what came of it: nothing."""
    is_parked = block["reason"] == BlockReason.NONDETERMINISTIC_REPLAY
    last = steps[-1] if steps and is_parked else None
    if last is None or last["kind"] != StepKind.APPROVAL:  # guard: parked-approval-told
        return {}
    said = _object(last["result"])
    if said.get("resolution") != Resolution.APPROVED:
        return {}
    by = f"by {said['by']}" if said.get("by") else "when its time was over"
    return {"approved": f"{by}, as step {last['step_no']}; nothing was done about it yet"}


def _let_be(block: Mapping[str, object], children: Sequence[Row], now: datetime) -> Row:
    """Return what an episode waits for that nobody need do anything about."""
    since = columns.moment(block["blocked_at"], now)
    if block["expires_at"] is not None:
        until = columns.moment(block["expires_at"], now)
        return {"for": "the end of its sleep", "since": since, "until": until}
    own = [each for each in children if each["level"] == 1]
    left = [each for each in own if each["status"] not in {*EndStatus}]
    return {"for": f"{len(left)} of its {len(own)} children", "since": since}
