"""Who calls, from which program, what that one may do, and how often. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

import msgspec

from engine.people.identity import Identity, Role
from engine.validation import REASON_CHARS_MAX

READ: Final = "read"
"""The scope of tools that change nothing."""

ACT: Final = "act"
"""The scope of tools that publish, fire or cancel something."""

LOCAL: Final = "local"
"""The id of the token of who has started the server: a program at that person's machine."""

CALLS_PER_MINUTE_MAX: Final = 120
"""Most requests of one caller in a minute that read or change something. A task that is looked at
every second leaves room for as many other calls."""

MINUTE_S: Final = 60.0

CALLERS_MAX: Final = 1_000
"""Most callers whose requests are counted at a time; of more, the oldest are forgotten."""

CLIENT_CHARS_MAX: Final = 64
"""Longest name of a client that is kept."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and from which program."""

    identity: Identity
    client: str = ""
    """What the program calls itself, with its version; empty: it does not say."""

    @property
    def may_read(self) -> bool:
        """Whether it may look at the stack."""
        return self.identity.may(Role.VIEWER, READ)

    @property
    def may_act(self) -> bool:
        """Whether it may change something."""
        return self.may_read and self.identity.may(Role.OPERATOR, ACT)

    def because(self, reason: str) -> str:
        """Return `reason` with the program that gives it, as it is kept with what is done."""
        through = ", ".join(
            word
            for word in ("by MCP", self.client, f"token {self.identity.token}")
            if word and word != "token "
        )
        return f"{reason} ({through})".lstrip()[:REASON_CHARS_MAX]


def scopes_of(caller: Caller) -> list[str]:
    """Return the scopes that a caller has, as a token of the protocol says them."""
    found = {READ: caller.may_read, ACT: caller.may_act}
    return [scope for scope, has in found.items() if has]


def local_identity(user: str, allows: Collection[str] = (), *, is_agent: bool = False) -> Identity:
    """Return who a server is that a person has started, which may read, and what `allows` says."""
    return Identity(
        name=user,
        role=Role.OPERATOR,
        token=LOCAL,
        scopes=frozenset({READ, *allows}),
        is_agent=is_agent,
    )


def named_client(name: str, version: str) -> str:
    """Return what a program calls itself, in one short line."""
    return " ".join(f"{name} {version}".split())[:CLIENT_CHARS_MAX]


class CallRate:
    """Counts the requests of each caller, minute by minute."""

    def __init__(self, per_minute: int = CALLS_PER_MINUTE_MAX) -> None:
        self.per_minute = per_minute
        self._counted: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_s(self, who: str, *, now_s: float) -> float:
        """Count a request of `who`; return how long to wait first, in seconds, 0: not at all."""
        since_s, count = self._counted.get(who, (now_s, 0))
        if now_s - since_s >= MINUTE_S:
            self._counted.pop(who, None)
            since_s, count = now_s, 0
        if count >= self.per_minute:  # guard: calls-per-minute-capped
            return MINUTE_S - (now_s - since_s)
        self._counted[who] = since_s, count + 1
        while len(self._counted) > CALLERS_MAX:
            self._counted.popitem(last=False)
        return 0.0
