"""What a client does with definitions: applying, disabling, and reading them again."""

from __future__ import annotations

import pytest

from engine.cluster.nodes import encoded
from streams.keys import node_key
from tests.vigil.defining import DISKS, write_files
from tests.vigil.journal import DBA, NODE_TTL_S, said_by
from vigil.definitions import read
from vigil.errors import Mistake, NotFound, Trouble


def disks(*, cooldown_s=60):
    return read(DISKS.replace("60", str(cooldown_s)).encode(), "yaml")


async def cooldown_s(client, **which):
    found = await client.definitions.read("actor", "disk_watch", **which)
    return found["expectations"]["disk_has_room"]["cooldown_s"]


async def test_what_is_applied_can_be_read_compared_and_disabled(client):
    told = []
    (first,) = await client.definitions.apply(disks(), reason="new", on_applied=told.append)
    (again,) = await client.definitions.apply(disks())
    (second,) = await client.definitions.apply(disks(cooldown_s=120), if_revision=1, by="bob")
    off = await client.definitions.disable("actor", "disk_watch")
    (listed,) = await client.definitions.list(kind="actor")

    assert [each.registered.id for each in told] == ["disk_watch"]
    assert (first.happened, again.happened, second.registered.revision) == (True, False, 2)
    assert first.unchecked == ["strategy 'parts:Look'"]
    assert off.happened
    assert (listed.id, listed.revision, listed.holds) == ("disk_watch", 2, False)
    assert await client.definitions.list(kind="workflow") == []
    assert await cooldown_s(client, revision=1) == 60
    assert await cooldown_s(client) == 120
    assert await client.definitions.diff("actor", "disk_watch", since=1) == [
        "~ expectations.disk_has_room.cooldown_s: 60 → 120"
    ]
    text = await client.definitions.text("actor", "disk_watch", revision=1)
    assert read(text.encode(), "yaml")["id"] == "disk_watch"
    history = await client.definitions.history("actor", "disk_watch")
    assert [(each.change, each.revision, each.person, each.reason) for each in history] == [
        ("applied", 1, "ann", "new"),
        ("applied", 2, "bob", None),
        ("disabled", 2, "ann", None),
    ]


async def test_a_dry_run_tells_what_would_change_and_changes_nothing(client):
    (planned,) = await client.definitions.apply(disks(), dry_run=True)
    assert (planned.happened, planned.registered.revision) == (True, 1)
    assert await client.definitions.list() == []


async def test_files_and_folders_are_applied_actors_before_workflows(client, tmp_path):
    write_files(tmp_path)
    (tmp_path / "two.yaml").unlink()
    done = await client.definitions.apply(tmp_path)
    assert [each.registered.id for each in done] == ["disk_watch", "review"]
    found = await client.definitions.get("actor", "disk_watch")
    assert found.needed_by == {"review": ["screen", "pay"]}
    (workflow,) = await client.workflows.definitions()
    assert (workflow["workflow_id"], workflow["source"]) == ("review", "definition")


async def test_what_nodes_make_of_a_definition_is_waited_for(ports, client):
    done = await client.definitions.apply(disks())
    (nobody,) = await client.definitions.wait_rollout(done, timeout_s=0)
    said = encoded(said_by("idle", {}, **DBA))
    await ports.gates.put(node_key("idle"), said, ttl_s=NODE_TTL_S)
    (silent,) = await client.definitions.wait_rollout(done, timeout_s=0)
    await client.definitions.disable("actor", "disk_watch")
    gone = await client.definitions.wait_withdrawal("actor", "disk_watch", timeout_s=0)

    assert (nobody.running, nobody.silent, nobody.is_in_vain) == ([], [], False)
    assert (silent.silent, silent.is_in_vain) == (["idle"], True)
    assert (gone.waking, gone.events) == ([], 0)


async def test_what_was_never_defined_is_not_found(client):
    calls = client.definitions
    for asked in (
        calls.get("actor", "disk_wach"),
        calls.disable("actor", "disk_wach"),
        calls.read("actor", "disk_wach"),
        calls.history("actor", "disk_wach"),
    ):
        with pytest.raises(NotFound, match="nobody has defined actor 'disk_wach'; none is known"):
            await asked
    await calls.apply(disks())
    with pytest.raises(NotFound, match="actor 'disk_watch' has no revision 2; the last is 1"):
        await calls.read("actor", "disk_watch", revision=2)


async def test_what_cannot_be_applied_is_refused_whole(client, tmp_path):
    calls = client.definitions
    for asked, why in (
        (calls.apply(), "give at least one definition"),
        (calls.apply(disks(), disks()), "definition 1 and definition 2 both define"),
        (calls.apply(disks(), {"id": "x"}), "definition 2: write expectations for an actor"),
        (calls.apply(disks(), kind="workflow"), "definition 1: not for workflows"),
        (calls.apply(disks(), kind="agent"), "kind: 'agent' is not one of actor, workflow"),
        (calls.apply(disks(), form="xml"), "form: 'xml' is not one of"),
        (calls.apply(disks(), reason="x" * 5_000), "reason"),
        (calls.get("cron", "x"), "kind: 'cron' is not one of actor, workflow"),
    ):
        with pytest.raises(Mistake, match=why):
            await asked
    with pytest.raises(Trouble, match="No such file"):
        await calls.apply(tmp_path / "none.yaml")
    assert await calls.list() == []
    await calls.apply(disks())
    with pytest.raises(Trouble, match="disk_watch: it is at revision 1 by now, not 0"):
        await calls.apply(disks(cooldown_s=5), if_revision=0)
