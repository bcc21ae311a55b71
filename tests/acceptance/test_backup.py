"""A stack is backed up while it runs, is lost, and goes on from its backup."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import pytest

from engine.orders.store import give_order
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.model.events import RetentionDeclared
from streams.subjects import Stack
from tests.acceptance.cluster import ROOT, Cluster, NodeProcess
from tests.vigil.program import Vigil

ENDED: Final = "select 1 from episodes where status = 'done'"

ENDED_S_MAX: Final = 90.0

FEW: Final = 60


def vigil_of(cluster: Cluster, folder: Path, **more: str) -> Vigil:
    servers = {"VIGIL_NATS_URL": cluster.nats_url, "VIGIL_POSTGRES_DSN": cluster.postgres.dsn}
    return Vigil(folder, **servers, **more)


def orders(first: int, last: int) -> dict[str, Any]:
    return {f"e{n}": {"order": f"o{n}", "late_days": 9} for n in range(first, last)}


def ordered(vigil: Vigil, *words: str) -> str:
    done = vigil.run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lose_all(cluster: Cluster) -> None:
    """Have the NATS server begin with nothing."""
    cluster.nats.kill()
    rmtree(cluster.directory / "nats" / "store")
    cluster.nats.restart()


KILLED: Final = """
import os, signal
from streams.jetstream.backup.files import BackupWriter
BackupWriter.finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from vigil.__main__ import main
main()
"""
"""The program, which is killed once all files of a backup are written, and before it is one."""


def kill_while_making(vigil: Vigil, kept: Path) -> None:
    command = [sys.executable, "-c", KILLED, "backup", "create", str(kept)]
    done = subprocess.run(command, env=vigil.environ, cwd=ROOT, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert any(kept.glob(".partial-*/*"))


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"?")


@pytest.mark.nightly
async def test_a_stack_goes_on_from_an_incremental_backup_that_was_made_while_it_ran(
    cluster, tmp_path
):
    vigil, kept = vigil_of(cluster, tmp_path), tmp_path / "backups"
    node = await cluster.start("n1")
    await cluster.publish("order.placed", orders(0, FEW))
    await cluster.wait_at_least("select 1 from episodes", FEW // 3, most_s=ENDED_S_MAX)
    full = vigil.ask("backup", "create", str(kept))
    await cluster.publish("order.placed", orders(FEW, 2 * FEW))
    await cluster.wait_at_least("select 1 from episodes", FEW + FEW // 3, most_s=ENDED_S_MAX)
    made = vigil.ask("backup", "create", str(kept), "--incremental")
    await cluster.wait_rows(ENDED, 2 * FEW, most_s=ENDED_S_MAX)
    assert made["base"] == Path(full["folder"]).name
    assert {each.stat().st_mode & 0o777 for each in kept.rglob("*") if each.is_file()} == {0o600}
    rmtree(full["folder"])  # An increment is whole in itself.
    assert "verified" in ordered(vigil, "backup", "verify", str(kept))

    refused = vigil.run("backup", "restore", str(kept))
    assert (refused.returncode, "is there" in refused.stderr) == (1, True), refused.stderr
    node.kill()
    lose_all(cluster)
    assert "filled again" in ordered(vigil, "backup", "restore", str(kept))

    # What was acknowledged before the cut ends, and each episode once.
    await cluster.query("truncate vigil.episodes, vigil.findings")
    await cluster.start("n1")
    await cluster.wait_rows(ENDED, 2 * FEW, most_s=ENDED_S_MAX)
    await cluster.wait_rows("select 1 from findings where status = 'active'", 2 * FEW, most_s=30)
    await cluster.publish("order.placed", orders(0, 2 * FEW), id_header="ce-id")
    await cluster.publish("order.placed", orders(2 * FEW, 2 * FEW + 1))
    await cluster.wait_rows(ENDED, 2 * FEW + 1, most_s=ENDED_S_MAX)
    [row] = await cluster.query("select count(*) as all, max(raise_no) as raises from findings")
    assert (row["all"], row["raises"]) == (2 * FEW + 1, 1)
    assert vigil.run("doctor").returncode == 0


ARCHIVE: Final = """
[archive]
store = "archive"
"""


@pytest.mark.nightly
async def test_the_tables_of_a_restored_stack_have_what_was_archived_before_the_backup(
    cluster, tmp_path
):
    cluster.folder = tmp_path / "home"
    cluster.folder.mkdir()
    (cluster.folder / "vigil.toml").write_text(ARCHIVE)
    vigil, kept = vigil_of(cluster, cluster.folder), tmp_path / "backups"
    node = await let_journal_go(cluster)
    await ended(cluster, orders(0, 20), in_all=20)
    purge_all(vigil)
    await ended(cluster, orders(20, 30), in_all=30)
    ordered(vigil, "backup", "create", str(kept))
    # What is lost, and stays in the archive.
    await ended(cluster, orders(30, 40), in_all=40)
    purge_all(vigil)
    assert node.stop() == 0
    lose_all(cluster)
    await cluster.query("drop schema vigil cascade")

    ordered(vigil, "backup", "restore", str(kept))

    await cluster.start("n1")
    await ended(cluster, orders(40, 45), in_all=35)
    purge_all(vigil)
    found = await cluster.query("select subject_id from episodes")
    numbers = sorted(int(each["subject_id"][1:]) for each in found)
    assert numbers == [*range(30), *range(40, 45)]
    verified = vigil.run("projections", "verify")
    assert verified.returncode == 0, verified.stdout
    await cluster.query("delete from vigil.episode_steps where step_no = 2")
    await cluster.query("delete from vigil.episodes where subject_id in ('o3', 'o25', 'o41')")
    ordered(vigil, "projections", "rebuild", "--yes")
    verified = vigil.run("projections", "verify")
    assert verified.returncode == 0, verified.stdout
    [counted] = await cluster.query("select count(*) as there from vigil.episodes")
    assert counted["there"] == 35


async def ended(cluster: Cluster, payloads: dict[str, Any], *, in_all: int) -> None:
    await cluster.publish("order.placed", payloads)
    await cluster.wait_rows(ENDED, in_all, most_s=ENDED_S_MAX)


async def let_journal_go(cluster: Cluster) -> NodeProcess:
    """Start a node; what has ended leaves the journal at once, which no settings may ask for."""
    node = await cluster.start("n1")
    event = RetentionDeclared(kept_s={"journal": 0}, by="a test")
    async with connect(cluster.nats_url, stack=Stack()) as ports:
        await give_order(ports, event, clock=SystemClock())
    return node


def purge_all(vigil: Vigil) -> None:
    """Have nothing but the archive know what has ended."""
    vigil.wait_for("archive", "run", until=lambda done: done["parts"][0]["purged"]["messages"])


async def test_a_stack_that_has_moved_on_goes_back_to_its_backup(cluster, tmp_path):
    vigil, kept = vigil_of(cluster, tmp_path), tmp_path / "backups"
    node = await cluster.start("n1")
    await cluster.publish("order.placed", orders(0, 3))
    await cluster.wait_rows(ENDED, 3, most_s=ENDED_S_MAX)
    ordered(vigil, "backup", "create", str(kept))
    await cluster.publish("order.placed", orders(3, 9))
    await cluster.wait_rows(ENDED, 9, most_s=ENDED_S_MAX)
    assert node.stop() == 0

    ordered(vigil, "backup", "restore", str(kept), "--replace", "--yes")
    await cluster.query("truncate vigil.episodes, vigil.findings")

    await cluster.start("n1")
    await cluster.publish("order.placed", orders(9, 10))
    await cluster.wait_rows(ENDED, 4, most_s=ENDED_S_MAX)
    found = await cluster.query("select subject_id from episodes order by 1")
    assert [each["subject_id"] for each in found] == ["o0", "o1", "o2", "o9"]


async def test_a_backup_that_was_killed_is_none_and_a_damaged_one_is_refused(cluster, tmp_path):
    vigil, kept = vigil_of(cluster, tmp_path), tmp_path / "backups"
    await cluster.start("n1")
    await cluster.publish("order.placed", orders(0, 5))
    await cluster.wait_rows(ENDED, 5, most_s=ENDED_S_MAX)
    kill_while_making(vigil, kept)
    none = vigil.run("backup", "verify", str(kept))
    assert (none.returncode, "no finished backup" in none.stderr) == (1, True)

    made = vigil.ask("backup", "create", str(kept))
    damage(Path(made["folder"], "journal.snapshot"))
    for words in (("verify", str(kept)), ("restore", str(kept), "--replace", "--yes")):
        refused = vigil.run("backup", *words)
        assert (refused.returncode, "is damaged" in refused.stderr) == (1, True), refused.stderr
    assert json.loads(vigil.run("episodes", "list", "--json").stdout), "nothing was deleted"
