"""What waits for an actor: events, what is due, commands, and what is held until it is calm."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from engine.cluster.nodes import ExpectationInfo
from engine.lanes import lane as lane_rules
from engine.lanes.store import feed_cursor
from engine.triggers import debounce
from streams.errors import UnreadableEvent
from streams.model.foreign_streams import Feed
from streams.ports.all import Ports
from vigil.tables import Row

UNREADABLE: Final = "unreadable"


async def waiting(ports: Ports, actor: str, expectations: Iterable[ExpectationInfo]) -> Row:
    """Return how many events, due messages and commands wait, or are being worked on.

    Args:
        ports: of the stack.
        actor: whose.
        expectations: what the nodes that are up know of it; none if none is.
    """
    return {
        "events": await _events(ports, actor, list(expectations)),
        "due": await ports.timers.backlog(actor),
        "commands": await ports.inbox.backlog(actor),
    }


async def held(ports: Ports, actor: str) -> Mapping[str, int]:
    """Return of how many subjects each expectation holds an event until they are calm."""
    keys = await ports.timers.keys(actor, debounce.PURPOSE)
    return Counter(key.partition("/")[0] for key in keys)


async def _events(ports: Ports, actor: str, expectations: list[ExpectationInfo]) -> int | str:
    names, feeds = _watched(expectations)
    try:
        cursors = await _cursors(ports, actor)
    except UnreadableEvent:
        return UNREADABLE
    if not cursors:
        return await ports.world.backlog(actor, feeds)
    watched = {*names, *map(feed_cursor, feeds)}
    return await _past(ports, {k: at for k, at in cursors.items() if k in watched or not watched})


async def _cursors(ports: Ports, actor: str) -> Mapping[str, int]:
    """Return how far the lane of `actor` has come in what it watches; nothing: it has no lane.

    Raises:
        UnreadableEvent: a newer version of the engine writes it.
        Unavailable: the log is away.
    """
    subject = ports.stack.lane(actor)
    newest = await ports.log.last(subject)
    if newest is None:
        return {}
    return lane_rules.fold(
        await ports.log.read(subject, after=lane_rules.beginning(newest))
    ).cursors


async def _past(ports: Ports, cursors: Mapping[str, int]) -> int:
    """Return how many events are past their cursors, asking once for those that stand together."""
    together: defaultdict[int, list[str]] = defaultdict(list)
    count = 0
    for name, seq in cursors.items():
        stream, is_feed, subject = name.partition("/")
        if is_feed:
            count += await ports.world.count_feed(Feed(stream=stream, subject=subject), after=seq)
        else:
            together[seq].append(name)
    return count + sum(
        [await ports.world.count(names, after=seq) for seq, names in together.items()]
    )


def _watched(expectations: Iterable[ExpectationInfo]) -> tuple[list[str], list[Feed]]:
    """Return the names of events, and the streams of others, that any of `expectations` is for."""
    said = [text.split() for each in expectations for text in each.triggers]
    names = [words[1] for words in said if words[0] == "event"]
    feeds = {tuple(words[1:3]) for words in said if words[0] == "stream"}
    return names, [Feed(stream=stream, subject=subject) for stream, subject in sorted(feeds)]
