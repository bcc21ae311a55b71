"""Lists of the past: rows as they were at a time are what the lists of now said at that time."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from msgspec.structs import replace

from projections.postgres import reader
from projections.project import project as changes_of
from streams.model.events import (
    DeadDiscarded,
    EndStatus,
    EpisodeDeferred,
    EpisodeLeft,
    FindingAcknowledged,
    FindingCleared,
    FindingEscalated,
    FindingRaised,
    FindingUpdated,
    OutputApprovalGiven,
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputRejected,
    OutputRetried,
    StepBegun,
    StepEnded,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.model.findings import DueTimer, FindingStatus, Person, Severity
from streams.model.triggers import WorkflowTrigger
from streams.model.waits import GivenApproval
from streams.model.workflows import ParentStep, WorkflowSpec, WorkflowStatus
from streams.ports.log import Commit, Recorded
from tests.engine.workflows.flows import given
from tests.projections import lives
from tests.projections.lives import AT, write
from tests.projections.test_workflow_rows import LIVES
from tests.size import size
from vigil.client.page import EPISODE_STATUSES, FINDING_STATUSES

SECOND = timedelta(seconds=1)
PER_AGGREGATE = 4
UNKNOWN = {
    *("turns_used", "tokens_used", "cost_usd", "wall_used_ms", "model", "agent", "metadata"),
    *("position", "journal_seq"),
}
"""Columns of an episode of the past that may be unknown, or are as of now."""


class Life:
    """What happens to one episode, output, finding or letter, a random event at a time."""

    def __init__(self, number, dice):
        self.number, self.dice = number, dice
        self.state, self.count = "new", 0

    def go(self, **ways):
        """Take one of the ways, which are named after the states that they lead to."""
        state = self.dice.choice(list(ways))
        self.state = state.rstrip("_")
        return ways[state]()


class EpisodeLife(Life):
    def subject(self, stack):
        return stack.episode(lives.episode_id(self.number))

    def start(self):
        self.count += 1
        return (lives.started(self.count, node=f"n{self.count % 3}"),)

    def block(self, **fields):
        self.step = getattr(self, "step", 0) + 1
        return (lives.blocked(self.step, **fields),)

    def next(self, at):
        ends = {
            "over": lambda: (lives.converged(), lives.finished()),
            "over_": lambda: (lives.finished(EndStatus.FAILED, error_class="crash"),),
        }
        match self.state:
            case "new":
                return self.go(queued=lambda: (lives.opened(self.number),))
            case "queued":
                canceled = {"over": lambda: (lives.finished(EndStatus.CANCELED),)}
                return self.go(running=self.start, running_=self.start, **canceled)
            case "running":
                return self.go(
                    blocked=lambda: self.block(request=self.dice.choice(["", "r1"])),
                    blocked_=lambda: self.block(ref="payment:42", expires_at=at + SECOND),
                    left=lambda: (EpisodeLeft(node="n1"),),
                    deferred=lambda: (lives.converged(), EpisodeDeferred(pending=("mail:1",))),
                    **ends,
                )
            case "blocked":
                answer = lambda: (lives.resolved(self.step),)  # noqa: E731
                return self.go(queued=answer, queued_=answer, over=ends["over_"])
            case "left" | "deferred":
                # Only the newest of these is known: what follows is the end.
                return self.go(**ends)
        return ()


class FindingLife(Life):
    def subject(self, stack):
        return stack.finding(f"disk:h{self.number}")

    def next(self, at):
        ways = {
            "new": ("raise",),
            "over": ("raise",),
            "active": ("update", "escalate", "acknowledge", "clear"),
        }
        way = self.dice.choice(ways.get(self.state, ()))
        if way == "raise":
            self.count, self.state = self.count + 1, "active"
            severity = self.dice.choice(list(Severity))
            self.found = lives.finding(
                f"disk:h{self.number}",
                severity=severity,
                raise_no=self.count,
                raised_at=at,
                updated_at=at,
            )
            return (FindingRaised(finding=self.found, cause=lives.CAUSE),)
        changes = {
            "update": {"summary": f"number {at}", "severity": self.dice.choice(list(Severity))},
            "escalate": {"severity": Severity.CRITICAL, "escalated_to": Severity.CRITICAL},
            "acknowledge": {"acknowledged_by": "ann", "acknowledged_at": at},
            "clear": {"status": FindingStatus.CLEARED, "cleared_at": at, "cleared_reason": "ok"},
        }
        before = self.found
        if way == "acknowledge" and before.acknowledged_by:
            return ()
        if way != "acknowledge":
            changes[way]["updated_at"] = at
        self.found = replace(before, **changes[way])
        person, timer = Person(by="ann"), DueTimer(timer_id="t1")
        match way:
            case "update":
                return (FindingUpdated(finding=self.found, cause=lives.CAUSE),)
            case "escalate":
                from_ = before.severity
                return (FindingEscalated(finding=self.found, cause=timer, from_severity=from_),)
            case "acknowledge":
                return (FindingAcknowledged(finding=self.found, cause=person),)
        self.state = "over"
        return (FindingCleared(finding=self.found, cause=lives.CAUSE),)


class OutputLife(Life):
    def subject(self, stack):
        return stack.output(f"mail:{self.number}")

    def next(self, at):
        match self.state:
            case "new":
                key = f"mail:{self.number}"
                asks = lives.approval(expires_at=at + SECOND)
                return self.go(
                    asked=lambda: (lives.proposed(100, key=key, approval=asks),),
                    sent=lambda: (lives.proposed(100, key=key),),
                )
            case "asked":
                expired = OutputFailed(attempt=0, error_class="approval_expired")
                return self.go(
                    sent=lambda: (OutputApproved(by="ann"),),
                    over=lambda: (OutputRejected(by="ann"),),
                    over_=lambda: (OutputCanceled(by="ann"),),
                    failed=lambda: (expired,),
                )
            case "sent":
                failed = OutputFailed(attempt=1, error_class="http_400")
                return self.go(
                    sent=lambda: (OutputAttempted(attempt=1, node="n1"),),
                    over=lambda: (OutputDelivered(attempt=1),),
                    failed=lambda: (failed,),
                )
            case "failed":
                return self.go(sent=lambda: (OutputRetried(by="ann"),))
        return ()


class LetterLife(Life):
    def subject(self, stack):
        return stack.dead("events", str(self.number))

    def next(self, at):
        match self.state:
            case "new":
                return self.go(waits=lambda: (lives.lettered(seq=self.number),))
            case "waits":
                return self.go(over=lambda: (DeadDiscarded(by="ann"),))
        return ()


async def each_output(pool, stack, *, at=None):
    """Return each output by itself, without what is as of now."""
    keys = [f"mail:{number}" for number in range(1, 1 + PER_AGGREGATE)]
    found = [await reader.show_output(pool, stack, key, at=at) for key in keys]
    return [
        row and {name: row[name] for name in sorted(row.keys() - {"edited_hash", "decision_id"})}
        for row in found
    ]


async def each_finding(pool, stack, *, at=None):
    keys = [f"disk:h{number}" for number in range(1, 1 + PER_AGGREGATE)]
    found = [await reader.show_finding(pool, stack, key, at=at) for key in keys]
    return [row and {name: row[name] for name in sorted(row)} for row in found]


async def workflows_then(pool, stack, at=None):
    """Return instances and their counts at a time, and each by itself; None: now."""
    if at is None:
        listed = await reader.list_workflows(pool, stack)
        counts = await reader.count_workflows(pool, stack)
    else:
        listed = await reader.list_workflows_at(pool, stack, at=at)
        counts = await reader.count_workflows_at(pool, stack, at=at)
    return {
        "listed": [without(row, UNKNOWN_OF_INSTANCE) for row in listed],
        "counts": counts,
        "each": [await instance_then(pool, stack, row["instance_id"], at=at) for row in listed],
    }


async def instance_then(pool, stack, id_, *, at):
    row = await reader.show_workflow(pool, stack, id_, at=at)
    items = [without(each, UNKNOWN_OF_ITEM) for each in row.pop("items")]
    placed = sorted(items, key=lambda each: (each["step_id"], each["item"]))
    return without(row, UNKNOWN_OF_INSTANCE) | {"items": placed}


UNKNOWN_OF_INSTANCE = {"journal_seq", "updated_at", "spent_usd"}
UNKNOWN_OF_ITEM = {
    # Of an attempt before the newest.
    *("attempts", "episode_id", "started_at", "finished_at", "error_class", "error_detail"),
    *("stack", "journal_seq", "input", "approved_by", "retry_at"),
    *("placed_at", "begun_at", "compensation_begun_at", "compensation_ended_at"),
}
"""Columns that may be unknown, are as of now, or are kept for the past alone."""


def without(row, names):
    return {name: each for name, each in row.items() if name not in names}


async def lists_of_now(pool, stack):
    return {
        "outputs": await reader.list_outputs(pool, stack),
        "output counts": await reader.count_outputs(pool, stack),
        "each output": await each_output(pool, stack),
        "each finding": await each_finding(pool, stack),
        "episodes": await reader.list_episodes(pool, stack),
        "episode counts": await reader.count_episodes(pool, stack),
        "findings": await reader.list_findings(pool, stack),
        "active findings": await reader.count_active_findings(pool, stack),
        "finding counts": await reader.count_findings(pool, stack),
        "inbox": await reader.list_inbox(pool, stack),
        "inbox counts": await reader.count_inbox(pool, stack),
    }


async def lists_at(pool, stack, at):
    return {
        "outputs": await reader.list_outputs_at(pool, stack, at=at),
        "output counts": await reader.count_outputs_at(pool, stack, at=at),
        "each output": await each_output(pool, stack, at=at),
        "each finding": await each_finding(pool, stack, at=at),
        "episodes": await reader.list_episodes_at(pool, stack, at=at),
        "episode counts": await reader.count_episodes_at(pool, stack, at=at),
        "findings": await reader.list_findings_at(pool, stack, at=at),
        "active findings": await reader.count_active_findings_at(pool, stack, at=at),
        "finding counts": await reader.count_findings_at(pool, stack, at=at),
        "inbox": await reader.list_inbox_at(pool, stack, at=at),
        "inbox counts": await reader.count_inbox_at(pool, stack, at=at),
    }


def comparable(lists):
    """Return lists without what is as of now, in an order that lists of both kinds have."""
    episodes = [
        {name: each for name, each in row.items() if name not in UNKNOWN}
        for row in sorted(lists["episodes"], key=lambda row: row["episode_id"])
    ]
    return lists | {"episodes": episodes, "inbox": comparable_inbox(lists["inbox"])}


def comparable_inbox(rows):
    """Return the rows of an inbox without what is as of now."""
    return [without(row, {"journal_seq", "what_to_do"}) for row in rows]


@pytest.mark.parametrize("seed", range(size("past", short=1, full=200)))
async def test_lists_of_the_past_are_what_the_lists_of_now_said_then(pool, stack, seed):
    dice = Random(seed)
    kinds = (EpisodeLife, FindingLife, OutputLife, LetterLife)
    lived = [kind(number, dice) for kind in kinds for number in range(1, 1 + PER_AGGREGATE)]
    said = {}
    for second in range(60):
        at, life = AT + second * SECOND, dice.choice(lived)
        events = life.next(at)
        if events:
            made = Commit(id=f"c{second}", at=at, events=events)
            record = Recorded(subject=life.subject(stack), seq=1 + second, commit=made)
            await write(pool, changes_of([record], stack=stack), stack=stack)
        said[at] = comparable(await lists_of_now(pool, stack))

    for at, lists in said.items():
        then = comparable(await lists_at(pool, stack, at))
        for name, said_then in lists.items():
            assert then[name] == said_then, (name, at)
        for status in EPISODE_STATUSES:
            found = await reader.list_episodes_at(pool, stack, at=at, status=status)
            wanted = {each["episode_id"] for each in then["episodes"] if each["status"] == status}
            assert {each["episode_id"] for each in found} == wanted, (status, at)
        for status in FINDING_STATUSES:
            found = await reader.list_findings_at(pool, stack, at=at, status=status)
            wanted = [each for each in then["findings"] if each["status"] == status]
            assert found == wanted, (status, at)
        there = await found_in_pages(pool, stack, at=at)
        back = await found_in_pages(pool, stack, at=at, reverse=True)
        assert there == then["findings"] == back[::-1], at


async def found_in_pages(pool, stack, **asked):
    """Return the findings of a time, as somebody reads them who turns page after page."""
    found, page = [], await reader.list_findings_at(pool, stack, limit=2, **asked)
    while page:
        found += page
        page = await reader.list_findings_at(pool, stack, past=page[-1], limit=2, **asked)
    return found


async def test_an_output_that_one_of_two_has_approved_waits_on(pool, stack):
    asks = lives.approval(quorum=2)
    given = replace(asks, given=(GivenApproval(by="ann", at=AT + SECOND),))
    story = (
        lives.proposed(key="mail:1", approval=asks),
        OutputApprovalGiven(by="ann", approval=given),
        OutputApproved(by="ann, bob"),
    )
    for number, event in enumerate(story):
        made = Commit(id=f"c{number}", at=AT + number * SECOND, events=(event,))
        record = Recorded(subject=stack.output("mail:1"), seq=1 + number, commit=made)
        await write(pool, changes_of([record], stack=stack), stack=stack)

    counts = [await reader.count_inbox_at(pool, stack, at=AT + each * SECOND) for each in range(3)]
    assert counts == [{"output": 1}, {"output": 1}, {}]


INSTANCE = str(UUID(int=1))


def attempts_of(record, stack, opens):
    """Return the commits of what a commit of an instance begins, and of what it ends by."""
    for event in record.commit.events:
        if isinstance(event, StepBegun | StepEnded):
            trigger = WorkflowTrigger(
                workflow_instance_id=INSTANCE,
                workflow_step_id=event.step,
                item=event.item,
                attempt=event.attempt,
            )
            subject, begun, ended = opens(event.episode_id, trigger, stack)
            events = (begun,) if isinstance(event, StepBegun) else (ended,)
            yield replace(record, subject=subject, commit=replace(record.commit, events=events))


def episode_of(id_, trigger, stack):
    return stack.episode(id_), replace(lives.opened(), trigger=trigger), lives.finished()


def instance_of(id_, trigger, stack):
    begun = WorkflowStarted(
        instance_id=id_,
        spec=WorkflowSpec(name="inner", steps=()),
        trigger=trigger,
        dedupe_key=id_,
        parent=ParentStep(
            workflow="w",
            instance_id=INSTANCE,
            step=trigger.workflow_step_id,
            item=trigger.item,
            attempt=trigger.attempt,
        ),
    )
    return stack.workflow(id_), begun, WorkflowFinished(status=WorkflowStatus.DONE)


# Of a step that has failed again, the rows keep the last time only.
ASKED_ONCE = {name: life for name, life in LIVES.items() if "tried again" not in name}


@pytest.mark.parametrize("life", ASKED_ONCE.values(), ids=ASKED_ONCE)
async def test_steps_that_waited_for_people_are_what_the_inbox_said_then(pool, stack, life):
    story, happens = life
    subject = stack.workflow(INSTANCE)
    said = {}
    for number, each in enumerate(given(story).when(*happens).flow.journal):
        # Every commit at a time of its own, whatever the flow's clock says.
        at = AT + number * SECOND
        record = replace(each, subject=subject, commit=replace(each.commit, at=at))
        await write(pool, changes_of([record], stack=stack), stack=stack)
        said[at] = comparable_inbox(await reader.list_inbox(pool, stack))

    for at, inbox in said.items():
        found = await reader.list_inbox_at(pool, stack, at=at)
        assert comparable_inbox(found) == inbox, at


@pytest.mark.parametrize("opens", [episode_of, instance_of])
@pytest.mark.parametrize("life", ASKED_ONCE.values(), ids=ASKED_ONCE)
async def test_instances_of_the_past_are_what_the_lists_of_now_said_then(pool, stack, life, opens):
    story, happens = life
    subject = stack.workflow(INSTANCE)
    said = {AT - SECOND: await workflows_then(pool, stack)}
    for number, each in enumerate(given(story).when(*happens).flow.journal):
        at = AT + number * SECOND
        record = replace(each, subject=subject, commit=replace(each.commit, at=at))
        lived = [record, *attempts_of(record, stack, opens)]
        await write(pool, changes_of(lived, stack=stack), stack=stack)
        said[at] = await workflows_then(pool, stack)

    for at, then in said.items():
        assert await workflows_then(pool, stack, at) == then, at
