"""What the API says when something is wrong: problem details (RFC 9457), one kind for each error.

    urn:vigil:problem:mistake              422   change the request
    urn:vigil:problem:not-found            404   look which there are
    urn:vigil:problem:trouble              409   look at what has happened
    urn:vigil:problem:past-lost            409   a person decides how to go on
    urn:vigil:problem:events-missed        410   go on past them, or with what is kept
    urn:vigil:problem:stack-not-found      503   start a node, and make the same request again
    urn:vigil:problem:server-away          503   make the same request again
    urn:vigil:problem:malformed            400   change what cannot be read
    urn:vigil:problem:unsigned             401   sign in, come with a token, or sign the body
    urn:vigil:problem:forbidden            403   somebody else may
    urn:vigil:problem:no-such-path         404   look at the OpenAPI document
    urn:vigil:problem:method-not-allowed   405   take a method of the header `Allow`
    urn:vigil:problem:too-large            413   send less
    urn:vigil:problem:not-json             415   send `application/json`
    urn:vigil:problem:too-many-streams     429   close one, or come again
    urn:vigil:problem:internal             500   tell those who run it; the log has the error

The last part never changes: programs tell errors apart by it. `detail` is for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vigil.errors import (
    EventsMissed,
    Mistake,
    NotFound,
    PastLost,
    ServerAway,
    StackNotFound,
    VigilError,
)

MEDIA_TYPE: Final = "application/problem+json"

UNEXPECTED: Final = "an error that nobody expected; the log of the console has it"

RETRY_AFTER_S: Final = 5
"""When to come again after a server was away, in seconds."""

HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}
"""Of every answer."""


class ProblemKind(msgspec.Struct, frozen=True):
    """A kind of problem."""

    name: str
    status: int
    title: str

    @property
    def urn(self) -> str:
        """What programs tell it by."""
        return f"urn:vigil:problem:{self.name}"


MISTAKE: Final = ProblemKind("mistake", 422, "It cannot work as it was asked for")
NOT_FOUND: Final = ProblemKind("not-found", 404, "There is no such thing")
TROUBLE: Final = ProblemKind("trouble", 409, "The state of the stack does not allow it")
PAST_LOST: Final = ProblemKind("past-lost", 409, "A stream of the stack has lost its past")
EVENTS_MISSED: Final = ProblemKind(
    "events-missed", 410, "Events were removed before they were read"
)
STACK_NOT_FOUND: Final = ProblemKind("stack-not-found", 503, "Nobody has made the stack")
SERVER_AWAY: Final = ProblemKind("server-away", 503, "NATS or Postgres does not answer")
MALFORMED: Final = ProblemKind("malformed", 400, "The request cannot be read")
UNSIGNED: Final = ProblemKind("unsigned", 401, "Nobody knows who asks")
FORBIDDEN: Final = ProblemKind("forbidden", 403, "Who asks may not")
NO_SUCH_PATH: Final = ProblemKind("no-such-path", 404, "The API has no such path")
METHOD: Final = ProblemKind("method-not-allowed", 405, "The path has no such method")
TOO_LARGE: Final = ProblemKind("too-large", 413, "The body is too large")
NOT_JSON: Final = ProblemKind("not-json", 415, "The body is of another type")
TOO_MANY_STREAMS: Final = ProblemKind("too-many-streams", 429, "Too many streams are open")
INTERNAL: Final = ProblemKind("internal", 500, "Something is broken")

KINDS: Final[Sequence[ProblemKind]] = (
    *(MISTAKE, NOT_FOUND, TROUBLE, PAST_LOST, EVENTS_MISSED, STACK_NOT_FOUND, SERVER_AWAY),
    *(MALFORMED, UNSIGNED, FORBIDDEN, NO_SUCH_PATH, METHOD, TOO_LARGE, NOT_JSON),
    *(TOO_MANY_STREAMS, INTERNAL),
)

_OF_ERRORS: Final[Sequence[tuple[type[VigilError], ProblemKind]]] = (
    (Mistake, MISTAKE),
    (NotFound, NOT_FOUND),
    (StackNotFound, STACK_NOT_FOUND),
    (ServerAway, SERVER_AWAY),
    (EventsMissed, EVENTS_MISSED),
    (PastLost, PAST_LOST),
    (VigilError, TROUBLE),
)


class FieldProblem(msgspec.Struct, frozen=True):
    """What is wrong with a field."""

    field: str
    says: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    """What is wrong with this request, in one line for people."""
    remedy: str = ""
    """What to do about it, as far as that is known."""
    errors: tuple[FieldProblem, ...] = ()
    """The fields that are wrong."""
    needs: dict[str, str] = {}
    """What who asks lacks: `role`, `scope`, or that it is a `person`."""


class ProblemRaised(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        *,
        remedy: str = "",
        field: str = "",
        needs: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.headers = kind, dict(headers or {})
        self.problem = Problem(
            type=kind.urn,
            title=kind.title,
            status=kind.status,
            detail=detail,
            remedy=remedy,
            errors=(FieldProblem(field, detail),) if field else (),
            needs=dict(needs or {}),
        )


def refusal_of(error: VigilError) -> ProblemRaised:
    """Return the refusal that an error of the client is told as."""
    kind = next(kind for type_, kind in _OF_ERRORS if isinstance(error, type_))
    is_away = kind in (STACK_NOT_FOUND, SERVER_AWAY)
    headers = {"retry-after": str(RETRY_AFTER_S)} if is_away else {}
    return ProblemRaised(kind, str(error), remedy=error.remedy, headers=headers)


def answer_of(refusal: ProblemRaised) -> Response:
    """Return the answer that tells of a refusal."""
    return Response(
        msgspec.json.encode(refusal.problem),
        status_code=refusal.kind.status,
        media_type=MEDIA_TYPE,
        headers={**HEADERS, **refusal.headers},
    )


async def answer_unexpected(_: Request, __: Exception) -> Response:
    """Answer an error that nobody expected, without a word of it: the log has that.

    For the app: the handler of `Exception` for the paths of the API.
    """
    return answer_of(ProblemRaised(INTERNAL, UNEXPECTED))
