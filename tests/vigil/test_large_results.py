"""A result of 5 MiB with real servers: kept, replayed after a kill, shown by its size, and lost."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Final

import nats as nats_py
import pytest

from tests.vigil.program import Vigil
from tests.vigil.test_command_line import one_line

TEXT: Final = json.dumps("x" * (5 * 1024 * 1024)).encode()
DIGEST: Final = sha256(TEXT).hexdigest()

APP: Final = '''
"""Downloads something large, counts it, and waits until somebody has looked at it."""

import pathlib
import time

from vigil import Actor, App, ConvergeResult, Strategy, converge, event, tool, tool_call

HERE = pathlib.Path(__file__).parent


def note(what):
    with (HERE / "calls").open("a") as calls:
        calls.write(f"{what}\\n")


@tool
async def download() -> str:
    note("download")
    return "x" * (5 * 1024 * 1024)


@tool(redact=("key",))
async def secrets() -> dict:
    note("secrets")
    return {"key": "hunter2", "rest": "x" * 300_000}


@tool(idempotent=True, side_effect=True)
def look() -> str:
    note("look")
    print("looks at it", flush=True)
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return "seen"


class Class(Strategy):
    def init(self, episode, trigger):
        return {"sizes": []}

    def next_step(self, state, ctx):
        done = len(state["sizes"])
        return converge() if done == 3 else tool_call((download, secrets, look)[done])

    def handle_result(self, state, step, result):
        return {"sizes": [*state["sizes"], len(result)]}

    def converge(self, state, ctx):
        return ConvergeResult(summary=str(state["sizes"]))


watcher = Actor("watcher", tools=[download, secrets, look])


@watcher.expectation(on=event("a.b"))
async def function(ctx, trigger):
    results = [await ctx.call(each) for each in (download, secrets, look)]
    return ConvergeResult(summary=str([len(each) for each in results]))


watcher.expect("class", Class, on=event("a.b"))
app = App(actors=[watcher])
'''


@pytest.fixture
def calls(tmp_path: Path):
    """Return what the tools were asked for so far, in order."""
    file = tmp_path / "calls"
    return lambda: file.read_text().split() if file.exists() else []


@pytest.fixture
def node(connected: Vigil, tmp_path: Path):
    """Starts a node of the app."""
    (tmp_path / "large.py").write_text(APP)

    def start(name: str):
        return connected.running(
            "node", "--app", "large:app", "--lease-s", "1", "--node-name", name
        )

    return start


def killed_while_it_looks(connected: Vigil, node, form: str) -> str:
    """Return the episode of a node that was killed after two large results."""
    with node("n1") as first:
        first.wait_said("node up")
        id_ = connected.run("fire", "watcher", form).stdout.strip()
        first.wait_said("looks at it")
    return id_


@pytest.mark.parametrize("form", ["function", "class"])
def test_a_large_result_is_kept_replayed_shown_by_its_size_and_held(
    connected, node, calls, tmp_path, form
):
    id_ = killed_while_it_looks(connected, node, form)
    (tmp_path / "go").touch()
    with node("n2"):
        ended = connected.wait_for(
            "episodes", "show", id_, until=lambda row: row["status"] not in ("running", "queued")
        )
        assert connected.run("retention", "hold", "add", "episode", id_).returncode == 0
        steps = {each["step"]: each for each in connected.ask("retention", "run")["steps"]}
        assert steps["large results"]["held"] == {"holds": 2}
    assert (ended["status"], ended["summary"]) == ("done", "[5242880, 2, 4]"), ended
    assert (ended["attempts"], calls()) == (2, ["download", "secrets", "look", "look"])

    first, second, third = connected.ask("episodes", "steps", id_)
    assert (first["result"], first["result_size_bytes"]) == (None, len(TEXT))
    assert first["result_digest"] == DIGEST
    assert (second["result_size_bytes"], second["result_digest"]) == (300_027, None)
    assert (third["result_size_bytes"], third["result_digest"]) == (None, None)
    assert "5,242,882 bytes" in connected.run("episodes", "steps", id_).stdout

    assert result_of(connected, id_, "1") == json.loads(TEXT)
    hidden = one_line(connected.run("episodes", "result", id_, "--step", "2"), code=1)
    assert "nothing of the result of step 2 may be shown" in hidden
    assert result_of(connected, id_, "3") == "seen"
    for words in (("steps", id_, "--json"), ("log", id_), ("replay", id_, "--json")):
        assert "hunter2" not in connected.run("episodes", *words).stdout


def test_an_episode_whose_result_was_removed_fails_and_says_why(
    connected, node, calls, tmp_path, nats
):
    id_ = killed_while_it_looks(connected, node, "function")
    asyncio.run(emptied(nats.url, f"OBJ_{connected.environ['VIGIL_STACK']}-blobs"))
    (tmp_path / "go").touch()
    with node("n2"):
        ended = connected.wait_for(
            "episodes", "show", id_, until=lambda row: row["status"] == "failed"
        )
    assert ended["error_class"] == "result_lost"
    assert "VIGIL_RESULTS_DAYS" in ended["error_detail"]
    assert calls() == ["download", "secrets", "look"]
    line = one_line(connected.run("episodes", "result", id_, "--step", "1"), code=1)
    assert f"a result of {len(TEXT):,} bytes ({DIGEST[:12]}…) is gone" in line


def test_a_step_that_is_not_there_has_no_result(standing):
    unknown = "00000000-0000-0000-0000-000000000000"
    done = standing.run("episodes", "result", unknown, "--step", "1")
    assert "no step 1 of an episode" in one_line(done, code=1)


def result_of(vigil: Vigil, id_: str, step: str):
    done = vigil.run("episodes", "result", id_, "--step", step)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def emptied(url: str, stream: str) -> None:
    client = await nats_py.connect(url)
    await client.jetstream().purge_stream(stream)
    await client.close()
