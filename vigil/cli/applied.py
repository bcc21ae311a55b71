"""Shows what applying definitions has come to: what differs, who runs it, what was ended for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import typer

from vigil.cli.reconcile import show_reconciled

if TYPE_CHECKING:
    from engine.definitions.store import Change
    from engine.operations.reconcile import Reconciled
    from vigil.defining import Applied
    from vigil.editions import Reception
    from vigil.receiving import Release
    from vigil.reconciling import Reconcile
    from vigil.tables import Row

INDENT: Final = "  "


def show_planned(planned: Sequence[Applied], unchecked: Sequence[str], *, is_json: bool) -> None:
    """Print what applying would change, and what of it nobody has looked at."""
    from vigil import tables

    if is_json:
        print(tables.as_json([each.as_row() for each in planned]))
        return
    for each in planned:
        say_applied(each, "would be revision")
    _say_gone(planned)
    if unchecked:
        warn(f"not checked, for no --app is given: {', '.join(unchecked)}")


def say_applied(applied: Applied, becomes: str) -> None:
    """Print what applying a definition has made of it, or would make."""
    id_, revision = applied.edition.id, applied.edition.revision
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
    from vigil import tables

    assert isinstance(lines, list)
    for line in lines:
        print(tables.printable(f"{INDENT}{line}"))


def show_received(
    applied: Sequence[Applied],
    receptions: Sequence[Reception],
    *,
    timeout_s: float,
    reconcile: Reconcile | None,
    is_json: bool,
) -> None:
    """Print what nodes make of what was applied, and what is left of what was there before.

    Args:
        applied: what was.
        receptions: one for each; none at all: nobody has waited for the nodes.
        timeout_s: how long they were waited for, in seconds.
        reconcile: ends what is left; None: it is only told.
        is_json: for programs.

    Raises:
        Exit: nodes are up, and none of them runs one.
    """
    from vigil import tables
    from vigil.errors import EXIT_TROUBLE

    pairs = list(zip(applied, receptions, strict=bool(receptions)))
    if not is_json:
        for each, reception in pairs:
            _say_received(each, reception, timeout_s=timeout_s)
    running = [each.actor for each, reception in pairs if reception.running]
    done = reconcile(running) if reconcile is not None and running else None
    if is_json:
        print(tables.as_json(_rows(applied, receptions, running, done)))
    elif reconcile is None:
        _say_gone(applied)
    else:
        _say_reconciled(applied, running, done)
    if not is_json and not receptions:
        print("not waited for nodes")
    if any(each.is_in_vain for each in receptions):
        raise typer.Exit(EXIT_TROUBLE)


def show_released(
    change: Change,
    needed_by: Mapping[str, Sequence[str]],
    release: Release,
    *,
    timeout_s: float,
    is_json: bool,
) -> None:
    """Print what became of something that was disabled.

    Args:
        change: that it was.
        needed_by: workflow → its steps that name it.
        release: what the nodes made of it.
        timeout_s: how long they were waited for, in seconds.
        is_json: for programs.
    """
    from vigil import tables

    edition = change.edition
    if is_json:
        row = {
            "kind": edition.kind,
            "id": edition.id,
            "revision": edition.revision,
            "changed": change.happened,
            "needed_by": needed_by,
            "waking": release.waking,
            "events": release.events,
        }
        print(tables.as_json(row))
        return
    waits = (
        f"{_count(release.events)}; what comes waits, too" if release.events else "what comes waits"
    )
    print(f"{edition.id}: {waits}, and fires when it is applied again", flush=True)
    for node in release.waking:
        since = f"within {timeout_s:g} s " if timeout_s else ""
        warn(f"{edition.id}: {node} has not said {since}that it lets go of it")


def _count(events: object) -> str:
    """Return how many events wait, in words."""
    match events:
        case 1:
            return "1 event waits"
        case int():
            return f"{events:,} events wait"
        case _:
            return "nobody can say how many events wait"


def _rows(
    applied: Sequence[Applied],
    receptions: Sequence[Reception],
    running: Sequence[str],
    done: Reconciled | None,
) -> list[Row]:
    from vigil import reconciling

    told = [each.as_row() for each in receptions] or [{} for _ in applied]
    ended = {} if done is None else {each: reconciling.report_of(each, done) for each in running}
    return [
        {**each.as_row(), **said, "reconciled": ended.get(each.actor)}
        for each, said in zip(applied, told, strict=True)
    ]


def _say_received(applied: Applied, said: Reception, *, timeout_s: float) -> None:
    id_ = applied.edition.id
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
        which = f"that it runs revision {applied.edition.revision}"
        warn(f"{id_}: {node} has not said within {timeout_s:g} s {which}")
    if said.is_in_vain and applied.ran:
        warn(f"{id_}: {_way_back(applied)}")


def _way_back(applied: Applied) -> str:
    """Return where something ran before this revision, and how it runs there again."""
    from vigil.editions import GROUPS

    edition, before = applied.edition, max(applied.ran.values())
    nodes = ", ".join(name for name, each in applied.ran.items() if each == before)
    group = f"vigil {GROUPS[edition.kind]}"
    back = f"{group} definition {edition.id} --revision {before}"
    return (
        f"nobody runs it now; until revision {edition.revision} it ran on {nodes}; "
        f"go back with: {back} | {group} apply - --format yaml"
    )


def _say_reconciled(
    applied: Sequence[Applied], running: Sequence[str], done: Reconciled | None
) -> None:
    for each in applied:
        if each.actor not in running:
            again = f"vigil reconcile --actor {each.actor}"
            warn(f"{each.edition.id}: no node runs it, so nothing of it is ended; later: {again}")
    if done is not None:
        show_reconciled(done, is_dry=False)


def _say_gone(applied: Sequence[Applied]) -> None:
    """Print what is to be run so that nothing is left of what is gone."""
    for each in applied:
        if each.gone:
            left = f"what is left of it stays until vigil reconcile --actor {each.actor}"
            print(f"{each.edition.id}: gone: {', '.join(each.gone)}; {left}")


def warn(line: str) -> None:
    """Print a line that is not what was asked for."""
    from vigil import tables

    print(tables.printable(f"vigil: {line}"), file=sys.stderr)
