"""What every `World`, and every `Source` of domain events, promises."""

from __future__ import annotations

import msgspec
import pytest

from streams.errors import BadName, TooLarge
from streams.layout import Stream
from streams.model.triggers import CloudEvent
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import EVENT_BYTES_MAX, DomainEvent
from tests.contracts.samples import SILENCE_S, deliveries_of, opened

NAME = "resource.updated"


@pytest.fixture
def world(ports):
    return ports.domain_events


def contents(deliveries):
    return [delivery.content for delivery in deliveries]


def event_ids(deliveries):
    return [delivery.content.id for delivery in deliveries]


@pytest.fixture
def received(world, stack, publish_raw):
    """What an actor makes of bytes that a stranger published."""

    async def publish_and_receive(data, headers):
        async with opened(world.open("monitor", [NAME])) as source:
            await publish_raw(stack.event(NAME), data, headers)
            (delivery,) = await deliveries_of(source, 1)
        return delivery.content

    return publish_and_receive


async def test_an_event_arrives_as_it_was_published(world):
    payload = {"host": "münchen-1", "disk_used": 0.93, "tags": ["a", None], "n": 2**63}
    async with opened(world.open("monitor", [NAME])) as source:
        seq = await world.publish(NAME, payload, id="ev-1", hops=3, trace="00-aa-bb-01")
        (delivery,) = await deliveries_of(source, 1)
    content = delivery.content
    assert isinstance(content, DomainEvent)
    assert (content.id, content.name, content.payload) == ("ev-1", NAME, payload)
    assert (content.seq, content.hops) == (seq, 3)
    assert (delivery.seq, delivery.trace, delivery.deliveries) == (seq, "00-aa-bb-01", 1)


async def test_an_event_from_outside_has_no_hops_and_no_trace(world):
    async with opened(world.open("monitor", [NAME])) as source:
        await world.publish(NAME, {}, id="ev-1")
        (delivery,) = await deliveries_of(source, 1)
    assert (delivery.content.hops, delivery.trace) == (0, "")


async def test_one_id_is_published_once_and_keeps_its_first_sequence(world):
    async with opened(world.open("monitor", [NAME])) as source:
        first = await world.publish(NAME, {"n": 1}, id="same")
        again = await world.publish(NAME, {"n": 2}, id="same")
        other = await world.publish(NAME, {"n": 3}, id="other")
        deliveries = await deliveries_of(source, 2)
    assert first == again != other
    assert [content.payload for content in contents(deliveries)] == [{"n": 1}, {"n": 3}]


async def test_an_event_over_the_limit_is_refused(world):
    async with opened(world.open("monitor", [NAME])) as source:
        with pytest.raises(TooLarge):
            await world.publish(NAME, {"x": "x" * EVENT_BYTES_MAX}, id="ev-1")
        assert list(await source.receive(room=1, wait_s=SILENCE_S)) == []


async def test_a_payload_that_json_cannot_say_is_refused(world):
    with pytest.raises(ValueError, match="not finite"):
        await world.publish(NAME, {"x": [float("nan")]}, id="ev-1")
    with pytest.raises(TypeError):
        await world.publish(NAME, {"x": object()}, id="ev-1")


async def test_an_event_at_the_limit_arrives(world):
    payload = {"x": "x" * (EVENT_BYTES_MAX - len('{"x":""}'))}
    async with opened(world.open("monitor", [NAME])) as source:
        await world.publish(NAME, payload, id="ev-1")
        (delivery,) = await deliveries_of(source, 1)
    assert delivery.content.payload == payload


@pytest.mark.parametrize("name", ["", "a..b", "a b", "a.*", "a.>", ".a"])
async def test_a_name_that_is_no_dotted_name_is_refused(world, name):
    with pytest.raises(BadName):
        await world.publish(name, {}, id="ev-1")
    with pytest.raises(BadName):
        await world.open("monitor", [name])


async def test_an_actor_gets_the_events_it_names_and_no_others(world):
    async with opened(world.open("monitor", ["a.b", "c"])) as source:
        for name in ("a.b", "a.b.c", "a", "c", "d"):
            await world.publish(name, {}, id=name)
        assert event_ids(await deliveries_of(source, 2)) == ["a.b", "c"]
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_an_actor_that_names_nothing_gets_nothing(world):
    async with opened(world.open("monitor", [])) as source:
        await world.publish(NAME, {}, id="ev-1")
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_every_actor_gets_its_own_copy(world):
    async with (
        opened(world.open("one", [NAME])) as one,
        opened(world.open("other", [NAME])) as other,
    ):
        await world.publish(NAME, {}, id="ev-1")
        for source in (one, other):
            (delivery,) = await deliveries_of(source, 1)
            await delivery.ack()
            assert delivery.content.id == "ev-1"


async def test_the_gates_of_one_actor_share_its_events(world):
    async with (
        opened(world.open("monitor", [NAME])) as one,
        opened(world.open("monitor", [NAME])) as other,
    ):
        for n in range(5):
            await world.publish(NAME, {}, id=f"ev-{n}")
        taken = event_ids(await deliveries_of(one, 2))
        left = event_ids(await deliveries_of(other, 3))
    assert taken + left == ["ev-0", "ev-1", "ev-2", "ev-3", "ev-4"]


async def test_a_new_actor_starts_with_what_is_published_from_then_on(world):
    await world.publish(NAME, {}, id="before")
    async with opened(world.open("monitor", [NAME])) as source:
        await world.publish(NAME, {}, id="after")
        assert event_ids(await deliveries_of(source, 1)) == ["after"]


async def test_an_actor_continues_where_its_nodes_left_off(world):
    async with opened(world.open("monitor", [NAME])) as source:
        await world.publish(NAME, {}, id="seen")
        (delivery,) = await deliveries_of(source, 1)
        await delivery.ack()
    await world.publish(NAME, {}, id="missed")
    async with opened(world.open("monitor", [NAME])) as source:
        assert event_ids(await deliveries_of(source, 1)) == ["missed"]


async def test_an_actor_may_name_more_events_later(world):
    async with opened(world.open("monitor", ["a"])):
        pass
    async with opened(world.open("monitor", ["a", "b"])) as source:
        await world.publish("a", {}, id="1")
        await world.publish("b", {}, id="2")
        assert event_ids(await deliveries_of(source, 2)) == ["1", "2"]


async def test_an_actor_that_names_fewer_events_still_shares_those_that_others_named(world):
    """Nodes of two versions: none takes from the other what only the other watches."""
    async with opened(world.open("monitor", ["a", "b"])), opened(world.open("monitor", ["c"])):
        pass
    async with opened(world.open("monitor", ["b"])) as source:
        for number, name in enumerate("abcd"):
            await world.publish(name, {}, id=str(number))
        assert event_ids(await deliveries_of(source, 3)) == ["0", "1", "2"]
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_an_actor_that_names_nothing_any_more_takes_nothing_from_others(world):
    async with (
        opened(world.open("monitor", [NAME])) as source,
        opened(world.open("monitor", [])) as silent,
    ):
        await world.publish(NAME, {}, id="ev-1")
        assert list(await silent.receive(room=10, wait_s=SILENCE_S)) == []
        assert event_ids(await deliveries_of(source, 1)) == ["ev-1"]


async def test_what_no_version_watches_any_more_is_shared_no_more(world):
    async with opened(world.open("monitor", ["a", "b", "c"])) as source:
        await world.unwatch("monitor", ["a", "c", "never"])
        for number, name in enumerate("abc"):
            await world.publish(name, {}, id=str(number))
        assert await world.watched("monitor") == {"b"}
        assert event_ids(await deliveries_of(source, 1)) == ["1"]
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_an_actor_that_watches_nothing_any_more_has_no_queue(world):
    async with opened(world.open("monitor", ["a"])):
        pass
    await world.unwatch("monitor", ["a"])
    await world.publish("b", {}, id="before")
    assert await world.watched("monitor") == frozenset()
    async with opened(world.open("monitor", ["b"])) as source:
        await world.publish("b", {}, id="after")
        assert event_ids(await deliveries_of(source, 1)) == ["after"]


async def test_of_an_actor_that_was_never_opened_nothing_is_watched(world):
    await world.unwatch("monitor", ["a"])
    assert await world.watched("monitor") == frozenset()


async def test_an_event_handed_back_comes_again(world):
    async with opened(world.open("monitor", [NAME])) as source:
        await world.publish(NAME, {}, id="ev-1")
        (delivery,) = await deliveries_of(source, 1)
        await delivery.nak()
        (again,) = await deliveries_of(source, 1)
    assert (again.content.id, again.deliveries) == ("ev-1", 2)


async def test_a_foreign_event_is_named_by_its_message_id(received):
    content = await received(b'{"a": 1}', {"Nats-Msg-Id": "m-1", "ce-id": "c-1"})
    assert isinstance(content, DomainEvent)
    assert (content.id, content.payload) == ("m-1", {"a": 1})


async def test_a_foreign_event_is_named_by_its_cloud_event_id(received):
    content = await received(b"{}", {"ce-id": "c-1"})
    assert content.id == "c-1"


async def test_a_cloud_event_says_what_it_is(received):
    said = {"type": "order.placed", "source": "/shop", "subject": "o" * 512}
    headers = {f"ce-{name}": value for name, value in said.items()}
    content = await received(b"{}", {**headers, "ce-id": "c-1", "ce-time": ""})
    assert content.cloud == CloudEvent(**said)


async def test_what_a_cloud_event_says_at_length_is_cut(received):
    content = await received(b"{}", {"ce-subject": "o" * 513})
    assert content.cloud == CloudEvent(subject="o" * 512)


async def test_another_event_says_nothing_of_the_kind(received):
    content = await received(b"{}", {"ce-id": "c-1", "other": "x"})
    assert (content.cloud, content.stream) == (None, "")


async def test_a_foreign_event_without_an_id_is_named_by_its_place(received, stack):
    content = await received(b"{}", {})
    assert content.id == f"{stack.stream(Stream.EVENTS)}:{content.seq}"


@pytest.mark.parametrize(
    ("data", "headers", "reason"),
    [
        (b"", {}, "unreadable"),
        (b"what?", {}, "unreadable"),
        (b'{"a": "\xff"}', {}, "unreadable"),
        (b'{"a":' * 20_000, {}, "unreadable"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, {}, "unreadable"),
        (b"[1]", {}, "not_an_object"),
        (b"null", {}, "not_an_object"),
        (b'{"x":"' + b"x" * EVENT_BYTES_MAX + b'"}', {}, "too_large"),
        (b"{}", {"ce-id": "x" * 513}, "unreadable"),
        (b"{}", {"Vigil-Hops": "-1"}, "unreadable"),
        (b"{}", {"Vigil-Hops": "many"}, "unreadable"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_what_is_no_event_arrives_as_it_came(received, stack, data, headers, reason):
    content = await received(data, headers)
    assert isinstance(content, Unreadable)
    assert (content.reason, content.data, content.subject) == (reason, data, stack.event(NAME))
    assert (content.stream, content.seq) == (stack.stream(Stream.EVENTS), 1)
    assert headers.items() <= content.headers.items()


async def test_what_is_no_event_holds_up_no_other(world, stack, publish_raw):
    async with opened(world.open("monitor", [NAME])) as source:
        await publish_raw(stack.event(NAME), b"what?", {})
        await world.publish(NAME, {}, id="ev-1")
        unreadable, readable = await deliveries_of(source, 2)
    assert isinstance(unreadable.content, Unreadable)
    assert readable.content.id == "ev-1"


async def test_an_event_published_again_is_the_same_event(world, stack, publish_raw):
    headers = {"ce-id": "c-1", "Vigil-Hops": "2", "traceparent": "00-aa-bb-01"}
    async with opened(world.open("monitor", [NAME])) as source:
        await publish_raw(stack.event(NAME), b'{"a": 1}', headers)
        seq = await world.republish(1, id="again")
        first, second = await deliveries_of(source, 2)
    assert second.content == msgspec.structs.replace(first.content, seq=seq, at=second.content.at)
    assert (second.content.id, second.trace) == ("c-1", "00-aa-bb-01")


async def test_an_event_published_again_and_again_is_still_the_same_event(world):
    async with opened(world.open("monitor", [NAME])) as source:
        first = await world.publish(NAME, {}, id="ev-1")
        second = await world.republish(first, id="again")
        third = await world.republish(second, id="and again")
        deliveries = await deliveries_of(source, 3)
    assert event_ids(deliveries) == ["ev-1", "ev-1", "ev-1"]
    assert first < second < third


async def test_an_event_is_published_again_once_per_id(world):
    await world.publish(NAME, {}, id="ev-1")
    assert await world.republish(1, id="again") == await world.republish(1, id="again") == 2


async def test_a_foreign_event_without_an_id_keeps_its_first_place_as_its_name(
    world, stack, publish_raw
):
    async with opened(world.open("monitor", [NAME])) as source:
        await publish_raw(stack.event(NAME), b"{}", {})
        await world.republish(1, id="again")
        first, second = await deliveries_of(source, 2)
    assert second.content.id == first.content.id


async def test_what_is_no_event_is_published_again_as_it_came(world, stack, publish_raw):
    async with opened(world.open("monitor", [NAME])) as source:
        await publish_raw(stack.event(NAME), b"what?", {"ce-id": "c-1", "other": "kept"})
        await world.republish(1, id="again")
        _, again = await deliveries_of(source, 2)
    assert again.content.data == b"what?"
    assert again.content.headers["other"] == "kept"


async def test_an_id_that_was_too_long_is_not_taken_over(world, stack, publish_raw):
    async with opened(world.open("monitor", [NAME])) as source:
        await publish_raw(stack.event(NAME), b"{}", {"ce-id": "x" * 513})
        await world.republish(1, id="again")
        _, again = await deliveries_of(source, 2)
    assert again.content.id == "again"


async def test_what_the_stream_does_not_hold_cannot_be_published_again(world):
    assert await world.republish(7, id="again") is None
