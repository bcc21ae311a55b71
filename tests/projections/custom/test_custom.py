"""A projection of a user fills its own tables, each event once, whatever breaks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from projections.custom.fold import CustomFold, RowTexts
from projections.custom.projection import Add, OwnTable, Put, Remove, check, schema_of
from projections.errors import BadProjection, CustomChanged, CustomFailed, NotMigrated
from projections.postgres.custom.tables import OwnTables, list_own
from projections.postgres.pool import connect
from projections.postgres.projector import project
from projections.postgres.rebuild.rebuild import RebuildOptions, rebuild, verify
from streams.jetstream import connect as connect_log
from streams.layout import Stream
from streams.model.events import EpisodeFinished, EpisodeOpened, FindingRaised
from tests.projections import lives
from tests.projections.lives import HurriedClock, append, record, wait_until
from tests.projections.rebuild.rebuilding import CLOCK
from tests.projections.test_projector import fill
from tests.vigil.program import ROOT

TEXTS = RowTexts("put {table}: {columns} by {key}: {sets}", "remove {table}: {same}")


@dataclass
class Ends:
    """Counts what actors open and how it ends, and keeps the latest finding of each class."""

    name: str = "ends"
    tables: dict = field(
        default_factory=lambda: {
            "actors": OwnTable(
                key={"actor": "text"},
                columns={
                    "opened": "bigint NOT NULL DEFAULT 0",
                    "tokens": "bigint",
                    "latest": "timestamptz",
                },
            ),
            "open_episodes": OwnTable(key={"episode": "uuid"}, columns={"actor": "text"}),
            "classes": OwnTable(key={"class": "text"}, columns={"summary": "text"}),
        }
    )

    def project(self, event):
        match event.event:
            case EpisodeOpened(actor_id=actor):
                yield Add(table="actors", key={"actor": actor}, amounts={"opened": 1})
                yield Put(table="actors", key={"actor": actor}, values={"latest": event.at})
                yield Put(
                    table="open_episodes", key={"episode": event.key}, values={"actor": actor}
                )
            case EpisodeFinished(tokens_used=tokens):
                yield Add(table="actors", key={"actor": "monitor"}, amounts={"tokens": tokens})
                yield Remove(table="open_episodes", key={"episode": event.key})
            case FindingRaised(finding=finding):
                key = {"class": finding.class_}
                yield Put(table="classes", key=key, values={"summary": finding.summary})


@pytest.fixture
async def own_tables(postgres, request):
    """Connections to the schema of `Ends`, which is gone afterwards."""
    name = f"ends_{abs(hash(request.node.name)) % 10**8}"
    async with await connect(postgres.dsn, schema=schema_of(name)) as pool:
        yield pool, Ends(name)
        await pool.execute(f"DROP SCHEMA IF EXISTS {schema_of(name)} CASCADE")


@asynccontextmanager
async def projecting(ports, pool, projection):
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            project(
                ports,
                pool,
                node="n1",
                clock=HurriedClock(),
                stop=stop,
                projected=OwnTables(projection).projected,
            )
        )
        try:
            yield
        finally:
            stop.set()


async def wait_level(ports, pool, projection):
    async def is_level():
        positions = {
            row["projection"]: row["journal_seq"]
            for name, row in await list_own(pool, ports.stack)
            if name == projection.name
        }
        heads = {each.value: await ports.log.head(each) for each in (Stream.JOURNAL, Stream.STATE)}
        return positions.items() >= heads.items()

    await wait_until(is_level)


async def projected(ports, pool, projection):
    async with projecting(ports, pool, projection):
        await wait_level(ports, pool, projection)


async def rows(pool, table):
    return sorted(tuple(row)[1:] for row in await pool.fetch(f"SELECT * FROM {table}"))  # noqa: S608 - our own


async def test_events_become_rows_once(ports, own_tables):
    pool, ends = own_tables
    await fill(ports, count=3)
    await projected(ports, pool, ends)
    assert [row[:3] for row in await rows(pool, "actors")] == [("monitor", 3, 120)]
    assert await rows(pool, "open_episodes") == []
    assert await rows(pool, "classes") == [("disk_full", "the disk is full")]
    await fill(ports, first=4, count=2)
    await append(ports.log, ports.stack.episode(lives.episode_id(9)), (lives.opened(9),))
    await projected(ports, pool, ends)
    assert [row[:3] for row in await rows(pool, "actors")] == [("monitor", 6, 200)]
    assert len(await rows(pool, "open_episodes")) == 1


async def test_wrong_rows_are_verified_and_rebuilt(ports, own_tables):
    pool, ends = own_tables
    await fill(ports, count=3)
    await projected(ports, pool, ends)
    given = {
        "clock": CLOCK,
        "options": RebuildOptions(),
        "tell": [].append,
        "custom": OwnTables(ends),
    }
    assert (await verify(ports.log, pool, ports.stack, **given)).difference is None
    await pool.execute("UPDATE actors SET opened = 77")
    found = await verify(ports.log, pool, ports.stack, **given)
    assert (found.difference.table, found.difference.column) == ("actors", "opened")
    assert (found.difference.live, found.difference.journal) == (77, 3)
    async with projecting(ports, pool, ends):
        await rebuild(ports.log, pool, ports.stack, **given)
        await fill(ports, first=4, count=1)
        await wait_level(ports, pool, ends)
    assert [row[:3] for row in await rows(pool, "actors")] == [("monitor", 4, 160)]
    assert (await verify(ports.log, pool, ports.stack, **given)).difference is None


async def test_what_other_code_has_begun_is_not_continued(own_tables, monkeypatch):
    pool, ends = own_tables
    tables = OwnTables(ends)
    await tables.prepare(pool)
    async with pool.acquire() as connection:
        before = await tables.require(connection, tables.schema)
        assert await OwnTables(ends).require(connection, tables.schema) == before
        monkeypatch.setattr("inspect.getsource", lambda _: "other code")
        assert await tables.require(connection, tables.schema) != before


async def test_without_its_tables_there_is_nothing_to_rebuild(ports, own_tables):
    pool, ends = own_tables
    with pytest.raises(NotMigrated):
        await rebuild(
            ports.log,
            pool,
            ports.stack,
            clock=CLOCK,
            options=RebuildOptions(),
            tell=[].append,
            custom=OwnTables(ends),
        )


async def test_other_tables_under_one_name_are_refused(own_tables):
    pool, ends = own_tables
    await OwnTables(ends).prepare(pool)
    await OwnTables(ends).prepare(pool)
    other = Ends(ends.name, {"actors": OwnTable(key={"actor": "text"}, columns={"n": "bigint"})})
    with pytest.raises(CustomChanged, match="another"):
        await OwnTables(other).prepare(pool)


async def test_a_projection_that_raises_stands_still_and_says_why(ports, own_tables):
    pool, ends = own_tables
    await fill(ports, count=1)

    class Raising(Ends):
        def project(self, event):
            raise KeyError("no such thing")

    async with projecting(ports, pool, Raising(ends.name)):

        async def is_told():
            found = [row["trouble"] or "" for _, row in await list_own(pool, ports.stack)]
            return any("KeyError: 'no such thing'" in each for each in found)

        await wait_until(is_told)
    assert await rows(pool, "actors") == []


def folded(stack, *events, projection=None):
    fold = CustomFold(stack, projection or Ends(), TEXTS)
    fold.add(record(stack, *events))
    return fold


class Saying(Ends):
    def __init__(self, *changes):
        super().__init__()
        self._changes = changes

    def project(self, event):
        return self._changes


ACTOR = {"actor": "a"}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (
            [
                Add(table="actors", key=ACTOR, amounts={"opened": 2}),
                Add(table="actors", key=ACTOR, amounts={"opened": 3}),
            ],
            ['[{"actor":"a","opened":5}]'],
        ),
        (
            [
                Put(table="actors", key=ACTOR, values={"opened": 2}),
                Add(table="actors", key=ACTOR, amounts={"opened": 3}),
            ],
            ['[{"actor":"a","opened":5}]'],
        ),
        (
            [
                Add(table="actors", key=ACTOR, amounts={"opened": 3}),
                Put(table="actors", key=ACTOR, values={"opened": 2}),
            ],
            ['[{"actor":"a","opened":2}]'],
        ),
        (
            [
                Put(table="actors", key=ACTOR, values={"opened": 2, "tokens": 1}),
                Remove(table="actors", key=ACTOR),
            ],
            ['[{"actor":"a"}]'],
        ),
        (
            [
                Remove(table="actors", key=ACTOR),
                Add(table="actors", key=ACTOR, amounts={"opened": 1}),
            ],
            ['[{"actor":"a"}]', '[{"actor":"a","opened":1}]'],
        ),
    ],
)
def test_of_one_row_only_what_stays_is_written(stack, changes, wanted):
    fold = folded(stack, lives.opened(), projection=Saying(*changes))
    assert [each.document for each in fold.batches()] == wanted
    assert fold.touched() == [("actors", ("a",))]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Put(table="others", key=ACTOR, values={}), "no table 'others'"),
        (Put(table="actors", key={"name": "a"}, values={}), "the key is actor"),
        (Put(table="actors", key={"actor": None}, values={}), "the key is None"),
        (Put(table="actors", key=ACTOR, values={"age": 1}), "no column 'age'"),
    ],
)
def test_what_was_not_declared_is_refused_with_its_place(stack, change, why):
    with pytest.raises(CustomFailed, match=why) as refused:
        folded(stack, lives.opened(), projection=Saying(change))
    assert "sequence 1" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "tables", "why"),
    [
        ("Ends", Ends().tables, "a-z 0-9"),
        ("ends", {}, "no tables"),
        ("ends", {"t": OwnTable(key={}, columns={})}, "no column"),
        ("ends", {"t": OwnTable(key={"stack": "text"}, columns={})}, "stack"),
        (
            "ends",
            {"projection_checkpoints": OwnTable(key={"a": "text"}, columns={})},
            "checkpoints",
        ),
        ("ends", {"t": OwnTable(key={"a": "text"}, columns={"a": "text"})}, "'a'"),
        ("ends", {"t": OwnTable(key={"a; drop": "text"}, columns={})}, "drop"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(name, tables, why):
    with pytest.raises(BadProjection, match=why):
        check(Ends(name, tables))


PROGRAM = """
from tests.projections.custom.test_custom import Ends

ends = Ends("ends_killed")
"""


async def test_a_projection_that_is_killed_again_and_again_counts_each_event_once(
    nats, postgres, stack, tmp_path
):
    (tmp_path / "counting.py").write_text(PROGRAM)
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VIGIL_NATS_URL": nats.url,
        "VIGIL_POSTGRES_DSN": postgres.dsn,
        "VIGIL_STACK": stack.name,
        "VIGIL_LEASE_S": "2",
    }
    command = [sys.executable, "-m", "vigil", "projections", "run", "counting:ends"]
    async with (
        connect_log(nats.url, stack=stack) as ports,
        await connect(postgres.dsn, schema=schema_of("ends_killed")) as pool,
    ):

        async def count(least):
            async def is_there():
                if not await pool.fetchval("SELECT to_regclass('actors') IS NOT NULL"):
                    return False
                found = await pool.fetchval("SELECT sum(opened) FROM actors")
                return (found or 0) >= least

            await wait_until(is_there)

        for turn in range(3):
            process = subprocess.Popen(command, cwd=tmp_path, env=environ)  # noqa: ASYNC220 - a program
            try:
                for number in range(10):
                    await fill(ports, first=1 + 10 * turn + number, count=1)
                    if number == 5:
                        await count(10 * turn + 1)
                        process.send_signal(signal.SIGKILL if turn < 2 else 0)
                await count(10 * turn + 1)
                if turn == 2:
                    await wait_level(ports, pool, Ends("ends_killed"))
            finally:
                process.kill()
                process.wait()
        assert [row[:3] for row in await rows(pool, "actors")] == [("monitor", 30, 1_200)]
        await pool.execute(f"DROP SCHEMA {schema_of('ends_killed')} CASCADE")
