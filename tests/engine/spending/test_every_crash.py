"""Two nodes spend, and one dies or stands still at every moment: no limit is ever passed."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple

import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event
from engine.errors import BUDGET_EXCEEDED
from engine.runtime.store import Turns
from engine.spending.store import SpendingStore
from engine.spending.window import Spent, windows_at
from streams.layout import Stream
from streams.model.events import EpisodeFinished, EpisodeStarted, StepRecorded
from streams.model.money import NO_USD, Spending
from streams.model.triggers import Budget
from tests.engine.execution.test_every_crash import Since
from tests.engine.output_stage import Frost, Scene, play
from tests.engine.spending.asking import answered_by, ask
from tests.engine.stage import HAPPENED, Scripted
from tests.gates.place import Doom
from tests.moments import moments

EPISODES: Final = 4
LIMITS: Final = {"worker": Decimal("1.00"), "": Decimal("0.90")}
"""Of the actor and of the stack; each of four episodes would spend 0.40."""

CHANCES_MIN: Final = 50
"""Fewer moments than the story has, so that the test cannot pass idly."""


def spenders() -> App:
    """Return an app whose episodes make two requests of 0.20, each of which might cost 0.30."""
    plan = [ask(number, worst="0.30", cost="0.20") for number in (1, 2)]
    worker = Actor("worker", max_concurrent_episodes=4, spending=[Spending(usd=LIMITS["worker"])])
    worker.expect("thing", Scripted(*plan), on=event(HAPPENED), budget=Budget(usd="0.60"))
    return App(actors=[worker], spending=[Spending(usd=LIMITS[""], per="month")])


class Books:
    """What the windows of a scene say, at each request and at the end."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.store = SpendingStore(scene.ports.gates, scene.clock, Turns())
        self.passed: list[str] = []

    async def read(self) -> dict[str, Spent]:
        found = windows_at(
            "worker",
            of_actor=[Spending(usd=LIMITS["worker"])],
            of_stack=[Spending(usd=LIMITS[""], per="month")],
            now=self.scene.clock.now(),
        )
        return {each.actor: await self.store.spent(each) for each in found}

    async def audit(self, *_: object) -> None:
        for actor, spent in (await self.read()).items():
            if spent.total > LIMITS[actor]:
                self.passed.append(f"{actor or 'the stack'}: {spent}")


class Ending(NamedTuple):
    """What is left of a story."""

    scene: Scene
    passed: list[str]
    """Limits that were passed at any request."""
    spent: dict[str, Spent]
    """Actor → what its window says; empty: the stack's."""
    chances: int

    @property
    def ends(self) -> set[str]:
        found = self.scene.events(Stream.JOURNAL)
        return {each.error_class for each in found if isinstance(each, EpisodeFinished)}

    @property
    def recorded(self) -> Decimal:
        found = self.scene.events(Stream.JOURNAL)
        steps = (each for each in found if isinstance(each, StepRecorded))
        return sum((each.cost_usd for each in steps if each.cost_usd is not None), NO_USD)


def lived(kind: type[Doom], fatal: int = 0) -> Ending:
    """Return how the story ends if one thing goes wrong, at the n-th chance."""
    weather = Since(kind, EpisodeStarted, fatal)

    async def story(scene: Scene) -> tuple[Books, dict[str, Spent]]:
        books = Books(scene)
        answered_by(books.audit, patch)
        weather.begin(scene)
        async with scene.node("n2"):
            for number in range(EPISODES):
                await scene.open(f"x{number}")
            await scene.until(partial(has_ended, scene))
            await scene.quiet()
        return books, await books.read()

    with pytest.MonkeyPatch.context() as patch:
        (books, spent), scene = play(story, spenders(), weather=weather)
    return Ending(scene, books.passed, spent, weather.misfortune.chances)


async def has_ended(scene: Scene) -> bool:
    found = scene.events(Stream.JOURNAL)
    return sum(isinstance(each, EpisodeFinished) for each in found) == EPISODES


@pytest.mark.parametrize("kind", [Doom, Frost])
def test_no_limit_is_passed_and_every_cost_counts_whenever_a_node_is_lost(kind):
    undisturbed = lived(kind)
    assert undisturbed.chances > CHANCES_MIN
    assert undisturbed.ends == {"", BUDGET_EXCEEDED}
    assert all(each.used == undisturbed.recorded for each in undisturbed.spent.values())
    for fatal in moments(undisturbed.chances):
        ending = lived(kind, fatal)
        what = f"{kind.__name__} {fatal}: {ending.spent}"
        assert ending.passed == [], what
        assert ending.ends <= {"", BUDGET_EXCEEDED}, what
        # Nothing is settled that is not recorded, and nothing recorded stays reserved.
        for actor, spent in ending.spent.items():
            assert ending.recorded == spent.used == spent.total <= LIMITS[actor], what
