"""The table `[oidc]` of `vigil.toml`: who vouches for people, and what its claims mean here. Pure.

[oidc]
issuer = "https://id.example.com"
client_id = "vigil"
client_secret = "env:VIGIL_OIDC_SECRET"
default_role = "viewer"

[oidc.roles]
"vigil-admins" = "admin"

[oidc.groups]
"SRE On-Call" = "oncall"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from engine.errors import BadRequest
from engine.people.identity import Role, role_of
from engine.people.names import groups_of
from engine.people.vouched import Vouched
from engine.validation import Strict, wrong
from streams.json import JsonObject, value_at
from vigil.errors import NotSignedIn

NAMED_MAX: Final = 1_000
"""Most groups that the provider has and the table names."""

CLAIM_GROUPS_MAX: Final = 10_000
"""Most groups of a person at the provider that are looked at."""

SUBJECT_CHARS_MAX: Final = 255
"""Longest subject, in characters, by OpenID Connect Core, section 2."""

LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class OidcSpec(Strict):
    """The table, as the file has it."""

    issuer: str
    client_id: str = Field(min_length=1, max_length=1_000)
    client_secret: str = ""
    """`env:NAME` or `file:PATH`; empty: the provider knows the console as a public client."""
    label: str = "Sign in elsewhere"
    """What the button says."""
    scopes: tuple[str, ...] = Field(default=("openid", "profile", "email"), strict=False)
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    """A path such as `realm_access.roles`."""
    roles: dict[str, str] = Field(default_factory=dict, max_length=NAMED_MAX)
    """A group there → the role that it gives; of several the greatest counts."""
    groups: dict[str, str] = Field(default_factory=dict, max_length=NAMED_MAX)
    """A group there → what it is called here."""
    default_role: str = ""
    """Of who is in none of `roles`; empty: that one may not sign in, if there are any."""

    @field_validator("issuer")
    @classmethod
    def _is_address(cls, issuer: str) -> str:
        if problem := problem_of_url(issuer):
            raise ValueError(problem)
        return issuer

    @field_validator("scopes")
    @classmethod
    def _asks_for_identity(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError("write openid, too: without it the provider says nobody's name")
        return scopes

    @field_validator("roles")
    @classmethod
    def _are_roles(cls, roles: dict[str, str]) -> dict[str, str]:
        for group, role in roles.items():
            _check_role(role, group)
        return roles

    @field_validator("default_role")
    @classmethod
    def _is_role(cls, role: str) -> str:
        if role:
            _check_role(role, "")
        return role

    @field_validator("groups")
    @classmethod
    def _are_groups(cls, groups: dict[str, str]) -> dict[str, str]:
        for there, here in groups.items():
            try:
                groups_of([here])
            except BadRequest as error:
                raise wrong(there, error.problem) from error
        return groups


def _check_role(role: str, group: str) -> None:
    try:
        role_of(role)
    except BadRequest as error:
        raise (wrong(group, error.problem) if group else ValueError(error.problem)) from error


def problem_of_url(text: str) -> str:
    """Return why an address of the provider cannot be used, in words; empty: it can.

    What is not on this machine is asked by HTTPS alone: everything rests on its keys.
    """
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.fragment:
        return f"{text!r:.200} is no address"
    if parts.scheme == "http" and parts.hostname not in LOCAL:  # guard: provider-by-https
        return f"{text!r:.200} is not asked: write https"
    return ""


def vouched_by(spec: OidcSpec, claims: JsonObject) -> Vouched:
    """Return whom the claims of a checked token are about, as the table reads them.

    Raises `NotSignedIn` if that one may not sign in, or the token lacks a name.
    """
    subject, name = claims.get("sub"), value_at(claims, spec.name_claim)
    if not isinstance(subject, str) or not 1 <= len(subject) <= SUBJECT_CHARS_MAX:
        raise NotSignedIn("the provider has not said who you are", remedy="ask an admin")
    if not isinstance(name, str) or not name:
        says = f"the provider has said nothing of {spec.name_claim!r}"
        raise NotSignedIn(says, remedy="set name_claim of [oidc] to a claim that it has")
    theirs = _groups_in(value_at(claims, spec.groups_claim))
    return Vouched(
        issuer=spec.issuer,
        subject=subject,
        name=name,
        role=_role(spec, theirs),
        groups=_groups(spec.groups, theirs),
    )


def _role(spec: OidcSpec, theirs: Sequence[str]) -> Role | None:
    given = [Role(spec.roles[each]) for each in theirs if each in spec.roles]
    if given:
        return max(given, key=list(Role).index)
    if spec.default_role:
        return Role(spec.default_role)
    if spec.roles:  # guard: groupless-vouched-refused
        raise NotSignedIn("no group of yours has a role here", remedy="ask an admin")
    return None


def _groups(named: Mapping[str, str], theirs: Sequence[str]) -> tuple[str, ...] | None:
    return groups_of(named[each] for each in theirs if each in named) if named else None


def _groups_in(claim: object) -> list[str]:
    values = claim if isinstance(claim, list) else [claim]
    return [each for each in values[:CLAIM_GROUPS_MAX] if isinstance(each, str)]
