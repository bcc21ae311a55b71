"""What a step runs with: asked of the functions that the code has for it. Pure if they are.

They get recorded data only, each time a copy of their own: the trigger of the instance, and the
results of the steps that theirs depends on, by whatever way. Of others it would depend on chance
which are done. The one place among the rules that expects anything of what it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from engine.errors import BadInput, Unencodable
from engine.state import encode
from engine.workflows.graph import ancestors
from engine.workflows.instance import Instance
from engine.workflows.step import Prior, Step
from streams.triggers import Trigger

WIDTH_MAX: Final = 1_000
"""Most items that one step may run for."""

INPUTS_BYTES_MAX: Final = 512 * 1024
"""Most that all inputs of one step may come to, as JSON: they are written in one commit."""

DETAIL_CHARS_MAX: Final = 4_000
"""Most of an error's text that the journal keeps."""

_trigger: msgspec.json.Decoder[Trigger] = msgspec.json.Decoder(Trigger)


def asked_for(instance: Instance, step: Step) -> tuple[msgspec.Raw, ...] | None:
    """Return what `step` runs with, one input for each item; None: its `when` says it does not run.

    Raises:
        BadInput: a function raised, or returned something else than it has to.
    """
    prior = prior_of(instance, step.name)
    trigger = instance.begun.trigger
    if step.when is not None and not _says_yes(_call("when", step.when, trigger, prior)):
        return None
    if step.for_each is not None:
        return _items(_call("for_each", step.for_each, trigger, prior))
    if step.input is not None:
        return _encoded([_object("input", _call("input", step.input, trigger, prior))])
    direct = {each: prior[each] for each in instance.specs[step.name].depends_on}
    return _encoded([{"trigger": trigger.payload, "prior": direct}])


def prior_of(instance: Instance, step: str) -> Prior:
    """Return the results of all steps that `step` depends on."""
    graph = {name: spec.depends_on for name, spec in instance.specs.items()}
    return {
        name: instance.steps[name].result(instance.specs[name])
        for name in sorted(ancestors(graph, step))
    }


def _call(name: str, function: Callable[[Trigger, Prior], object], *given: Any) -> object:  # noqa: ANN401 - trigger and prior
    trigger, prior = given
    try:
        # Copies, so that nothing that a function does to them is seen by anyone else.
        copied = msgspec.json.decode(msgspec.json.encode(prior))
        return function(_trigger.decode(msgspec.json.encode(trigger)), copied)
    except (Exception, SystemExit) as error:
        told = f"{name}: {type(error).__name__}: {error}"[:DETAIL_CHARS_MAX]
        raise BadInput(told.encode(errors="replace").decode()) from error


def _says_yes(said: object) -> bool:
    if not isinstance(said, bool):
        raise BadInput(f"when: returned {_name(said)}, not True or False")
    return said


def _items(listed: object) -> tuple[msgspec.Raw, ...]:
    if not isinstance(listed, list | tuple):
        raise BadInput(f"for_each: returned {_name(listed)}, not a list")
    if len(listed) > WIDTH_MAX:
        raise BadInput(f"for_each: {len(listed):,} items, the limit is {WIDTH_MAX:,}")
    return _encoded([each if isinstance(each, dict) else {"item": each} for each in listed])


def _object(name: str, said: object) -> Mapping[str, object]:
    if not isinstance(said, dict):
        raise BadInput(f"{name}: returned {_name(said)}, not a dict")
    return said


def _encoded(objects: list[Mapping[str, object]]) -> tuple[msgspec.Raw, ...]:
    try:
        inputs = tuple(encode(each, what="input") for each in objects)
    except Unencodable as error:
        raise BadInput(str(error)) from error
    size_bytes = sum(len(bytes(each)) for each in inputs)
    if size_bytes > INPUTS_BYTES_MAX:
        raise BadInput(
            f"inputs of {size_bytes:,} bytes, the limit is {INPUTS_BYTES_MAX:,};"
            " keep data elsewhere and hand on references"
        )
    return inputs


def _name(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
