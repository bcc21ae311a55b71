"""Definitions: actors as data, in JSON, YAML or TOML, instead of Python.

definition = agent_of(read(text, "yaml"))
actor = to_actor(definition, app)
"""

from engine.definitions.actors import to_actor
from engine.definitions.agent import AgentDefinition, agent_of, canonical
from engine.definitions.comparing import difference
from engine.definitions.texts import Format, format_of, read

__all__ = [
    "AgentDefinition",
    "Format",
    "agent_of",
    "canonical",
    "difference",
    "format_of",
    "read",
    "to_actor",
]
