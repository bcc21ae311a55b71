"""What the lease of a node stands for, until that has a claim of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from engine.runtime.claim import NO_CLAIM, Busy, EpisodeClaim
from engine.runtime.leases import Keeper, LeaseEvents
from engine.runtime.node_lease import GROWN_S, NodeLease
from streams.errors import LeaseLost, Unavailable, VersionConflict
from streams.keys import node_claim
from streams.memory.fake_leases import FakeLeases
from tests.simulation.time import SimClock, simulate

KEY = "episode.worker.e1"
TTL_S = 30.0


class Desk:
    """A node in simulated time, its leases, and work that it covers."""

    def __init__(self, *, ttl_s: float = TTL_S) -> None:
        self.clock, self.freed = SimClock(), LeaseEvents()
        self.leases = FakeLeases(self.clock, ttl_s=ttl_s)
        self.keeper = Keeper(self.leases, holder="n1", clock=self.clock, freed=self.freed)
        self.lease = NodeLease(self.keeper, "n1")
        self.lost: list[str] = []

    def claim(self, key: str = KEY, **options: object) -> EpisodeClaim:
        return EpisodeClaim(
            self.keeper,
            key,
            attempt=1,
            on_lost=lambda: self.lost.append(key),
            node_lease=self.lease,
            **options,
        )

    @asynccontextmanager
    async def up(self, *, renews: bool = True):
        """Have the node renew its leases, and hear of those that end."""
        works = [self.lease.keep(), self._hear(), *([self.keeper.beat()] if renews else [])]
        tasks = [asyncio.create_task(each) for each in works]
        await self.clock.sleep(0.01)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self) -> None:
        async with self.leases.watch() as watch:
            while True:
                for change in await watch.receive(most=10, wait_s=1.0):
                    self.freed.handle(change)


def play(story, **options):
    """Play `story` at a new desk, in no time."""

    async def played():
        return await story(Desk(**options))

    return simulate(played())


def test_a_node_has_its_lease_while_it_is_up():
    async def story(desk):
        async with desk.up():
            await desk.clock.sleep(3 * TTL_S)
            assert desk.leases.claimed() == {node_claim("n1"): "n1"}

    play(story)


def test_what_is_over_soon_makes_no_claim():
    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            assert claim.cover()
            await desk.clock.sleep(GROWN_S / 2)
            await claim.give_up()
            await desk.clock.sleep(TTL_S)
            assert (claim.held, claim.stands) == (None, True)
            assert list(desk.leases.claimed()) == [node_claim("n1")]

    play(story)


def test_a_covered_start_says_which_claims_its_node_knew_of():
    async def story(desk):
        async with desk.up():
            before = await desk.leases.acquire("episode.worker.e0", holder="n2")
            await desk.clock.sleep(1.0)
            claim = desk.claim()
            claim.cover()
            assert claim.revision == before.revision

    play(story)


def test_what_lasts_gets_a_claim_of_its_own():
    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            await desk.clock.sleep(1.6 * GROWN_S)
            assert claim.held is not None
            assert KEY in desk.leases.claimed()
            await claim.give_up()
            assert KEY not in desk.leases.claimed()

    play(story)


def test_of_a_short_lease_a_third_is_long():
    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            await desk.clock.sleep(0.6)
            assert claim.held is not None

    play(story, ttl_s=1.0)


def test_without_a_lease_nothing_is_covered():
    async def story(desk):
        claim = desk.claim()
        assert not claim.cover()
        await desk.leases.acquire(node_claim("n1"), holder="n1")  # A process of that name has it.
        async with desk.up():
            assert not claim.cover()
            await desk.clock.sleep(TTL_S + GROWN_S)  # It has died.
            assert claim.cover()

    play(story)


def test_a_lease_that_cannot_be_trusted_covers_nothing():
    async def story(desk):
        async with desk.up(renews=False):
            await desk.clock.sleep(29.0)
            claim = desk.claim()
            assert claim.cover()
            claim.check()
            await desk.clock.sleep(0.7)
            assert desk.lost == [], "it has not noticed yet"
            with pytest.raises(LeaseLost):
                claim.check()
            assert not desk.claim().cover()
            await desk.clock.sleep(1.0)
            assert desk.lost == [KEY]

    play(story, ttl_s=29.5)


def test_what_a_lost_lease_covered_is_stopped_and_the_next_one_is_another():
    async def story(desk):
        async with desk.up():
            await desk.clock.sleep(TTL_S / 3 - 1.0)
            claim = desk.claim()
            claim.cover()
            desk.leases.set_busy(node_claim("n1"))
            await desk.clock.sleep(1.5)  # The next renewal is refused.
            assert (desk.lost, claim.is_lost) == ([KEY], True)
            with pytest.raises(LeaseLost):
                claim.check()
            desk.leases.lapse(node_claim("n1"))
            await desk.clock.sleep(GROWN_S)
            heir = desk.claim("episode.worker.e2")
            assert heir.cover()
            assert heir.covered_since > claim.covered_since

    play(story)


def test_what_was_left_gets_a_claim_that_lapses():
    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            claim.let_lapse()
            await desk.clock.sleep(GROWN_S)
            assert KEY in desk.leases.claimed()
            await desk.clock.sleep(TTL_S)
            (lapse,) = await desk.leases.reclaim_expired()
            assert (lapse.key, desk.lost) == (KEY, [])

    play(story)


def test_who_does_not_trust_its_cover_leaves_its_work_to_recovery():
    """The server may have renewed the lease all the same: then nobody else would see a lapse."""

    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            claim.note_lost(LeaseLost(KEY, revision=NO_CLAIM))
            claim.let_lapse()
            await desk.clock.sleep(GROWN_S)
            assert KEY in desk.leases.claimed()

    play(story)


def test_what_another_node_has_by_now_calls_nobody():
    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            claim.note_lost(VersionConflict("e1", expected=1))
            claim.let_lapse()
            await desk.clock.sleep(2 * GROWN_S)
            assert list(desk.leases.claimed()) == [node_claim("n1")]

    play(story)


class Away(FakeLeases):
    """Leases of a server that is away for a while when claims of episodes are made."""

    is_away = True

    async def acquire(self, key, *, holder, attempt=1):
        if self.is_away and key.startswith("episode."):
            raise Unavailable("acquire", detail="away")
        return await super().acquire(key, holder=holder, attempt=attempt)


def test_while_no_claim_can_be_made_the_node_goes_on_to_cover_it():
    async def story(desk):
        leases = Away(desk.clock, ttl_s=TTL_S)
        desk.leases = desk.keeper._leases = leases
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            await desk.clock.sleep(3 * GROWN_S)
            assert (claim.held, claim.is_lost) == (None, False)
            claim.check()
            leases.is_away = False
            await desk.clock.sleep(GROWN_S)
            assert claim.held is not None

    play(story)


class Slow(FakeLeases):
    """Leases of a server that takes its time to make a claim of an episode."""

    async def acquire(self, key, *, holder, attempt=1):
        lease = await super().acquire(key, holder=holder, attempt=attempt)
        if key.startswith("episode."):
            await self._clock.sleep(1.0)
        return lease


def test_a_claim_that_is_being_made_when_the_work_is_done_is_given_up():
    async def story(desk):
        desk.leases = desk.keeper._leases = Slow(desk.clock, ttl_s=TTL_S)
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            await desk.clock.sleep(1.5 * GROWN_S + 0.5)
            assert KEY in desk.leases.claimed()
            await claim.give_up()
            await desk.clock.sleep(2.0)
            assert KEY not in desk.leases.claimed()

    play(story)


def test_work_that_is_done_just_as_it_grows_old_claims_nothing():
    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            await claim.give_up()
            await claim.outgrow()
            assert KEY not in desk.leases.claimed()

    play(story)


def test_while_another_attempt_has_its_claim_the_node_goes_on_to_cover_it():
    """That one may have come too late to begin, and give the claim up: nobody else goes on."""

    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            others = await desk.leases.acquire(KEY, holder="n2")
            await desk.clock.sleep(2 * GROWN_S)
            assert (desk.lost, claim.held) == ([], None)
            claim.check()
            await desk.leases.complete(others)
            await desk.clock.sleep(GROWN_S)
            assert claim.held is not None

    play(story)


def test_what_was_left_while_another_attempt_has_its_claim_gets_one_that_lapses_after_that():
    async def story(desk):
        async with desk.up():
            claim = desk.claim()
            claim.cover()
            others = await desk.leases.acquire(KEY, holder="n2")
            claim.let_lapse()
            await desk.clock.sleep(2 * GROWN_S)
            await desk.leases.complete(others)
            await desk.clock.sleep(GROWN_S + TTL_S)
            (lapse,) = await desk.leases.reclaim_expired()
            assert lapse.key == KEY

    play(story)


def test_what_the_lease_of_another_node_covers_is_busy_until_that_is_over():
    async def story(desk):
        other = await desk.leases.acquire(node_claim("n2"), holder="n2")
        covered_by = (node_claim("n2"), other.acquired_at)
        with pytest.raises(Busy):
            await desk.claim(covered_by=covered_by).make()
        await desk.leases.complete(other)
        await desk.claim(covered_by=covered_by).make()

    play(story)


def test_a_later_lease_of_that_node_covers_nothing_of_the_former():
    async def story(desk):
        former = await desk.leases.acquire(node_claim("n2"), holder="n2")
        await desk.leases.complete(former)
        await desk.clock.sleep(1.0)
        await desk.leases.acquire(node_claim("n2"), holder="n2")
        await desk.claim(covered_by=(node_claim("n2"), former.acquired_at)).make()

    play(story)


def test_a_node_that_stops_gives_its_lease_up():
    async def story(desk):
        async with desk.up():
            await desk.lease.give_up()
            assert desk.leases.claimed() == {}
            assert not desk.claim().cover()

    play(story)


def test_who_cannot_trust_its_lease_claims_nothing_for_what_it_covered():
    """Others may have gone on with it by now, and be done."""

    async def story(desk):
        async with desk.up(renews=False):
            await desk.clock.sleep(TTL_S - 1.0)
            claim = desk.claim()
            claim.cover()
            await desk.clock.sleep(2 * GROWN_S)
            assert KEY not in desk.leases.claimed()

    play(story)


class Broken(FakeLeases):
    """Leases that fail as nobody expects when a claim of an episode is made."""

    async def acquire(self, key, *, holder, attempt=1):
        if key.startswith("episode."):
            raise RuntimeError("a bug")
        return await super().acquire(key, holder=holder, attempt=attempt)


async def kept_no_more(desk: Desk, keeping: asyncio.Task[None]) -> None:
    """Wait until a lease would have lapsed that nobody keeps, and see that it has."""
    beating = asyncio.create_task(desk.keeper.beat())
    await desk.clock.sleep(TTL_S + 2 * GROWN_S)
    beating.cancel()
    await asyncio.gather(keeping, beating, return_exceptions=True)
    assert (await desk.leases.standing(node_claim("n1"))).state == "expired"


def test_a_lease_that_nobody_keeps_any_more_lapses_and_stops_what_it_covered():
    """Who follows the journal must see that nobody has it."""

    async def story(desk):
        desk.leases = desk.keeper._leases = Broken(desk.clock, ttl_s=TTL_S)
        keeping = asyncio.create_task(desk.lease.keep())
        await desk.clock.sleep(0.01)
        claim = desk.claim()
        claim.cover()
        await kept_no_more(desk, keeping)
        assert (desk.lost, claim.is_lost) == ([KEY], True)

    play(story)


def test_a_node_that_ends_cuts_off_by_itself_what_its_lease_covered():
    """What takes its end for a lost claim would go on with something else."""

    async def story(desk):
        keeping = asyncio.create_task(desk.lease.keep())
        await desk.clock.sleep(0.01)
        claim = desk.claim()
        claim.cover()
        keeping.cancel()
        await kept_no_more(desk, keeping)
        assert (desk.lost, claim.is_lost) == ([], False)

    play(story)
