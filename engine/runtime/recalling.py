"""Remembers in the gates which episode has done a piece of work, and looks there for its result.

Only the episode's name is kept there; its result is read from its journal, of whatever size it is.
"""

from __future__ import annotations

from engine.workflows.commands import Recalled
from engine.workflows.reuse import Keep, Recall, recalled
from streams.clock import Clock
from streams.errors import BadName, UnreadableEvent
from streams.keys import result_key
from streams.ports import Ports
from streams.tokens import name


async def recall(ports: Ports, wanted: Recall, clock: Clock) -> Recalled:
    """Return whether the result of an earlier episode may stand for an item's, and which.

    Raises:
        Unavailable: the gates or the log are away. Look again.
    """
    stack = ports.stack.name
    entry = await ports.gates.get(result_key(wanted.work.key(stack)))
    value = entry.value if entry is not None else None
    try:
        # What stands there may be anyone's: an id is a name, and of anything else there is none.
        episode_id = name(value.decode(), of="episode") if value else ""
        records = await ports.log.read(ports.stack.episode(episode_id)) if episode_id else ()
    except (UnicodeDecodeError, BadName, UnreadableEvent):
        records = ()
    return recalled(wanted, records, stack=stack, at=clock.now())


async def keep(ports: Ports, done: Keep) -> None:
    """Remember which episode has done a piece of work.

    Raises:
        Unavailable: the gates are away. Doing it again is safe.
    """
    key = result_key(done.work.key(ports.stack.name))
    await ports.gates.put(key, done.episode_id.encode(), ttl_s=done.ttl_s)
