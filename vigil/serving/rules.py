"""Finds the actors in a file whose rules are to be tried: an app, or a definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.app.actor import Actor
from engine.app.app import on_stack
from streams.model.events.definitions import DefinitionKind
from vigil.asking.definitions.checks import actors_of
from vigil.asking.definitions.drafts import drafts_of
from vigil.errors import Mistake, hint
from vigil.serving.app import load_file

PYTHON: Final = ".py"
"""Ends the name of a file that is an app."""


def rules_in(file: str, *, stack: str, actor: str | None, option: str) -> Sequence[Actor]:
    """Return the actors in a file: a Python file with an app, or a definition.

    Raises `Mistake` if they cannot work, or none of them is `actor`.
    """
    if file.partition(":")[0].endswith(PYTHON):
        actors = list(on_stack(load_file(file, option=option), stack).actors.values())
    else:
        actors = actors_of(drafts_of(DefinitionKind.AGENT, [file], None))
    if actor is None:
        return actors
    found = [each for each in actors if each.id == actor]
    if not found:
        raise Mistake(f"{file} has no actor {actor!r}; {hint(actor, [each.id for each in actors])}")
    return found
