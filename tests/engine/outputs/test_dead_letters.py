"""The dead letter of a failed output, where others go on with the output before it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count

import pytest

from engine.app.outputs import propose_output
from engine.outputs import dead_letters
from engine.outputs.handle import OutputCommands
from engine.outputs.output import fold
from streams.layout import Kind, Stream
from streams.memory.log import MemoryLog
from streams.model.commands import RetryOutput
from streams.model.events import DeadEvent, DeadLettered, DeadRequeued
from tests.engine.crew import attempt_of, crew_of, delivery_of
from tests.engine.output_stage import Pager, Proposing, app_of, broken
from tests.engine.stage import opening, write

WANTED = propose_output("pager", {"text": "disk full"}, dedupe_key="disk")

Act = Callable[[], Awaitable[object]]


class SlowToBury(MemoryLog):
    """Others do something between this one's look at an output and its first dead letter."""

    meanwhile: list[Act]

    async def append(self, subject, commit, *, after):
        if isinstance(commit.events[0], DeadLettered) and self.meanwhile:
            await self.meanwhile.pop()()
        return await super().append(subject, commit, after=after)


@pytest.fixture
def app():
    """Its pager fails twice for good, and works from then on."""
    return app_of(Proposing(), {"pager": Pager(broken(), broken())})


@pytest.fixture
def carry(app, ports):
    """Has an episode, called after its event, carry the output as far as it gets."""
    context, writer_ids = crew_of(app, ports), count(1)
    context.permits.runs.turn(on=True)

    async def carried(id_: str, *, meanwhile: Act | None = None) -> None:
        log = SlowToBury(ports.log._streams, stack=ports.stack)
        log.meanwhile = [meanwhile] if meanwhile else []
        slow = replace(context, ports=replace(ports, log=log))
        attempt = attempt_of(opening(app, id_=id_))
        await delivery_of(slow, attempt, f"p{next(writer_ids)}").carry("disk", WANTED)

    return carried


@pytest.fixture
def try_again(app, ports):
    """Has the output tried again, as a person wants."""

    async def tried() -> None:
        opened = opening(app, id_="x1")
        await write(ports, opened.episode_id, opened)
        newest = await ports.log.last(ports.stack.episode(opened.episode_id))
        said = {"actor_id": "worker", "episode_id": opened.episode_id, "id": "r1"}
        command = RetryOutput(**said, output_key="disk", by="ann")
        assert await OutputCommands(crew_of(app, ports)).retry(command, newest)

    return tried


async def letters(ports) -> list[list[DeadEvent]]:
    """Return what has happened to each dead letter."""
    kept = ports.log._streams[ports.stack.stream(Stream.DEAD)]
    subjects = dict.fromkeys(message.subject for message in kept.past(0))
    journals = [await ports.log.read(subject) for subject in subjects]
    return [[event for each in records for event in each.commit.events] for records in journals]


async def settled(ports) -> list[DeadEvent]:
    """Return how each dead letter was settled; all of them are."""
    lives = await letters(ports)
    assert {len(life) for life in lives} == {2}
    return [life[1] for life in lives]


def by_worker(app, id_: str) -> DeadRequeued:
    return DeadRequeued(by="actor worker", episode_id=opening(app, id_=id_).episode_id)


async def test_the_letter_of_what_was_proposed_anew_before_it_was_written_is_settled(
    app, ports, carry
):
    async def others() -> None:
        await carry("x2")
        await carry("x3")

    await carry("x1", meanwhile=others)
    assert set(await settled(ports)) == {by_worker(app, "x2"), by_worker(app, "x3")}


async def test_the_letter_of_what_was_tried_again_before_it_was_written_is_settled(
    ports, carry, try_again
):
    await carry("x1", meanwhile=try_again)
    assert [each.by for each in await settled(ports)] == ["ann"]


async def test_the_letter_of_what_nobody_has_gone_on_with_waits(ports, carry):
    await carry("x1")
    ((letter,),) = await letters(ports)
    assert isinstance(letter, DeadLettered)


async def test_a_letter_is_settled_though_a_replica_does_not_know_of_it_yet(ports, carry, app):
    await carry("x1")
    failed = fold(await ports.log.read(ports.stack.output("disk")))
    letter = ports.stack.dead(Kind.OUTPUT, dead_letters.cause_of(failed))

    class Behind(MemoryLog):
        async def read(self, subject, **said):
            return [] if subject == letter else await super().read(subject, **said)

    behind = replace(ports, log=Behind(ports.log._streams, stack=ports.stack))
    context = crew_of(app, behind)
    context.permits.runs.turn(on=True)
    await delivery_of(context, attempt_of(opening(app, id_="x2")), "p").carry("disk", WANTED)
    first, *_ = await letters(ports)
    assert first[1:] == [by_worker(app, "x2")]
