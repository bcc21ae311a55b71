"""What GitHub and PagerDuty send, and senders after Standard Webhooks. Pure.

* https://docs.github.com/en/webhooks/webhook-events-and-payloads
* https://developer.pagerduty.com/docs/webhooks-overview (version 3)
* https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from streams.json import JsonObject
from vigil.web.webhooks.mapping import (
    BadDelivery,
    MappedEvent,
    WebhookDelivery,
    as_id,
    as_name,
    as_word,
    decoded,
    object_of,
)

FORM: Final = "application/x-www-form-urlencoded"

WEBHOOK_ID: Final = "webhook-id"


class PagerDutyEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at of an event of PagerDuty."""

    id: str
    event_type: str


class PagerDutyDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """What PagerDuty sends."""

    event: PagerDutyEvent


class TypedBody(msgspec.Struct, frozen=True, kw_only=True):
    """What Standard Webhooks recommend for a body."""

    type: str


def of_github(delivery: WebhookDelivery) -> Sequence[MappedEvent]:
    """Return `github.<event>`, or `github.<event>.<action>` where the body has an action."""
    event, id_ = (_header(delivery, each) for each in ("x-github-event", "x-github-delivery"))
    payload = _github_body(delivery)
    action = payload.get("action")
    words = ["github", as_word(event), *([as_word(action)] if isinstance(action, str) else [])]
    return [MappedEvent(name=".".join(words), payload=payload, id=as_id(id_))]


def _github_body(delivery: WebhookDelivery) -> JsonObject:
    """Return the body, which GitHub sends as a field of a form unless it is told otherwise."""
    if not delivery.headers.get("content-type", "").startswith(FORM):
        return object_of(delivery.body)
    try:
        fields = parse_qs(delivery.body.decode(), strict_parsing=True, max_num_fields=1)
    except ValueError as error:
        raise BadDelivery(f"the body: no form with one field: {error}") from error
    return object_of(fields.get("payload", [""])[0].encode())


def of_pagerduty(delivery: WebhookDelivery) -> Sequence[MappedEvent]:
    """Return `pagerduty.<event type>`, such as `pagerduty.incident.triggered`."""
    event = decoded(delivery.body, PagerDutyDelivery).event
    payload: dict[str, Any] = object_of(delivery.body)["event"]
    name = as_name(f"pagerduty.{event.event_type}")
    return [MappedEvent(name=name, payload=payload, id=as_id(event.id))]


def of_standard(delivery: WebhookDelivery) -> Sequence[MappedEvent]:
    """Return an event that is called as `type` of the body says."""
    type_ = decoded(delivery.body, TypedBody).type
    id_ = _header(delivery, WEBHOOK_ID)
    payload = object_of(delivery.body)
    return [MappedEvent(name=as_name(type_), payload=payload, id=as_id(id_))]


def _header(delivery: WebhookDelivery, name: str) -> str:
    if not (value := delivery.headers.get(name, "")):
        raise BadDelivery(f"there is no header {name}")
    return value
