"""People and tokens: who may do what, and what happened about that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from htpy import Element, Node, div, li, p, small, ul

from engine.people.identity import Role
from projections.records import AuditEntry, TokenSummary
from vigil.client import Client
from vigil.client.page import Page
from vigil.client.stack.people import PersonRecord
from vigil.web.drawing.parts import (
    Cell,
    act,
    card,
    choice,
    field,
    fold,
    nothing,
    pager,
    pill,
    rows_of,
    titled,
    when,
)
from vigil.web.screen import Drawn, PageRequest, Screen, address

AUDIT_ROWS: Final = 25

ROLES: Final = [(each.value, each.value) for each in Role]

PEOPLE: Final = (
    Cell("Who", is_main=True),
    Cell("Role"),
    Cell("Signs in by", is_spare=True),
    Cell("Since", is_number=True),
)
TOKENS: Final = (
    Cell("Token", is_main=True),
    Cell("Role"),
    Cell("Until", is_number=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read who may do what, and draw it."""
    people = await client.people.list()
    tokens = await client.tokens.list(is_good=True)
    audit = await client.people.audit(
        name=asked.filter("name"), after=asked.filter("after"), limit=AUDIT_ROWS
    )
    return Drawn(
        title="People",
        parts={
            "people": listed(people, asked),
            "tokens": programs(tokens.items, asked),
            "audit": happened(audit, asked),
            "add": adding(),
        },
        side=("add",),
    )


def listed(people: Sequence[PersonRecord], asked: PageRequest) -> Element:
    """Return all people."""
    if not people:
        return card("People", nothing("Nobody has a password yet.", "Add the first admin here."))
    return card(
        "People",
        rows_of(PEOPLE, [_person(each, asked) for each in people], keys=[e.name for e in people]),
        [_changing(each) for each in people],
        beside=f"{len(people)} may sign in",
    )


def _person(each: PersonRecord, asked: PageRequest) -> tuple[Node, ...]:
    ways = ["password"] if each.has_password else []
    ways += [each.issuer] if each.issuer else []
    groups = ", ".join(each.groups)
    return (
        titled(address("/people", name=each.name), each.name, groups and f"in {groups}"),
        each.role.value,
        ", ".join(ways) or "nothing yet",
        when(each.added_at, asked.now),
    )


def _changing(each: PersonRecord) -> Element:
    named = {"name": each.name, "back": "/people"}
    return fold(
        f"Change {each.name}",
        div(".form")[
            act("people.set_role", "Set role", named, choice("role", "Role", ROLES, each.role)),
            act("people.end_sessions", "End all sessions", named),
            act("people.remove", "Remove", named, field("reason", "Why"), is_danger=True),
        ],
        key=f"change-{each.name}",
    )


def adding() -> Element:
    """Return the form for somebody new, who gets a password by the command line."""
    return card(
        "Add somebody",
        act(
            "people.add",
            "Add",
            {"back": "/people"},
            field("name", "Name", required=True),
            choice("role", "Role", ROLES, Role.VIEWER),
            is_tall=True,
            is_primary=True,
        ),
        p(".pad.muted")[
            "Who has no login elsewhere is given a password by vigil users password NAME."
        ],
    )


def programs(tokens: Sequence[TokenSummary], asked: PageRequest) -> Element:
    """Return the tokens of programs."""
    if not tokens:
        return card("Tokens", nothing("No program has a token.", "Issue one: vigil tokens issue."))
    return card(
        "Tokens",
        rows_of(
            TOKENS, [_token(each, asked) for each in tokens], keys=[e.token_id for e in tokens]
        ),
        [
            fold(
                f"Revoke {each.name}",
                div(".form")[
                    act(
                        "tokens.revoke",
                        "Revoke",
                        {"token_id": each.token_id, "back": "/people"},
                        field("reason", "Why"),
                        is_danger=True,
                    )
                ],
                key=f"revoke-{each.token_id}",
            )
            for each in tokens
        ],
    )


def _token(each: TokenSummary, asked: PageRequest) -> tuple[Node, ...]:
    scopes = ", ".join(sorted(each.scopes)) if each.scopes is not None else "all of its role"
    said = f"{each.token_id} · {scopes}" + (" · an agent's" if each.is_agent else "")
    return (
        titled(address("/people", name=each.name), each.name, said),
        each.role,
        when(each.expires_at, asked.now),
    )


def happened(audit: Page[AuditEntry], asked: PageRequest) -> Element:
    """Return who did what about people, sign-ins and tokens, the latest first."""
    if not audit.items:
        return card("What happened", nothing("Nothing yet."))
    return card(
        "What happened",
        ul(".list")[
            (
                li(data_key=f"{each.journal_seq}.{each.event_no}")[
                    div[
                        f"{each.name or each.token_id or ''}: {each.change.replace('_', ' ')}",
                        small[_details(each), " · ", when(each.at, asked.now)],
                    ],
                    pill("failed", "refused") if each.change == "sign_in_refused" else None,
                ]
                for each in audit.items
            )
        ],
        pager(asked, audit.next),
        beside=asked.filter("name"),
    )


def _details(each: AuditEntry) -> str:
    said = (
        each.person and f"by {each.person}",
        each.role,
        each.way,
        each.address and f"from {each.address}",
        each.reason,
    )
    return " · ".join(part for part in said if part)


SCREEN: Final = Screen(
    path="/people",
    draw=draw,
    section="/people",
    role=Role.ADMIN,
    is_live=False,
    filters=("name", "after"),
)
