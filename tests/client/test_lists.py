"""All lists of a client are read the same way: page by page, from either end, several of a kind."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from projections.postgres.reader import has_stack
from projections.project import project
from streams.clock import SystemClock
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    DeadDiscarded,
    EndStatus,
    OutputCanceled,
)
from streams.model.findings import Severity
from tests.engine.workflows.flows import done, fails, flow, given
from tests.projections import lives
from tests.projections.lives import AT, projecting, wait_until, write, write_events
from vigil.client import Client
from vigil.errors import Mistake, NotFound

SECOND = timedelta(seconds=1)


async def put_episodes(pool, stack):
    """Two that wait, two that run, and two that have ended; some began at the same time."""
    lived = [(), (), (lives.started(),), (lives.started(),)]
    lived += [
        (lives.started(), lives.finished(each)) for each in (EndStatus.DONE, EndStatus.FAILED)
    ]
    for number, events in enumerate(lived, start=1):
        subject = stack.episode(lives.episode_id(number))
        await write_events(pool, lives.opened(number), *events, stack=stack, subject=subject)


async def put_findings(pool, stack):
    """Three severities, the same time for all; one was raised twice, one cleared."""
    for key, severity in {"a": "high", "b": "low", "c": "high", "d": "critical"}.items():
        raised = lives.raised(key, severity=Severity(severity))
        await write_events(pool, raised, stack=stack, subject=stack.finding(key))
    later = {"at": AT + SECOND, "stack": stack}
    await write_events(pool, lives.cleared("b"), subject=stack.finding("b"), **later)
    again = lives.cleared("a"), lives.raised("a", raise_no=2)
    await write_events(pool, *again, subject=stack.finding("a"), **later)


async def put_outputs(pool, stack):
    for number in range(1, 6):
        key = f"mail:{number}"
        events = [lives.proposed(key=key), *[OutputCanceled(by="bob")] * (number % 2)]
        await write_events(pool, *events, stack=stack, subject=stack.output(key))


async def put_letters(pool, stack):
    for number in range(1, 6):
        events = [lives.lettered(seq=number)]
        if number % 2:
            events.append(DeadDiscarded(by="bob", reason="old"))
        subject = stack.dead("events", str(number))
        await write_events(pool, *events, stack=stack, subject=subject)


async def put_workflows(pool, stack):
    for number in range(5):
        happens = [done("a")] if number % 2 else []
        told = given(flow("a")).when(*happens).flow
        subject = stack.workflow(str(UUID(int=number + 1)))
        journal = [replace(each, subject=subject) for each in told.journal]
        await write(pool, project(journal, stack=stack), stack=stack)


async def put_orders(pool, stack):
    for actor in ("dba", "web", "mail"):
        events = ActorPaused(actor_id=actor, by="ann"), ActorResumed(actor_id=actor, by="ann")
        await write_events(pool, *events, stack=stack, subject=stack.order(f"pause.{actor}"))


LISTS = {
    "episodes": (put_episodes, lambda client: client.episodes, "episode_id", ("queued", "done")),
    "findings": (put_findings, lambda client: client.findings, "raise", ("active", "superseded")),
    "outputs": (put_outputs, lambda client: client.outputs, "output_key", ("canceled", "failed")),
    "letters": (put_letters, lambda client: client.dead_letters, "letter_key", ("waiting",)),
    "workflows": (put_workflows, lambda client: client.workflows, "instance_id", ("done",)),
    "orders": (put_orders, lambda client: client.orders, "order", ()),
}


@pytest.fixture(params=LISTS)
async def listed(request, pool, client):
    """The calls of a list with some rows, and what else to know of it."""
    put, calls_of, *more = LISTS[request.param]
    await put(pool, client.stack)
    return calls_of(client), *more


def any_status(key):
    return {} if key == "order" else {"status": None}


async def read_pages(calls, *, limit, **said):
    """Return all rows of a list, read in pages, of which none but the last has no `next`."""
    rows, after = [], None
    for _ in range(99):
        page = await calls.list(after=after, limit=limit, **said)
        rows += page.rows
        if (after := page.next) is None:
            return rows
        assert len(page.rows) == limit
    pytest.fail("the list has no end")


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_the_pages_of_a_list_are_the_list_from_either_end(listed, limit):
    calls, key, _ = listed
    whole = list((await calls.list(**any_status(key))).rows)
    assert len(whole) >= 5
    page = await calls.list(limit=2, **any_status(key))
    assert list(page) == list(page.items)
    assert await read_pages(calls, limit=limit, **any_status(key)) == whole
    turned = await read_pages(calls, limit=limit, reverse=True, **any_status(key))
    assert turned == whole[::-1]


async def test_a_list_of_several_statuses_has_those_of_each(listed):
    calls, key, wanted = listed
    if key == "order":
        return
    whole = (await calls.list(status=None)).rows
    several = (await calls.list(status=wanted)).rows
    assert several == [row for row in whole if row["status"] in wanted]
    assert 0 < len(several) < len(whole)
    assert (await calls.list(status=[])).rows == []
    assert (await calls.list(status=(each for each in wanted))).rows == several


async def test_a_count_says_how_many_of_each_status_a_list_has(listed):
    calls, key, _ = listed
    column = "change" if key == "order" else "status"
    whole = (await calls.list(**any_status(key))).rows
    assert await calls.count() == Counter(row[column] for row in whole)


async def test_findings_are_counted_no_further_than_wanted(pool, client):
    await put_findings(pool, client.stack)
    exact = await client.findings.count()

    assert await client.findings.count(most=1) == dict.fromkeys(exact, 1)
    assert await client.findings.count(most=1_000) == exact
    assert max(exact.values()) > 1


async def test_a_status_that_is_said_twice_is_listed_once(pool, client):
    await put_findings(pool, client.stack)

    twice = await client.findings.list(status=["active", "active"])

    assert twice.rows == (await client.findings.list(status="active")).rows


async def test_an_empty_list_of_what_never_had_an_episode_names_what_is_called_so(
    ports, pool, client
):
    await put_episodes(pool, client.stack)
    async with projecting(ports, pool):
        await wait_until(lambda: has_stack(pool, client.stack))
    of, lists = client.stack.name, (client.episodes, client.findings, client.outputs)
    for each in lists:
        none = await each.list(actor="monitr")
        said = f"no episode of stack {of} was ever of actor 'monitr'; did you mean monitor?"
        assert (none.rows, none.why_none) == ([], said)
        assert (await each.list(actor=["monitor"], limit=1)).why_none == ""
    named = await client.episodes.list(actor="monitor", expectation="check_dsk")
    anyones = await client.episodes.list(expectation="check_dsk")
    said = f"no episode of stack {of} was ever of expectation 'check_dsk'; did you mean check_disk?"
    assert (named.why_none, anyones.why_none) == (said, said)
    known = await client.episodes.list(expectation="check_disk", subject="no such host")
    assert (known.rows, known.why_none) == ([], "")


async def test_the_next_page_of_another_list_is_no_place_in_this_one(pool, client):
    await put_outputs(pool, client.stack)
    await put_letters(pool, client.stack)
    await put_orders(pool, client.stack)
    of_outputs = (await client.outputs.list(limit=1)).next
    with pytest.raises(NotFound, match="no dead letter"):
        await client.dead_letters.list(after=of_outputs)
    with pytest.raises(Mistake, match="is not the `next` of a page of orders"):
        await client.orders.list(after=of_outputs)


@pytest.mark.parametrize(
    ("name", "after", "follows"),
    [
        ("findings", "d", "c"),
        ("outputs", "mail:3", "mail:2"),
        ("letters", "events.3", "events.2"),
        ("workflows", UUID(int=3), str(UUID(int=2))),
        ("episodes", UUID(int=2), str(UUID(int=1))),
    ],
)
async def test_a_page_can_begin_after_what_somebody_names(pool, client, name, after, follows):
    put, calls_of, *_ = LISTS[name]
    await put(pool, client.stack)
    keys = "finding_key", "output_key", "letter_key", "instance_id", "episode_id"
    (row,) = (await calls_of(client).list(status=None, after=after, limit=1)).rows
    assert str(next(row[each] for each in keys if row.get(each))) == follows
    unknown = UUID(int=99) if isinstance(after, UUID) else "x.y"
    with pytest.raises(NotFound):
        await calls_of(client).list(after=unknown)


async def put_waiting(pool, stack):
    """Two dead letters, and a step of a workflow of which three items have failed."""
    for number in range(1, 3):
        subject = stack.dead("events", str(number))
        await write_events(pool, lives.lettered(seq=number), stack=stack, subject=subject)
    many = {"for_each": lambda t, p: [{}, {}, {}], "on_failure": "pause"}
    happens = [fails("a", item=number) for number in range(3)]
    told = given(flow(("a", many))).when(*happens).flow
    journal = [replace(each, subject=stack.workflow(str(UUID(int=1)))) for each in told.journal]
    await write(pool, project(journal, stack=stack), stack=stack)


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_the_inbox_is_read_in_pages_too_from_either_end(pool, client, limit):
    await put_waiting(pool, client.stack)
    whole = (await client.inbox()).rows
    assert len(whole) == 5
    for reverse in (False, True):
        rows, after = [], None
        while True:
            page = await client.inbox(after=after, limit=limit, reverse=reverse)
            rows += page.rows
            if (after := page.next) is None:
                break
        assert rows == (whole[::-1] if reverse else whole)


async def test_the_inbox_is_narrowed_to_kinds_and_counted(pool, client):
    await put_waiting(pool, client.stack)
    steps = (await client.inbox(kind=["approval", "workflow_step"])).items
    assert [(each.kind, each.item) for each in steps] == [("workflow_step", n) for n in range(3)]
    assert await client.count_inbox() == {"dead_letter": 2, "workflow_step": 3}
    with pytest.raises(Mistake, match=r"kind: 'aproval' is not one of .*did you mean approval"):
        await client.inbox(kind="aproval")
    with pytest.raises(Mistake, match="limit: 0 is not a whole number from 1 to 10,000"):
        await client.inbox(limit=0)


async def test_what_waits_is_not_passed_over_when_the_last_of_a_page_starts(pool, client):
    await put_episodes(pool, client.stack)
    page = await client.episodes.list(limit=1)
    (first,) = page.items
    started = client.stack.episode(str(first.episode_id))
    await write_events(pool, lives.started(), stack=client.stack, subject=started, at=AT + SECOND)
    second = await client.episodes.list(after=page.next, limit=1)
    assert [each.status for each in (first, *second.items)] == ["queued", "queued"]


async def test_steps_and_the_timeline_of_a_long_episode_are_read_in_pages(pool, client):
    id_ = lives.episode_id(1)
    events = [lives.opened(), lives.started(), *(lives.recorded(each) for each in range(1, 6))]
    await write_events(pool, *events, stack=client.stack, subject=client.stack.episode(id_))
    for calls in (client.episodes.steps, client.episodes.timeline):
        whole, rows, after = (await calls(id_)).rows, [], None
        while (page := await calls(id_, after=after, limit=2)).next is not None:
            rows, after = [*rows, *page.rows], page.next
        assert [*rows, *page.rows] == whole
        with pytest.raises(Mistake, match="after: 'x' is not the `next` of a page of"):
            await calls(id_, after="x")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda client: client.findings.list(severity="hgh"), "did you mean high"),
        (lambda client: client.findings.count(severity=["low", "hgh"]), "did you mean high"),
        (lambda client: client.outputs.list(status=["failed", "faild"]), "did you mean failed"),
        (lambda client: client.orders.list(after="x"), "after: 'x' is not the `next` of a page of"),
        (lambda client: client.episodes.list(since=datetime(2030, 1, 1)), "since: .* no time zone"),  # noqa: DTZ001 - that is the mistake
        (lambda client: client.episodes.count(until=datetime(2030, 1, 1)), "until: .* no time"),  # noqa: DTZ001 - that is the mistake
        (lambda client: client.episodes.failures(newest=0), "newest: 0 is not from 1 to 10,000"),
    ],
)
async def test_what_no_list_can_be_asked_for_is_a_mistake_in_one_line(client, call, why):
    with pytest.raises(Mistake, match=why) as raised:
        await call(client)
    assert "\n" not in str(raised.value)


async def test_the_newest_of_each_status_are_counted_and_whether_there_are_more(
    client, pool, stack, monkeypatch
):
    await put_episodes(pool, stack)
    monkeypatch.setattr("vigil.client.episodes.NEWEST_MAX", 2)

    found = await client.episodes.count_newest()

    assert (found["running"].episodes, found["running"].is_more) == (2, True)
    assert (found["done"].episodes, found["done"].is_more) == (1, False)
    assert (found["canceled"].episodes, found["canceled"].is_more) == (0, False)
    other = await client.episodes.count_newest(actor="nobody")
    assert {each.episodes for each in other.values()} == {0}


async def test_the_newest_of_the_past_are_counted_as_they_were(ports, pool, stack):
    await put_episodes(pool, stack)
    async with Client.on(ports, pool, by="ann", clock=StillClock(AT + 2 * SECOND)) as client:
        then = await client.episodes.count_newest(at=AT - SECOND)
        later = await client.episodes.count_newest(at=AT + SECOND)

    assert then == {}
    assert sum(each.episodes for each in later.values()) == 6
    assert not any(each.is_more for each in later.values())


class StillClock(SystemClock):
    """A clock that stands still."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at
