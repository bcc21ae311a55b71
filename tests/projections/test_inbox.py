"""The inbox: what waits for a person, and a command that is safe to type."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta

import pytest

from projections.postgres import reader
from projections.project import project as changes_of
from streams.model.events import (
    DeadDiscarded,
    EndStatus,
    EpisodeDeferred,
    OutputApproved,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputRetried,
)
from streams.ports.log import Commit, Recorded
from tests.projections import lives
from tests.projections.lives import AT, rows_of, write, write_events

PASSES_MAX = 25
"""Each of a dozen steps of the plan has every row once."""

LATER = AT + timedelta(hours=1)
BEGUN = (lives.opened(), lives.started())
ASKED_OUTPUT = lives.proposed(approval=lives.approval(expires_at=LATER))


async def asking(pool, stack):
    """Write one of each kind, a second apart."""
    letter = lives.lettered(episode_id=lives.episode_id(1), actor_id="monitor")
    lived = [
        (stack.dead("events", "7"), (letter,)),
        (stack.output("mail:1"), (ASKED_OUTPUT,)),
        (stack.episode(lives.episode_id(1)), (*BEGUN, lives.blocked(expires_at=LATER))),
        (stack.episode(lives.episode_id(2)), (lives.opened(2), lives.blocked(ref="payment:42"))),
    ]
    for second, (subject, events) in enumerate(lived):
        made = Commit(id=f"c{second}", at=AT + timedelta(seconds=second), events=events)
        record = Recorded(subject=subject, seq=1 + second, commit=made)
        await write(pool, changes_of([record], stack=stack), stack=stack)


async def test_everything_that_waits_for_a_person_is_there_the_oldest_first(pool, stack):
    await asking(pool, stack)
    rows = await reader.list_inbox(pool, stack)
    assert [(row["kind"], row["id"], row["expires_at"]) for row in rows] == [
        ("dead_letter", "events.7", None),
        ("output", "mail:1", LATER),
        ("approval", lives.episode_id(1), LATER),
        ("wait", lives.episode_id(2), None),
    ]
    assert [row["since"] for row in rows] == [AT + timedelta(seconds=n) for n in range(4)]
    assert {(row["actor_id"], row["expectation_id"]) for row in rows} == {("monitor", "check_disk")}


async def test_the_view_is_in_that_order_for_whoever_asks_it(pool, stack):
    await asking(pool, stack)
    rows = await pool.fetch("SELECT since FROM inbox WHERE stack = $1", stack.name)
    assert [row["since"] for row in rows] == sorted(row["since"] for row in rows)


async def test_each_says_what_it_is_about_and_what_to_type(pool, stack):
    await asking(pool, stack)
    rows = await reader.list_inbox(pool, stack)
    assert [(row["summary"], row["what_to_do"]) for row in rows] == [
        ("unreadable: not JSON", "vigil dead show events.7"),
        ("wipe the disk", "vigil outputs approve mail:1"),
        ("wipe the disk", f"vigil episodes approve {lives.episode_id(1)}"),
        ("waits for payment:42", "vigil episodes resolve payment:42"),
    ]


async def test_each_names_the_subject_of_its_episode(pool, stack):
    await asking(pool, stack)
    rows = await reader.list_inbox(pool, stack)
    assert {(row["subject_kind"], row["subject_id"]) for row in rows} == {("host", "h1")}


async def test_what_has_no_summary_shows_the_plan(pool, stack):
    asks = lives.proposed(approval=lives.approval(summary=""))
    await write_events(pool, asks, stack=stack, subject=stack.output("mail:1"))
    (row,) = await reader.list_inbox(pool, stack)
    assert row["summary"] == '{"to": "ann"}'


@pytest.mark.parametrize(
    ("place", "events"),
    [
        ("episode", (*BEGUN, lives.blocked(), lives.resolved())),
        ("episode", (*BEGUN, lives.blocked(), lives.finished(EndStatus.CANCELED))),
        ("episode", (*BEGUN, lives.blocked(ref="r"), lives.finished(EndStatus.CANCELED))),
        ("episode", (*BEGUN, lives.converged(), EpisodeDeferred(pending=("mail:1",)))),
        ("output", (ASKED_OUTPUT, OutputApproved(by="ann"))),
        ("output", (lives.proposed(),)),
        ("dead", (lives.lettered(), DeadDiscarded(by="ann"))),
    ],
)
async def test_what_waits_for_nobody_is_not_there(pool, stack, place, events):
    subjects = {
        "episode": stack.episode(lives.episode_id(1)),
        "output": stack.output("mail:1"),
        "dead": stack.dead("events", "7"),
    }
    await write_events(pool, *events, stack=stack, subject=subjects[place])
    assert await rows_of(pool, "inbox", stack=stack) == []


async def test_an_episode_that_asks_again_is_there_once(pool, stack):
    asks = (*BEGUN, lives.blocked(), lives.resolved(), lives.started(2), lives.blocked(2))
    await write_events(pool, *asks, stack=stack, subject=stack.episode(lives.episode_id(1)))
    assert len(await reader.list_inbox(pool, stack)) == 1


async def test_equal_requests_of_several_episodes_are_there_once(pool, stack):
    async def asked(number, second, *more, request="r1"):
        events = (lives.opened(number), lives.started(), lives.blocked(request=request), *more)
        made = Commit(id=f"c{number}", at=AT + timedelta(seconds=second), events=events)
        subject = stack.episode(lives.episode_id(number))
        record = Recorded(subject=subject, seq=number, commit=made)
        await write(pool, changes_of([record], stack=stack), stack=stack)

    async def listed():
        return [(row["id"], row["episodes"]) for row in await reader.list_inbox(pool, stack)]

    await asked(1, 5)
    await asked(2, 3)
    await asked(3, 4, lives.resolved())
    await asked(4, 1, lives.finished(EndStatus.CANCELED))
    await asked(5, 9, request="r2")
    assert await listed() == [(lives.episode_id(2), 2), (lives.episode_id(5), 1)]


async def test_many_equal_requests_are_counted_in_one_pass(pool, stack):
    numbers = range(1, 101)
    for number in numbers:
        events = (lives.opened(number), lives.started(), lives.blocked(request="r1"))
        subject = stack.episode(lives.episode_id(number))
        await write_events(pool, *events, stack=stack, subject=subject)
    await pool.execute("ANALYZE episodes, episode_blocks")
    explained = await pool.fetchval(
        "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM inbox WHERE stack = $1", stack.name
    )
    (found,) = json.loads(explained)
    assert rows_read(found["Plan"]) < PASSES_MAX * len(numbers)


def rows_read(plan):
    """Return how many rows the steps of a plan have brought or left out."""
    rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return plan["Actual Loops"] * rows + sum(map(rows_read, plan.get("Plans", ())))


async def test_what_asks_alone_is_there_as_often_as_it_is_asked(pool, stack):
    for number in (1, 2):
        events = (lives.opened(number), lives.started(), lives.blocked())
        subject = stack.episode(lives.episode_id(number))
        await write_events(pool, *events, stack=stack, subject=subject)
    rows = await reader.list_inbox(pool, stack)
    assert [row["episodes"] for row in rows] == [1, 1]


async def test_who_may_decide_is_said_of_what_waits_now(pool, stack):
    asks = (
        *(*BEGUN, lives.blocked(approvers=("ann",)), lives.resolved()),
        *(lives.started(2), lives.blocked(2, approvers=("bob",))),
    )
    await write_events(pool, *asks, stack=stack, subject=stack.episode(lives.episode_id(1)))
    (row,) = await reader.list_inbox(pool, stack)
    assert row["approvers"] == ["bob"]


async def letter_of_an_output(pool, stack, *, key="mail:1", detail="mail: http_400: no"):
    letter = lives.lettered(reason="output_failed", subject=stack.output(key), detail=detail)
    await write_events(pool, letter, stack=stack, subject=stack.dead("output", "m.1"))
    (row,) = await reader.list_inbox(pool, stack)
    return row


async def test_the_letter_of_an_output_says_how_the_output_is_tried_again(pool, stack):
    row = await letter_of_an_output(pool, stack)
    assert row["summary"] == "output_failed: mail: http_400: no"
    assert row["what_to_do"] == "vigil outputs retry mail:1"
    assert (await reader.show_dead_letter(pool, stack, row["id"]))["output_key"] == "mail:1"


OUTPUT_FAILED = OutputFailed(attempt=1, error_class="http_400")
ANEW = lives.proposed(2, proposal_no=2)


async def letter_of(pool, stack, *events):
    """Write what happened to an output whose failure has a letter, and return the letter's line."""
    await write_events(pool, *events, stack=stack, subject=stack.output("mail:1"))
    return await letter_of_an_output(pool, stack)


@pytest.mark.parametrize(
    "since",
    [
        (ANEW,),
        (ANEW, OutputDelivered(attempt=1)),
        (ANEW, OutputCanceled()),
        (OutputRetried(by="ann"),),
    ],
)
async def test_the_letter_of_an_output_that_has_gone_on_since_is_to_be_discarded(
    pool, stack, since
):
    row = await letter_of(pool, stack, lives.proposed(), OUTPUT_FAILED, *since)
    *words, why, key = shlex.split(row["what_to_do"])
    assert (words, key) == (["vigil", "dead", "discard", "--reason"], row["id"])
    assert why == "its output has gone on"


async def test_the_letter_of_an_output_that_failed_anew_has_it_tried_again(pool, stack):
    row = await letter_of(pool, stack, lives.proposed(), OUTPUT_FAILED, ANEW, OUTPUT_FAILED)
    assert row["what_to_do"] == "vigil outputs retry mail:1"


async def test_a_letter_is_shown_with_what_its_output_is_by_now(pool, stack):
    row = await letter_of(pool, stack, lives.proposed(), OUTPUT_FAILED, ANEW)
    assert (await reader.show_dead_letter(pool, stack, row["id"]))["output_status"] == "proposed"


async def test_a_letter_of_no_output_has_no_output_status(pool, stack):
    await write_events(pool, lives.lettered(), stack=stack, subject=stack.dead("events", "7"))
    assert (await reader.show_dead_letter(pool, stack, "events.7"))["output_status"] is None


async def test_a_traceback_is_its_last_line_and_no_more_than_a_line(pool, stack):
    trace = "mail: crash: Traceback:\n  File 'x'\nKeyError: " + "k" * 200 + "\n"
    row = await letter_of_an_output(pool, stack, detail=trace)
    assert row["summary"] == "output_failed: KeyError: " + "k" * 110


async def test_an_output_of_a_letter_is_one_word_of_the_command(pool, stack):
    row = await letter_of_an_output(pool, stack, key="--all; reboot")
    assert shlex.split(row["what_to_do"]) == ["vigil", "outputs", "retry", "--", "--all; reboot"]


async def test_a_letter_from_a_stream_that_looks_like_an_output_is_none(pool, stack):
    letter = lives.lettered(reason="unreadable", subject="orders.output.mail")
    await write_events(pool, letter, stack=stack, subject=stack.dead("events", "7"))
    (row,) = await reader.list_inbox(pool, stack)
    assert row["what_to_do"] == "vigil dead show events.7"


async def test_the_inbox_can_be_narrowed(pool, stack):
    await asking(pool, stack)
    assert len(await reader.list_inbox(pool, stack, limit=2)) == 2
    assert await reader.list_inbox(pool, stack, actor="nobody") == []


async def test_the_letter_of_an_episode_that_is_not_in_the_tables_is_there(pool, stack):
    letter = lives.lettered(episode_id=lives.episode_id(9))
    await write_events(pool, letter, stack=stack, subject=stack.dead("episode", "9"))
    (row,) = await reader.list_inbox(pool, stack)
    assert (row["kind"], row["expectation_id"]) == ("dead_letter", None)


@pytest.mark.parametrize("key", ["a b", "$(rm -rf ~)", "it's; reboot", "a\nb", "é", "`ls`", "'"])
async def test_a_key_is_one_word_of_the_command_whatever_it_holds(pool, stack, key):
    await write_events(pool, ASKED_OUTPUT, stack=stack, subject=stack.output(key))
    (row,) = await reader.list_inbox(pool, stack)
    words = shlex.split(row["what_to_do"])
    assert words == ["vigil", "outputs", "approve", key]


async def test_a_key_is_never_an_option_of_the_command(pool, stack):
    await write_events(pool, ASKED_OUTPUT, stack=stack, subject=stack.output("--yes"))
    (row,) = await reader.list_inbox(pool, stack)
    assert shlex.split(row["what_to_do"]) == ["vigil", "outputs", "approve", "--", "--yes"]
