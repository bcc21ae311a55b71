"""`vigil recover`, `reconcile`, `repartition` and `uncompress`: repairing a stack by hand."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, TypeAlias

import typer
from msgspec import to_builtins
from msgspec.structs import replace
from typer import Option

from engine.episodes.recovery import SweepVerdict
from engine.operations import reconcile as engine_reconciler
from engine.operations.drift import REASON_MAX, Outcome, ReconcileStep
from engine.operations.reconcile import Reconciled
from engine.operations.sweep import Candidate, EpisodeSweeper, InstanceSweeper
from engine.validation import BY_CHARS_MAX, check_text
from projections.postgres.pool import Pool
from projections.postgres.query_result import Row
from projections.postgres.reader import list_silent_episodes, list_silent_instances
from streams import jetstream
from streams.clock import SystemClock
from streams.ports.all import Ports
from streams.repartition import repartition as streams_repartition
from vigil import options
from vigil.asking import losses
from vigil.asking.connect import link_settings, run, with_ports
from vigil.asking.instances import advice, by_workflow, unserved_instances
from vigil.asking.requests import explained, request
from vigil.asking.rows import ask
from vigil.asking.stack import read_stack, require_plausible
from vigil.errors import Mistake
from vigil.options import By, IsJson, IsSure, Reason, require_consent, who
from vigil.printing import tables
from vigil.printing.output import show_rows
from vigil.settings import Config

STALE_AFTER_S: Final = 120.0
"""How long without progress before an episode is looked at, in seconds: its default wall time."""

NEEDED: Final = "recovered"
"""The count of what no node was running."""

TOLD_EVERY_S: Final = 1.0
"""Between two lines of progress, in seconds; the end of a stage is always told."""

_HOW_ON: Final = """\
Streams that are no longer used are kept; once all is well, `vigil repartition --drop-old` deletes
them.
Positions are others now: before a projector starts, drop the schema vigil with
CASCADE in Postgres, and the tables are made anew.
Nodes find the number by themselves; one that is set to another number does not start."""

_WITHOUT: Final = """\
What is lost does not come back: if there is a newer backup of the servers, bring it back instead.
Going on sets the positions of reactors and projectors to what streams have; rows stay."""

_CLOCK: Final = SystemClock()

COLUMNS: Final = ("episode_id", "actor_id", "status", "latest_at", "verdict")
ACTION_COLUMNS: Final = ("action", "actor_id", "expectation_id", "about", "outcome")
INSTANCE_COLUMNS: Final = ("instance_id", "workflow_id", "status", "latest_at", "verdict")


def recover(
    ctx: typer.Context,
    *,
    stale_after_s: Annotated[
        float, Option("--stale-after", min=0.0, help="Seconds without progress.")
    ] = STALE_AFTER_S,
    is_dry: Annotated[bool, Option("--dry-run", help="Change nothing; only look.")] = False,
    accepts_loss: Annotated[
        bool,
        Option(
            "--accept-loss",
            help="Show what a stack has lost whose log has lost its past, and go on without it.",
        ),
    ] = False,
    is_sure: IsSure = False,
    by: By = None,
    reason: Reason = "",
    is_json: IsJson = False,
) -> None:
    """Restart episodes and workflow instances that no node is running.

    The crash of a node is recovered without this command; it finds what even that has missed.
    """
    if accepts_loss:
        asked = _Asked(is_sure=is_sure, is_dry=is_dry, by=by, reason=reason)
        accept_loss(options.config(ctx), asked, is_json=is_json)
        return
    done = recover_all(options.config(ctx), stale_after_s=stale_after_s, is_dry=is_dry)
    if is_json:
        found = {each: getattr(done, each) for each in ("episodes", "instances", "unserved")}
        print(tables.as_json({**done.counts, "dry_run": is_dry, **found}))
        return
    if done.episodes:
        show_rows(done.episodes, COLUMNS, is_json=False)
    if done.instances:
        show_rows(done.instances, INSTANCE_COLUMNS, is_json=False)
    for each in by_workflow(done.unserved):
        print(advice(each))
    counts = ", ".join(f"{name} {count:,}" for name, count in done.counts.items())
    print(f"dry run: {counts}" if is_dry else counts)
    if not done.counts[NEEDED] and not done.unserved:  # guard: hopeless-not-in-good-hands
        print("nothing was forgotten: each waits for something that will come, or is being done")


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What was typed about a loss that is to be accepted."""

    is_sure: bool
    is_dry: bool
    by: str | None
    reason: str


def accept_loss(config: Config, asked: _Asked, *, is_json: bool) -> None:
    """Show what the stack has lost; unless that is all, go on without it once a person agrees."""
    name = who(config, asked.by)
    with explained():
        check_text("by", name, least=1, most=BY_CHARS_MAX)
        check_text("reason", asked.reason, least=0, most=REASON_MAX)
    report, found = run(losses.look_for_losses(config))
    is_needed = bool(report.losses) or report.is_marked
    if is_json:
        print(tables.as_json({**to_builtins(report), "dry_run": asked.is_dry}))
    else:
        print("\n".join(_loss_lines(config.stack.name, report)))
    if asked.is_dry or not is_needed:
        return
    if not asked.is_sure:
        require_consent(f"Go on without it, as {name}?")
    run(losses.accept(config, found, by=name, reason=asked.reason))
    if not is_json:
        print(f"accepted by {name}; nodes of stack {config.stack.name} may be started")


def _loss_lines(stack: str, report: losses.LossReport) -> Iterator[str]:
    for each in report.losses:
        yield f"stream {stack}-{each.loss.part} {each.loss.words}"
        if each.counts:
            counts = ", ".join(f"{kind} {count:,}" for kind, count in each.counts.items())
            yield f"  rows show of what is lost: {counts}{'' if each.is_all else ', and more'}"
        for row in each.first:
            yield f"    {row.kind} {row.key} of {row.owner}, {row.status}, at {row.journal_seq:,}"
    if report.losses:
        yield _WITHOUT
    else:
        yield f"stack {stack} has all that is known of it"


@dataclass(frozen=True)
class RecoverReport:
    """What was found, and restarted."""

    counts: Mapping[str, int]
    """Verdict → episodes and instances, for every verdict."""
    episodes: Sequence[Row]
    """The row of each candidate, and its `verdict`."""
    instances: Sequence[Row]
    """The same, of instances of workflows."""
    unserved: Sequence[Row]
    """Open instances whose workflow no node runs: nobody could restart them."""


def recover_all(config: Config, *, stale_after_s: float, is_dry: bool) -> RecoverReport:
    """Restart what shows no progress since `stale_after_s` seconds and that no node is running."""
    before = _CLOCK.now() - timedelta(seconds=stale_after_s)

    async def silent(pool: Pool) -> tuple[list[Row], list[Row]]:
        episodes = await list_silent_episodes(pool, config.stack, before=before)
        return episodes, await list_silent_instances(pool, config.stack, before=before)

    episodes, instances = ask(config, silent)

    async def swept(ports: Ports) -> tuple[Sequence[SweepVerdict], Sequence[SweepVerdict]]:
        sweeper = EpisodeSweeper(ports, _CLOCK, config.node, stale_after_s, is_dry)
        of_episodes = await sweeper.sweep(
            Candidate(actor_id=str(row["actor_id"]), episode_id=str(row["episode_id"]))
            for row in episodes
        )
        others = InstanceSweeper(ports, _CLOCK, stale_after_s, is_dry)
        return of_episodes, await others.sweep(str(row["instance_id"]) for row in instances)

    of_episodes, of_instances = with_ports(config, swept, creates=True)
    found = Counter((*of_episodes, *of_instances))
    return RecoverReport(
        counts={verdict.value: found[verdict] for verdict in SweepVerdict},
        episodes=_judged(episodes, of_episodes),
        instances=_judged(instances, of_instances),
        unserved=run(unserved_instances(config)),
    )


def _judged(rows: Sequence[Row], verdicts: Sequence[SweepVerdict]) -> list[Row]:
    return [row | {"verdict": v.value} for row, v in zip(rows, verdicts, strict=True)]


def reconcile(
    ctx: typer.Context,
    *,
    actors: Annotated[
        list[str] | None,
        Option("--actor", metavar="ACTOR", help="Only of this actor. May be given again."),
    ] = None,
    is_dry: Annotated[
        bool, Option("--dry-run", help="Change nothing; show what would be done.")
    ] = False,
    by: By = None,
    reason: Reason = "",
    is_json: IsJson = False,
) -> None:
    """End what no live node declares any more, and start new schedules.

    Timers, blocked episodes, cooldowns and circuit breakers of schedules and expectations that no
    live node declares are ended. Schedules without a timer get one. Queued and running episodes go
    on, and actors that no node has stay as they are.
    """
    config = options.config(ctx)
    done = reconcile_stack(config, actors=actors or [], by=by, reason=reason, is_dry=is_dry)
    if is_json:
        print(tables.as_json(as_report(done, is_dry=is_dry)))
        return
    show_reconciled(done, is_dry=is_dry)


def show_reconciled(done: Reconciled, *, is_dry: bool) -> None:
    """Print what was done, or would be."""
    for actor, why in done.skipped.items():
        line = f"vigil: {actor}: {why}; nothing of it is touched"
        tables.terminal(stderr=True).print(line, markup=False)
    if done.steps:
        show_rows([row_of(each) for each in done.steps], ACTION_COLUMNS, is_json=False)
    said = in_words(done)
    print(f"dry run: {said}" if is_dry and done.steps else said)


Reconcile: TypeAlias = Callable[[Sequence[str]], Reconciled]


def reconcile_stack(
    config: Config, *, actors: Sequence[str], by: str | None, reason: str, is_dry: bool
) -> Reconciled:
    """Reconcile `actors`, or all that a live node has, with what live nodes declare."""
    name = who(config, by)

    async def done(ports: Ports) -> Reconciled:
        seen = await read_stack(ports)
        for actor in actors:
            await require_plausible(config, ports, seen, actor)
        return await engine_reconciler.reconcile(
            ports, by=name, reason=reason, actors=actors or None, dry_run=is_dry
        )

    return request(config, done)


def reconciler(config: Config, *, by: str | None, reason: str) -> Reconcile:
    """Return what reconciles actors later; values that would be refused then are refused now."""
    name = who(config, by)
    with explained():
        check_text("by", name, least=1, most=BY_CHARS_MAX)
        check_text("reason", reason, least=0, most=REASON_MAX)
    return lambda actors: reconcile_stack(
        config, actors=actors, by=name, reason=reason, is_dry=False
    )


def row_of(step: ReconcileStep) -> Row:
    """Return a step as a row."""
    return {
        "action": step.action.name,
        "actor_id": step.action.actor_id,
        "expectation_id": step.action.expectation_id,
        "about": step.action.about,
        "outcome": step.outcome.value,
    }


def as_report(done: Reconciled, *, is_dry: bool) -> Row:
    """Return all of it as programs read it."""
    return {
        **done.counts,
        "overtaken": _overtaken(done),
        "left": done.left,
        "dry_run": is_dry,
        "nodes": done.nodes,
        "actors": done.compared,
        "skipped": done.skipped,
        "actions": [row_of(each) for each in done.steps],
    }


def report_of(actor: str, done: Reconciled) -> Row:
    """Return what became of one actor, as programs read it."""
    own = replace(
        done,
        steps=[each for each in done.steps if each.action.actor_id == actor],
        compared=[each for each in done.compared if each == actor],
        skipped={each: why for each, why in done.skipped.items() if each == actor},
    )
    return as_report(own, is_dry=False)


def in_words(done: Reconciled) -> str:
    """Return one line about what came of it."""
    if not done.nodes:
        return "nothing to do: no node is up that says what is declared"
    if not done.steps:
        actors = ", ".join(done.compared) or "no actor"
        return f"nothing to do: all that stands is declared ({actors})"
    words = [f"{name} {count:,}" for name, count in done.counts.items()]
    if overtaken := _overtaken(done):
        words.append(f"changed meanwhile by others {overtaken:,}")
    if done.left:
        words.append(f"left {done.left:,}: reconcile again")
    return ", ".join(words)


def _overtaken(done: Reconciled) -> int:
    return sum(each.outcome is Outcome.OVERTAKEN for each in done.steps)


def repartition(
    ctx: typer.Context,
    *,
    to: Annotated[
        int | None,
        Option("--to", metavar="N", help="The number of partitions from then on: 1 to 64."),
    ] = None,
    is_dropping: Annotated[
        bool, Option("--drop-old", help="Delete the streams of layouts before.")
    ] = False,
) -> None:
    """Spread a stopped stack over another number of streams.

    Every commit is copied in order, and compared, before the copies are used. After an interruption
    the same command goes on, and --to with the earlier number goes back. The tables are built again
    afterwards, because the positions in the journal change.
    """
    if to is None and not is_dropping:
        raise Mistake("repartition: give --to and a number of partitions, or --drop-old")
    config = options.config(ctx)
    url, link = config.settings.nats_url, link_settings(config)
    if to is not None:
        told = _Progress()
        stack = run(
            streams_repartition.repartition(
                url, stack=config.stack, to=to, tell=told, settings=link
            )
        )
        many = "one partition" if stack.partitions == 1 else f"{stack.partitions} partitions"
        print(f"stack {stack.name} is spread over {many}")
        if told.has_told:
            print(_HOW_ON)
    if is_dropping:
        names = run(streams_repartition.drop_retired(url, stack=config.stack, settings=link))
        print("\n".join(f"deleted {name}" for name in names) or "nothing to delete")


def uncompress(ctx: typer.Context) -> None:
    """Store the streams of a stopped stack uncompressed.

    Servers since 2.15 that are killed lose copies of compressed streams, and a server that runs
    goes on compressing until it is restarted. So with several copies this waits for you to restart
    each server in order (SIGTERM), one at a time. After an interruption run it again.
    """
    config = options.config(ctx)
    url, link = config.settings.nats_url, link_settings(config)
    names = run(jetstream.uncompress(url, stack=config.stack, tell=_Progress(), settings=link))
    print("\n".join(f"uncompressed {name}" for name in names) or "nothing is compressed")


class _Progress:
    """Prints how far it is, now and then."""

    def __init__(self) -> None:
        self.has_told = False
        self._clock = SystemClock()
        self._told_s = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now_s = self._clock.monotonic_s()
        if done < total and now_s - self._told_s < TOLD_EVERY_S:
            return
        self.has_told, self._told_s = True, now_s
        print(f"{stage}: {done:,} of {total:,}", file=sys.stderr, flush=True)
