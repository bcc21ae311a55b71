"""`WorkflowDefinition`: a workflow with its steps as data. Pure.

    input:     {client: trigger.client, hit: prior.screen.hit, owners: [prior.rate.owner, ann]}
    when:      {prior.screen.hit: true, trigger.amount: {gte: 10}}
    for_each:  prior.rate.owners

A text that is `trigger` or `item`, or begins with `trigger.`, `prior.` or `item.`, is a path and is
replaced by the value there, or null. Everything else is itself, and so is all under `{value: …}`.
So an input depends only on the definition and on recorded data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, TypeGuard

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    field_serializer,
    field_validator,
    model_validator,
)

from engine.app.actions import NAMES_NOBODY
from engine.app.conditions import Filter, conditions_of, filter_of, misfit, operators_of
from engine.app.tools import check_name
from engine.app.triggers import SOURCES_MAX
from engine.app.workflow import (
    STEPS_MAX,
    Graph,
    Policy,
    Prior,
    RemedyName,
    StepOptions,
    Workflow,
    ancestors,
    retrying,
)
from engine.app.workflow_plan import starters_of
from engine.definitions.agent import DedupeDefinition, SourceDefinition
from engine.errors import BadDefinition, BadWorkflow
from engine.validation import (
    Listed,
    Strict,
    parsed,
    problem_of_path,
    shown,
    tag,
    wrong,
)
from streams.json import ABSENT, JsonObject, value_at
from streams.model.money import NO_USD
from streams.model.triggers import Overlap, Trigger

DEPTH_MAX: Final = 32
"""Deepest nesting of an input."""

PATHS_MAX: Final = 100
"""Most paths in one input: each may lead to a whole payload."""

STATIC: Final = "value"
"""The key of an object whose value contains no paths."""

_PATH: Final = re.compile(r"trigger|item|(trigger|prior|item)\..*", re.DOTALL)


FIELDS_MAX: Final = 100
"""Most fields of one input."""

CONDITIONS_MAX: Final = 100
"""Most conditions of one step."""

DEFAULT_RETRY: Final = retrying()


_WORD: Final = tag("word")

_OBJECT: Final = tag("object")


@dataclass(frozen=True)
class FilledInput:
    """The input of a step, with its paths replaced."""

    said: JsonObject | str
    """An object of fields, or the path to one."""

    def __call__(self, trigger: Trigger, prior: Prior) -> JsonObject:
        """Return the input; raise `TypeError` if its only path leads to no object."""
        return _object(self.said, _seen(trigger, prior))


@dataclass(frozen=True)
class Condition:
    """Whether a step runs: all conditions must match."""

    wanted: Filter

    def __call__(self, trigger: Trigger, prior: Prior) -> bool:
        """Return whether it runs."""
        return misfit(self.wanted, _seen(trigger, prior)) is None


@dataclass(frozen=True)
class Items:
    """The items of a step that fans out, and the input of each."""

    path: str
    said: JsonObject | str | None = None
    """The input, in which `item` is the item; None: the item is the input."""

    def __call__(self, trigger: Trigger, prior: Prior) -> Sequence[Any]:
        """Return the items, or their inputs; `TypeError`: a path leads to no list or no object."""
        seen = _seen(trigger, prior)
        items = _found(self.path, seen)
        if not isinstance(items, list):  # guard: mistyped-path-not-empty
            raise TypeError(f"{self.path}: {shown(items)} is not a list")
        if self.said is None:
            return items
        return [_object(self.said, {**seen, "item": item}) for item in items]


def is_path(said: object) -> TypeGuard[str]:
    """Return whether a value is a path."""
    return isinstance(said, str) and _PATH.fullmatch(said) is not None


def condition_of(when: Mapping[str, object]) -> Condition:
    """Return the condition that is spelled as a filter over paths, or raise `ValueError`."""
    return Condition(filter_of({path: conditions_of(each) for path, each in when.items()}))


def paths_in(said: object) -> Sequence[tuple[str, str]]:
    """Return every path of an input, and where in it that is; `ValueError`: it is no input."""
    if not isinstance(said, dict):
        if not is_path(said):
            raise ValueError(f"write an object of fields, or one path, not {shown(said)}")
        return [("", said)]
    paths = [one for key, each in said.items() for one in _paths(each, key, depth=1)]
    if len(paths) > PATHS_MAX:  # guard: input-repeats-bounded
        raise ValueError(f"{len(paths):,} paths, the limit is {PATHS_MAX}")
    return paths


def _paths(said: object, place: str, *, depth: int) -> Iterator[tuple[str, str]]:
    if depth > DEPTH_MAX:  # guard: input-depth-bounded
        raise ValueError(f"more than {DEPTH_MAX} objects and lists within each other")
    if is_path(said):
        yield place, said
    for key, each in _parts(said):
        yield from _paths(each, f"{place}.{key}", depth=depth + 1)


def _parts(said: object) -> Sequence[tuple[object, object]]:
    match said:
        case dict() if not _is_static(said):
            return list(said.items())
        case list():
            return list(enumerate(said))
        case _:
            return ()


def _is_static(said: Mapping[str, object]) -> bool:
    return said.keys() == {STATIC}


def _seen(trigger: Trigger, prior: Prior) -> JsonObject:
    return {"trigger": trigger.payload, "prior": prior}


def _object(said: JsonObject | str, seen: JsonObject) -> JsonObject:
    if isinstance(said, dict):
        return {key: _filled(each, seen) for key, each in said.items()}
    found = _found(said, seen)
    if not isinstance(found, dict):
        raise TypeError(f"{said}: {shown(found)} is not an object")
    return found


def _filled(said: object, seen: JsonObject) -> object:
    if is_path(said):
        return _found(said, seen)
    match said:
        case dict() if _is_static(said):
            return said[STATIC]  # guard: static-input-not-looked-up
        case dict():
            return {key: _filled(each, seen) for key, each in said.items()}
        case list():
            return [_filled(each, seen) for each in said]
        case _:
            return said


def _found(path: str, seen: JsonObject) -> object:
    found = value_at(seen, path)
    return None if found is ABSENT else found


class RetryDefinition(Strict):
    """The policy `retrying(…)`."""

    attempts: int = DEFAULT_RETRY.attempts_max
    backoff_s: float = DEFAULT_RETRY.backoff_s
    skip_on: Listed[str] = ()
    then: RemedyName = "abort"

    @model_validator(mode="after")
    def _can_be_kept(self) -> RetryDefinition:
        try:
            self.made()
        except ValueError as error:
            raise ValueError(str(error).removeprefix("retrying(): ")) from error
        return self

    def made(self) -> Policy:
        """Return the policy, or raise `ValueError`."""
        return retrying(**self.model_dump())


class FailureDefinition(Strict):
    """A policy with options."""

    retry: RetryDefinition


class CompensationDefinition(Strict):
    """The compensation of a step."""

    actor: str
    expectation: str


def _kind_of_failure(said: object) -> str:
    return _OBJECT if isinstance(said, dict | FailureDefinition) else _WORD


class StepDefinition(Strict):
    """One step: the options of `Workflow.step`, by the same names."""

    actor: str = ""
    expectation: str = ""
    workflow: str = ""
    """Another workflow, instead of an actor and its expectation."""
    depends_on: Listed[str] = ()
    input: object = None
    """An object of fields, or the path to one."""
    when: dict[str, object] = Field(default_factory=dict, max_length=CONDITIONS_MAX)
    """Path → conditions, as in filters."""
    for_each: str = ""
    """The path to a list."""
    on_failure: Annotated[
        Annotated[RemedyName, Tag(_WORD)] | Annotated[FailureDefinition, Tag(_OBJECT)],
        Discriminator(_kind_of_failure),
    ] = "abort"
    timeout_s: float = 0.0
    requires_approval: bool = False
    approvers: Listed[str] = ()
    quorum: int = 1
    requester_may_approve: bool = True
    approval_expires_s: float = 0.0
    compensate: CompensationDefinition | None = None
    reuse_s: float = 0.0

    @field_validator("approvers")
    @classmethod
    def _names_somebody(cls, approvers: tuple[str, ...]) -> tuple[str, ...]:
        if not approvers:
            raise ValueError(NAMES_NOBODY)
        return approvers

    @field_validator("input")
    @classmethod
    def _has_bounds(cls, input: object) -> object:  # noqa: A002 - what it is
        if isinstance(input, dict) and len(input) > FIELDS_MAX:
            raise ValueError(f"{len(input):,} fields, the limit is {FIELDS_MAX}")
        if input is not None:
            paths_in(input)
        return input

    @field_validator("when")
    @classmethod
    def _can_be_asked(cls, when: dict[str, object]) -> dict[str, object]:
        for path, each in when.items():
            if not is_path(path):
                raise wrong(path, "write a path such as trigger.amount or prior.screen.hit")
            try:
                condition_of({path: each})
            except ValueError as error:
                raise wrong(path, str(error).removeprefix(f"filter: {path!r}: ")) from error
        return {path: dict(sorted(operators_of(each).items())) for path, each in when.items()}

    @field_validator("for_each")
    @classmethod
    def _is_one_path(cls, for_each: str) -> str:
        if not is_path(for_each):
            raise ValueError(f"write a path such as prior.rate.owners, not {for_each!r}")
        return for_each

    @model_validator(mode="after")
    def _runs_one_thing(self) -> StepDefinition:
        if bool(self.workflow) == bool(self.actor):
            raise ValueError("write either actor, with an expectation, or workflow")
        if self.workflow and self.expectation:
            raise wrong("expectation", "it is for actors; leave it out")
        if self.actor and not self.expectation:
            raise wrong("expectation", "write it; there is no default")
        return self

    @model_validator(mode="after")
    def _has_an_item(self) -> StepDefinition:
        for place, path in self.paths():
            may_have = bool(self.for_each) and place.startswith("input")
            if path.partition(".")[0] == "item" and not may_have:
                problem = f"there is no item here; if it is a text, write {{value: {path}}}"
                raise wrong(place, problem)
        return self

    def paths(self) -> Iterator[tuple[str, str]]:
        """Yield every path of the step, and where that is."""
        yield from ((f"when.{path}", path) for path in self.when)
        if self.for_each:
            yield "for_each", self.for_each
        if self.input is not None:
            yield from (
                (f"input.{place}" if place else "input", path)
                for place, path in paths_in(self.input)
            )

    def options(self) -> StepOptions:
        """Return the arguments of `Workflow.step`."""
        options: StepOptions = {
            "depends_on": self.depends_on,
            "on_failure": (
                self.on_failure.retry.made()
                if isinstance(self.on_failure, FailureDefinition)
                else self.on_failure
            ),
            "timeout_s": self.timeout_s,
            "requires_approval": self.requires_approval,
            "approval_expires_s": self.approval_expires_s,
            "reuse_s": self.reuse_s,
        }
        if self.approvers:
            options["approvers"] = self.approvers
        if self.quorum != 1:
            options["quorum"] = self.quorum
        if not self.requester_may_approve:
            options["requester_may_approve"] = False
        if self.when:
            options["when"] = condition_of(self.when)
        if self.compensate is not None:
            options["compensate"] = self.compensate.actor, self.compensate.expectation
        return {**options, **self._given()}

    def _given(self) -> StepOptions:
        said: Any = self.input
        if self.for_each:
            return {"for_each": Items(self.for_each, said)}
        return {} if said is None else {"input": FilledInput(said)}


class WorkflowDefinition(Strict):
    """One workflow: the options of `Workflow`, by the same names, and its steps."""

    name: str
    on: Listed[SourceDefinition] = Field(
        default=(SourceDefinition(manual=True),), min_length=1, max_length=SOURCES_MAX
    )
    """One trigger or a list of them."""
    subject_key: str = ""
    debounce_s: float = 0.0
    timeout_s: float = 0.0
    overlap: Overlap = "allow"
    dedupe: DedupeDefinition = DedupeDefinition()
    budget_usd: Annotated[Decimal, Field(strict=False)] = NO_USD
    """Dollars, as `0.5` or `"0.50"`."""
    steps: dict[str, StepDefinition] = Field(min_length=1, max_length=STEPS_MAX)
    """By name, in this order. In the canonical form a list, each with its name as `id`."""

    @field_validator("name")
    @classmethod
    def _names_a_workflow(cls, name: str) -> str:
        check_name(name, of="a workflow")
        return name

    @field_validator("on", mode="before")
    @classmethod
    def _is_listed(cls, on: object) -> object:
        return [on] if isinstance(on, dict) else on

    @field_validator("steps", mode="before")
    @classmethod
    def _are_by_name(cls, steps: object) -> object:
        return _named(steps) if isinstance(steps, list) else steps

    @field_validator("steps")
    @classmethod
    def _are_named(cls, steps: dict[str, StepDefinition]) -> dict[str, StepDefinition]:
        for name in steps:
            check_name(name, of="a step")
        return steps

    @field_serializer("steps", mode="wrap")
    def _in_order(
        self, steps: dict[str, StepDefinition], handler: SerializerFunctionWrapHandler
    ) -> list[dict[str, object]]:
        # JSON's objects have no order; that of the steps is the one in which they begin.
        # guard: defined-steps-keep-order
        return [{"id": name, **step} for name, step in handler(steps).items()]

    @model_validator(mode="after")
    def _hangs_together(self) -> WorkflowDefinition:
        for name, step in self.steps.items():
            for each in step.depends_on:
                if each not in self.steps:
                    raise wrong(f"steps.{name}.depends_on", _unknown(each, self.steps))
        graph = {name: step.depends_on for name, step in self.steps.items()}
        for name, step in self.steps.items():
            for place, path in step.paths():
                if problem := self._problem_of_path(path, name, graph):
                    raise wrong(f"steps.{name}.{place}", problem)
        return self

    def _problem_of_path(self, path: str, name: str, graph: Graph) -> str | None:
        if problem := problem_of_path(path):
            return problem
        root, _, rest = path.partition(".")
        if root != "prior":
            return None
        step, _, within = rest.partition(".")
        if step not in self.steps:
            return _unknown(step, self.steps)
        if step not in ancestors(graph, name):  # guard: defined-step-told-dependencies
            return f"it does not depend on {step!r}; name that in depends_on"
        if within and self.steps[step].for_each:
            return f"step {step!r} brings a list; write prior.{step}"
        return None


def _named(steps: Sequence[object]) -> Mapping[str, object]:
    named: dict[str, object] = {}
    for index, step in enumerate(steps):
        id_ = step.get("id") if isinstance(step, dict) else None
        if not isinstance(step, dict) or not isinstance(id_, str):
            raise wrong(str(index), f"write an object with an id, not {shown(step)}")
        if id_ in named:
            raise wrong(str(index), f"{id_!r} is said twice")
        named[id_] = {key: value for key, value in step.items() if key != "id"}
    return named


def _unknown(step: str, steps: Mapping[str, object]) -> str:
    return f"there is no step {step!r}; there are {', '.join(steps)}"


def workflow_of(data: JsonObject) -> WorkflowDefinition:
    """Return the workflow in `data`, whose actors are not checked; or raise `BadDefinition`."""
    definition = parsed(WorkflowDefinition, data)
    to_workflow(definition)
    return definition


def to_workflow(definition: WorkflowDefinition, *, revision: int = 0) -> Workflow:
    """Return the workflow, equal for equal definitions; or raise `BadDefinition`."""
    try:
        made = Workflow(
            definition.name,
            on=[source.made() for source in definition.on],
            subject_key=definition.subject_key,
            debounce_s=definition.debounce_s,
            timeout_s=definition.timeout_s,
            overlap=definition.overlap,
            dedupe=definition.dedupe.made(),
            budget_usd=definition.budget_usd,
            revision=revision,
        )
        for name, step in definition.steps.items():
            if step.workflow:
                made.sub(name, step.workflow, **step.options())
            else:
                made.step(name, step.actor, step.expectation, **step.options())
        # Whether its triggers and options work, only making its starter can show.
        starters_of({made.name: made}, {})
    except BadWorkflow as error:
        place = ("steps", error.step) if error.step else ()
        raise BadDefinition(".".join((*place, error.field)), error.problem) from error
    return made
