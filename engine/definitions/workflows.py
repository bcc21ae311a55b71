"""Definitions → workflows: what is defined as data, declared as if it were code. Pure."""

from __future__ import annotations

from engine.definitions.workflow import WorkflowDefinition
from engine.errors import BadDefinition, BadWorkflow
from engine.strict import parsed
from engine.workflows.starter import starters_of
from engine.workflows.workflow import Workflow
from streams.json import JsonObject


def workflow_of(data: JsonObject) -> WorkflowDefinition:
    """Return the workflow that `data` defines. Whether an app has its actors is seen there.

    Raises:
        BadDefinition: it defines none that could work in any app; the error names the first field
            that is wrong.
    """
    definition = parsed(WorkflowDefinition, data)
    to_workflow(definition)
    return definition


def to_workflow(definition: WorkflowDefinition, *, revision: int = 0) -> Workflow:
    """Return the workflow that is defined. Equal definitions make equal ones.

    Args:
        definition: which.
        revision: of the definition, where it was applied; its instances keep it.

    Raises:
        BadDefinition: something cannot work; the error names the field.
    """
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
        # Only whoever begins it can tell whether what it says of its beginning works.
        starters_of({made.name: made}, {})
    except BadWorkflow as error:
        place = ("steps", error.step) if error.step else ()
        raise BadDefinition(".".join((*place, error.field)), error.problem) from error
    return made
