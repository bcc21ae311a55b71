"""A Postgres of one's own comes up quickly, keeps what it was given, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import psutil
import pytest

from projections.embedded import EmbeddedPostgres
from projections.errors import PostgresUnavailable

PARENT = """
import sys
from pathlib import Path
from projections.embedded import EmbeddedPostgres

with EmbeddedPostgres(Path(sys.argv[1])) as server:
    print(server.pid, server.dsn, flush=True)
    sys.stdin.read()
"""


FIRST_USE = """
import sys
import projections.embedded as embedded

embedded.SYSTEM_USER = sys.argv[1]
print(embedded._system_user().pw_uid)
"""

SERVERS = 5
"""How many start at once on a machine that has no user for them yet: as many as tests do."""


async def ask(dsn: str, text: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(text)
    finally:
        await connection.close()


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_it_is_postgres_18_on_loopback(postgres):
    assert postgres.dsn.startswith("postgresql://postgres@127.0.0.1:")
    assert str(await ask(postgres.dsn, "SHOW server_version")).startswith("18.")
    assert await ask(postgres.dsn, "SHOW listen_addresses") == "127.0.0.1"


async def test_a_restart_keeps_the_rows_and_the_port(directory):
    with EmbeddedPostgres(directory) as server:
        dsn = server.dsn
        await ask(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        server.restart()
        assert server.dsn == dsn
        assert await ask(dsn, "SELECT n FROM kept") == 7
    with EmbeddedPostgres(directory) as server:
        assert await ask(server.dsn, "SELECT n FROM kept") == 7


async def test_a_crash_keeps_what_was_committed(directory):
    with EmbeddedPostgres(directory) as server:
        assert await ask(server.dsn, "SHOW fsync") == "on"
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        server.kill()
        server.restart()
        assert await ask(server.dsn, "SELECT n FROM kept") == 7


def test_leaving_ends_the_server(directory):
    with EmbeddedPostgres(directory) as server:
        pid = server.pid
    assert not psutil.pid_exists(pid)
    server.stop()


def test_a_port_that_is_taken_is_an_error_with_the_reason(directory, postgres):
    port = int(postgres.dsn.rpartition(":")[2].partition("/")[0])
    with (
        pytest.raises(PostgresUnavailable, match="Address already in use"),
        EmbeddedPostgres(directory, port=port),
    ):
        pass


def test_a_directory_has_one_server_at_a_time(directory, monkeypatch):
    monkeypatch.setattr("projections.embedded.STOP_S_MAX", 0.1)
    with (
        EmbeddedPostgres(directory),
        pytest.raises(PostgresUnavailable, match="in use by another server"),
        EmbeddedPostgres(directory),
    ):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it with its parent")
async def test_it_ends_with_its_parent_and_the_directory_serves_again(directory):
    parent = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
        [sys.executable, "-c", PARENT, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        orphan = psutil.Process(int(parent.stdout.readline().split()[0]))
        parent.send_signal(signal.SIGKILL)
        parent.wait(timeout=10)
    with EmbeddedPostgres(directory) as server:
        assert server.pid != orphan.pid
        assert await ask(server.dsn, "SELECT 1") == 1
    assert has_ended(orphan)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may not run Postgres")
def test_root_runs_it_as_someone_else(postgres_server):
    assert psutil.Process(postgres_server.pid).username() != "root"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a user for Postgres, and may add it")
def test_servers_that_start_at_once_on_a_new_machine_run_as_one_user():
    user = f"vigiltest{os.getpid()}"
    command = [sys.executable, "-c", FIRST_USE, user]
    try:
        starts = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(SERVERS)]
        ids = {start.communicate()[0] for start in starts}
    finally:
        subprocess.run(["/usr/sbin/userdel", user], check=True, capture_output=True)

    assert all(start.returncode == 0 for start in starts)
    assert len(ids) == 1
