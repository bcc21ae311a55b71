"""A step of a workflow, as it is declared, and the checks of what it says. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypedDict

from engine.actions import NAMES_NOBODY
from engine.declaring import Check
from engine.errors import BadWorkflow
from engine.expectation import WAIT_S_MAX
from engine.workflows.failure import ABORTING, Policy, policy_of
from streams.errors import BadName
from streams.json import JsonObject
from streams.tokens import name as checked_name
from streams.triggers import Trigger
from streams.workflows import OnFailure

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
class Step:
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
) -> Step:
    """Return the step that says this; `runs` has its actor and expectation, or its workflow.

    Raises:
        BadWorkflow: a value cannot work.
    """
    for name, function in (("input", input), ("when", when), ("for_each", for_each)):
        check.function(name, function)
    if input is not None and for_each is not None:
        raise check.refuse("input", "for_each says the input of each item; leave one of them out")
    asks = check.switch("requires_approval", value=requires_approval)
    if not asks and (approvers is not None or approval_expires_s):
        raise check.refuse("requires_approval", "is not set, so there is nothing to approve")
    if reuse_s and (why := _why_never_reused(runs, compensate, asks=asks)):
        raise check.refuse("reuse_s", why)
    return Step(
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
