"""What a client does with findings."""

from __future__ import annotations

import pytest

from engine.app.findings import raise_finding
from engine.findings.apply import FindingApplier
from engine.runtime.store import Turns
from streams.clock import SystemClock
from tests.engine.stage import Scripted, app_of, opening
from tests.projections.lives import projecting, wait_projected
from vigil.errors import Mistake, NotFound

APP = app_of(Scripted())


async def raised(ports, *intents) -> None:
    """Have an episode of the stack raise findings."""
    applier = FindingApplier(ports, APP.actors, SystemClock(), Turns())
    await applier.apply(intents, opened=opening(APP), attempt=1)


async def test_a_finding_is_acknowledged_once_noted_and_cleared_once(ports, client):
    await raised(ports, raise_finding("disk", class_="full"))
    first = await client.findings.acknowledge("disk", reason="seen")
    again = await client.findings.acknowledge("disk", by="bob")
    noted = await client.findings.note("disk", "ordered a disk")
    cleared = await client.findings.clear("disk", by="bob")
    nothing = await client.findings.clear("disk")

    assert [each.is_made for each in (first, again, noted, cleared, nothing)] == [
        *(True, False, True, True, False)
    ]
    assert again.before.acknowledged_by == "ann"
    assert nothing.before.cleared_by == "bob"


@pytest.mark.parametrize("verb", ["clear", "acknowledge"])
async def test_a_key_that_nobody_has_raised_is_not_found(client, verb):
    with pytest.raises(NotFound, match="no finding 'dsk' in stack") as raised:
        await getattr(client.findings, verb)("dsk")
    assert raised.value.remedy == "`vigil findings list --status all` shows those there are"


async def test_what_cannot_be_kept_is_a_mistake(ports, client):
    await raised(ports, raise_finding("disk", class_="full"))
    with pytest.raises(Mistake, match="reason: 4,001 characters"):
        await client.findings.note("disk", "x" * 4_001)
    with pytest.raises(Mistake, match="by: give a name"):
        await client.findings.clear("disk", by=" ")


async def test_findings_are_listed_shown_and_explained(ports, pool, client):
    await raised(
        ports,
        raise_finding("power", class_="off", severity="high"),
        raise_finding("rack", class_="off", severity="low", caused_by="power"),
    )
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        page = await client.findings.list()
        high = await client.findings.list(severity="high", actor="watcher", limit=1)
        one = await client.findings.get("rack")
        chain = await client.findings.causal_chain("rack")
        short = await client.findings.causal_chain("rack", depth=0)

    assert [each.finding_key for each in page.items] == ["power", "rack"]
    assert [each.finding_key for each in high.items] == (["power"] if high.items else [])
    assert (one.caused_by_key, one.history[0].kind) == ("power", "finding_raised")
    assert [(each.depth, each.finding_key) for each in chain] == [(0, "rack"), (1, "power")]
    assert [each.finding_key for each in short] == ["rack"]


async def test_a_finding_has_what_it_is_related_to_with_what_their_episodes_cost(
    ports, pool, client
):
    await raised(
        ports,
        raise_finding("power", class_="off", severity="high"),
        raise_finding("rack", class_="off", caused_by="power"),
        raise_finding("site", class_="slow", caused_by="rack"),
        raise_finding("mail", class_="slow", caused_by="rack"),
        raise_finding("else", class_="off"),
    )
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        related = await client.findings.related("rack")

    assert {each.finding_key: each.depth for each in related} == {
        "rack": 0,
        "power": -1,
        "site": 1,
        "mail": 1,
    }
    assert related[0].finding_key == "rack"
    assert {each.cost_usd for each in related} == {related[0].cost_usd_of_all}


async def test_findings_that_explain_each_other_are_related_once(ports, pool, client):
    await raised(
        ports,
        raise_finding("one", class_="off", caused_by="other"),
        raise_finding("other", class_="off", caused_by="one"),
    )
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        related = await client.findings.related("one")

    assert sorted(each.finding_key for each in related) == ["one", "other"]


async def test_a_list_of_a_stack_that_was_never_projected_says_so(client):
    page = await client.findings.list()
    assert (page.items, page.next) == ((), None)
    assert "nothing has ever been projected for stack" in page.why_none


async def test_what_the_rows_do_not_have_is_not_found(client):
    calls = client.findings
    for asked in (calls.get("x"), calls.causal_chain("x"), calls.related("x")):
        with pytest.raises(NotFound, match="no finding 'x' in stack"):
            await asked
