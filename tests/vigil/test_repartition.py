"""`vigil repartition`, and what nodes say of a stack that was spread over other partitions."""

from __future__ import annotations

import asyncio
import json
import signal

import asyncpg
import pytest

from projections.embedded import EmbeddedPostgres
from streams.jetstream import connect
from streams.model.events import LayoutSet
from streams.subjects import Stack
from tests.streams.repartition.moves import write_layout
from tests.vigil.test_node import running_node


def one_line(done, *, code):
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    return done.stderr


@pytest.fixture
def seen(connected, write_app):
    """A stopped stack of one partition, and an episode that ended in it."""
    write_app()
    with running_node(connected, "--node-name", "n1") as node:
        in_use = one_line(connected.run("repartition", "--to", "4"), code=1)
        assert "n1 holds projector." in in_use or "a node waits at" in in_use
        connected.run("publish", "host.seen", '{"host": "a"}')
        (row,) = connected.wait_for(
            "episodes", "list", "--status", "done", until=lambda rows: len(rows) == 1
        )
        assert node.stop(signal.SIGTERM) == 0
    return connected, row["episode_id"]


def test_a_stopped_stack_is_spread_and_nodes_find_out_by_themselves(seen):
    vigil, episode_id = seen
    done = vigil.run("repartition", "--to", "4", "--by", "ann", "--reason", "more room")
    assert done.returncode == 0, done.stderr
    assert "is spread over 4 partitions" in done.stdout
    assert "drop the schema vigil with\nCASCADE" in done.stdout
    assert "copied, journal: " in done.stderr

    replayed = vigil.run("episodes", "replay", episode_id)
    assert replayed.returncode == 0, replayed.stderr
    with running_node(vigil, "--no-project") as node:
        assert node.stop(signal.SIGTERM) == 0

    contradicting = vigil.run("node", "--app", "watch:app", "--no-project", "--partitions", "2")
    assert "has 4 partitions, and the settings say 2" in one_line(contradicting, code=1)

    assert asyncio.run(moves(vigil)) == [LayoutSet(partitions=4, by="ann", reason="more room")]
    again = vigil.run("repartition", "--to", "4", "--drop-old")
    assert again.returncode == 0, again.stderr
    assert "drop the schema" not in again.stdout
    assert again.stdout.count("deleted ") == 3
    assert vigil.run("repartition", "--drop-old").stdout == "nothing to delete\n"
    found = {check["what"]: check["status"] for check in vigil_doctor(vigil)}
    assert found[f"stream {vigil.environ['VIGIL_STACK']}-journal-3of4"] == "ok"
    assert len(asyncio.run(moves(vigil))) == 1


def test_a_stack_may_be_moved_again_before_a_node_has_run(standing):
    for number in ("4", "2"):
        done = standing.run("repartition", "--to", number, "--drop-old")
        assert done.returncode == 0, done.stderr
    assert [each.partitions for each in asyncio.run(moves(standing))] == [4, 2]


async def moves(vigil):
    stack = Stack(vigil.environ["VIGIL_STACK"])
    async with connect(vigil.environ["VIGIL_NATS_URL"], stack=stack) as ports:
        records = await ports.log.read(ports.stack.order("layout"))
    return [event for record in records for event in record.commit.events]


def test_the_tables_are_made_anew_once_their_schema_is_dropped(connected, write_app, tmp_path):
    write_app()
    with EmbeddedPostgres(tmp_path / "postgres") as postgres:
        connected.environ["VIGIL_POSTGRES_DSN"] = postgres.dsn
        with running_node(connected) as node:
            publish(connected, range(20))
            wait_done(connected, 20)
            assert node.stop(signal.SIGTERM) == 0
        assert connected.run("repartition", "--to", "4").returncode == 0

        with running_node(connected) as node:
            node.wait_said("OtherJournal")
            found = vigil_doctor(connected)
            problems = {each["what"] for each in found if each["status"] == "problem"}
            assert "projection journal" in problems
            assert node.stop(signal.SIGTERM) == 0

        asyncio.run(drop_tables(postgres.dsn))
        with running_node(connected) as node:
            wait_done(connected, 20)
            publish(connected, range(20, 40))
            wait_done(connected, 40)
            assert {each["status"] for each in vigil_doctor(connected)} == {"ok"}
            assert node.stop(signal.SIGTERM) == 0


def test_a_stack_of_an_unreleased_version_is_refused_in_one_line(standing):
    stack = Stack(standing.environ["VIGIL_STACK"])
    asyncio.run(write_layout(standing.environ["VIGIL_NATS_URL"], stack, {}))
    commands = (["publish", "x", "{}"], ["repartition", "--to", "4"], ["uncompress"])
    said = {one_line(standing.run(*command), code=1) for command in commands}
    (problem,) = [each for each in vigil_doctor(standing) if each["status"] == "problem"]
    assert said == {f"vigil: {problem['remedy']}\n"}
    assert "was made by an unreleased version of Vigil" in problem["remedy"]


def publish(vigil, numbers):
    lines = "".join(json.dumps({"host": f"h{n}"}) + "\n" for n in numbers)
    assert vigil.run("publish", "host.seen", "--lines", stdin=lines.encode()).returncode == 0


def wait_done(vigil, count):
    vigil.wait_for("episodes", "list", "--status", "done", until=lambda rows: len(rows) == count)


async def drop_tables(dsn):
    connection = await asyncpg.connect(dsn)
    await connection.execute("DROP SCHEMA vigil CASCADE")
    await connection.close()


def vigil_doctor(vigil):
    """Return what the doctor says, problems included."""
    return json.loads(vigil.run("doctor", "--json").stdout)["checks"]


def test_a_new_stack_has_the_partitions_that_its_first_client_asks_for(connected):
    done = connected.run("publish", "host.seen", "{}", "--partitions", "3", "--create-stack")
    assert done.returncode == 0, done.stderr
    assert connected.run("publish", "host.seen", "{}").returncode == 0
    contradicting = connected.run("publish", "host.seen", "{}", VIGIL_PARTITIONS="1")
    assert "has 3 partitions, and the settings say 1" in one_line(contradicting, code=1)


@pytest.mark.parametrize("nonsense", ["0", "65", "many"])
def test_a_number_of_partitions_that_makes_no_sense_is_refused_in_one_line(connected, nonsense):
    done = connected.run("publish", "x", "{}", "--partitions", nonsense)
    assert "--partitions = " in one_line(done, code=2)


def test_a_number_to_move_to_that_makes_no_sense_is_refused_in_one_line(connected):
    connected.run("publish", "x", "{}", "--create-stack")
    assert "use 1 to 64" in one_line(connected.run("repartition", "--to", "65"), code=2)
    assert "--drop-old" in one_line(connected.run("repartition"), code=2)


def test_a_stack_that_is_not_there_is_not_made(connected):
    assert "there is no stream" in one_line(connected.run("repartition", "--to", "4"), code=1)
