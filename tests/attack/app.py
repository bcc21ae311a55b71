"""What is attacked: functions, strategy classes, workflows and outputs.

Every call brings back a value that nobody can guess, and is told those of the calls before it: an
episode that goes on with something else than what is on the journal shows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tests.attack import ledger
from vigil import (
    Action,
    Actor,
    App,
    Budget,
    CallContext,
    CallFailed,
    Context,
    ConvergeResult,
    DeliveryFailed,
    EpisodeView,
    Exhausted,
    Failure,
    FindingIntent,
    FunctionContext,
    FunctionTool,
    JsonObject,
    OutputIntent,
    OutputView,
    Retries,
    Route,
    StepTaken,
    Strategy,
    ToolFailed,
    Trigger,
    Workflow,
    approval,
    checkpoint,
    converge,
    event,
    observe,
    output,
    propose_output,
    raise_finding,
    retrying,
    tool,
    tool_call,
    wait,
    workflow,
)

APPROVER: Final = "ann"

CRASHES_MAX: Final = 1_000
"""So many that no episode ends for that reason: the faults are not its fault."""

UNLIMITED: Final = Budget(turns=0, tokens=0, wall_s=0)

FLAKY_FAILURES: Final = 2
"""How often the flaky tool fails for an order before it works, and the flaky adapter."""

SOON: Final = Retries(attempts_max=10, first_s=0.05)

AWAY_S: Final = 5.5
"""A sleep for which the episode leaves its node."""

SHORT_S: Final = 0.3


@tool
async def look(order: str, tag: str, seen: list[str], *, ctx: CallContext) -> str:
    """Read something, which is another thing each time."""
    return _noted("look", order, tag, ctx, seen=seen)


@tool(side_effect=True, idempotent=True)
async def charge(order: str, tag: str, seen: list[str], *, ctx: CallContext) -> str:
    """Charge somebody, once for each key."""
    receipt = ledger.receipt_of(ctx.idempotency_key)
    return _noted("charge", order, tag, ctx, seen=seen, nonce=receipt)


@tool(side_effect=True)
def letter(order: str, tag: str, seen: list[str], *, ctx: CallContext) -> str:
    """Send a letter, which nobody can take back or tell from another."""
    return _noted("letter", order, tag, ctx, seen=seen)


@tool(retries=SOON)
async def flake(order: str, tag: str, seen: list[str], *, ctx: CallContext) -> str:
    """Fail so many times, and then read something."""
    if _times(order, tag) < FLAKY_FAILURES:
        _noted("flake", order, tag, ctx, seen=seen, nonce="")
        raise ToolFailed("tool_unavailable", "try again")
    return _noted("flake", order, tag, ctx, seen=seen)


@tool
async def refuse(order: str, tag: str, seen: list[str], *, ctx: CallContext) -> str:
    """Fail for good."""
    _noted("refuse", order, tag, ctx, seen=seen, nonce="")
    raise ToolFailed("refused", "never")


@tool
async def stumble(order: str, tag: str, seen: list[str], *, ctx: CallContext) -> str:
    """Fail the first time, for good."""
    if _times(order, tag) == 0:
        _noted("stumble", order, tag, ctx, seen=seen, nonce="")
        raise ToolFailed("stumbled", "once")
    return _noted("stumble", order, tag, ctx, seen=seen)


def _noted(
    what: str, order: str, tag: str, ctx: CallContext, *, seen: list[str], nonce: str | None = None
) -> str:
    brought = ledger.nonce() if nonce is None else nonce
    key = ctx.idempotency_key
    return ledger.note(order, what=what, tag=tag, key=key, seen=seen, nonce=brought)


def _times(order: str, tag: str) -> int:
    folder = Path(os.environ[ledger.FOLDER])
    return sum(entry.tag == tag for entry in ledger.entries(folder, order))


class Calls:
    """The calls of one branch, each of which is told what the earlier ones brought."""

    def __init__(self, ctx: FunctionContext, order: str, seen: Sequence[str] = ()) -> None:
        self._ctx, self.order, self.seen = ctx, order, list(seen)

    async def make(self, what: FunctionTool[..., Any], tag: str) -> None:
        nonce = await self._ctx.call(what, order=self.order, tag=tag, seen=list(self.seen))
        self.seen.append(nonce)

    async def branch(self, *calls: tuple[FunctionTool[..., Any], str]) -> list[str]:
        """Make calls one after the other, and return what they brought."""
        own = Calls(self._ctx, self.order, self.seen)
        for what, tag in calls:
            await own.make(what, tag)
        return own.seen[len(self.seen) :]

    def take(self, *brought: Sequence[str]) -> None:
        self.seen += [nonce for each in brought for nonce in each]

    def end(self, **more: Any) -> ConvergeResult:
        return ConvergeResult(result={"seen": self.seen}, findings=[found(self.order)], **more)


def found(order: str) -> FindingIntent:
    """Return the finding that every episode raises."""
    return raise_finding(f"attacked:{order}", class_="attacked", evidence={"order": order})


def parcel(adapter: str, order: str, **more: Any) -> OutputIntent:
    """Return an output, once for an order and adapter."""
    return propose_output(adapter, _payload(adapter, order), key=f"{adapter}-{order}", **more)


def _payload(adapter: str, order: str) -> JsonObject:
    return {"order": order, "tag": adapter}


async def sequence(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Call one thing after the other."""
    calls = Calls(ctx, trigger.payload["order"])
    await calls.make(look, "a")
    await calls.make(charge, "b")
    await calls.make(letter, "c")
    await ctx.observe({"seen": len(calls.seen)})
    await calls.make(charge, "d")
    return calls.end()


async def branches(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Call three things at the same time, and then one."""
    calls = Calls(ctx, trigger.payload["order"])
    calls.take(
        *await ctx.gather(
            calls.branch((look, "a1"), (charge, "a2")),
            calls.branch((charge, "b1"), (charge, "b2")),
            calls.branch((letter, "c1"), (look, "c2")),
        )
    )
    await calls.make(charge, "d")
    return calls.end()


async def nested(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Have branches in branches."""
    calls = Calls(ctx, trigger.payload["order"])

    async def inner(name: str) -> list[str]:
        own = Calls(ctx, calls.order, calls.seen)
        await own.make(look, f"{name}0")
        own.take(
            *await ctx.gather(
                own.branch((charge, f"{name}1")),
                own.branch((look, f"{name}2"), (charge, f"{name}3")),
            )
        )
        return own.seen[len(calls.seen) :]

    calls.take(*await ctx.gather(inner("a"), inner("b")))
    await calls.make(letter, "c")
    return calls.end()


async def loop(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Save a checkpoint in each round of a loop."""
    done = ctx.resumed or {"round": 0, "seen": []}
    calls = Calls(ctx, trigger.payload["order"], done["seen"])
    while done["round"] < 3:
        await calls.make(charge, f"charged{done['round']}")
        await calls.make(look, f"looked{done['round']}")
        done = {"round": done["round"] + 1, "seen": list(calls.seen)}
        await ctx.checkpoint(done)
    return calls.end()


async def people(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Sleep, ask people, wait for a signal and repeat what fails, at the same time."""
    calls = Calls(ctx, trigger.payload["order"])

    async def asleep() -> list[str]:
        await ctx.sleep(SHORT_S)
        return await calls.branch((charge, "slept"))

    async def asking() -> list[str]:
        answer = await ctx.approval({"ship": calls.order}, approvers=[APPROVER])
        assert answer, "nobody denies it"
        return await calls.branch((letter, "approved"))

    async def waiting() -> list[str]:
        brought = await ctx.wait(f"signal-{calls.order}")
        return [brought, *await calls.branch((charge, "signaled"))]

    calls.take(*await ctx.gather(asleep(), asking(), waiting(), calls.branch((flake, "flaked"))))
    await calls.make(charge, "closed")
    return calls.end()


async def flaky(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Repeat what fails for now, and go on after what fails for good."""
    calls = Calls(ctx, trigger.payload["order"])
    await calls.make(flake, "a")
    try:
        await calls.make(refuse, "b")
    except CallFailed as failed:
        if failed.error_class != "refused":
            raise
    await calls.make(charge, "c")
    return calls.end()


async def nap(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Sleep so long that no node has the episode, and once so shortly that its node keeps it."""
    calls = Calls(ctx, trigger.payload["order"])
    await calls.make(charge, "before")
    await ctx.sleep(AWAY_S)
    await calls.make(charge, "after")
    await ctx.sleep(SHORT_S)
    await calls.make(look, "later")
    return calls.end()


async def sent(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Have an output delivered as a step, and one that is put off."""
    calls = Calls(ctx, trigger.payload["order"])
    order = calls.order
    await ctx.output("mailbox", _payload("mailbox", order), key=f"mailbox-{order}")
    await calls.make(charge, "a")
    await ctx.output("unreliable", _payload("unreliable", order), key=f"unreliable-{order}")
    await calls.make(charge, "b")
    return calls.end()


async def delivered(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Leave outputs of every kind."""
    calls = Calls(ctx, trigger.payload["order"])
    outputs = [
        parcel("mailbox", calls.order),
        parcel("warehouse", calls.order, requires_approval=True, approvers=[APPROVER]),
        parcel("unreliable", calls.order),
        parcel("refusing", calls.order),
    ]
    return calls.end(outputs=outputs)


class Progress(msgspec.Struct, frozen=True):
    """What the episode of a class is about, and what its calls have brought."""

    order: str
    at: int = 0
    seen: tuple[str, ...] = ()


class Steps(Strategy[Progress]):
    """Make the calls of a plan one after the other."""

    plan: Sequence[tuple[FunctionTool[..., Any] | str, str]] = (
        (look, "a"),
        (charge, "b"),
        ("checkpoint", "half"),
        (letter, "c"),
        ("observe", "seen"),
        (charge, "d"),
    )

    def init(self, episode: EpisodeView, trigger: Trigger) -> Progress:
        """Take the order from the event."""
        return Progress(trigger.payload["order"])

    def next_step(self, state: Progress, ctx: Context) -> Action:
        """Ask for what comes next in the plan."""
        if state.at == len(self.plan):
            return converge()
        match self.plan[state.at]:
            case "checkpoint", tag:
                return checkpoint(tag)
            case "observe", tag:
                return observe({tag: len(state.seen)})
            case "approval", tag:
                return approval({tag: state.order}, approvers=[APPROVER])
            case "wait", tag:
                return wait(f"{tag}-{state.order}")
            case "output", tag:
                return output(tag, _payload(tag, state.order), key=f"{tag}-{state.order}")
            case FunctionTool() as what, tag:
                seen = list(state.seen)
                return tool_call(what, order=state.order, tag=tag, seen=seen)
            case other:
                raise AssertionError(other)

    def handle_result(self, state: Progress, step: StepTaken, result: Any) -> Progress:
        """Remember what a call brought."""
        assert not isinstance(result, Failure), result
        seen = (*state.seen, result) if isinstance(result, str) else state.seen
        return replace(state, at=state.at + 1, seen=seen)

    def converge(self, state: Progress, ctx: Context) -> ConvergeResult:
        """Leave a finding and an output."""
        return ConvergeResult(
            result={"seen": state.seen},
            findings=[found(state.order)],
            outputs=[parcel("unreliable", state.order)],
        )


class Restarted(Steps):
    """Make the calls anew after a crash: equal ones, as far as a side effect depends on them."""

    plan = ((charge, "a"), ("observe", "seen"), (charge, "b"), (look, "c"))


class Asking(Steps):
    """Ask people, wait for a signal, and have an output delivered on the way."""

    plan = (
        (charge, "a"),
        ("approval", "ship"),
        (letter, "b"),
        ("output", "mailbox"),
        ("wait", "signal"),
        (charge, "c"),
    )


class Limited(Steps):
    """Use up the budget before the plan is over."""

    plan = ((charge, "a"), (look, "b"), (charge, "c"), (charge, "never"))


def partial(exhausted: Exhausted) -> ConvergeResult:
    """Return what was gathered until the budget was used up."""
    seen = [step.result for step in exhausted.steps if isinstance(step.result, str)]
    order = exhausted.trigger.payload["order"]
    return ConvergeResult(result={"seen": seen}, findings=[found(order)])


async def worked(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Do one item of a workflow."""
    calls = Calls(ctx, trigger.payload["order"])
    await calls.make(charge, trigger.payload["tag"])
    return ConvergeResult(result={"seen": calls.seen})


async def stumbled(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Fail the first time."""
    calls = Calls(ctx, trigger.payload["order"])
    await calls.make(stumble, trigger.payload["tag"])
    return ConvergeResult(result={"seen": calls.seen})


async def failed(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Fail each time."""
    calls = Calls(ctx, trigger.payload["order"])
    await calls.make(refuse, trigger.payload["tag"])
    return ConvergeResult()


async def undone(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Undo one item of a workflow."""
    given = trigger.payload["input"]
    calls = Calls(ctx, given["order"])
    await calls.make(charge, f"{given['tag']}-undone")
    return ConvergeResult(result={"seen": calls.seen})


def _item(tag: str) -> Any:
    return lambda trigger, prior: {"order": trigger.payload["order"], "tag": tag}


def _items(trigger: Trigger, prior: JsonObject) -> list[JsonObject]:
    return [{"order": trigger.payload["order"], "tag": f"item{number}"} for number in range(2)]


attacked = Actor("attacked", tools=[look, charge, letter, flake, refuse], max_concurrent_episodes=8)
for _strategy in (sequence, branches, nested, loop, people, flaky, nap, sent, delivered):
    attacked.expect(
        _strategy.__name__,
        _strategy,
        on=event(f"attack.{_strategy.__name__}"),
        subject_key="order",
        budget=UNLIMITED,
        attempts_max=CRASHES_MAX,
    )
attacked.expect(
    "steps",
    Steps,
    on=event("attack.steps"),
    subject_key="order",
    budget=UNLIMITED,
    attempts_max=CRASHES_MAX,
)
attacked.expect(
    "asking",
    Asking,
    on=event("attack.asking"),
    subject_key="order",
    budget=UNLIMITED,
    attempts_max=CRASHES_MAX,
)
attacked.expect(
    "restarted",
    Restarted,
    on=event("attack.restarted"),
    subject_key="order",
    budget=UNLIMITED,
    attempts_max=CRASHES_MAX,
    recovery="restart",
)
attacked.expect(
    "limited",
    Limited,
    on=event("attack.limited"),
    subject_key="order",
    budget=Budget(turns=3, tokens=0, wall_s=0),
    attempts_max=CRASHES_MAX,
    on_exhausted=partial,
)

worker = Actor("worker", tools=[charge, stumble, refuse], max_concurrent_episodes=8)
for _function in (worked, stumbled, failed, undone):
    worker.expect(
        _function.__name__,
        _function,
        on=workflow(),
        budget=UNLIMITED,
        attempts_max=CRASHES_MAX,
    )

pipeline = Workflow("pipeline", on=event("attack.pipeline"), subject_key="order")
pipeline.step(
    "first",
    "worker",
    "stumbled",
    input=_item("stumbled"),
    on_failure=retrying(attempts=3, backoff_s=0.2),
)
pipeline.step(
    "second",
    "worker",
    "worked",
    depends_on=["first"],
    input=_item("approved"),
    requires_approval=True,
)
pipeline.step("third", "worker", "worked", depends_on=["second"], for_each=_items)

saga = Workflow("saga", on=event("attack.saga"), subject_key="order")
saga.step("a", "worker", "worked", input=_item("a"), compensate=("worker", "undone"))
saga.step(
    "b",
    "worker",
    "worked",
    depends_on=["a"],
    input=_item("b"),
    compensate=("worker", "undone"),
)
saga.step("c", "worker", "failed", depends_on=["b"], input=_item("c"))


async def deliver(view: OutputView) -> str:
    """Accept whatever comes."""
    return _delivered(view)


async def deliver_at_last(view: OutputView) -> str:
    """Accept it after so many failures."""
    order, tag = _of(view)
    if _times(order, tag) < FLAKY_FAILURES:
        _delivered(view, nonce="")
        raise DeliveryFailed("busy", "try again")
    return _delivered(view)


async def deliver_never(view: OutputView) -> str:
    """Refuse it for good."""
    _delivered(view, nonce="")
    raise DeliveryFailed("no_such_street", "never", permanent=True)


def _of(view: OutputView) -> tuple[str, str]:
    payload: Any = view.payload
    return payload["order"], payload["tag"]


def _delivered(view: OutputView, *, nonce: str | None = None) -> str:
    order, tag = _of(view)
    nonce = ledger.nonce() if nonce is None else nonce
    return ledger.note(order, what=view.adapter, tag=tag, key=view.idempotency_key, nonce=nonce)


app = App(
    actors=[attacked, worker],
    workflows=[pipeline, saga],
    outputs={
        "mailbox": deliver,
        "warehouse": deliver,
        "unreliable": Route(deliver_at_last, retries=SOON),
        "refusing": deliver_never,
    },
)
