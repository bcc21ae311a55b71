"""Definitions: actors and workflows as data, with their history and what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from htpy import (
    Element,
    Node,
    a,
    button,
    del_,
    div,
    form,
    fragment,
    ins,
    li,
    ol,
    p,
    pre,
    small,
    span,
    strong,
)

from streams.model.definitions import ID_KINDS, RegisteredDefinition
from vigil.asking.definitions.changes import DefinitionEntry
from vigil.client import Client
from vigil.client.actors import ActorSummary
from vigil.errors import Mistake, NotFound
from vigil.web.drawing.icons import icon
from vigil.web.drawing.parts import (
    Cell,
    act,
    card,
    chips,
    choice,
    facts,
    fold,
    listed,
    look,
    many,
    may_order,
    nothing,
    pill,
    place,
    rows_of,
    titled,
    value,
    when,
    why_field,
)
from vigil.web.screen import Drawn, PageRequest, Screen

KINDS: Final = tuple(ID_KINDS.values())

REVISIONS_MAX: Final = 200
"""Most changes of a definition that the page tells, the latest first."""

ARROW: Final = " → "
"""Stands between what was and what is, in a line of a difference."""

CELLS: Final = (
    Cell("Definition", is_main=True),
    Cell("Kind"),
    Cell("State"),
    Cell("Revision", is_number=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read the definitions, and draw them."""
    kind = asked.filter("kind")
    found = await client.definitions.list()
    if kind is not None and kind not in KINDS:
        raise Mistake(f"kind: {kind!r} is not one of {', '.join(KINDS)}")
    return Drawn(
        title="Definitions", parts={"filters": filters(asked, found), "list": list_of(asked, found)}
    )


def filters(asked: PageRequest, found: Sequence[RegisteredDefinition]) -> Element:
    """Return what the list can be narrowed to, with how many there are of each kind."""
    each = ((kind, kind, sum(ID_KINDS[one.kind] == kind for one in found)) for kind in KINDS)
    return chips(asked, "kind", [(None, "All", len(found)), *each])


def list_of(asked: PageRequest, found: Sequence[RegisteredDefinition]) -> Element:
    """Return the definitions."""
    kind = asked.filter("kind")
    shown = [each for each in found if kind in (None, ID_KINDS[each.kind])]
    if not shown:
        hint = "vigil actors apply and vigil workflows apply bring some; code needs none."
        return card("None", nothing("Nothing is defined as data.", hint))
    return card(
        "By name",
        rows_of(
            CELLS,
            [
                (
                    titled(place("definitions", ID_KINDS[each.kind], each.id), each.id),
                    ID_KINDS[each.kind],
                    _state(each.holds),
                    str(each.revision),
                )
                for each in shown
            ],
            keys=[f"{each.kind}.{each.id}" for each in shown],
        ),
        beside=many(len(shown), "definition"),
    )


def _state(holds: bool) -> Element:  # noqa: FBT001 - the one thing that it says
    return pill("applied" if holds else "disabled")


async def draw_one(client: Client, asked: PageRequest) -> Drawn:
    """Read a definition, what has changed, and what nodes make of it, and draw them."""
    kind, id_ = asked.words["kind"], asked.words["id"]
    entries = [*reversed(await client.definitions.history(kind, id_))]
    latest = entries[0]
    holds = latest.change == "applied"
    since, until = _compared(asked, entries)
    lines = (
        await client.definitions.diff(kind, id_, since=since, revision=until)
        if since is not None
        else ()
    )
    text = await client.definitions.text(kind, id_)
    return Drawn(
        title=id_,
        beside=fragment[_state(holds), small[f"{kind}, revision {latest.revision}"]],
        parts={
            "facts": figures(entries, asked),
            "diff": compared(asked, entries, since, until, lines),
            "history": history(entries, asked),
            "rollout": rollout(await _actor(client, kind, id_)),
            "actions": actions(kind, latest, asked) if holds else None,
            "text": card(
                "As it is" if holds else "As it was",
                fold("Definition", value(text), key="text"),
                fold("As a command", value(f"vigil {kind}s definition {id_}"), key="command"),
            ),
        },
        side=("rollout", "actions", "text"),
        up=("/definitions", "Definitions"),
    )


async def _actor(client: Client, kind: str, id_: str) -> ActorSummary | None:
    if kind != "actor":
        return None
    try:
        return (await client.actors.get(id_)).summary
    except NotFound:
        return None


def _compared(
    asked: PageRequest, entries: Sequence[DefinitionEntry]
) -> tuple[int | None, int | None]:
    """Return the revisions that are compared: those of the filters, or the last two."""
    numbers = [each.revision for each in entries if each.change == "applied"]
    since, until = _number(asked, "from"), _number(asked, "to")
    if until is None:
        until = numbers[0] if numbers else None
    if since is None:
        earlier = [each for each in numbers if until is not None and each < until]
        since = earlier[0] if earlier else None
    return since, until


def _number(asked: PageRequest, name: str) -> int | None:
    text = asked.filter(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise Mistake(f"{name}: {text!r} is no revision, a whole number")
    return int(text)


def figures(entries: Sequence[DefinitionEntry], asked: PageRequest) -> Element:
    """Return who changed a definition last."""
    latest = entries[0]
    return facts(
        [
            ("Revision", str(latest.revision)),
            ("Changes", str(len(entries))),
            ("Last change", when(latest.at, asked.now)),
            ("By", latest.person),
        ]
    )


def compared(
    asked: PageRequest,
    entries: Sequence[DefinitionEntry],
    since: int | None,
    until: int | None,
    lines: Sequence[str],
) -> Node:
    """Return what differs between two revisions, and the form that chooses others."""
    numbers = sorted({each.revision for each in entries}, reverse=True)[:REVISIONS_MAX]
    if since is None or until is None:
        return None
    options = [(str(each), f"revision {each}") for each in numbers]
    return card(
        "What has changed",
        form(".row.pad", method="get", action=asked.path)[
            choice("from", "From", options, str(since)),
            choice("to", "To", options, str(until)),
            button(type="submit")["Compare"],
        ],
        div(".pad")[pre(".diff", tabindex="0")[([_line(each), "\n"] for each in lines)]]
        if lines
        else nothing("They are the same."),
        beside=f"revision {since} → {until}",
    )


def _line(text: str) -> Node:
    """Return a line of a difference, with what was and what is marked."""
    if text.startswith("+"):
        return ins[text]
    if text.startswith("-"):
        return del_[text]
    before, arrow, after = text.partition(ARROW)
    path, colon, old = before.partition(": ")
    return [path, colon, del_[old], arrow, ins[after]] if arrow and colon else text


def history(entries: Sequence[DefinitionEntry], asked: PageRequest) -> Element:
    """Return who applied or disabled a definition, when and why, the latest first."""
    return card(
        "History",
        ol(".changes")[(_change(each, asked) for each in entries[:REVISIONS_MAX])],
        beside=many(len(entries), "change"),
    )


def _change(entry: DefinitionEntry, asked: PageRequest) -> Element:
    hue, drawn = look("applied" if entry.change == "applied" else "disabled")
    others = asked.link(**{"from": str(entry.revision - 1), "to": str(entry.revision)})
    return li(class_=hue, data_key=f"{entry.journal_seq}.{entry.event_no}")[
        span(".dot")[icon(drawn)],
        div[
            p[
                strong[f"{entry.change.capitalize()}, revision {entry.revision}"],
                f" by {entry.person} ",
                small[when(entry.at, asked.now)],
            ],
            entry.reason and p[entry.reason],
            small[a(href=others)[many(len(entry.difference), "difference")]]
            if entry.difference and entry.revision > 1 and entry.change == "applied"
            else None,
        ],
    ]


def rollout(actor: ActorSummary | None) -> Node:
    """Return which nodes have which revision of an actor, and which cannot run it."""
    if actor is None or not (actor.revisions or actor.problems):
        return None
    return card(
        "Nodes",
        listed(
            [
                *(
                    fragment[
                        div[span[node]],
                        pill("up", f"revision {revision}" if revision else "in its code"),
                    ]
                    for node, revision in actor.revisions.items()
                ),
                *(
                    fragment[div[span[node], small[why]], pill("problem")]
                    for node, why in actor.problems.items()
                ),
            ]
        ),
    )


def actions(kind: str, latest: DefinitionEntry, asked: PageRequest) -> Node:
    """Return the form that disables a definition."""
    if not may_order(asked):
        return None
    return card(
        "Disable it",
        p(".muted")["Open episodes go on, and new events wait, until it is applied again."],
        act(
            "definitions.disable",
            "Disable",
            {"kind": kind, "id": latest.definition_id, "if_revision": latest.revision},
            why_field(),
            is_danger=True,
        ),
        is_padded=True,
    )


SCREEN: Final = Screen(path="/definitions", draw=draw, section="/definitions", filters=("kind",))

ONE: Final = Screen(
    path="/definitions/{kind}/{id}", draw=draw_one, section="/definitions", filters=("from", "to")
)
