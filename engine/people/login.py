"""The sign-ins of one person: sessions, when they are over, and how often one may guess. Pure.

Each commit begins with all that counts of those before it (`LoginKept`), so only the newest is ever
read, however often somebody has signed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.people.secret import Secret
from streams.model.events import (
    LoginEvent,
    LoginKept,
    SessionBegun,
    SessionEnded,
    SessionUsed,
    SignInRefused,
)
from streams.model.people import LoginSession
from streams.ports.log import Recorded

IDLE_MAX: Final = timedelta(hours=12)
"""A session is over when it was not used for so long."""

SESSION_MAX: Final = timedelta(days=7)
"""A session is over after so long, however much it is used."""

USED_NOTED: Final = timedelta(minutes=30)
"""How often it is noted that a session is used: it may be over by so much early, never late."""

SESSIONS_MAX: Final = 10
"""Sessions of a person at a time; one more ends the one that was used the longest ago."""

REFUSED_MAX: Final = 20
"""Wrong passwords for one name within `REFUSED_WITHIN`; then no password is right for that long."""

REFUSED_WITHIN: Final = timedelta(minutes=5)


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """The sign-ins of one person, as far as they count."""

    name: str
    sessions: tuple[LoginSession, ...] = ()
    """In the order in which they began."""
    refused_at: tuple[datetime, ...] = ()
    """When a wrong password was given, since the last right one."""

    def session_of(self, secret: Secret) -> LoginSession | None:
        """Return the session of a secret; None: it has ended, or never was."""
        found = None
        for each in self.sessions:  # Each is compared, so that the time tells nothing.
            if secret.fits(each.secret_hash):
                found = each
        return found


def is_over(session: LoginSession, at: datetime) -> bool:
    """Return whether a session is over by time."""
    is_idle = at - session.used_at >= IDLE_MAX  # guard: idle-session-over
    return is_idle or at >= session.expires_at  # guard: old-session-over


def is_throttled(login: Login, at: datetime) -> bool:
    """Return whether so many wrong passwords were given that none is looked at for now."""
    return len(_counting(login, at)) >= REFUSED_MAX


def begin(login: Login, session: LoginSession) -> list[LoginEvent]:
    """Return what is to be noted of a new session."""
    live = [each for each in login.sessions if not is_over(each, session.begun_at)]
    live.sort(key=lambda each: each.used_at, reverse=True)
    reason = f"there may be {SESSIONS_MAX} sessions at a time"
    surplus = live[SESSIONS_MAX - 1 :]  # guard: sessions-max
    ended: list[LoginEvent] = [
        SessionEnded(name=login.name, session_id=each.id, by=login.name, reason=reason)
        for each in surplus
    ]
    return [*ended, SessionBegun(name=login.name, session=session)]


def refuse(login: Login, at: datetime, *, address: str, agent: str) -> list[LoginEvent]:
    """Return what is to be noted of a wrong password; nothing once no password is looked at."""
    if is_throttled(login, at):  # guard: refusals-noted-max
        return []
    return [SignInRefused(name=login.name, address=address, agent=agent)]


def use(login: Login, session_id: str, at: datetime) -> list[LoginEvent]:
    """Return what is to be noted when a session is used: now and then that it is."""
    for each in login.sessions:
        if each.id == session_id and at - each.used_at >= USED_NOTED and not is_over(each, at):
            return [SessionUsed(name=login.name, session_id=session_id)]
    return []


def end(
    login: Login, at: datetime, *, session_id: str | None, by: str, reason: str
) -> list[LoginEvent]:
    """Return what is to be noted when a session is to end, or all of them (None)."""
    return [
        SessionEnded(name=login.name, session_id=each.id, by=by, reason=reason)
        for each in login.sessions
        if session_id in (None, each.id) and not is_over(each, at)
    ]


def noted(login: Login, events: Sequence[LoginEvent], at: datetime) -> Sequence[LoginEvent]:
    """Return the events of a commit: what counts of the past, then what is new; nothing of nothing.

    What is over by time is left out, so a commit does not grow with the years.
    """
    if not events:
        return ()
    kept = LoginKept(
        name=login.name,
        sessions=tuple(each for each in login.sessions if not is_over(each, at)),
        refused_at=_counting(login, at),
    )
    return kept, *events


def evolve(login: Login, event: LoginEvent, *, at: datetime) -> Login:
    """Return the sign-ins after an event that was noted at a time."""
    match event:
        case LoginKept(sessions=sessions, refused_at=refused_at):
            return replace(login, sessions=sessions, refused_at=refused_at)
        case SessionBegun(session=session):
            return replace(login, sessions=(*login.sessions, session), refused_at=())
        case SessionUsed(session_id=id_):
            used = (
                replace(each, used_at=at) if each.id == id_ else each for each in login.sessions
            )
            return replace(login, sessions=tuple(used))
        case SessionEnded(session_id=id_):
            left = tuple(each for each in login.sessions if each.id != id_)
            return replace(login, sessions=left)
        case SignInRefused():
            return replace(login, refused_at=(*login.refused_at, at))


def fold(records: Sequence[Recorded], *, name: str) -> Login:
    """Return the sign-ins of somebody; of all commits the newest is enough."""
    login = Login(name=name)
    for record in records:
        for event in record.commit.events:
            if isinstance(event, LoginEvent):
                login = evolve(login, event, at=record.commit.at)
    return login


def _counting(login: Login, at: datetime) -> tuple[datetime, ...]:
    return tuple(each for each in login.refused_at if at - each < REFUSED_WITHIN)
