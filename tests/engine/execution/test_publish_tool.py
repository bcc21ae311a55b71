"""The engine's own tool: strategies publish domain events as a step."""

from __future__ import annotations

import msgspec
import pytest

from engine.app.actions import tool_call
from engine.app.tools import Announcement, CallContext, ToolFailed, publish
from engine.execution.steps import EVENTS_MAX, PublishTool
from streams.errors import Unavailable
from streams.memory.domain_events import MemoryDomainEvents
from streams.model.events import StepAnnounced
from tests.engine.stage import Scripted, play, told

CTX = CallContext(
    actor_id="worker",
    expectation_id="thing",
    episode_id="e",
    step_no=1,
    idempotency_key="k",
    hops=2,
)


class Away(MemoryDomainEvents):
    """A world that nobody answers for."""

    async def publish(self, name, payload, *, id, hops=0, trace=""):
        raise Unavailable("publish", detail="no server")


async def test_a_strategy_publishes_as_a_step(ports):
    step = publish("order.checked", [Announcement("a", {"n": 1}), Announcement("b", {"n": 2})])
    life = await play(Scripted(step), ports=ports)

    assert life.seen == [{"published": 2}]
    assert len(life.of(StepAnnounced)) == 1
    told_of = [payload["n"] for name, payload in told(ports) if name == "order.checked"]
    assert sorted(told_of) == [1, 2]


async def test_the_same_events_again_are_the_same_events(ports):
    step = publish("order.checked", [Announcement("a", {"n": 1})])
    again = msgspec.structs.replace(step, args={**step.args, "attempt": 2})
    life = await play(Scripted(step, again), ports=ports)

    assert life.seen == [{"published": 1}, {"published": 1}]
    assert [name for name, _ in told(ports)].count("order.checked") == 1


@pytest.mark.parametrize(
    ("action", "args", "error_class"),
    [
        ("publish", {"name": "no name", "events": [{"id": "a", "payload": {}}]}, "invalid_event"),
        ("publish", {"name": "a.b", "events": [{"id": "a"}]}, "invalid_event"),
        ("publish", {"name": "a.b", "events": [{"id": "a", "payload": []}]}, "invalid_event"),
        ("publish", {"events": []}, "invalid_event"),
        ("publish", {"name": "a.b", "events": [{"id": "a", "payload": {}}] * (EVENTS_MAX + 1)},
         "invalid_event"),
        ("publish", {"name": "a.b", "events": [{"id": "a", "payload": {"x": "y" * 600_000}}]},
         "invalid_event"),
        ("send", {}, "no_such_action"),
    ],
)  # fmt: skip
async def test_what_cannot_be_published_fails_in_words(ports, action, args, error_class):
    with pytest.raises(ToolFailed) as failed:
        await PublishTool(ports.domain_events).call(action, args, CTX)
    assert failed.value.error_class == error_class


async def test_while_the_log_is_away_the_step_says_so(ports):
    world = Away(ports.domain_events._stream, stack=ports.stack)
    with pytest.raises(ToolFailed) as failed:
        await PublishTool(world).call(
            "publish", {"name": "a.b", "events": [{"id": "a", "payload": {}}]}, CTX
        )
    assert failed.value.error_class == "tool_unavailable"


@pytest.mark.parametrize("events", [None, 3, "x"])
def test_arguments_of_any_shape_can_be_shown(ports, events):
    args = tool_call("vigil", "publish", {"name": "a.b", "events": events}).args
    assert PublishTool(ports.domain_events).redact(args) == {"name": "a.b", "events": 0}
