"""`vigil episodes`: what actors do and did."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from uuid import UUID

import msgspec
import typer
from typer import Argument, Option

from projections.episodes import shown_result
from projections.postgres.pool import Pool
from projections.postgres.query_result import ROWS_MAX, Row
from projections.postgres.reader import (
    list_episodes,
    list_log_lines,
    list_outputs,
    list_steps,
    list_unended_episodes,
    show_block,
    show_episode,
)
from streams.clock import SystemClock
from streams.json import raw, unraw
from streams.model.events import (
    BlockReason,
    EndStatus,
    EpisodeBlocked,
    EpisodeEvent,
    EpisodeResolved,
    StepAnnounced,
    StepRecorded,
)
from streams.model.outputs import OutputOutcome
from streams.model.triggers import LogStrategy
from streams.subjects import Stack
from vigil import options
from vigil.asking.connect import with_ports
from vigil.asking.episode_log import live_log, why_silent
from vigil.asking.rows import ENDS, ask, ask_one, parse_id, require, show_found, wait_ended
from vigil.errors import EXIT_TROUBLE, Mistake, Trouble
from vigil.printing import tables
from vigil.printing.output import say_aside, show_record, show_rows
from vigil.settings import Config

if TYPE_CHECKING:
    from engine.operations.replay import Frame
    from engine.waits.answer import StillWaiting
    from streams.model.events import SignalWaited
    from streams.ports.all import Ports
    from streams.ports.log import Recorded
    from vigil.asking.requests import CommandOutcome, CommandResult, SentCommand

app = typer.Typer(no_args_is_help=True)

COLUMNS: Final = (
    "episode_id", "actor_id", "expectation_id", "subject_id", "status", "position", "turns_used",
    "started_at", "finished_at", "says", "error_class",
)  # fmt: skip
SPARE: Final = (
    "turns_used", "finished_at", "expectation_id", "started_at", "subject_id", "actor_id",
    "error_class",
)  # fmt: skip
STEP_COLUMNS: Final = (
    "step_no", "kind", "tool_name", "state", "cost_ms", "cost_tokens", "error_class",
    "args_redacted", "result",
)  # fmt: skip
OUTPUT_COLUMNS: Final = (
    "output_key", "outcome", "adapter", "status", "attempts", "next_attempt_at", "delivered_ref",
    "error_class", "error_detail",
)  # fmt: skip
REPLAY_COLUMNS: Final = (
    "number", "seq", "at", "event", "call", "status", "node", "attempts", "crashes",
    "steps_recorded", "checkpoints_saved", "tokens_used", "wall_used_s",
)  # fmt: skip
REPLAY_SPARE: Final = (
    "checkpoints_saved", "crashes", "attempts", "wall_used_s", "tokens_used", "node", "seq",
    "steps_recorded", "call",
)  # fmt: skip

ANYBODY: Final = "anybody"

ROUNDS_MAX: Final = 100
"""Most questions for the episodes of an actor."""

TOLD_EVERY_S: Final = 1.0

UNKNOWN: Final = ""
"""Status of an episode that is not on the journal."""

_CLOCK: Final = SystemClock()

ShownStrategy: TypeAlias = Annotated[
    LogStrategy | None,
    Option("--strategy", help="How much to print, of what is kept; by default the episode's own."),
]

EpisodeId: TypeAlias = Annotated[
    str, Argument(metavar="ID", help="The episode's id, as `vigil episodes list` shows it.")
]


class EpisodeStatus(StrEnum):
    """Statuses of episodes in the rows: the open ones, and how it may have ended."""

    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"
    DONE = EndStatus.DONE
    FAILED = EndStatus.FAILED
    PARTIALLY_FAILED = EndStatus.PARTIALLY_FAILED
    CANCELED = EndStatus.CANCELED


class Unended(StrEnum):
    """Statuses of episodes that can be canceled."""

    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class EpisodeToCancel:
    """An episode, and its status."""

    episode_id: UUID
    actor_id: str
    status: str

    @property
    def is_open(self) -> bool:
        """Whether it can still be canceled."""
        return self.status not in {UNKNOWN, *ENDS}

    @property
    def outlook(self) -> str:
        """What becomes of it, in words: for good, or once a node has handled the request."""
        return f"{self.status}, to be canceled" if self.is_open else self.status

    def as_row(self) -> Row:
        """Return it as programs read it."""
        return {**vars(self), "episode_id": str(self.episode_id)}


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
    after: Annotated[
        str | None,
        Option(metavar="ID", help="The next page: only what the list has after this episode."),
    ] = None,
    limit: options.Limit = 50,
    is_json: options.IsJson = False,
) -> None:
    """List episodes: queued ones first, then the latest started."""
    past = None if after is None else parse_id(after)
    now = _CLOCK.now()
    config, narrowed = (
        options.config(ctx),
        {
            "status": status,
            "actor": actor,
            "expectation": expectation,
            "subject": subject,
        },
    )
    begins = options.read_past(since, what="--since", now=now)
    ends = options.read_past(until, what="--until", now=now)

    async def question(pool: Pool) -> list[Row]:
        last = None if past is None else await show_episode(pool, config.stack, past)
        if past is not None:
            require(last, f"episode {past}", config.stack)
        return await list_episodes(
            pool, config.stack, **narrowed, since=begins, until=ends, past=last, limit=limit
        )

    rows = ask(config, question)
    shown = rows if is_json else [{**row, "says": says(row)} for row in rows]
    show_found(config, shown, COLUMNS, is_json=is_json, spare=SPARE)
    if len(rows) == limit and not is_json:
        say_aside(f"there may be more: add --after {rows[-1]['episode_id']}")


@app.command()
def show(ctx: typer.Context, *, episode_id: EpisodeId, is_json: options.IsJson = False) -> None:
    """Show everything about one episode."""
    config, wanted = options.config(ctx), parse_id(episode_id)
    question = partial(_record, stack=config.stack, episode_id=wanted)
    row = ask_one(config, question, f"episode {wanted}")
    if is_json:
        show_record(row, is_json=True)
        return
    block, outputs = row.pop("waits_for"), row.pop("outputs")
    show_record(row, is_json=False)
    if isinstance(block, dict):
        show_record(tables.in_words(tables.spelled_out(_asked(block), "plan")), is_json=False)
    if isinstance(outputs, list) and outputs:
        show_rows(outputs, OUTPUT_COLUMNS, is_json=False)


@app.command()
def steps(ctx: typer.Context, *, episode_id: EpisodeId, is_json: options.IsJson = False) -> None:
    """List the steps of one episode, in order."""
    config, wanted = options.config(ctx), parse_id(episode_id)

    async def question(pool: Pool) -> list[Row]:
        episode = await show_episode(pool, config.stack, wanted)
        require(episode, f"episode {wanted}", config.stack)
        return [*await list_steps(pool, config.stack, wanted)]

    show_rows(ask(config, question), STEP_COLUMNS, is_json=is_json)


@app.command()
def log(
    ctx: typer.Context,
    *,
    episode_id: EpisodeId,
    strategy: ShownStrategy = None,
    is_json: options.IsJson = False,
) -> None:
    """Print what one episode did, in order, as far as its log strategy lets people see it."""
    config, wanted = options.config(ctx), parse_id(episode_id)

    async def question(pool: Pool) -> tuple[Row, list[Row]]:
        found = await show_episode(pool, config.stack, wanted)
        episode = require(found, f"episode {wanted}", config.stack)
        return episode, await list_log_lines(pool, config.stack, wanted, strategy=strategy)

    episode, lines = ask(config, question)
    if is_json:
        show_rows(lines, (), is_json=True)
        return
    for each in lines:
        print(tables.printable(str(each["line"])))
    if not lines:
        say_aside(why_silent(episode, strategy))


@app.command()
def tail(
    ctx: typer.Context,
    *,
    episode_id: EpisodeId,
    strategy: ShownStrategy = None,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: Annotated[bool, Option("--json", help="Print JSON: a line each.")] = False,
) -> None:
    """Print what one episode did and does, until it ends: the log, as it grows."""
    config, wanted = options.config(ctx), parse_id(episode_id)

    async def follow(pool: Pool) -> None:
        lines = live_log(pool, config.stack, wanted, strategy=strategy, timeout_s=timeout_s)
        async for each in lines:
            text = tables.as_json_line(each) if is_json else str(each["line"])
            print(tables.printable(text), flush=True)

    ask(config, follow)


@app.command()
def replay(
    ctx: typer.Context,
    *,
    episode_id: EpisodeId,
    at: Annotated[
        int | None, Option(min=1, help="Stop after this many events, and show the whole state.")
    ] = None,
    is_json: Annotated[bool, Option("--json", help="Print JSON: a line each.")] = False,
) -> None:
    """Fold one episode's journal event by event, and show the state after each of them."""
    from engine.operations.replay import frames as frames_of

    config, wanted = options.config(ctx), parse_id(episode_id)

    async def read(ports: Ports) -> list[Frame]:
        return list(frames_of(await ports.log.read(ports.stack.episode(str(wanted)))))

    frames = with_ports(config, read, creates=True)
    if not frames:
        raise Trouble(f"no episode {wanted} on the journal of stack {config.stack.name}")
    if at is not None and at > len(frames):
        raise Trouble(f"its journal holds {len(frames):,} events, not {at:,}")
    if at is not None:
        chosen = frames[at - 1]
        state: Row = unraw(raw(chosen.episode))
        shown = {**_frame_row(chosen), "said": unraw(raw(_as_shown(chosen.event))), **state}
        show_record(shown, is_json=is_json)
    elif is_json:
        for frame in frames:
            print(tables.as_json_line(_frame_row(frame)))
    else:
        rows = [_frame_row(frame) for frame in frames]
        show_rows(rows, REPLAY_COLUMNS, is_json=False, spare=REPLAY_SPARE)


@app.command()
def fork(
    ctx: typer.Context,
    *,
    episode_id: EpisodeId,
    at: Annotated[
        int, Option(min=0, help="The last step that both have, as `vigil episodes steps` shows it.")
    ],
    payload: Annotated[
        str | None,
        Option(help="Another payload for the trigger: a JSON object; @FILE, or -."),
    ] = None,
    reason: options.Reason = "",
    key: Annotated[
        str | None, Option(help="Idempotency key: the same one opens no second fork.")
    ] = None,
    is_dry: options.IsDry = False,
    overrides: options.OverridesText = None,
    by: options.By = None,
    is_waiting: options.IsWaitingForEnd = False,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: options.IsJson = False,
) -> None:
    """Open an episode that begins with the first steps of another one, and print its id."""
    from vigil.asking.forks import ForkRequest, open_fork
    from vigil.commands.fire import overrides_of

    config = options.config(ctx)
    asked = ForkRequest(
        episode_id=parse_id(episode_id),
        at=at,
        by=options.who(config, by),
        reason=reason,
        payload=None if payload is None else options.read_object(payload, what="--payload"),
        key=key,
        is_dry=is_dry,
        overrides=None if overrides is None else overrides_of(overrides),
    )
    open_fork(config, asked, wait_s=timeout_s if is_waiting else None, is_json=is_json)


@app.command()
def cancel(
    ctx: typer.Context,
    *,
    ids: Annotated[list[str] | None, Argument(metavar="ID", help="Episodes, by their ids.")] = None,
    actor: Annotated[
        str | None, Option(help="Instead of ids: all of this actor that have not ended.")
    ] = None,
    expectation: Annotated[
        str | None, Option(help="With --actor: only of this expectation.")
    ] = None,
    status: Annotated[Unended | None, Option(help="With --actor: only with this status.")] = None,
    is_sure: Annotated[
        bool, Option("--yes", help="With --actor: do not ask for confirmation.")
    ] = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: Annotated[
        bool, Option("--wait", help="Wait for their ends; exit code 1 unless all are canceled.")
    ] = False,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: options.IsJson = False,
) -> None:
    """Cancel episodes, whether they are queued, running or blocked."""
    if bool(ids) is (actor is not None):
        raise Mistake("name the episodes, or give --actor")
    if actor is None and (expectation or status or is_sure):
        raise Mistake("--expectation, --status and --yes go with --actor")
    config = options.config(ctx)
    if actor is None:
        found = _named(config, [parse_id(each) for each in ids or ()])
    else:
        found = _unended(config, actor=actor, expectation=expectation, status=status)
    if actor is not None and found and not is_sure:
        options.require_consent(f"cancel {len(found):,} episodes of {actor}?")
    _request_cancel(config, found, by=options.who(config, by), reason=reason)
    after = _wait_ends(config, found, timeout_s=timeout_s) if is_waiting else found
    if is_json:
        show_rows([each.as_row() for each in after], (), is_json=True)
    elif actor is None:
        _print_each(after, config)
    else:
        counts = Counter(each.outlook for each in after)
        words = (f"{count:,} {outlook}" for outlook, count in counts.items())
        print(", ".join(words) or "nothing to cancel")
    canceled = EndStatus.CANCELED
    known = [each for each in after if each.status != UNKNOWN]
    if len(known) < len(after) or (is_waiting and any(e.status != canceled for e in known)):
        raise typer.Exit(EXIT_TROUBLE)


def _decision(verdict: options.Verdict) -> Callable[..., None]:
    """Return the command that decides so on what an episode asks for."""

    def decide(
        ctx: typer.Context,
        *,
        episode_id: EpisodeId,
        hash_: options.Hash = None,
        is_sure: options.IsSure = False,
        reason: options.Reason = "",
        by: options.By = None,
        is_waiting: options.IsWaiting = True,
        timeout_s: options.Timeout = options.DECISION_S,
    ) -> None:
        from vigil.asking.approvals import Choice, decide_episode

        choice = Choice(verdict, hash_, is_sure, by, reason, timeout_s if is_waiting else None)
        decide_episode(options.config(ctx), episode_id, choice)

    return decide


app.command(
    "approve",
    help="Approve what an episode asks for. Shows the plan first, and asks for confirmation.",
)(_decision("approve"))
app.command(
    "deny", help="Deny what an episode asks for. Shows the plan first, and asks for confirmation."
)(_decision("deny"))


@app.command()
def resolve(
    ctx: typer.Context,
    *,
    ref: Annotated[
        str, Argument(metavar="REF", help="What episodes wait for, such as payment:42.")
    ],
    result: Annotated[
        str, Option(help="JSON for the strategies; @FILE, or - for standard input.")
    ] = "null",
    episode_id: Annotated[
        str | None, Option("--episode", metavar="ID", help="Only this episode.")
    ] = None,
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Resolve a wait: give the episodes that wait for a reference its result."""
    from engine.errors import Refused
    from engine.waits import requests
    from engine.waits.signal import RESOLVED
    from vigil.asking.requests import report, request, watch

    body = options.read_json(result, what="--result")
    only = None if episode_id is None else str(parse_id(episode_id))
    config = options.config(ctx)
    name, wait_s = options.who(config, by), timeout_s if is_waiting else None

    async def resolved(ports: Ports) -> list[CommandOutcome]:
        waiting = await _waiting(ports, ref, only)
        try:
            id_ = await requests.resolve(ports, ref, body, by=name, episode_id=only)
        except Refused as error:
            raise Trouble(f"{error}; for a future one, publish {RESOLVED}") from error
        return await watch(ports, [_sent(ports, each, id_) for each in waiting], wait_s=wait_s)

    report(request(config, resolved))


def says(row: Row) -> str:
    """Return an episode's summary, else what went wrong; of a traceback, its last line."""
    detail = str(row["error_detail"] or "").rstrip().splitlines()[-1:]
    return str(row["summary"] or "".join(detail))


def came_to(outcomes: Iterable[OutputOutcome], own: Iterable[Row]) -> list[Row]:
    """Return a row for each output of an episode, with its `outcome` once that is settled.

    `own` are rows of what it proposed itself: of another's, only the outcome is known here.
    """
    settled = {each.output_key: each for each in outcomes}
    rows: list[Row] = []
    for each in own:
        outcome = settled.pop(str(each["output_key"]), None)
        rows.append({**each, "outcome": outcome and outcome.outcome})
    for left in settled.values():
        said = {"output_key": left.output_key, "outcome": left.outcome}
        rows.append({**said, "error_class": left.error_class or None})
    return rows


async def _record(pool: Pool, stack: Stack, episode_id: UUID) -> dict[str, object] | None:
    """Return an episode's row, with `waits_for` (a row or None) and `outputs` (see `came_to`)."""
    row = await show_episode(pool, stack, episode_id)
    if row is None:
        return None
    block = await show_block(pool, stack, episode_id) if row["blocked_by"] else None
    is_open = block is not None and block["resolution"] is None
    own = await list_outputs(pool, stack, episode_id=episode_id, limit=ROWS_MAX)
    outcomes = msgspec.convert(row["outputs"] or (), tuple[OutputOutcome, ...])
    return row | {"waits_for": block if is_open else None, "outputs": came_to(outcomes, own)}


def _asked(block: Mapping[str, object]) -> Row:
    if block["reason"] == BlockReason.WAIT:
        asks: Row = {"ref": block["ref"]}
        todo = f"resolve {shlex.quote(str(block['ref']))}"
    else:
        asks = {
            "summary": block["summary"],
            "approvers": block["approvers"] or ANYBODY,
            "plan_hash": block["plan_hash"],
            "plan": block["plan"],
        }
        todo = f"approve {block['episode_id']}"
    return {
        "waits_for": block["reason"],
        "since": block["blocked_at"],
        "expires_at": block["expires_at"],
        "on_expiry": block["on_expiry"] if block["expires_at"] else None,
        **asks,
        "what_to_do": f"vigil episodes {todo}",
    }


def _frame_row(frame: Frame) -> Row:
    episode = frame.episode
    return {
        "number": frame.number,
        "seq": frame.seq,
        "at": frame.at,
        "event": frame.event.__struct_config__.tag,
        "call": _call_of(frame.event),
        "status": episode.status.value,
        "node": episode.node,
        "attempts": episode.attempts,
        "crashes": episode.crashes,
        "steps_recorded": episode.steps_recorded,
        "checkpoints_saved": episode.checkpoints_saved,
        "tokens_used": episode.tokens_used,
        "wall_used_s": round(episode.wall_used_s, 3),
    }


def _call_of(event: EpisodeEvent) -> str:
    """Return the path of a function's call, if it is one, and what was called."""
    match event:
        case StepRecorded():
            said = (event.path, event.tool_name or event.kind.value)
        case StepAnnounced():
            said = (event.path, event.tool_name)
        case EpisodeBlocked():
            said = (event.path, event.reason.value)
        case _:
            return ""
    return " ".join(filter(None, said))


def _as_shown(event: EpisodeEvent) -> EpisodeEvent:
    """Return `event` as people may see it: a step's result may be for the replay alone."""
    if not isinstance(event, StepRecorded):
        return event
    return msgspec.structs.replace(event, result=shown_result(event))


def _print_each(episodes: Sequence[EpisodeToCancel], config: Config) -> None:
    hint = "`vigil episodes list` shows those that there are"
    for each in episodes:
        if each.status != UNKNOWN:
            print(f"{each.episode_id}: {each.outlook}")
        else:
            what = f"no episode {each.episode_id} in stack {config.stack.name}"
            print(f"vigil: {what}; {hint}", file=sys.stderr)


def _named(config: Config, ids: Iterable[UUID]) -> list[EpisodeToCancel]:
    from engine.episodes.episode import fold
    from vigil.asking.requests import in_batches

    async def found(ports: Ports) -> list[EpisodeToCancel]:
        async def one(id_: UUID) -> EpisodeToCancel:
            episode = fold(await ports.log.read(ports.stack.episode(str(id_))))
            if episode.opened is None:
                return EpisodeToCancel(id_, "", UNKNOWN)
            return EpisodeToCancel(id_, episode.opened.actor_id, episode.status.value)

        return await in_batches(list(dict.fromkeys(ids)), one)

    return with_ports(config, found)


def _unended(
    config: Config, *, actor: str, expectation: str | None, status: str | None
) -> list[EpisodeToCancel]:
    """Return the unended episodes of an actor; `Trouble`: nobody knows the actor."""
    from vigil.asking.stack import read_stack, require_expectation, require_known

    async def known(ports: Ports) -> None:
        seen = await read_stack(ports)
        await require_known(config, ports, seen, actor)
        if expectation is not None:
            require_expectation(seen, actor, expectation)

    question = partial(read_unended, stack=config.stack, actor=actor)
    found = ask(config, partial(question, expectation=expectation, status=status))
    if not found:
        with_ports(config, known)
    return found


async def read_unended(
    pool: Pool,
    stack: Stack,
    *,
    actor: str,
    expectation: str | None = None,
    status: str | None = None,
    round_max: int = ROWS_MAX,
) -> list[EpisodeToCancel]:
    """Return all episodes of an actor that have not ended as far as the rows show, oldest first.

    `round_max` are asked for at a time; prints on stderr if `ROUNDS_MAX` such rounds find not all.
    """
    found: list[EpisodeToCancel] = []
    past: Row | None = None
    of_actor = partial(
        list_unended_episodes, pool, stack, actor=actor, expectation=expectation, status=status
    )
    for _ in range(ROUNDS_MAX):
        rows = await of_actor(past=past, limit=round_max)
        found += [
            EpisodeToCancel(UUID(str(row["episode_id"])), str(row["actor_id"]), str(row["status"]))
            for row in rows
        ]
        if len(rows) < round_max:
            return found
        past = rows[-1]
    print(f"vigil: these are the oldest {len(found):,}; ask again", file=sys.stderr, flush=True)
    return found


def _request_cancel(
    config: Config, episodes: Sequence[EpisodeToCancel], *, by: str, reason: str
) -> None:
    """Request that the open ones be canceled; print progress, and what no node can end now."""
    from engine.cluster.members import live_nodes
    from engine.episodes import cancel as episodes_cancel
    from engine.operations.why_unheard import unheard
    from vigil.asking.requests import IN_FLIGHT_MAX, in_batches, request

    open_ = [each for each in episodes if each.is_open]

    async def done(ports: Ports) -> None:
        asked, told_s = 0, _CLOCK.monotonic_s()

        async def one(each: EpisodeToCancel) -> None:
            id_ = str(each.episode_id)
            await episodes_cancel.cancel(ports, each.actor_id, id_, by=by, reason=reason)

        for at in range(0, len(open_), IN_FLIGHT_MAX):
            asked += len(await in_batches(open_[at : at + IN_FLIGHT_MAX], one))
            if _CLOCK.monotonic_s() - told_s >= TOLD_EVERY_S:
                told_s = _CLOCK.monotonic_s()
                print(f"asked for {asked:,} of {len(open_):,}", file=sys.stderr, flush=True)
        nodes = await live_nodes(ports.gates)
        for actor in sorted({each.actor_id for each in open_}):
            # To end an episode a node needs neither its revision nor its expectation.
            if why := unheard(nodes, actor):
                print(f"vigil: {why}", file=sys.stderr, flush=True)

    if open_:
        request(config, done)


def _wait_ends(
    config: Config, episodes: Sequence[EpisodeToCancel], *, timeout_s: float
) -> list[EpisodeToCancel]:
    until_s = _CLOCK.monotonic_s() + timeout_s

    async def as_ended(pool: Pool, each: EpisodeToCancel) -> EpisodeToCancel:
        if not each.is_open:
            return each
        ended = partial(wait_ended, pool, config.stack, each.episode_id)
        row = await ended(until_s=until_s, timeout_s=timeout_s)
        return replace(each, status=str(row["status"]))

    async def question(pool: Pool) -> list[EpisodeToCancel]:
        return [await as_ended(pool, each) for each in episodes]

    return ask(config, question)


async def _waiting(ports: Ports, ref: str, episode_id: str | None) -> list[SignalWaited]:
    """Return the waits for `ref` that are not over: all, or that of one episode."""
    from engine.waits.signals import References

    waiting = await References(ports, _CLOCK).waiting(ref)
    return [each for each in waiting if episode_id in (None, each.episode_id)]


def _sent(ports: Ports, waiter: SignalWaited, id_: str) -> SentCommand:
    from vigil.asking.requests import CommandResult, SentCommand

    def result(records: Sequence[Recorded]) -> CommandResult | None:
        wait = _newest_wait(records, waiter.ref)
        if wait is None or wait.end is None:
            return None
        is_wanted = isinstance(wait.end, EpisodeResolved) and wait.end.decision_id == id_
        return CommandResult("resolved" if is_wanted else "it had ended by then", is_wanted)

    return SentCommand(
        name=waiter.episode_id,
        actor_id=waiter.actor_id,
        episode_id=waiter.episode_id,
        subject=ports.stack.episode(waiter.episode_id),
        result=result,
    )


def _newest_wait(records: Sequence[Recorded], ref: str) -> StillWaiting | None:
    from engine.waits.answer import waits_of

    waits = [each for each in waits_of(records) if each.blocked.ref == ref]
    return waits[-1] if waits else None
