"""What has been spent, and is reserved, within one window of the calendar. Pure.

    reserve(ref, usd) ──▶ reserved ──settle(ref, cost)──▶ used
                            │  ▲
                            └──┘ the same ref again, after a crash: nothing is taken twice

A window is an hour, a day or a month of the clock in UTC at the time of the reservation. Each has a
key of its own in the gates for the actor, and one for the stack. What nobody settles, because its
node died and its episode has ended, counts at its most until the window is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.errors import SpendingExceeded
from streams.keys import spending_key
from streams.model.money import NO_USD, Per, Spending, dollars

RESERVED_MAX: Final = 4_096
"""Most reservations that a key names; beyond that, the oldest count as used. The key has about 60
bytes for each, and one message holds a MiB."""

KEPT_S: Final = 3_600
"""How long the key of a window is there after its end, in seconds: requests that began in it end
by then."""

_BEGINS: Final[dict[Per, str]] = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m"}


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window of the calendar, and whose it is."""

    actor: str
    """Empty: the whole stack's."""
    per: Per
    begins: str
    """Such as `2026-11-29T10`, `2026-11-29` or `2026-11`."""
    ends_at: datetime
    limit: Decimal = NO_USD
    """0: there is none."""

    @property
    def key(self) -> str:
        """Its key in the gates."""
        return spending_key(self.actor, self.begins)

    def ttl_s(self, now: datetime) -> int:
        """Return how long its key must be there from `now` on, in whole seconds."""
        return max(0, round((self.ends_at - now).total_seconds())) + KEPT_S


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has been spent in a window."""

    used: Decimal = NO_USD
    reserved: dict[str, Decimal] = {}
    """Reference → the most that it can cost, oldest first."""

    @property
    def total(self) -> Decimal:
        """All that is used or may be."""
        return sum(self.reserved.values(), self.used)


NOTHING_SPENT: Final = Spent()


def window_at(actor: str, per: Per, now: datetime, *, limit: Decimal = NO_USD) -> Window:
    """Return the window that `now`, which is in UTC, lies in."""
    return Window(
        actor=actor,
        per=per,
        begins=now.strftime(_BEGINS[per]),
        ends_at=_end_of(per, now),
        limit=limit,
    )


def windows_at(
    actor: str, *, of_actor: Sequence[Spending], of_stack: Sequence[Spending], now: datetime
) -> tuple[Window, ...]:
    """Return every window in which a request of `actor` counts: the actor's own ones first.

    Whoever refuses first has then kept the stack's from nobody else.
    """
    declared = [*((actor, each) for each in of_actor), *(("", each) for each in of_stack)]
    return tuple(window_at(whose, each.per, now, limit=each.usd) for whose, each in declared)


def reserve(spent: Spent, window: Window, ref: str, usd: Decimal) -> Spent:
    """Return what is spent once `usd` is reserved; what `ref` had reserved is replaced.

    Raises:
        SpendingExceeded: so much is not left.
    """
    others = spent.total - spent.reserved.get(ref, NO_USD)  # guard: ref-takes-nothing-twice
    if window.limit and others + usd > window.limit:  # guard: window-limit
        raise exceeded(window, others, usd)
    if spent.reserved.get(ref) == usd:
        return spent
    return _bounded(replace(spent, reserved={**spent.reserved, ref: usd}))


def exceeded(window: Window, others: Decimal, usd: Decimal) -> SpendingExceeded:
    """Return why `usd` more than what `others` spend is not left in a window."""
    whose = f"actor {window.actor}" if window.actor else "the stack"
    used = f"{dollars(others)} used or reserved of {dollars(window.limit)}"
    why = f"{whose} in the {window.per} {window.begins} UTC"
    return SpendingExceeded("usd", f"{used} by {why}; the next request may cost {dollars(usd)}")


def settle(spent: Spent, ref: str, usd: Decimal | None) -> Spent:
    """Return what is spent once `ref` has cost `usd`; None: nobody knows, so its most counts.

    The same object if nothing is reserved for `ref`: it has been settled before.
    """
    if ref not in spent.reserved:  # guard: settled-once
        return spent
    left = dict(spent.reserved)
    most = left.pop(ref)
    # guard: unknown-cost-is-most
    return replace(spent, used=spent.used + (most if usd is None else usd), reserved=left)


def put_back(spent: Spent, ref: str, usd: Decimal | None) -> Spent:
    """Return what is spent once `ref` has reserved what it had before: `usd`, or nothing."""
    if spent.reserved.get(ref) == usd:
        return spent
    left = {other: each for other, each in spent.reserved.items() if other != ref}
    return replace(spent, reserved=left if usd is None else {**left, ref: usd})


def encoded(spent: Spent) -> bytes:
    """Return what the key of a window has."""
    return msgspec.json.encode(spent)


def spent_in(value: bytes | None) -> Spent:
    """Return what the key of a window says; nothing is spent without one.

    Raises:
        msgspec.DecodeError: a newer version has written it, or nobody of ours.
    """
    return msgspec.json.decode(value, type=Spent) if value else NOTHING_SPENT


def _bounded(spent: Spent) -> Spent:
    if len(spent.reserved) <= RESERVED_MAX:
        return spent
    oldest = next(iter(spent.reserved))
    return settle(spent, oldest, None)  # guard: reservations-bounded


def _end_of(per: Per, now: datetime) -> datetime:
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    match per:
        case "hour":
            return day.replace(hour=now.hour) + timedelta(hours=1)
        case "day":
            return day + timedelta(days=1)
        case "month":
            # Four days after the 28th is in the next month, of any length.
            return (day.replace(day=28) + timedelta(days=4)).replace(day=1)


def every_window(actor: str, now: datetime) -> Iterator[Window]:
    """Yield the windows that `now` lies in, of an actor and of the stack, whatever is declared."""
    for whose in (actor, ""):
        for per in _BEGINS:
            yield window_at(whose, per, now)
