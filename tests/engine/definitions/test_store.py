"""Definitions are changed once, whoever else is at it, and nodes hear of what holds in the end."""

from __future__ import annotations

import dataclasses

import pytest

from engine.definitions.store import (
    BODY_BYTES_MAX,
    TRIES_MAX,
    apply_definition,
    body_of,
    definition_history,
    disable_definition,
    read_definition,
)
from engine.errors import BadRequest, Refused
from engine.runtime import store
from engine.runtime.store import Contended
from engine.validation import BY_CHARS_MAX, REASON_CHARS_MAX
from streams.clock import SystemClock
from streams.errors import BadName, RevisionConflict, Unavailable
from streams.json import NOTHING, raw
from streams.memory import memory_ports
from streams.model.definitions import (
    RegisteredDefinition,
    decode_registered,
    definition_id,
    definition_key,
    encode_registered,
)
from streams.model.events import DefinitionApplied, DefinitionDisabled, DefinitionKind
from streams.subjects import Stack

AGENT, WORKFLOW = DefinitionKind.AGENT, DefinitionKind.WORKFLOW
ID = "disk"
ONE, TWO, THREE = (raw({"id": ID, "spec_rev": f"v{number}"}) for number in (1, 2, 3))


async def apply(ports, body=ONE, kind=AGENT, *, by="ada", **options):
    return await apply_definition(ports, kind, ID, body, by=by, **options)


async def disable(ports, kind=AGENT, *, by="bob", **options):
    return await disable_definition(ports, kind, ID, by=by, **options)


async def told(ports, kind=AGENT) -> RegisteredDefinition | None:
    """Return what nodes are told."""
    entry = await ports.registry.get(definition_key(kind, ID))
    return None if entry is None else decode_registered(entry.value)


async def changes(ports, kind=AGENT):
    return [(type(each.event), each.event.revision) for each in await history(ports, kind)]


async def history(ports, kind=AGENT):
    return await definition_history(ports, kind, ID)


class Around:
    """A port before whose first call of one kind, or behind it, something else happens."""

    def __init__(self, port, call, *, before=None, behind=None, times=1):
        self._port, self._call, self._left = port, call, times
        self._before, self._behind = before, behind

    def __getattr__(self, name):
        return self._around if name == self._call else getattr(self._port, name)

    async def _around(self, *args, **options):
        happens, self._left = self._left > 0, self._left - 1
        if happens and self._before is not None:
            await self._before()
        answer = await getattr(self._port, self._call)(*args, **options)
        if happens and self._behind is not None:
            await self._behind()
        return answer


def overtaken(ports, by, *, times=1):
    """Return ports whose reader of the log has not seen what `by` does meanwhile."""
    log = Around(ports.log, "append", before=by, times=times)
    return dataclasses.replace(ports, log=log)


class Lagging:
    """A log whose replica lacks the newest commit of whatever is read first."""

    def __init__(self, log):
        self._log, self._has_lagged = log, False

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, **how):
        records = await self._log.read(subject, **how)
        kept = len(records) if self._has_lagged else -1
        self._has_lagged = True
        return records[:kept]


def lagging(ports):
    return dataclasses.replace(ports, log=Lagging(ports.log))


def delayed(ports, call, by, *, times=1):
    """Return ports before whose `call` of the registry `by` happens."""
    return dataclasses.replace(ports, registry=Around(ports.registry, call, before=by, times=times))


# What becomes of a definition.


@pytest.mark.parametrize("kind", [AGENT, WORKFLOW])
async def test_what_is_applied_holds_and_nodes_are_told(ports, kind):
    change = await apply(ports, ONE, kind, reason="needed")
    assert change.happened
    assert (change.registered.revision, change.registered.body) == (1, ONE)
    assert await told(ports, kind) == change.registered
    assert (await read_definition(ports, kind, ID)).body == ONE


@pytest.mark.parametrize("partitions", [1, 3])
async def test_it_is_so_however_the_journal_is_spread(partitions):
    ports = memory_ports(stack=Stack("spread", partitions), clock=SystemClock())
    for kind in (AGENT, WORKFLOW):
        await apply(ports, ONE, kind)
        await apply(ports, TWO, kind)
        assert (await told(ports, kind)).body == TWO
        assert await body_of(ports, kind, ID, 1) == ONE


async def test_each_other_text_is_one_revision_more(ports):
    revisions = [(await apply(ports, body)).registered.revision for body in (ONE, TWO, ONE)]
    assert revisions == [1, 2, 3]
    assert await changes(ports) == [(DefinitionApplied, number) for number in (1, 2, 3)]


async def test_what_holds_already_is_left_as_it_is(ports):
    first = await apply(ports)
    again = await apply(ports, by="cleo")
    assert (again.happened, again.registered) == (False, first.registered)
    assert await changes(ports) == [(DefinitionApplied, 1)]


async def test_what_is_disabled_holds_no_longer_and_nodes_are_told(ports):
    await apply(ports)
    change = await disable(ports)
    assert (change.happened, change.registered.holds, change.registered.revision) == (
        True,
        False,
        1,
    )
    assert await told(ports) == change.registered
    assert not (await read_definition(ports, AGENT, ID)).holds


async def test_what_is_disabled_already_stays_so(ports):
    await apply(ports)
    first = await disable(ports)
    again = await disable(ports)
    assert (again.happened, again.registered) == (False, first.registered)


@pytest.mark.parametrize("body", [ONE, TWO])
async def test_what_was_disabled_is_applied_again_as_another_revision(ports, body):
    await apply(ports, ONE)
    await disable(ports)
    change = await apply(ports, body)
    assert (change.registered.revision, change.registered.body) == (2, body)
    assert await told(ports) == change.registered
    assert await changes(ports) == [
        (DefinitionApplied, 1),
        (DefinitionDisabled, 1),
        (DefinitionApplied, 2),
    ]


async def test_an_agent_and_a_workflow_of_one_name_are_two(ports):
    await apply(ports, ONE, AGENT)
    await apply(ports, TWO, WORKFLOW)
    await disable(ports, AGENT)
    assert not (await told(ports, AGENT)).holds
    assert (await told(ports, WORKFLOW)).body == TWO


# What is known of its past.


async def test_the_text_of_every_revision_stays_known(ports):
    for body in (ONE, TWO):
        await apply(ports, body)
    await disable(ports)
    found = [await body_of(ports, AGENT, ID, revision) for revision in range(4)]
    assert found == [None, ONE, TWO, None]
    assert await body_of(ports, WORKFLOW, ID, 1) is None


async def test_the_history_says_who_wanted_what_and_why(ports):
    await apply(ports, reason="needed")
    await disable(ports, reason="too loud")
    said = [(each.event.by, each.event.reason) for each in await history(ports)]
    assert said == [("ada", "needed"), ("bob", "too loud")]
    assert [each.record.seq for each in await history(ports)] == [1, 2]


async def test_what_nobody_has_defined_has_no_past(ports):
    assert await history(ports) == []
    assert (await read_definition(ports, AGENT, ID)).revision == 0
    assert await told(ports) is None


# Whoever else is at it.


async def test_of_two_who_apply_at_the_same_time_both_are_revisions_and_the_last_one_holds(ports):
    async def other():
        assert (await apply(ports, TWO, by="cleo")).registered.revision == 1

    change = await apply(overtaken(ports, other), ONE)
    assert (change.registered.revision, change.registered.body) == (2, ONE)
    assert await told(ports) == change.registered
    assert [each.event.by for each in await history(ports)] == ["cleo", "ada"]


async def test_two_who_apply_the_same_at_the_same_time_are_one_revision(ports):
    async def other():
        await apply(ports, ONE, by="cleo")

    change = await apply(overtaken(ports, other), ONE)
    assert (change.happened, change.registered.revision) == (False, 1)
    assert await changes(ports) == [(DefinitionApplied, 1)]


async def test_what_somebody_applies_meanwhile_is_disabled_too(ports):
    await apply(ports, ONE)

    async def other():
        await apply(ports, TWO)

    change = await disable(overtaken(ports, other))
    assert (change.registered.holds, change.registered.revision) == (False, 2)
    assert await told(ports) == change.registered


async def test_who_never_gets_a_turn_is_told_and_has_changed_nothing(ports, monkeypatch):
    monkeypatch.setattr(store, "CONFLICTS_MAX", 3)

    async def other():
        now = await read_definition(ports, AGENT, ID)
        await apply(ports, TWO if now.body == THREE else THREE, by="cleo")

    with pytest.raises(Contended, match="lost 3 races"):
        await apply(overtaken(ports, other, times=3), ONE)
    assert {each.event.by for each in await history(ports)} == {"cleo"}


async def test_who_has_seen_another_revision_than_the_one_that_holds_is_refused(ports):
    await apply(ports, ONE, seen=0)
    await apply(ports, TWO, seen=1)
    for late in (apply(ports, THREE, seen=1), disable(ports, seen=1), apply(ports, THREE, seen=0)):
        with pytest.raises(Refused, match="at revision 2 by now"):
            await late
    assert (await told(ports)).body == TWO


async def test_who_is_overtaken_has_seen_another_revision(ports):
    async def other():
        await apply(ports, TWO, by="cleo")

    with pytest.raises(Refused, match="at revision 1 by now, not 0"):
        await apply(overtaken(ports, other), ONE, seen=0)
    assert (await told(ports)).body == TWO


async def test_what_a_replica_does_not_know_of_yet_is_disabled(ports):
    await apply(ports, ONE)
    await disable(ports)
    await apply(ports, TWO)
    change = await disable(lagging(ports))
    assert (change.happened, change.registered.revision) == (True, 2)
    assert not (await told(ports)).holds


async def test_what_a_replica_takes_for_what_holds_is_applied_again(ports):
    await apply(ports, ONE)
    await apply(ports, TWO)
    change = await apply(lagging(ports), ONE)
    assert (change.happened, change.registered.revision) == (True, 3)


async def test_who_has_seen_more_than_a_replica_is_not_refused(ports):
    await apply(ports, ONE)
    await apply(ports, TWO)
    assert (await apply(lagging(ports), THREE, seen=2)).registered.revision == 3


# Whoever dies between the journal and the registry.


async def away():
    raise Unavailable("registry", detail="gone")


async def test_who_dies_before_nodes_are_told_leaves_it_to_whoever_applies_it_again(ports):
    with pytest.raises(Unavailable):
        await apply(delayed(ports, "put", away), ONE)
    assert (await changes(ports), await told(ports)) == ([(DefinitionApplied, 1)], None)
    again = await apply(ports, ONE)
    assert (again.happened, again.registered.revision) == (False, 1)
    assert await told(ports) == again.registered


async def test_who_dies_before_nodes_are_told_leaves_it_to_whoever_disables_it(ports):
    await apply(ports, ONE)
    with pytest.raises(Unavailable):
        await disable(delayed(ports, "put", away))
    assert (await told(ports)).holds
    again = await disable(ports)
    assert (again.happened, (await told(ports)).holds) == (False, False)


async def test_what_is_applied_next_is_told_though_the_one_before_never_was(ports):
    with pytest.raises(Unavailable):
        await apply(delayed(ports, "get", away), ONE)
    change = await apply(ports, TWO)
    assert (change.registered.revision, await told(ports)) == (2, change.registered)


@pytest.mark.parametrize("call", ["get", "put"])
@pytest.mark.parametrize("first", [None, THREE], ids=["the first", "another one"])
async def test_an_older_revision_never_replaces_a_newer_one(ports, call, first):
    """Whoever applied it was slow to tell, and somebody was quicker with the next."""
    if first is not None:
        await apply(ports, first)

    async def other():
        await apply(ports, TWO, by="cleo")

    slow = await apply(delayed(ports, call, other), ONE)
    newest = await read_definition(ports, AGENT, ID)
    assert (newest.body, newest.revision) == (TWO, slow.registered.revision + 1)
    assert ((await told(ports)).body, (await told(ports)).revision) == (TWO, newest.revision)


@pytest.mark.parametrize("call", ["get", "put"])
async def test_what_was_applied_never_replaces_that_it_was_disabled(ports, call):
    async def other():
        await disable(ports)

    await apply(delayed(ports, call, other), ONE)
    assert not (await told(ports)).holds


async def test_a_copy_that_this_version_cannot_read_is_replaced(ports):
    await ports.registry.put(definition_key(AGENT, ID), b'{"from": "another version"}')
    change = await apply(ports, ONE)
    assert await told(ports) == change.registered


async def test_what_is_applied_after_the_journal_was_spread_anew_is_told(ports):
    """Its commits have other sequences then, and lower ones."""
    before = RegisteredDefinition(kind=AGENT, id=ID, revision=1, seq=1_000_000, body=ONE)
    await apply(ports, ONE)
    await ports.registry.put(definition_key(AGENT, ID), encode_registered(before))
    change = await disable(ports)
    assert await told(ports) == change.registered
    change = await apply(ports, TWO)
    assert await told(ports) == change.registered


async def test_a_copy_that_is_lost_is_made_again(ports):
    first = await apply(ports, ONE)
    await ports.registry.delete(definition_key(AGENT, ID))
    assert await told(ports) is None
    await apply(ports, ONE)
    assert await told(ports) == first.registered


async def test_who_never_gets_to_tell_nodes_says_so(ports):
    async def other():
        raise RevisionConflict(definition_key(AGENT, ID), expected=0)

    with pytest.raises(Unavailable, match="others change it"):
        await apply(delayed(ports, "put", other, times=TRIES_MAX), ONE)
    assert await changes(ports) == [(DefinitionApplied, 1)]


# What cannot be asked.


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"by": ""}, "by"),
        ({"by": "x" * (BY_CHARS_MAX + 1)}, "by"),
        ({"reason": "x" * (REASON_CHARS_MAX + 1)}, "reason"),
        ({"body": raw({"id": "x" * BODY_BYTES_MAX})}, "definition"),
    ],
)
async def test_what_is_impossible_is_refused_and_the_field_is_named(ports, options, field):
    with pytest.raises(BadRequest) as refused:
        await apply(ports, **options)
    assert refused.value.field == field
    assert await changes(ports) == []


async def test_who_disables_something_says_who_they_are(ports):
    await apply(ports)
    with pytest.raises(BadRequest):
        await disable(ports, by="")
    assert (await told(ports)).holds


async def test_what_never_was_cannot_be_disabled(ports):
    with pytest.raises(Refused, match="there is no agent 'disk'"):
        await disable(ports)
    assert await told(ports) is None


@pytest.mark.parametrize("id_", ["", "a b", "x" * 200])
async def test_what_can_name_nothing_is_refused(ports, id_):
    with pytest.raises(BadName):
        await apply_definition(ports, AGENT, id_, ONE, by="ada")


def test_a_copy_of_what_is_disabled_says_no_more_than_that():
    registered = RegisteredDefinition(kind=AGENT, id=ID, revision=3, seq=9)
    assert (registered.body, registered.holds) == (NOTHING, False)
    assert definition_id(AGENT, ID) == "agent.disk"
