"""The time of a page: how it is said, and the bar in which people move it. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from htpy import (
    Element,
    Node,
    a,
    button,
    details,
    div,
    form,
    label,
    output,
    p,
    span,
    strong,
    summary,
    time,
)
from htpy import input as entry

from vigil.errors import Mistake
from vigil.web.screen import AT, PAGING, PageRequest

AGO: Final = "ago"
"""What the slider sends: how many seconds ago. The answer leads to that time."""

OF: Final = "of"
"""What it sends along: from when on that is counted, so that it does not matter how long somebody
looks at the page before."""

ASSETS: Final = "/static/"

HOUR_S: Final = 3_600

PAST_S: Final = 7 * 86_400
"""How far the slider goes back, in seconds."""

STEP_S: Final = 300
"""From one place of the slider to the next, in seconds."""

FINE_S: Final = 10
"""The same of the one over an hour."""

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


def linked(page: str, at: str) -> str:
    """Return a page whose links lead to pages of the same time, but for those that lead to now.

    One place does so for all links, so that no screen can forget one. What users write is text on
    the page, and so has no quotation marks: it is never taken for a link.
    """

    def dated(link: re.Match[str]) -> str:
        before, href, after = link.groups()
        if NOW in before + after or f"{AT}=" in href or href.startswith(ASSETS):
            return link[0]
        path, mark, anchor = href.partition("#")
        return f"{before}{path}{'&amp;' if '?' in path else '?'}{said}{mark}{anchor}{after}"

    said = urlencode({AT: at})
    return _LINK.sub(dated, page)


_LINK: Final = re.compile(r'(<a\b[^>]*?\shref=")(/[^"]*)("[^>]*>)')

NOW: Final = " data-now"
"""The attribute of a link that leads from the past to now."""


def slider(asked: PageRequest) -> Element:
    """Return what moves a page through time: a slider over the last week, and a field.

    And one with small steps, over the hour around the time that the page is at.
    """
    at = asked.at or asked.asked_at
    ago_s = min(max(int((asked.asked_at - at).total_seconds()), 0), PAST_S)
    shown = "Now" if asked.at is None else f"{at.astimezone(UTC):%m-%d %H:%M} UTC"
    least_s = max(ago_s - HOUR_S // 2, 0)
    return details(".past")[
        summary(title="See the stack as it was at another time")[shown],
        div[
            _slide(
                asked,
                "The last week, now on the right",
                least_s=0,
                most_s=PAST_S,
                step_s=STEP_S,
                ago_s=ago_s,
            ),
            _slide(
                asked,
                "The last hour" if not least_s else "The hour around it",
                least_s=least_s,
                most_s=least_s + HOUR_S,
                step_s=FINE_S,
                ago_s=ago_s,
            ),
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


def _slide(
    asked: PageRequest, says: str, *, least_s: int, most_s: int, step_s: int, ago_s: int
) -> Element:
    """Return a slider from `most_s` ago, on the left, to `least_s` ago."""
    of = asked.asked_at.astimezone(UTC)
    return form(method="get", action=asked.path, data_slider=True)[
        _kept(asked),
        entry(type="hidden", name=OF, value=of.isoformat(timespec="seconds")),
        label[
            span[says, " ", output(aria_live="off")],
            entry(
                type="range",
                name=AGO,
                min=str(least_s),
                max=str(most_s),
                step=str(step_s),
                value=str(ago_s),
            ),
        ],
        button(type="submit")["Go"],
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
            " The overview, the inbox, episodes, findings, outputs, workflows and orders are as ",
            "they were at ",
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
            if then <= asked.asked_at
        ),
        a(".btn.primary", href=asked.link(at=None), data_now=True)["Now"],
    ]
