"""What the simulation takes for an answer too many, or too few, and what it does not."""

from __future__ import annotations

from streams.model.events import BlockReason, EpisodeBlocked, EpisodeResolved, Parked, Resolution
from streams.ports.log import Commit, Recorded
from tests.simulation.blocks import answered_twice_or_never
from tests.simulation.evidence import Life
from tests.simulation.time import EPOCH


def asked(step_no):
    return EpisodeBlocked(step_no=step_no, reason=BlockReason.WAIT, fingerprint="f")


def answered(step_no, *, by="expiry"):
    return EpisodeResolved(
        step_no=step_no, resolution=Resolution.EXPIRED, decision_id=f"{by}.{step_no}"
    )


def parked(step_no, *, number):
    why = BlockReason.NONDETERMINISTIC_REPLAY
    of = Parked(number=number, how="another call", codes=("old",))
    return EpisodeBlocked(step_no=step_no, reason=why, fingerprint="", parked=of)


def tried(step_no, *, number):
    return EpisodeResolved(
        step_no=step_no, resolution=Resolution.RETRIED, decision_id="code.new", park_no=number
    )


def found(*events):
    """Return what is wrong with an episode to which `events` happened."""
    records = [
        Recorded(
            subject="sim.episode.e1",
            seq=seq,
            commit=Commit(id=f"c{seq}", at=EPOCH, events=(event,)),
        )
        for seq, event in enumerate(events, start=1)
    ]
    return [*answered_twice_or_never(Life("e1", records))]


def test_an_episode_may_be_parked_before_it_waits_for_the_same_step():
    assert found(parked(2, number=1), tried(2, number=1), asked(2), answered(2)) == []


def test_the_same_code_may_go_on_with_an_episode_that_is_parked_again():
    first, second = (
        (parked(2, number=1), tried(2, number=1)),
        (parked(3, number=2), tried(3, number=2)),
    )
    assert found(*first, *second) == []


def test_nothing_is_asked_twice():
    assert any("asked" in each for each in found(asked(2), answered(2), asked(2)))


def test_nothing_is_answered_twice():
    assert any("asked" in each for each in found(asked(2), answered(2), answered(2, by="ada")))


def test_one_decision_answers_one_wait():
    twice = tried(2, number=1), tried(3, number=1)
    assert any("answers twice" in each for each in found(*twice))


def test_the_end_of_a_parked_time_does_not_answer_the_wait_after_it():
    assert found(parked(2, number=1), tried(2, number=1), asked(2)) == [
        "e1: nobody has answered step 2"
    ]
