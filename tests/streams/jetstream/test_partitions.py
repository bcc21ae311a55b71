"""Finding out how many partitions a stack has, and refusing what contradicts it."""

from __future__ import annotations

import asyncio
import json

import nats as nats_py
import pytest

from streams.errors import BadName, Incompatible
from streams.jetstream import LinkSettings, connect, inspect
from streams.jetstream.ports.configs import PARTITIONS, bucket_stream, shapes
from streams.layout import Stream
from streams.subjects import Stack
from tests.contracts.samples import commit


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
    assert [(each.exists, each.contradictions) for each in found.streams] == [(True, ())] * 15


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


async def test_metadata_that_says_no_number_is_refused(nats, stack):
    async with connect(nats.url, stack=stack):
        connection = await nats_py.connect(nats.url)
        name = bucket_stream(stack.registry_bucket())
        info = json.loads((await connection.request(f"$JS.API.STREAM.INFO.{name}")).data)
        config = {**info["config"], "metadata": {PARTITIONS: "many"}}
        await connection.request(f"$JS.API.STREAM.UPDATE.{name}", json.dumps(config).encode())
        await connection.close()
    with pytest.raises(BadName, match="partitions: 0"):
        async with connect(nats.url, stack=stack):
            pass
