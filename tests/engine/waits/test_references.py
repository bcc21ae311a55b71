"""A wait and a signal that come at the same time, or whose node dies in between."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import msgspec
import pytest

from engine.app.actions import wait
from engine.errors import Refused
from engine.waits.handle import WaitRegistry
from engine.waits.requests import resolve
from engine.waits.signal import RESOLVED, Signal
from engine.waits.signals import QUEUE, References
from streams.errors import Unavailable
from streams.json import raw
from streams.model.events import SignalGiven, SignalWaited
from tests.engine.crew import crew_of
from tests.engine.stage import (
    CLOCK,
    STARTED,
    Scripted,
    app_of,
    kept,
    lived,
    opening,
    running,
    write,
)
from tests.engine.waits.test_wait import for_payment

REF = "payment:42"
SAID = Signal(id="s1", ref=REF, by="bank", result=raw(7))


class Between:
    """A log on which something else happens right before the first append to a reference."""

    def __init__(self, log, act):
        self._log, self._act = log, act

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        if ".signal." in subject and self._act is not None:
            act, self._act = self._act, None
            await act()
        return await self._log.append(subject, commit, after=after)


class Cut:
    """Commands of which none can be sent, as if the node had died."""

    def __init__(self, commands):
        self._commands = commands

    def __getattr__(self, name):
        return getattr(self._commands, name)

    async def send(self, *_, **__):
        raise Unavailable("send", detail="the node is gone")


async def blocked_by_hand(ports, id_: str) -> SignalWaited:
    """Write down an episode that waits, and return the wait, which no reference has yet."""
    opened = opening(app_of(Scripted(wait(REF))), id_=id_)
    await write(ports, opened.episode_id, opened, STARTED, kept(), for_payment())
    return SignalWaited(
        ref=REF,
        actor_id="worker",
        episode_id=opened.episode_id,
        step_no=1,
        since=CLOCK.now(),
    )


def with_log(ports, act):
    return dataclasses.replace(ports, log=Between(ports.log, act))


async def events(ports) -> list[object]:
    records = await ports.log.read(ports.stack.signal(REF))
    return [event for record in records for event in record.commit.events]


def sent(ports) -> list[str]:
    """Return the episodes that were sent a signal, once for each command."""
    stored = ports.log._streams["vigil-work"].past(0)
    messages = [each for each in stored if ".inbox." in each.subject]
    return [each.subject.rpartition(".")[2] for each in messages]


async def test_of_a_wait_and_a_signal_at_once_whichever_comes_second_sees_the_other(ports):
    first, second = [await blocked_by_hand(ports, name) for name in "ab"]

    async def give():
        await References(ports, CLOCK).give(SAID, at=CLOCK.now())

    await References(with_log(ports, give), CLOCK).wait(first)
    kinds = [type(each) for each in await events(ports)]
    assert kinds == [SignalGiven, SignalWaited]
    assert sent(ports) == [first.episode_id]

    async def wait_too():
        await References(ports, CLOCK).wait(second)

    other = Signal(id="s2", ref=REF, by="bank")
    await References(with_log(ports, wait_too), CLOCK).give(other, at=CLOCK.now())
    given = (await events(ports))[-1]
    assert given.episodes == (first.episode_id, second.episode_id)


async def test_a_node_that_dies_before_it_sends_the_signal_leaves_that_to_the_next(ports):
    waited = await blocked_by_hand(ports, "a")
    await References(ports, CLOCK).wait(waited)
    at = CLOCK.now()
    dying = dataclasses.replace(ports, commands=Cut(ports.commands))
    with pytest.raises(Unavailable):
        await References(dying, CLOCK).give(SAID, at=at)
    assert sent(ports) == []
    for _ in range(2):
        await References(ports, CLOCK).give(SAID, at=at)
    assert len(await events(ports)) == 2
    assert sent(ports) == [waited.episode_id], "the command has an id of its own"


async def test_a_node_that_dies_before_it_sends_what_its_episode_takes_leaves_it_too(ports):
    waited = await blocked_by_hand(ports, "a")
    await References(ports, CLOCK).give(SAID, at=CLOCK.now())
    dying = dataclasses.replace(ports, commands=Cut(ports.commands))
    with pytest.raises(Unavailable):
        await References(dying, CLOCK).wait(waited)
    for _ in range(2):
        await References(ports, CLOCK).wait(waited)
    assert len(await events(ports)) == 2
    assert sent(ports) == [waited.episode_id]


async def test_a_signal_for_others_is_for_an_episode_too_whose_node_died_before_it_could_register(
    ports,
):
    app = app_of(Scripted(wait(REF)))
    found, late = [await blocked_by_hand(ports, name) for name in "ab"]
    await References(ports, CLOCK).wait(found)
    await (await ports.domain_events.open(QUEUE, [RESOLVED])).close()
    async with running(app, ports):
        await ports.domain_events.publish(
            RESOLVED, {"ref": REF, "result": 7, "by": "bank"}, id="w1"
        )
        assert (await lived(ports, found.episode_id)).seen == [7]
        await WaitRegistry(crew_of(app, ports)).register(opening(app, id_="b"))
        assert (await lived(ports, late.episode_id)).seen == [7]


async def test_what_a_person_says_is_not_kept_if_nobody_waits_any_more(ports):
    await References(ports, CLOCK).give(SAID, at=None)
    assert await events(ports) == []


async def test_what_a_person_says_is_for_nobody_who_begins_to_wait_after_that(ports):
    first, later = [await blocked_by_hand(ports, name) for name in "ab"]
    await References(ports, CLOCK).wait(first)
    await resolve(ports, REF, by="ada")
    later = msgspec.structs.replace(later, since=first.since + timedelta(seconds=60))
    await References(ports, CLOCK).wait(later)
    assert sent(ports) == [first.episode_id]


async def test_a_person_resolves_for_all_or_for_one(ports):
    waits = [await blocked_by_hand(ports, name) for name in "abc"]
    for each in waits:
        await References(ports, CLOCK).wait(each)
    one, *others = [each.episode_id for each in waits]
    await resolve(ports, REF, by="ada", episode_id=one)
    assert sent(ports) == [one]
    assert [each for each in await events(ports) if isinstance(each, SignalGiven)] == []
    await resolve(ports, REF, by="ada")
    assert sorted(sent(ports)[1:]) == sorted([one, *others])
    assert [type(each) for each in await events(ports)][-1] is SignalGiven


async def test_a_person_is_told_that_nobody_waits_if_the_only_wait_has_its_answer_due(ports):
    await References(ports, CLOCK).wait(await blocked_by_hand(ports, "a"))
    await resolve(ports, REF, by="ada")
    with pytest.raises(Refused, match="no episode waits"):
        await resolve(ports, REF, by="bob")


async def test_of_two_people_at_once_the_second_is_told_that_nobody_waits_any_more(ports):
    await References(ports, CLOCK).wait(await blocked_by_hand(ports, "a"))

    async def resolve_first():
        await resolve(ports, REF, by="ada")

    with pytest.raises(Refused, match="no episode waits"):
        await resolve(with_log(ports, resolve_first), REF, by="bob")
