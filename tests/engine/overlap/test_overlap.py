"""What a cause does while an episode of its subject is open, also one that waits for people."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from engine.episodes.fork import fork
from engine.episodes.open import open_episode
from engine.episodes.overlap.hold import SubjectHeld
from engine.episodes.overlap.store import UNOPENED_S, Holds
from engine.errors import Refused
from engine.triggers.rules import Gated
from streams.clock import SystemClock
from streams.errors import Unavailable
from streams.memory import memory_ports
from streams.model.commands import Start
from streams.ports.domain_events import DomainEvent
from tests.engine.crew import crew_of, evaluator_of
from tests.engine.reactor import journals as given
from tests.moments import STRIDE
from tests.spec import EPOCH
from vigil import Actor, App, ConvergeResult, event, every, manual
from vigil.testing import crash_everywhere, run

OVERLAPS = ("skip", "buffer_one", "cancel_other")


async def asks(ctx, trigger):
    approved = await ctx.approval({"restart": trigger.payload.get("host", "")})
    return ConvergeResult(summary="approved" if approved else "not approved")


def app_of(overlap, *, strategy=asks, **lane) -> App:
    actor = Actor("worker", **lane)
    actor.expect(
        "thing",
        strategy,
        on=[event("thing.happened"), manual()],
        subject_key="host",
        overlap=overlap,
    )
    return App(actors=[actor])


LANES = pytest.mark.parametrize("lane", [{}, {"max_concurrent_cluster": 2}], ids=["free", "lane"])


async def happens(vigil, number, *, host="web-1") -> None:
    await vigil.publish("thing.happened", {"host": host, "n": number}, id=f"x{number}")
    await vigil.run_until_idle()


def seen(vigil) -> list[tuple[int, str]]:
    """Return the number of the event of each episode, and how it is, in the order of events."""
    return sorted((each.payload["n"], each.status) for each in vigil.episodes())


async def approve(vigil) -> None:
    await vigil.approve(by="ann")
    await vigil.run_until_idle()


@LANES
async def test_with_allow_every_event_opens_an_episode(lane):
    async with run(app_of("allow", **lane)) as vigil:
        for number in range(3):
            await happens(vigil, number)
        assert seen(vigil) == [(0, "blocked"), (1, "blocked"), (2, "blocked")]


@LANES
async def test_with_skip_events_are_refused_while_an_episode_waits(lane):
    async with run(app_of("skip", **lane)) as vigil:
        for number in range(3):
            await happens(vigil, number)
        assert seen(vigil) == [(0, "blocked")]
        await approve(vigil)
        await happens(vigil, 3)
        assert seen(vigil) == [(0, "done"), (3, "blocked")]


@LANES
async def test_with_buffer_one_the_first_of_them_starts_after_the_end(lane):
    async with run(app_of("buffer_one", **lane)) as vigil:
        for number in range(4):
            await happens(vigil, number)
        assert seen(vigil) == [(0, "blocked"), (1, "queued")]
        await approve(vigil)
        assert seen(vigil) == [(0, "done"), (1, "blocked")]
        await happens(vigil, 4)
        assert seen(vigil) == [(0, "done"), (1, "blocked"), (4, "queued")]


@LANES
async def test_with_cancel_other_the_newest_one_wins(lane):
    async with run(app_of("cancel_other", **lane)) as vigil:
        for number in range(3):
            await happens(vigil, number)
        assert seen(vigil) == [(0, "canceled"), (1, "canceled"), (2, "blocked")]
        await approve(vigil)
        assert seen(vigil)[-1] == (2, "done")


@pytest.mark.parametrize("overlap", OVERLAPS)
async def test_other_subjects_do_not_matter(overlap):
    async with run(app_of(overlap)) as vigil:
        await happens(vigil, 0)
        await happens(vigil, 1, host="web-2")
        assert seen(vigil) == [(0, "blocked"), (1, "blocked")]


@pytest.mark.parametrize("overlap", OVERLAPS)
async def test_an_event_that_comes_twice_is_one_cause(overlap):
    async with run(app_of(overlap)) as vigil:
        await happens(vigil, 0)
        await happens(vigil, 0)
        assert seen(vigil) == [(0, "blocked")]


async def test_a_buffered_episode_that_is_canceled_gives_its_place_to_the_next():
    async with run(app_of("buffer_one")) as vigil:
        for number in range(2):
            await happens(vigil, number)
        (buffered,) = [each.id for each in vigil.episodes() if each.status == "queued"]
        await vigil.cancel(buffered)
        await happens(vigil, 2)
        await approve(vigil)
        assert seen(vigil) == [(0, "done"), (1, "canceled"), (2, "blocked")]


async def test_what_a_person_fires_says_which_episode_holds_the_subject():
    async with run(app_of("skip")) as vigil:
        await happens(vigil, 0)
        (holder,) = vigil.episodes()
        fired = await vigil.fire("worker", "thing", {"host": "web-1", "n": 1})
        await vigil.run_until_idle()
        refused = vigil.episode(fired)
        assert (refused.status, refused.error_class) == ("canceled", "overlap")
        assert refused.error_detail == f"episode {holder.id} holds host 'web-1' until it ends"


async def test_a_dry_run_neither_holds_nor_is_refused():
    async with run(app_of("skip")) as vigil:
        await happens(vigil, 0)
        dry = await vigil.fire("worker", "thing", {"host": "web-1", "n": 1}, dry_run=True)
        await vigil.run_until_idle()
        assert vigil.episode(dry).status == "done"


async def ticks(ctx, trigger):
    if await ctx.approval({"restart": "web"}):
        return ConvergeResult(summary="restarted")
    return ConvergeResult(summary="nothing")


async def test_a_schedule_opens_nothing_while_its_episode_waits():
    actor = Actor("worker")
    actor.expect("thing", ticks, on=every("1m"), overlap="skip")
    async with run(App(actors=[actor])) as vigil:
        await vigil.advance(minutes=10)
        (holder,) = vigil.episodes()
        await approve(vigil)
        assert vigil.episode(holder.id).summary == "restarted"


@pytest.mark.parametrize("overlap", OVERLAPS)
@LANES
async def test_a_crash_at_any_moment_changes_nothing(overlap, lane):
    async def story(vigil):
        for number in range(3):
            await happens(vigil, number)
        await vigil.advance(minutes=1)
        open_ = [n for n, status in seen(vigil) if status == "blocked"]
        assert open_ == ([2] if overlap == "cancel_other" else [0])
        await approve(vigil)
        await vigil.advance(minutes=5)
        ended = {
            "skip": [(0, "done")],
            "buffer_one": [(0, "done"), (1, "blocked")],
            "cancel_other": [(0, "canceled"), (1, "canceled"), (2, "done")],
        }
        assert seen(vigil) == ended[overlap]

    await crash_everywhere(lambda: run(app_of(overlap, **lane)), story, every=STRIDE)


async def test_a_fork_is_refused_while_another_episode_holds_its_subject():
    async with run(app_of("skip")) as vigil:
        await happens(vigil, 0)
        (holder,) = vigil.episodes()
        with pytest.raises(Refused, match=f"episode {holder.id} holds host 'web-1'"):
            await fork(vigil.ports, holder.id, at=0, by="ann")
        await approve(vigil)
        again = await fork(vigil.ports, holder.id, at=0, by="ann")
        await vigil.run_until_idle()
        assert vigil.episode(again).status == "blocked"
        await happens(vigil, 1)
        assert len(vigil.episodes()) == 2


async def test_no_other_call_starts_an_episode_that_waits_for_the_end_of_another():
    async with run(app_of("buffer_one")) as vigil:
        for number in range(2):
            await happens(vigil, number)
        (buffered,) = [each.id for each in vigil.episodes() if each.status == "queued"]
        start = Start(actor_id="worker", episode_id=buffered)
        await vigil.ports.commands.send(start, id="swept")
        await vigil.run_until_idle()
        assert seen(vigil) == [(0, "blocked"), (1, "queued")]


def opening_of(number):
    opened = given.OPENED
    trigger = replace(opened.trigger, entity_id="web-1", payload={"host": "web-1", "n": number})
    return replace(
        opened,
        episode_id=f"e{number}",
        actor_id="worker",
        expectation_id="thing",
        subject_kind="host",
        trigger=trigger,
        holds_subject=True,
    )


class Overtaken:
    """Gates in which another node takes the subject right after it was looked up once."""

    def __init__(self, gates, other):
        self._gates, self._other = gates, other

    def __getattr__(self, name):
        return getattr(self._gates, name)

    async def get(self, key):
        entry = await self._gates.get(key)
        other, self._other = self._other, None
        if other is not None:
            await other()
        return entry


async def test_of_two_nodes_that_take_a_subject_at_once_one_does():
    async with run(app_of("skip")) as vigil:
        first, second = opening_of(1), opening_of(2)
        found = []

        async def other():
            found.append(await Holds(vigil.ports, SystemClock()).take(first, "skip"))

        ports = dataclasses.replace(vigil.ports, gates=Overtaken(vigil.ports.gates, other))
        assert await Holds(ports, SystemClock()).take(second, "skip") == SubjectHeld("e1")
        assert found == [first]


@LANES
async def test_one_that_is_kept_starts_if_the_one_before_it_is_never_opened(lane):
    async with run(app_of("buffer_one", **lane)) as vigil:
        holds = Holds(vigil.ports, SystemClock())
        await holds.take(opening_of(1), "buffer_one")
        kept = await holds.take(opening_of(2), "buffer_one")
        assert kept.held_by == "e1"
        kept = replace(kept, in_lane=bool(lane))
        await open_episode(vigil.ports, kept, at=datetime.now(UTC), trace="")
        await vigil.run_until_idle()
        assert vigil.episode("e2").status == "queued"
        await vigil.advance(seconds=2 * UNOPENED_S)
        assert vigil.episode("e2").status == "blocked"
        assert vigil.episode("e1").error_class == "overlap"


async def test_a_node_that_stood_still_once_the_subject_was_held_leaves_the_event_to_others():
    app, ports = app_of("buffer_one"), memory_ports(clock=SystemClock())
    evaluator = evaluator_of(crew_of(app, ports))
    first = await evaluator.evaluate(part_of(app, 1))
    await open_episode(ports, first, at=EPOCH, trace="")
    second = await evaluator.builder.of(
        app.actors["worker"].expectations["thing"], first.trigger, "event:x2"
    )
    looks = iter([False, True])
    with pytest.raises(Unavailable, match="it came so late"):
        await evaluator.evaluate(part_of(app, 2), is_late=lambda: next(looks))
    assert not await evaluator.builder.is_open(second)


def part_of(app, number):
    happened = DomainEvent(
        id=f"x{number}", name="thing.happened", payload={"host": "web-1"}, seq=number, at=EPOCH
    )
    return Gated(expectation=app.actors["worker"].expectations["thing"], event=happened)


async def test_what_there_is_no_room_for_gives_its_subject_back():
    async with run(app_of("skip")) as vigil:
        holds = Holds(vigil.ports, SystemClock())
        dropped, opened = opening_of(1), opening_of(2)
        await holds.take(dropped, "skip")
        await holds.give_back(dropped)
        assert await holds.take(opened, "skip") == opened
        await open_episode(vigil.ports, opened, at=datetime.now(UTC), trace="")
        await holds.give_back(opened)
        assert await holds.take(opening_of(3), "skip") == SubjectHeld("e2"), (
            "another node opened it"
        )


async def test_a_cause_that_a_newer_one_has_displaced_does_not_come_back():
    """A second node has been delivered the event, and knows only that it has not begun."""
    async with run(app_of("cancel_other")) as vigil:
        for number in range(3):
            await happens(vigil, number)
        records = [each.id for each in vigil.episodes() if each.payload["n"] == 1]
        journal = await vigil.ports.log.read(vigil.ports.stack.episode(records[0]))
        displaced = replace(journal[0].commit.events[0], held_by="")
        holds = Holds(vigil.ports, SystemClock())
        assert await holds.take(displaced, "cancel_other") == displaced
        await vigil.run_until_idle()
        assert seen(vigil)[-1] == (2, "blocked")


async def test_a_cause_whose_episode_has_just_ended_displaces_nothing():
    """The key still names both: nobody has looked since the end."""
    async with run(app_of("cancel_other")) as vigil:
        holds = Holds(vigil.ports, SystemClock())
        first, second = opening_of(1), opening_of(2)
        await holds.take(first, "cancel_other")
        assert (await holds.take(second, "cancel_other")).held_by == "e1"
        assert await holds.take(first, "cancel_other") == first
        assert (await holds.look("worker", "thing", "web-1")).holder.episode_id == "e2"


async def test_a_node_that_was_frozen_cannot_open_what_another_cause_has_taken_the_subject_from():
    async with run(app_of("skip")) as vigil:
        holds = Holds(vigil.ports, SystemClock())
        late, next_ = opening_of(1), opening_of(2)
        assert await holds.take(late, "skip") == late
        assert await holds.take(next_, "skip") == SubjectHeld("e1"), "it may still be opened"
        assert await holds.take(late, "skip") == late, "its cause comes again"
        await vigil.advance(seconds=UNOPENED_S + 1)
        assert await holds.take(next_, "skip") == next_
        now = datetime.now(UTC)
        assert not await open_episode(vigil.ports, late, at=now, trace="")


@LANES
async def test_one_that_is_kept_starts_also_if_it_is_opened_after_the_end(lane):
    async with run(app_of("buffer_one", **lane)) as vigil:
        await happens(vigil, 0)
        (holder,) = vigil.episodes()
        kept = opening_of(1)
        kept = await Holds(vigil.ports, SystemClock()).take(kept, "buffer_one")
        assert kept.held_by == holder.id
        await approve(vigil)
        kept = replace(kept, in_lane=bool(lane))
        await open_episode(vigil.ports, kept, at=datetime.now(UTC), trace="")
        await vigil.run_until_idle()
        assert seen(vigil) == [(0, "done"), (1, "blocked")]
