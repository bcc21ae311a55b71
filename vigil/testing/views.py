"""What a test sees of episodes, outputs, waits and workflows: typed values from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

import msgspec

from engine.agents.answer_text import answer_text
from engine.children.rules import parent_of
from engine.episodes.episode import Status, fold
from engine.findings.store import newest_event
from engine.operations.decide_request import TargetKind
from engine.outputs.output import fold as fold_output
from engine.waits import answer as answers
from engine.workflows.instance import Instance
from streams.json import unraw
from streams.memory.objects import MemoryObjects
from streams.model.events import (
    EpisodeStarted,
    OutputDelivered,
    StepKind,
    StepRecorded,
    StoredResult,
)
from streams.model.findings import Finding
from streams.model.money import NO_USD
from streams.model.triggers import Budget
from streams.model.waits import Approval
from streams.ports.log import Recorded

T = TypeVar("T")

INDENT: Final = "  "


@dataclass(frozen=True, kw_only=True)
class StepSnapshot:
    """A recorded step."""

    number: int
    """From 1."""
    name: str
    """`capability.action` of a tool call; else its kind, such as `approval` or `synthesis`."""
    kind: StepKind
    args: Any
    """As people may see them."""
    result: Any
    """As the strategy got it; None if it failed."""
    error_class: str
    """Empty: it succeeded."""
    error_detail: str
    path: str
    """Path of the call in a function, such as `4.2.1`; in a class, its turn."""
    stored: StoredResult | None = None
    """The digest and size of a large result; None: the journal has the result itself."""
    cost_usd: Decimal | None = None
    """What the request to a model has cost, in US dollars; None: nobody knows, or it is none."""

    def __str__(self) -> str:
        return f"{self.number}. {self.name} → {self._brought}"

    @property
    def _brought(self) -> str:
        if self.error_class:
            return f"{self.error_class}: {self.error_detail}"
        if self.stored is not None:
            return f"{self.stored.size_bytes:,} bytes ({self.stored.digest[:12]}…)"
        is_answer = self.kind is StepKind.MODEL_REQUEST
        # guard: ids-of-calls-not-compared
        return answer_text(self.result) if is_answer else repr(self.result)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Something that waits for people, or for a signal."""

    what: TargetKind
    """`episode`, `output` or `step`."""
    id: str
    """Of the episode, the output (its key) or the workflow's instance."""
    step: str = ""
    """Of a workflow."""
    summary: str = ""
    plan: Any = None
    """What is to be approved."""
    plan_hash: str = ""
    """Empty: it needs no approval."""
    approvers: tuple[str, ...] = ()
    """Who may decide; none: anybody."""
    quorum: int = 1
    """How many different people have to approve it."""
    approved_by: tuple[str, ...] = ()
    """Who has, so far."""
    barred: str = ""
    """Who may not decide; empty: nobody is barred."""
    ref: str = ""
    """The signal that it waits for; empty: none."""
    request: str = ""
    """The same for equal requests, which one decision answers; empty: it is not shared."""
    expires_at: datetime | None = None

    def __str__(self) -> str:
        for_what = ""
        if self.ref or self.plan_hash:
            named = f"the signal {self.ref!r}" if self.ref else f"approval of {self.plan!r}"
            for_what = f" for {named}"
        until = f", until {self.expires_at:%Y-%m-%d %H:%M:%S}" if self.expires_at else ""
        return f"{self.what} {self.id} waits{for_what}{until}"


@dataclass(frozen=True, kw_only=True)
class EpisodeSnapshot:
    """An episode, as its journal has it."""

    id: str
    actor: str
    expectation: str
    status: str
    """`queued`, `running`, `blocked`, `converging`, `delivering`; or how it ended: `done`,
    `failed`, `partially_failed`, `canceled`."""
    error_class: str
    """Why it failed or was canceled; empty: neither."""
    error_detail: str
    payload: Any
    """The payload of its trigger."""
    subject: str
    """Its subject; empty: it has none."""
    steps: tuple[StepSnapshot, ...]
    summary: str
    classification: Any
    confidence: float | None
    result: Any
    """The conclusion; each of these is empty or None before it."""
    attempts: int
    """How often a node started it; 1: no node crashed or stopped meanwhile."""
    turns: int
    """Turns that led to a step, over all attempts."""
    tokens: int
    budget: Budget
    """Its limits, `usd` in dollars among them."""
    opened_at: datetime
    ended_at: datetime | None
    waits: tuple[Waiting, ...]
    """The wait that is open, if there is one."""
    parent: str
    """The episode that has started it and waits for its end; empty: none."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.ended_at is not None

    @property
    def cost_usd(self) -> Decimal:
        """What its own requests to models have cost, in US dollars, as far as that is known.

        The sum of its steps, as `vigil episodes show` has it. Its budget counts more: what its
        children have spent, and of a request of unknown cost the most that it can have cost.
        """
        costs = (each.cost_usd for each in self.steps)
        return sum((usd for usd in costs if usd is not None), NO_USD)

    def step(self, name: str) -> StepSnapshot:
        """Return the only step called `name`; an `AssertionError` shows those that there are."""
        __tracebackhide__ = True
        found = [each for each in self.steps if each.name == name]
        return only(found, f"step {name!r}", self.steps, of=f" of {self.title}")

    @property
    def title(self) -> str:
        """Which one it is, in a few words."""
        return f"{self.actor}.{self.expectation} {self.id}"

    def __str__(self) -> str:
        why = f": {self.error_class}: {self.error_detail}" if self.error_class else ""
        lines = [f"{self.title} is {self.status}{why}", *map(str, self.steps)]
        return f"\n{INDENT}".join([*lines, *map(str, self.waits)])


@dataclass(frozen=True, kw_only=True)
class OutputSnapshot:
    """An output, as its journal has it."""

    key: str
    adapter: str
    payload: Any
    status: str
    """`awaiting_approval`, `proposed`, `delivered`, `failed`, `rejected` or `canceled`."""
    attempts: int
    error_class: str
    """Why it failed; empty: it has not."""
    ref: str
    """The reference that the adapter returned; empty: none."""
    episode_id: str

    def __str__(self) -> str:
        why = f": {self.error_class}" if self.error_class else ""
        return f"{self.adapter} {self.key} is {self.status}{why}, {self.payload!r}"


@dataclass(frozen=True, kw_only=True)
class WorkflowSnapshot:
    """An instance of a workflow, as its journal has it."""

    id: str
    name: str
    status: str
    """`running`, `blocked`, `stopping`, `compensating`, `done`, `failed` or `canceled`."""
    steps: dict[str, str]
    """Step → status; of a step that fans out, that of each item, with commas."""
    results: dict[str, Any]
    """Step → result, of those that are done."""
    waits: tuple[Waiting, ...]
    error_class: str
    """Why it failed, or was skipped: `overlap`; empty: it did not."""
    error_detail: str
    spent_usd: Decimal
    """What its ended steps have spent, with their children, earlier attempts and compensation, in
    US dollars. Of a request of unknown cost it counts the most that it can have cost."""
    budget_usd: Decimal
    """Most that it may spend, in US dollars; 0: any sum."""

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {status}" for name, status in self.steps.items())
        why = f" ({self.error_class}: {self.error_detail})" if self.error_class else ""
        return f"{self.name} {self.id} is {self.status}{why}: {steps}"


def episode_of(records: Sequence[Recorded], objects: MemoryObjects) -> EpisodeSnapshot:
    """Return the episode of these commits, the first of which opened it.

    `objects` have its large results.
    """
    episode = fold(records)
    opened, end, decided = episode.opened, episode.finished, episode.converged
    assert opened is not None, "an episode begins with EpisodeOpened"
    events = [event for record in records for event in record.commit.events]
    return EpisodeSnapshot(
        id=opened.episode_id,
        actor=opened.actor_id,
        expectation=opened.expectation_id,
        status=episode.status.value,
        error_class=end.error_class if end else "",
        error_detail=end.error_detail if end else "",
        payload=opened.trigger.payload,
        subject=opened.trigger.entity_id,
        steps=tuple(_step(each, objects) for each in events if isinstance(each, StepRecorded)),
        summary=decided.summary if decided else "",
        classification=unraw(decided.classification) if decided else None,
        confidence=decided.confidence if decided else None,
        result=unraw(decided.result) if decided else None,
        attempts=sum(isinstance(each, EpisodeStarted) for each in events),
        turns=episode.turns_used,
        tokens=episode.tokens_used,
        budget=opened.budget,
        opened_at=records[0].commit.at,
        ended_at=records[-1].commit.at if end else None,
        waits=_waits(records) if episode.status is Status.BLOCKED else (),
        parent=parent.parent_id if (parent := parent_of(opened)) is not None else "",
    )


def _step(recorded: StepRecorded, objects: MemoryObjects) -> StepSnapshot:
    stored = recorded.stored
    large = None if stored is None else objects.once_put(stored.digest)
    return StepSnapshot(
        number=recorded.step_no,
        name=recorded.tool_name or recorded.kind.value,
        kind=recorded.kind,
        args=unraw(recorded.args),
        result=unraw(recorded.result if large is None else msgspec.Raw(large)),
        error_class=recorded.error_class,
        error_detail=recorded.error_detail,
        path=recorded.path,
        stored=stored,
        cost_usd=recorded.cost_usd,
    )


def _waits(records: Sequence[Recorded]) -> tuple[Waiting, ...]:
    opened = fold(records).opened
    assert opened is not None, "an episode begins with EpisodeOpened"
    return tuple(
        _wait(opened.episode_id, each) for each in answers.waits_of(records) if each.end is None
    )


def _wait(episode_id: str, still: answers.EpisodeWait) -> Waiting:
    event, terms = still.blocked.event, still.blocked.terms
    if event.approval is not None:
        return _asking("episode", episode_id, event.approval, unraw(event.approval.plan))
    ref = event.wait.ref if event.wait else ""
    return Waiting(what="episode", id=episode_id, ref=ref, expires_at=terms.expires_at)


def _asking(
    kind: TargetKind, id_: str, asked: Approval, plan: object, *, step: str = ""
) -> Waiting:
    return Waiting(
        what=kind,
        id=id_,
        step=step,
        summary=asked.summary,
        plan=plan,
        plan_hash=asked.plan_hash,
        approvers=asked.approvers,
        quorum=asked.quorum,
        approved_by=tuple(each.by for each in asked.given),
        barred=asked.barred,
        request=asked.request,
        expires_at=asked.expires_at,
    )


def finding_of(records: Sequence[Recorded]) -> Finding:
    """Return the finding of these commits as it is now."""
    return newest_event(records[-1]).finding


def output_of(records: Sequence[Recorded]) -> OutputSnapshot | None:
    """Return the output of these commits; None: nobody has proposed it."""
    output = fold_output(records)
    if output.proposed is None or output.status is None:
        return None
    events = (event for record in records for event in record.commit.events)
    refs = [event.delivered_ref for event in events if isinstance(event, OutputDelivered)]
    return OutputSnapshot(
        key=output.proposed.output_key,
        adapter=output.proposed.adapter,
        payload=unraw(output.proposed.payload),
        status=output.status.value,
        attempts=output.attempts,
        error_class=output.failed.error_class if output.failed else "",
        ref=refs[-1] if refs else "",
        episode_id=output.proposed.episode_id,
    )


def output_wait(records: Sequence[Recorded]) -> Waiting | None:
    """Return the approval that the output of these commits waits for, or None."""
    output = fold_output(records)
    if output.pending is None or output.proposed is None:
        return None
    asked = output.pending.terms
    is_changed = bool(asked.asked_hash)
    payload = unraw(asked.plan if is_changed else output.proposed.payload)
    return _asking("output", output.proposed.output_key, asked, payload)


def requests_in(waits: Iterable[Waiting]) -> list[Waiting]:
    """Return `waits` for approval, and of equal requests only the first."""
    requests, found = set[str](), list[Waiting]()
    for each in waits:
        if each.request not in requests:  # guard: equal-requests-one-in-test
            found.append(each)
            requests |= {each.request} - {""}  # guard: lone-requests-apart-in-test
    return found


def workflow_of(instance_id: str, instance: Instance) -> WorkflowSnapshot:
    """Return an instance as a test sees it."""
    specs, end = instance.specs, instance.finished
    return WorkflowSnapshot(
        id=instance_id,
        name=instance.begun.spec.name,
        status=instance.status.value,
        steps={
            name: ", ".join(item.status.value for item in state.items)
            for name, state in instance.steps.items()
        },
        results={
            name: state.result(specs[name])
            for name, state in instance.steps.items()
            if state.is_settled
        },
        waits=tuple(_step_waits(instance_id, instance)),
        error_class=end.error_class if end else "",
        error_detail=end.error_detail if end else "",
        spent_usd=instance.spent_usd,
        budget_usd=instance.begun.budget_usd,
    )


def _step_waits(instance_id: str, instance: Instance) -> Iterable[Waiting]:
    for name, state in instance.steps.items():
        if state.asked is not None and instance.goes_on:
            inputs = [unraw(each) for each in state.asked.inputs]
            yield _asking("step", instance_id, state.asked.approval, inputs, step=name)


def only(
    found: Sequence[T], what: str, known: Sequence[object], *, of: str = "", why: str = ""
) -> T:
    """Return the one that was `found`; else raise an `AssertionError` that shows all `known`.

    `why`: what the reason may be, if nothing was found.
    """
    __tracebackhide__ = True  # What a test got wrong is in the test.
    if len(found) == 1:
        return found[0]
    problem = f"no {what}" if not found else f"{len(found)} times {what}, and one is meant"
    shown = f"\n{INDENT}".join(["there is:", *map(str, known)]) if known else "there is none at all"
    because = f"; {why}" if why and not found else ""
    raise AssertionError(f"{problem}{of}{because}; {shown}")


def fitting(candidates: Iterable[T], **wanted: str | None) -> list[T]:
    """Return those of `candidates` whose attributes are as `wanted`; None: anything."""
    given = {name: value for name, value in wanted.items() if value is not None}
    return [
        each
        for each in candidates
        if all(getattr(each, name) == value for name, value in given.items())
    ]
