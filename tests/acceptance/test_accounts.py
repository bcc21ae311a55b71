"""Stacks in accounts of NATS and behind leaf nodes, on servers set up as the guide says."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import nats as nats_client
import pytest

from streams.embedded import EmbeddedNats
from tests.acceptance.cluster import POLL_S, ROOT, Cluster
from tests.databases import Database
from tests.docs.pages import blocks
from tests.vigil.program import Vigil

GUIDE: Final = "docs/guides/stacks.md"
APP: Final = "tests.acceptance.stacked:app"
EVENTS: Final = 5
MOST_S: Final = 30.0
EVENT: Final = "orders.event.order.placed"
DEFINITION: Final = """
id: counter
expectations:
  orders_are_counted:
    on: {event: order.placed}
    strategy: {template: dispatch, config: {gatherer: orders, event_type: order.counted}}
"""
DONE: Final = "select subject_id from vigil.episodes where actor_id = $1 and status = 'done'"


def written(language: str) -> str:
    """Return the first block of the guide in `language`, with a password that a URL can hold."""
    return blocks(GUIDE, language)[0].text.replace('"change me"', "x")


def as_user(url: str, user: str) -> str:
    return url.replace("nats://", f"nats://{user}:x@")


def in_database(dsn: str, database: str) -> str:
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{database}"))


def say(*words: str, url: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Do as an operator or a publisher: `vigil …`."""
    vigil = Vigil(ROOT, VIGIL_NATS_URL=url, VIGIL_STACK="orders", **settings)
    return vigil.run(*words)


async def publish(url: str, orders: list[str], gate: Path, *, inbox: str = "_INBOX") -> None:
    """Publish orders of the stack `orders`, as programs do that know nothing of Vigil."""
    client = await nats_client.connect(url, inbox_prefix=inbox.encode())
    try:
        for order in orders:
            data = json.dumps({"order": order, "until": str(gate)}).encode()
            await client.jetstream().publish(EVENT, data, headers={"Nats-Msg-Id": order})
    finally:
        await client.close()


async def wait_done(dsn: str, orders: list[str], *, actor: str = "watcher") -> None:
    """Wait until exactly `orders` are done, as the rows of a database tell."""
    deadline_s = time.monotonic() + MOST_S
    while (seen := await done_in(dsn, actor)) != set(orders):
        assert time.monotonic() < deadline_s, f"{actor}: {seen}"
        await asyncio.sleep(POLL_S)


async def done_in(dsn: str, actor: str) -> set[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return {row["subject_id"] for row in await connection.fetch(DONE, actor)}
    except asyncpg.UndefinedTableError:
        return set()
    finally:
        await connection.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that is there, so that episodes wait for nothing."""
    (tmp_path / "open").touch()
    return tmp_path / "open"


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[EmbeddedNats]:
    """A server with the accounts of the guide."""
    with EmbeddedNats(tmp_path / "accounts", extra_config=written("conf")) as server:
        yield server


@pytest.fixture
async def cluster(
    tmp_path: Path, accounts: EmbeddedNats, database: Database
) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, nats_url=accounts.url, database=database) as cluster:
        yield cluster


@pytest.mark.nightly
async def test_accounts_may_each_have_a_stack_of_one_name(
    cluster: Cluster, accounts: EmbeddedNats, gate: Path
):
    connection = await asyncpg.connect(cluster.postgres.dsn)
    await connection.execute("create database shipping")
    await connection.close()
    ours, theirs = (as_user(accounts.url, user) for user in ("node", "shipping"))
    here, there = cluster.postgres.dsn, in_database(cluster.postgres.dsn, "shipping")
    nodes = [
        await cluster.start("n1", app=APP, url=ours, VIGIL_STACK="orders"),
        await cluster.start(
            "n2", app=APP, url=theirs, VIGIL_STACK="orders", VIGIL_POSTGRES_DSN=there
        ),
    ]
    of_ours, of_theirs = ([f"{who}{n}" for n in range(EVENTS)] for who in ("ours", "theirs"))
    await publish(as_user(accounts.url, "shop"), of_ours, gate, inbox="_INBOX_shop")
    await publish(theirs, of_theirs, gate)
    await wait_done(here, of_ours)
    await wait_done(there, of_theirs)
    assert [node.stop() for node in nodes] == [0, 0]
    assert await done_in(here, "watcher") == set(of_ours)


async def test_publishing_and_looking_need_no_more_than_the_guide_grants(
    cluster: Cluster, accounts: EmbeddedNats, gate: Path
):
    node = await cluster.start(
        "n1", app=APP, url=as_user(accounts.url, "node"), VIGIL_STACK="orders"
    )
    shop, desk = (as_user(accounts.url, user) for user in ("shop", "desk"))
    dsn = {"VIGIL_POSTGRES_DSN": cluster.postgres.dsn}
    order = json.dumps({"order": "o1", "until": str(gate)})
    published = say("publish", "order.placed", order, url=shop, VIGIL_NATS_INBOX="_INBOX_shop")
    assert published.returncode == 0, published.stderr
    await wait_done(cluster.postgres.dsn, ["o1"])
    for words in (("actors", "list"), ("actors", "show", "watcher"), ("mode",), ("doctor",)):
        seen = say(*words, url=desk, VIGIL_NATS_INBOX="_INBOX_desk", **dsn)
        assert seen.returncode == 0, seen.stderr

    denied = say("mode", "n1", "disabled", url=desk, VIGIL_NATS_INBOX="_INBOX_desk")
    assert (denied.returncode, denied.stderr.count("\n")) == (1, 1)
    assert "may not publish to orders.order.mode=2En1" in denied.stderr
    unheard = say("publish", "order.placed", order, url=shop)
    assert (unheard.returncode, unheard.stderr.count("\n")) == (1, 1)
    assert "may not receive answers" in unheard.stderr
    refused = say("node", "--app", APP, "--no-project", url=shop, VIGIL_NATS_INBOX="_INBOX_shop")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "a node of stack 'orders' may not publish to orders.inbox.>" in refused.stderr
    assert node.stop() == 0


async def test_applying_definitions_needs_no_more_than_the_guide_grants(
    cluster: Cluster, accounts: EmbeddedNats, tmp_path: Path
):
    node = await cluster.start(
        "n1", app=APP, url=as_user(accounts.url, "node"), VIGIL_STACK="orders"
    )
    file = tmp_path / "counter.yaml"
    file.write_text(DEFINITION)
    apply = ("actors", "apply", str(file), "--timeout", "0")
    author, desk = (as_user(accounts.url, user) for user in ("author", "desk"))
    history, disable = ("actors", "history", "counter"), ("actors", "disable", "counter", "--yes")
    for words in (apply, history, disable):
        done = say(*words, url=author, VIGIL_NATS_INBOX="_INBOX_author")
        assert done.returncode == 0, done.stderr

    denied = say(*apply, url=desk, VIGIL_NATS_INBOX="_INBOX_desk")
    assert (denied.returncode, denied.stderr.count("\n")) == (1, 1)
    assert "may not publish to orders.definition." in denied.stderr
    assert node.stop() == 0


async def test_an_actor_hears_events_of_another_account_by_way_of_a_copy(
    cluster: Cluster, accounts: EmbeddedNats, gate: Path
):
    own = as_user(accounts.url, "node")
    made = say("publish", "shop.opened", "{}", "--create-stack", url=own)
    assert made.returncode == 0, made.stderr
    theirs = as_user(accounts.url, "shipping")
    client = await nats_client.connect(theirs)
    copy = json.loads(written("json"))
    answer = await client.request(
        f"$JS.API.STREAM.CREATE.{copy['name']}", json.dumps(copy).encode()
    )
    await client.close()
    assert "error" not in json.loads(answer.data)

    node = await cluster.start("n1", app=APP, url=theirs, VIGIL_STACK="shipping")
    orders = [f"o{n}" for n in range(EVENTS)]
    await publish(as_user(accounts.url, "shop"), orders, gate, inbox="_INBOX_shop")
    await wait_done(cluster.postgres.dsn, orders, actor="packer")
    rows = await cluster.query("select distinct trigger_ref->>'event_id' as id from episodes")
    assert {row["id"] for row in rows} == {f"ORDERS/{order}" for order in orders}
    assert node.stop() == 0


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("has_own", [False, True], ids=["without", "with its own"])
async def test_who_comes_in_through_a_leaf_node_says_the_domain_of_the_hub(
    tmp_path: Path, database: Database, gate: Path, has_own: bool
):
    port = unused_port()
    hub_says = f'server_name: hub\nleafnodes {{ listen: "127.0.0.1:{port}" }}'
    remote = f'leafnodes {{ remotes: [{{ url: "nats-leaf://127.0.0.1:{port}" }}] }}'
    own = {"jetstream": has_own, "domain": "edge" if has_own else ""}
    with (
        EmbeddedNats(tmp_path / "hub", domain="hub", extra_config=hub_says) as hub,
        EmbeddedNats(tmp_path / "leaf", extra_config=f"server_name: leaf\n{remote}", **own) as leaf,
    ):
        async with Cluster(tmp_path, nats_url=hub.url, database=database) as cluster:
            at_hub = await cluster.start("n1", app=APP, VIGIL_STACK="orders")
            order = json.dumps({"order": "o1", "until": str(gate)})
            domain = {"VIGIL_NATS_DOMAIN": "hub"}
            published = say("publish", "order.placed", order, url=leaf.url, **domain)
            assert published.returncode == 0, published.stderr
            await wait_done(cluster.postgres.dsn, ["o1"])

            at_leaf = await cluster.start(
                "n2", app=APP, url=leaf.url, VIGIL_STACK="orders", **domain
            )
            assert at_hub.stop() == 0
            await publish(hub.url, ["o2"], gate)
            await wait_done(cluster.postgres.dsn, ["o1", "o2"])
            rows = await cluster.query("select node from episodes where subject_id = 'o2'")
            assert {row["node"] for row in rows} == {"n2"}
            assert at_leaf.stop() == 0
            lost = say("publish", "order.placed", order, url=leaf.url)
            assert (lost.returncode, lost.stderr.count("\n")) == (1, 1)
            why = "there is no stack 'orders'" if has_own else "say the domain of the hub"
            assert why in lost.stderr
