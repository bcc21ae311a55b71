"""What requests to models have cost, as a client and the command tell it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace

from streams.model.events import EndStatus, StepKind
from tests.projections import lives
from tests.projections.lives import AT, write_events
from vigil.errors import Mistake


def asked(step_no, usd, model):
    cost_usd = None if usd is None else Decimal(usd)
    step = lives.recorded(step_no, tokens=100)
    kind = StepKind.MODEL_REQUEST
    return replace(step, kind=kind, cost_usd=cost_usd, model=model, agent="triage:1")


@pytest.fixture
async def spent(pool, client):
    """Two episodes of two actors, an hour apart, which have asked two models."""
    stack = client.stack
    for number, actor in enumerate(("monitor", "cleaner"), start=1):
        opened = replace(lives.opened(number), actor_id=actor)
        steps = (asked(1, f"0.{number}", "m1"), asked(2, None, "m2"))
        events = (opened, lives.started(), *steps, lives.finished(EndStatus.DONE))
        subject = stack.episode(lives.episode_id(number))
        at = AT + timedelta(hours=number)
        await write_events(pool, *events, stack=stack, subject=subject, at=at)


async def test_costs_are_told_by_what_is_asked_for_with_their_sum(spent, client):
    report = await client.costs()
    assert [(each.name, each.cost_usd) for each in report] == [
        ("cleaner", Decimal("0.2")),
        ("monitor", Decimal("0.1")),
    ]
    assert (report.total.cost_usd, report.total.unpriced) == (Decimal("0.3"), 2)
    assert [each.name for each in await client.costs(by="model")] == ["m1", "m2"]
    assert [each.requests for each in await client.costs(by="all")] == [4]


async def test_a_sum_is_of_all_requests_however_few_are_listed(spent, client):
    report = await client.costs(limit=1)
    assert len(report.items) == 1
    assert report.total.requests == 4


async def test_costs_are_told_of_the_time_that_is_asked_for(spent, client):
    since = AT + timedelta(hours=2)
    assert (await client.costs(since=since)).total.cost_usd == Decimal("0.2")
    assert (await client.costs(since=since + timedelta(hours=1))).total is None


async def test_what_cannot_be_asked_is_a_mistake(client):
    with pytest.raises(Mistake, match="by: 'acter' is not one of"):
        await client.costs(by="acter")
    with pytest.raises(Mistake, match=r"since: .* has no time zone"):
        await client.costs(since=AT.replace(tzinfo=None))
    with pytest.raises(Mistake, match="limit: 0 is not a whole number from 1 to 10,000"):
        await client.costs(limit=0)
