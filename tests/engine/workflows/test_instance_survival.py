"""Any workflow, any mix of ends, any crash: an instance ends legally, and does nothing twice."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from engine.app.workflow import Workflow, retrying
from engine.errors import Refused
from engine.workflows.effects import LookUpResult
from engine.workflows.instance import (
    INSTANCE_ENDED,
    SETTLED,
    STEP_TRANSITIONS,
    UNSTARTED,
    WORKFLOW_TRANSITIONS,
    AttemptEnded,
    Instance,
    ResultLookedUp,
    evolve,
)
from streams.json import NOTHING, raw
from streams.model.commands import Cancel, CancelWorkflow, DecideStep, ResumeWorkflow, Verdict
from streams.model.events import (
    CompensationBegun,
    StepBegun,
    StepPrepared,
    StepReused,
    WorkflowFinished,
)
from streams.model.workflows import ResumeHow, StepOutcome, StepStatus, WorkflowStatus
from tests.engine.workflows.flows import Flow, advance

STEPS_MAX = 12
TURNS_MAX = 4_000
"""More than any of these workflows needs: one that takes them all stands still or spins."""

POLICIES = ["abort", "continue", "pause"]


@st.composite
def options(draw, number):
    names = [f"s{n}" for n in range(number)]
    before = st.lists(st.sampled_from(names), unique=True, max_size=4) if names else st.just([])
    said = {"depends_on": draw(before)}
    policy = draw(st.sampled_from(POLICIES))
    said["on_failure"] = draw(
        st.sampled_from([policy, retrying(2, backoff_s=3, skip_on=["final"], then=policy)])
    )
    kind = draw(st.sampled_from(["plain", "plain", "list", "never", "broken"]))
    if kind == "list":
        width = draw(st.integers(0, 3))
        said["for_each"] = lambda trigger, prior, width=width: [*range(width)]
    if kind == "never":
        said["when"] = lambda trigger, prior: False
    if kind == "broken":
        said["input"] = lambda trigger, prior: prior["nobody"]
    if draw(st.integers(0, 2)) == 0:
        return said | {"reuse_s": 60}
    if draw(st.booleans()):
        said["compensate"] = ("act", f"undo_s{number}")
    if draw(st.integers(0, 3)) == 0:
        said |= {"requires_approval": True, "approval_expires_s": 50}
    if draw(st.integers(0, 2)) == 0:
        said["timeout_s"] = 40
    return said


@st.composite
def workflows(draw):
    made = Workflow("w", timeout_s=draw(st.sampled_from([0, 0, 300])))
    for number in range(draw(st.integers(1, STEPS_MAX))):
        said = draw(options(number))
        if "reuse_s" not in said and draw(st.integers(0, 5)) == 0:
            made.sub(f"s{number}", "inner", **said)
        else:
            made.step(f"s{number}", "act", f"do_s{number}", **said)
    return made


class World:
    """One instance among nodes that crash, and commands that come late, twice and in any order."""

    def __init__(self, workflow: Workflow, chance: Random):
        self.flow = Flow(workflow)
        self.chance = chance
        self.queue: list[object] = [advance()]
        self.open: dict[str, AttemptEnded] = {}
        """What runs outside: id → how it will end."""
        self.opened: set[str] = set()
        self.told: list[AttemptEnded] = []
        self.wake_at = None
        self.decisions = 0

    def turn(self) -> None:
        """Let one thing happen that can."""
        can = [self.deliver] * bool(self.queue) + [self.finish_one] * bool(self.open)
        if self.told and self.chance.random() < 0.1:
            can.append(self.publish_again)
        if self.chance.random() < 0.01:
            can.append(self.cancel)
        if can:
            self.chance.choice(can)()
        elif self.flow.instance.status is WorkflowStatus.BLOCKED and self.chance.random() < 0.8:
            self.ask_people()
        else:
            self.sleep()

    def deliver(self) -> None:
        """A node takes a command, and may die anywhere; then the command comes again."""
        command = self.queue.pop(self.chance.randrange(len(self.queue)))
        self.follow_up()
        for _ in range(100):
            if self.dies():
                self.queue.append(command)
                return
            try:
                said = self.flow.put(command)
            except Refused:
                return
            if self.dies():  # Between the commit and what it asks for.
                self.queue.append(command)
                return
            self.follow_up()
            if not said:
                return
            command = advance() if self.chance.random() < 0.5 else command

    def dies(self) -> bool:
        return self.chance.random() < 0.15

    def follow_up(self) -> None:
        """Do what the newest commit asks for, or a part of it, again and again."""
        effects = self.flow.effects
        self.queue += map(self.recall, effects.recalls)
        for one in (*effects.opens, *effects.starts):
            id_ = getattr(one, "episode_id", None) or one.instance_id
            if id_ not in self.opened:
                self.opened.add(id_)
                self.open[id_] = self.plan(one.trigger, id_)
        for one in (*effects.cancels, *effects.sub_cancels):
            id_ = one.episode_id if isinstance(one, Cancel) else one.instance_id
            if id_ in self.open and self.chance.random() < 0.8:
                self.open[id_] = canceled(self.open[id_])
        self.wake_at = effects.wake_at

    def recall(self, wanted: LookUpResult) -> ResultLookedUp:
        """Another node may find what this one has not: all of them are told to the instance."""
        earlier = "earlier" if self.chance.random() < 0.5 else ""
        result = raw(f"{wanted.step}/{wanted.item}") if earlier else NOTHING
        return ResultLookedUp(step=wanted.step, item=wanted.item, episode_id=earlier, result=result)

    def plan(self, trigger, id_: str) -> AttemptEnded:
        outcome = self.chance.choice([StepOutcome.DONE] * 3 + [StepOutcome.FAILED])
        failed = outcome is StepOutcome.FAILED
        return AttemptEnded(
            step=trigger.workflow_step_id,
            item=trigger.item,
            attempt=trigger.attempt,
            episode_id=id_,
            outcome=outcome,
            error_class=self.chance.choice(["crash", "final"]) if failed else "",
            result=raw(id_),
            is_compensation=trigger.is_compensation,
        )

    def finish_one(self) -> None:
        id_ = self.chance.choice(list(self.open))
        ended = self.open.pop(id_)
        self.told.append(ended)
        self.queue.append(ended)

    def publish_again(self) -> None:
        self.queue.append(self.chance.choice(self.told))

    def cancel(self) -> None:
        self.queue.append(CancelWorkflow(workflow="w", instance_id="i", by="ada"))

    def ask_people(self) -> None:
        self.decisions += 1
        said = {"workflow": "w", "instance_id": "i", "id": f"p{self.decisions}", "by": "ada"}
        for (step, _), item in self.flow.instance.items():
            if item.status is StepStatus.PAUSED:
                how = ResumeHow.RETRY if self.decisions < 20 else ResumeHow.SKIP
                return self.queue.append(ResumeWorkflow(step=step, how=how, **said))
            if item.status is StepStatus.AWAITING_APPROVAL:
                asked = self.flow.instance.steps[step].asked.approval.plan_hash
                verdict = self.chance.choice([*Verdict])
                return self.queue.append(
                    DecideStep(step=step, verdict=verdict, plan_hash=asked, **said)
                )
        return None

    def sleep(self) -> None:
        """Nothing else can happen, so time passes until something is due."""
        if self.wake_at is None:
            self.ask_people()
        else:
            self.flow.now = max(self.flow.now, self.wake_at)
            self.queue.append(advance())


def canceled(end: AttemptEnded) -> AttemptEnded:
    return AttemptEnded(
        step=end.step,
        item=end.item,
        attempt=end.attempt,
        episode_id=end.episode_id,
        outcome=StepOutcome.CANCELED,
        is_compensation=end.is_compensation,
    )


def check_life(world: World) -> None:
    """Read the journal event by event: every one fits the state that it met."""
    instance, begun, undone = UNSTARTED, Counter(), []
    for record in world.flow.journal:
        for event in record.commit.events:
            match event:
                case StepPrepared(step=step):
                    needs = instance.specs[step].depends_on
                    assert all(instance.steps[each].is_settled for each in needs), "in turn"
                case StepBegun(step=step, item=item, attempt=attempt):
                    begun[step, item, attempt] += 1
                case StepReused(step=step, item=item):
                    assert (step, item, 1) not in begun, "nothing has run for it"
                    begun[step, item, 1] += 1
                case CompensationBegun(attempt=1, step=step, item=item):
                    assert not any(instance.with_status(StepStatus.RUNNING)), "nothing else runs"
                    undone.append((step, item))
                case _:
                    pass
            after = evolve(instance, event, at=record.commit.at)
            check_legal(instance, after, event)
            instance = after
    assert set(begun.values()) <= {1}, "each attempt is made once"
    assert instance.phase in INSTANCE_ENDED
    check_end(instance, undone)


def check_legal(before: Instance, after: Instance, event: object) -> None:
    assert after.status in WORKFLOW_TRANSITIONS[before.status][type(event)]
    for name, step in after.steps.items():
        was = before.steps.get(name)
        if was is None or was.items == step.items or isinstance(event, StepPrepared):
            continue
        for old, new in zip(was.items, step.items, strict=True):
            assert old == new or new.status in STEP_TRANSITIONS[old.status][type(event)]


def check_end(instance: Instance, undone: list[tuple[str, int]]) -> None:
    items = dict(instance.items())
    statuses = {item.status for item in items.values()}
    assert not statuses & {StepStatus.RUNNING, StepStatus.PENDING, StepStatus.RETRYING}
    order = [items[place].done_no for place in undone]
    assert order == sorted(order, reverse=True), "what was done last is undone first"
    if instance.status is WorkflowStatus.DONE:
        assert statuses <= SETTLED
        assert not undone
    else:
        done = {place for place, item in items.items() if item.status is StepStatus.DONE}
        able = {place for place in done if instance.specs[place[0]].compensation}
        assert {*undone} == able


@forall(workflows(), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_every_instance_ends_legally_whatever_crashes(workflow, seed):
    world = World(workflow, Random(seed))
    for _ in range(TURNS_MAX):
        if world.flow.instance.phase in INSTANCE_ENDED:
            break
        world.turn()
    ends = [
        event
        for record in world.flow.journal
        for event in record.commit.events
        if isinstance(event, WorkflowFinished)
    ]
    assert len(ends) == 1
    check_life(world)
    world.follow_up()
    begun = {
        event.episode_id
        for record in world.flow.journal
        for event in record.commit.events
        if isinstance(event, StepBegun | CompensationBegun)
    }
    assert world.opened == begun, "what has begun is opened, and nothing else"
