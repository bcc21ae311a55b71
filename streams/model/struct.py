"""The base of all events and of their parts. Pure."""

from __future__ import annotations

import msgspec


class Struct(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=False
):
    """A piece of an event: immutable, and as short on the wire as its defaults allow."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """A fact. Named in the past tense, immutable, complete on its own."""
