"""Every key of the three buckets. No other module spells one. Pure.

claims     episode.<actor>.<episode>                   the lease on an episode
           lane.<actor>                                the lease of an actor's scheduler
           projector.<name>                            the lease of a projector
           layout                                      the lease for changing the partitions
           retention                                   the lease for letting go what is old
           archive                                     the lease for archiving and purging

registry   mode.<node>                                 whether a node takes triggers and episodes
           pause.<actor>                               whether the actor is to wait, on every node
           definition.<kind>.<id>                      what is defined as data now
           lost.<stream>                               that stream has lost its past
           streams                                     what is known of each stream
           restored.<kind>.<key>                       where its archived past was restored to
           archived                                    what the newest run of the archive has done

gates      cooldown.<actor>.<expectation>.<subject>    it fired for that subject, and rests
           calmed.<actor>.<expectation>.<subject>      what fired for that subject once it was calm
           breaker.<actor>.<expectation>               the circuit breaker's state
           ends.<actor>.<expectation>                  how its latest episodes have ended
           overlap.<actor>.<expectation>.<subject>     the episode that no other one may overlap
           cancel.<episode>                            somebody wants it canceled
           parked.<actor>.<episode>                    it waits for other code
           node.<node>                                 the node is there
           workflow.<workflow>.<subject>               the instance that is busy with that subject
           starting.<instance or episode>              somebody may still begin it
           result.<work>                               the episode that has done that work
           cached.<call>                               the result of a call of a tool, by its hash
           queue.<actor>                               the events that its queue is to include
           feed.<actor>.<stream and subject>           which stream of that name it has read
           reactor.<stream>                            who publishes what follows from its commits
           published.<stream>                          up to where that was done
           spending.actor.<actor>.<window>             what the actor has spent in that window
           spending.stack.<window>                     what all actors have
           streams                                     a copy of the registry's
           retention                                   when old things were last let go, and which
           results                                     which large results are kept for longer

Cooldowns, breakers, ends, overlaps, workflows, parked episodes, what was published and what was
spent follow from the log, and are made anew from it where the gates are lost.

`mode` and `pause` are copies: what people order of a node or an actor is an aggregate of that key,
and so is what they order of a `breaker`. Of more such aggregates no bucket has a copy: `retention`
and `retention.<actor>` (how long things are kept), `cuts`, `hold.<kind>.<held>`.

Nodes, actors, expectations and ids of episodes are names. A subject is data, of any length, and
becomes one token by `subject_token`. Functions that take a subject raise `BadName` where it is not
valid Unicode text; those that take a name, where it is none.
"""

from __future__ import annotations

from typing import Final

from streams.tokens import name, subject_token

MODES: Final = "mode"
PAUSES: Final = "pause"
COOLDOWNS: Final = "cooldown"
CALMED: Final = "calmed"
BREAKERS: Final = "breaker"
ENDS: Final = "ends"
OVERLAPS: Final = "overlap"
CANCELS: Final = "cancel"
PARKED: Final = "parked"
NODES: Final = "node"
SUBJECTS: Final = "workflow"
STARTS: Final = "starting"
RESULTS: Final = "result"
CACHED: Final = "cached"
QUEUES: Final = "queue"
FEEDS: Final = "feed"
REACTORS: Final = "reactor"
PUBLISHED: Final = "published"
SPENDINGS: Final = "spending"
DEFINITIONS: Final = "definition"
LOST: Final = "lost"
"""The first tokens of keys: what `Bucket.entries` can be asked for."""

REMEMBERED: Final = (COOLDOWNS, CALMED, BREAKERS, ENDS, OVERLAPS)
"""Those of keys that are about an expectation."""

STREAMS: Final = "streams"
"""The key of what is known of each stream, in the registry and in the gates."""

LOGIN: Final = "login"
"""The key of what people order about logins; no bucket has a copy."""

LAYOUT_CLAIM: Final = "layout"
"""The lease for spreading a stack over other partitions."""

RETENTION: Final = "retention"
"""The lease for letting go what is old; the key of when that was last done; and that of how long
things are kept, which actors may say for themselves."""

KEPT_RESULTS: Final = "results"
"""The key of which large results are kept for longer than the object store does by itself."""

CUTS: Final = "cuts"
"""The key of the times that things which ended before are gone from the tables."""

HOLDS: Final = "hold"
"""Begins the keys of what people hold."""

ARCHIVE_CLAIM: Final = "archive"
"""The lease for archiving the journal of a stack, and for purging what is archived."""

RESTORED: Final = "restored"

ARCHIVED: Final = "archived"
"""The registry's key of what the newest run of the archive has done."""

_EPISODES: Final = "episode"

NODE_CLAIMS: Final = "node"
"""The first token of the leases of nodes."""


def episode_claim(actor: str, episode_id: str) -> str:
    """Return the key of the lease on one episode."""
    return f"{_EPISODES}.{name(actor, of='actor')}.{episode_id}"


def episode_of_claim(key: str) -> tuple[str, str] | None:
    """Return the actor and the episode that the lease `key` is for, if it is an episode's."""
    first, _, rest = key.partition(".")
    actor, _, episode_id = rest.partition(".")
    return (actor, episode_id) if first == _EPISODES and episode_id else None


def node_claim(node: str) -> str:
    """Return the key of the lease of a node itself."""
    return f"{NODE_CLAIMS}.{name(node, of='node')}"


def lane_claim(actor: str) -> str:
    """Return the key of the lease of the scheduler of `actor`."""
    return f"lane.{name(actor, of='actor')}"


def projector_claim(projection: str) -> str:
    """Return the key of the lease of one projector."""
    return f"projector.{name(projection, of='projection')}"


def mode_key(node: str) -> str:
    """Return the registry's key of the mode of `node`: everything, triggers only, or nothing."""
    return f"{MODES}.{name(node, of='node')}"


def pause_key(actor: str) -> str:
    """Return the registry's key of the pause of `actor`."""
    return f"{PAUSES}.{name(actor, of='actor')}"


def cooldown_key(actor: str, expectation: str, subject: str) -> str:
    """Return the key of the cooldown of an expectation for `subject`, which may be empty."""
    return _about(COOLDOWNS, actor, expectation, subject)


def calmed_key(actor: str, expectation: str, subject: str) -> str:
    """Return the key of the newest debounced fire for `subject`, which may be empty."""
    return _about(CALMED, actor, expectation, subject)


def overlap_key(actor: str, expectation: str, subject: str) -> str:
    """Return the key of the episodes in line for `subject`, which may be empty."""
    return _about(OVERLAPS, actor, expectation, subject)


def breaker_key(actor: str, expectation: str) -> str:
    """Return the key of the circuit breaker of an expectation."""
    return f"{BREAKERS}.{name(actor, of='actor')}.{name(expectation, of='expectation')}"


def ends_key(actor: str, expectation: str) -> str:
    """Return the key of how the latest episodes of an expectation have ended."""
    return f"{ENDS}.{name(actor, of='actor')}.{name(expectation, of='expectation')}"


def remembered_of(actor: str) -> tuple[str, ...]:
    """Return the prefixes of the keys of an actor's gate state, without the last dot."""
    return tuple(f"{first}.{name(actor, of='actor')}" for first in REMEMBERED)


def expectation_of(key: str) -> str:
    """Return the expectation that a key of `REMEMBERED` is about."""
    return key.split(".")[2]


def cancel_key(episode_id: str) -> str:
    """Return the key of a request to cancel an episode."""
    return f"{CANCELS}.{name(episode_id, of='episode')}"


def parked_key(actor: str, episode_id: str) -> str:
    """Return the key that exists while an episode waits for other code."""
    return f"{PARKED}.{name(actor, of='actor')}.{name(episode_id, of='episode')}"


def parked_episode(key: str) -> tuple[str, str]:
    """Return the actor and the episode that a `parked_key` is about."""
    _, actor, episode_id = key.split(".")
    return actor, episode_id


def workflow_subject_key(workflow: str, subject: str) -> str:
    """Return the key of the instances in line for `subject`, which may be empty."""
    return f"{SUBJECTS}.{name(workflow, of='workflow')}.{subject_token(subject)}"


def start_key(id_: str) -> str:
    """Return the key that exists while somebody may still begin an instance, or open an episode."""
    return f"{STARTS}.{name(id_, of='id')}"


def result_key(work: str) -> str:
    """Return the key of the episode that has done the work of this hash."""
    return f"{RESULTS}.{name(work, of='work')}"


def cached_key(call: str) -> str:
    """Return the key of the result that nodes share of a call of a tool, by the call's hash."""
    return f"{CACHED}.{name(call, of='call')}"


def queue_key(actor: str) -> str:
    """Return the key of the events that the queue of `actor` is to include."""
    return f"{QUEUES}.{name(actor, of='actor')}"


def feed_key(actor: str, stream: str, subject: str) -> str:
    """Return the key of which stream of that name `actor` has read for events on `subject`."""
    return f"{FEEDS}.{name(actor, of='actor')}.{subject_token(f'{stream}/{subject}')}"


def node_key(node: str) -> str:
    """Return the key that exists while `node` is there."""
    return f"{NODES}.{name(node, of='node')}"


def reactor_key(part: str) -> str:
    """Return the key that exists while a node publishes what follows from the stream `part`."""
    return f"{REACTORS}.{name(part, of='stream')}"


def published_key(part: str) -> str:
    """Return the key of the sequence of the stream `part` up to which that was published."""
    return f"{PUBLISHED}.{name(part, of='stream')}"


def started_event(part: str) -> str:
    """Return the event that a reactor of the stream `part` publishes before all others: its fence.

    Where there is one, there was a `published_key` before.
    """
    return f"reactor.started.{name(part, of='stream')}"


def spending_key(actor: str, window: str) -> str:
    """Return the key of what `actor` has spent in `window`, such as `2026-11-29`; empty: all."""
    whose = f"actor.{name(actor, of='actor')}" if actor else "stack"
    return f"{SPENDINGS}.{whose}.{name(window, of='window')}"


def retention_key(actor: str = "") -> str:
    """Return the key of how long things are kept: those of `actor`, or of all that do not say."""
    return f"{RETENTION}.{name(actor, of='actor')}" if actor else RETENTION


def hold_key(kind: str, held: str) -> str:
    """Return the key of a hold on a subject, an actor or an episode."""
    return f"{HOLDS}.{name(kind, of='hold')}.{subject_token(held)}"


def lost_key(part: str) -> str:
    """Return the registry's key of the loss of the stream `part`."""
    return f"{LOST}.{name(part, of='stream')}"


def restored_key(kind: str, key: str) -> str:
    """Return the registry's key of where the archived past of an aggregate was restored to."""
    return f"{RESTORED}.{name(kind, of='kind')}.{subject_token(key)}"


def name_in(key: str) -> str:
    """Return what a `mode_key`, `node_key`, `pause_key` or `cancel_key` is about."""
    return key.rpartition(".")[2]


def _about(first: str, actor: str, expectation: str, subject: str) -> str:
    names = f"{name(actor, of='actor')}.{name(expectation, of='expectation')}"
    return f"{first}.{names}.{subject_token(subject)}"
