"""Every key of the three buckets. No other module spells one.

claims     episode.<actor>.<episode>                   the lease on an episode
           lane.<actor>                                whoever gives its episodes their turns
           projector.<name>                            whoever fills the tables
           layout                                      whoever changes the number of partitions

registry   mode.<node>                                 whether a node takes triggers and episodes
           pause.<actor>                               the actor is to wait, on every node
           wait.<ref>.<episode>.<step>                 the episode waits for word of that
           definition.<kind>.<id>                      what is defined as data now

gates      cooldown.<actor>.<expectation>.<subject>    it fired for that subject, and rests
           calmed.<actor>.<expectation>.<subject>      what fired for that subject once it was calm
           breaker.<actor>.<expectation>               the circuit breaker's state
           cancel.<episode>                            somebody wants it canceled
           node.<node>                                 the node is there
           workflow.<workflow>.<subject>               the instance that is busy with that subject
           result.<work>                               the episode that has done that work
           word.<ref>                                  what was said last to have come about
           brought.<word>                              somebody was found whom it is for

Nodes, actors, expectations and ids of episodes are names. A subject, or what an episode waits for,
is data, of any length: a short one is encoded, so that people can read it; of a longer one there is
a hash. In an encoded text `=` is always followed by two of `0-9A-F`, so what stands for a hash, and
for no subject, is nobody's encoding.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from streams.errors import BadName
from streams.tokens import encode_token, name

MODES: Final = "mode"
PAUSES: Final = "pause"
COOLDOWNS: Final = "cooldown"
CALMED: Final = "calmed"
BREAKERS: Final = "breaker"
CANCELS: Final = "cancel"
NODES: Final = "node"
WAITS: Final = "wait"
LOCKS: Final = "workflow"
RESULTS: Final = "result"
DEFINITIONS: Final = "definition"
WORDS: Final = "word"
BROUGHT: Final = "brought"
"""The first tokens of keys: what `Bucket.entries` can be asked for."""

SUBJECT_BYTES_MAX: Final = 128
"""Longest encoded subject that a key says, in bytes. The server keeps every key in memory."""

HASH_BYTES: Final = 16
"""Of a longer subject: so many that no two are ever met with the same hash."""

_NONE: Final = "="
_HASHED: Final = "=h"


LAYOUT_CLAIM: Final = "layout"
"""The lease of whoever spreads a stack over other partitions."""

_EPISODES: Final = "episode"


def episode_claim(actor: str, episode_id: str) -> str:
    """Return the key of the lease on one episode."""
    return f"{_EPISODES}.{name(actor, of='actor')}.{episode_id}"


def episode_of_claim(key: str) -> tuple[str, str] | None:
    """Return the actor and the episode that the lease `key` is for, if it is an episode's."""
    first, _, rest = key.partition(".")
    actor, _, episode_id = rest.partition(".")
    return (actor, episode_id) if first == _EPISODES and episode_id else None


def lane_claim(actor: str) -> str:
    """Return the key of the lease of whoever gives the episodes of `actor` their turns."""
    return f"lane.{name(actor, of='actor')}"


def projector_claim(projection: str) -> str:
    """Return the key of the lease of one projector."""
    return f"projector.{name(projection, of='projection')}"


def mode_key(node: str) -> str:
    """Return the registry's key of what `node` does: everything, triggers only, or nothing."""
    return f"{MODES}.{name(node, of='node')}"


def pause_key(actor: str) -> str:
    """Return the registry's key that says that `actor` is paused."""
    return f"{PAUSES}.{name(actor, of='actor')}"


def cooldown_key(actor: str, expectation: str, subject: str) -> str:
    """Return the key of the cooldown of an expectation for `subject`, which may be empty.

    Raises:
        BadName: actor or expectation is no name, or the subject is not valid Unicode text.
    """
    return _about(COOLDOWNS, actor, expectation, subject)


def calmed_key(actor: str, expectation: str, subject: str) -> str:
    """Return the key of what fired for `subject`, which may be empty, once it was calm.

    Raises:
        BadName: actor or expectation is no name, or the subject is not valid Unicode text.
    """
    return _about(CALMED, actor, expectation, subject)


def breaker_key(actor: str, expectation: str) -> str:
    """Return the key of the circuit breaker of an expectation."""
    return f"{BREAKERS}.{name(actor, of='actor')}.{name(expectation, of='expectation')}"


def remembered_of(actor: str) -> tuple[str, ...]:
    """Return what the keys of all that gates remember of `actor` begin with, up to the dot."""
    return tuple(f"{first}.{name(actor, of='actor')}" for first in (COOLDOWNS, CALMED, BREAKERS))


def expectation_of(key: str) -> str:
    """Return the expectation that a `cooldown_key`, `calmed_key` or `breaker_key` is about."""
    return key.split(".")[2]


def cancel_key(episode_id: str) -> str:
    """Return the key that says that somebody wants an episode canceled."""
    return f"{CANCELS}.{name(episode_id, of='episode')}"


def workflow_lock_key(workflow: str, subject: str) -> str:
    """Return the key of the instance that is busy with `subject`, which may be empty.

    Raises:
        BadName: the workflow is no name, or the subject is not valid Unicode text.
    """
    return f"{LOCKS}.{name(workflow, of='workflow')}.{subject_token(subject)}"


def result_key(work: str) -> str:
    """Return the key of the episode that has done the work of this hash."""
    return f"{RESULTS}.{name(work, of='work')}"


def node_key(node: str) -> str:
    """Return the key that says that `node` is there."""
    return f"{NODES}.{name(node, of='node')}"


def wait_key(ref: str, episode_id: str, step_no: int) -> str:
    """Return the registry's key that says that an episode waits for `ref`, as its step `step_no`.

    Raises:
        BadName: the reference is not valid Unicode text.
    """
    return f"{waits_for(ref)}.{name(episode_id, of='episode')}.{step_no}"


def waits_for(ref: str) -> str:
    """Return what the keys of all that wait for `ref` begin with, up to the dot.

    Raises:
        BadName: the reference is not valid Unicode text.
    """
    return f"{WAITS}.{subject_token(ref)}"


def signal_key(ref: str) -> str:
    """Return the key of the word that was given last for those who wait for `ref`.

    Raises:
        BadName: the reference is not valid Unicode text.
    """
    return f"{WORDS}.{subject_token(ref)}"


def brought_key(word_id: str) -> str:
    """Return the key that stands once somebody was found whom the word of this id is for."""
    return f"{BROUGHT}.{subject_token(word_id)}"


def name_in(key: str) -> str:
    """Return what a `mode_key`, `node_key`, `pause_key` or `cancel_key` is about."""
    return key.rpartition(".")[2]


def _about(first: str, actor: str, expectation: str, subject: str) -> str:
    names = f"{name(actor, of='actor')}.{name(expectation, of='expectation')}"
    return f"{first}.{names}.{subject_token(subject)}"


def subject_token(subject: str) -> str:
    """Return one token for `subject`, never the same for two."""
    try:
        octets = subject.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"subject: {subject!r} is not valid Unicode text") from error
    if not octets:
        return _NONE
    if (
        len(octets) <= SUBJECT_BYTES_MAX
        and len(token := encode_token(subject)) <= SUBJECT_BYTES_MAX
    ):
        return token
    return _HASHED + blake2b(octets, digest_size=HASH_BYTES).hexdigest()
