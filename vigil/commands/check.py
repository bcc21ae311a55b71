"""`vigil check`: whether an app can run, and its functions be replayed."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from typer import Argument

from vigil.errors import Trouble
from vigil.options import IsJson
from vigil.printing.output import show_rows

COLUMNS: Final = ("actor", "expectation", "place", "found", "instead")


def check(
    *,
    name: Annotated[
        str, Argument(metavar="APP", help="The app, as module:attribute, such as watch:app.")
    ],
    is_json: IsJson = False,
) -> None:
    """Import an app, and list what in its functions cannot be replayed.

    It looks for clocks, chance, sleeps, tasks, threads and I/O, and needs no servers.
    """
    from engine.app.function import Function
    from engine.functions.source import unreplayable_in
    from vigil.serving.app import load

    app = load(name)
    rows = [
        {
            "actor": actor.id,
            "expectation": expectation.name,
            "place": each.place,
            "found": each.found,
            "instead": each.instead,
        }
        for actor in app.actors.values()
        for expectation in actor.expectations.values()
        if isinstance(expectation.strategy, Function)
        for each in unreplayable_in(expectation.strategy)
    ]
    if rows or is_json:
        show_rows(rows, COLUMNS, is_json=is_json)
    if rows:
        raise Trouble(f"{name}: {len(rows)} place(s) that a replay would run otherwise")
    if not is_json:
        typer.echo(f"{name}: {len(app.actors)} actor(s), nothing wrong")
