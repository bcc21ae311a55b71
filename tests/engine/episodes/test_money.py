"""What an episode has spent on requests to models, by its events alone."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from engine.episodes.episode import (
    UNOPENED,
    Announce,
    Begin,
    CancelEpisode,
    Finish,
    Performed,
    decide,
    evolve,
    overspent,
    unaffordable,
)
from streams.json import raw
from streams.model.children import ChildEnd, ChildStart
from streams.model.events import EpisodeOpened, StepKind
from streams.model.money import NO_USD, dollars, usd_of
from streams.model.triggers import AdaptiveBudget, Budget, ManualTrigger


def opened(usd="1.00"):
    return EpisodeOpened(
        episode_id="e1",
        actor_id="worker",
        expectation_id="expects",
        trigger=ManualTrigger(requested_by="a test"),
        dedupe_key="k",
        budget=Budget(usd=usd),
    )


def lived(*commands):
    """Return the episode after `commands`, and the newest event."""
    episode, event = evolve(UNOPENED, opened()), None
    for command in (Begin(node="n1"), *commands):
        event = decide(episode, command)
        episode = evolve(episode, event)
    return episode, event


def announced(path, usd=None, *, child=None):
    return Announce(
        fingerprint=path,
        tool_name="",
        idempotency_key=path,
        path=path,
        reserved_usd=None if usd is None else Decimal(usd),
        child=child,
    )


def a_child(usd):
    return ChildStart(
        episode_id="c1", actor_id="worker", expectation_id="expects", budget=Budget(usd=usd)
    )


def asked(path, cost, kind=StepKind.MODEL_REQUEST):
    cost_usd = None if cost is None else Decimal(cost)
    return Performed(kind=kind, fingerprint=path, path=path, cost_usd=cost_usd)


def child_ended(path, usd):
    ended = ChildEnd(episode_id="c1", usd=Decimal(usd))
    return Performed(kind=StepKind.EPISODE, fingerprint=path, path=path, child=ended)


def test_what_is_recorded_takes_the_place_of_what_was_reserved():
    episode, _ = lived(announced("1", "0.50"), announced("2", "0.30"), asked("1", "0.07"))
    assert (episode.usd_used, episode.usd_reserved) == (Decimal("0.07"), Decimal("0.30"))


def test_what_is_announced_again_is_reserved_once():
    episode, _ = lived(announced("1", "0.50"), Begin(node="n2"), announced("1", "0.40"))
    assert episode.usd_reserved == Decimal("0.40")


@pytest.mark.parametrize("kind", [StepKind.MODEL_REQUEST, StepKind.SYNTHESIS])
def test_a_request_of_which_nobody_knows_the_cost_has_cost_what_was_reserved(kind):
    episode, _ = lived(announced("1", "0.50"), asked("1", None, kind))
    assert (episode.usd_used, episode.usd_reserved) == (Decimal("0.50"), NO_USD)


def test_an_open_child_has_reserved_what_it_may_spend_and_then_counts_with_what_it_has():
    episode, _ = lived(announced("1", child=a_child("0.40")))
    assert episode.usd_reserved == Decimal("0.40")
    episode, _ = lived(announced("1", child=a_child("0.40")), child_ended("1", "0.15"))
    assert (episode.usd_used, episode.usd_reserved) == (Decimal("0.15"), NO_USD)


def test_what_is_forgotten_with_a_restart_counts_as_the_most_that_it_can_cost():
    before = (announced("1", "0.50"), announced("2", child=a_child("0.20")), asked("3", "0.07"))
    episode, _ = lived(*before, Begin(node="n2", fresh=True))
    assert (episode.usd_used, episode.usd_reserved) == (Decimal("0.77"), NO_USD)


def test_a_child_without_a_limit_reserves_nothing():
    episode, _ = lived(announced("1", child=a_child("0")))
    assert episode.usd_reserved == NO_USD


@pytest.mark.parametrize("end", [Finish(), CancelEpisode(error_class="canceled")])
def test_the_end_says_what_it_has_spent(end):
    _, finished = lived(asked("1", "0.07"), asked("2", "0.000000075"), end)
    assert finished.usd_used == Decimal("0.070000075")


def test_a_budget_of_dollars_is_spent_with_its_last_cent():
    assert overspent(Budget(usd="0.50"), turns=0, tokens=0, wall_s=0, usd=Decimal("0.49")) is None
    spent = overspent(Budget(usd="0.50"), turns=0, tokens=0, wall_s=0, usd=Decimal("0.5"))
    assert (spent.limit, spent.detail) == ("usd", "usd: 0.50 used of 0.50")


def test_a_request_fits_if_all_that_it_can_cost_is_left():
    some = {"used": Decimal("0.20"), "reserved": Decimal("0.25")}
    assert unaffordable(Budget(usd="0.50"), Decimal("0.05"), **some) is None
    assert unaffordable(Budget(), Decimal(10**9), **some) is None
    assert unaffordable(Budget(usd="0.50"), Decimal("0.06"), **some).detail == (
        "usd: 0.20 used and 0.25 reserved of 0.50; the next request may cost 0.06"
    )


def test_what_has_no_room_says_how_much_it_lacks_to_go_on():
    some = {"used": Decimal("0.20"), "reserved": Decimal("0.25")}
    assert unaffordable(Budget(usd="0.50"), Decimal("0.06"), **some).lacks == Decimal("0.01")
    budget = Budget(turns=0, tokens=1000, usd="0.50")
    assert overspent(budget, turns=1, tokens=5000, wall_s=0).lacks == 4001
    spent = overspent(budget, turns=1, tokens=0, wall_s=0, usd=Decimal("1.50"))
    assert spent.lacks == Decimal("1.000001")


@pytest.mark.parametrize("given", ["0.10", 0.1, Decimal("0.1")])
def test_a_sum_is_the_same_however_it_is_written(given):
    assert Budget(usd=given) == Budget(usd=Decimal("0.1"))
    assert AdaptiveBudget(usd=(given, 3)).usd == (Decimal("0.1"), Decimal(3))


@pytest.mark.parametrize("given", ["x", "", None, True, [], "nan", "inf", -1, "1e10", "1e-13"])
def test_what_is_no_sum_is_refused(given):
    with pytest.raises(ValueError, match=r"dollars|digits"):
        usd_of(given)


def test_a_sum_is_exact_on_the_log_and_absent_where_there_is_none():
    assert bytes(raw(Budget(usd="0.10"))) == b'{"usd":"0.10"}'
    assert bytes(raw(Budget())) == b"{}"
    assert msgspec.json.decode(b'{"usd":"0.000000075"}', type=Budget).usd == Decimal("0.000000075")


@pytest.mark.parametrize(
    ("usd", "said"),
    [("0", "0.00"), ("0.5", "0.50"), ("12", "12.00"), ("100", "100.00"), ("0.000075", "0.000075")],
)
def test_people_see_at_least_two_digits_of_a_sum_and_all_that_there_are(usd, said):
    assert dollars(Decimal(usd)) == said
