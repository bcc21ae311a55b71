"""Events that no node watches any more hold up the others of their actor only until somebody says
so; on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from engine.app import dedupe
from engine.operations.reconcile import reconcile
from engine.triggers import events
from streams.jetstream import connect
from streams.jetstream.ports import consumer
from streams.model.events import EndStatus
from streams.ports.all import Ports
from tests.engine.stage import HAPPENED, Scripted, app_of, lived, running

OLD: Final = "old.news"

UNANSWERED_MAX: Final = 20
"""What a queue may have unanswered here."""


@pytest.fixture
async def jet(nats, stack) -> AsyncIterator[Ports]:
    async with connect(nats.url, stack=stack) as ports:
        yield ports


async def test_what_no_node_watches_any_more_holds_up_the_queue_until_it_is_reconciled(
    jet, monkeypatch
):
    monkeypatch.setattr(consumer, "UNANSWERED_MAX", UNANSWERED_MAX)
    monkeypatch.setattr(events, "QUEUE_LOOK_S", 0.2)
    # An older version of the actor has watched it.
    await (await jet.domain_events.open("worker", {OLD, HAPPENED})).close()
    id_ = dedupe.episode_id(
        stack=jet.stack.name, actor="worker", expectation="thing", dedupe_key="event:x1"
    )
    async with running(app_of(Scripted()), jet):
        for number in range(2 * UNANSWERED_MAX):
            await jet.domain_events.publish(OLD, {}, id=f"o{number}")
        await jet.domain_events.publish(HAPPENED, {}, id="x1")
        done = await reconcile(jet, by="ada")
        life = await lived(jet, id_)

        assert [each.action.about for each in done.steps] == [f"stops watching {OLD}"]
        assert await jet.domain_events.watched("worker") == {HAPPENED}
        assert life.end.status is EndStatus.DONE
