"""Forms of pages: each asks for an operation of the API, with the name of who has signed in.

A field that has JSON is called `payload:json`; `back` is the page to go on with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec
from msgspec.inspect import ListType, UnionType, VarTupleType
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from streams.json import UNDECODABLE
from vigil.asking.requests import CommandOutcome
from vigil.client.events import PublishReceipt
from vigil.errors import VigilError, one_line, told
from vigil.web.api.answer import carry_out, client_of, identity_of, require
from vigil.web.api.operation import AnyOperation, ApiRequest
from vigil.web.api.operations.people import SetDefaultView
from vigil.web.api.problems import MISTAKE, ProblemRaised
from vigil.web.api.table import OPERATIONS
from vigil.web.forms import read_form
from vigil.web.policy import came_from, local_path
from vigil.web.positions import wait_shown
from vigil.web.said import NOT_ALL_DONE, NOT_DONE, SAID, SAID_S, Said, quoted

JSON: Final = ":json"
BACK: Final = "back"

FORM: Final = "vigil-form"
"""The header of a form that a script sends."""

TO: Final = "vigil-to"
"""The header of the answer to it: the page to go on with."""
NEW_EPISODE: Final = "{episode_id}"
"""What stands in the address of a page for the id of the episode that a form opens."""

_BY_NAME: Final[Mapping[str, AnyOperation]] = {each.name: each for each in OPERATIONS}


async def do(request: Request) -> Response:
    """Carry out what a form asks for, and go on with the page that it names."""
    operation = _BY_NAME.get(request.path_params["operation"])
    if operation is None or operation.method == "GET":
        raise HTTPException(404, "there is no such operation")
    fields = await read_form(request)
    form = came_from(request)
    back = local_path(fields.pop(BACK, "") or form)
    try:
        asked, found = await _done(operation, fields, request)
        said = Said(in_words(operation, asked, found), problem_in(found))
        back = _led(back, found)
        await wait_shown(client_of(request))
    except ProblemRaised as refused:
        said, back = Said(str(refused), NOT_DONE), form
    except VigilError as error:
        said, back = Said(one_line(error), NOT_DONE), form
    # A script asks for the page itself, or leaves this one for it.
    is_script = FORM in request.headers
    response = Response(headers={TO: back}) if is_script else RedirectResponse(back, 303)
    response.set_cookie(SAID, quoted(said), max_age=SAID_S, httponly=True, samesite="strict")
    return response


async def _done(
    operation: AnyOperation, fields: Mapping[str, str], request: Request
) -> tuple[ApiRequest, object]:
    """Return what a form asks for, and what came of it."""
    identity = identity_of(request)
    require(operation, identity)
    asked = asked_of_form(operation, fields)
    with told():
        return asked, await carry_out(operation, client_of(request), asked, identity)


def _led(back: str, found: object) -> str:
    """Return the page to go on with, if it is that of an episode that has just been opened."""
    return back.replace(NEW_EPISODE, str(getattr(found, "episode_id", "")))


def asked_of_form(operation: AnyOperation, fields: Mapping[str, str]) -> ApiRequest:
    """Return what a form asks of an operation.

    Raises:
        ProblemRaised: a field is missing, unknown, or has what it cannot have.
    """
    given: dict[str, object] = {}
    lists = lists_of(operation.name)
    for name, text in fields.items():
        try:
            value = msgspec.json.decode(text) if name.endswith(JSON) else text
        except UNDECODABLE as error:
            field = name.removesuffix(JSON)
            raise ProblemRaised(MISTAKE, f"{field}: {text!r:.80} is no JSON") from error
        plain = name.removesuffix(JSON)
        given[plain] = [value] if plain in lists and isinstance(value, str) else value
    try:
        asked: ApiRequest = msgspec.convert(given, operation.asks, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemRaised(MISTAKE, str(error)) from error
    return asked


@cache
def lists_of(operation: str) -> frozenset[str]:
    """Return the fields of an operation that are lists: a form has one of what they have."""
    found = msgspec.inspect.type_info(_BY_NAME[operation].asks)
    assert isinstance(found, msgspec.inspect.StructType)
    return frozenset(
        each.name
        for each in found.fields
        for kind in (each.type.types if isinstance(each.type, UnionType) else (each.type,))
        if isinstance(kind, ListType | VarTupleType)
    )


def in_words(operation: AnyOperation, asked: ApiRequest, found: object) -> str:
    """Return what came of an operation, in a line for people."""
    match found:
        case [*outcomes]:
            return (
                "; ".join(in_words(operation, asked, each) for each in outcomes)
                or "Nothing was there."
            )
        case CommandOutcome(refused=refused) if refused:
            return f"{found.name}: refused, {refused}"
        case CommandOutcome(done=done, obstacle=obstacle):
            said = (found.name, done or "is on its way", obstacle)
            return ": ".join(each for each in said if each)
        case PublishReceipt():
            done = "The event is published." if found.seq else "The event can be published."
            said = (done, found.unheard, found.of_engine)
            return " ".join(each for each in said if each)
        case _ if isinstance(asked, SetDefaultView) and asked.name is None:
            return "The navigation leads to the whole list now."
        case _:
            says = getattr(found, "says", "") or getattr(found, "used", "")
            return str(says) or DONE.get(operation.name, "Done.")


def problem_in(found: object) -> str:
    """Return what to say first of an operation of which something was refused; empty: nothing."""
    outcomes = found if isinstance(found, list | tuple) else [found]
    are_refused = [isinstance(each, CommandOutcome) and bool(each.refused) for each in outcomes]
    if not any(are_refused):
        return ""
    return NOT_DONE if all(are_refused) else NOT_ALL_DONE


DONE: Final[Mapping[str, str]] = {
    "approvals.approve": "Approved.",
    "approvals.deny": "Denied.",
    "episodes.cancel": "It is to be canceled; the journal has your request.",
    "episodes.fire": "The episode is open.",
    "episodes.fork": "The fork is open.",
    "findings.acknowledge": "Acknowledged.",
    "findings.clear": "Cleared.",
    "findings.note": "The note is kept.",
    "people.remove_view": "The view is removed.",
    "people.save_view": "The view is saved.",
    "people.set_default_view": "The navigation leads there now.",
}
"""Operation → what to say once it is done, where its result has no words."""
