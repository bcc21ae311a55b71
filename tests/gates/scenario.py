"""What a scenario is made of: a declaration, what happens when, and what must come of it.

Times are seconds since the scenario began. What opened an episode is told in a word: the id of the
event, `tick+900` for the tick 900 s after the beginning, `fire k` for a fire with the key `k`.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, TypeAlias

from engine.app.actions import converge, tool_call
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.triggers import On, event
from streams.json import JsonObject

DOOR: Final = "door.opened"
"""What happens unless a scenario says otherwise."""

BEGINS: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When a scenario begins unless it says otherwise: at the start of an hour, a day and a month."""


NEVER: Final = math.inf
"""When an episode begins that does not."""


async def watch(args, ctx):
    """Take as many seconds as the call says."""
    await asyncio.sleep(args["seconds"])


class Look(Strategy):
    """Ends at once, or after as many seconds as the trigger says; as failed, if it says so."""

    def init(self, episode, trigger):
        payload = trigger.payload
        return {"fails": bool(payload.get("fails")), "takes_s": payload.get("takes_s", 0)}

    def next_step(self, state, ctx):
        if state["takes_s"] and ctx.turn == 1:
            return tool_call("door", "watch", {"seconds": state["takes_s"]})
        return converge()

    def converge(self, state, ctx):
        if state["fails"]:
            raise ValueError("as it was told")
        return ConvergeResult()


@dataclass(frozen=True)
class Publish:
    """A domain event."""

    id: str
    payload: JsonObject = field(default_factory=dict)
    name: str = DOOR
    hops: int = 0


@dataclass(frozen=True)
class Republish:
    """The event that was published `nth`, once more: the server does not know it again."""

    nth: int


@dataclass(frozen=True)
class Offer:
    """A message in the stream that is no stack's."""

    subject: str
    payload: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class Ask:
    """A fire by hand."""

    key: str
    payload: JsonObject = field(default_factory=dict)
    due_s: float | None = None
    dry_run: bool = False
    priority: int = 0


@dataclass(frozen=True)
class Start:
    """A node begins, or begins again."""

    node: str


@dataclass(frozen=True)
class Stop:
    """A node is asked to stop, and has when this is over."""

    node: str


@dataclass(frozen=True)
class Kill:
    """A node is gone without a word."""

    node: str


Deed: TypeAlias = Publish | Republish | Offer | Ask | Start | Stop | Kill


@dataclass(frozen=True)
class Opened:
    """An episode that must be opened."""

    at_s: float
    """When it is due: it must not come earlier."""
    by: str
    says: Mapping[str, object] = field(default_factory=dict)
    """Of its trigger, or else of its opening."""
    begins_s: float | None = None
    """When it must begin, or `NEVER`; None: whenever it does."""
    ends: str = ""
    """The error class that it must end with, or else the status; empty: whichever it is."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One row of the table."""

    name: str
    declared: Mapping[str, Any] = field(default_factory=dict)
    """Options of the one expectation; without `on` it listens to `DOOR`."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Options of the actor."""
    begins: datetime = BEGINS
    before: Sequence[Deed] = ()
    """What has happened before any node ever ran."""
    nodes: Sequence[str] = ("n1",)
    """Those that run from the beginning."""
    happens: Sequence[tuple[float, Deed]] = ()
    until_s: float
    opened: Sequence[Opened]
    """In order; of those that are due at the same time, in any."""
    counted: Mapping[str, int]
    """Every ruling, by its reason."""
    letters: Sequence[str] = ()
    """Reasons of the dead letters."""
    is_short: bool = False
    """Whether it is played on a server, too, where every second takes one."""
    stream: str = "OTHERS"
    """Of a scenario with a feed: a name that no other scenario has."""
    aligned_s: int = 1
    """What the beginning is a multiple of, in seconds since the epoch."""

    @property
    def actor(self) -> str:
        """The id of the actor: none other's, so that its rulings can be told apart."""
        return re.sub(r"[^a-z0-9]+", "_", self.name)[:64]

    def app(self) -> App:
        """Return what a node runs: one actor with one expectation."""
        actor = Actor(self.actor, tools={"door": {"watch": watch}}, **self.limits)
        actor.expect("thing", Look, **{"on": self.on, **self.declared})
        return App(actors=[actor])

    @property
    def on(self) -> On:
        return self.declared.get("on", event(DOOR))


@dataclass(frozen=True)
class Seen:
    """An episode that was opened."""

    at_s: float
    by: str
    look: Callable[[str], object]
    """Returns what its trigger, or else its opening, says under a name."""
    begun_s: float
    """When it began first, or `NEVER`."""
    end: str
    """The error class that it ended with, or else the status; empty: it has not ended."""


@dataclass(frozen=True)
class Played:
    """What came of a scenario."""

    opened: Sequence[Seen]
    """In the order of the journal."""
    ended: int
    """How many ends of episodes there are."""
    counted: Mapping[str, int]
    late_s: float
    """How late a deed came, or the answer of a server, because the machine was slow: the most."""
    letters: Sequence[str] = ()
    """Reasons of dead letters."""


def differences(scenario: Scenario, played: Played, *, late_s_max: float) -> list[str]:
    """Return in words where what came of a scenario is not what it says.

    Args:
        scenario: as it should be.
        played: as it was.
        late_s_max: how much later than it was due an episode may be opened.
    """
    wanted, seen = scenario.opened, played.opened
    if sorted(each.by for each in wanted) != sorted(each.by for each in seen):
        found = [f"opened by {[each.by for each in seen]}, not {[each.by for each in wanted]}"]
        return found + _differing_counts(scenario, played)
    due = {each.by: each for each in wanted}
    found = [
        *_out_of_order("opened", [(due[each.by].at_s, each.by) for each in seen]),
        *_out_of_order("begun", _begun(seen, due)),
    ]
    for each in seen:
        found += _differences(due[each.by], each, late_s_max=late_s_max)
    return found + _differing_counts(scenario, played)


def _differing_counts(scenario: Scenario, played: Played) -> list[str]:
    found = []
    if played.ended != len(played.opened):
        found.append(f"{played.ended} ends of {len(played.opened)} episodes")
    if dict(played.counted) != dict(scenario.counted):
        found.append(f"counted {dict(played.counted)}, not {dict(scenario.counted)}")
    return found


def _differences(wanted: Opened, seen: Seen, *, late_s_max: float) -> list[str]:
    found = []
    if not wanted.at_s <= seen.at_s <= wanted.at_s + late_s_max:
        found.append(f"{seen.by} opened at {seen.at_s:.3f} s, not {wanted.at_s} s")
    begins_s = wanted.begins_s
    if begins_s is not None and not begins_s <= seen.begun_s <= begins_s + late_s_max:
        found.append(f"{seen.by} begun at {seen.begun_s:.3f} s, not {begins_s} s")
    said = {name: seen.look(name) for name in wanted.says}
    if said != dict(wanted.says):
        found.append(f"{seen.by} says {said}, not {dict(wanted.says)}")
    if wanted.ends and seen.end != wanted.ends:
        found.append(f"{seen.by} ended as {seen.end!r}, not {wanted.ends!r}")
    return found


def _begun(seen: Sequence[Seen], due: Mapping[str, Opened]) -> list[tuple[float, str]]:
    """Return when each episode had to begin, in the order in which they did."""
    timed = [(each.begun_s, due[each.by].begins_s, each.by) for each in seen]
    return [
        (begins_s, by)
        for _, begins_s, by in sorted(timed, key=itemgetter(0))
        if begins_s is not None
    ]


def _out_of_order(what: str, due: Sequence[tuple[float, str]]) -> list[str]:
    """Return that what was due at these times has not come in their order, if so it is."""
    times = [at_s for at_s, _ in due]
    return [] if times == sorted(times) else [f"{what} in the order {[by for _, by in due]}"]
