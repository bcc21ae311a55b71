"""Templates: strategies that are made from a configuration instead of being written.

    observe_classify_converge      gather, and let rules say what it is
    observe_synthesize_converge    gather, and let a synthesizer say what it is
    dispatch                       gather entities, and publish an event for each

The first two leave a finding, and may propose outputs: see `engine.templates.proposing`.
A user adds others by `App(templates={"name": factory})`. In Python a template is a function of its
configuration: `actor.expect("…", observe_classify_converge({…}), on=…)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from engine.gathering import check_name
from engine.strategy import Strategy
from engine.templates.classify import ObserveClassifyConverge, observe_classify_converge
from engine.templates.dispatch import Dispatch, dispatch
from engine.templates.synthesize import ObserveSynthesizeConverge, observe_synthesize_converge
from streams.json import JsonObject

Template: TypeAlias = Callable[[JsonObject], Strategy[Any]]
"""Makes a strategy of a configuration. It raises a `ValueError` about one that cannot work."""

BUILT_IN: Final[Mapping[str, Template]] = {
    "observe_classify_converge": observe_classify_converge,
    "observe_synthesize_converge": observe_synthesize_converge,
    "dispatch": dispatch,
}
"""Templates that every app has."""

__all__ = [
    "BUILT_IN",
    "Template",
    "adapters_of",
    "asks_synthesizer",
    "checked_templates",
    "dispatch",
    "gatherer_of",
    "observe_classify_converge",
    "observe_synthesize_converge",
]


def checked_templates(templates: object) -> Mapping[str, Template]:
    """Return what `App(templates=…)` was given, and those that every app has.

    Raises:
        TypeError, ValueError: something is no template, or its name is taken; which, and why.
    """
    if not isinstance(templates, Mapping):
        raise TypeError(f"{templates!r} is not a dict of name to template")
    for name, template in templates.items():
        check_name(name, of="a template")
        if name in BUILT_IN:
            raise ValueError(f"{name!r}: every app has a template of that name")
        if not callable(template):
            raise TypeError(f"{name!r}: {template!r} is no function of a configuration")
    return {**BUILT_IN, **templates}


def gatherer_of(strategy: object) -> str | None:
    """Return the gatherer that a strategy made of one of our templates asks, or None."""
    match strategy:
        case ObserveClassifyConverge() | ObserveSynthesizeConverge() | Dispatch():
            return strategy.gatherer
        case _:
            return None


def asks_synthesizer(strategy: object) -> bool:
    """Return whether a strategy made of one of our templates is nothing without a synthesizer."""
    return isinstance(strategy, ObserveSynthesizeConverge)


def adapters_of(strategy: object) -> Sequence[str]:
    """Return the adapters of what a strategy made of one of our templates proposes, in order."""
    match strategy:
        case ObserveClassifyConverge() | ObserveSynthesizeConverge():
            return [each.adapter for each in strategy.config.outputs]
        case _:
            return ()
