"""`Workflow`: steps of actors that depend on one another, as declared and checked. Pure.

    review = Workflow("client_review", on=event("client.changed"), subject_key="client")
    review.step("screen", "compliance", "screen_client")
    review.step("rate", "risk", "rate_client", depends_on=["screen"],
                when=lambda trigger, prior: prior["screen"]["hit"],
                on_failure=retrying(attempts=3, backoff_s=5), compensate=("risk", "undo_rate"))

Steps that do not depend on one another run at the same time. `input`, `when` and `for_each` get the
workflow's trigger and the results of all steps that theirs depends on, by name; the result of a
step that has none is None. They must be deterministic. A failed step follows its policy: "abort"
cancels what runs and compensates what is done, "continue" goes on as if the result were None,
"pause" waits for a person, and `retrying(…)` tries again, and then does one of these.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, get_args

from engine.app.actions import NAMES_NOBODY, QUORUM_MAX, problem_of_quorum
from engine.app.actor import DEFAULT_DEDUPE, REVISION_MAX, WAIT_S_MAX
from engine.app.checks import Check, problem_of_usd
from engine.app.dedupe import Dedupe, problem_of_dedupe
from engine.app.triggers import EventSource, On, Sources, manual
from engine.errors import BadWorkflow
from engine.validation import backoff_s, is_whole, jittered_s
from streams.errors import BadName
from streams.json import JsonObject
from streams.model.money import NO_USD, Usd, usd_of
from streams.model.triggers import Overlap, Trigger
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
"""The default policy."""

DENIED: Final = "denied"

APPROVAL_EXPIRED: Final = "approval_expired"
"""Error classes of a step that people did not approve."""

STEP_TIMEOUT: Final = "step_timeout"
"""Error class of an attempt that took too long."""

DECIDED: Final = frozenset({DENIED, APPROVAL_EXPIRED})
"""Error classes that are never retried: the retry would ask the same people again."""


Graph: TypeAlias = Mapping[str, Sequence[str]]
"""Node → the nodes that it depends on."""


APPROVERS_MAX: Final = 100
"""Most names of those who may approve one step."""

DEPENDENCIES_MAX: Final = 100
"""Most steps in one `depends_on`."""

Prior: TypeAlias = JsonObject
"""Step → its result, decoded from JSON: a list in the order of its items if it fans out; None if it
was skipped or failed and the workflow continued.
"""

InputOf: TypeAlias = Callable[[Trigger, Prior], JsonObject]

When: TypeAlias = Callable[[Trigger, Prior], bool]

ForEach: TypeAlias = Callable[[Trigger, Prior], Sequence[Any]]


STEPS_MAX: Final = 100
"""Most steps of one workflow."""


def retrying(
    attempts: int = 3,
    *,
    backoff_s: float = 5.0,
    skip_on: Sequence[str] = (),
    then: RemedyName = "abort",
) -> OnFailure:
    """Return the policy that a failed step is tried again.

    Args:
        attempts: most attempts, the first included: 1 to `ATTEMPTS_MAX`.
        backoff_s: wait after the first, in seconds, up to `BACKOFF_S_MAX`; it doubles each time.
            Jitter shortens each wait by up to half.
        skip_on: error classes that are not retried, such as `["bad_input"]`.
        then: after the last attempt: "abort", "continue" or "pause".

    Raises `ValueError` if an argument cannot work; the message names it.
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
    """Return the policy for an `on_failure=`; raise `ValueError` if it is none."""
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
    """Return when the next attempt is made, or what happens to the instance if none is.

    `attempts` counts those since a person last retried it; `seed` selects the jitter.
    """
    # guard: denied-not-asked-again
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


def cycle(graph: Graph) -> str:
    """Return a cycle in `graph` as `a → b → a`, each node depending on the next; empty: none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        way: list[str] = error.args[1]
        return " → ".join(reversed(way))
    return ""


def ancestors(graph: Graph, node: str) -> frozenset[str]:
    """Return every node that `node` depends on, directly or not. `graph` must have no cycle."""
    found: set[str] = set()
    left = list(graph[node])
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left.extend(graph[one])
    return frozenset(found)


def depths(graph: Graph) -> Mapping[str, int]:
    """Return the length of the longest way to each node. `graph` must have no cycle."""
    found: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        found[node] = max((found[each] + 1 for each in graph.get(node, ())), default=0)
    return found


class StepOptions(TypedDict, total=False):
    """The options of a step."""

    input: InputOf
    """Returns the input, a dict, which is the payload of its trigger. By default it is
    `{"trigger": payload, "prior": results}`, with the results of the steps in `depends_on`."""
    depends_on: Sequence[str]
    """Steps that must be settled before; they may be declared later."""
    when: When
    """Returns whether the step runs at all. If not, its result is None."""
    for_each: ForEach
    """Returns a list of up to 1,000 items. The step runs once for each, all at the same time; the
    item is the input, or `{"item": item}` if it is no dict. Replaces `input`.
    """
    on_failure: Policy
    """"abort", the default, "continue", "pause" or `retrying(…)`. If the step fans out, it applies
    to each item.
    """
    timeout_s: float
    """Longest that an attempt may take, in seconds, the wait in its lane included. Then its episode
    is canceled and the attempt has failed as `step_timeout`. Default: no limit.
    """
    requires_approval: bool
    """Whether people have to approve the input before the step runs. Default: no."""
    approvers: Sequence[str]
    """Names of those who may, 1 to 100, and `group:` with the name of a group. Default: anybody."""
    quorum: int
    """How many different people have to approve it, 1 to 16. Default: one."""
    requester_may_approve: bool
    """Whether who has started the workflow may decide, too. Default: yes."""
    approval_expires_s: float
    """Time limit for approval, in seconds; then it is denied. Default: none."""
    compensate: tuple[str, str]
    """Actor and expectation that undo an item if the workflow stops after it was done. They get
    `{"input": …, "result": …}` and the attempts of `on_failure`. Default: nothing.
    """
    reuse_s: float
    """Oldest result, in seconds, that is reused instead of running an item: that of an episode of
    the same expectation, with equal input, that ended as `done`. Its findings and outputs are not
    repeated. A dry run's result is reused only in dry runs with the same overrides. Default: no
    reuse. Not for steps that people approve or that can be compensated.
    """


@dataclass(frozen=True, kw_only=True)
class WorkflowStep:
    """A declared step. See `StepOptions`."""

    name: str
    actor: str = ""
    expectation: str = ""
    workflow: str = ""
    """The workflow that it runs, if any; then it has no actor."""
    depends_on: tuple[str, ...] = ()
    input: InputOf | None = None
    when: When | None = None
    for_each: ForEach | None = None
    on_failure: OnFailure = ABORTING
    timeout_s: float = 0.0
    requires_approval: bool = False
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    requester_may_approve: bool = True
    approval_expires_s: float = 0.0
    compensate: tuple[str, str] | None = None
    reuse_s: float = 0.0

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of its functions, sorted."""
        named = {"for_each": self.for_each, "input": self.input, "when": self.when}
        return tuple(name for name, function in named.items() if function is not None)


class WorkflowCheck(Check):
    """`Check` for the values of a workflow (in place of the actor) and its steps."""

    def refuse(self, field_: str, problem: str, cause: Exception | None = None) -> BadWorkflow:
        """Return the error for a field, for the caller to raise."""
        error = BadWorkflow(
            workflow=str(self.actor), step=str(self.expectation), field=field_, problem=problem
        )
        error.__cause__ = cause
        return error

    def named(self, field_: str, value: str) -> str:
        """Return a name of a workflow, a step, an actor or an expectation."""
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
        if not names:  # guard: empty-approvers-refused
            raise self.refuse("approvers", NAMES_NOBODY)
        return names

    def quorum(self, value: int, approvers: Collection[str]) -> int:
        """Return how many different people have to approve a step."""
        if not is_whole(value) or not 1 <= value <= QUORUM_MAX:
            raise self.refuse("quorum", f"{value!r} is not a whole number from 1 to {QUORUM_MAX}")
        if problem := problem_of_quorum(value, approvers):
            raise self.refuse("quorum", problem.removeprefix("quorum: "))
        return value

    def function(self, field_: str, value: object) -> None:
        """Check a function that is called while the next step is decided, or None."""
        if inspect.iscoroutinefunction(value):
            raise self.refuse(field_, f"{value!r} is async; it is called without waiting")
        if value is not None and not callable(value):
            raise self.refuse(field_, f"{value!r} is not a function")

    def policy(self, declared: Policy) -> OnFailure:
        """Return the policy for failures."""
        try:
            return policy_of(declared)
        except ValueError as error:
            raise self.refuse("on_failure", str(error), error) from error

    def compensation(self, given: tuple[str, str] | None) -> tuple[str, str] | None:
        """Return the actor and the expectation that compensate a step, or None."""
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
    quorum: int = 1,
    requester_may_approve: bool = True,
    approval_expires_s: float = 0.0,
    compensate: tuple[str, str] | None = None,
    reuse_s: float = 0.0,
) -> WorkflowStep:
    """Return the step that runs what `runs` has, or raise `BadWorkflow`."""
    for name, function in (("input", input), ("when", when), ("for_each", for_each)):
        check.function(name, function)
    if input is not None and for_each is not None:
        raise check.refuse("input", "for_each says the input of each item; leave one of them out")
    asks = check.switch("requires_approval", requires_approval)
    may_approve = check.switch("requester_may_approve", requester_may_approve)
    has_terms = approvers is not None or approval_expires_s or quorum != 1 or not may_approve
    if not asks and has_terms:
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
        quorum=check.quorum(quorum, approvers or ()),
        requester_may_approve=may_approve,
        approval_expires_s=check.seconds("approval_expires_s", approval_expires_s, most=WAIT_S_MAX),
        compensate=check.compensation(compensate),
        reuse_s=check.seconds("reuse_s", reuse_s, most=WAIT_S_MAX),
    )


def _why_never_reused(runs: Mapping[str, str], compensate: object, *, asks: bool) -> str | None:
    if "workflow" in runs:
        return "is for steps that run an actor's expectation"
    if asks:
        return "people approve what runs, and then it does; leave one of them out"
    if compensate is not None:
        return "what can be undone stands for nothing else; leave compensate out"
    return None


@dataclass(frozen=True, init=False)
class Workflow:
    """A name, triggers, and steps."""

    name: str
    on: Sources
    subject_key: str
    debounce_s: float
    timeout_s: float
    overlap: Overlap
    dedupe: Dedupe
    budget_usd: Decimal
    revision: int
    """Of the definition that it was made from; 0: it is declared in code."""
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
        budget_usd: Usd = NO_USD,
        revision: int = 0,
    ) -> None:
        """Declare a workflow without steps.

        Args:
            name: stable; stored with every instance. 1 to 64 of A-Z a-z 0-9 _ -
            on: its triggers, as for an expectation. By default only people, programs and other
                workflows start it.
            subject_key: path into the payload whose value is the subject of an instance.
            debounce_s: an event starts an instance once its subject had no other event for so long.
                Default: at once.
            timeout_s: longest that an instance may take; then it is aborted. Default: no limit.
            overlap: what a cause does while the subject has an instance that has not ended.
                "allow", the default: it starts another one. "skip": it starts none. "buffer_one":
                one instance waits for that end; further causes start none. "cancel_other": the
                instance is canceled, with compensation, and the new one goes on after its end.
            dedupe: which events are the same cause, as for an expectation.
            budget_usd: most that all requests to models of an instance may cost, in US dollars:
                `"5.00"`. Those of nested instances and of compensation count. A step begins once as
                much is left as its expectation, or the workflow that it runs, declares; one that
                declares nothing gets all that is left. Default: no limit.
            revision: for code that makes workflows from definitions; leave it out otherwise.

        Raises `BadWorkflow` if a value cannot work; the message names it.
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
            "budget_usd": usd_of(check.sound("budget_usd", budget_usd, problem_of_usd)),
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

        `name` must be stable within the workflow: results are stored by it. The expectation may
        have other triggers, too. Raises `BadWorkflow` if a value cannot work, or the steps depend
        on one another in a circle; the message names workflow, step and field.
        """
        return self._add(name, {"actor": actor, "expectation": expectation}, options)

    def sub(self, name: str, workflow: str, **options: Unpack[StepOptions]) -> WorkflowStep:
        """Declare a step that runs another workflow, and return it.

        The other workflow gets the input as the payload of its trigger. The result has the results
        of its last steps, those that nothing depends on, by name. Once it is done, only
        `compensate` undoes anything of it. Raises as `step`.
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
        if way := cycle({**self.graph(), name: step.depends_on}):  # guard: no-circular-steps
            raise check.refuse("depends_on", f"leads in a circle: {way}")
        self.steps[name] = step
        return step
