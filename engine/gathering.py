"""Gatherers: how a template gets at the facts it decides on.

A gatherer is an async function that a user registers in `App(gatherers={"metrics": …})`. It gets
the payload of what fired the expectation, and the options of the template's configuration; what
it returns, any JSON value, is the result of a step on the journal. So it looks outside once, and
after a crash the same facts are decided on.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Final, Protocol

from engine.actions import ToolCall, tool_call
from engine.tools import CallContext, Tool, ToolFailed
from streams.errors import BadName
from streams.json import JsonObject
from streams.tokens import name as checked_name

GATHER: Final = "gather"
"""The capability under which strategies reach gatherers; the action is the gatherer's name."""


class Gatherer(Protocol):
    """Looks facts up. It may be called again after a crash, so it changes nothing."""

    async def __call__(self, payload: JsonObject, options: JsonObject) -> object:
        """Return the facts, any JSON value of up to 256 KiB.

        Args:
            payload: of what fired the expectation.
            options: as the template's configuration says.

        Raises:
            ToolFailed: it failed; the error class becomes the step's and the episode's.
        """


class Gathering(Tool):
    """The gatherers of an app, as the tool that strategies call."""

    def __init__(self, gatherers: Mapping[str, Gatherer]) -> None:
        """Call one of `gatherers`, by name."""
        self._gatherers = gatherers

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Call the gatherer of that name."""
        del ctx
        gatherer = self._gatherers.get(action)
        if gatherer is None:
            raise ToolFailed("no_such_action", f"{action!r}; gatherers: {sorted(self._gatherers)}")
        return await gatherer(args.get("_payload", {}), args.get("options", {}))


def gather(gatherer: str, *, payload: JsonObject, options: JsonObject) -> ToolCall:
    """Return the action that asks `gatherer`. The journal has the payload already; see `_`."""
    return tool_call(GATHER, gatherer, {"_payload": payload, "options": options})


def checked_gatherers(gatherers: object) -> Mapping[str, Gatherer]:
    """Return what `App(gatherers=…)` was given.

    Raises:
        TypeError, ValueError: something is no gatherer, or has no name; what to write.
    """
    if not isinstance(gatherers, Mapping):
        raise TypeError(f"{gatherers!r} is not a dict of name to gatherer")
    for name, gatherer in gatherers.items():
        check_name(name, of="a gatherer")
        if not inspect.iscoroutinefunction(gatherer):
            problem = "is no gatherer; use an async function (payload, options)"
            raise TypeError(f"{name!r}: {gatherer!r} {problem}")
    return dict(gatherers)


def check_name(name: object, *, of: str) -> None:
    """Raise `ValueError` unless `name` can name something that an app registers.

    Args:
        name: 1 to 64 of A-Z a-z 0-9 _ -
        of: what it is to name.
    """
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is no name of {of}")  # noqa: TRY004 - as for its value
    try:
        checked_name(name, of=of)
    except BadName as error:
        problem = f"{name!r} is no name of {of}; use 1 to 64 of A-Z a-z 0-9 _ -"
        raise ValueError(problem) from error
