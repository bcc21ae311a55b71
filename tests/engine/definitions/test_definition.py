"""The life of a definition: who may change what holds."""

from __future__ import annotations

import msgspec
import pytest

from engine.definitions.definition import UNDEFINED, Apply, Definition, Disable, decide, fold
from engine.errors import Refused
from streams.json import raw
from streams.model.events.definitions import DefinitionApplied, DefinitionDisabled, DefinitionKind

AGENT = DefinitionKind.AGENT
BODY, OTHER = raw({"id": "m"}), raw({"id": "m", "domain": "d"})


def apply(body=BODY, *, seen=None):
    return Apply(kind=AGENT, id="m", body=body, by="ann", reason="why", seen=seen)


def applied(revision=1, body=BODY):
    return DefinitionApplied(
        kind=AGENT, id="m", revision=revision, body=body, by="ann", reason="why"
    )


def disable(*, seen=None):
    return Disable(kind=AGENT, id="m", by="ann", seen=seen)


def disabled(revision=1):
    return DefinitionDisabled(kind=AGENT, id="m", revision=revision, by="ann")


def after(*past):
    return fold(past)


def test_the_first_is_revision_1():
    assert after() == UNDEFINED
    assert decide(after(), apply()) == applied(1)


def test_each_change_is_one_revision_more():
    assert decide(after(applied(1)), apply(OTHER)) == applied(2, OTHER)
    assert after(applied(1), applied(2, OTHER)) == Definition(revision=2, body=OTHER, holds=True)


@pytest.mark.parametrize("seen", [None, 0, 1])
def test_what_holds_already_is_not_applied_again(seen):
    """Not even by whoever repeats a request whose answer was lost."""
    assert decide(after(applied(1)), apply(seen=seen)) is None


def test_what_is_disabled_holds_no_longer_and_keeps_its_revision():
    assert decide(after(applied(1)), disable()) == disabled(1)
    assert after(applied(1), disabled(1)) == Definition(revision=1, body=BODY, holds=False)
    assert decide(after(applied(1), disabled(1)), disable()) is None


def test_what_is_disabled_is_applied_anew():
    assert decide(after(applied(1), disabled(1)), apply()) == applied(2)


def test_what_nobody_has_defined_cannot_be_disabled():
    with pytest.raises(Refused, match="there is no agent 'm'"):
        decide(after(), disable())


@pytest.mark.parametrize("command", [apply(OTHER, seen=1), disable(seen=1)])
def test_nothing_happens_to_what_has_changed_since_it_was_looked_at(command):
    with pytest.raises(Refused, match="at revision 2 by now, not 1"):
        decide(after(applied(1), applied(2)), command)
    assert decide(after(applied(1)), command) is not None


def test_the_events_are_on_the_wire_as_they_are_named():
    assert msgspec.json.decode(msgspec.json.encode(applied())) == {
        "type": "definition.applied@1",
        "kind": "agent",
        "id": "m",
        "revision": 1,
        "body": {"id": "m"},
        "by": "ann",
        "reason": "why",
    }
    assert msgspec.json.decode(msgspec.json.encode(disabled()))["type"] == "definition.disabled@1"
