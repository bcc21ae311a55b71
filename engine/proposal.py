"""What strategies want delivered, checked where it is said; and the keys that make it once. Pure.

The key of an output is its identity in the stack. Where a strategy gives none, it is made from the
episode, so that a replay means the same output again and no other episode does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

import msgspec

from engine import state
from engine.actions import ExpiryOfApproval, RequestApproval, SendOutput, approval
from engine.blocking import plan_hash
from engine.episode import Episode
from engine.errors import InvalidAction, InvalidOutput
from engine.faults import problem_of
from engine.fingerprint import fingerprint
from streams.blocks import Approval
from streams.errors import BadName
from streams.events import EpisodeOpened, OutputProposed
from streams.outputs import OutputIntent
from streams.tokens import encode_token
from streams.tokens import name as checked_name

KEY_CHARS_MAX: Final = 512
"""Longest `key` of an output, in characters: it becomes part of a hash."""

MARK_CHARS: Final = 16
"""How much of an action's fingerprint the key of its output holds: 64 bits, told apart per turn."""

_KEY_BYTES: Final = 16
_IDEMPOTENCY_BYTES: Final = 32


def propose_output(
    adapter: str,
    payload: object,
    *,
    dedupe_key: str | None = None,
    key: str | None = None,
    requires_approval: bool = False,
    summary: str = "",
    approvers: Iterable[str] | str | None = None,
    expires_s: float | None = None,
    on_expiry: ExpiryOfApproval = "deny",
    remind_every_s: float | None = None,
) -> OutputIntent:
    """Return the intent to deliver something to the outside, for `ConvergeResult(outputs=[…])`.

    Args:
        adapter: who delivers it: a name in `App(outputs=…)`.
        payload: any JSON value; what of it goes where is the adapter's matter.
        dedupe_key: whatever has the same, of any episode, is delivered once; unless it failed for
            good, was canceled, or nobody approved it in time, then it may be proposed anew. At most
            1,024 bytes with every byte outside `A-Z a-z 0-9 _ -` counted as three.
        key: tells outputs apart where there is no `dedupe_key`: the same adapter, the same key and
            the same cause are one output, whatever episode is opened for that cause. Up to 512
            characters. Without either, the output is one of its own.
        requires_approval: whether nothing is delivered before somebody approves it. The rest is
            about that, and means nothing without it.
        summary: what people are asked, in one sentence of up to 4,000 characters.
        approvers: names of those who may decide, 1 to 64; None: anybody.
        expires_s: how long it can be decided, in seconds, over 0 and up to ten years; None: for as
            long as it takes.
        on_expiry: what it means that nobody has decided by then: `deny`, it is rejected; `fail`, it
            has failed, as if it could not be delivered; `approve`, it is delivered.
        remind_every_s: seconds between two public reminders, at least one; None: none.

    Raises:
        InvalidOutput: a value is impossible; the message says which.
        Unencodable: JSON cannot say the payload, or it is over 256 KiB.
    """
    try:
        asked = approval(
            None,
            summary=summary,
            approvers=approvers,
            expires_s=expires_s,
            on_expiry=on_expiry,
            remind_every_s=remind_every_s,
        )
    except InvalidAction as error:
        raise InvalidOutput(str(error)) from error
    intent = OutputIntent(
        adapter=adapter,
        payload=state.encode(payload, what="payload"),
        dedupe_key=_given("dedupe_key", dedupe_key),
        key=_given("key", key),
        requires_approval=requires_approval,
        summary=asked.summary,
        approvers=asked.approvers,
        expires_s=asked.expires_s,
        on_expiry=asked.on_expiry,
        remind_every_s=asked.remind_every_s,
    )
    return checked_intent(intent)


def output(
    adapter: str,
    payload: object,
    *,
    dedupe_key: str | None = None,
    key: str | None = None,
    requires_approval: bool = False,
    summary: str = "",
    approvers: Iterable[str] | str | None = None,
    expires_s: float | None = None,
    on_expiry: ExpiryOfApproval = "deny",
    remind_every_s: float | None = None,
) -> SendOutput:
    """Return the action that has something delivered now, instead of after convergence.

    One attempt is made at once. `handle_result` gets `{"output_key": …, "status": …}`, where the
    status is `delivered`, `duplicate`, `failed` (then with `error_class`), `rejected`, `dry_run`;
    or `proposed` or `awaiting_approval`, if it is to be delivered, or approved, later: then the
    episode ends no sooner than that is settled.

    Args:
        adapter: as in `propose_output`, like everything else.
        payload: what is delivered.
        dedupe_key: its identity in the stack.
        key: its identity for one cause.
        requires_approval: whether nothing is delivered before somebody approves it.
        summary: what people are asked.
        approvers: who may decide.
        expires_s: how long it can be decided.
        on_expiry: what it means that nobody has.
        remind_every_s: seconds between two public reminders.

    Raises:
        InvalidOutput, Unencodable: as `propose_output`.
    """
    intent = propose_output(
        adapter,
        payload,
        dedupe_key=dedupe_key,
        key=key,
        requires_approval=requires_approval,
        summary=summary,
        approvers=approvers,
        expires_s=expires_s,
        on_expiry=on_expiry,
        remind_every_s=remind_every_s,
    )
    return SendOutput(intent)


def checked_intent(intent: object) -> OutputIntent:
    """Return `intent` if an output can be made of it, however it was made.

    Raises:
        InvalidOutput: it cannot; the message says why.
    """
    if not isinstance(intent, OutputIntent):
        raise InvalidOutput(
            f"outputs must be made with propose_output(…), not a {type(intent).__name__}"
        )
    if problem := _problem_of_approval(intent):
        raise InvalidOutput(problem)
    try:
        # Whoever made it by hand may have put anything in; the log could not be read with that.
        msgspec.json.decode(msgspec.json.encode(intent), type=OutputIntent)
        checked_name(intent.adapter, of="adapter")
        if intent.dedupe_key:
            encode_token(intent.dedupe_key)
    except (BadName, TypeError, ValueError) as error:
        raise InvalidOutput(f"output: {error}") from error
    if problem := _problem_of_keys(intent):
        raise InvalidOutput(problem)
    return intent


def _problem_of_keys(intent: OutputIntent) -> str | None:
    if intent.dedupe_key and intent.key:
        return "key: there is a dedupe_key, which says it all; give one of them"
    if len(intent.key) > KEY_CHARS_MAX:
        return f"key: {len(intent.key):,} characters, the limit is {KEY_CHARS_MAX}"
    return None


def _problem_of_approval(intent: OutputIntent) -> str | None:
    asked = RequestApproval(
        plan=None,
        summary=intent.summary,
        approvers=intent.approvers,
        expires_s=intent.expires_s,
        on_expiry=intent.on_expiry,
        remind_every_s=intent.remind_every_s,
    )
    return problem_of(asked)


def output_key(intent: OutputIntent, opened: EpisodeOpened, *, place: str) -> str:
    """Return the key of what an episode wants delivered.

    Args:
        intent: what it wants.
        opened: the episode.
        place: what tells it from the episode's others, where the intent has no key of its own.
    """
    if intent.dedupe_key:
        return intent.dedupe_key
    if not intent.key:
        return f"{opened.episode_id}.{place}"
    cause = (opened.actor_id, opened.expectation_id, opened.dedupe_key, opened.mode.value)
    parts = msgspec.json.encode([*cause, intent.adapter, intent.key])
    return blake2b(parts, digest_size=_KEY_BYTES).hexdigest()


def inline_key(action: SendOutput, opened: EpisodeOpened, *, turn: int) -> str:
    """Return the key of what is delivered as a step: a replay of that turn means the same output.

    Args:
        action: what the strategy asked for.
        opened: the episode.
        turn: of the strategy, from 1.
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
    """Return key → intent of all outputs of an episode; None: a step of it has proposed it."""
    keyed: dict[str, OutputIntent | None] = dict.fromkeys(episode.outputs)
    intents = episode.converged.outputs if episode.converged else ()
    for key, intent in intended(intents, opened).items():
        keyed.setdefault(key, intent)
    return keyed


def idempotency_key(stack: str, key: str) -> str:
    """Return what an output is known by to its receiver: 64 hex digits, the same for ever."""
    parts = msgspec.json.encode([stack, key])
    return blake2b(parts, digest_size=_IDEMPOTENCY_BYTES).hexdigest()


def proposal(
    intent: OutputIntent, key: str, opened: EpisodeOpened, *, proposal_no: int, at: datetime
) -> OutputProposed:
    """Return what puts an output down on its log.

    Args:
        intent: what is wanted.
        key: the output's.
        opened: the episode that wants it.
        proposal_no: how often the key has been proposed, this time included.
        at: now.
    """
    return OutputProposed(
        output_key=key,
        adapter=intent.adapter,
        payload=intent.payload,
        episode_id=opened.episode_id,
        actor_id=opened.actor_id,
        expectation_id=opened.expectation_id,
        proposal_no=proposal_no,
        approval=_approval(intent, at=at) if intent.requires_approval else None,
    )


def _approval(intent: OutputIntent, *, at: datetime) -> Approval:
    expires_at = at + timedelta(seconds=intent.expires_s) if intent.expires_s else None
    return Approval(
        plan_hash=plan_hash(intent.payload),
        summary=intent.summary,
        approvers=intent.approvers,
        expires_at=expires_at,
        on_expiry=intent.on_expiry,
        remind_every_s=intent.remind_every_s,
    )


def _given(field: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise InvalidOutput(f"{field}: {value!r} is not text")
    return value
