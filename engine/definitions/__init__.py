"""Definitions: actors and workflows as data, in JSON, YAML or TOML, instead of Python.

data = read(text, "yaml")
actor = to_actor(agent_of(data), app)
workflow = to_workflow(workflow_of(data))
"""

from engine.definitions.agent import AgentDefinition, agent_of, canonical, to_actor
from engine.definitions.definition import difference
from engine.definitions.text import Format, format_of, kind_of, read
from engine.definitions.workflow import WorkflowDefinition, to_workflow, workflow_of

__all__ = [
    "AgentDefinition",
    "Format",
    "WorkflowDefinition",
    "agent_of",
    "canonical",
    "difference",
    "format_of",
    "kind_of",
    "read",
    "to_actor",
    "to_workflow",
    "workflow_of",
]
