"""Templates: strategies made from a configuration; `vigil.templates` lists them for users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.app.strategy import Template
from engine.templates.agentic import agentic_task
from engine.templates.classify import observe_classify_converge
from engine.templates.dispatch import dispatch
from engine.templates.synthesize import observe_synthesize_converge

BUILT_IN: Final[Mapping[str, Template]] = {
    "observe_classify_converge": observe_classify_converge,
    "observe_synthesize_converge": observe_synthesize_converge,
    "dispatch": dispatch,
    "agentic_task": agentic_task,
}
"""Templates that every app has."""

__all__ = [
    "BUILT_IN",
    "Template",
    "agentic_task",
    "dispatch",
    "observe_classify_converge",
    "observe_synthesize_converge",
]
