"""What requests to models have cost, in the tables: the sum of what was recorded, once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from msgspec.structs import replace

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event
from engine.runtime.store import Turns
from engine.spending.store import SpendingStore
from engine.spending.window import Spent, windows_at
from projections.postgres import records as queries
from projections.postgres.query_result import answer
from projections.project import project
from streams.memory import memory_ports
from streams.model.children import ChildEnd
from streams.model.events import EndStatus, Fork, StepAnnounced, StepKind, StepRecorded
from streams.model.money import NO_USD, Spending
from streams.model.triggers import Budget
from streams.ports.log import Commit, Recorded
from tests.engine.spending.asking import answered_by, ask
from tests.engine.stage import CLOCK, HAPPENED, Scripted, lived, open_episode, running
from tests.projections import lives
from tests.projections.lives import AT, write

DONE = lives.finished(EndStatus.DONE)


def asked(step_no, usd, *, model="m1", agent="triage:5c1f", **more):
    return StepRecorded(
        step_no=step_no,
        kind=StepKind.MODEL_REQUEST,
        fingerprint="f",
        cost_usd=None if usd is None else Decimal(usd),
        cost_tokens=100,
        input_tokens=90,
        output_tokens=10,
        cached_tokens=50,
        reasoning_tokens=4,
        model=model,
        agent=agent,
        **more,
    )


@pytest.fixture
def commit(pool, stack):
    """Put a commit on the journal, each an hour after the other."""
    told: list[int] = []

    async def put(number, *events, together=True):
        chunks = [events] if together else [(each,) for each in events]
        for chunk in chunks:
            told.append(len(told) + 1)
            at = AT + timedelta(hours=told[-1])
            said = Commit(id=f"c{told[-1]}", at=at, events=chunk)
            subject = stack.episode(lives.episode_id(number))
            record = Recorded(subject=subject, seq=told[-1], commit=said)
            await write(pool, project([record], stack=stack), stack=stack)

    return put


def opened(number=1, *, actor="monitor", **more):
    return replace(lives.opened(number), actor_id=actor, **more)


async def costs(pool, stack, by, **more):
    found = await queries.costs(pool, stack, by=by, **more)
    return {each.name: (each.requests, each.unpriced, each.cost_usd) for each in found}


async def test_a_step_has_all_that_its_request_has_used(pool, stack, commit):
    await commit(1, opened(), lives.started(), asked(1, "0.0000375"))
    (step,) = await queries.steps(pool, stack, UUID(int=1))
    assert (step.kind, step.model, step.agent) == ("model_request", "m1", "triage:5c1f")
    assert (step.input_tokens, step.output_tokens) == (90, 10)
    assert (step.cached_tokens, step.reasoning_tokens) == (50, 4)
    assert step.cost_usd == Decimal("0.0000375")


@pytest.mark.parametrize(("agent", "kind"), [("helper", "model_request"), ("", "synthesis")])
async def test_an_announced_request_is_one_before_it_is_recorded(pool, stack, commit, agent, kind):
    said = StepAnnounced(
        step_no=1,
        fingerprint="f",
        tool_name=agent,
        idempotency_key="k",
        reserved_usd=Decimal("0.50"),
    )
    await commit(1, opened(), lives.started(), said)
    (step,) = await queries.steps(pool, stack, UUID(int=1))
    assert (step.kind, step.state, step.cost_usd) == (kind, "announced", None)


@pytest.mark.parametrize("together", [True, False])
async def test_an_episode_has_cost_the_sum_of_its_requests_and_names_its_last_agent(
    pool, stack, commit, together
):
    events = (asked(1, "0.10"), asked(2, "0.20", agent="second:1"), asked(3, None, agent=""), DONE)
    await commit(1, opened(), lives.started(), *events, together=together)
    episode = await queries.episode(pool, stack, UUID(int=1))
    assert (episode.cost_usd, episode.agent) == (Decimal("0.30"), "second:1")


async def test_an_episode_that_asked_nobody_has_cost_nothing(pool, stack, commit):
    await commit(1, opened(), lives.started(), lives.recorded(), DONE)
    episode = await queries.episode(pool, stack, UUID(int=1))
    assert (episode.cost_usd, episode.agent) == (NO_USD, None)
    assert await costs(pool, stack, "all") == {}


async def test_costs_are_summed_by_what_is_asked_for_and_the_dearest_come_first(
    pool, stack, commit
):
    await commit(1, opened(1), asked(1, "0.10"), asked(2, "0.20", model="m2", agent="other:1"))
    await commit(2, opened(2, actor="cleaner"), asked(1, "0.50"), asked(2, None, model="m2"))
    assert await costs(pool, stack, "all") == {None: (4, 1, Decimal("0.80"))}
    by_actor = await costs(pool, stack, "actor")
    assert list(by_actor.items()) == [
        ("cleaner", (2, 1, Decimal("0.50"))),
        ("monitor", (2, 0, Decimal("0.30"))),
    ]
    by_model = {"m1": (2, 0, Decimal("0.60")), "m2": (2, 1, Decimal("0.20"))}
    assert await costs(pool, stack, "model") == by_model
    by_agent = {"triage": (3, 1, Decimal("0.60")), "other": (1, 0, Decimal("0.20"))}
    assert await costs(pool, stack, "agent") == by_agent
    of_actors = "SELECT actor_id, requests, unpriced, cost_usd FROM costs_by_actor"
    of_models = "SELECT model, requests, unpriced, cost_usd FROM costs_by_model"
    for view, expected in ((of_actors, by_actor), (of_models, by_model)):
        found = (await answer(pool, view)).rows
        assert {row[0]: tuple(row[1:]) for row in found} == expected


async def test_days_are_those_of_utc_and_the_latest_comes_first(pool, stack, commit):
    await commit(1, opened(), *(asked(number, "0.01") for number in range(1, 31)), together=False)
    found = await costs(pool, stack, "day")
    assert list(found.items()) == [
        ("2030-01-02", (8, 0, Decimal("0.08"))),
        ("2030-01-01", (22, 0, Decimal("0.22"))),
    ]
    since = AT + timedelta(hours=24)
    assert await costs(pool, stack, "all", since=since) == {None: (8, 0, Decimal("0.08"))}


async def test_a_finding_has_cost_what_its_episodes_have(pool, stack, commit):
    await commit(1, opened(1), asked(1, "0.10"))
    await commit(2, opened(2), asked(1, "0.50"))
    raised = lives.raised("disk")
    cause = replace(raised.cause, episode_id=lives.episode_id(1))
    said = replace(raised, cause=cause)
    await lives.write_events(pool, said, stack=stack, subject=stack.finding("disk"))
    assert await costs(pool, stack, "finding") == {
        None: (1, 0, Decimal("0.50")),
        "disk": (1, 0, Decimal("0.10")),
    }
    found = await answer(pool, "SELECT finding_key, cost_usd FROM costs_by_finding")
    assert [tuple(row) for row in found.rows] == [("disk", Decimal("0.10"))]


async def test_what_a_child_has_cost_counts_where_it_was_asked_and_not_again(pool, stack, commit):
    await commit(1, opened(1), asked(1, "0.10"), DONE)
    child = ChildEnd(episode_id=lives.episode_id(1), usd=Decimal("0.10"))
    ended = StepRecorded(step_no=1, kind=StepKind.EPISODE, fingerprint="f", child=child)
    await commit(2, opened(2), ended, DONE)
    assert (await queries.episode(pool, stack, UUID(int=2))).cost_usd == NO_USD
    assert await costs(pool, stack, "all") == {None: (1, 0, Decimal("0.10"))}


async def test_the_past_of_a_fork_has_cost_the_other_episode(pool, stack, commit):
    await commit(1, opened(1), asked(1, "0.10"), DONE)
    fork = Fork(episode_id=lives.episode_id(1), step_no=1, by="ann")
    await commit(2, opened(2, fork=fork), asked(1, "0.10"))
    await commit(2, lives.started(), asked(2, "0.02"), DONE)
    assert (await queries.episode(pool, stack, UUID(int=2))).cost_usd == Decimal("0.02")
    assert await costs(pool, stack, "all") == {None: (2, 0, Decimal("0.12"))}


async def test_what_an_override_stands_for_has_cost_nothing(pool, stack, commit):
    await commit(1, opened(), asked(1, None, is_override=True))
    assert await costs(pool, stack, "all") == {}


async def nothing(*_):
    """Answer a request at once."""


async def test_tables_windows_and_budgets_say_what_was_recorded(pool, stack, monkeypatch):
    answered_by(nothing, monkeypatch)
    limit = Spending(usd="9")
    worker = Actor("worker", spending=[limit])
    plan = [ask(number, worst="0.30", cost=f"0.0{number}") for number in (1, 2, 3)]
    worker.expect("thing", Scripted(*plan), on=event(HAPPENED), budget=Budget(usd="0.35"))
    app, ports = App(actors=[worker]), memory_ports(stack=stack, clock=CLOCK)
    async with running(app, ports):
        ids = [await open_episode(ports, app, id_=f"x{number}") for number in range(3)]
        lives_ = [await lived(ports, each) for each in ids]
    async with lives.projecting(ports, pool):
        await lives.wait_projected(ports, pool)
    recorded = [step.cost_usd for life in lives_ for step in life.of(StepRecorded) if step.cost_usd]
    assert sum(recorded) == 3 * Decimal("0.06")
    assert (await costs(pool, stack, "all"))[None] == (9, 0, sum(recorded))
    rows = [await queries.episode(pool, stack, UUID(each)) for each in ids]
    assert [row.cost_usd for row in rows] == [life.end.usd_used for life in lives_]
    store = SpendingStore(ports.gates, CLOCK, Turns())
    (window,) = windows_at("worker", of_actor=[limit], of_stack=[], now=CLOCK.now())
    assert await store.spent(window) == Spent(used=sum(recorded))
