"""Refusals as rows: why events did not fire."""

from __future__ import annotations

from typing import Final

import msgspec

from streams.model.refusals import Refusal
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.tables import Row

REFUSALS: Final = Listing(
    (
        Column("at", "at", Form.TIME),
        Column("event", "event"),
        Column("event id", "event_id"),
        Column("about", "subject_id"),
        Column("why not", "reason"),
        Column("compared", "compared_with", room=28),
    ),
    spare=("event", "about", "event id", "compared", "at"),
    wraps=("compared",),
)


def refusal_row(refusal: Refusal) -> Row:
    """Return a refusal as a row: `compared_with` has it in words, `against` as data."""
    return {
        "at": refusal.at,
        "event_id": refusal.event_id,
        "event": refusal.event,
        "actor_id": refusal.actor,
        "expectation_id": refusal.expectation,
        "subject_id": refusal.subject or None,
        "reason": refusal.reason,
        "compared_with": refusal.words,
        "against": msgspec.to_builtins(refusal.against),
        "node": refusal.node,
    }
