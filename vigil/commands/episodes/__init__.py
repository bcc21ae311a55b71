"""`vigil episodes`: what actors do and did."""

from __future__ import annotations

import typer

from vigil.commands.episodes import (
    answer,
    cancel,
    diff,
    fork,
    log,
    prompt,
    replay,
    result,
    settle,
    show,
)

app = typer.Typer(no_args_is_help=True)

# In the order of the help.
for each in (show, result, prompt, log, replay, diff, fork, cancel, settle, answer):
    app.add_typer(each.app)
