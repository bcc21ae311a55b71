"""CloudEvents 1.0 over HTTP: structured, in batches, and binary. Pure.

The event is called as its `type` says; its payload is the event as JSON, with `data` in it; its id
are `source` and `id`, which together are one event to every receiver.

* https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
* https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from streams.json import JsonObject
from vigil.web.webhooks.mapping import (
    BadDelivery,
    MappedEvent,
    WebhookDelivery,
    as_id,
    as_name,
    decoded,
    object_of,
)

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
PREFIX: Final = "ce-"
"""What headers of attributes begin with in binary mode."""


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes that every event has."""

    specversion: str
    id: str
    source: str
    type: str


def of_cloud_events(delivery: WebhookDelivery) -> Sequence[MappedEvent]:
    """Return the event of a delivery, or those of a batch."""
    kind = delivery.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == STRUCTURED:
        return [_event(object_of(delivery.body))]
    if kind == BATCH:
        return [_event(each) for each in decoded(delivery.body, list[dict[str, Any]])]
    if f"{PREFIX}id" in delivery.headers:
        return [_event(_binary(delivery, kind))]
    raise BadDelivery(f"no CloudEvent: neither of type {STRUCTURED} nor with headers {PREFIX}…")


def _event(event: JsonObject) -> MappedEvent:
    try:
        said = msgspec.convert(event, Attributes)
    except msgspec.ValidationError as error:
        raise BadDelivery(f"no CloudEvent: {error}") from error
    if not said.specversion.startswith("1."):
        raise BadDelivery(f"specversion: {said.specversion[:20]!r} is not 1.0")
    if not (said.id and said.source and said.type):
        raise BadDelivery("no CloudEvent: id, source and type have at least one character")
    return MappedEvent(name=as_name(said.type), payload=event, id=as_id(said.source, said.id))


def _binary(delivery: WebhookDelivery, kind: str) -> JsonObject:
    """Return an event in binary mode as it is in structured mode."""
    event: JsonObject = {
        name.removeprefix(PREFIX): unquote(value)
        for name, value in delivery.headers.items()
        if name.startswith(PREFIX)
    }
    if kind:
        event["datacontenttype"] = kind
    if not delivery.body:
        return event
    if kind == "application/json" or kind.endswith("+json"):
        return {**event, "data": decoded(delivery.body, object)}
    try:
        return {**event, "data": delivery.body.decode()}
    except UnicodeDecodeError:
        return {**event, "data_base64": b64encode(delivery.body).decode()}
