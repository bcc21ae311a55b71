"""`vigil up` and `vigil demo` on a bad day: dead servers, a removed folder, Ctrl-C, `kill -9`."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.mistakes import test_servers as around

APP = """
import asyncio
from pathlib import Path

from vigil import Actor, App, event, raise_finding, tool


@tool(idempotent=True)
async def measure(host: str) -> str:
    Path("began").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.05)
    return host


monitor = Actor("monitor", tools=[measure])


@monitor.expectation(on=event("host.seen"))
async def check_disk(ctx, trigger):
    host = await ctx.call(measure, host=trigger.payload["host"])
    return raise_finding(host, class_="seen", severity="low")


app = App(actors=[monitor])
"""

LONG_LEASE_S = "600"
"""Longer than any wait of a test: what goes on did not wait for a lease to lapse."""

UP = ("up", "--app", "watch:app")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with an app whose tool waits for a file, `go`."""
    (tmp_path / "watch.py").write_text(APP)
    return tmp_path


def publish(vigil, host: str = "a") -> None:
    done = vigil.run("publish", "host.seen", f'{{"host": "{host}"}}')
    assert done.returncode == 0, done.stderr


def wait_begun(vigil, up) -> None:
    publish(vigil)
    vigil.wait_for(
        "episodes", "list", until=lambda rows: (vigil.folder / "began").exists() and bool(rows)
    )


def server(up, name: str) -> psutil.Process:
    children = psutil.Process(up.process.pid).children()
    (found,) = [each for each in children if name in each.name()]
    return found


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux ends children with their parent")
def test_what_a_killed_up_held_goes_on_at_once_when_it_starts_again(vigil, app):
    with vigil.running(*UP, VIGIL_LEASE_S=LONG_LEASE_S) as up:
        up.wait_said("node up")
        wait_begun(vigil, up)
        up.stop(signal.SIGKILL)
    (app / "go").touch()
    with vigil.running(*UP, VIGIL_LEASE_S=LONG_LEASE_S) as up:
        up.wait_said(around.KILLED.said)
        vigil.wait_for("findings", "list", until=lambda rows: len(rows) == 1)
        assert "another node of this name is up" not in up.said
        assert up.stop(signal.SIGTERM) == 0


# Whoever runs the tests by nohup has their programs ignore a hangup.
DEADLY: Final = [each for each in (signal.SIGKILL, signal.SIGHUP)
                 if signal.getsignal(each) is not signal.SIG_IGN]  # fmt: skip


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux ends children with their parent")
@pytest.mark.parametrize("number", DEADLY)
def test_a_demo_that_was_killed_goes_on_at_once_when_it_starts_again(vigil, number):
    with vigil.running("demo", VIGIL_LEASE_S=LONG_LEASE_S) as demo:
        vigil.wait_for("episodes", "list", until=bool)
        demo.stop(number)
    with vigil.running("demo", VIGIL_LEASE_S=LONG_LEASE_S) as demo:
        before = {each["episode_id"] for each in vigil.wait_for("episodes", "list", until=bool)}
        vigil.wait_for(
            "episodes",
            "list",
            until=lambda rows: not {each["episode_id"] for each in rows} <= before,
        )
        assert around.KILLED.said in (vigil.folder / ".vigil/demo/vigil.log").read_text()
        assert demo.stop(signal.SIGINT) == 0


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux ends children with their parent")
def test_what_a_node_of_a_chosen_name_held_waits_since_others_may_have_that_name(vigil, app):
    settings = {"VIGIL_LEASE_S": LONG_LEASE_S, "VIGIL_NODE": "n1"}
    with vigil.running(*UP, **settings) as up:
        up.wait_said("node up")
        wait_begun(vigil, up)
        up.stop(signal.SIGKILL)
    with vigil.running(*UP, **settings) as up:
        said = up.wait_said("node up")
        assert "another node of this name is up" in said
        assert "goes on now" not in said


def test_a_server_that_dies_is_started_again_once_and_then_up_ends_with_the_reason(vigil, app):
    (app / "go").touch()
    with vigil.running(*UP) as up:
        up.wait_said("node up")
        for number, name in enumerate(("nats", "postgres"), start=1):
            server(up, name).kill()
            up.wait_said(around.NATS_DIED[0].said, times=number)
            publish(vigil, name)
            vigil.wait_for("findings", "list", until=lambda rows, n=number: len(rows) == n)

        server(up, "nats").kill()
        up.wait_said(around.NATS_DIED[1].said)
        assert up.stop(0) == 1
        assert up.said.splitlines()[-1].endswith("its log is .vigil/nats/nats.log")


def test_a_removed_folder_ends_up_with_one_line(vigil, app):
    with vigil.running(*UP) as up:
        up.wait_said("node up")
        shutil.rmtree(app / ".vigil", ignore_errors=True)
        up.wait_said(around.FOLDER_REMOVED.said)
        assert up.stop(0) == 1


def test_ctrl_c_says_what_it_waits_for_and_a_second_one_that_it_ends_now(vigil, app):
    with vigil.running(*UP) as up:
        up.wait_said("node up")
        wait_begun(vigil, up)
        up.process.send_signal(signal.SIGINT)
        said = up.wait_said(around.CTRL_C.said)
        assert "monitor/check_disk" in said
        assert "in measure.call" in said
        assert "most_s=30.0" in said
        assert up.stop(signal.SIGINT) == 128 + signal.SIGINT
        assert around.CTRL_C_TWICE.said in up.said
