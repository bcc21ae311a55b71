"""What a client does with outputs and with dead letters."""

from __future__ import annotations

import pytest

from streams.layout import Stream
from streams.model.events import OutputAttempted, OutputCanceled, OutputFailed
from tests.client.happened import happened
from tests.projections import lives
from tests.projections.lives import projecting, wait_projected
from tests.vigil.journal import proposed
from vigil.errors import NotFound

LETTER = "events.7"


async def failed(ports, *keys):
    for key in keys:
        ended = (OutputAttempted(attempt=1), OutputFailed(attempt=1, error_class="away"))
        await happened(ports, ports.stack.output(key), proposed(key), *ended)


async def test_what_is_asked_for_while_no_node_is_up_stays_asked_for(ports, client):
    await failed(ports, "k")
    (asked,) = await client.outputs.retry("k", "k", reason="again")
    assert (asked.name, asked.done, asked.refused) == ("k", "sent; a node decides on it", "")
    assert "no node that is up runs actor 'dba'" in asked.obstacle
    assert asked.is_in_vain
    assert await ports.commands.is_waiting("dba", proposed("k").episode_id)


async def test_what_cannot_be_done_is_refused_one_by_one(ports, client):
    await failed(ports, "k")
    await happened(ports, ports.stack.output("gone"), proposed("gone"), OutputCanceled(by="bob"))
    known, unknown, gone = await client.outputs.retry("k", "none", "gone", wait_s=None)
    assert known.refused == ""
    assert unknown.refused
    assert gone.refused


async def test_pages_of_outputs_follow_one_another(ports, pool, client):
    await failed(ports, *(f"k{number}" for number in range(5)))
    seen, after = [], None
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        while True:
            page = await client.outputs.list(status="failed", after=after, limit=2)
            seen.append([each.output_key for each in page.items])
            if (after := page.next) is None:
                break
        one = await client.outputs.get("k3")
        with pytest.raises(NotFound, match="no output 'x'"):
            await client.outputs.list(after="x")
    assert seen == [["k4", "k3"], ["k2", "k1"], ["k0"]]
    assert (one.status, [each.kind for each in one.history][-1]) == ("failed", "output_proposed")


async def test_a_dead_letter_is_listed_and_settled_once(ports, pool, client):
    await happened(ports, ports.stack.dead_letter(LETTER), lives.lettered())
    async with projecting(ports, pool):
        await wait_projected(ports, pool, Stream.DEAD)
        (waiting,) = (await client.dead_letters.list()).items
        shown = await client.dead_letters.get(waiting.letter_key)
        told = await client.dead_letters.describe(waiting.letter_key)
    done, gone = await client.dead_letters.discard(waiting.letter_key, "no.such", reason="old")
    (again,) = await client.dead_letters.discard(waiting.letter_key, reason="old")

    assert (shown.letter_key, shown.status) == (waiting.letter_key, "waiting")
    assert told["what_to_do"].startswith("vigil dead requeue ")
    assert (done.done, gone.refused) == ("discarded", "there is no such dead letter")
    assert again.refused


async def test_what_waits_for_people_is_in_the_inbox_and_sql_is_answered(ports, pool, client):
    await happened(ports, ports.stack.dead_letter(LETTER), lives.lettered())
    async with projecting(ports, pool):
        await wait_projected(ports, pool, Stream.DEAD)
        page = await client.inbox()
        table = await client.sql("SELECT count(*) AS letters FROM dead_letters")
    assert [(each.kind, each.id) for each in page.items] == [("dead_letter", LETTER)]
    assert (table.columns, table.is_cut) == (("letters",), False)
