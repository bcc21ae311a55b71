"""What wakes an expectation, as data: one object for each trigger. Pure.

{"event": "disk.measured", "filter": {"used": {"gt": 90}}}
{"stream": "ORDERS", "subject": "orders.>", "start": "all"}
{"every": "15m"}      {"cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin"}
{"manual": true}      {"workflow": true}
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import Field, field_validator, model_validator

from engine.app.conditions import Condition, conditions_of, operators_of
from engine.app.dedupe import Window
from engine.app.triggers import CatchUp, Source, cron, event, every, manual, workflow
from engine.validation import Listed, Strict, wrong
from streams.errors import BadName
from streams.model.foreign_streams import FeedStart

KINDS: Final[Mapping[str, frozenset[str]]] = {
    "event": frozenset({"filter"}),
    "stream": frozenset({"filter", "subject", "start"}),
    "every": frozenset({"catch_up", "window"}),
    "cron": frozenset({"tz", "catch_up", "window"}),
    "manual": frozenset(),
    "workflow": frozenset(),
}
"""What a trigger may be, and what may be said besides."""

NAMES_MAX: Final = 64
"""Most names of events in one trigger."""

PATHS_MAX: Final = 64
"""Most paths of one filter."""


class SourceDefinition(Strict):
    """One trigger."""

    event: Listed[str] = Field(default=(), max_length=NAMES_MAX)
    """One name or several."""
    stream: str = ""
    every: object = None
    """A number of seconds, or a text such as `15m`."""
    cron: str = ""
    manual: bool = False
    workflow: bool = False
    filter: dict[str, object] = Field(default_factory=dict, max_length=PATHS_MAX)
    subject: str = ">"
    start: object = "new"
    """`new`, `all`, a sequence, or a time with a zone."""
    tz: str = "UTC"
    catch_up: CatchUp = "one"
    window: Window | None = None

    @field_validator("event", mode="before")
    @classmethod
    def _is_listed(cls, names: object) -> object:
        return [names] if isinstance(names, str) else names

    @field_validator("filter")
    @classmethod
    def _is_spelled_out(cls, spelled: dict[str, object]) -> dict[str, object]:
        return {path: dict(sorted(operators_of(each).items())) for path, each in spelled.items()}

    @model_validator(mode="after")
    def _can_fire(self) -> SourceDefinition:
        said = [kind for kind in KINDS if getattr(self, kind)]
        if len(said) != 1:
            raise ValueError(f"write one of {', '.join(KINDS)}")
        besides = self.model_fields_set - {*KINDS}
        if strays := sorted(besides - KINDS[said[0]]):
            raise wrong(strays[0], f"it says nothing to {said[0]!r}; leave it out")
        try:
            self.made()
        except (ValueError, TypeError, BadName) as error:
            raise ValueError(_unsigned(str(error))) from error
        return self

    def made(self) -> Source:
        """Return the trigger.

        Raises:
            ValueError, TypeError, BadName: something in it cannot work.
        """
        if self.manual or self.workflow:
            return manual() if self.manual else workflow()
        schedule: dict[str, Any] = {"catch_up": self.catch_up, "window": self.window}
        if self.every:
            return every(self.every, **schedule)  # type: ignore[arg-type] # It looks for itself.
        if self.cron:
            return cron(self.cron, tz=self.tz, **schedule)
        if self.event:
            return event(*self.event, filter=self._conditions())
        start = start_of(self.start)
        return event(
            stream=self.stream, subject=self.subject, start=start, filter=self._conditions()
        )

    def _conditions(self) -> dict[str, Condition]:
        return {path: _condition(path, spelled) for path, spelled in self.filter.items()}


def _condition(path: str, spelled: object) -> Condition:
    try:
        return conditions_of(spelled)
    except ValueError as error:
        raise ValueError(f"filter: {path!r}: {error}") from error


def start_of(spelled: object) -> FeedStart:
    """Return where a feed begins.

    Raises:
        ValueError: it is no place to begin.
    """
    match spelled:
        case "new" | "all":
            return spelled
        case bool():
            pass
        case int():
            return spelled
        case str():
            try:
                return datetime.fromisoformat(spelled)
            except ValueError:
                pass
        case _:
            pass
    raise ValueError(f"start: write new, all, a sequence or a time with a zone, not {spelled!r}")


def _unsigned(problem: str) -> str:
    """Return what is wrong without the name of the Python function that has said so."""
    first, call, rest = problem.partition("(): ")
    return rest if call and first in KINDS else problem
