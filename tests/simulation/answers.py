"""People and programs who see what episodes ask for, and answer: rightly, wrongly, late or never.

They look at what is stored, as the rows would show it to them, and reach the servers through the
same network as everybody else. What nobody would ever end otherwise, they answer in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from random import Random
from typing import Final

import msgspec

from engine.operations.dead_letters import DeadLetterRequests
from engine.outputs.dead_letters import OUTPUT_FAILED
from engine.waits.signal import RESOLVED
from streams.layout import Stream
from streams.model.commands import Attend
from streams.model.events import (
    DeadLettered,
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeDeferred,
    EpisodeOpened,
    LogEvent,
    OutputApprovalGiven,
    OutputFailed,
    OutputPostponed,
    OutputProposed,
    OutputRetried,
)
from streams.model.waits import Approval, Wait
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.wire.messages import StreamMessage
from tests.simulation import deciders
from tests.simulation.asking import ROW, ROW_WAITS
from tests.simulation.life import Life
from tests.simulation.people import Request, decide, surely
from tests.simulation.themes import Programme, Theme
from tests.simulation.time import EPOCH, SimClock
from tests.simulation.wire import Servers, wired
from vigil.ports import cancel, cancel_output, cancel_related, resolve, retry_output

LOOK_S: Final = 0.4
EARLY_S: Final = 20.0
"""Until when word is given that nobody may wait for yet, in simulated seconds."""

WORDS: Final = ("paid:k1", "sent:k2")
"""What is said to have come about before anybody waits for it."""

PAUSES_S: Final = (0.0, 0.005, 0.02, 0.05, 2.0)
"""Between two signals of a burst, in simulated seconds."""

DROPPED_SHARE: Final = 0.12
"""Of the times that an output is proposed or put off, those at which somebody wants it no more."""

RELATED: Final = ("ask_deny", "ask_twice", "wait_ever", "gated", "gated_ever", "send")
"""Expectations all of whose episodes may be canceled at once."""


@dataclass
class Answers:
    """All that is answered in one world, drawn from its seed."""

    seed: int
    programme: Programme
    servers: Servers
    _actors: dict[str, str] = field(default_factory=dict)
    """By the subject of an episode."""
    _in_a_row: set[str] = field(default_factory=set)
    """References for which a burst of signals was begun."""
    _asked: dict[str, Request] = field(default_factory=dict)
    """What people were asked last, by the subject of an output."""
    _ports: Ports = field(init=False)
    _seen: int = 0
    _open: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether anybody is about to answer something."""
        return bool(self._open) or self._seen < len(self.servers.stored)

    async def run(self) -> None:
        """See and answer, for ever."""
        self._ports = wired(Life("people", is_mortal=False), self.servers)
        async with asyncio.TaskGroup() as group:
            rng = Random(f"answers {self.seed}")
            if Theme.WAITS in self.programme.themes:
                for ref in WORDS:
                    self._start(group, self._say_early(ref, rng.uniform(0.0, EARLY_S)))
            if rng.random() < 0.25:
                self._start(group, self._cancel_related(rng))
            while True:
                await asyncio.sleep(LOOK_S)
                new = self.servers.stored[self._seen :]
                self._seen += len(new)
                for record in new:
                    for event in record.commit.events:
                        self._see(group, event, record)
                        self._see_drop(group, event, record)

    def _start(self, group: asyncio.TaskGroup, doing: Coroutine[None, None, None]) -> None:
        def is_over(_: object) -> None:
            self._open -= 1

        self._open += 1
        group.create_task(doing).add_done_callback(is_over)

    def _see(self, group: asyncio.TaskGroup, event: LogEvent, record: Recorded) -> None:
        rng = Random(f"answers {self.seed} {record.subject} {record.seq} {type(event).__name__}")
        if deciders.is_wanted(event, rng):
            instance_id = _key_of(record)
            self._start(group, deciders.see_to(self._ports, instance_id, event, rng))
        if (request := self._request(event, record)) is not None:
            self._start(group, self._ask(request, rng))
        match event:
            case EpisodeOpened(actor_id=actor):
                self._actors[record.subject] = actor
            case EpisodeBlocked(wait=Wait() as wait) if wait.ref:
                self._start(group, self._speak(wait, record, rng))
            case EpisodeDeferred():
                if rng.random() < 0.15:
                    self._start(group, self._call_off(record, rng))
            case OutputFailed() | OutputPostponed():
                self._start(group, self._retry(record, rng))
            case DeadLettered(reason=reason) if reason == OUTPUT_FAILED:
                self._start(group, self._requeue(record, rng))

    def _request(self, event: LogEvent, record: Recorded) -> Request | None:
        """Return what people are asked, also by what some have approved and others have to."""
        match event:
            case EpisodeBlocked(approval=Approval() as approval, step_no=step_no) | (
                EpisodeApprovalGiven(
                    blocked=EpisodeBlocked(approval=Approval() as approval), step_no=step_no
                )
            ):
                return Request(
                    actor_id=self._actors[record.subject],
                    episode_id=_key_of(record),
                    approval=approval,
                    step_no=step_no,
                )
            case OutputProposed(approval=Approval() as approval):
                self._asked[record.subject] = Request(
                    actor_id=event.actor_id,
                    episode_id=event.episode_id,
                    approval=approval,
                    output_key=event.output_key,
                )
                return self._asked[record.subject]
            case (
                OutputRetried(approval=Approval() as approval)
                | OutputApprovalGiven(approval=approval)
            ):
                return msgspec.structs.replace(self._asked[record.subject], approval=approval)
            case _:
                return None

    def _see_drop(self, group: asyncio.TaskGroup, event: LogEvent, record: Recorded) -> None:
        rng = Random(f"drops {self.seed} {record.subject} {record.seq}")
        is_wanted = isinstance(event, OutputProposed | OutputPostponed)
        if is_wanted and rng.random() < DROPPED_SHARE:
            self._start(group, self._drop(record, rng))

    async def _ask(self, request: Request, rng: Random) -> None:
        """Have people decide, or have the episode canceled that asks them."""
        if rng.random() < 0.1:
            await self._attend(request.actor_id, request.episode_id)
        if not request.output_key and rng.random() < 0.12:
            await self._cancel(request.actor_id, request.episode_id, rng)
        else:
            await decide(self._ports, request, rng)

    # What programs say.

    async def _say_early(self, ref: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._publish(ref, id_=f"early.{ref}", number=1)

    async def _speak(self, wait: Wait, record: Recorded, rng: Random) -> None:
        """Say that what an episode waits for has come about: soon, late, by hand; or never."""
        if wait.ref.startswith(f"{ROW}:"):
            await self._speak_in_a_row(wait.ref, rng)
            return
        way = rng.choices(("soon", "late", "hand", "cancel", "never"), (10, 2, 2, 2, 4))[0]
        if wait.expires_at is None and way in {"late", "hand", "never"}:
            way = "soon"
        if way == "late" and wait.expires_at is not None:
            await asyncio.sleep(max(0.0, _s(wait.expires_at) - _now_s()))
        if way != "never":
            await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 6.0))))
        match way:
            case "cancel":
                await self._call_off(record, rng)
            case "hand":
                said = {"value": rng.randrange(1, 1_000)}
                await surely(partial(resolve, self._ports, wait.ref, said, by="hand"))
            case "soon" | "late":
                await self._tell(wait.ref, record, rng)

    async def _speak_in_a_row(self, ref: str, rng: Random) -> None:
        """Say as often as an episode waits for it that it has come about, in short order."""
        if ref in self._in_a_row:
            return
        self._in_a_row.add(ref)
        await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 6.0))))
        pause_s = rng.choice(PAUSES_S)
        for number in range(1, ROW_WAITS + 1):
            await self._publish(ref, id_=f"{ref}.{number}", number=number)
            await asyncio.sleep(pause_s)

    async def _tell(self, ref: str, record: Recorded, rng: Random) -> None:
        """Give word, if none was given since the episode of `record` waits for it."""
        if self._has_word_since(ref, record):  # It reaches all that wait, so it must be enough.
            return
        id_ = f"word.{record.subject}.{record.seq}"
        await self._publish(ref, id_=id_, number=rng.randrange(1, 1_000))
        if rng.random() < 0.3:
            await asyncio.sleep(rng.uniform(0.0, 4.0))
            await self._publish(ref, id_=id_, number=0)
        if rng.random() < 0.2:
            await self._publish(ref, id_=f"{id_}.other", number=rng.randrange(1, 1_000))

    async def _publish(self, ref: str, *, id_: str, number: int) -> None:
        payload = {"ref": ref, "result": {"value": number}, "by": "bank"}
        await surely(partial(self._ports.domain_events.publish, RESOLVED, payload, id=id_))

    def _has_word_since(self, ref: str, record: Recorded) -> bool:
        ports = self.servers.ports
        events = ports.log._streams[ports.stack.stream(Stream.EVENTS)].past(0)
        since_s = self.servers.stored_at_s[record.subject, record.seq]
        return any(_is_word(each, ref) and _s(each.at) > since_s for each in events)

    # What else happens to them.

    async def _attend(self, actor: str, episode_id: str) -> None:
        """Have a node look after an episode about which nothing need be due."""
        attend = Attend(actor_id=actor, episode_id=episode_id)
        id_ = f"look.{episode_id}.{_now_s()}"
        await surely(partial(self._ports.commands.send, attend, id=id_))

    async def _cancel(self, actor: str, episode_id: str, rng: Random) -> None:
        await asyncio.sleep(rng.uniform(0.0, 6.0))
        await surely(partial(cancel, self._ports, actor, episode_id, by="ada"))

    async def _call_off(self, record: Recorded, rng: Random) -> None:
        await self._cancel(self._actors[record.subject], _key_of(record), rng)

    async def _cancel_related(self, rng: Random) -> None:
        await asyncio.sleep(rng.uniform(5.0, 40.0))
        name = rng.choice(RELATED)
        actor = "asker" if name.startswith("ask") else "waiter"
        actor = actor if name.startswith(("ask", "wait")) else "sender"
        await surely(partial(cancel_related, self._ports, actor, name, by="ada"))

    async def _retry(self, record: Recorded, rng: Random) -> None:
        """Have what failed, or is put off, tried again: by one, by two at once, or by nobody."""
        count = rng.choice((0, 0, 1, 2))
        await asyncio.sleep(rng.uniform(0.0, 20.0))
        _, key = self.servers.ports.stack.aggregate_of(record.subject)
        retries = (partial(retry_output, self._ports, key, by=f"p{n}") for n in range(count))
        await asyncio.gather(*(surely(each) for each in retries))

    async def _drop(self, record: Recorded, rng: Random) -> None:
        """Have an output not be delivered any more, by itself: wanted by one, or by two at once."""
        await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 8.0))))
        _, key = self.servers.ports.stack.aggregate_of(record.subject)
        count = rng.choice((1, 1, 2))
        drops = (partial(cancel_output, self._ports, key, by=f"d{n}") for n in range(count))
        await asyncio.gather(*(surely(each) for each in drops))

    async def _requeue(self, record: Recorded, rng: Random) -> None:
        if rng.random() < 0.3:
            await asyncio.sleep(rng.uniform(0.0, 10.0))
            _, key = self.servers.ports.stack.aggregate_of(record.subject)
            settler = DeadLetterRequests(self._ports, SimClock())
            await surely(partial(settler.requeue, key, by="ada"))


def _is_word(message: StreamMessage, ref: str) -> bool:
    if not message.subject.endswith(f".{RESOLVED}"):
        return False
    return bool(msgspec.json.decode(message.data)["ref"] == ref)


def _key_of(record: Recorded) -> str:
    """Return the id of the episode, or of the instance, that `record` is of."""
    return record.subject.rpartition(".")[2]


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _s(at: datetime) -> float:
    return (at - EPOCH).total_seconds()
