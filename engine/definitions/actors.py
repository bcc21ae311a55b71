"""Definitions → actors: what is defined as data, declared as if it were code. Pure.

Whatever a definition names (a template, a strategy, a gatherer) is registered in the app. Nothing
is imported, and nothing runs that the app does not have.
"""

from __future__ import annotations

from typing import Any

from engine.actor import Actor
from engine.app import App
from engine.definitions.agent import AgentDefinition, ExpectationDefinition, StrategyDefinition
from engine.errors import BadDefinition, DeclarationError
from engine.strategy import Strategy
from engine.templates import BUILT_IN

_AS_THEY_ARE = (
    "subject_key", "cooldown_s", "debounce_s", "max_wait_s", "sample", "concurrency_key",
    "concurrency", "priority", "start_within_s", "durability", "loop_detection", "recovery",
    "attempts_max", "finding_ttl_s",
)  # fmt: skip
"""Options whose values are the same in a definition and in code."""


def to_actor(definition: AgentDefinition, app: App, *, revision: int = 0) -> Actor:
    """Return the actor that is defined.

    Args:
        definition: which.
        app: has what the definition names; it need not have the actor.
        revision: of the definition, where it was applied; its episodes keep it.

    Raises:
        BadDefinition: something cannot work, or the app does not have it; the error names the field
            and what to write.
    """
    try:
        actor = Actor(
            definition.id,
            domain=definition.domain,
            spec_rev=definition.spec_rev,
            revision=revision,
            max_concurrent_episodes=definition.max_concurrent_episodes,
            max_concurrent_cluster=definition.max_concurrent_cluster,
            overflow=definition.overflow,
            queue_max=definition.queue_max,
            stacks=definition.stacks,
        )
        for name, each in definition.expectations.items():
            strategy = _strategy(each.strategy, app, at=f"expectations.{name}.strategy")
            actor.expect(name, strategy, **_options(each))
        app.check(actor)
    except DeclarationError as error:
        raise BadDefinition(_path(error), error.problem) from error
    return actor


def _path(error: DeclarationError) -> str:
    place = ("expectations", error.expectation) if error.expectation else ()
    return ".".join((*place, error.field))


def _options(each: ExpectationDefinition) -> dict[str, Any]:
    """Return what `Actor.expect` is to be called with."""
    escalation = {
        class_: [step.made() for step in steps] for class_, steps in each.escalation.items()
    }
    return {
        **{option: getattr(each, option) for option in _AS_THEY_ARE},
        "on": [source.made() for source in each.on],
        "breaker": None if each.breaker is None else each.breaker.made(),
        "dedupe": each.dedupe.made(),
        "dry_run": None if each.dry_run is None else each.dry_run.made(),
        "budget": each.budget.made(),
        "escalation": escalation,
    }


def _strategy(definition: StrategyDefinition, app: App, *, at: str) -> Strategy[Any]:
    if definition.ref:
        found = app.strategies.get(definition.ref)
        if found is None:
            raise _unknown(f"{at}.ref", definition.ref, app.strategies, "App(strategies=…)")
        return found
    templates = {**BUILT_IN, **app.templates}
    template = templates.get(definition.template)
    if template is None:
        raise _unknown(f"{at}.template", definition.template, templates, "the app")
    try:
        return template(definition.config)
    except BadDefinition as error:
        raise error.within(f"{at}.config") from error
    # What a template of a user's does not check, it stumbles over.
    except (ValueError, TypeError, LookupError) as error:
        raise BadDefinition(f"{at}.config", f"{type(error).__name__}: {error}") from error


def _unknown(path: str, name: str, known: Any, where: str) -> BadDefinition:  # noqa: ANN401
    has = ", ".join(sorted(known)) or "nothing"
    return BadDefinition(path, f"there is no {name!r}; {where} has {has}")
