"""The money of one episode around its requests, as whoever makes these uses it."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import manual
from engine.episodes.episode import UNOPENED, Announce, Begin, Performed, decide, evolve
from engine.errors import BudgetExceeded, EpisodeFailed
from engine.spending.episode import EpisodeSpending
from engine.spending.window import Spent, every_window
from streams.model.events import EpisodeOpened, StepKind
from streams.model.money import NO_USD, Price, Spending
from streams.model.triggers import Budget, ManualTrigger
from tests.engine.crew import crew_of
from tests.engine.stage import Scripted

MODEL = "openai:mine"
PRICED = {MODEL: Price(input_per_million="3", output_per_million="15")}


def opened_with(usd="0", id_="e1"):
    return EpisodeOpened(
        episode_id=id_,
        actor_id="worker",
        expectation_id="expects",
        trigger=ManualTrigger(requested_by="a test"),
        dedupe_key="k",
        budget=Budget(usd=usd),
    )


class Asking:
    """An episode that makes requests, and records them as an agent's run does."""

    def __init__(self, ports, *, usd="0", actor=(), stack=(), id_="e1", **app):
        worker = Actor("worker", spending=actor)
        worker.expect("expects", Scripted(), on=manual())
        self.context = crew_of(App(actors=[worker], spending=stack, **app), ports)
        self.opened = opened_with(usd, id_)
        self.episode = evolve(UNOPENED, self.opened)
        self.record(Begin(node="n1"))
        self.spending = self.on_another_node()

    def on_another_node(self):
        return EpisodeSpending(self.context, self.opened, lambda: self.episode)

    def record(self, command):
        self.episode = evolve(self.episode, decide(self.episode, command))

    async def announce(self, path, usd):
        await self.spending.reserve(Decimal(usd), path=path)
        said = {"fingerprint": path, "tool_name": "", "idempotency_key": path, "path": path}
        self.record(Announce(**said, reserved_usd=Decimal(usd)))

    async def end(self, path, cost):
        cost_usd = None if cost is None else Decimal(cost)
        await self.spending.settle(path, cost_usd)
        kind = StepKind.MODEL_REQUEST
        self.record(Performed(kind=kind, fingerprint=path, path=path, cost_usd=cost_usd))

    async def ask(self, path, usd, cost):
        await self.announce(path, usd)
        await self.end(path, cost)

    async def windows(self):
        now = self.context.clock.now()
        found = [await self.spending._store.spent(each) for each in every_window("worker", now)]
        return [each for each in found if each != Spent()]


async def test_requests_cost_what_they_have_cost_until_the_next_might_not_fit(ports):
    asking = Asking(ports, usd="1.00")
    await asking.ask("1", "0.90", "0.20")
    await asking.ask("2", "0.80", "0.30")
    with pytest.raises(BudgetExceeded) as refused:
        await asking.announce("3", "0.51")
    assert refused.value.limit == "usd"
    assert refused.value.detail == "usd: 0.50 used of 1.00; the next request may cost 0.51"


async def test_what_is_announced_elsewhere_is_kept_for_it(ports):
    asking = Asking(ports, usd="1.00")
    await asking.announce("1", "0.60")
    with pytest.raises(BudgetExceeded, match=r"0\.00 used and 0\.60 reserved of 1\.00"):
        await asking.announce("2", "0.50")


async def test_branches_that_reserve_at_the_same_time_do_not_share_a_cent(ports):
    asking = Asking(ports, usd="1.00", actor=[Spending(usd="5")])
    both = [asking.spending.reserve(Decimal("0.60"), path=path) for path in ("1.1", "1.2")]
    ended = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(each) for each in ended if each) == [BudgetExceeded]
    assert asking.spending.taken_usd == Decimal("0.60")


async def test_a_reservation_that_a_window_refuses_is_not_the_episodes(ports):
    asking = Asking(ports, usd="1.00", actor=[Spending(usd="0.10")])
    with pytest.raises(BudgetExceeded, match="by actor worker in the day"):
        await asking.announce("1", "0.60")
    assert asking.spending.taken_usd == NO_USD
    assert await asking.windows() == []


async def test_an_announced_request_is_asked_again_after_a_crash_and_counts_once(ports):
    asking = Asking(ports, usd="1.00", actor=[Spending(usd="1.00")])
    await asking.announce("1", "0.90")
    asking.record(Begin(node="n2"))
    asking.spending = asking.on_another_node()
    await asking.spending.reserve(Decimal("0.90"), path="1")
    await asking.end("1", "0.25")
    assert asking.episode.usd_used == Decimal("0.25")
    assert await asking.windows() == [Spent(used=Decimal("0.25"))]


async def test_what_nobody_knows_the_cost_of_counts_at_its_most(ports):
    asking = Asking(ports, usd="1.00", actor=[Spending(usd="5")])
    await asking.ask("1", "0.90", None)
    assert asking.episode.usd_used == Decimal("0.90")
    assert await asking.windows() == [Spent(used=Decimal("0.90"))]


async def test_episodes_share_what_their_actor_and_their_stack_may_spend(ports):
    limits = {"actor": [Spending(usd="0.50")], "stack": [Spending(usd="9", per="month")]}
    first, second = Asking(ports, **limits), Asking(ports, id_="e2", **limits)
    await first.ask("1", "0.40", "0.40")
    with pytest.raises(BudgetExceeded, match=r"0\.40 used or reserved of 0\.50"):
        await second.announce("1", "0.20")
    assert await first.windows() == [Spent(used=Decimal("0.40"))] * 2


async def test_a_request_that_is_not_made_after_all_has_cost_nothing(ports):
    asking = Asking(ports, usd="1.00", actor=[Spending(usd="5")])
    await asking.spending.reserve(Decimal("0.60"), path="1")
    await asking.spending.settle("1", NO_USD)
    assert asking.spending.taken_usd == NO_USD
    assert await asking.windows() == []


def test_the_worst_case_of_a_request_has_the_prices_of_the_app(ports):
    asking = Asking(ports, usd="1.00", prices=PRICED)
    assert asking.spending.worst_case(MODEL, 3_000, 500) == Decimal("0.0105")


@pytest.mark.parametrize(
    "limits",
    [
        {"usd": "1"},
        {"actor": [Spending(usd="1")]},
        {"stack": [Spending(usd="1")]},
    ],
)
def test_a_model_without_a_price_is_refused_where_a_limit_applies(ports, limits):
    with pytest.raises(EpisodeFailed) as refused:
        Asking(ports, **limits).spending.worst_case(MODEL, 10, 10)
    assert str(refused.value) == (
        "unpriced_model: nobody knows the price of 'openai:mine', and a limit in dollars applies;"
        " App(prices={'openai:mine': Price(…)}), or App(unpriced=\"zero\")"
    )


def test_a_model_without_a_price_costs_nothing_where_the_app_says_so(ports):
    assert Asking(ports, usd="1", unpriced="zero").spending.worst_case(MODEL, 10, 10) is None
