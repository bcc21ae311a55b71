"""What a node may do is tried at its start, against the permissions that the guide tells of."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from streams.embedded import EmbeddedNats
from streams.errors import Incompatible
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports.configs import shapes
from streams.jetstream.setup.rights import rights_of_node
from streams.layout import Stream
from streams.ports.timers import Timer
from streams.subjects import Stack
from tests.contracts.samples import commit
from tests.docs.pages import blocks

GUIDE: Final = "docs/guides/stacks.md"
ORDERS: Final = Stack("orders")

TO_MAKE: Final = "$JS.API.STREAM.CREATE.*"
"""For the first node of a stack alone."""


def granted() -> list[str]:
    """Return what the guide lets the user `node` publish."""
    (accounts, *_) = (block.text for block in blocks(GUIDE, "conf"))
    found = re.search(r"user: node,.*?allow: \[(.*?)\]", accounts, re.DOTALL)
    assert found
    return json.loads(f"[{', '.join(found[1].split())}]")


def user(name: str, allowed: list[str]) -> str:
    return (
        f'{{user: {name}, password: "x", permissions: {{publish: {{allow: {json.dumps(allowed)}}},'
        ' subscribe: {allow: ["_INBOX.>"]}}}'
    )


def users() -> str:
    """Return a user for each of the rights, who lacks it, and one with all of them."""
    lacking = [
        user(f"u{number}", [each for each in granted() if each != right])
        for number, right in enumerate(granted())
    ]
    everyone = ['{user: admin, password: "x"}', user("node", granted()), *lacking]
    return "authorization { users: [\n" + "\n".join(everyone) + "\n] }"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with these users, and the stack of the guide."""
    folder = tmp_path_factory.mktemp("guarded")
    with EmbeddedNats(folder, sync='"2m"', extra_config=users()) as server:
        yield server
        server.kill()


async def connect_as(server, name, stack=ORDERS):
    settings = LinkSettings(user=name, password="x")
    async with connect(server.url, stack=stack, settings=settings, is_for_node=True):
        pass


async def test_a_node_needs_what_the_guide_says_and_no_more(guarded):
    await connect_as(guarded, "node")


@pytest.mark.parametrize("right", [each for each in granted() if each != TO_MAKE])
async def test_a_node_that_lacks_a_right_hears_which_one(guarded, right):
    await connect_as(guarded, "admin")
    with pytest.raises(Incompatible) as refused:
        await connect_as(guarded, f"u{granted().index(right)}")
    said = str(refused.value)
    beginning = right.rstrip(">*")
    assert f"may not publish to {beginning}" in said
    assert "in the server's permissions" in said
    assert "\n" not in said


async def test_the_first_node_that_may_not_make_a_stack_hears_so(tmp_path):
    with (
        EmbeddedNats(tmp_path, extra_config=users()) as server,
        pytest.raises(Incompatible, match=r"may not publish to \$JS\.API\.STREAM\.CREATE"),
    ):
        await connect_as(server, f"u{granted().index(TO_MAKE)}")


async def test_of_many_that_are_lacking_a_few_are_named_and_the_others_counted(tmp_path, stack):
    settings = LinkSettings()
    lacking = [right.subjects for right in rights_of_node(stack, settings)]
    may = ["$JS.API.INFO", "$JS.API.STREAM.INFO.*"]
    both = f'authorization {{ users: [{{user: admin, password: "x"}}, {user("node", may)}] }}'
    with EmbeddedNats(tmp_path, extra_config=both) as server:
        await connect_as(server, "admin", stack)
        with pytest.raises(Incompatible, match=f"and {len(lacking) - 5} more"):
            await connect_as(server, "node", stack)


@pytest.mark.parametrize("partitions", [1, 2])
async def test_trying_changes_nothing(nats, stack, partitions):
    spread = Stack(stack.name, partitions)
    settings = LinkSettings(partitions=partitions)
    async with connect(nats.url, stack=spread, settings=settings) as ports:
        await ports.log.append(ports.stack.episode("e1"), commit("c1"), after=0)
        await ports.domain_events.publish("a.b", {}, id="e1")
        await ports.registry.put("mode.n1", b"full")
        timer = Timer(actor="a", purpose="p", key="k", payload={})
        await ports.timers.arm(timer, at=datetime.now(UTC) + timedelta(hours=1))
        before = await states(nats.url, ports.stack)
        async with connect(nats.url, stack=spread, settings=settings, is_for_node=True):
            pass
        assert await states(nats.url, ports.stack) == before
        assert sum(each["messages"] for each in before.values()) == 4


async def states(url, stack):
    settings = LinkSettings()
    async with Link(url, settings) as link:
        names = [str(each["name"]) for each in shapes(stack, settings)]
        infos = {each: await api.call(link, f"STREAM.INFO.{each}") for each in names}
    return {
        name: {key: info["state"][key] for key in ("messages", "last_seq", "first_seq")}
        for name, info in infos.items()
    }


def test_every_stream_and_bucket_of_a_stack_is_tried():
    stack = Stack("orders", 2)
    tried = " ".join(right.tried for right in rights_of_node(stack, LinkSettings()))
    names = {str(each["name"]) for each in shapes(stack, LinkSettings())}
    assert [name for name in names if f"DIRECT.GET.{name}" not in tried] == []
    assert tried.count("STREAM.PURGE") == len(stack.partitions_of(Stream.WORK))
