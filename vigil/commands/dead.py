"""`vigil dead`: dead letters, and what people decide about them."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from typer import Argument, Option

from projections.postgres.query_result import ROWS_MAX
from projections.postgres.reader import list_dead_letters, show_dead_letter
from streams.model.outputs import OutputStatus
from vigil import options
from vigil.asking.connect import with_ports
from vigil.asking.rows import ask, ask_one, show_found
from vigil.errors import Mistake
from vigil.options import By, IsJson, Limit, require_consent, who
from vigil.printing.output import show_record
from vigil.printing.tables import Row
from vigil.settings import Config

if TYPE_CHECKING:
    from engine.cluster.nodes import NodeInfo
    from engine.operations.dead_letters import DeadLetterRequests
    from streams.ports.all import Ports
    from vigil.asking.requests import CommandOutcome

app = typer.Typer(no_args_is_help=True)

COLUMNS: Final = (
    "letter_key", "status", "reason", "actor_id", "source_subject", "lettered_at", "settled_by",
    "settled_note", "detail",
)  # fmt: skip
SPARE: Final = (
    "source_subject", "settled_note", "settled_by", "lettered_at", "actor_id", "detail",
)  # fmt: skip
WAITING: Final = "waiting"

GONE_ON: Final = "its output has gone on"
"""Why the dead letter of an output that is no longer failed is of no use."""

Keys: TypeAlias = Annotated[
    list[str] | None, Argument(metavar="KEY", help="Dead letters, as the list shows them.")
]
IsAllWaiting: TypeAlias = Annotated[
    bool, Option("--all-waiting", help="Every dead letter that waits.")
]
IsSureOfAll: TypeAlias = Annotated[
    bool, Option("--yes", help="With --all-waiting: do not ask for confirmation.")
]


Decided: TypeAlias = tuple[str, str]
"""What was done about a dead letter, and the episode whose output is tried again, if any."""


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    is_all: Annotated[bool, Option("--all", help="Also those that are settled.")] = False,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List dead letters that wait for a decision, the latest first."""
    config, status = options.config(ctx), None if is_all else WAITING
    question = partial(list_dead_letters, stack=config.stack, status=status, limit=limit)
    show_found(config, ask(config, question), COLUMNS, is_json=is_json, spare=SPARE)


@app.command()
def show(
    ctx: typer.Context,
    *,
    key: Annotated[str, Argument(metavar="KEY", help="The dead letter's key.")],
    is_json: IsJson = False,
) -> None:
    """Show one dead letter, its message, and the command that settles it."""
    config = options.config(ctx)
    question = partial(show_dead_letter, stack=config.stack, key=key)
    row = ask_one(config, question, f"dead letter {key!r}")
    payload = row["payload"]
    assert isinstance(payload, bytes)
    words = {"payload": payload.decode(errors="replace"), "what_to_do": what_to_do(row)}
    show_record(row | words, is_json=is_json)


@app.command()
def requeue(
    ctx: typer.Context,
    *,
    keys: Keys = None,
    is_all_waiting: IsAllWaiting = False,
    is_sure: IsSureOfAll = False,
    by: By = None,
) -> None:
    """Try again: publish the event, open another episode, or send the command again."""
    config = options.config(ctx)
    chosen = _chosen(config, "requeue", keys, is_all_waiting=is_all_waiting, is_sure=is_sure)
    name = who(config, by)

    async def requeued(settler: DeadLetterRequests, key: str) -> Decided:
        from streams.layout import Kind

        done = await settler.requeue(key, by=name)
        if key.startswith(f"{Kind.OUTPUT}."):
            return "requeued: its output is to be tried again", done.episode_id
        if done.episode_id:
            return f"requeued as episode {done.episode_id}", ""
        if done.instance_id:
            return f"requeued: put to instance {done.instance_id} again", ""
        return f"requeued as event {done.event_seq}", ""

    _settle(config, chosen, requeued)


@app.command()
def discard(
    ctx: typer.Context,
    *,
    keys: Keys = None,
    is_all_waiting: IsAllWaiting = False,
    is_sure: IsSureOfAll = False,
    reason: Annotated[str, Option(help="Why they are discarded; kept with them.")],
    by: By = None,
) -> None:
    """Discard dead letters. They stay in the table, and no longer wait."""
    config = options.config(ctx)
    chosen = _chosen(config, "discard", keys, is_all_waiting=is_all_waiting, is_sure=is_sure)
    name = who(config, by)

    async def discarded(settler: DeadLetterRequests, key: str) -> Decided:
        await settler.discard(key, by=name, reason=reason)
        return "discarded", ""

    _settle(config, chosen, discarded)


def what_to_do(row: Row) -> str | None:
    """Return the command that settles a dead letter; None: it is settled.

    It tries again what the letter is about, unless that has gone on by now and would be refused.
    """
    from engine.errors import OUTCOME_UNKNOWN

    if row["status"] != WAITING:
        return None
    letter = _argument(str(row["letter_key"]))
    if row["reason"] == OUTCOME_UNKNOWN:
        return f"vigil episodes settle {row['episode_id']}"
    if row["output_key"] is None:
        return f"vigil dead requeue {letter}"
    if row["output_status"] in (None, OutputStatus.FAILED):  # guard: gone-on-letter-discarded
        return f"vigil outputs retry {_argument(str(row['output_key']))}"
    return f"vigil dead discard --reason {shlex.quote(GONE_ON)} {letter}"


def _argument(text: str) -> str:
    """Return `text` as the last argument of a command line, and never one of its options."""
    return f"{'-- ' if text.startswith('-') else ''}{shlex.quote(text)}"


def _chosen(
    config: Config, what: str, keys: list[str] | None, *, is_all_waiting: bool, is_sure: bool
) -> list[str]:
    if bool(keys) is is_all_waiting:
        raise Mistake("name the dead letters, or give --all-waiting")
    if keys:
        return keys
    rows = ask(
        config, lambda pool: list_dead_letters(pool, config.stack, status=WAITING, limit=ROWS_MAX)
    )
    if rows and not is_sure:
        require_consent(f"{what} {len(rows):,} dead letters?")
    return [str(row["letter_key"]) for row in rows]


def _settle(
    config: Config,
    keys: Sequence[str],
    decide: Callable[[DeadLetterRequests, str], Awaitable[Decided]],
) -> None:
    from engine.cluster.members import live_nodes
    from engine.operations.dead_letters import DeadLetterRequests
    from streams.clock import SystemClock
    from vigil.asking.requests import report

    async def done(ports: Ports) -> list[CommandOutcome]:
        settler, nodes = DeadLetterRequests(ports, SystemClock()), await live_nodes(ports.gates)
        return [await _settle_one(settler, nodes, key, decide) for key in dict.fromkeys(keys)]

    report(with_ports(config, done, creates=True))


async def _settle_one(
    settler: DeadLetterRequests,
    nodes: Sequence[NodeInfo],
    key: str,
    decide: Callable[[DeadLetterRequests, str], Awaitable[Decided]],
) -> CommandOutcome:
    from engine.errors import Rejected
    from streams.errors import BadName
    from vigil.asking.requests import CommandOutcome

    try:
        done, episode_id = await decide(settler, key)
    except BadName:
        return CommandOutcome(name=key, refused="there is no such dead letter")
    except Rejected as error:
        return CommandOutcome(name=key, refused=str(error))
    # guard: episode-letter-carries-why
    obstacle = await _why_unheard(settler.ports, nodes, episode_id) if episode_id else ""
    return CommandOutcome(name=key, done=done, obstacle=obstacle)


async def _why_unheard(ports: Ports, nodes: Sequence[NodeInfo], episode_id: str) -> str:
    """Return why none of `nodes` handles commands to an episode; empty: one may."""
    from engine.episodes.episode import fold
    from engine.operations.why_unheard import unheard
    from streams.errors import UnreadableEvent

    try:
        episode = fold(await ports.log.read(ports.stack.episode(episode_id)))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return ""
    why = episode.opened and unheard(nodes, episode.opened.actor_id, episode)
    return str(why) if why else ""
