"""One view has all that an episode did, in order."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from engine.app.findings import clear_finding, raise_finding
from engine.app.outputs import propose_output
from projections.postgres import reader
from projections.project import project
from streams.json import raw
from streams.model.events import EndStatus, OutputDelivered, Resolution, StepKind, StoredResult
from streams.model.triggers import ManualTrigger, Mode, ScheduleTrigger, WorkflowTrigger
from streams.model.waits import OnExpiry
from streams.ports.log import Commit, Recorded
from tests.projections import lives
from tests.projections.lives import AT, write, write_events


@pytest.fixture
def tell(pool, stack):
    """Have events happen, a second later at each call, by default to the episode."""
    told: list[int] = []

    async def happen(*events, subject=None):
        told.append(1)
        at = AT + timedelta(seconds=len(told))
        commit = Commit(id=f"c{len(told)}", at=at, events=events)
        where = subject or stack.episode(lives.episode_id(1))
        record = Recorded(subject=where, seq=len(told), commit=commit)
        await write(pool, project([record], stack=stack), stack=stack)

    return happen


@pytest.fixture
def timeline(pool, stack):
    """What the view says of the episode."""

    async def read():
        return await reader.list_timeline(pool, stack, UUID(int=1))

    return read


def approval_step(step_no):
    return msgspec.structs.replace(
        lives.recorded(step_no), kind=StepKind.APPROVAL, tool_name="", result=raw({"by": "ann"})
    )


async def test_everything_comes_in_the_order_in_which_it_happened(tell, timeline, stack):
    await tell(lives.opened())
    await tell(lives.started(), lives.recorded(1))
    await tell(lives.blocked(2))
    await tell(approval_step(2), lives.resolved(2, by="ann", reason="go on"))
    await tell(lives.started(2, node="n2"), lives.recorded(3), lives.converged())
    await tell(lives.raised(), subject=stack.finding("disk:h1"))
    await tell(lives.proposed(), subject=stack.output("mail:1"))
    await tell(OutputDelivered(attempt=1, delivered_ref="m-7"), subject=stack.output("mail:1"))
    await tell(lives.finished())

    rows = await timeline()

    assert [(row["kind"], row["step_no"]) for row in rows] == [
        ("episode_opened", None),
        ("episode_started", None),
        ("tool_call", 1),
        ("approval_requested", 2),
        ("approval_resolved", 2),
        ("episode_started", None),
        ("tool_call", 3),
        ("finding_raised", None),
        ("output_proposed", None),
        ("output_delivered", None),
        ("episode_finished", None),
    ]
    assert [row["position"] for row in rows] == list(range(1, 12))
    assert [row["says"] for row in rows] == [
        "opened by event resource.updated about host h1",
        "started on n1",
        "tool_call disk.clean",
        "asks for approval: wipe the disk",
        "approved by ann: go on",
        "continued on n2 (attempt 2)",
        "tool_call disk.clean",
        "finding_raised disk:h1 (high): the disk is full",
        "output_proposed mail:1",
        "output_delivered mail:1 as m-7",
        "done: the disk is full",
    ]
    assert rows[2]["details"]["args"] == {"path": "/var"}


async def test_what_happened_in_one_commit_keeps_its_order(pool, stack, timeline):
    events = (lives.opened(), lives.started(), lives.recorded(1), lives.recorded(2))
    await write_events(
        pool, *events, lives.finished(), stack=stack, subject=stack.episode(lives.episode_id(1))
    )
    kinds = [row["kind"] for row in await timeline()]
    assert kinds == [
        "episode_opened", "episode_started", "tool_call", "tool_call", "episode_finished",
    ]  # fmt: skip


async def test_a_wait_shows_its_reference_and_an_announced_step_that_nobody_knows_its_outcome(
    tell, timeline
):
    await tell(lives.opened(), lives.started(), lives.blocked(1, ref="payment:1"))
    await tell(lives.resolved(1, Resolution.RESOLVED, by="bank"), lives.announced(2))
    says = [row["says"] for row in await timeline()]
    assert says[2:] == [
        "waits for payment:1",
        "payment:1 resolved by bank",
        "tool_call disk.clean: begun, and its outcome is not recorded",
    ]


@pytest.mark.parametrize(
    ("until", "says"),
    [
        (AT + timedelta(minutes=5), f"sleeps until {AT + timedelta(minutes=5):%H:%M:%S}"),
        (AT + timedelta(days=2), f"sleeps until {AT + timedelta(days=2):%Y-%m-%d %H:%M:%S}"),
    ],
)
async def test_a_sleep_is_told_as_one_and_asks_nobody(tell, timeline, until, says):
    sleep = lives.blocked(1, ref="", expires_at=until, on_expiry=OnExpiry.CONTINUE)
    await tell(lives.opened(), lives.started(), sleep)
    await tell(lives.resolved(1, Resolution.EXPIRED, reason="nobody decided in time"))
    *_, asleep, awake = await timeline()
    assert (asleep["says"], asleep["details"]) == (says, {})
    assert awake["says"] == "goes on"


async def test_an_approval_that_anybody_may_give_names_nobody(tell, timeline):
    await tell(lives.opened(), lives.started(), lives.blocked(1))
    assert "approvers" not in (await timeline())[-1]["details"]


async def test_an_episode_without_a_subject_is_opened_about_nothing(tell, timeline):
    nothing = msgspec.structs.replace(lives.opened().trigger, entity_id="")
    await tell(msgspec.structs.replace(lives.opened(), subject_kind="freezer", trigger=nothing))
    (row,) = await timeline()
    assert row["says"] == "opened by event resource.updated"


@pytest.mark.parametrize(
    ("trigger", "says"),
    [
        (
            ManualTrigger(requested_by="ann", reason="to see", entity_id="h1"),
            "opened by ann: to see about host h1",
        ),
        (ScheduleTrigger(scheduled_at=AT, schedule="every 900s"), "opened by schedule every 900s"),
        (
            WorkflowTrigger(
                workflow_instance_id=lives.episode_id(7), workflow_id="w", workflow_step_id="s"
            ),
            "opened by step s of workflow w",
        ),
    ],
)
async def test_the_opening_says_who_or_what_opened_it(tell, timeline, trigger, says):
    kind = "host" if trigger.entity_id else ""
    await tell(msgspec.structs.replace(lives.opened(), trigger=trigger, subject_kind=kind))
    (row,) = await timeline()
    assert row["says"] == says


async def test_an_end_shows_the_last_line_of_what_went_wrong(tell, timeline):
    detail = 'Traceback:\n  File "a.py"\nKeyError: host\n'
    failed = lives.finished(EndStatus.FAILED, error_class="crash", error_detail=detail)
    await tell(lives.opened(), lives.started(), failed)
    row = (await timeline())[-1]
    assert (row["says"], row["error_detail"]) == ("failed: crash: KeyError: host", detail)


async def test_a_large_result_is_told_by_its_size_and_digest(tell, timeline):
    stored = StoredResult(digest="cd" * 32, size_bytes=5_242_882)
    step = msgspec.structs.replace(lives.recorded(1, result=None), stored=stored)
    await tell(lives.opened(), lives.started(), step)
    (told,) = (row for row in await timeline() if row["kind"] == "tool_call")
    assert told["details"]["result_size_bytes"] == 5_242_882
    assert told["details"]["result_digest"] == "cd" * 32


async def test_a_dry_run_tells_what_it_would_have_raised_and_sent(tell, timeline, pool, stack):
    found = (
        raise_finding("disk:h1", class_="full", severity="high", summary="it is full"),
        clear_finding("disk:h2", reason="there is room"),
    )
    decided = msgspec.structs.replace(
        lives.converged(),
        findings=found,
        outputs=(propose_output("mail", {"to": "ann"}, summary="a word to ann"),),
        raises_nothing=True,
        sends_nothing=True,
    )
    opened = msgspec.structs.replace(lives.opened(), mode=Mode.DRY_RUN)
    await tell(opened, lives.started(), decided, lives.finished())
    rows = await timeline()
    assert [(row["kind"], row["name"], row["says"]) for row in rows[2:-1]] == [
        ("would_raise", "disk:h1", "would have raised disk:h1 (high): it is full"),
        ("would_raise", "disk:h2", "would have cleared disk:h2: there is room"),
        ("would_send", "mail", "would have sent mail: a word to ann"),
    ]
    (episode,) = await lives.rows_of(pool, "episodes", stack=stack)
    raised, sent = (msgspec.json.decode(episode[name]) for name in ("would_raise", "would_send"))
    assert [each["finding_key"] for each in raised] == ["disk:h1", "disk:h2"]
    assert sent[0]["payload"] == {"to": "ann"}


async def test_a_live_run_would_have_done_nothing(tell, timeline, pool, stack):
    decided = msgspec.structs.replace(
        lives.converged(), findings=(raise_finding("disk:h1", class_="full"),)
    )
    await tell(lives.opened(), lives.started(), decided, lives.finished())
    assert [row["kind"] for row in await timeline()][2:] == ["episode_finished"]
    (episode,) = await lives.rows_of(pool, "episodes", stack=stack)
    assert (episode["would_raise"], episode["would_send"]) == (None, None)


async def test_a_step_that_an_override_stands_for_is_marked(tell, timeline, pool, stack):
    given = msgspec.structs.replace(lives.recorded(1), is_override=True)
    await tell(lives.opened(), lives.started(), given, lives.recorded(2))
    assert [(row["says"], row["details"].get("override")) for row in (await timeline())[2:]] == [
        ("tool_call disk.clean (override)", True),
        ("tool_call disk.clean", None),
    ]
    rows = await lives.rows_of(pool, "episode_steps", stack=stack)
    assert sorted((row["step_no"], row["is_override"]) for row in rows) == [(1, True), (2, False)]


async def test_a_synthesis_tells_tokens_of_input_and_output_apart(tell, timeline, pool, stack):
    asked = msgspec.structs.replace(
        lives.recorded(1, tokens=42), kind=StepKind.SYNTHESIS, input_tokens=30, output_tokens=12
    )
    await tell(lives.opened(), lives.started(), asked, lives.recorded(2, tokens=7))
    *_, told, estimated = await timeline()
    names = ("tokens", "input_tokens", "output_tokens")
    assert [told["details"][name] for name in names] == [42, 30, 12]
    assert [estimated["details"].get(name) for name in names] == [7, None, None]
