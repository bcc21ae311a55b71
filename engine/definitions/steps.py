"""StepDefinition: a step of a workflow, as data. Pure.

It has every option of `Workflow.step`, by the same names; what is a function in code is an input
map, a condition or a path here: see `engine.definitions.inputs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from engine.actions import NAMES_NOBODY
from engine.conditions import operators_of
from engine.definitions.inputs import FilledInput, Items, condition_of, is_path, paths_in
from engine.strict import Listed, Strict, tag, wrong
from engine.workflows.failure import Policy, RemedyName, retrying
from engine.workflows.step import StepOptions

FIELDS_MAX: Final = 100
"""Most fields of one input."""

CONDITIONS_MAX: Final = 100
"""Most conditions of one step."""

DEFAULT_RETRY: Final = retrying()


class RetryDefinition(Strict):
    """How often a step is tried again, and what becomes of it then."""

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
        """Return the policy.

        Raises:
            ValueError: a value is impossible.
        """
        return retrying(**self.model_dump())


class FailureDefinition(Strict):
    """What is done about a failure where it takes more than a word to say."""

    retry: RetryDefinition


class CompensationDefinition(Strict):
    """What undoes a step."""

    actor: str
    expectation: str


_WORD: Final = tag("word")
_OBJECT: Final = tag("object")


def _kind_of_failure(said: object) -> str:
    return _OBJECT if isinstance(said, dict | FailureDefinition) else _WORD


class StepDefinition(Strict):
    """One step: what it runs, and the options of `Workflow.step`, by the same names."""

    actor: str = ""
    expectation: str = ""
    workflow: str = ""
    """In the place of an actor and its expectation: another workflow."""
    depends_on: Listed[str] = ()
    input: object = None
    """An object of fields, or the path to a whole one."""
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
        """Yield every path of the step, and where that stands."""
        yield from ((f"when.{path}", path) for path in self.when)
        if self.for_each:
            yield "for_each", self.for_each
        if self.input is not None:
            yield from (
                (f"input.{place}" if place else "input", path)
                for place, path in paths_in(self.input)
            )

    def options(self) -> StepOptions:
        """Return what `Workflow.step` is to be called with."""
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
        if self.when:
            options["when"] = condition_of(self.when)
        if self.compensate is not None:
            options["compensate"] = self.compensate.actor, self.compensate.expectation
        return {**options, **self._given()}

    def _given(self) -> StepOptions:
        """Return what says what the step runs with."""
        said: Any = self.input
        if self.for_each:
            return {"for_each": Items(self.for_each, said)}
        return {} if said is None else {"input": FilledInput(said)}
