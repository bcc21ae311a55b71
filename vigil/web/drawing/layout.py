"""The frame of every page: navigation, title, and where the script finds what is live. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from htpy import (
    Element,
    Node,
    a,
    body,
    button,
    div,
    form,
    fragment,
    h1,
    head,
    header,
    html,
    link,
    main,
    meta,
    nav,
    noscript,
    p,
    script,
    span,
    strong,
    title,
)
from htpy import input as entry

from engine.people.identity import Identity, Role
from streams.model.people import SavedView
from vigil.web.drawing.icons import mark
from vigil.web.drawing.parts import sentence, with_commands
from vigil.web.drawing.views import default_addresses, views_bar
from vigil.web.past import banner, slider
from vigil.web.positions import RowsPosition
from vigil.web.said import SILENCE, Said
from vigil.web.screen import Drawn, PageRequest

SECTIONS: Final = (
    ("/", "Overview"),
    ("/inbox", "Inbox"),
    ("/episodes", "Episodes"),
    ("/findings", "Findings"),
    ("/outputs", "Outputs"),
    ("/workflows", "Workflows"),
    ("/actors", "Actors"),
    ("/events", "Events"),
    ("/costs", "Costs"),
    ("/definitions", "Definitions"),
    ("/dead-letters", "Dead letters"),
    ("/orders", "Orders"),
    ("/nodes", "Nodes"),
    ("/people", "People"),
)
"""The address and the word of each entry of the navigation."""

HEAD: Final = "head"
"""The name of the part that has the title."""

ADMINS_ONLY: Final = frozenset({"/people"})
"""The entries that only admins see."""

RELOAD_S: Final = 15
"""How often a browser without scripts loads a live page anew, in seconds."""


@dataclass(frozen=True, kw_only=True)
class PageFrame:
    """What stands around a page, and is of one person and one moment."""

    stack: str
    identity: Identity
    section: str
    theme: str
    """`light`, `dark`, or empty: as the system has it."""
    nonce: str
    assets: Mapping[str, str]
    """The name of a file that pages need → its address."""
    position: RowsPosition
    """Up to where the page is true."""
    waiting: Mapping[str, int]
    """The address of an entry → how much there waits for people."""
    live: str = ""
    """The address at which the page tells what changes; empty: it does not."""
    said: Said = SILENCE
    """What became of what was ordered on the page before."""
    sections: Sequence[tuple[str, str]] = SECTIONS
    views: Sequence[SavedView] | None = ()
    """The saved views of whoever looks at it; None: nobody knows them now."""
    asked: PageRequest | None = None
    """What was asked for, which has the time of the page; None: the page is not of a screen."""
    has_past: bool = False
    """Whether the page is as it was at that time."""
    retry_s: int = 0
    """How often a browser is to load the page anew, in seconds; 0: it is not to."""


def parts_of(drawn: Drawn) -> dict[str, Element]:
    """Return the parts of a page by name, as the script finds them again; first its head."""
    head = div("#part-head.head", data_part=True)[h1[drawn.title], drawn.beside]
    others = {
        name: div(id=f"part-{name}", data_part=True)[node] for name, node in drawn.parts.items()
    }
    return {HEAD: head, **others}


def arranged(parts: Mapping[str, Element], side: Collection[str], below_head: Node = None) -> Node:
    """Return the parts below each other, and those of `side` beside them where there is room."""
    beside = [part for name, part in parts.items() if name in side]
    others = [part for name, part in parts.items() if name not in side and name != HEAD]
    if not beside:
        return [parts[HEAD], below_head, *others]
    return [parts[HEAD], below_head, div(".cols")[div(".stack")[others], div(".stack")[beside]]]


def page(frame: PageFrame, drawn: Drawn) -> Element:
    """Return a whole page."""
    parts = parts_of(drawn)
    return html(lang="en", data_theme=frame.theme or None)[
        head[
            meta(charset="utf-8"),
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            meta(name="color-scheme", content="light dark"),
            title[f"{drawn.title} · {frame.stack} · Vigil"],
            link(rel="icon", type="image/svg+xml", href=frame.assets["icon.svg"]),
            link(rel="stylesheet", href=frame.assets["console.css"]),
            meta(http_equiv="refresh", content=str(frame.retry_s)) if frame.retry_s else None,
            frame.live and noscript[meta(http_equiv="refresh", content=str(RELOAD_S))],
            script(src=frame.assets["console.js"], nonce=frame.nonce, defer=True),
        ],
        body[
            a(".skip", href="#main")["Skip to the page"],
            _side(frame),
            _bar(frame, drawn),
            main(
                id="main",
                tabindex="-1",
                data_live=frame.live or None,
                data_seq=str(frame.position.number) if frame.live else None,
            )[
                p("#away.note", role="status", hidden=True),
                banner(frame.asked, has_past=frame.has_past) if frame.asked else None,
                _told(frame.said, with_commands(frame.said.text)),
                arranged(parts, drawn.side, _views(frame)),
            ],
        ],
    ]


def _told(said: Said, words: Node) -> Element:
    """Return the line that tells what became of an order: at once, if something was refused."""
    looks = {"said": bool(said.text), "refused": bool(said.problem)}
    return p("#say", class_=looks, role="alert" if said.problem else "status")[
        span[bool(said.problem) and strong[f"{said.problem}: "], words]
    ]


def _views(frame: PageFrame) -> Node:
    return views_bar(frame.asked, frame.views) if frame.identity.is_person else None


def _side(frame: PageFrame) -> Element:
    defaults = default_addresses(frame.views)
    entries = (
        each
        for each in frame.sections
        if each[0] not in ADMINS_ONLY or frame.identity.role is Role.ADMIN
    )
    return div(".side")[
        a(".brand", href="/")[mark(), span["Vigil"], span(".sr")[": overview"]],
        nav(aria_label="Pages of the console")[
            (
                a(href=defaults.get(href, href), aria_current=href == frame.section and "page")[
                    word,
                    _count(frame.waiting.get(href, 0)),
                ]
                for href, word in entries
            )
        ],
    ]


def _count(waiting: int) -> Node:
    return span(".count")[waiting, span(".sr")[" waiting"]] if waiting else None


def _bar(frame: PageFrame, drawn: Drawn) -> Element:
    here = dict(frame.sections).get(frame.section, "")
    up = drawn.up or ((frame.section, here) if here and here != drawn.title else None)
    return header(".bar")[
        nav(".crumbs", aria_label="Where you are")[
            a(href="/")[frame.stack],
            up and fragment[" / ", a(href=up[0])[up[1]]],
        ],
        form(".go", method="get", action="/go", role="search")[
            entry(
                id="go",
                name="q",
                type="search",
                placeholder="Go to … (Ctrl K)",
                aria_label="Go to an id, a name or a key",
                autocomplete="off",
            )
        ],
        div(".end")[
            slider(frame.asked) if frame.asked else None,
            button(".live", type="button", data_state="static")["Not live"],
            span(".seq.wide", title="Up to here in the journal this page is true")[
                frame.position.says
            ],
            _press("theme", "Theme"),
            _who(frame.identity),
        ],
    ]


def _who(identity: Identity) -> Node:
    """Return who looks, and a way out; nobody is known while the server that knows is away."""
    if not identity.name:
        return None
    return fragment[
        span(".who", title=f"You are {identity.name}, {identity.role.value}")[identity.name],
        _press("sign_out", "Sign out"),
    ]


def _press(action: str, says: str) -> Element:
    """Return a button whose answer is a whole page."""
    return form(".row", method="post", action=f"/do/{action}")[button(type="submit")[says]]


def bare(frame: PageFrame, heading: str, *inside: Node) -> Element:
    """Return a page without navigation: for who has not signed in, and for what went wrong."""
    return html(lang="en", data_theme=frame.theme or None)[
        head[
            meta(charset="utf-8"),
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            meta(name="color-scheme", content="light dark"),
            title[f"{heading} · Vigil"],
            link(rel="icon", type="image/svg+xml", href=frame.assets["icon.svg"]),
            link(rel="stylesheet", href=frame.assets["console.css"]),
        ],
        body(".bare")[
            main(id="main", tabindex="-1")[
                div(".brand")[mark(), span["Vigil"]],
                h1[heading],
                _told(frame.said, sentence(frame.said.text) if frame.said.text else None),
                inside,
            ]
        ],
    ]
