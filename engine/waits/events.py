"""What the world is told about an episode, and what came of it: public events, as data. Pure.

Each is told at least once: a node that dies in between leaves it to the next one to tell, which
may be one too many. Its id comes from what it tells and stays the same, so whoever hears it can
tell a repeat. The stream keeps one of the same id within two minutes; no actor is woken twice.

The world is told nothing of a dry run. Whoever hears of a finding acts on it, and a word in the
payload would hold back only those who look for it: filters that were written before there were
dry runs do not, nor do programs that know the stream and not the engine.
"""

from __future__ import annotations

from engine.episodes.events import _event, _ids
from engine.runtime.publish import PublicEvent
from engine.waits.wait import Blocked
from streams.json import JsonObject
from streams.model.events import EpisodeOpened, EpisodeResolved


def blocked(opened: EpisodeOpened, block: Blocked, *, seq: int) -> PublicEvent:
    """Return `episode.blocked`: it waits for people or for word from outside."""
    payload = {**_ids(opened), **_block(block), "journal_seq": seq}
    return _event(opened, "episode.blocked", f"blocked.{block.step_no}", payload)


def reminder(opened: EpisodeOpened, block: Blocked, *, number: int, seq: int) -> PublicEvent:
    """Return `episode.reminder`: it still waits. An id for each time that people are reminded."""
    payload = {**_ids(opened), **_block(block), "number": number, "journal_seq": seq}
    id_ = f"reminder.{block.step_no}.{number}"
    return _event(opened, "episode.reminder", id_, payload)


def resumed(opened: EpisodeOpened, answer: EpisodeResolved, *, seq: int) -> PublicEvent:
    """Return `episode.resumed`: it has its answer, and goes on."""
    payload = {
        **_ids(opened),
        "step_no": answer.step_no,
        "resolution": answer.resolution.value,
        "by": answer.by,
        "reason": answer.reason,
        "journal_seq": seq,
    }
    return _event(opened, "episode.resumed", f"resumed.{answer.step_no}", payload)


def _block(block: Blocked) -> JsonObject:
    """Return what the world is told of a block. A plan is for those who may look it up."""
    event, terms = block.event, block.terms
    return {
        "step_no": block.step_no,
        "reason": event.reason.value,
        "ref": block.ref,
        "summary": event.approval.summary if event.approval else "",
        "plan_hash": event.approval.plan_hash if event.approval else "",
        "approvers": list(event.approval.approvers) if event.approval else [],
        "expires_at": terms.expires_at.isoformat() if terms.expires_at else None,
        "blocked_at": block.at.isoformat(),
    }
