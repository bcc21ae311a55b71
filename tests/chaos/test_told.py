"""What the world was not told, or told wrongly, is seen."""

from __future__ import annotations

import msgspec
import pytest

from engine.runtime.publish import PublicEvent
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage
from tests.engine.reactor import journals as given
from tests.spec import EPOCH
from tests.told import by_id, expected, wrong

LIFE = given.commits(
    given.STACK.episode("e1"), (given.OPENED, given.STARTED), given.CONVERGED, given.FINISHED
)
WANTED = expected(LIFE, given.STACK)
(EVENTS,) = WANTED.values()


def messages(*events: PublicEvent) -> list[StreamMessage]:
    return [
        StreamMessage(
            seq=seq,
            subject=given.STACK.event(event.name),
            headers={MESSAGE_ID_HEADER: event.id},
            data=msgspec.json.encode(event.payload),
            at=EPOCH,
        )
        for seq, event in enumerate(events, start=1)
    ]


def faults(*events: PublicEvent) -> list[str]:
    return [*wrong(WANTED, by_id(messages(*events)))]


def test_a_life_that_was_told_is_as_it_should_be():
    assert [each.id for each in EVENTS] == ["e1.triggered", "e1.started.1", "e1.ended"]
    assert faults(*EVENTS) == []


def test_what_was_told_twice_is_as_it_should_be():
    assert faults(*EVENTS, *EVENTS) == []


@pytest.mark.parametrize("left_out", EVENTS, ids=lambda each: each.id)
def test_each_event_is_missed(left_out):
    (fault,) = faults(*(each for each in EVENTS if each is not left_out))
    assert left_out.id in fault


def test_another_payload_is_seen():
    changed = msgspec.structs.replace(EVENTS[-1], payload={"status": "failed"})
    (fault,) = faults(*EVENTS[:-1], changed)
    assert "instead of" in fault


def test_another_order_is_seen():
    (fault,) = faults(*EVENTS[1:], EVENTS[0])
    assert "before what came before it" in fault
