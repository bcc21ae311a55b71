"""A signal for a branch whose turn has not come is kept until it comes, however long that is."""

from __future__ import annotations

import pytest

from engine.errors import Refused
from engine.waits.requests import resolve
from engine.waits.signals import References, is_waiting
from streams.model.events import (
    EpisodeConverged,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
    SignalGiven,
    SignalWaited,
    StepKind,
    StepRecorded,
)
from streams.ports.log import Commit
from tests.engine.stage import CLOCK
from vigil import Actor, App, ConvergeResult, event
from vigil.testing import crash_everywhere, run

REF = "payment:42"
APPROVED = EpisodeResolved(step_no=1, resolution=Resolution.APPROVED, by="ann")


def app_of(function) -> App:
    actor = Actor("worker")
    actor.expect("thing", function, on=event("thing.happened"))
    return App(actors=[actor])


async def approval_first(ctx, trigger):
    answer, paid = await ctx.gather(ctx.approval({"deploy": 1}), ctx.wait(REF))
    return ConvergeResult(classification={"approved": bool(answer), "paid": paid})


async def sleep_first(ctx, trigger):
    _, paid = await ctx.gather(ctx.sleep(7_200), ctx.wait(REF))
    return ConvergeResult(classification={"paid": paid})


async def two_waits(ctx, trigger):
    first, second = await ctx.gather(ctx.wait("other"), ctx.wait(REF))
    return ConvergeResult(classification={"first": first, "second": second})


async def begun(vigil) -> str:
    await vigil.publish("thing.happened")
    await vigil.run_until_idle()
    return vigil.episode().id


async def waits_of(vigil, ref=REF):
    ports = vigil.ports
    records = await ports.log.read(ports.stack.signal(ref))
    return [each for record in records for each in record.commit.events]


async def test_a_signal_that_comes_while_the_episode_waits_for_people_is_kept():
    async with run(app_of(approval_first)) as vigil:
        await begun(vigil)
        await vigil.signal(REF, 7)
        await vigil.advance(hours=3)
        assert vigil.dead_letters() == []
        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.episode().classification == {"approved": True, "paid": 7}


async def test_of_several_for_one_branch_it_has_the_first_and_the_other_is_a_dead_letter():
    async with run(app_of(approval_first)) as vigil:
        await begun(vigil)
        await vigil.signal(REF, 7)
        await vigil.signal(REF, 8)
        await vigil.advance(hours=3)
        assert vigil.dead_letters() == [], "as long as a branch may still come to it"
        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.episode().classification["paid"] == 7
        await vigil.advance(hours=2)
        (letter,) = vigil.dead_letters()
        assert letter.reason == "nobody_waits"


async def two_of_one(ctx, trigger):
    _, *paid = await ctx.gather(ctx.approval({"deploy": 1}), ctx.wait(REF), ctx.wait(REF))
    return ConvergeResult(classification={"paid": paid})


async def one_after_another(ctx, trigger):
    async def both():
        return [await ctx.wait(REF), await ctx.wait(REF)]

    _, paid = await ctx.gather(ctx.sleep(7_200), both())
    return ConvergeResult(classification={"paid": paid})


async def test_each_of_several_branches_for_one_reference_has_one_of_several_signals():
    async with run(app_of(two_of_one)) as vigil:
        await begun(vigil)
        await vigil.signal(REF, 7)
        await vigil.signal(REF, 8)
        await vigil.advance(hours=3)
        await vigil.approve()
        await vigil.advance(hours=2)
        assert vigil.episode().classification == {"paid": [7, 8]}
        assert vigil.dead_letters() == []


async def test_a_branch_that_waits_again_and_again_has_all_that_came_before_its_turn():
    async with run(app_of(one_after_another)) as vigil:
        await begun(vigil)
        await vigil.signal(REF, 7)
        await vigil.signal(REF, 8)
        await vigil.advance(hours=4)
        assert vigil.episode().classification == {"paid": [7, 8]}
        assert vigil.dead_letters() == []


def app_of_both() -> App:
    """Return one in which a thing waits for people first, and an errand for the signal alone."""

    async def alone(ctx, trigger):
        return ConvergeResult(classification={"got": await ctx.wait(REF)})

    actor = Actor("worker")
    actor.expect("thing", approval_first, on=event("thing.happened"))
    actor.expect("errand", alone, on=event("errand.began"))
    return App(actors=[actor])


async def begun_errand(vigil) -> str:
    await vigil.publish("errand.began")
    await vigil.run_until_idle()
    return vigil.episode(expectation="errand").id


async def test_what_was_kept_for_an_episode_that_was_canceled_is_for_the_next_that_waits():
    async with run(app_of_both()) as vigil:
        await vigil.publish("thing.happened")
        await vigil.run_until_idle()
        (thing,) = vigil.episodes()
        await vigil.signal(REF, 7)
        await vigil.run_until_idle()
        await vigil.cancel(thing.id)
        await vigil.advance(seconds=60)
        errand = await begun_errand(vigil)
        assert vigil.episode(errand).classification == {"got": 7}
        await vigil.advance(hours=3)
        assert vigil.dead_letters() == []


async def test_what_is_kept_for_an_episode_is_for_no_other_that_comes_later():
    async with run(app_of_both()) as vigil:
        await vigil.publish("thing.happened")
        await vigil.run_until_idle()
        (thing,) = vigil.episodes()
        await vigil.signal(REF, 7)
        await vigil.advance(seconds=60)
        errand = await begun_errand(vigil)
        assert vigil.episode(errand).status == "blocked"
        await vigil.approve(thing.id)
        await vigil.run_until_idle()
        assert vigil.episode(thing.id).classification["paid"] == 7
        assert vigil.episode(errand).status == "blocked"


async def test_what_was_kept_for_an_episode_that_was_canceled_is_a_dead_letter_if_nobody_waits():
    async with run(app_of(approval_first)) as vigil:
        id_ = await begun(vigil)
        await vigil.signal(REF, 7)
        await vigil.advance(hours=5)
        assert vigil.dead_letters() == []
        await vigil.cancel(id_)
        await vigil.advance(hours=2)
        (letter,) = vigil.dead_letters()
        assert letter.reason == "nobody_waits"


async def test_one_that_comes_while_it_sleeps_is_kept():
    async with run(app_of(sleep_first)) as vigil:
        await begun(vigil)
        await vigil.signal(REF, 7)
        await vigil.advance(seconds=7_300)
        assert vigil.episode().classification == {"paid": 7}


async def test_one_that_came_before_is_no_dead_letter_though_its_turn_comes_much_later():
    async with run(app_of(two_waits)) as vigil:
        await vigil.signal(REF, 7)
        await begun(vigil)
        await vigil.advance(hours=3)
        assert vigil.dead_letters() == []
        await vigil.signal("other", 1)
        await vigil.run_until_idle()
        assert vigil.episode().classification == {"first": 1, "second": 7}


async def test_the_episode_is_on_the_journal_of_every_reference_that_it_will_wait_for():
    async with run(app_of(approval_first)) as vigil:
        id_ = await begun(vigil)
        (waited,) = await waits_of(vigil)
        assert isinstance(waited, SignalWaited)
        assert (waited.episode_id, waited.step_no, waited.is_ahead) == (id_, 1, True)
        await vigil.approve()
        await vigil.run_until_idle()
        _, waits = await waits_of(vigil)
        assert (waits.step_no, waits.is_ahead) == (2, False)


async def test_who_waits_only_later_is_not_sent_it_before():
    async with run(app_of(approval_first)) as vigil:
        id_ = await begun(vigil)
        await vigil.signal(REF, 7)
        await vigil.run_until_idle()
        given = (await waits_of(vigil))[-1]
        assert isinstance(given, SignalGiven)
        assert (given.episodes, given.ahead) == ((), (id_,))
        assert vigil.episode().status == "blocked"


async def test_a_signal_for_an_episode_that_has_ended_is_a_dead_letter():
    async with run(app_of(approval_first)) as vigil:
        await vigil.cancel(await begun(vigil))
        await vigil.run_until_idle()
        await vigil.signal(REF, 7)
        await vigil.advance(hours=2)
        (letter,) = vigil.dead_letters()
        assert letter.reason == "nobody_waits"


async def then_both(ctx, trigger):
    """Ask people first, and only then wait for a signal beside asking them again."""
    await ctx.approval({"first": 1})
    _, paid = await ctx.gather(ctx.approval({"second": 2}), ctx.wait(REF))
    return ConvergeResult(classification={"paid": paid})


async def test_nobody_waits_ahead_for_what_no_branch_has_asked_for():
    async with run(app_of(then_both)) as vigil:
        await begun(vigil)
        assert await waits_of(vigil) == []
        await vigil.approve()
        await vigil.run_until_idle()
        assert len(await waits_of(vigil)) == 1


async def test_programs_may_resolve_what_an_episode_will_wait_for():
    async with run(app_of(approval_first)) as vigil:
        id_ = await begun(vigil)
        with pytest.raises(Refused, match="does not wait"):
            await resolve(vigil.ports, REF, 7, by="bank", episode_id=id_)
        await resolve(vigil.ports, REF, 7, by="bank")
        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.episode().classification["paid"] == 7


async def test_a_crash_at_any_moment_loses_no_such_signal():
    async def story(vigil):
        await vigil.publish("thing.happened")
        await vigil.run_until_idle()
        await vigil.signal(REF, 7)
        await vigil.deliver_again()
        await vigil.advance(hours=3)
        await vigil.approve()
        await vigil.run_until_idle()

    await crash_everywhere(lambda: run(app_of(approval_first)), story)


async def test_while_the_episode_is_at_work_it_is_still_to_have_what_it_will_wait_for():
    async with run(app_of(approval_first)) as vigil:
        id_ = await begun(vigil)
        ports = vigil.ports
        (waited,) = await waits_of(vigil)
        subject = ports.stack.episode(id_)
        for events, expected in (
            (
                (
                    StepRecorded(step_no=1, kind=StepKind.APPROVAL, fingerprint="f", path="1"),
                    APPROVED,
                ),
                True,
            ),
            ((EpisodeStarted(node="n2", attempt=2),), True),
            ((EpisodeConverged(),), False),
        ):
            last = await ports.log.last(subject)
            assert last is not None
            commit = Commit(id=f"by-hand-{last.seq}", at=vigil.now, events=events)
            await ports.log.append(subject, commit, after=last.seq)
            assert await is_waiting(ports, waited) is expected, events


async def test_it_can_be_seen_whether_a_wait_ahead_is_written_down():
    async with run(app_of(approval_first)) as vigil:
        id_ = await begun(vigil)
        references = References(vigil.ports, CLOCK)
        assert await references.is_ahead(REF, id_, 1)
        assert not await references.is_seen_to(REF, id_, 2)
        assert not await references.is_ahead("other", id_, 1)


async def three_waits(ctx, trigger):
    seen = await ctx.gather(ctx.wait("other"), ctx.wait(REF), ctx.wait("third"))
    return ConvergeResult(classification={"seen": seen})


async def test_each_of_several_that_it_will_wait_for_is_a_commit_of_its_own():
    async with run(app_of(three_waits)) as vigil:
        await begun(vigil)
        log, stack = vigil.ports.log, vigil.ports.stack
        read = [await log.read(stack.signal(each)) for each in ("other", REF, "third")]
        assert len({record.commit.id for records in read for record in records}) == 3


async def test_of_several_that_it_will_wait_for_none_is_lost():
    async with run(app_of(three_waits)) as vigil:
        await begun(vigil)
        for ref in ("third", REF):
            await vigil.signal(ref, ref)
        await vigil.advance(hours=3)
        await vigil.signal("other", "other")
        await vigil.run_until_idle()
        assert vigil.episode().classification == {"seen": ["other", REF, "third"]}
