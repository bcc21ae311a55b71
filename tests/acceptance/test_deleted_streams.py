"""A stream of others that is deleted and made anew while actors read it, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import pytest
from structlog.testing import capture_logs

from engine.app import dedupe
from engine.app.app import App
from engine.app.triggers import event
from engine.triggers import events
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.model.events import EndStatus
from streams.ports.all import Ports
from tests.engine.lane_stage import laned
from tests.engine.stage import HAPPENED, Scripted, app_of, lived, running
from tests.streams.jetstream.wire import eventually

LOOK_S: Final = 0.05


@pytest.fixture
async def jet(nats, stack) -> AsyncIterator[Ports]:
    async with connect(nats.url, stack=stack, settings=LinkSettings(lease_ttl_s=1.0)) as ports:
        yield ports


@pytest.fixture
async def link(nats):
    async with Link(nats.url, LinkSettings()) as link:
        yield link


@pytest.fixture
def name(stack):
    return f"ORDERS-{stack.name}"


@pytest.fixture
def make(link, name):
    """Makes the stream, and publishes messages with these ids."""

    async def make_and_fill(*ids):
        config = {"name": name, "subjects": [f"{name}.>"]}
        await api.call(link, f"STREAM.CREATE.{name}", config)
        for number in ids:
            headers = {"Nats-Msg-Id": number}
            await link.request(f"{name}.paid", b"{}", more=headers)

    return make_and_fill


def gated(on) -> App:
    return app_of(Scripted(), on=on)


def in_a_lane(on) -> App:
    return laned(cluster=5, thing={"on": on})


@pytest.mark.parametrize("app_on", [gated, in_a_lane])
async def test_a_stream_that_is_deleted_and_made_anew_is_read_from_its_beginning(
    jet, link, make, name, *, monkeypatch, app_on: Callable[..., App]
):
    monkeypatch.setattr(events, "STREAM_LOOK_S", LOOK_S)
    app = app_on([event(stream=name), event(HAPPENED)])

    async def done(id_):
        episode_id = dedupe.episode_id(
            stack=jet.stack.name, actor="worker", expectation="thing", dedupe_key=f"event:{id_}"
        )
        return (await lived(jet, episode_id)).end.status

    await make()
    with capture_logs() as lines:

        def logged(line):
            async def is_logged():
                return line in [each["event"] for each in lines]

            return eventually(is_logged)

        async with running(app, jet):
            await logged("node up")
            await link.request(f"{name}.paid", b"{}", more={"Nats-Msg-Id": "o1"})
            assert await done(f"{name}/o1") is EndStatus.DONE

            await api.call(link, f"STREAM.DELETE.{name}")
            await logged(events.missing("worker", name))
            await jet.domain_events.publish(HAPPENED, {}, id="x1")
            assert await done("x1") is EndStatus.DONE

            await make("o2", "o3", "o4")
            for each in ("o2", "o3", "o4"):
                assert await done(f"{name}/{each}") is EndStatus.DONE

    warned = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert warned == [events.missing("worker", name)]
