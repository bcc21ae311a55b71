"""`vigil check`: whether an app can run, and its functions be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import typer

from vigil import options
from vigil.errors import Trouble
from vigil.options import AppName, IsJson
from vigil.printing.output import show_rows
from vigil.printing.tables import Row
from vigil.settings import FILE, retention_in

COLUMNS: Final = ("actor", "expectation", "place", "found", "instead")
"""The places where something was found, and what to write there instead."""


def check(
    ctx: typer.Context,
    *,
    typed: AppName = None,
    is_json: IsJson = False,
) -> None:
    """Import an app, and list code that cannot be replayed and names that do not exist.

    It checks the functions of expectations, those that definitions may name, and the functions of
    the same module that they call, for clocks, random values, sleeps, tasks, threads and I/O. It
    checks these functions and strategy classes for tools, outputs and severities that do not exist.
    It warns of side effects behind an approval that several open episodes may wait for, and of
    names of events and actors that may be misspelt. Of an agent that a function runs it checks that
    it has a name of its own, that the actor has its tools, and that there is a provider of its
    model; where dollars are limited, that answers of models have a longest one, and that the price
    of a model is known. What `vigil.toml` says is read as a node and the archive read it. It needs
    no servers.
    """
    from engine.functions.names import (
        equal_agents,
        misspelt_names,
        unknown_names,
        unlimited_answers,
        unpriced_models,
    )
    from engine.functions.side_effects import overlapping
    from engine.functions.source import unreplayable
    from vigil.serving.app import load

    _check_settings(ctx)  # guard: check-reads-settings
    name, option = options.app_name(ctx, typed, flag="")
    app = load(name, option=option)
    ways, names, warned = (
        unreplayable(app),
        unknown_names(app) | unlimited_answers(app) | unpriced_models(app),
        overlapping(app) | misspelt_names(app) | equal_agents(app),
    )
    rows: list[Row] = [
        {"actor": place.actor_id, "expectation": place.name, **msgspec.structs.asdict(each)}
        for each, place in (*ways.items(), *names.items(), *warned.items())
    ]
    rows.sort(key=lambda row: _by_line(str(row["place"])))  # guard: check-sorted-by-line
    if rows or is_json:
        show_rows(rows, COLUMNS, is_json=is_json)
    if ways or names:
        counts = {
            "that a replay cannot repeat": len(ways),
            "that cannot work": len(names),
        }
        said = ", ".join(f"{count} place(s) {what}" for what, count in counts.items() if count)
        raise Trouble(f"{name}: {said}")
    if not is_json:
        found = f"{len(warned)} warning(s)" if warned else "nothing found"
        typer.echo(f"{name}: {len(app.actors)} actor(s), {found}")


def _check_settings(ctx: typer.Context) -> None:
    """Read what nodes and the archive read of the settings; `Mistake`: something cannot work."""
    from vigil.archiving.settings import archive_in

    options.config(ctx)
    retention_in(Path(FILE))
    archive_in()


def _by_line(place: str) -> tuple[str, int]:
    file, is_line, line = place.rpartition(":")
    return (file, int(line)) if is_line else (place, 0)
