"""What is erased of a client is nowhere: not in the files of any server, nor in any log.

A node runs episodes about two clients, whose names are in all that the episodes say and do:
payloads, arguments, results of any size, checkpoints, findings, outputs, dead letters, approvals.
One client is erased while the node runs. Then the bytes of the name are looked for in all files.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from engine.orders.store import give_order
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.model.events import RetentionDeclared
from streams.subjects import Stack
from tests.acceptance.cluster import Cluster, NodeProcess
from tests.vigil.program import Vigil

WHOSE: Final = ("--subject", "client_id/123")

APP: Final = "tests.acceptance.erasable:app"

ERASED, KEPT = "Rosalind-Elsie-Franklin-8271", "Maria-Sklodowska-5512"

ENDED: Final = "select 1 from episodes where finished_at is not null"

ENDED_S_MAX: Final = 60.0

COUNTS: Final = {
    "episodes": "episodes",
    "steps": "episode_steps",
    "findings": "findings",
    "finding events": "finding_events",
    "outputs": "outputs",
    "dead letters": "dead_letters",
}


def places_of(folder: Path, wanted: str) -> list[str]:
    """Return the files that have some bytes, by their paths."""
    files = (each for each in sorted(folder.rglob("*")) if each.is_file())
    return [str(e.relative_to(folder)) for e in files if wanted.encode() in e.read_bytes()]


def payload(client: str, name: str, **more: Any) -> dict[str, Any]:
    return {"client_id": client, "name": name, **more}


async def counts(cluster: Cluster) -> dict[str, int]:
    return {
        # The names are our own words.
        what: (await cluster.query(f"select count(*) from {table}"))[0][0]  # noqa: S608
        for what, table in COUNTS.items()
    }


CALLED: Final = "client.called"

AS_PUBLISHED: Final = "store/jetstream/$G/streams/vigil-events/msgs/1.blk"
"""Where the event is that another program has published, in the open."""

ASKING: Final = "select episode_id::text as id from episodes where blocked_by = 'approval'"


class Desk:
    """A stack that encrypts what it has of clients, with a node that has worked for two of them."""

    def __init__(self, cluster: Cluster, folder: Path, **settings: str) -> None:
        self.cluster, self.settings = cluster, settings
        urls = {"VIGIL_NATS_URL": cluster.nats_url, "VIGIL_POSTGRES_DSN": cluster.postgres.dsn}
        self.vigil = Vigil(folder, **urls, **settings)

    def order(self, *words: str) -> str:
        done = self.vigil.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def work(self) -> NodeProcess:
        """Run episodes about two clients; one of them asks a person, who has not answered."""
        node = await self.begin()
        # Of those who publish, one knows nothing of keys.
        mine, other = payload("123", ERASED), payload("456", KEPT)
        await self.cluster.publish(CALLED, {"x1": mine, "x2": other})
        self.order("publish", CALLED, json.dumps({**mine, "asks": True}))
        self.fire("123", ERASED)
        await self.cluster.wait_rows(ASKING, 1, most_s=ENDED_S_MAX)
        return node

    async def begin(self) -> NodeProcess:
        """Have a stack encrypt what it has of clients, and run a node."""
        # Else Postgres keeps what it has written as it is, until it needs the room.
        await self.cluster.query("alter system set wal_recycle = off")
        await self.cluster.query("select pg_reload_conf()")
        async with connect(self.cluster.nats_url, stack=Stack()):
            pass
        found = self.vigil.ask("encrypt", "--kind", "client_id", "--reason", "law")
        assert found == {"kinds": ["client_id"]}
        return await self.cluster.start("n1", app=APP, **self.settings)

    async def hurry(self) -> None:
        """Have whatever has ended leave the journal at once, which no settings may ask for."""
        event = RetentionDeclared(kept_s={"journal": 0}, by="a test")
        async with connect(self.cluster.nats_url, stack=Stack()) as ports:
            await give_order(ports, event, clock=SystemClock())

    def fire(self, client: str, name: str) -> None:
        self.order("fire", "desk", "contact", "--payload", json.dumps(payload(client, name)))

    async def answer(self) -> str:
        """Answer for the person; return the episode."""
        [asking] = await self.cluster.query(ASKING)
        self.order("episodes", "approve", asking["id"], "--yes", "--reason", f"for {ERASED}")
        await self.wait_ended(4)
        return asking["id"]

    async def wait_ended(self, episodes: int) -> None:
        await self.cluster.wait_rows(ENDED, episodes, most_s=ENDED_S_MAX)
        await self.cluster.wait_rows("select 1 from dead_letters", episodes, most_s=ENDED_S_MAX)

    async def see_rebuilt(self) -> None:
        """See the rows be what the log says now, and a rebuild make them of it again."""
        self.order("projections", "verify")
        await self.cluster.query("update findings set summary = 'spoilt'")
        assert self.vigil.run("projections", "verify").returncode == 1
        self.order("projections", "rebuild", "--yes")
        self.order("projections", "verify")

    async def see_filled_again(self, node: NodeProcess) -> None:
        """See the rows be made of the log again, as after any loss of them."""
        assert node.stop() == 0
        await self.cluster.query("drop schema vigil cascade")
        await self.cluster.start("n1", app=APP)
        await self.wait_ended(4)

    async def subjects(self) -> dict[str, int]:
        rows = await self.cluster.query("select subject_id from episodes")
        return Counter(each["subject_id"] for each in rows)


def refused_while_held(desk):
    held = [("actor", "desk"), ("subject", "123")]
    for kind, name in held:
        desk.order("retention", "hold", "add", kind, name)
    refused = desk.vigil.run("erase", *WHOSE, "--yes")
    assert (refused.returncode, "actor desk, subject 123" in refused.stderr) == (2, True)
    for kind, name in held:
        desk.order("retention", "hold", "remove", kind, name)


@pytest.mark.timeout(300)
async def test_what_is_erased_is_in_no_file_and_all_else_stays(cluster, tmp_path):
    desk = Desk(cluster, tmp_path)
    node = await desk.work()
    refused = desk.vigil.run("erase", *WHOSE, "--yes")
    assert (refused.returncode, "have not ended" in refused.stderr) == (2, True)

    asked, before = await desk.answer(), await counts(cluster)
    assert ERASED in str(desk.vigil.ask("episodes", "show", asked)), "there is a key"
    planned = desk.vigil.ask("erase", *WHOSE, "--dry-run")
    assert (planned["in_the_open"], planned["open"]) == ({}, [])
    expected = {"episodes": 3, "findings": 1, "outputs": 3, "dead_letters": 3}
    assert expected.items() <= planned["erased"].items()
    assert places_of(tmp_path / "nats", ERASED) == [AS_PUBLISHED]

    refused_while_held(desk)
    said = desk.order("erase", *WHOSE, "--yes", "--reason", "asked by mail")

    assert "is destroyed" in said
    assert places_of(tmp_path, ERASED) == []
    assert (await counts(cluster), await desk.subjects()) == (before, {"123": 3, "456": 1})
    orders = desk.vigil.ask("orders", "list")
    [order] = [each for each in orders if each["change"] == "subject_erased"]
    assert (order["order_key"], order["reason"]) == ("erased.client_id/123", "asked by mail")
    assert KEPT in str(desk.vigil.ask("findings", "list"))
    assert "no key any more" in desk.order("erase", *WHOSE, "--yes")

    await desk.see_rebuilt()
    await desk.see_filled_again(node)
    assert (await counts(cluster), places_of(tmp_path, ERASED)) == (before, [])
    assert "$erased" in str(desk.vigil.ask("episodes", "show", asked))
    # What comes about the client from now on has a key of its own.
    await cluster.publish(CALLED, {"x9": payload("123", "a new name")})
    await desk.wait_ended(5)
    assert await desk.subjects() == {"123": 4, "456": 1}


ARCHIVE: Final = """
[archive]
store = "archive"
"""


@pytest.mark.timeout(300)
async def test_what_was_archived_and_backed_up_is_erased_too(cluster, tmp_path):
    (tmp_path / "vigil.toml").write_text(ARCHIVE)
    desk = Desk(cluster, tmp_path)
    await desk.begin()
    desk.fire("123", ERASED)
    desk.fire("456", KEPT)
    await desk.wait_ended(2)
    await desk.hurry()
    before = await counts(cluster)
    # Nothing is purged before rows and reactor have it.
    desk.vigil.wait_for("archive", "run", until=lambda done: done["parts"][0]["purged"]["messages"])
    desk.order("backup", "create", "backups")
    [finding] = [each for each in desk.vigil.ask("findings", "list") if ERASED in str(each)]
    desk.order("findings", "ack", finding["finding_key"], "--reason", f"by {ERASED}")
    assert places_of(tmp_path / "nats", ERASED) == []

    planned = desk.vigil.ask("erase", *WHOSE, "--dry-run")
    assert planned["erased"]["episodes"] == 1
    desk.order("erase", *WHOSE, "--yes")

    assert places_of(tmp_path, ERASED) == []
    assert (await counts(cluster))["episodes"] == before["episodes"]
    [gone] = [each for each in desk.vigil.ask("episodes", "list") if each["subject_id"] == "123"]
    assert "$erased" in str(desk.vigil.ask("episodes", "show", gone["episode_id"]))
    assert KEPT in str(desk.vigil.ask("findings", "list"))
    # Of what only the archive has, too.
    await desk.see_rebuilt()
    assert places_of(tmp_path, ERASED) == []
    assert KEPT in str(desk.vigil.ask("findings", "list"))
