"""A server of one's own: it starts, stops, comes back, and never outlives its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from streams import embedded
from streams.embedded import EmbeddedNats
from streams.errors import Incompatible, Unavailable

WAIT_S: Final = 30.0
ROOT: Final = Path(__file__).parents[2]


def is_listening(server):
    try:
        socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=1).close()
    except OSError:
        return False
    return True


def is_alive(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_dead(pid):
    deadline_s = time.monotonic() + WAIT_S
    while is_alive(pid) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not is_alive(pid)


def test_it_listens_on_loopback_on_a_port_of_its_own(tmp_path):
    with EmbeddedNats(tmp_path / "one") as one, EmbeddedNats(tmp_path / "other") as other:
        assert is_listening(one)
        assert is_listening(other)
        assert one.url != other.url
        assert urlsplit(one.url).hostname == "127.0.0.1"


def test_leaving_stops_it_and_keeps_the_directory(tmp_path):
    with EmbeddedNats(tmp_path / "nats") as server:
        pid = server.pid
    assert not is_alive(pid)
    assert not is_listening(server)
    assert (tmp_path / "nats" / "store").is_dir()


def test_what_else_is_in_the_directory_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with EmbeddedNats(tmp_path) as server:
        server.kill()
        server.restart()
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("end", [EmbeddedNats.stop, EmbeddedNats.kill, lambda server: None])
def test_a_restart_keeps_the_port(tmp_path, end):
    with EmbeddedNats(tmp_path) as server:
        url, pid = server.url, server.pid
        end(server)
        server.restart()
        assert (server.url, is_listening(server)) == (url, True)
        assert server.pid != pid


def test_a_frozen_server_can_be_stopped(tmp_path):
    with EmbeddedNats(tmp_path) as server:
        pid = server.pid
        server.pause()
        server.stop()
        assert not is_alive(pid)


def test_stopping_twice_is_stopping_once(tmp_path):
    with EmbeddedNats(tmp_path) as server:
        server.stop()
        server.stop()
        with pytest.raises(Unavailable, match="not running"):
            _ = server.pid


def test_a_taken_port_is_one_clear_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match="address already in use"):
            EmbeddedNats(tmp_path, port=port).__enter__()


def test_a_missing_server_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded.shutil, "which", lambda *_, **__: None)
    with pytest.raises(Incompatible) as caught:
        EmbeddedNats(tmp_path).__enter__()
    assert "`embedded`" in caught.value.remedy


def test_a_directory_with_an_odd_name_is_fine(tmp_path):
    with EmbeddedNats(tmp_path / 'a "quoted" $name #1') as server:
        assert is_listening(server)


PARENT: Final = """
import sys, time
from pathlib import Path
from streams.embedded import EmbeddedNats
with EmbeddedNats(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def parent(tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path / "nats")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_it_does_not_outlive_a_parent_that_is_killed(parent):
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    wait_dead(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="sessions are read from /proc")
def test_it_is_out_of_reach_of_the_terminal(parent):
    pid = int(parent.stdout.readline())
    assert os.getsid(pid) == pid
    os.kill(parent.pid, signal.SIGINT)
    parent.wait(timeout=WAIT_S)
    wait_dead(pid)
