"""Finding out how many partitions a stack has, and refusing what contradicts it."""

from __future__ import annotations

import asyncio
import json

import nats as nats_py
import pytest

from streams.errors import Incompatible
from streams.jetstream import LinkSettings, connect, find_losses, inspect
from streams.jetstream.ports.configs import MOVING_TO, PARTITIONS, bucket_stream, names_of, shapes
from streams.layout import Stream
from streams.subjects import Stack
from tests.contracts.samples import commit
from tests.streams.jetstream.test_setup import api
from tests.streams.repartition.moves import write_layout


def wanting(partitions):
    return LinkSettings(partitions=partitions)


async def test_a_new_stack_has_one_partition_and_the_names_it_always_had(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        assert ports.stack == stack
        assert ports.stack.stream(Stream.JOURNAL) == f"{stack.name}-journal"
        assert ports.stack.episode("e1") == f"{stack.name}.episode.e1"


async def test_every_client_finds_out_how_many_partitions_there_are(nats, stack):
    async with connect(nats.url, stack=stack, settings=wanting(3)) as ports:
        assert ports.stack == Stack(stack.name, partitions=3)
        await ports.log.append(ports.stack.episode("e1"), commit("c"), after=0)
    async with connect(nats.url, stack=stack) as ports:
        assert ports.stack == Stack(stack.name, partitions=3)
        assert [each.commit.id for each in await ports.log.read(ports.stack.episode("e1"))] == ["c"]
    found = await inspect(nats.url, stack=stack)
    assert found.partitions == 3
    assert [(each.exists, each.contradictions) for each in found.streams] == [(True, ())] * 16


@pytest.mark.parametrize(("there", "wanted"), [(3, 1), (1, 3)])
async def test_a_setting_that_contradicts_the_servers_is_refused_with_both_numbers(
    nats, stack, there, wanted
):
    async with connect(nats.url, stack=stack, settings=wanting(there)):
        pass
    with pytest.raises(Incompatible) as refused:
        async with connect(nats.url, stack=stack, settings=wanting(wanted)):
            pass
    said = str(refused.value)
    assert f"has {there} partitions, and the settings say {wanted}" in said
    assert f"vigil repartition --to {wanted}" in said


async def test_of_nodes_that_start_together_and_disagree_those_of_one_mind_go_on(nats, stack):
    async def node(partitions):
        async with connect(nats.url, stack=stack, settings=wanting(partitions)) as ports:
            return ports.stack.partitions

    outcomes = await asyncio.gather(*(node(n) for n in (2, 3, 4)), return_exceptions=True)
    (winner,) = [each for each in outcomes if isinstance(each, int)]
    assert all(isinstance(each, Incompatible) for each in outcomes if each != winner)
    assert (await inspect(nats.url, stack=stack)).partitions == winner


async def test_every_partition_is_as_it_was_asked_for(nats, stack):
    stack = Stack(stack.name, partitions=3)
    async with connect(nats.url, stack=stack, settings=wanting(3)):
        connection = await nats_py.connect(nats.url)
        for ours in shapes(stack, wanting(3)):
            answer = await connection.request(f"$JS.API.STREAM.INFO.{ours['name']}")
            theirs = json.loads(answer.data)["config"]
            said = ours.pop("metadata", {})
            assert {key: theirs.get(key) for key in ours} == ours
            assert said.items() <= theirs["metadata"].items()
        await connection.close()


@pytest.mark.parametrize(("partitions", "mark"), [(1, "1+state"), (4, "4+state")])
async def test_the_registry_says_over_how_many_partitions_its_stack_is_spread(
    nats, stack, partitions, mark
):
    """Other versions read it: it stays as it is."""
    async with connect(nats.url, stack=stack, settings=wanting(partitions)), api(nats.url) as ask:
        info = await ask(f"STREAM.INFO.{bucket_stream(stack.registry_bucket())}")
        assert info["config"]["metadata"]["vigil.partitions"] == mark


@pytest.mark.parametrize("mark", [{}, {PARTITIONS: "3"}, {PARTITIONS: "3", MOVING_TO: "3+state"}])
async def test_a_stack_of_an_unreleased_version_is_refused_with_what_to_do(nats, stack, mark):
    """It had the state in its journal, and wrote the number alone, or nothing."""
    partitions = 3 if mark else 1
    async with connect(nats.url, stack=stack, settings=wanting(partitions)) as ports:
        made = ports.stack
    await write_layout(nats.url, stack, mark)
    with pytest.raises(Incompatible) as refused:
        async with connect(nats.url, stack=stack):
            pass
    said = str(refused.value)
    assert "was made by an unreleased version of Vigil" in said
    assert "delete all of its streams with `nats stream rm`" in said
    assert (await inspect(nats.url, stack=stack)).problem == said
    with pytest.raises(Incompatible, match="unreleased version"):
        await find_losses(nats.url, stack=stack, known={})
    async with api(nats.url) as ask:
        for name in names_of(made).values():
            assert "error" not in await ask(f"STREAM.DELETE.{name}")
    async with connect(nats.url, stack=stack) as ports:
        assert ports.stack == stack


@pytest.mark.parametrize("mark", [{PARTITIONS: "many"}, {PARTITIONS: "3+state", MOVING_TO: "many"}])
async def test_what_says_no_layout_is_refused(nats, stack, mark):
    async with connect(nats.url, stack=stack, settings=wanting(3)):
        pass
    await write_layout(nats.url, stack, mark)
    with pytest.raises(Incompatible, match="unreleased version"):
        async with connect(nats.url, stack=stack):
            pass
