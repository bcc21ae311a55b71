"""What is left of a window, and how reservations become costs."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from engine.errors import BudgetExceeded
from engine.spending import window as rules
from engine.spending.window import KEPT_S, RESERVED_MAX, Spent, window_at, windows_at
from streams.model.money import Spending

AT = datetime(2026, 11, 29, 23, 59, 59, 900_000, tzinfo=UTC)


def usd(text):
    return Decimal(text)


def a_day(limit="1.00"):
    return window_at("monitor", "day", AT, limit=usd(limit))


def spent(used="0", **reserved):
    return Spent(used=usd(used), reserved={ref: usd(each) for ref, each in reserved.items()})


def test_what_is_left_can_be_reserved_to_the_last_cent():
    assert rules.reserve(spent("0.40", a="0.50"), a_day(), "b", usd("0.10")) == spent(
        "0.40", a="0.50", b="0.10"
    )


def test_what_is_not_left_is_refused_and_the_window_is_named():
    with pytest.raises(BudgetExceeded) as refused:
        rules.reserve(spent("0.40", a="0.50"), a_day(), "b", usd("0.11"))
    assert (refused.value.limit, refused.value.detail) == (
        "usd",
        (
            "usd: 0.90 used or reserved of 1.00 by actor monitor in the day 2026-11-29 UTC;"
            " the next request may cost 0.11"
        ),
    )


def test_the_stack_is_named_as_such():
    with pytest.raises(BudgetExceeded, match="by the stack in the month 2026-11 UTC"):
        rules.reserve(spent("2"), window_at("", "month", AT, limit=usd("2")), "a", usd("1"))


def test_a_repeated_reservation_takes_nothing_twice():
    before = spent("0.40", a="0.60")
    assert rules.reserve(before, a_day(), "a", usd("0.60")) is before


def test_another_reservation_of_the_same_request_replaces_the_first():
    assert rules.reserve(spent(a="0.90"), a_day(), "a", usd("1.00")) == spent(a="1.00")


def test_a_window_without_a_limit_has_room_for_all():
    assert rules.reserve(spent("99"), a_day("0"), "a", usd("1")).total == usd("100")


def test_what_was_reserved_becomes_what_it_has_cost():
    assert rules.settle(spent("0.10", a="0.50", b="0.20"), "a", usd("0.07")) == spent(
        "0.17", b="0.20"
    )


def test_what_nobody_knows_the_cost_of_has_cost_the_most():
    assert rules.settle(spent(a="0.50"), "a", None) == spent("0.50")


def test_what_is_settled_twice_counts_once():
    once = rules.settle(spent(a="0.50"), "a", usd("0.07"))
    assert rules.settle(once, "a", usd("0.07")) is once


def test_a_reservation_is_put_back_to_what_it_was():
    assert rules.put_back(spent("0.1", a="0.5"), "a", None) == spent("0.1")
    assert rules.put_back(spent("0.1", a="0.5"), "a", usd("0.2")) == spent("0.1", a="0.2")


def test_of_too_many_reservations_the_oldest_counts_as_used():
    full = Spent(reserved={f"r{number}": usd("0.01") for number in range(RESERVED_MAX)})
    more = rules.reserve(full, a_day("0"), "new", usd("0.05"))
    assert len(more.reserved) == RESERVED_MAX
    assert "r0" not in more.reserved
    assert more.used == usd("0.01")
    assert more.total == full.total + usd("0.05")


def test_a_key_says_what_was_put_there_and_an_absent_one_that_nothing_is_spent():
    said = spent("0.000000075", a="12.50")
    assert rules.spent_in(rules.encoded(said)) == said
    assert rules.spent_in(None) == Spent()


@pytest.mark.parametrize(
    ("per", "begins", "ends"),
    [
        ("hour", "2026-11-29T23", datetime(2026, 11, 30, tzinfo=UTC)),
        ("day", "2026-11-29", datetime(2026, 11, 30, tzinfo=UTC)),
        ("month", "2026-11", datetime(2026, 12, 1, tzinfo=UTC)),
    ],
)
def test_a_window_is_one_of_the_calendar_in_utc(per, begins, ends):
    window = window_at("monitor", per, AT)
    assert (window.begins, window.ends_at) == (begins, ends)
    assert window.key == f"spending.actor.monitor.{begins}"


@pytest.mark.parametrize("day", [1, 28, 31])
def test_a_month_ends_with_its_last_day_even_in_december(day):
    ends_at = window_at("", "month", datetime(2026, 12, day, 5, tzinfo=UTC)).ends_at
    assert ends_at == datetime(2027, 1, 1, tzinfo=UTC)


def test_a_key_outlives_its_window_so_that_late_costs_are_settled():
    assert a_day().ttl_s(AT) == KEPT_S
    assert a_day().ttl_s(AT.replace(hour=22)) == KEPT_S + 3600


def test_a_request_counts_in_every_window_of_its_actor_and_then_of_the_stack():
    found = windows_at(
        "monitor",
        of_actor=[Spending(usd="1", per="hour"), Spending(usd="5")],
        of_stack=[Spending(usd="50", per="month")],
        now=AT,
    )
    assert [(each.key, each.limit) for each in found] == [
        ("spending.actor.monitor.2026-11-29T23", 1),
        ("spending.actor.monitor.2026-11-29", 5),
        ("spending.stack.2026-11", 50),
    ]
