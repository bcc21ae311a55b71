"""`WorkflowDefinition`: a workflow with its steps as data. Pure. The steps are in `steps.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_validator,
)

from engine.app.tools import check_name
from engine.app.triggers import SOURCES_MAX
from engine.app.workflow import STEPS_MAX, Graph, Overlap, Workflow, ancestors
from engine.app.workflow_plan import starters_of
from engine.definitions.agent import DedupeDefinition, SourceDefinition
from engine.definitions.steps import StepDefinition
from engine.errors import BadDefinition, BadWorkflow
from engine.validation import Listed, Strict, parsed, problem_of_path, shown, wrong
from streams.json import JsonObject


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
        if step not in ancestors(graph, name):
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
