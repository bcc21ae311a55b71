"""`vigil archive`, on servers: what is archived is read from everywhere as before."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

import pytest
from msgspec.structs import replace

from engine.archive.drop import DropReport, SegmentHold
from engine.archive.floor import Bound, FloorHold
from engine.archive.run import ArchiveReport, PartReport
from engine.orders.store import give_order
from engine.retention.rules import KeptTimes
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.model.events import RetentionDeclared
from streams.ports.all import Ports
from streams.ports.log import START, Commit
from streams.subjects import Stack
from tests.engine.reactor import journals as given
from tests.followed import note_followed
from tests.vigil.program import Vigil
from vigil.archiving.settings import ArchiveSpec
from vigil.asking.repairs.diagnosis import look_at_archive

CLOCK = SystemClock()
NOW = CLOCK.now()

ROUNDS = 4
"""Of work and archiving: longer than two looks of a node at its streams."""
EPISODES = [str(UUID(int=number)) for number in range(1, 5)]


async def hurried(ports: Ports, **kept: int) -> None:
    """Have whatever has ended leave the journal at once, which no settings may ask for."""
    event = RetentionDeclared(kept_s={"journal": 0, **kept}, by="a test")
    await give_order(ports, event, clock=CLOCK)


async def lived(
    ports: Ports, *, names: Sequence[str] = EPISODES, kept: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Have episodes begin and end."""
    await hurried(ports, **kept)
    for name in names:
        version = START
        opened = replace(given.OPENED, episode_id=name)
        for number, event in enumerate((opened, given.STARTED, given.STEP, given.FINISHED)):
            commit = Commit(id=f"{name}.{number}", at=NOW, events=(event,))
            version = await ports.log.append(ports.stack.episode(name), commit, after=version)
    await note_followed(ports, up_to=None)


def on_log(vigil: Vigil, work) -> None:
    """Do some work on the log of the stack."""

    async def done() -> None:
        stack = Stack(vigil.environ["VIGIL_STACK"])
        async with connect(vigil.environ["VIGIL_NATS_URL"], stack=stack) as ports:
            await work(ports)

    asyncio.run(done())


def named(folder: Path, store: str = "archive", **more: object) -> None:
    lines = [f'store = "{store}"', "waits_for_rows = false"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    (folder / "vigil.toml").write_text("[archive]\n" + "\n".join(lines) + "\n")


@pytest.fixture(params=["archive", "nats"])
def archived(request, standing: Vigil, tmp_path: Path) -> Vigil:
    """A stack of which four episodes are in an archive alone."""
    named(tmp_path, request.param)
    on_log(standing, lived)
    done = standing.run("archive", "run")
    assert done.returncode == 0, done.stderr
    assert "16" in done.stdout
    return standing


def test_a_dry_run_says_what_it_would_do(standing: Vigil, tmp_path: Path):
    named(tmp_path)
    on_log(standing, lived)
    done = standing.run("archive", "run", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "dry run" in done.stdout
    assert not (tmp_path / "archive").exists()
    assert standing.ask("archive", "run", "--dry-run")["parts"][0]["messages"] == 16


def test_an_archived_episode_is_recorded_as_ever(archived: Vigil):
    done = archived.run("episodes", "replay", EPISODES[1], "--record", "-")
    if done.returncode:
        done = archived.run("episodes", "replay", EPISODES[1])
    assert done.returncode == 0, done.stderr
    assert "opened" in done.stdout


def test_segments_are_listed_and_verified_without_a_server(archived: Vigil):
    archived.environ["VIGIL_POSTGRES_DSN"] = "postgresql://127.0.0.1:1/none"
    (segment,) = archived.ask("archive", "verify")
    assert (segment["first_seq"], segment["last_seq"], segment["messages"]) == (1, 16, 16)
    assert archived.ask("archive", "list")[0]["problem"] == ""


def test_commits_are_printed(archived: Vigil):
    lines = archived.run("archive", "cat", EPISODES[0]).stdout.splitlines()
    assert [json.loads(line)["commit"]["events"][0]["type"] for line in lines] == [
        "episode.opened@1",
        "episode.started@1",
        "episode.step_recorded@1",
        "episode.finished@1",
    ]
    some = archived.run("archive", "cat", "--stream", "journal", "--after", "3", "--limit", "2")
    assert [json.loads(line)["seq"] for line in some.stdout.splitlines()] == [4, 5]
    assert archived.run("archive", "cat", str(UUID(int=99))).returncode == 1
    assert archived.run("archive", "cat", "what").returncode == 2
    assert archived.run("archive", "cat").returncode == 2


def test_a_restored_episode_is_read_without_the_archive(archived: Vigil, tmp_path: Path):
    restored = archived.run("archive", "restore", EPISODES[2], "--days", "2")
    assert restored.returncode == 0, restored.stderr
    (tmp_path / "vigil.toml").unlink()
    assert archived.run("episodes", "replay", EPISODES[2]).returncode == 0
    assert archived.run("episodes", "replay", EPISODES[3]).returncode != 0


def test_a_damaged_segment_is_told(standing: Vigil, tmp_path: Path):
    named(tmp_path)
    on_log(standing, lived)
    assert standing.run("archive", "run", "--no-purge").returncode == 0
    (file,) = (tmp_path / "archive").rglob("*.vigseg")
    data = bytearray(file.read_bytes())
    data[30] ^= 1
    file.write_bytes(bytes(data))
    verified = standing.run("archive", "verify")
    assert verified.returncode == 1
    assert "not as they were written" in verified.stderr
    purged = standing.run("archive", "run")
    assert purged.returncode == 1
    assert "damaged" in purged.stderr


def test_tables_that_are_away_keep_the_journal_whole(standing: Vigil, tmp_path: Path):
    named(tmp_path)
    text = (tmp_path / "vigil.toml").read_text().replace("waits_for_rows = false", "")
    (tmp_path / "vigil.toml").write_text(text)
    on_log(standing, lived)
    standing.environ["VIGIL_POSTGRES_DSN"] = "postgresql://127.0.0.1:1/none"
    (part,) = standing.ask("archive", "run")["parts"]
    assert (part["archived"], part["floor"]["hold"], part["floor"]["seq"]) == (16, "rows", 1)


def test_doctor_tells_of_the_last_run(archived: Vigil):
    told = json.loads(archived.run("doctor", "--json").stdout)
    checks = {each["what"]: each["says"] for each in told["checks"]}
    assert "begins at 17; held by age" in checks["archive journal"]


def test_an_archive_that_was_moved_away_is_told(standing: Vigil, tmp_path: Path):
    named(tmp_path)
    on_log(standing, lived)
    assert standing.run("archive", "run").returncode == 0
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    checks = json.loads(standing.run("doctor", "--json").stdout)["checks"]
    told = [each["says"] for each in checks if each["what"] == "archive journal"]
    assert "it begins at 17, and the archive in " in told[-1]
    assert told[-1].endswith("ends at 0")
    for command in (["verify"], ["cat", EPISODES[0]]):
        read = standing.run("archive", *command)
        assert (read.returncode, "there is no folder archive" in read.stderr) == (1, True)
    assert "the archive is empty" in standing.run("archive", "list").stderr


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("", "no archive is named"),
        ('[archive]\nstore = "ftp://a/b"', "'ftp://a/b' is no folder, s3://bucket/prefix or nats"),
        ('[archive]\nstore = "s3:///x"', "name a bucket"),
        ('[archive]\nstore = "a"\nhots = 1', "hots"),
        ('[archive]\nstore = "a"\nwaits_for_rows = 3', "waits_for_rows"),
    ],
)
def test_settings_that_cannot_be_are_refused(vigil: Vigil, tmp_path: Path, table, says):
    (tmp_path / "vigil.toml").write_text(table)
    done = vigil.run("archive", "list")
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


KEPT = KeptTimes({"journal": 14 * 86_400})


def report(days_ago: float = 0, **more) -> ArchiveReport:
    at = NOW.fromtimestamp(NOW.timestamp() - days_ago * 86_400, NOW.tzinfo)
    floor = Bound(seq=3, hold=FloorHold.OPEN, about="s.episode.e1", since=NOW)
    part = PartReport(part="journal", archived=9, floor=floor)
    return ArchiveReport(at=at, by="n1", address="/archive", parts=[part], **more)


def test_an_archive_that_was_not_run_for_long_is_noted():
    spec = ArchiveSpec(store="a")
    assert look_at_archive(None, None, KEPT, now=NOW) == []
    assert [each.status for each in look_at_archive(spec, None, KEPT, now=NOW)] == ["note"]
    assert [each.status for each in look_at_archive(spec, report(), KEPT, now=NOW)] == ["ok", "ok"]
    old = look_at_archive(spec, report(days_ago=8), KEPT, now=NOW)
    assert [each.status for each in old] == ["note", "ok"]
    assert "held by open: episode.e1, since" in old[1].says


def test_an_archive_that_nothing_goes_to_is_noted():
    (told,) = look_at_archive(ArchiveSpec(store="a"), None, KeptTimes(), now=NOW)
    assert told.status == "note"
    assert "kept for ever" in told.says


def test_how_long_segments_are_kept_is_told():
    times = KeptTimes({"journal": 14 * 86_400, "archive": 365 * 86_400})
    drop = DropReport(part="journal", folder="s", begin=7, since=NOW, hold=SegmentHold.ROWS)
    *_, told = look_at_archive(ArchiveSpec(store="a"), report(dropped=[drop]), times, now=NOW)
    assert told.what == "segments of the archive"
    assert told.says == f"kept for 365 days; journal since {NOW:%Y-%m-%d}, held by rows"


def test_old_segments_leave_the_archive_and_that_is_told(archived: Vigil):
    on_log(archived, lambda ports: lived(ports, names=[str(UUID(int=9))], kept={"archive": 0}))
    done = archived.run("archive", "run")
    assert done.returncode == 0, done.stderr
    assert "journal: old segments leave the archive, 1 with 0.0 MB: it begins at 17" in done.stdout
    listed = archived.run("archive", "list")
    assert (listed.returncode, "before 17 was deleted" in listed.stdout) == (0, True)
    assert [each["first_seq"] for each in archived.ask("archive", "verify")] == [17]
    assert archived.run("episodes", "replay", EPISODES[1]).returncode != 0
    told = json.loads(archived.run("doctor", "--json").stdout)
    (says,) = [each["says"] for each in told["checks"] if "segments of" in each["what"]]
    assert says.startswith("kept for 0 days; journal since")


def test_nothing_is_archived_while_nobody_says_how_long_the_journal_is_kept(
    standing: Vigil, tmp_path: Path
):
    named(tmp_path)
    on_log(standing, lambda _: asyncio.sleep(0))
    done = standing.run("archive", "run")
    assert (done.returncode, "kept for ever" in done.stderr) == (2, True)


def ended(vigil: Vigil, count: int) -> list[str]:
    """Return the ids of so many episodes, once they have ended."""
    rows = vigil.wait_for(
        "episodes", "list", "--status", "done", until=lambda rows: len(rows) == count
    )
    return [each["episode_id"] for each in rows]


def test_a_node_goes_on_while_its_journal_is_archived(
    standing: Vigil, tmp_path: Path, write_app: Callable[[], None]
):
    """It watches whether the journal has lost its past, every 3 seconds."""
    write_app()
    (tmp_path / "vigil.toml").write_text('[archive]\nstore = "archive"\n')
    on_log(standing, hurried)
    ids: list[str] = []
    with standing.running("node", "--app", "watch:app") as node:
        node.wait_said("node up")
        standing.wait_for("episodes", "list", until=lambda _: True)
        for number in range(1, ROUNDS + 1):
            event = json.dumps({"host": f"h{number}"})
            published = standing.run("publish", "host.seen", event)
            assert published.returncode == 0, (published.stderr, node.said)
            ids = ended(standing, number)
            (part,) = standing.ask("archive", "run")["parts"]
        assert part["archived"] > 0
        assert node.stop(signal.SIGTERM) == 0
    (oldest, *_) = sorted(ids, key=lambda each: standing.ask("episodes", "show", each)["queued_at"])
    assert standing.run("episodes", "replay", oldest).returncode == 0
    assert standing.run("archive", "cat", oldest).returncode == 0
