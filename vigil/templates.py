"""Templates: strategies that are made from a configuration instead of being written.

In Python a template is a function: `actor.expect("…", observe_classify_converge({…}), on=…)`. Add
your own with `App(templates={"name": factory})`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.templates import BUILT_IN, Template
    from engine.templates.agentic import agentic_task
    from engine.templates.classify import observe_classify_converge
    from engine.templates.dispatch import dispatch
    from engine.templates.synthesize import observe_synthesize_converge

__all__ = [
    "BUILT_IN",
    "Template",
    "agentic_task",
    "dispatch",
    "observe_classify_converge",
    "observe_synthesize_converge",
]

_HOMES: Final = {
    "engine.templates": "BUILT_IN Template",
    "engine.templates.agentic": "agentic_task",
    "engine.templates.classify": "observe_classify_converge",
    "engine.templates.dispatch": "dispatch",
    "engine.templates.synthesize": "observe_synthesize_converge",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
