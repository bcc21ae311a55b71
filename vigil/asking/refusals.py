"""Refusals as rows: why events did not fire."""

from __future__ import annotations

from typing import Final

import msgspec

from streams.model.refusals import Refusal
from vigil.printing.tables import Row

REFUSAL_COLUMNS: Final = ("at", "event", "event_id", "subject_id", "reason", "compared_with")
REFUSAL_SPARE: Final = ("event", "subject_id", "at", "event_id")


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
