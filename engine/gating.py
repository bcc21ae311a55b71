"""The ruling on one event and one expectation, rule by rule in one order. Pure.

    type → hops → filter → sampling

A later rule is asked only if all before it let the event through, so the reason of a refusal is
always the first one that holds. Of several triggers that watch for the event the first that fits
fires; if none does, the reason is that of the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from engine.actor import Expectation
from engine.filters import Misfit, MisfitReason, misfit
from engine.trigger import EventSource, trigger_of
from streams.events import EventTrigger
from streams.json import JsonObject
from streams.world import HOPS_MAX, DomainEvent

Reason: TypeAlias = Literal["not_watched", "too_many_hops", "sampled_out"] | MisfitReason
"""A stable class of refusals, by which they are counted."""

REASONS: Final[tuple[str, ...]] = tuple(
    reason for group in get_args(Reason) for reason in get_args(group)
)
"""All of them."""

SHARE_BYTES: Final = 6
"""Size of the hash that a share is made of: few enough that a share is exact, and under 1."""


class Fire(msgspec.Struct, frozen=True):
    """Open an episode."""

    trigger: EventTrigger


class Refuse(msgspec.Struct, frozen=True):
    """Do nothing, and say why: a gate that is silent cannot be debugged."""

    reason: Reason
    detail: str = ""


Ruling: TypeAlias = Fire | Refuse


def rule(expectation: Expectation, happened: DomainEvent, *, stack: str, actor: str) -> Ruling:
    """Return whether `happened` fires `expectation`, of `actor` in `stack`.

    Every node rules the same on the same event, however often it comes.
    """
    watching = [source for source in expectation.on if happened.name in source.names]
    if not watching:
        return Refuse("not_watched")
    if happened.hops > HOPS_MAX:
        return Refuse("too_many_hops", f"{happened.hops} of at most {HOPS_MAX}")
    if unfit := _unfit(watching, happened.payload):
        return Refuse(unfit.reason, unfit.path)
    if share_of(happened, stack, actor, expectation.name) >= expectation.sample:
        return Refuse("sampled_out")
    return Fire(trigger_of(happened, subject_key=expectation.subject_key))


def _unfit(watching: Sequence[EventSource], payload: JsonObject) -> Misfit | None:
    """Return why none of the sources fits: the first one's reason; None if one does."""
    first: Misfit | None = None
    for source in watching:
        unfit = misfit(source.filter, payload)
        if unfit is None:
            return None
        first = first or unfit
    return first


def share_of(happened: DomainEvent, stack: str, actor: str, expectation: str) -> float:
    """Return where from 0 to 1 an event lies for an expectation: below its `sample`, it fires.

    A larger share therefore holds all that a smaller one did.
    """
    parts = msgspec.json.encode([stack, actor, expectation, happened.id])
    digest = hashlib.blake2b(parts, digest_size=SHARE_BYTES).digest()
    return int.from_bytes(digest) / 256**SHARE_BYTES
