"""What the world is told of a node: that it is up, and that it has stopped. Pure.

Presence is no fact of the log, so these follow from no commit. A node that is killed, cut off or
stands still says nothing: nobody else can tell which of these it is. What others then take over is
told of each episode, as `episode.claim_lost`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from engine.cluster.nodes import NodeInfo
from engine.runtime.publish import PublicEvent
from streams.json import JsonObject

ACTORS_TOLD_MAX: Final = 1_000
"""Most actors that an event names, the first by name: so many ids are 64 KiB at most."""

REASON_CHARS_MAX: Final = 1_000
"""Longest reason of a stop, in characters; the rest is cut."""


def node_started(info: NodeInfo, actors: Iterable[str]) -> PublicEvent:
    """Return the event that a node takes work for `actors`; each process of a node has one."""
    return _of(info, actors, "started", {})


def node_stopped(
    info: NodeInfo, actors: Iterable[str], *, at: datetime, reason: str, is_clean: bool
) -> PublicEvent:
    """Return the event that a node has stopped in order.

    `is_clean`: every episode has ended or was handed over within its grace.
    """
    ending: JsonObject = {"at": at, "reason": reason[:REASON_CHARS_MAX], "is_clean": is_clean}
    return _of(info, actors, "stopped", ending)


def _of(info: NodeInfo, actors: Iterable[str], what: str, ending: JsonObject) -> PublicEvent:
    payload: JsonObject = {
        "node": info.name,
        "host": info.host,
        "pid": info.pid,
        "version": info.version,
        "mode": info.mode.value,
        "actors": sorted(actors)[:ACTORS_TOLD_MAX],
        "since": info.since,
        **ending,
    }
    # One of this name that is started again is another process.
    id_ = f"node.{info.name}.{info.since.isoformat()}.{what}"  # guard: node-told-once
    return PublicEvent(name=f"node.{what}", id=id_, payload=payload, hops=1)
