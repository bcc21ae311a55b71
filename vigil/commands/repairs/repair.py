"""`vigil recover` and `reconcile`: repairing a stack by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import structs, to_builtins
from typer import Option

from vigil import options
from vigil.client.client import Client
from vigil.client.stack.repairs import STALE_AFTER_S, check_texts
from vigil.commands.call import call
from vigil.options import By, IsJson, IsSure, Reason, require_consent, who
from vigil.printing import columns, tables
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import DRY, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.operations.drift import ReconcileStep
    from engine.operations.reconcile import Reconciled
    from vigil.asking.repairs.losses import LossReport
    from vigil.asking.repairs.recovery import RecoverReport

NEEDED: Final = "recovered"
"""The count of what no node was running."""

_WITHOUT: Final = """\
What is lost does not come back: if there is a newer backup of the servers, bring it back instead.
Going on sets the positions of reactors and projectors to what streams have; rows stay."""

EPISODES: Final = Listing(
    (
        Column("id", "episode_id", Form.ID),
        Column("actor", "actor_id"),
        Column("status", "status"),
        Column("silent for", "latest_at", Form.AGE, wide="silent since"),
        Column("what follows", "verdict"),
    )
)
INSTANCES: Final = Listing(
    (
        Column("id", "instance_id", Form.ID),
        Column("workflow", "workflow_id"),
        Column("status", "status"),
        Column("silent for", "latest_at", Form.AGE, wide="silent since"),
        Column("what follows", "verdict"),
    )
)
ACTIONS: Final = Listing(
    (
        Column("action", "action"),
        Column("actor", "actor_id"),
        Column("expectation", "expectation_id"),
        Column("what", "what", Form.KEY),
        Column("outcome", "outcome"),
    )
)
PLANNED: Final = Listing(ACTIONS.columns[:4])
"""All of a dry run has the same outcome."""

FOLLOWS_DRY: Final[Mapping[object, str]] = {NEEDED: "would be recovered"}
"""What follows → how a dry run calls it."""


def recover(
    ctx: typer.Context,
    *,
    stale_after_s: Annotated[
        float, Option("--stale-after", min=0.0, help="Seconds without progress.")
    ] = STALE_AFTER_S,
    is_dry: Annotated[
        bool, Option("--dry-run/--no-dry-run", help="Change nothing; only look.")
    ] = False,
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
        accept_loss(ctx, asked, is_json=is_json)
        return

    async def recovered(client: Client) -> RecoverReport:
        return await client.repairs.recover(stale_after_s=stale_after_s, dry_run=is_dry)

    done = call(ctx, recovered, by=by)
    if is_json:
        found = {each: getattr(done, each) for each in ("episodes", "instances", "unserved")}
        print(tables.as_json({**done.counts, "dry_run": is_dry, **found}))
        return
    print_recovered(done, is_dry=is_dry)


def print_recovered(done: RecoverReport, *, is_dry: bool, now: datetime | None = None) -> None:
    """Print what was found, and restarted or would be."""
    names: Mapping[object, str] = FOLLOWS_DRY if is_dry else {}
    for found, listing in ((done.episodes, EPISODES), (done.instances, INSTANCES)):
        if found:
            rows = [
                {**each, "verdict": names.get(each["verdict"], each["verdict"])} for each in found
            ]
            show_table(rows, listing, now=now)
    for line in done.advice:
        print(line)
    print(", ".join(f"{names.get(name, name)} {count:,}" for name, count in done.counts.items()))
    if not done.counts[NEEDED] and not done.unserved:  # guard: hopeless-not-in-good-hands
        print("nothing was forgotten: each waits for something that will come, or is being done")
    if done.counts[NEEDED] and is_dry:
        print(DRY)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What was typed about a loss that is to be accepted."""

    is_sure: bool
    is_dry: bool
    by: str | None
    reason: str


def accept_loss(ctx: typer.Context, asked: _Asked, *, is_json: bool) -> None:
    """Show what the stack has lost; unless that is all, go on without it once a person agrees."""
    config = options.config(ctx)
    name = who(config, asked.by)
    check_texts(name, asked.reason)
    # Who has signed in may be among what was lost.
    found = call(ctx, lambda client: client.repairs.find_losses(), is_order=False)
    if is_json:
        print(tables.as_json({**to_builtins(found.report), "dry_run": asked.is_dry}))
    else:
        print("\n".join(_loss_lines(config.stack.name, found.report)))
    if asked.is_dry or not found.is_to_accept:
        return
    if not asked.is_sure:
        require_consent(f"Go on without it, as {name}?")

    async def accepted(client: Client) -> Mapping[str, int]:
        return await client.repairs.accept_losses(found, reason=asked.reason)

    rebuilt = call(ctx, accepted, by=name, is_order=False)
    if not is_json:
        if rebuilt:
            said = ", ".join(f"{kind} {count:,}" for kind, count in sorted(rebuilt.items()))
            print(f"made anew in the gates: {said}")
        print(f"accepted by {name}; nodes of stack {config.stack.name} may be started")


def _loss_lines(stack: str, report: LossReport) -> Iterator[str]:
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


def reconcile(
    ctx: typer.Context,
    *,
    actors: Annotated[
        list[str] | None,
        Option("--actor", metavar="ACTOR", help="Only of this actor. May be given again."),
    ] = None,
    is_dry: Annotated[
        bool, Option("--dry-run/--no-dry-run", help="Change nothing; show what would be done.")
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

    async def reconciled(client: Client) -> Reconciled:
        return await client.repairs.reconcile(*actors or (), dry_run=is_dry, reason=reason)

    done = call(ctx, reconciled, by=by)
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
        rows = [{**row_of(each), "what": _what(each)} for each in done.steps]
        show_table(rows, PLANNED if is_dry else ACTIONS)
    print(in_words(done))
    if done.steps and is_dry:
        print(DRY)


def _what(step: ReconcileStep) -> str:
    """Return what is ended or begun, its interval as people write one."""
    return columns.with_intervals(step.action.about)


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
        "overtaken": done.overtaken,
        "left": done.left,
        "dry_run": is_dry,
        "nodes": done.nodes,
        "actors": done.compared,
        "skipped": done.skipped,
        "actions": [row_of(each) for each in done.steps],
    }


def report_of(actor: str, done: Reconciled) -> Row:
    """Return what became of one actor, as programs read it."""
    own = structs.replace(
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
    if done.overtaken:
        words.append(f"changed meanwhile by others {done.overtaken:,}")
    if done.left:
        words.append(f"left {done.left:,}: reconcile again")
    return ", ".join(words)
