"""Mappings of one's own: texts with placeholders, and paths into what was sent. Pure.

    event   = "build.{body.status}"        the name; a value is one word of it
    id      = "{headers.x-delivery}"       what the source knows it by
    each    = "body.builds"                an event for each item of this list
    payload = "item"                       the payload; the whole body, unless it says otherwise

Placeholders and paths begin with `body`, `headers` (names in lower case), or with `each` also
`item`. They are those of templates (`engine/templates/wording.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from engine.templates.wording import Wording, absent, worded, wording_of
from engine.validation import problem_of_path
from streams.json import JsonObject, value_at
from streams.tokens import event_name
from vigil.web.webhooks.mapping import (
    BadDelivery,
    MappedEvent,
    WebhookDelivery,
    as_id,
    as_word,
    object_of,
)

TREES: Final = ("body", "headers")
TREES_OF_ITEMS: Final = (*TREES, "item")


class OwnMapping(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping that a file describes."""

    event: Wording
    id: Wording | None
    each: str
    """Path of a list; empty: the delivery is one event."""
    payload: str
    """Path of the payload."""

    def events(self, delivery: WebhookDelivery) -> Sequence[MappedEvent]:
        """Return the events of a delivery."""
        tree: JsonObject = {"body": object_of(delivery.body), "headers": dict(delivery.headers)}
        return [self._event(each) for each in self._trees(tree)]

    def _trees(self, tree: JsonObject) -> list[JsonObject]:
        if not self.each:
            return [tree]
        items = value_at(tree, self.each)
        if not isinstance(items, list):
            raise BadDelivery(f"{self.each}: there is no list")
        return [{**tree, "item": item} for item in items]

    def _event(self, tree: JsonObject) -> MappedEvent:
        payload = value_at(tree, self.payload)
        if not isinstance(payload, dict):
            raise BadDelivery(f"{self.payload}: there is no object, which a payload is")
        name = worded(self.event, _words_of(self.event, tree))
        id_ = "" if self.id is None else as_id(worded(self.id, _present(self.id, tree)))
        return MappedEvent(name=name, payload=payload, id=id_)


def _words_of(wording: Wording, tree: JsonObject) -> JsonObject:
    """Return the values of placeholders, each as one word of a name."""
    present = _present(wording, tree)
    words = {each: value_at(present, each) for each in wording.placeholders}
    return {
        name: as_word(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in words.items()
    }


def _present(wording: Wording, tree: JsonObject) -> JsonObject:
    """Return `tree` if it has a value for each placeholder."""
    if (missing := absent(wording, tree)) is not None:  # guard: absent-value-names-nothing
        raise BadDelivery(f"{missing}: there is no such value")
    return tree


def own_mapping(*, event: str, id: str = "", each: str = "", payload: str = "body") -> OwnMapping:
    """Return a mapping; a `ValueError` names the field that cannot be so."""
    trees = TREES_OF_ITEMS if each else TREES
    for field, path in {"each": each, "payload": payload}.items():
        _check_path(field, path, trees if field == "payload" else TREES)
    try:
        name = wording_of(event, names=(), trees=trees)
        event_name(worded(name, dict.fromkeys(name.placeholders, "x")))
    except ValueError as error:
        raise ValueError(f"event: {error}") from error
    try:
        found = wording_of(id, names=(), trees=trees) if id else None
    except ValueError as error:
        raise ValueError(f"id: {error}") from error
    return OwnMapping(event=name, id=found, each=each, payload=payload)


def _check_path(field: str, path: str, trees: Sequence[str]) -> None:
    if field == "each" and not path:
        return
    if problem := problem_of_path(path):
        raise ValueError(f"{field}: {problem}")
    if path.partition(".")[0] not in trees:
        raise ValueError(f"{field}: {path!r} begins with none of {', '.join(trees)}")
