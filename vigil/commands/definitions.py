"""Definitions as data: `vigil apply`, and the commands that groups of both kinds have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from msgspec import structs
from typer import Argument, Option

from streams.model.definitions import ID_KINDS
from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call
from vigil.errors import EXIT_TROUBLE, Mistake
from vigil.options import By, IsJson, IsSure, Reason, require_consent, who
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import rows_of, show_table
from vigil.printing.tables import Row, as_json, printable
from vigil.printing.tables import said as in_text
from vigil.settings import ROLLOUT_S

if TYPE_CHECKING:
    from engine.definitions.store import DefinitionChange
    from engine.definitions.text import Written
    from engine.operations.reconcile import Reconciled
    from vigil.asking.definitions.changes import AppliedDefinition, Withdrawal
    from vigil.asking.stack import Rollout

GROUPS: Final = {"actors": "actor", "workflows": "workflow"}
"""Group of commands → the kind of definitions that it is about."""

HISTORY: Final = Listing(
    (
        Column("revision", "revision"),
        Column("change", "change"),
        Column("by", "person"),
        Column("at", "at", Form.TIME),
        Column("reason", "reason"),
    )
)
INDENT: Final = "  "


class FileFormat(StrEnum):
    """Formats of definition files."""

    JSON = "json"
    YAML = "yaml"
    TOML = "toml"


class TextFormat(StrEnum):
    """Formats that a definition can be printed in."""

    YAML = "yaml"
    JSON = "json"


Seen: TypeAlias = Annotated[
    int | None,
    Option(
        "--if-revision",
        min=0,
        help="Only if this is still its revision; 0: only if it was never defined.",
    ),
]
ForNodes: TypeAlias = Annotated[
    float, Option("--timeout", min=0.0, help="Longest wait for the nodes, in seconds; 0: none.")
]
Id: TypeAlias = Annotated[str, Argument(metavar="ID", help="Of the definition, as in the list.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands about definitions to a group; its name tells which kind it is for."""
    for command in (apply, disable, history, definition):
        app.command()(command)


def apply(
    ctx: typer.Context,
    *,
    paths: Annotated[
        list[str],
        Argument(
            metavar="PATH",
            help="Files, and folders with .yaml, .yml, .json and .toml; - for standard input.",
        ),
    ],
    form: Annotated[
        FileFormat | None, Option("--format", help="Of the files; by default by their names.")
    ] = None,
    app: Annotated[
        str | None,
        Option(metavar="MODULE:ATTRIBUTE", help="Check that this app has what the files name."),
    ] = None,
    is_dry: Annotated[
        bool, Option("--dry-run/--no-dry-run", help="Show what would change, and change nothing.")
    ] = False,
    by: By = None,
    reason: Reason = "",
    seen: Seen = None,
    timeout_s: ForNodes = ROLLOUT_S,
    is_reconciling: Annotated[
        bool, Option("--reconcile", help="Then end what was removed, as vigil reconcile does.")
    ] = False,
    is_json: IsJson = False,
) -> None:
    """Apply definition files to the running stack. Nodes run them within moments.

    All files are checked together before any is applied, actors before workflows. Open episodes go
    on with the revision that they began with. Exit code 1: nodes are up, and none of them can run
    one of the definitions; it stays applied.
    """
    from vigil.serving.app import load

    kind = kind_of_group(ctx)
    if is_reconciling:
        from vigil.client.stack.repairs import check_texts

        _require_nodes(is_dry=is_dry, timeout_s=timeout_s)
        check_texts(who(options.config(ctx), by), reason)

    def reconcile(actors: Sequence[str]) -> Reconciled:
        return call(ctx, lambda client: client.repairs.reconcile(*actors, reason=reason), by=by)

    checked_by = None if app is None else load(app)

    async def applied(client: Client) -> tuple[Sequence[AppliedDefinition], Sequence[Rollout]]:
        calls = client.definitions
        done = await calls.apply(
            *paths,
            kind=kind,
            form=None if form is None else form.value,
            app=checked_by,
            if_revision=seen,
            dry_run=is_dry,
            reason=reason,
            on_applied=None if is_json else partial(say_applied, becomes="revision"),
        )
        if is_dry or not timeout_s:
            return done, []
        return done, await calls.wait_rollout(done, timeout_s=timeout_s)

    done, rollouts = call(ctx, applied, by=by)
    if is_dry:
        show_planned(done, is_json=is_json)
        return
    ending = reconcile if is_reconciling else None
    show_rollout(done, rollouts, timeout_s=timeout_s, reconcile=ending, is_json=is_json)


def disable(
    ctx: typer.Context,
    *,
    id_: Id,
    by: By = None,
    reason: Reason = "",
    seen: Seen = None,
    is_sure: IsSure = False,
    timeout_s: ForNodes = ROLLOUT_S,
    is_json: IsJson = False,
) -> None:
    """Disable a definition until it is applied again. Open episodes go on, and new events wait."""
    kind = _kind(ctx)
    current = call(ctx, lambda client: client.definitions.get(kind, id_))
    revision, holds = current.definition.revision, current.definition.holds
    if holds and not is_json:
        say_needed(id_, current.needed_by)
    if holds and not is_sure:
        require_consent(f"disable {id_}, which is at revision {revision}?")
        # What was asked about is what is to be disabled, and nothing newer.
        seen = revision if seen is None else seen

    async def disabled(client: Client) -> tuple[DefinitionChange, Withdrawal]:
        calls = client.definitions
        done = await calls.disable(kind, id_, if_revision=seen, reason=reason)
        if not is_json:
            what = "disabled" if done.happened else "was disabled already"
            print(f"{id_}: {what}, at revision {done.registered.revision}", flush=True)
        return done, await calls.wait_withdrawal(kind, id_, timeout_s=timeout_s)

    done, withdrawal = call(ctx, disabled, by=by)
    show_withdrawal(done, current.needed_by, withdrawal, timeout_s=timeout_s, is_json=is_json)


def history(
    ctx: typer.Context,
    *,
    id_: Id,
    is_diff: Annotated[bool, Option("--diff", help="With what each of them has changed.")] = False,
    is_json: IsJson = False,
) -> None:
    """List the changes of a definition, oldest first."""
    kind = _kind(ctx)
    rows = rows_of(call(ctx, lambda client: client.definitions.history(kind, id_)))
    if not is_diff:
        rows = [{key: each for key, each in row.items() if key != "difference"} for row in rows]
    print_history(rows, is_diff=is_diff, is_json=is_json)


def print_history(rows: Sequence[Row], *, is_diff: bool = False, is_json: bool = False) -> None:
    """Print the changes of a definition, with what differs from the one before if `is_diff`."""
    if is_json or not is_diff:
        show_table(rows, HISTORY, is_json=is_json)
        return
    for row in rows:
        words = (in_text(row[column.of]) for column in HISTORY.columns)
        print(printable("  ".join(filter(None, words))))
        say_lines(row["difference"])


def definition(
    ctx: typer.Context,
    *,
    id_: Id,
    revision: Annotated[
        int | None, Option(min=1, help="Which; by default the one applied last.")
    ] = None,
    form: Annotated[TextFormat, Option("--format", help="Format to print.")] = TextFormat.YAML,
) -> None:
    """Print a definition as a file that can be applied again."""
    kind = _kind(ctx)
    written: Written = "yaml" if form is TextFormat.YAML else "json"
    text = call(
        ctx, lambda client: client.definitions.text(kind, id_, revision=revision, form=written)
    )
    print(text, end="")


def kind_of_group(ctx: typer.Context) -> str | None:
    """Return the kind of definitions that a command's group is for; None: it is in none."""
    group = None if ctx.parent is None else ctx.parent.info_name
    return GROUPS.get(str(group))


def _kind(ctx: typer.Context) -> str:
    kind = kind_of_group(ctx)
    assert kind is not None, "these commands are in the groups of the kinds"
    return kind


def _require_nodes(*, is_dry: bool, timeout_s: float) -> None:
    if is_dry:
        raise Mistake("--reconcile changes something, and --dry-run nothing; choose one of them")
    if not timeout_s:  # guard: fresh-definition-not-reconciled
        raise Mistake("--reconcile is done once nodes run it; give them time with --timeout")


def show_planned(planned: Sequence[AppliedDefinition], *, is_json: bool) -> None:
    """Print what applying would change, and what of it nobody has checked."""
    if is_json:
        print(as_json([each.as_row() for each in planned]))
        return
    for each in planned:
        say_applied(each, "would be revision")
    _say_gone(planned)
    if unchecked := sorted({name for each in planned for name in each.unchecked}):
        warn(f"not checked, for no --app is given: {', '.join(unchecked)}")


def say_applied(applied: AppliedDefinition, becomes: str) -> None:
    """Print what applying a definition has made of it, or would make."""
    id_, revision = applied.registered.id, applied.registered.revision
    print(f"{id_}: {becomes if applied.happened else 'as it is already: revision'} {revision}")
    say_lines(applied.difference)
    sys.stdout.flush()
    for lack in applied.lacks:
        warn(f"{id_}: {lack}; until there is, no node can run it")
    say_needed(id_, applied.needed_by)


def say_needed(id_: str, needed_by: Mapping[str, Sequence[str]]) -> None:
    """Print which workflows name what goes."""
    for workflow, steps in sorted(needed_by.items()):
        which = f"step{'s' if len(steps) > 1 else ''} {', '.join(steps)}"
        warn(f"{id_}: workflow {workflow} needs what goes ({which}), and begins no more without it")


def say_lines(lines: object) -> None:
    """Print lines that belong to the one before them."""
    assert isinstance(lines, list)
    for line in lines:
        print(printable(f"{INDENT}{line}"))


def show_rollout(
    applied: Sequence[AppliedDefinition],
    rollouts: Sequence[Rollout],
    *,
    timeout_s: float,
    reconcile: Callable[[Sequence[str]], Reconciled] | None,
    is_json: bool,
) -> None:
    """Print what nodes make of what was applied; exit code 1: none of those up runs one."""
    pairs = list(zip(applied, rollouts, strict=bool(rollouts)))
    if not is_json:
        for each, rollout in pairs:
            _say_rollout(each, rollout, timeout_s=timeout_s)
    # guard: unrun-definition-not-reconciled
    running = [each.actor for each, rollout in pairs if rollout.running]
    done = reconcile(running) if reconcile is not None and running else None
    if is_json:
        print(as_json(_rows(applied, rollouts, running, done)))
    elif reconcile is None:
        _say_gone(applied)
    else:
        _say_reconciled(applied, running, done)
    if not is_json and not rollouts:
        print("not waited for nodes")
    if any(each.is_in_vain for each in rollouts):
        raise typer.Exit(EXIT_TROUBLE)


def show_withdrawal(
    change: DefinitionChange,
    needed_by: Mapping[str, Sequence[str]],
    withdrawal: Withdrawal,
    *,
    timeout_s: float,
    is_json: bool,
) -> None:
    """Print what became of something that was disabled."""
    registered = change.registered
    if is_json:
        row = {
            "kind": registered.kind,
            "id": registered.id,
            "revision": registered.revision,
            "changed": change.happened,
            "needed_by": needed_by,
        }
        print(as_json({**row, **structs.asdict(withdrawal)}))
        return
    match withdrawal.events:
        case 0:
            waits = "what comes waits"
        case 1:
            waits = "1 event waits; what comes waits, too"
        case int(count):
            waits = f"{count:,} events wait; what comes waits, too"
        case _:
            waits = "nobody can say how many events wait; what comes waits, too"
    print(f"{registered.id}: {waits}, and fires when it is applied again", flush=True)
    for node in withdrawal.waking:
        since = f"within {timeout_s:g} s " if timeout_s else ""
        warn(f"{registered.id}: {node} has not said {since}that it lets go of it")


def _rows(
    applied: Sequence[AppliedDefinition],
    rollouts: Sequence[Rollout],
    running: Sequence[str],
    done: Reconciled | None,
) -> list[Row]:
    from vigil.commands.repairs import repair

    told = [structs.asdict(each) for each in rollouts] or [{} for _ in applied]
    ended = {} if done is None else {each: repair.report_of(each, done) for each in running}
    return [
        {**each.as_row(), **said, "reconciled": ended.get(each.actor)}
        for each, said in zip(applied, told, strict=True)
    ]


def _say_rollout(applied: AppliedDefinition, said: Rollout, *, timeout_s: float) -> None:
    id_ = applied.registered.id
    if said.running:
        print(f"{id_}: runs on {', '.join(said.running)}")
        if said.failing:
            others = f"others cannot: {', '.join(said.failing)}"
            warn(f"{id_}: {others}; `vigil actors show {applied.actor}` says why")
    elif not said.is_in_vain:
        print(f"{id_}: no node is up; those that start run it")
    else:
        for node, problem in said.failing.items():
            warn(f"{id_}: {node} cannot run it: {problem}")
    for node in said.silent:
        which = f"that it runs revision {applied.registered.revision}"
        warn(f"{id_}: {node} has not said within {timeout_s:g} s {which}")
    if said.is_in_vain and applied.ran:  # guard: way-back-where-run
        warn(f"{id_}: {_way_back(applied)}")


def _way_back(applied: AppliedDefinition) -> str:
    registered, before = applied.registered, max(applied.ran.values())
    nodes = ", ".join(name for name, each in applied.ran.items() if each == before)
    group = f"vigil {ID_KINDS[registered.kind]}s"
    back = f"{group} definition {registered.id} --revision {before}"
    return (
        f"nobody runs it now; until revision {registered.revision} it ran on {nodes}; "
        f"go back with: {back} | {group} apply - --format yaml"
    )


def _say_reconciled(
    applied: Sequence[AppliedDefinition], running: Sequence[str], done: Reconciled | None
) -> None:
    for each in applied:
        if each.actor not in running:
            why = "no node runs it, so nothing of it is ended"
            warn(f"{each.registered.id}: {why}; later: vigil reconcile --actor {each.actor}")
    if done is not None:
        from vigil.commands.repairs.repair import show_reconciled

        show_reconciled(done, is_dry=False)


def _say_gone(applied: Sequence[AppliedDefinition]) -> None:
    for each in applied:
        if each.removed:
            left = f"what is left of it stays until vigil reconcile --actor {each.actor}"
            print(f"{each.registered.id}: gone: {', '.join(each.removed)}; {left}")


def warn(line: str) -> None:
    """Print a line on stderr."""
    print(printable(f"vigil: {line}"), file=sys.stderr)
