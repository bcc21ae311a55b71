"""The read models of people: who there is, the tokens, and who has done what about them. Pure.

No row has a secret, and none has the hash of one: who may read the tables learns nothing to sign in
with, or to guess at.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, get_args

from projections.rows import Row, RowChange, Statement, events_of, key, kind_of
from streams.model.events import (
    GroupsSet,
    IdentityLinked,
    LinkEvent,
    LinkIssued,
    LinkUsed,
    LoginEvent,
    LoginKept,
    PasswordSet,
    PersonAdded,
    PersonEvent,
    PersonRemoved,
    RoleSet,
    RosterEvent,
    SessionBegun,
    SessionEnded,
    SessionUsed,
    SignInRefused,
    TokenEvent,
    TokenIssued,
    TokenRevoked,
    ViewsSaved,
)
from streams.ports.log import Recorded

ADD: Final = Statement(name="add_people", table="people", keys=("name",))

CHANGE: Final = Statement(name="change_people", table="people", keys=("name",))

ISSUE: Final = Statement(name="issue_tokens", table="tokens", keys=("token_id",))

REVOKE: Final = Statement(name="revoke_tokens", table="tokens", keys=("token_id",))

RECORD: Final = Statement(
    name="record_audit", table="audit", keys=("person_key", "journal_seq", "event_no")
)

_EVENTS: Final[frozenset[type[PersonEvent]]] = frozenset(get_args(PersonEvent))


class PersonChange(Row, kw_only=True):
    """One row of `sql/change_people.sql`: what is left out stays."""

    name: str
    journal_seq: int
    role: str | None = None
    groups: tuple[str, ...] | None = None
    has_password: bool | None = None
    issuer: str | None = None
    subject: str | None = None
    removed_at: datetime | None = None
    removed_by: str | None = None


class PersonRow(PersonChange, kw_only=True):
    """One row of `sql/add_people.sql`: the person as last added, and what followed."""

    added_at: datetime
    added_by: str


class TokenChange(Row, kw_only=True):
    """One row of `sql/revoke_tokens.sql`."""

    token_id: str
    journal_seq: int
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    revoked_reason: str | None = None


class TokenRow(TokenChange, kw_only=True):
    """One row of `sql/issue_tokens.sql`."""

    name: str
    role: str
    scopes: tuple[str, ...] | None
    is_agent: bool
    owner: str | None
    issued_at: datetime
    issued_by: str
    issued_reason: str | None
    expires_at: datetime


class AuditRow(Row, kw_only=True):
    """One row of `sql/record_audit.sql`."""

    person_key: str
    journal_seq: int
    event_no: int
    change: str
    at: datetime
    person: str
    name: str
    reason: str | None = None
    role: str | None = None
    groups: tuple[str, ...] | None = None
    token_id: str | None = None
    session_id: str | None = None
    way: str | None = None
    address: str | None = None
    agent: str | None = None


class PeopleFold:
    """The fold of some consecutive commits of one aggregate: all people, a login, or a token."""

    def __init__(self, aggregate: str) -> None:
        self._key = key(aggregate)
        self._people: dict[str, PersonChange] = {}
        self._tokens: dict[str, TokenChange] = {}
        self._audit: list[AuditRow] = []

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it is not about people, and is left out."""
        events = events_of(record, _EVENTS, whose="people")
        for event_no, event in enumerate(events):
            if isinstance(event, RosterEvent):
                self._note_person(event, record)
            elif isinstance(event, TokenEvent):
                self._note_token(event, record)
            if not isinstance(event, LoginKept | SessionUsed | ViewsSaved):
                self._audit.append(self._audited(event, record, event_no=event_no))

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        for person in self._people.values():
            yield RowChange(ADD if isinstance(person, PersonRow) else CHANGE, person)
        for token in self._tokens.values():
            yield RowChange(ISSUE if isinstance(token, TokenRow) else REVOKE, token)
        for row in self._audit:
            yield RowChange(RECORD, row)

    def _note_person(self, event: RosterEvent, record: Recorded) -> None:
        name, at = key(event.name), record.commit.at
        if isinstance(event, PersonAdded):
            self._people[name] = PersonRow(
                name=name,
                journal_seq=record.seq,
                role=event.role.value,
                groups=event.groups,
                has_password=False,
                added_at=at,
                added_by=event.by,
            )
            return
        row = self._people.setdefault(name, PersonChange(name=name, journal_seq=record.seq))
        row.journal_seq = record.seq
        match event:
            case PersonRemoved(by=by):
                row.removed_at, row.removed_by = at, by
            case RoleSet(role=role):
                row.role = role.value
            case GroupsSet(groups=groups):
                row.groups = groups
            case PasswordSet():
                row.has_password = True
            case IdentityLinked(issuer=issuer, subject=subject):
                row.issuer, row.subject = issuer, subject

    def _note_token(self, event: TokenEvent, record: Recorded) -> None:
        id_ = key(event.id)
        match event:
            case TokenIssued():
                self._tokens[id_] = TokenRow(
                    token_id=id_,
                    journal_seq=record.seq,
                    name=event.name,
                    role=event.role.value,
                    scopes=event.scopes,
                    is_agent=event.is_agent,
                    owner=event.owner or None,
                    issued_at=record.commit.at,
                    issued_by=event.by,
                    issued_reason=event.reason or None,
                    expires_at=event.expires_at,
                )
            case TokenRevoked():
                change = TokenChange(token_id=id_, journal_seq=record.seq)
                row = self._tokens.setdefault(id_, change)
                row.journal_seq, row.revoked_at = record.seq, record.commit.at
                row.revoked_by, row.revoked_reason = event.by, event.reason or None

    def _audited(self, event: PersonEvent, record: Recorded, *, event_no: int) -> AuditRow:
        row = AuditRow(
            person_key=self._key,
            journal_seq=record.seq,
            event_no=event_no,
            change=kind_of(type(event)).removeprefix("person_"),
            at=record.commit.at,
            person="",
            name="",
        )
        if isinstance(event, RosterEvent):
            _describe_person(row, event)
        elif isinstance(event, LoginEvent):
            _describe_login(row, event)
        elif isinstance(event, TokenEvent | LinkEvent):
            _describe_token(row, event)
        return row


def _describe_person(row: AuditRow, event: RosterEvent) -> None:
    row.name, row.person, row.reason = event.name, event.by, event.reason or None
    if isinstance(event, PersonAdded | RoleSet):
        row.role = event.role.value
    if isinstance(event, PersonAdded | GroupsSet):
        row.groups = event.groups


def _describe_login(row: AuditRow, event: LoginEvent) -> None:
    row.name = row.person = event.name
    match event:
        case SessionBegun(session=session):
            row.session_id, row.way = session.id, session.way.value
            row.address, row.agent = session.address or None, session.agent or None
            row.role = None if session.role is None else session.role.value
        case SessionEnded(session_id=id_, by=by, reason=reason):
            row.session_id, row.person, row.reason = id_, by, reason or None
        case SignInRefused(address=address, agent=agent):
            row.address, row.agent = address or None, agent or None
        case SessionUsed() | LoginKept():
            pass


def _describe_token(row: AuditRow, event: TokenEvent | LinkEvent) -> None:
    row.token_id, row.name = event.id, event.name
    match event:
        case TokenIssued(by=by, role=role, reason=reason):
            row.person, row.role, row.reason = by, role.value, reason or None
        case TokenRevoked(by=by, reason=reason):
            row.person, row.reason = by, reason or None
        case LinkIssued(by=by, role=role):
            row.person, row.role = by, role.value
        case LinkUsed(address=address, agent=agent):
            row.person = event.name
            row.address, row.agent = address or None, agent or None
