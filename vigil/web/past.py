"""The time of a page: how it is said, and the bar in which people move it. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from htpy import Element, Node, a, button, details, div, form, label, p, strong, summary, time
from htpy import input as entry

from vigil.errors import Mistake
from vigil.web.screen import AT, PAGING, PageRequest

AGO: Final = "ago"
"""What the slider sends: how many seconds ago. The answer leads to that time."""

PAST_S: Final = 7 * 86_400
"""How far the slider goes back, in seconds."""

STEP_S: Final = 300
"""From one place of the slider to the next, in seconds."""

LEAPS: Final = (
    ("A day back", -86_400),
    ("An hour back", -3_600),
    ("An hour on", 3_600),
    ("A day on", 86_400),
)
"""The links beside a time, and how far they lead, in seconds."""


def time_of(text: str, now: datetime) -> datetime:
    """Return the time that an address says, in ISO 8601; without a zone it is UTC.

    Raises:
        Mistake: it is none, or is yet to come.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        says = f"at: {text!r} is no time such as 2030-01-31T09:00:00+00:00"
        raise Mistake(says) from error
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at > now:  # guard: page-of-future-refused
        raise Mistake(f"at: {text} is yet to come")
    return at


def slider(asked: PageRequest) -> Element:
    """Return what moves a page through time: a slider over the last week, and a field."""
    at = asked.at or asked.now
    ago_s = min(int((asked.now - at).total_seconds()), PAST_S)
    shown = "Now" if asked.at is None else f"{at.astimezone(UTC):%m-%d %H:%M} UTC"
    return details(".past")[
        summary(title="See the stack as it was at another time")[shown],
        div[
            form(method="get", action=asked.path, data_slider=True)[
                _kept(asked),
                label[
                    "The last week, now on the right",
                    entry(
                        type="range",
                        name=AGO,
                        min="0",
                        max=str(PAST_S),
                        step=str(STEP_S),
                        value=str(ago_s),
                    ),
                ],
                button(type="submit")["Go"],
            ],
            form(method="get", action=asked.path)[
                _kept(asked),
                label[
                    "Time, UTC",
                    entry(
                        type="datetime-local",
                        name=AT,
                        step="1",
                        required=True,
                        value=f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
                    ),
                ],
                button(type="submit")["Go there"],
            ],
        ],
    ]


def _kept(asked: PageRequest) -> Node:
    """Return the other filters of a page, but for what says where in a list it is."""
    return [
        entry(type="hidden", name=name, value=text)
        for name, text in asked.filters.items()
        if name not in {*PAGING, AT}
    ]


def banner(asked: PageRequest, *, has_past: bool) -> Node:
    """Return what a page of a time past says first, with the ways to other times; None: of now."""
    if asked.at is None:
        return None
    exact = asked.at.astimezone(UTC)
    shown = time(datetime=exact.isoformat(), data_exact=True)[f"{exact:%Y-%m-%d %H:%M:%S} UTC"]
    says = (
        p["As it was at ", strong[shown], ". Nothing can be ordered here."]
        if has_past
        else p[
            strong["This page has no past: it is as of now."],
            " The overview, the inbox, episodes, findings and orders are as they were at ",
            shown,
            ".",
        ]
    )
    return div("#then.note", role="status")[says, _leaps(asked, asked.at)]


def _leaps(asked: PageRequest, at: datetime) -> Element:
    times = ((word, at + timedelta(seconds=span_s)) for word, span_s in LEAPS)
    return p(".row")[
        (
            a(".btn", href=asked.link(at=then.isoformat()))[word]
            for word, then in times
            if then <= asked.now
        ),
        a(".btn.primary", href=asked.link(at=None))["Now"],
    ]
