"""A step of a workflow, as it is declared, and the checks of what it says. Pure.

What is done about a step of a workflow that has failed: how it is declared, and the rule. Pure.

on_failure="abort"                                what runs is canceled, what is done undone
on_failure="continue"                             it goes on, as if the step had brought nothing
on_failure="pause"                                it waits for a person
on_failure=retrying(attempts=3, backoff_s=5)      it is tried again, and then one of these

Workflows: steps of actors that follow from one another, as they are declared.

    review = Workflow("client_review", on=event("client.changed"), subject_key="client")
    review.step("screen", "compliance", "screen_client")
    review.step("rate", "risk", "rate_client", depends_on=["screen"],
                when=lambda trigger, prior: prior["screen"]["hit"],
                on_failure=retrying(attempts=3, backoff_s=5), compensate=("risk", "undo_rate"))
    review.step("notify", "mail", "notify_owner", depends_on=["rate"],
                for_each=lambda trigger, prior: prior["rate"]["owners"])
    review.sub("onboard", "vendor_onboarding", depends_on=["rate"])

Steps that do not depend on one another run at the same time. `input`, `when` and `for_each` get the
trigger of the workflow, and the results of all steps that theirs depends on, by name; of one that
brought none it is None. They must be deterministic: nothing but what they get may have a say.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, get_args

from engine.app.actions import NAMES_NOBODY
from engine.app.actor import DEFAULT_DEDUPE, REVISION_MAX, WAIT_S_MAX
from engine.app.checks import Check
from engine.app.dedupe import Dedupe, problem_of_dedupe
from engine.app.triggers import EventSource, On, Sources, manual
from engine.errors import BadWorkflow
from engine.validation import backoff_s, is_whole, jittered_s
from streams.errors import BadName
from streams.json import JsonObject
from streams.model.triggers import Trigger
from streams.model.workflows import OnFailure, Remedy
from streams.tokens import name as checked_name

RemedyName: TypeAlias = Literal["abort", "continue", "pause"]

Policy: TypeAlias = RemedyName | OnFailure

ATTEMPTS_MAX: Final = 100
"""Most attempts at one item that a step may declare."""

BACKOFF_S_MAX: Final = 3_600.0
"""Longest wait between two attempts, in seconds."""

SKIP_ON_MAX: Final = 100
"""Most error classes that a step may name."""

ABORTING: Final = OnFailure()
"""What is done if nothing else is declared."""

DENIED: Final = "denied"
APPROVAL_EXPIRED: Final = "approval_expired"
"""Error classes of a step that people did not approve."""

STEP_TIMEOUT: Final = "step_timeout"
"""Error class of an attempt that took too long."""

DECIDED: Final = frozenset({DENIED, APPROVAL_EXPIRED})
"""Error classes that no other attempt is made after: it would ask the same people again."""


def retrying(
    attempts: int = 3,
    *,
    backoff_s: float = 5.0,
    skip_on: Sequence[str] = (),
    then: RemedyName = "abort",
) -> OnFailure:
    """Return the policy that a step which fails is tried again.

    Args:
        attempts: how often at most, the first one included: 1 to `ATTEMPTS_MAX`.
        backoff_s: wait after the first, in seconds, up to `BACKOFF_S_MAX`; it doubles each time. A
            part of each wait, up to half, is left off, so that not all come again at once.
        skip_on: error classes after which it is of no use, such as `["bad_input"]`.
        then: what becomes of the workflow after the last attempt: "abort", "continue" or "pause".

    Raises:
        ValueError: an argument cannot work; which one, and why.
    """
    if isinstance(skip_on, str) or not isinstance(skip_on, Sequence):
        raise ValueError(f"retrying(): skip_on: {skip_on!r} is not a list of error classes")  # noqa: TRY004 - as for its values
    if then not in get_args(RemedyName):
        raise ValueError(f"retrying(): then: {then!r} is not one of abort, continue, pause")
    policy = OnFailure(
        attempts_max=attempts, backoff_s=backoff_s, skip_on=tuple(skip_on), then=Remedy(then)
    )
    if problem := _problem_of(policy):
        raise ValueError(f"retrying(): {problem}")
    return policy


def policy_of(declared: object) -> OnFailure:
    """Return the policy that `on_failure=` means.

    Raises:
        ValueError: it is none.
    """
    if isinstance(declared, OnFailure):
        if problem := _problem_of(declared):
            raise ValueError(problem)
        return declared
    if declared is retrying:
        raise ValueError("retrying must be called, as in retrying(attempts=3)")
    if declared in get_args(RemedyName):
        return OnFailure(then=Remedy(str(declared)))
    raise ValueError(f"{declared!r} is not one of abort, continue, pause, or retrying(…)")


def remedy(
    policy: OnFailure, *, error_class: str, attempts: int, at: datetime, seed: str
) -> datetime | Remedy:
    """Return when another attempt is made, or what becomes of the instance if none is.

    Args:
        policy: of the step.
        error_class: of the attempt that has failed.
        attempts: how many there were, since a person last had it tried again.
        at: when it failed.
        seed: of the share of the wait that is left off; the same one leaves off the same.
    """
    is_final = error_class in policy.skip_on or error_class in DECIDED
    if is_final or attempts >= policy.attempts_max:
        return policy.then
    return at + timedelta(seconds=wait_s(policy.backoff_s, attempts=attempts, seed=seed))


def wait_s(first_s: float, *, attempts: int, seed: str) -> float:
    """Return how long to wait after the `attempts`-th attempt, in seconds."""
    pause_s = backoff_s(attempts, first_s=first_s, most_s=BACKOFF_S_MAX)
    return jittered_s(pause_s, seed=seed)


def _problem_of(policy: OnFailure) -> str | None:
    if not is_whole(policy.attempts_max) or not 1 <= policy.attempts_max <= ATTEMPTS_MAX:
        hint = f"is not a whole number from 1 to {ATTEMPTS_MAX}"
        return f"attempts: {policy.attempts_max!r} {hint}"
    given: object = policy.backoff_s
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not math.isfinite(policy.backoff_s):
        return f"backoff_s: {given!r} is not a number of seconds"
    if not 0 <= policy.backoff_s <= BACKOFF_S_MAX:
        return f"backoff_s: {given!r} is not from 0 to {BACKOFF_S_MAX:,g}"
    classes: tuple[object, ...] = policy.skip_on
    strays = [each for each in classes if not isinstance(each, str) or not each]
    if strays or len(classes) > SKIP_ON_MAX:
        return f"skip_on: {policy.skip_on!r} is not a list of up to {SKIP_ON_MAX} error classes"
    return None


Graph: TypeAlias = Mapping[str, Sequence[str]]
"""Node → the nodes that it depends on."""


def cycle(graph: Graph) -> str:
    """Return a way in `graph` that leads back to its beginning, as `a → b → a`; empty: none does.

    Each node of it depends on the next one.
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        way: list[str] = error.args[1]
        return " → ".join(reversed(way))
    return ""


def ancestors(graph: Graph, node: str) -> frozenset[str]:
    """Return every node that `node` depends on, by whatever way. `graph` has no cycle."""
    found: set[str] = set()
    left = list(graph[node])
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left.extend(graph[one])
    return frozenset(found)


def depths(graph: Graph) -> Mapping[str, int]:
    """Return how many nodes lie before each one on the longest way to it. There is no cycle."""
    found: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        found[node] = max((found[each] + 1 for each in graph.get(node, ())), default=0)
    return found


APPROVERS_MAX: Final = 100
"""Most names of those who may approve one step."""

DEPENDENCIES_MAX: Final = 100
"""Most steps that one may name as those it depends on."""

Prior: TypeAlias = JsonObject
"""Step → its result, as JSON gives it: of one that fans out, the list of results in the order of
its items; None of one that was skipped, or failed where the workflow goes on."""

InputOf: TypeAlias = Callable[[Trigger, Prior], JsonObject]
When: TypeAlias = Callable[[Trigger, Prior], bool]
ForEach: TypeAlias = Callable[[Trigger, Prior], Sequence[Any]]


class StepOptions(TypedDict, total=False):
    """What may be said of a step, beyond what it runs."""

    input: InputOf
    """Returns the input, a dict, which is the payload of its trigger. By default it is
    `{"trigger": payload, "prior": results}`, with the results of the steps in `depends_on`."""
    depends_on: Sequence[str]
    """Steps that have to be settled before, also such as are declared later."""
    when: When
    """Returns whether the step runs at all. If not, its result is None."""
    for_each: ForEach
    """Returns a list of up to 1,000. The step runs once for each item, all at the same time; the
    item is the input, or `{"item": item}` if it is no dict. In the place of `input`."""
    on_failure: Policy
    """"abort", the default, "continue", "pause" or `retrying(…)`: see `failure`. Of a step that
    fans out it is for each item alone."""
    timeout_s: float
    """Longest that an attempt may take, in seconds, with the wait for its turn. Then what it runs
    is canceled, and it has failed as `step_timeout`. Default: any time."""
    requires_approval: bool
    """Whether people have to approve the input before the step runs. Default: no."""
    approvers: Sequence[str]
    """Names of those who may, 1 to 100. Default: anybody."""
    approval_expires_s: float
    """How long they can, in seconds; then it is denied. Default: any time."""
    compensate: tuple[str, str]
    """Actor and expectation that undo an item if the workflow stops after it was done. Their input
    is `{"input": …, "result": …}`, and attempts are those of `on_failure`. Default: nothing."""
    reuse_s: float
    """How old a result may be, in seconds, that stands for running an item: that of an episode of
    such a step, of the same expectation and with equal input, which ended as `done`. What that one
    found or sent is not done again. A result of a dry run stands only in dry runs with the same
    overrides. Default: none does. Not for steps that people approve or that can be undone."""


@dataclass(frozen=True, kw_only=True)
class WorkflowStep:
    """A step as it was declared. See `StepOptions`."""

    name: str
    actor: str = ""
    expectation: str = ""
    workflow: str = ""
    """What it runs, where that is another workflow; then there is no actor."""
    depends_on: tuple[str, ...] = ()
    input: InputOf | None = None
    when: When | None = None
    for_each: ForEach | None = None
    on_failure: OnFailure = ABORTING
    timeout_s: float = 0.0
    requires_approval: bool = False
    approvers: tuple[str, ...] = ()
    approval_expires_s: float = 0.0
    compensate: tuple[str, str] | None = None
    reuse_s: float = 0.0

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that it has, sorted."""
        named = {"for_each": self.for_each, "input": self.input, "when": self.when}
        return tuple(name for name, function in named.items() if function is not None)


class WorkflowCheck(Check):
    """As `Check`, of what a workflow, here in the place of the actor, and its steps say."""

    def refuse(self, field_: str, problem: str, cause: Exception | None = None) -> BadWorkflow:
        """Return the error that says what is wrong with a field, to be raised."""
        error = BadWorkflow(
            workflow=str(self.actor), step=str(self.expectation), field=field_, problem=problem
        )
        error.__cause__ = cause
        return error

    def named(self, field_: str, value: str) -> str:
        """Return what may name a workflow, a step, an actor or an expectation."""
        try:
            return checked_name(value, of=field_)
        except (BadName, TypeError) as error:
            problem = f"{value!r} is not a name; use 1 to 64 of A-Z a-z 0-9 _ -"
            raise self.refuse(field_, problem, error) from error

    def names(self, field_: str, values: Sequence[str], *, most: int) -> tuple[str, ...]:
        """Return a list of names, none twice."""
        given: object = values
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise self.refuse(field_, f"{given!r} is not a list of names")
        if len(given) > most:
            raise self.refuse(field_, f"{len(given):,} names, the limit is {most}")
        checked = tuple(self.named(field_, each) for each in given)
        if len({*checked}) < len(checked):
            raise self.refuse(field_, f"{list(checked)!r} names one twice")
        return checked

    def texts(self, field_: str, values: Sequence[str], *, most: int) -> tuple[str, ...]:
        """Return a list of texts, none of them empty."""
        given: object = values
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) > most:
            raise self.refuse(field_, f"{given!r} is not a list of up to {most} texts")
        if "" in given:
            raise self.refuse(field_, "an empty text names nobody")
        return tuple(self.label(field_, each) for each in given)

    def approvers(self, values: Sequence[str]) -> tuple[str, ...]:
        """Return the names of those who may decide."""
        names = self.texts("approvers", values, most=APPROVERS_MAX)
        if not names:
            raise self.refuse("approvers", NAMES_NOBODY)
        return names

    def function(self, field_: str, value: object) -> None:
        """Check something that is called while it is decided what is next, or None."""
        if inspect.iscoroutinefunction(value):
            raise self.refuse(field_, f"{value!r} is async; it is called without waiting")
        if value is not None and not callable(value):
            raise self.refuse(field_, f"{value!r} is not a function")

    def policy(self, declared: Policy) -> OnFailure:
        """Return what is done about a failure."""
        try:
            return policy_of(declared)
        except ValueError as error:
            raise self.refuse("on_failure", str(error), error) from error

    def compensation(self, given: tuple[str, str] | None) -> tuple[str, str] | None:
        """Return the actor and the expectation that undo a step, or None."""
        if given is None:
            return None
        pair: object = given
        match pair:
            case (str(actor), str(expectation)):
                return self.named("compensate", actor), self.named("compensate", expectation)
            case _:
                raise self.refuse("compensate", f"{pair!r} is not (actor, expectation)")


def checked_step(
    check: WorkflowCheck,
    runs: Mapping[str, str],
    *,
    input: InputOf | None = None,  # noqa: A002 - what it is
    depends_on: Sequence[str] = (),
    when: When | None = None,
    for_each: ForEach | None = None,
    on_failure: Policy = "abort",
    timeout_s: float = 0.0,
    requires_approval: bool = False,
    approvers: Sequence[str] | None = None,
    approval_expires_s: float = 0.0,
    compensate: tuple[str, str] | None = None,
    reuse_s: float = 0.0,
) -> WorkflowStep:
    """Return the step that says this; `runs` has its actor and expectation, or its workflow.

    Raises:
        BadWorkflow: a value cannot work.
    """
    for name, function in (("input", input), ("when", when), ("for_each", for_each)):
        check.function(name, function)
    if input is not None and for_each is not None:
        raise check.refuse("input", "for_each says the input of each item; leave one of them out")
    asks = check.switch("requires_approval", requires_approval)
    if not asks and (approvers is not None or approval_expires_s):
        raise check.refuse("requires_approval", "is not set, so there is nothing to approve")
    if reuse_s and (why := _why_never_reused(runs, compensate, asks=asks)):
        raise check.refuse("reuse_s", why)
    return WorkflowStep(
        name=check.named("name", check.expectation),
        **{field_: check.named(field_, named) for field_, named in runs.items()},
        depends_on=check.names("depends_on", depends_on, most=DEPENDENCIES_MAX),
        input=input,
        when=when,
        for_each=for_each,
        on_failure=check.policy(on_failure),
        timeout_s=check.seconds("timeout_s", timeout_s, most=WAIT_S_MAX),
        requires_approval=asks,
        approvers=() if approvers is None else check.approvers(approvers),
        approval_expires_s=check.seconds("approval_expires_s", approval_expires_s, most=WAIT_S_MAX),
        compensate=check.compensation(compensate),
        reuse_s=check.seconds("reuse_s", reuse_s, most=WAIT_S_MAX),
    )


def _why_never_reused(runs: Mapping[str, str], compensate: object, *, asks: bool) -> str | None:
    """Return why no earlier result may stand for a step, or None."""
    if "workflow" in runs:
        return "is for steps that run an actor's expectation"
    if asks:
        return "people approve what runs, and then it does; leave one of them out"
    if compensate is not None:
        return "what can be undone stands for nothing else; leave compensate out"
    return None


STEPS_MAX: Final = 100
"""Most steps of one workflow."""

Overlap = Literal["allow", "skip"]
"""What becomes of a cause whose subject an instance is still busy with: it begins one, too; or
none."""


@dataclass(frozen=True, init=False)
class Workflow:
    """A name, what begins it, and its steps."""

    name: str
    on: Sources
    subject_key: str
    debounce_s: float
    timeout_s: float
    overlap: Overlap
    dedupe: Dedupe
    revision: int
    """Of the definition that it was made of; 0: it is declared in code."""
    steps: dict[str, WorkflowStep] = field(default_factory=dict)

    def __init__(
        self,
        name: str,
        *,
        on: On | None = None,
        subject_key: str = "",
        debounce_s: float = 0.0,
        timeout_s: float = 0.0,
        overlap: Overlap = "allow",
        dedupe: Dedupe = DEFAULT_DEDUPE,
        revision: int = 0,
    ) -> None:
        """Declare a workflow, still without steps.

        Args:
            name: stable; kept with every instance. 1 to 64 of A-Z a-z 0-9 _ -
            on: what begins it, as for an expectation. By default only people, programs and other
                workflows do.
            subject_key: path into the payload whose value is what an instance is about.
            debounce_s: how long a subject must be calm before an event begins it. Default: it
                begins at once.
            timeout_s: longest that an instance may take; then it is aborted. Default: any time.
            overlap: "skip" begins no second instance for a subject that one is busy with; "allow",
                the default, does.
            dedupe: which events are the same cause, as for an expectation.
            revision: of the definition that it is made of, for who makes workflows of those; leave
                it out otherwise.

        Raises:
            BadWorkflow: a value cannot work; the message names it.
        """
        check = WorkflowCheck(name)
        values = {
            "name": check.named("name", name),
            "on": check.sources("on", manual() if on is None else on),
            "subject_key": check.path("subject_key", subject_key),
            "debounce_s": check.seconds("debounce_s", debounce_s, most=WAIT_S_MAX),
            "timeout_s": check.seconds("timeout_s", timeout_s, most=WAIT_S_MAX),
            "overlap": check.choice("overlap", overlap, get_args(Overlap)),
            "dedupe": check.sound("dedupe", dedupe, problem_of_dedupe),
            "revision": check.whole("revision", revision, least=0, most=REVISION_MAX),
            "steps": {},
        }
        for option, value in values.items():
            object.__setattr__(self, option, value)
        if debounce_s and not any(isinstance(source, EventSource) for source in self.on):
            raise check.refuse("debounce_s", "is for events, and none begins it; leave it out")

    def step(
        self, name: str, actor: str, expectation: str, **options: Unpack[StepOptions]
    ) -> WorkflowStep:
        """Declare a step that runs an expectation of an actor, and return it.

        Args:
            name: stable within the workflow; its result is known by it.
            actor: an actor's id.
            expectation: one of its expectations, whatever else fires that.
            options: see `StepOptions`.

        Raises:
            BadWorkflow: a value cannot work, or the steps depend on one another in a circle; the
                message names workflow, step and field.
        """
        return self._add(name, {"actor": actor, "expectation": expectation}, options)

    def sub(self, name: str, workflow: str, **options: Unpack[StepOptions]) -> WorkflowStep:
        """Declare a step that runs another workflow, and return it.

        Its result is that of the other workflow's last steps, those that nothing depends on there,
        by name. Once that is done, nothing of it is undone but by `compensate`.

        Args:
            name: stable within this workflow.
            workflow: the other one's name. It finds the input as the payload of its trigger.
            options: see `StepOptions`.

        Raises:
            BadWorkflow: as for `step`.
        """
        return self._add(name, {"workflow": workflow}, options)

    def graph(self) -> Graph:
        """Return which step depends on which."""
        return {step.name: step.depends_on for step in self.steps.values()}

    def _add(self, name: str, runs: dict[str, str], options: StepOptions) -> WorkflowStep:
        check = WorkflowCheck(self.name, name)
        check.name(name, taken=self.steps)
        if len(self.steps) >= STEPS_MAX:
            raise check.refuse("name", f"one step too many; the limit is {STEPS_MAX}")
        step = checked_step(check, runs, **options)
        if way := cycle({**self.graph(), name: step.depends_on}):
            raise check.refuse("depends_on", f"leads in a circle: {way}")
        self.steps[name] = step
        return step
