"""Dead letters that are over leave their stream, from its beginning on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.archive.purge_dead_letters import PurgeDeadLetters
from engine.archive.run import KnownRows
from engine.orders.store import give_order
from engine.retention.store import note_cuts
from engine.retention.worker import run_steps
from streams.keys import published_key
from streams.layout import Kind
from streams.model.events import DeadDiscarded, DeadLettered, HoldAdded
from streams.model.retention import HoldKind, RetentionCut, RetentionField
from tests.engine.archive.stage import Stage, play
from tests.engine.reactor import journals as given

LETTER = DeadLettered(
    reason="unreadable",
    detail="no JSON",
    stream="s-events",
    seq=1,
    subject="s.event.a",
    actor_id="monitor",
    episode_id="e1",
)
DISCARDED = DeadDiscarded(by="ann")


def staged(scene):
    return play(scene(Stage()))


async def letter(stage: Stage, name: str, *, is_settled: bool = True) -> None:
    subject = stage.stack.dead("s-events", name)
    await stage.append(subject, LETTER)
    if is_settled:
        await stage.append(subject, DISCARDED)


async def purged(stage: Stage, *, is_dry=False, read=100, rows: KnownRows | None = KnownRows()):  # noqa: B008 - frozen
    """Run, and return what was told, and where the stream begins then."""

    async def known() -> KnownRows | None:
        return rows

    await stage.ports.gates.put(published_key("dead"), str(read).encode())
    report = await run_steps(
        stage.ports,
        by="n1",
        clock=stage.clock,
        check=lambda: None,
        steps=[PurgeDeadLetters(known)],
        is_dry=is_dry,
    )
    (told,) = report.steps
    state = await stage.ports.states.of("dead")
    return told, state.first_seq


async def cut(stage: Stage) -> None:
    """Have the rows of letters leave that were settled before an hour ago."""
    before = stage.clock.now() - timedelta(hours=1)
    what = RetentionCut(what=RetentionField.DEAD_LETTERS, before=before)
    await note_cuts(stage.ports, (what,), by="n1", clock=stage.clock)


async def aged(stage: Stage) -> None:
    """Have two letters that are over and one that is not, after some hours."""
    await letter(stage, "1")
    await letter(stage, "2")
    await stage.later()
    await letter(stage, "3")
    await cut(stage)


def test_letters_that_are_over_leave():
    async def scene(stage: Stage):
        await aged(stage)
        told, first_seq = await purged(stage)
        left = await stage.ports.log.read(stage.stack.dead("s-events", "3"))
        return told, first_seq, len(left), await purged(stage)

    told, first_seq, left, again = staged(scene)
    assert (told.gone, first_seq, left) == ({"letters": 2}, 5, 2)
    assert told.says == "the rest stays for one that was settled lately"
    assert (again[0].gone, again[1]) == ({"letters": 0}, 5)


def test_nothing_leaves_that_is_not_cut_off():
    async def scene(stage: Stage):
        await letter(stage, "1")
        await stage.later()
        return await purged(stage)

    told, first_seq = staged(scene)
    assert (told.gone, first_seq) == ({}, 1)


def test_a_letter_whose_end_is_not_read_yet_keeps_its_beginning():
    async def scene(stage: Stage):
        await aged(stage)
        return await purged(stage, read=3)

    told, first_seq = staged(scene)
    assert (told.gone, first_seq) == ({"letters": 1}, 3)


def test_a_letter_that_waits_keeps_all_after_it():
    async def scene(stage: Stage):
        await letter(stage, "0")
        await letter(stage, "w", is_settled=False)
        await aged(stage)
        return await purged(stage)

    told, first_seq = staged(scene)
    assert (told.gone, first_seq, told.says) == (
        {"letters": 1},
        3,
        "the rest stays for one that waits",
    )


@pytest.mark.parametrize(
    "held",
    [(HoldKind.ACTOR, "monitor"), (HoldKind.EPISODE, "e1"), (HoldKind.SUBJECT, "web-1")],
)
def test_a_letter_that_is_held_stays(held):
    kind, name = held

    async def scene(stage: Stage):
        about = replace(given.OPENED.trigger, entity_id="web-1")
        opened = replace(given.OPENED, episode_id="e1", trigger=about)
        await stage.append(stage.stack.aggregate(Kind.EPISODE, "e1"), opened)
        await aged(stage)
        hold = HoldAdded(kind=kind, held=name, by="ann")
        await give_order(stage.ports, hold, clock=stage.clock)
        return await purged(stage)

    told, first_seq = staged(scene)
    assert (first_seq, told.says) == (1, f"the rest stays for {kind.value} {name}")


def test_a_letter_that_has_a_row_stays():
    async def scene(stage: Stage):
        began = stage.clock.now()
        await aged(stage)
        return await purged(stage, rows=KnownRows(letters_since=began))

    told, first_seq = staged(scene)
    assert (first_seq, told.says) == (1, "the rest stays for the tables")


@pytest.mark.parametrize(("read", "position"), [(2, 100), (100, 2)])
def test_what_reactor_or_tables_have_yet_to_read_stays(read, position):
    async def scene(stage: Stage):
        await aged(stage)
        return await purged(stage, read=read, rows=KnownRows(positions={"dead": position}))

    assert staged(scene)[1] == 3


def test_nothing_leaves_while_nobody_knows_what_the_tables_have():
    async def scene(stage: Stage):
        await aged(stage)
        return await purged(stage, rows=None)

    told, first_seq = staged(scene)
    assert (first_seq, "does not say" in told.problem) == (1, True)


def test_a_dry_run_tells_what_would_leave():
    async def scene(stage: Stage):
        await aged(stage)
        return await purged(stage, is_dry=True)

    told, first_seq = staged(scene)
    assert (told.gone, first_seq) == ({"letters": 2}, 1)
