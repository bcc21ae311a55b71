"""Shows what applying definitions has come to: what differs, who runs it, what was ended for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from console.cli.reconcile import show_reconciled

if TYPE_CHECKING:
    from console.defining import Applied
    from console.editions import Reception
    from console.reconciling import Reconcile
    from console.tables import Row
    from engine.runtime.reconciler import Reconciled
    from streams.definitions import Edition

INDENT: Final = "  "


def show_planned(planned: Sequence[Applied], *, is_json: bool) -> None:
    """Print what applying would change."""
    from console import tables

    if is_json:
        print(tables.as_json([each.as_row() for each in planned]))
        return
    for each in planned:
        say_applied(each, "would be revision")
    _say_gone(planned)


def say_applied(applied: Applied, becomes: str) -> None:
    """Print what applying a definition has made of it, or would make."""
    edition = applied.edition
    what = becomes if applied.happened else "as it is already: revision"
    print(f"{edition.id}: {what} {edition.revision}")
    say_lines(applied.difference)


def say_lines(lines: object) -> None:
    """Print lines that belong to the one before them."""
    from console import tables

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
    from console import tables
    from console.errors import EXIT_TROUBLE

    pairs = list(zip(applied, receptions, strict=bool(receptions)))
    if not is_json:
        for each, reception in pairs:
            _say_received(each.edition, reception, timeout_s=timeout_s)
    running = [each.actor for each, reception in pairs if reception.running]
    done = reconcile(running) if reconcile is not None and running else None
    if is_json:
        print(tables.as_json(_rows(applied, receptions, running, done)))
    elif reconcile is None:
        _say_gone(applied)
    else:
        _say_reconciled(applied, running, done)
    if any(each.is_in_vain for each in receptions):
        raise typer.Exit(EXIT_TROUBLE)


def _rows(
    applied: Sequence[Applied],
    receptions: Sequence[Reception],
    running: Sequence[str],
    done: Reconciled | None,
) -> list[Row]:
    from console import reconciling

    told = [each.as_row() for each in receptions] or [{} for _ in applied]
    ended = {} if done is None else {each: reconciling.report_of(each, done) for each in running}
    return [
        {**each.as_row(), **said, "reconciled": ended.get(each.actor)}
        for each, said in zip(applied, told, strict=True)
    ]


def _say_received(edition: Edition, said: Reception, *, timeout_s: float) -> None:
    if said.running:
        print(f"{edition.id}: runs on {', '.join(said.running)}")
    elif not said.is_in_vain:
        print(f"{edition.id}: no node is up; those that start run it")
    for node, problem in said.failing.items():
        _warn(f"{edition.id}: {node} cannot run it: {problem}")
    for node in said.silent:
        which = f"that it runs revision {edition.revision}"
        _warn(f"{edition.id}: {node} has not said within {timeout_s:g} s {which}")


def _say_reconciled(
    applied: Sequence[Applied], running: Sequence[str], done: Reconciled | None
) -> None:
    for each in applied:
        if each.actor not in running:
            again = f"vigil reconcile --actor {each.actor}"
            _warn(f"{each.edition.id}: no node runs it, so nothing of it is ended; later: {again}")
    if done is not None:
        show_reconciled(done, is_dry=False)


def _say_gone(applied: Sequence[Applied]) -> None:
    """Print what is to be run so that nothing is left of what is gone."""
    for each in applied:
        if each.gone:
            left = f"what is left of it stays until vigil reconcile --actor {each.actor}"
            print(f"{each.edition.id}: gone: {', '.join(each.gone)}; {left}")


def _warn(line: str) -> None:
    from console import tables

    print(tables.printable(f"vigil: {line}"), file=sys.stderr)
