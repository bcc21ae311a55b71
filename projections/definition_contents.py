"""What the rows show of a definition's text beside all of it. Pure.

Whoever applies a definition has checked it, so what cannot be read here was written by another
version: then these columns stay empty, and the whole text is in its own all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from streams.json import NOTHING, UNDECODABLE

T = TypeVar("T", "AgentContents", "WorkflowContents")


class AgentContents(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's definition says. What is as by default is left out of definitions."""

    domain: str = "default"
    spec_rev: str = ""
    expectations: dict[str, msgspec.Raw] = {}

    @property
    def expectation_ids(self) -> tuple[str, ...]:
        """The names of its expectations, in order."""
        return tuple(sorted(self.expectations))


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class WorkflowContents(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow's definition says."""

    on: msgspec.Raw = NOTHING
    subject_key: str = ""
    steps: Sequence[_Step] = ()

    @property
    def step_ids(self) -> tuple[str, ...]:
        """The names of its steps, in the order of their declaration."""
        return tuple(step.id for step in self.steps)


def agent_contents(body: msgspec.Raw) -> AgentContents:
    """Return what the definition of an agent says, as far as this version can read it."""
    return _read(body, _agent_decoder, otherwise=AgentContents())


def workflow_contents(body: msgspec.Raw) -> WorkflowContents:
    """Return what the definition of a workflow says, as far as this version can read it."""
    return _read(body, _workflow_decoder, otherwise=WorkflowContents())


def _read(body: msgspec.Raw, decoder: msgspec.json.Decoder[T], *, otherwise: T) -> T:
    try:
        return decoder.decode(body)
    except UNDECODABLE:
        return otherwise


_agent_decoder: Final = msgspec.json.Decoder(AgentContents)
_workflow_decoder: Final = msgspec.json.Decoder(WorkflowContents)
