"""One story, played once for each moment at which a node may die, or stand still for too long.

A moment is a request that leaves a node, before it or after, from the commit on that the story is
about. Two nodes run; one that dies is replaced, one that stood still wakes up after its lease.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from engine.app.actions import Pause, Retries, approval, tool_call, wait
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.findings import raise_finding
from engine.app.outputs import Route, propose_output
from engine.app.strategy import ConvergeResult
from engine.app.triggers import event
from engine.waits.signal import RESOLVED
from engine.waits.signals import QUEUE
from streams.keys import PUBLISHED
from streams.layout import Stream
from streams.model.events import (
    DeadRequeued,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeResolved,
    FindingRaised,
    LogEvent,
    OutputApproved,
    OutputDelivered,
    OutputFailed,
    OutputProposed,
    StepRecorded,
)
from tests.engine.output_stage import Behaviour, Frost, Pager, Proposing, Scene, broken, busy, play
from tests.engine.stage import HAPPENED, Scripted, decide
from tests.engine.stage import Counter as Calls
from tests.gates.place import Doom
from tests.moments import moments
from tests.simulation.faults import Fault, Weather

CHANCES_MIN: Final = 20
"""Fewer moments than any story has, so that the tests cannot pass idly."""

REF: Final = "payment:42"
CROWD: Final = "crowd.came"
QUICK: Final = Retries(attempts_max=8, first_s=0.5, most_s=1.0)

MISFORTUNES: Final = (Doom, Frost)
"""A node dies; a node stands still for longer than its lease."""

Story = Callable[[Scene], Awaitable[None]]
"""What people and programs do, for one episode."""


class Since(Weather):
    """All is well until a commit is stored; then one thing goes wrong, at the n-th chance."""

    def __init__(self, kind: type[Doom], first: type[LogEvent], fatal: int = 0) -> None:
        super().__init__(fatal)
        self.clear_up()
        self.misfortune, self._first, self._has_begun = kind(fatal), first, False
        self._scene: Scene | None = None

    def begin(self, scene: Scene) -> None:
        """Look from now on what `scene` stores."""
        self._scene = scene

    def draw(self, *kinds: Fault) -> Fault | None:
        self._has_begun = self._has_begun or self._is_stored()
        return self.misfortune.draw(*kinds) if self._has_begun else None

    def _is_stored(self) -> bool:
        stored = self._scene.servers.stored if self._scene else ()
        return any(isinstance(each, self._first) for one in stored for each in one.commit.events)

    def between(self, least: float, most: float) -> float:
        return self.misfortune.between(least, most)


@dataclass
class Plot:
    """An app, a story, and from which commit on something may go wrong."""

    app: Callable[[], App]
    story: Story
    first: type[LogEvent]
    episodes: int = 1

    def play(self, kind: type[Doom], fatal: int = 0) -> tuple[Ending, int]:
        """Return how it ends if that goes wrong, and how many chances there were."""
        app, weather = self.app(), Since(kind, self.first, fatal)

        async def played(scene: Scene) -> None:
            # A signal that no queue takes yet would be lost.
            await (await scene.ports.domain_events.open(QUEUE, [RESOLVED])).close()
            weather.begin(scene)
            async with scene.node("n2"):
                await self.story(scene)
                await scene.until(partial(_is_over, scene, self.episodes))
                await scene.quiet()

        _, scene = play(played, app, weather=weather)
        return Ending(app, scene), weather.misfortune.chances


async def _is_over(scene: Scene, episodes: int) -> bool:
    ended = sum(isinstance(each, EpisodeFinished) for each in scene.events(Stream.JOURNAL))
    return ended == episodes and not _claims(scene)


def _claims(scene: Scene) -> list[str]:
    """Return the claims on episodes. Who gives turns keeps theirs."""
    return [key for key in scene.ports.leases._bucket if key.startswith("episode.")]


@dataclass
class Ending:
    """What is left of a story."""

    app: App
    scene: Scene

    def count(self, *kinds: type[LogEvent]) -> list[int]:
        counted = Counter(type(each) for each in self.scene.events(Stream.JOURNAL))
        return [counted[kind] for kind in kinds]

    @property
    def told(self) -> list[str]:
        """Ids of what the world was told, but for the nodes, who began with it, and who lost it."""
        told = (id_ for id_ in self.scene.told_ids if not id_.startswith("node."))
        others = (".started.", ".claim_lost.")
        return sorted(id_ for id_ in told if not any(each in id_ for each in others))

    @property
    def settlements(self) -> list[DeadRequeued]:
        events = self.scene.events(Stream.DEAD)
        return [each for each in events if isinstance(each, DeadRequeued)]

    @property
    def left_behind(self) -> list[object]:
        """What is still claimed, armed or buried, but for timers of signals and what is noted of
        reactors: that says nothing."""
        ports = self.scene.ports
        return [
            *_claims(self.scene),
            *(each for each in ports.timers._armed if f".{QUEUE}." not in each),
            *(
                key
                for key, each in ports.registry._entries.items()
                if each.value is not None and not key.startswith(PUBLISHED)
            ),
            *(each.subject for each in self.scene.letters),
        ]


def differences(plot: Plot, kind: type[Doom], came: Callable[[Ending], object]) -> list[str]:
    """Return where the story ends in another way than undisturbed, if one thing goes wrong."""
    undisturbed, chances = plot.play(kind)
    assert chances > CHANCES_MIN
    expected = came(undisturbed)
    found = []
    for fatal in moments(chances):
        ending, _ = plot.play(kind, fatal)
        if (is_ := came(ending)) != expected:
            found.append(f"{kind.__name__} {fatal}: {is_}, not {expected}")
    return found


# What is decided is carried out once.


class Deciding(Scripted):
    """Converges with two findings and two outputs."""

    def converge(self, state, ctx):
        return ConvergeResult(
            findings=[raise_finding(each, class_="sim") for each in ("disk", "fan")],
            outputs=[propose_output("pager", each, dedupe_key=each) for each in ("ann", "bob")],
        )


def deciding() -> App:
    actor = Actor("worker", max_concurrent_episodes=10)
    actor.expect("thing", Deciding(), on=event(HAPPENED))
    return App(actors=[actor], outputs={"pager": Route(Pager(busy()), retries=QUICK)})


async def decided(scene: Scene) -> None:
    await scene.open()


def what_came_of_the_decision(ending: Ending) -> object:
    once = FindingRaised, OutputProposed, OutputDelivered, EpisodeConverged, EpisodeFinished
    keys: dict[str, set[str]] = defaultdict(set)
    for view in ending.app.outputs["pager"].output_adapter.views:
        keys[view.output_key].add(view.idempotency_key)
    known_by = {key: len(marks) for key, marks in keys.items()}
    return ending.count(*once), known_by, ending.told, ending.left_behind


@pytest.mark.parametrize("kind", MISFORTUNES)
def test_findings_and_outputs_are_carried_out_once_whenever_a_node_is_lost(kind):
    plot = Plot(deciding, decided, EpisodeConverged)
    assert differences(plot, kind, what_came_of_the_decision) == []


# What has failed is known to have, though others have it delivered after that.


def wanting(*plan: Behaviour) -> App:
    actor = Actor("worker", max_concurrent_episodes=10)
    wanted = [propose_output("pager", "ann", dedupe_key="ann")]
    actor.expect("thing", Proposing(outputs=wanted), on=event(HAPPENED))
    return App(actors=[actor], outputs={"pager": Pager(*plan)})


async def wanted_by_two(scene: Scene) -> None:
    await scene.open("x1")
    await scene.reached("ann", "failed")
    await scene.open("x2")


def test_each_failure_is_told_and_buried_whenever_a_node_dies():
    plot = Plot(lambda: wanting(broken()), wanted_by_two, OutputFailed, episodes=2)
    once = OutputProposed, OutputFailed, OutputDelivered, EpisodeFinished
    told = lambda ending: (ending.count(*once), ending.told, ending.left_behind)  # noqa: E731
    assert differences(plot, Doom, told) == []


def test_the_letter_of_what_others_propose_anew_is_settled_whenever_a_node_dies():
    plot = Plot(lambda: wanting(broken()), wanted_by_two, OutputFailed, episodes=2)
    settled = lambda ending: sorted(repr(each) for each in ending.settlements)  # noqa: E731
    undisturbed, _ = plot.play(Doom)
    assert [each.by for each in undisturbed.settlements] == ["actor worker"]
    assert differences(plot, Doom, settled) == []


# An episode that waits is answered once, and goes on.


def waiting(action: Pause, **turns: object) -> Callable[[], App]:
    def app() -> App:
        pay = tool_call("pay", "out", {})
        actor = Actor("worker", max_concurrent_episodes=10, **turns)
        actor.expect("thing", Scripted(action, pay), on=event(HAPPENED))
        tools = {"pay": Calls(side_effect=True, idempotent=True)}
        return App(actors=[actor], tools=tools)

    return app


async def asked(scene: Scene) -> str:
    episode_id = await scene.open()

    async def is_blocked() -> bool:
        return bool((await scene.life(episode_id)).of(EpisodeBlocked))

    await scene.until(is_blocked)
    return episode_id


async def approved(scene: Scene) -> None:
    await decide(scene.ports, await asked(scene), by="ann")


async def resolved(scene: Scene) -> None:
    await asked(scene)
    await scene.ports.domain_events.publish(
        RESOLVED, {"ref": REF, "result": 1, "by": "bank"}, id="w"
    )


async def expired(scene: Scene) -> None:
    await asked(scene)


ASK: Final = approval({"pay": 1})
SOON: Final = approval({"pay": 1}, expires_s=5, on_expiry="approve")

WAITS: Final = {
    "approved": Plot(waiting(ASK), approved, EpisodeBlocked),
    "resolved": Plot(waiting(wait(REF)), resolved, EpisodeBlocked),
    "expired": Plot(waiting(SOON), expired, EpisodeBlocked),
    "approved, in its turn": Plot(waiting(ASK, max_concurrent_cluster=1), approved, EpisodeBlocked),
}


def what_came_of_the_wait(ending: Ending) -> object:
    once = EpisodeBlocked, EpisodeResolved, StepRecorded, EpisodeFinished
    keys = set(ending.app.tools["pay"].keys)
    return ending.count(*once), len(keys), ending.told, ending.left_behind


@pytest.mark.parametrize("plot", list(WAITS))
def test_what_waits_is_answered_once_and_goes_on_whenever_a_node_dies(plot):
    assert differences(WAITS[plot], Doom, what_came_of_the_wait) == []


def test_what_waits_is_answered_once_and_goes_on_whenever_a_node_stands_still():
    assert differences(WAITS["resolved"], Frost, what_came_of_the_wait) == []


# Also if nobody has room to run it, when that is said for which it waits.


def crowded(strategy: Scripted, **outputs: object) -> App:
    """Return an app of an actor with one slot on each node, which `crowd` takes."""
    tools = {"pay": Calls(side_effect=True, idempotent=True), "hold": Calls(open_=False)}
    actor = Actor("worker", max_concurrent_episodes=1)
    actor.expect("thing", strategy, on=event(HAPPENED))
    actor.expect("crowd", Scripted(tool_call("hold", "on")), on=event(CROWD))
    return App(actors=[actor], tools=tools, outputs=outputs)


async def crowd(scene: Scene) -> None:
    """Take the slots of both nodes."""
    for name in ("c1", "c2"):
        await scene.ports.domain_events.publish(CROWD, {}, id=name)
    hold = scene.app.tools["hold"]

    async def is_full() -> bool:
        return len(hold.calls) >= 2

    await scene.until(is_full)


async def let_go(scene: Scene, said: type[LogEvent]) -> None:
    """Give the slots back once that is written down which was said."""

    async def is_written() -> bool:
        return any(isinstance(each, said) for each in scene.events(Stream.JOURNAL))

    await scene.until(is_written)
    scene.app.tools["hold"].gate.set()


async def approved_in_a_crowd(scene: Scene) -> None:
    episode_id = await asked(scene)
    await crowd(scene)
    await decide(scene.ports, episode_id, by="ann")
    await let_go(scene, EpisodeResolved)


async def expired_in_a_crowd(scene: Scene) -> None:
    await asked(scene)
    await crowd(scene)
    await let_go(scene, EpisodeResolved)


async def output_approved_in_a_crowd(scene: Scene) -> None:
    await scene.open()
    await scene.reached("ann", "awaiting_approval")
    await crowd(scene)
    await decide(scene.ports, "ann", kind="output", by="ann")
    await let_go(scene, OutputApproved)


def asking(action: Pause) -> Callable[[], App]:
    return lambda: crowded(Scripted(action, tool_call("pay", "out", {})))


def gated() -> App:
    wanted = propose_output("pager", "ann", dedupe_key="ann", requires_approval=True)
    return crowded(Proposing(outputs=[wanted]), pager=Route(Pager(), retries=QUICK))


CROWDED: Final = {
    "approved": Plot(asking(ASK), approved_in_a_crowd, EpisodeBlocked, episodes=3),
    "expired": Plot(asking(SOON), expired_in_a_crowd, EpisodeBlocked, episodes=3),
    "output": Plot(gated, output_approved_in_a_crowd, OutputProposed, episodes=3),
}


def what_came_of_what_was_said(ending: Ending) -> object:
    once = EpisodeBlocked, EpisodeResolved, EpisodeFinished, OutputApproved, OutputDelivered
    keys = set(ending.app.tools["pay"].keys)
    return ending.count(*once), len(keys), ending.told, ending.left_behind


@pytest.mark.parametrize("plot", list(CROWDED))
def test_what_is_said_while_there_is_no_room_is_done_once_whenever_a_node_dies(plot):
    assert differences(CROWDED[plot], Doom, what_came_of_what_was_said) == []
