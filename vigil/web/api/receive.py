"""`POST /events/{name}`: an event of a program that has a token, or what a webhook sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.people.identity import Identity
from streams.clock import Clock, SystemClock
from vigil.asking.listening import SIGNAL
from vigil.client.types import PublishReceipt
from vigil.web.api.answer import (
    CHALLENGE,
    answer,
    carry_out,
    check_recognized,
    client_of,
    json_of,
    or_problem,
)
from vigil.web.api.asking import beside_body, of_fields, read_body
from vigil.web.api.operation import AnyOperation
from vigil.web.api.problems import (
    FORBIDDEN,
    MISTAKE,
    UNSIGNED,
    ProblemRaised,
)
from vigil.web.webhooks.file import Webhooks
from vigil.web.webhooks.mapping import BadDelivery, WebhookDelivery

CLOCK: Final = SystemClock()

MAPPED: Final = frozenset({"name", "payload", "id"})
"""What a delivery says of its events."""


class DeliveryReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a delivery of a webhook has become."""

    events: Sequence[PublishReceipt]


async def receive(
    operation: AnyOperation,
    webhooks: Webhooks,
    clock: Clock,
    request: Request,
    path: Mapping[str, str],
) -> Response:
    """Return the answer to an event that a program publishes, or to a delivery of a webhook.

    A delivery becomes events that all are published, or is refused. Where a server is away after
    some of them, the answer is a 503: the sender comes again, and what is published is no new event
    then, by its id.
    """
    return await or_problem(_received(operation, webhooks, clock, request, path["name"]))


async def _received(
    operation: AnyOperation, webhooks: Webhooks, clock: Clock, request: Request, name: str
) -> Response:
    if (webhook := webhooks.get(name)) is None:
        if name == SIGNAL:  # guard: signal-needs-its-scope
            says = f"{SIGNAL} gives a result to who waits: send it to /signals"
            raise ProblemRaised(FORBIDDEN, says, needs={"scope": "signals:send"})
        return await answer(operation, request, {"name": name})
    headers = {name.lower(): value for name, value in request.headers.items()}
    delivery = WebhookDelivery(headers=headers, body=await read_body(request))
    if (sender := _with_token(operation, request)) is not None:
        beside = beside_body(operation, request, MAPPED)
    elif problem := webhook.problem(delivery, now=clock.now()):  # guard: webhook-must-be-signed
        check_recognized(request)
        raise ProblemRaised(UNSIGNED, f"webhook {name}: {problem}", headers=CHALLENGE)
    else:
        sender, beside = Identity(name=name, role=operation.role, token=name), {}
    try:
        events = webhook.events(delivery)
    except BadDelivery as error:
        raise ProblemRaised(MISTAKE, f"webhook {name}: {error}") from error
    asked = [
        of_fields(
            operation, {**beside, "name": each.name, "payload": each.payload, "id": each.id or None}
        )
        for each in events
    ]
    client = client_of(request)
    receipts: list[PublishReceipt] = []
    for each in asked:
        receipt = await carry_out(operation, client, each, sender)
        assert isinstance(receipt, PublishReceipt)
        receipts.append(receipt)
    return json_of(DeliveryReceipt(events=receipts))


def _with_token(operation: AnyOperation, request: Request) -> Identity | None:
    """Return the program that asks if it may publish; a page may send with a person's session."""
    identity = getattr(request.state, "identity", None)
    if (
        isinstance(identity, Identity)
        and not identity.is_person  # guard: webhook-takes-no-session
        and identity.may(operation.role, operation.scope)
    ):
        return identity
    return None
