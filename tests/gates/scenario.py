"""What a scenario is made of: a declaration, what happens when, and what must come of it.

Times are seconds since the scenario began. What opened an episode is told in a word: the id of the
event, `tick+900` for the tick 900 s after the beginning, `fire k` for a fire with the key `k`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from engine.actions import converge
from engine.actor import Actor
from engine.app import App
from engine.convergence import ConvergeResult
from engine.strategy import Strategy
from engine.trigger import On, event
from streams.json import JsonObject

DOOR: Final = "door.opened"
"""What happens unless a scenario says otherwise."""

BEGINS: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When a scenario begins unless it says otherwise: at the start of an hour, a day and a month."""


class Look(Strategy):
    """Ends at once; as failed, if the trigger says so."""

    def init(self, episode, trigger):
        return {"fails": bool(trigger.payload.get("fails"))}

    def next_step(self, state, ctx):
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


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One row of the table."""

    name: str
    declared: Mapping[str, Any] = field(default_factory=dict)
    """Options of the one expectation; without `on` it listens to `DOOR`."""
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
        actor = Actor(self.actor)
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


@dataclass(frozen=True)
class Played:
    """What came of a scenario."""

    opened: Sequence[Seen]
    """In the order of the journal."""
    ended: int
    """How many ends of episodes there are."""
    counted: Mapping[str, int]
    late_s: float
    """How late the latest deed came, because the machine was slow."""
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
        return [f"opened by {[each.by for each in seen]}, not {[each.by for each in wanted]}"]
    found = []
    due_s = {each.by: each.at_s for each in wanted}
    order = [due_s[each.by] for each in seen]
    if order != sorted(order):
        found.append(f"opened in the order {[each.by for each in seen]}")
    by = {each.by: each for each in seen}
    for each in wanted:
        if not each.at_s <= by[each.by].at_s <= each.at_s + late_s_max:
            found.append(f"{each.by} opened at {by[each.by].at_s:.3f} s, not {each.at_s} s")
        said = {name: by[each.by].look(name) for name in each.says}
        if said != dict(each.says):
            found.append(f"{each.by} says {said}, not {dict(each.says)}")
    if played.ended != len(seen):
        found.append(f"{played.ended} ends of {len(seen)} episodes")
    if dict(played.counted) != dict(scenario.counted):
        found.append(f"counted {dict(played.counted)}, not {dict(scenario.counted)}")
    return found
