"""What pages are made of: states, times, facts, tables, forms. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NamedTuple
from urllib.parse import quote

from htpy import (
    Element,
    Node,
    a,
    button,
    code,
    dd,
    details,
    div,
    dl,
    dt,
    form,
    fragment,
    h2,
    header,
    label,
    li,
    nav,
    option,
    p,
    pre,
    section,
    select,
    small,
    span,
    summary,
    table,
    tbody,
    td,
    textarea,
    th,
    thead,
    time,
    tr,
    ul,
)
from htpy import input as entry

from engine.people.identity import Role
from vigil.printing.columns import age, took
from vigil.web.drawing.icons import icon
from vigil.web.screen import AT, PAGING, PageRequest

TEXT_CHARS_MAX: Final = 20_000
"""Most of a value that a page shows; what is longer is cut, and says so."""

CENT: Final = Decimal("0.01")


class Look(NamedTuple):
    """How a state is drawn: a hue of the style sheet and an icon, beside its word."""

    hue: str
    icon: str


_LOOKS: Final[Mapping[str, Look]] = {
    "queued": Look("canceled", "clock"),
    "running": Look("running", "turn"),
    "blocked": Look("blocked", "hand"),
    "waiting": Look("blocked", "clock"),
    "done": Look("done", "check"),
    "failed": Look("failed", "cross"),
    "partially_failed": Look("failed", "half"),
    "canceled": Look("canceled", "dash"),
    "active": Look("blocked", "warning"),
    "cleared": Look("done", "check"),
    "expired": Look("canceled", "clock"),
    "superseded": Look("canceled", "dash"),
    "low": Look("running", "info"),
    "medium": Look("blocked", "warning"),
    "high": Look("failed", "cross"),
    "critical": Look("critical", "bolt"),
    "proposed": Look("running", "clock"),
    "retrying": Look("blocked", "turn"),
    "awaiting_approval": Look("blocked", "hand"),
    "delivered": Look("done", "check"),
    "rejected": Look("canceled", "dash"),
    "requeued": Look("done", "turn"),
    "discarded": Look("canceled", "dash"),
    "up": Look("done", "check"),
    "not up": Look("failed", "cross"),
    "paused": Look("blocked", "pause"),
    "stopping": Look("blocked", "dash"),
    "compensating": Look("blocked", "turn"),
    "partly": Look("blocked", "half"),
    "disabled": Look("canceled", "pause"),
    "applied": Look("done", "check"),
    "full": Look("done", "check"),
    "trigger_only": Look("blocked", "half"),
    "open": Look("failed", "cross"),
    "half_open": Look("blocked", "half"),
    "closed": Look("done", "check"),
    "opened": Look("done", "check"),
    "refused": Look("blocked", "dash"),
    "waits": Look("blocked", "clock"),
    "unknown": Look("canceled", "question"),
    "warning": Look("blocked", "warning"),
    "problem": Look("failed", "cross"),
    "ok": Look("done", "check"),
    "skipped": Look("canceled", "dash"),
    "pending": Look("canceled", "clock"),
}
"""State or severity → its look; those that are not here look like what is over."""

_PLAIN: Final = Look("canceled", "dash")


def look(state: str) -> Look:
    """Return how a state is drawn."""
    return _LOOKS.get(state, _PLAIN)


def pill(state: object, says: str = "") -> Element:
    """Return a state by colour, icon and word together; `says` is its word, if it is another."""
    text = str(state)
    hue, drawn = look(text)
    turns = text == "running"
    return span(class_=["pill", hue, {"turns": turns}])[icon(drawn), says or text.replace("_", " ")]


def when(at: object, now: datetime) -> Node:
    """Return a time as how far away it is, with all of it for who points at it."""
    if not isinstance(at, datetime):
        return None
    far = age(at, now)
    return time(datetime=at.astimezone(UTC).isoformat(), title=exact(at))[
        far if far.startswith("in ") else f"{far} ago"
    ]


def exact(at: datetime) -> str:
    """Return a time to the second, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def lasted(milliseconds: object) -> str:
    """Return a duration; empty: there is none."""
    return took(milliseconds) or ""


def money(usd: object) -> str:
    """Return US dollars, to the cent or to the first digit that is not zero; empty: none."""
    if not isinstance(usd, Decimal | int | float) or not usd:
        return ""
    sum_ = Decimal(str(usd))
    return f"${sum_:,.2f}" if abs(sum_) >= CENT else f"${sum_.normalize():f}"


def count(number: object) -> str:
    """Return a number with its thousands apart; empty for None."""
    return f"{number:,}" if isinstance(number, int) else ""


def many(number: int, one: str, several: str = "") -> str:
    """Return how many of something, such as `1 change` or `2 changes`."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def place(*words: object) -> str:
    """Return the path of a page of `words`, such as `/findings/host:disk:web-1`."""
    return "".join(f"/{quote(str(each), safe=':@')}" for each in words)


def short(id_: object) -> str:
    """Return the beginning of an id."""
    return str(id_)[:8] if id_ else ""


def episode_link(id_: object) -> Node:
    """Return a link to an episode, None for none."""
    return a(".id", href=place("episodes", id_))[short(id_)] if id_ else None


def card(title: str, *body: Node, beside: Node = None, is_padded: bool = False) -> Element:
    """Return a part of a page with a heading."""
    return section(".card")[
        header[h2[title], beside and small[beside]],
        div(".pad")[body] if is_padded else body,
    ]


def is_said(node: Node) -> bool:
    """Return whether there is anything to show."""
    return node is not None and node is not False and node != ""


def facts(said: Iterable[tuple[str, Node]]) -> Element:
    """Return a row of numbers with their names; those that are empty are left out."""
    return dl(".facts.card")[(div[dt[name], dd[value]] for name, value in said if is_said(value))]


def sheet(said: Iterable[tuple[str, Node]]) -> Element:
    """Return names and values below each other; those that are empty are left out."""
    return dl(".sheet")[(fragment[dt[name], dd[value]] for name, value in said if is_said(value))]


@dataclass(frozen=True)
class Cell:
    """A column of a table."""

    heading: str
    is_main: bool = False
    """Whether it takes what room there is; one column does."""
    is_number: bool = False
    is_spare: bool = False
    """Whether it is left out on a phone."""


def rows_of(
    cells: Sequence[Cell], rows: Iterable[Sequence[Node]], *, keys: Sequence[object] = ()
) -> Element:
    """Return a table. `keys` name its rows, so that one that moves is known again."""
    names = iter(keys)
    return table[
        thead[tr[(th(class_=_class(each), scope="col")[each.heading] for each in cells)]],
        tbody[
            (
                tr(data_key=str(next(names, number)))[
                    (
                        td(class_=_class(cell), data_label=cell.is_number and cell.heading)[value]
                        for cell, value in zip(cells, row, strict=True)
                    )
                ]
                for number, row in enumerate(rows)
            )
        ],
    ]


def _class(cell: Cell) -> dict[str, bool]:
    return {"main": cell.is_main, "num": cell.is_number, "wide": cell.is_spare}


def titled(href: str, title: Node, below: Node = None) -> Node:
    """Return a link that stands for its whole row, and a small line below it."""
    return fragment[a(href=href)[title], below and small[below]]


def nothing(says: str, hint: Node = None) -> Element:
    """Return what stands where there is nothing to list, and what to do about it."""
    return div(".empty")[p[says], hint and p(".muted")[hint]]


def none_of(asked: PageRequest, what: str) -> str:
    """Return why a list has nothing: there is none at all, or none that fits its filters."""
    is_narrowed = any(name not in PAGING and name != AT for name in asked.filters)
    if is_narrowed:
        return f"No {what} fits these filters."
    return f"No {what} yet." if asked.at is None else f"There was no {what} then."


def sentence(says: str) -> Node:
    """Return a message as a sentence."""
    whole = says[:1].upper() + says[1:]
    return with_commands(whole if whole.endswith((".", "!", "?")) else f"{whole}.")


def with_commands(text: str) -> Node:
    """Return a text in which commands to type stand between backticks."""
    return [code[part] if at % 2 else part for at, part in enumerate(text.split("`"))]


def value(of: object) -> Node:
    """Return any value of JSON as people read it: a text as it is, all else with its structure."""
    if of is None:
        return None
    text = of if isinstance(of, str) else json.dumps(of, indent=2, ensure_ascii=False, default=str)
    cut = text[:TEXT_CHARS_MAX]
    left = len(text) - len(cut)
    return fragment[
        pre(tabindex="0")[code[cut]],
        small[f"{left:,} more characters are not shown"] if left else None,
    ]


def fold(says: Node, *body: Node, key: str = "", is_open: bool = False) -> Element:
    """Return something that people open to read it."""
    return details(data_key=key or None, open=is_open)[summary[says], body]


COPY_CHARS_MAX: Final = 200_000
"""Longest text that a page has to be copied."""


def copied(says: str, text: str) -> Node:
    """Return a text that people copy whole; None: it is too long for a page."""
    if len(text) > COPY_CHARS_MAX:
        return None
    return fold(
        says,
        div(".copied")[
            button(type="button", data_copy=True)["Copy"], pre(tabindex="0")[code[text]]
        ],
        key=f"copy {says}",
    )


def chips(asked: PageRequest, name: str, said: Iterable[tuple[str | None, str, object]]) -> Element:
    """Return links that set a filter: its value, the word, and how many rows there are."""
    now_set = asked.filter(name)
    return nav(".chips", aria_label=name)[
        (
            a(href=asked.link(**{name: each}), aria_current=each == now_set and "true")[
                word,
                number is not None
                and span(".n")[number if isinstance(number, str) else count(number)],
            ]
            for each, word, number in said
        )
    ]


def _number(number: object) -> str:
    return number if isinstance(number, str) else count(number)


def field(
    name: str, says: str, value: str | None = None, *, placeholder: str = "", required: bool = False
) -> Element:
    """Return a field for a text, with its label."""
    return label[
        says,
        entry(
            name=name,
            value=value or "",
            placeholder=placeholder or None,
            required=required,
            autocomplete="off",
        ),
    ]


def choice(name: str, says: str, options: Iterable[tuple[str, str]], chosen: str = "") -> Element:
    """Return a field for one of several values."""
    return label[
        says,
        select(name=name)[
            (option(value=each, selected=each == chosen)[word] for each, word in options)
        ],
    ]


def narrowing(asked: PageRequest, *fields: Element, kept: Sequence[str] = ()) -> Element:
    """Return a form that narrows a list; the filters that are `kept` stay as they are."""
    return form(".row.filters", method="get", action=asked.path)[
        (
            entry(type="hidden", name=name, value=asked.filter(name))
            for name in (*kept, AT)
            if asked.filter(name)
        ),
        fields,
        button(type="submit")["Filter"],
    ]


def listed(items: Iterable[Node]) -> Element:
    """Return a list whose entries each have a name on the left and a state on the right."""
    return ul(".list")[(li[each] for each in items)]


def pager(asked: PageRequest, next_: str | None) -> Node:
    """Return the links to the pages before and after."""
    is_first = asked.filter("after") is None
    if is_first and next_ is None:
        return None
    return nav(".pager", aria_label="Pages")[
        not is_first and a(".btn", href=asked.link())["First page"],
        next_ and a(".btn", href=asked.link(after=next_), rel="next")["Next page"],
    ]


def act(
    operation: str,
    says: str,
    fields: Mapping[str, object],
    *inside: Node,
    is_primary: bool = False,
    is_danger: bool = False,
    is_tall: bool = False,
    is_whole: bool = False,
    id: str | None = None,
) -> Element:
    """Return a form that sends one command; what people fill in is `inside` it.

    Args:
        operation: the name of an operation of the API.
        fields: what is sent along unseen; None is left out. Of a name that ends with `:json` it is
            JSON; `back` is the page to go on with, by default the one that has the form.
        is_tall: whether its fields stand below each other.
        is_whole: whether more than the parts of the page that has it changes by it, so that scripts
            leave it to the browser.
        id: of its button, so that a key leads there.
    """
    return form(
        ".form" if is_tall else ".row",
        method="post",
        action=f"/do/{operation}",
        data_enhance=not is_whole,
    )[
        (
            entry(type="hidden", name=name, value=str(each))
            for name, each in fields.items()
            if each is not None
        ),
        inside,
        button(id=id, type="submit", class_={"primary": is_primary, "danger": is_danger})[says],
    ]


def why_field() -> Element:
    """Return the field for the reason of an order."""
    return field("reason", "Why", placeholder="Kept in the journal")


def long_field(name: str, says: str, value: str = "", *, hint: Node = None) -> Element:
    """Return a field for a text of several lines, such as JSON."""
    return label[says, textarea(name=name, spellcheck="false")[value], hint and small[hint]]


def tick(name: str, says: str) -> Element:
    """Return a field that is on or off, and off at first."""
    return label(".check")[entry(type="checkbox", name=name, value="true"), says]


def may_order(asked: PageRequest) -> bool:
    """Return whether forms that order something are drawn for who asks."""
    return asked.role.includes(Role.OPERATOR)  # guard: forms-for-who-may
