"""What a timer looks like on the wire, for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.ports.timers import DUE_MAX, Due, Timer
from streams.wire.messages import StreamMessage
from streams.wire.timers import due_time, parse_due, timer_body, timer_headers

DUE_AT = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
TIMER = Timer(actor="monitor", purpose="debounce", key="web-1 ü", payload={"n": 1})
BODY = (
    '{"type":"timer@1","purpose":"debounce","key":"web-1 ü","payload":{"n":1},'
    '"due_at":"2030-01-02T03:04:05.678901Z"}'
).encode()


def parsed(data, headers):
    message = StreamMessage(seq=7, subject="s.due.monitor", headers=headers, data=data, at=DUE_AT)
    return parse_due(message, stream="s-work")


def test_the_body_of_a_timer_is_the_same_for_ever():
    assert timer_body(TIMER, due_at=DUE_AT) == BODY


def test_a_body_that_says_more_than_this_version_knows_is_read():
    said = BODY.removesuffix(b"}") + b',"later":[1]}'
    assert parsed(said, {"Vigil-Timer-Id": "t1"}) == Due(
        id="t1",
        purpose="debounce",
        key="web-1 ü",
        payload={"n": 1},
        due_at=DUE_AT,
        fired_at=DUE_AT,
    )


def test_an_arming_is_named_twice_because_the_server_takes_one_name_off():
    assert timer_headers(id="t1") == {"Nats-Msg-Id": "timer:t1", "Vigil-Timer-Id": "t1"}
    assert timer_headers(id="t1", trace="00-aa")["traceparent"] == "00-aa"


def test_what_json_cannot_say_is_no_timer():
    itself = {}
    itself["itself"] = itself
    for payload in (itself, {"f": print}):
        with pytest.raises((ValueError, TypeError)):
            timer_body(Timer(actor="a", purpose="p", key="k", payload=payload), due_at=DUE_AT)


def test_a_timer_may_be_due_until_the_limit_and_no_later():
    assert due_time(DUE_MAX) == DUE_MAX
    with pytest.raises(ValueError, match="the latest is 2200"):
        due_time(DUE_MAX + timedelta(microseconds=1))
