"""The keys of outputs, the same in a replay, and their idempotency keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from engine.app.actions import SendOutput, fingerprint
from engine.app.outputs import _KEY_BYTES, plan_hash
from engine.episodes.episode import Episode
from engine.waits.approval import approval_for
from streams.model.events import EpisodeOpened, OutputProposed, requester_of
from streams.model.outputs import OutputIntent

MARK_CHARS: Final = 16
"""Characters of an action's fingerprint in an output's key: 64 bits, unique per turn."""
_IDEMPOTENCY_BYTES: Final = 32


def output_key(intent: OutputIntent, opened: EpisodeOpened, *, place: str) -> str:
    """Return the key of an episode's output, at `place` if the intent has no key."""
    if intent.dedupe_key:
        return intent.dedupe_key
    if not intent.key:
        return f"{opened.episode_id}.{place}"
    cause = (opened.actor_id, opened.expectation_id, opened.dedupe_key, opened.mode.value)
    parts = msgspec.json.encode([*cause, intent.adapter, intent.key])
    return blake2b(parts, digest_size=_KEY_BYTES).hexdigest()


def inline_key(action: SendOutput, opened: EpisodeOpened, *, turn: int | str) -> str:
    """Return the key of an output that is sent as a step: the same in a replay.

    `turn` is the path at which the strategy asks for it.
    """
    mark = fingerprint(action)[:MARK_CHARS]
    return output_key(action.intent, opened, place=f"turn.{turn}.{mark}")


def intended(intents: Sequence[OutputIntent], opened: EpisodeOpened) -> dict[str, OutputIntent]:
    """Return key → intent of a convergence, in order; of two with one key, the first."""
    keyed: dict[str, OutputIntent] = {}
    for index, intent in enumerate(intents):
        keyed.setdefault(output_key(intent, opened, place=str(index)), intent)
    return keyed


def wanted(episode: Episode, opened: EpisodeOpened) -> dict[str, OutputIntent | None]:
    """Return key → intent of all outputs of an episode; None: a step has proposed it."""
    keyed: dict[str, OutputIntent | None] = dict.fromkeys(episode.outputs)
    intents = episode.converged.outputs if episode.converged else ()
    for key, intent in intended(intents, opened).items():
        keyed.setdefault(key, intent)
    return keyed


def idempotency_key(stack: str, key: str) -> str:
    """Return the key that receivers get: 64 hex digits, the same for ever."""
    parts = msgspec.json.encode([stack, key])  # guard: idempotency-key-of-output
    return blake2b(parts, digest_size=_IDEMPOTENCY_BYTES).hexdigest()


def proposal(
    intent: OutputIntent, key: str, opened: EpisodeOpened, *, proposal_no: int, at: datetime
) -> OutputProposed:
    """Return the event that proposes an output, for the `proposal_no`-th time."""
    approval = (
        approval_for(
            intent,
            plan_hash=plan_hash(intent.payload),
            at=at,
            requester=requester_of(opened),
        )
        if intent.requires_approval
        else None
    )
    return OutputProposed(
        output_key=key,
        adapter=intent.adapter,
        payload=intent.payload,
        episode_id=opened.episode_id,
        actor_id=opened.actor_id,
        expectation_id=opened.expectation_id,
        proposal_no=proposal_no,
        approval=approval,
    )
