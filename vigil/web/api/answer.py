"""Answering a request: who asks, what is asked, the call, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.people.identity import Identity, meant_by
from vigil.client.client import Client
from vigil.errors import ServerAway, VigilError, told
from vigil.web.api.asking import JSON, asked_of
from vigil.web.api.operation import AnyOperation, ApiRequest
from vigil.web.api.problems import (
    FORBIDDEN,
    HEADERS,
    UNSIGNED,
    ProblemRaised,
    answer_of,
    refusal_of,
)

CHALLENGE: Final = {"www-authenticate": 'Bearer realm="vigil"'}
"""What an answer to nobody has."""


async def answer(operation: AnyOperation, request: Request, path: Mapping[str, str]) -> Response:
    """Return the answer to a request for `operation`."""
    return await or_problem(_done(operation, request, path))


async def or_problem(made: Awaitable[Response]) -> Response:
    """Return an answer, or the problem that it is refused with."""
    try:
        with told():
            return await made
    except ProblemRaised as refused:
        return answer_of(refused)
    except VigilError as error:
        return answer_of(refusal_of(error))


async def _done(operation: AnyOperation, request: Request, path: Mapping[str, str]) -> Response:
    identity = identity_of(request)
    require(operation, identity)
    asked = await asked_of(operation, request, path)
    return json_of(await carry_out(operation, client_of(request), asked, identity))


async def carry_out(
    operation: AnyOperation, client: Client, asked: ApiRequest, identity: Identity
) -> object:
    """Return what came of what `identity` asks for, by whichever way: nothing else is done."""
    return await operation.call(client, meant_by(identity, asked), identity.name)


def identity_of(request: Request) -> Identity:
    """Return who asks; nobody is refused, and so is everybody while nobody can be recognized."""
    check_recognized(request)
    found: object = getattr(request.state, "identity", None)
    if not isinstance(found, Identity):  # guard: nobody-asks-nothing
        raise ProblemRaised(
            UNSIGNED,
            "nobody knows who asks",
            remedy="sign in, or come with `Authorization: Bearer TOKEN`",
            headers=CHALLENGE,
        )
    return found


def check_recognized(request: Request) -> None:
    """Refuse for now what comes while the server that knows who asks is away: come again."""
    away: str = getattr(request.state, "away", "")
    if away:  # guard: away-is-not-unknown
        raise refusal_of(ServerAway(away))


def client_of(request: Request) -> Client:
    """Return the client of the process."""
    client: Client = request.state.client
    return client


def require(operation: AnyOperation, identity: Identity) -> None:
    """Refuse who may not ask for `operation`; the problem names what is needed."""
    if operation.of_people and not identity.is_person:  # guard: api-programs-decide-nothing
        raise ProblemRaised(
            FORBIDDEN,
            f"{operation.name}: only people may, and {identity.name} is a program",
            remedy="a person signs in and does it",
            needs={"person": "true"},
        )
    if not identity.role.includes(operation.role):  # guard: api-asks-for-role
        raise ProblemRaised(
            FORBIDDEN,
            f"{operation.name} takes the role {operation.role}; {identity.name} is {identity.role}",
            needs={"role": operation.role},
        )
    if not identity.may(operation.role, operation.scope):  # guard: api-asks-for-scope
        raise ProblemRaised(
            FORBIDDEN,
            f"{operation.name} takes a token with the scope {operation.scope}",
            needs={"scope": operation.scope},
        )


def json_of(value: object, *, status: int = 200) -> Response:
    """Return an answer with `value` as JSON."""
    body = msgspec.json.encode(value)
    return Response(body, status_code=status, media_type=JSON, headers=dict(HEADERS))
